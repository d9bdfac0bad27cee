"""Kernels, and the features that approximate them.

kernels         LIBSVM's kernels, of inner products or squared distances
partial_kernel  one site's columns' part of a kernel matrix
kernel_exchange  kernel matrices from the parts of all sites
kernel_expansion  decision values as sums of kernel values
feature_map     the interface of a map from rows to features
nystrom         features spanned by landmarks
fourier         features of the RBF kernel's spectral density, drawn or fitted to public rows
identity        the columns themselves
k_means         clusters by sums over rows
landmarks       landmarks, computed by sums
choice          the settings of features, and the map that sites agree on
mapped_rows     sites that map their rows to these features
row_blocks      features of more rows than memory holds them for
cluster_differences  single rows among the sums of clusters that rounds of k-means over all sites show
                (`features.landmarks`, `global`)
drawn_landmark_sums  drawn landmarks at the sites
drawn_landmarks  landmarks drawn from a description of all rows
inversion       rows from their features
random_bins     random binning features (Rahimi and Recht 2007, section 4)
"""
