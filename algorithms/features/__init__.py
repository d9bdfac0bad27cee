"""Kernels, and the features that approximate them.

kernels         LIBSVM's kernels, of inner products or squared distances
partial_kernel  the part of a kernel matrix that one site's columns make
feature_map     the contract of a map from rows to features
nystrom         features that landmarks span
fourier         features of the RBF kernel's spectral density, drawn or fitted to public rows
identity        the columns themselves
k_means         clusters by sums over rows
landmarks       the points that stand for the rows, chosen by sums
choice          which features: the settings of a user, and the map that sites agree on
mapped_rows     sites whose rows are in these features
"""
