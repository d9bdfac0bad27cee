"""Floor 3: what is learnt, each algorithm written in one file, and the mathematics it is made of.

settings      the types of an algorithm's settings
ranking       columns in their order, as a result has them
contract      what an algorithm is to everything above
mapped_site   the site half, and what settings have in common, of algorithms in features that all sites share
calibration   probabilities and thresholds of a trained model, by sums over rows set apart
registry      which algorithms there are, by the name a scenario calls them
pan_svm, dpp_svm, hybrid_svm, dp_erm
              one method each: settings, site half, coordinator half, model, pooled reference
svm_admm, voting_ensemble, least_squares, binned_least_squares, logistic_regression, decision_tree, pp_svm, naive_bayes
              the same of methods to compare with
filter_selection, rfe, sparse_svm, voted_wrappers, filter_wrapper
              the same of methods that choose columns, and train PAN-SVM on these
dpp_selection the same where sites hold columns, and DPP-SVM is trained
baselines     methods on pooled rows that a scenario may name

data          partitions made comparable: columns, categories, scale, public rows
features      kernels, and the features that approximate them
selection     what choosing columns is made of: filters, SVMs on subsets of columns and rows, support sums
optimisation  cutting planes over sums, line searches, LIBSVM to compare with
attacks       attacks on the rows and columns of a whole run
privacy       noise, how much of it, and the account that is kept
estimators    scikit-learn estimators, derived from the algorithms
site_process  what the processes of sites run
"""

SITE_MODULE = "fedsvm.algorithms.site_process"
"""The module that site processes run. It is here because a command starts the first of them before loading anything."""
