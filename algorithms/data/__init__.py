"""Makes the partitions of sites comparable.

partition    the names of the arrays and values in a site's partition
scaling      the common scale of columns
encoding     categories, agreed by a secure sum; 0/1 columns
statistics   noisy counts, means and covariances of columns: the request and the estimates
statistics_rounds  the rounds that release them, and the part of the sites
columns      converts raw rows to scaled rows; numbers sets of columns
column_sums  exact sums of columns, by which sites agree on categories, on values for gaps and on a scale
evaluation   counts of the rows that a site holds out, by a model's decision values
horizontal   sites that hold rows: their state, their steps and the order of these
horizontal_task    the coordinator's half: rows prepared for an algorithm
public_rows  sites that hold private rows, scaled and encoded by public ones
vertical     sites that hold columns: alignment, folds, labels
bins               bins of numbers between powers of two, one set for each sign, with a bin of zeros between them
class_statistics   noisy statistics of the rows of each class, enough to make a model without the rows
classes            labels of rows
conditions         conditions of a round
scale_search       search for the scale of numeric columns without ranges, from noisy counts over overlapping windows
scaled_rows        rows on the common scale, computed when they are read
score_counts       counts of a site's rows by prediction and by decision value, which can be summed
sparse_rows        rows whose numbers are mostly 0
"""
