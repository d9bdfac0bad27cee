"""Training when all that is known of the rows are sums.

line_search    steps along a line, in one round or several
cutting_plane  linear SVMs from cuts, to a certified gap
weighting      weights of classes and rows, as factors of their prices
hinge_sums     the sums that cuts and line searches ask for: of rows that are here, or over a federation
single_rows    what cuts on columns say of single rows
libsvm         LIBSVM on pooled rows, to compare with, and on a kernel matrix
"""
