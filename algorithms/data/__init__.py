"""Makes the partitions of sites comparable.

partition    the names of the arrays and values in a site's partition
scaling      the common scale of columns
encoding     categories, agreed by a secure sum; 0/1 columns
statistics   noisy counts, means and covariances of columns: the request and the estimates
statistics_rounds  the rounds that release them, and the part of the sites
columns      converts raw rows to scaled rows
horizontal   sites that hold rows and agree by sums
public_rows  sites that hold private rows, scaled and encoded by public ones
vertical     sites that hold columns: alignment, folds, labels
"""
