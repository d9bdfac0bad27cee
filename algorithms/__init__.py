"""Floor 3: the algorithms, one file each, and the mathematics that they share.

settings      types of an algorithm's settings
ranking       ordered columns, as a result shows them
algorithm     the interface of an algorithm
mapped_site   the site half and the settings of algorithms in features that all sites share
linear_model  the model that PAN-SVM, its comparison methods and selection share
losses        losses of private empirical risk minimization, also those of other packages
calibration   probabilities and thresholds of a trained model, by sums over rows set apart
registry      the algorithms by their names in scenarios
column_description
              a program that describes the columns of all sites and trains nothing
column_prediction
              a program that predicts new records of sites that hold columns, by a model that is trained
pan_svm, dpp_svm, hybrid_svm, dp_erm
              one method each: settings, site half, coordinator half, model, pooled reference; three are packages
svm_admm, voting_ensemble, least_squares, binned_least_squares, logistic_regression, decision_tree, pp_svm, naive_bayes
              comparison methods; logistic_regression is a package
neighbor_consensus
              ADMM among neighbors of a ring, for svm_admm
filter_selection, rfe, sparse_svm, voted_wrappers, filter_wrapper
              methods that select columns and train PAN-SVM on them
dpp_selection  selects columns where sites hold columns, and trains DPP-SVM
pooled        the rows that only a simulation has in one place, and results of methods on them
concave_selection
              columns by concave minimization on pooled rows, for comparison
kernel_penalty
              columns by a penalty on the kernel's widths on pooled rows, for comparison
baselines     methods on pooled rows that a scenario may name

data          makes partitions comparable: columns, categories, scale, public rows
features      kernels, and features that approximate them
selection     parts of column selection: filters, SVMs on subsets of columns and rows, support sums
optimization  cutting planes over sums, line searches, LIBSVM for comparison
attacks       attacks on the rows and columns of a whole run
origins       what each array of a model file is computed from
privacy       noise, its size, and the ledger of releases
estimators    scikit-learn estimators, derived from the algorithms
site_process  programs of site processes
small_run     the steps of a run of pan-svm at one site, in the process that sites are forked from
leakage       statements on the leakage of all sums of a run together, as the attacks of an audit measure it
own_models    each site's own model, trained on its own rows, and how the federated one compares on the same test rows
remarks       remarks that have a line of their own in a result
site_scores   models judged where the rows are
sklearn_parts  trained models as parts of scikit-learn, for a pipeline that needs nothing of fedsvm
"""

SITE_MODULE = "fedsvm.algorithms.site_process"
"""The module that site processes run. It is here because a command starts the first of them before loading anything."""
