"""Differential privacy of releases.

discrete_noise  noise on a lattice, whole and in shares
noisy_sums      sums of clipped rows, to which every site adds a full share of noise
mechanisms      the size of noise for a promise
accountant      every release of a run, and the budget
budget          the promise of the settings, checked before a run starts
privacy_ledger  a file that all releases of one data set are charged to
"""
