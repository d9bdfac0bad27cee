"""Kernels, and the features that approximate them.

kernels         LIBSVM's kernels, of inner products or squared distances
partial_kernel  the part of a kernel matrix that one site's columns make
nystrom         features that landmarks span
landmarks       the points that stand for the rows, chosen by sums
fourier         features of the RBF kernel's spectral density, drawn or fitted to public rows
"""
