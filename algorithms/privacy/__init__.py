"""Differential privacy of what is released.

discrete_noise  noise on a lattice, whole and in shares
noisy_sums      sums of clipped rows, of which every site adds all of the noise
mechanisms      how much noise, for what is promised
ledger          what is spent of one data set by all runs
accountant      every release of a run, and the budget
budget          what settings promise, refused before anything starts
"""
