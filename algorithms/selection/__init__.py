"""Column selection over sites that hold rows, and a PAN-SVM on the selected columns.

filters       scores of columns from sums over the classes: Welch's t, F, Fisher's ratio, mutual information, mRMR
moments       class moments over the sites
subsets       linear SVMs on subsets of columns and rows by cutting planes, many in the same rounds
subset_path   the same by the interior point, with masked systems
site          the site half of all methods
training      either solver, and SVMs on a shrinking set of columns
elimination   the columns to remove in a step, and when the order is certain
model         the model on selected columns, the shared settings, and the fit after the selection
wrapper       the SVMs that two wrappers train on columns, linear ones or PAN-SVMs
held_out      the accuracy of column sets on inner folds, and tie-breaking
kernel_scores  scores of columns for a kernel SVM
support_sums  class sums over support rows, released so that no two differ by fewer than three rows
"""
