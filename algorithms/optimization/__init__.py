"""Training from sums over rows.

line_search    steps along a line, in one round or several
cutting_plane  linear SVMs by cutting planes, to a certified gap
weighting      weights of classes and rows, as factors of their penalty
hinge_sums     the sums that cuts and line searches need, over local rows or a federation
joint_hinge    the same for all classes in one problem
path_rounds    one round of the interior point: its order, a site's part of its sum, and the decoded sum
path_sums      the interior point over a federation: at a site, and at the coordinator
linear_svm     a linear SVM by either solver
single_rows    single rows that cuts on columns reveal
libsvm         LIBSVM on pooled rows, for comparison, and on a kernel matrix
"""
