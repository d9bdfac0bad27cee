"""Differential privacy of what is released.

discrete_noise  noise on a lattice, whole and in shares
mechanisms      how much noise, for what is promised
accountant      every release of a run, and the budget
budget          what settings promise, refused before anything starts
"""
