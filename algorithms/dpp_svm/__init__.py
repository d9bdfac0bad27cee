"""DPP-SVM (Que, Jiang and Ohno-Machado 2012): the exact SVM over a vertical partition, with any additive kernel.

The coordinator receives the sum of the sites' partial kernels, solves the dual as LIBSVM does, and sends the
coefficients to the sites. Records are scored by sums of the sites' parts again. The model equals the one that pooled
columns give. The paper's kernels are linear, and its server sees every site's matrix. Here the kernel is any function
of inner products or squared distances, and the coordinator sees sums only.

Where the (n, n) matrix is too large, the low-rank variant exchanges n x l kernel values against l shared records
instead. It trains in the features that these records span (Nystroem), to a certified gap. Its decision values have the
same form, with the l records in place of the support.

With K > 2 classes, each is separated from the others. The kernel does not depend on labels: it is exchanged once, the
coordinator solves K duals, and later messages have K numbers instead of one. The number of rounds does not depend on K.

settings   its settings
model      the model: the kernel, the coefficients of the support records, and these records if all columns are here
site       the site half, and the order of its steps
training   training at the coordinator, exactly or in the features that landmarks span
scoring    scores of held-out records, by sums of the sites' parts
algorithm  DPP-SVM and algorithms with the same model: checks of settings, comparison methods and attacks
"""
