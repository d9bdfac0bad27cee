"""Training from sums over the rows alone.

line_search    steps along a line, in one round or several
cutting_plane  linear SVMs from cuts, to a certified gap
weighting      weights of classes and rows, as factors of their prices
hinge_sums     the sums that cuts and line searches ask for: of rows that are here, or over a federation
joint_hinge    the same for all classes in one problem
path_rounds    a round of the interior point: its order, a site's part of its sum, and the sum read again
path_sums      the interior point over a federation: at a site, and at the coordinator
linear_svm     a linear SVM by either solver
single_rows    what cuts on columns reveal about single rows
libsvm         LIBSVM on pooled rows, to compare with, and on a kernel matrix
"""
