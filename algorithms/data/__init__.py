"""Partitions made comparable.

partition    what a site is handed: the names of arrays and values
scaling      the common scale of columns
encoding     categories, agreed by a secure sum; 0/1 columns
statistics   noisy counts, means and covariances of columns: what is asked, and what is found
statistics_rounds  the rounds that release them, and the part of the sites
columns      how rows as they are become scaled rows
horizontal   sites that hold rows and agree by sums
public_rows  sites that hold private rows, scaled and encoded by public ones
vertical     sites that hold columns: alignment, folds, labels
"""
