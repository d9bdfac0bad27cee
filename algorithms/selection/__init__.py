"""Choosing columns over sites that hold rows, and a PAN-SVM on those that are chosen.

filters       scores of columns from sums over the classes: Welch's t, F, Fisher's ratio, mutual information, mRMR
moments       class moments over the sites
subsets       linear SVMs on subsets of columns and rows by cutting planes, many in the same rounds
subset_path   the same by the interior point, blindly
site          the site half of all methods
training      either of them, and SVMs on columns that become fewer
elimination   how many columns go in a step, and when it is certain which
model         the model of chosen columns, the settings that all methods share, and what a fit does after the choice
held_out      which column is missed least by rows that inner folds leave out, and what decides ties
kernel_scores what columns are worth to a kernel SVM
support_sums  class sums over support rows, released so that no two differ by a row or two
"""
