"""Attacks on a whole run: the rows that a coalition recovers from its view, although each sum hides its addends.

Reading order:

- `attack`: an attack maps a view to claimed rows, and never knows the truth
- `epochs`: divides a view into parts whose sums are over the same rows
- `row_counts`: combines several sums over the same rows
- `landmark_copies`: landmarks that copy a single row
- `model_file`: the view of somebody who holds a model file
- `subset_sums`: subsets of listed rows with a given mean, by meet in the middle
- `landmark_means`: listed rows whose mean is a landmark
- `fold_differences`: rows by which landmarks of two folds differ
- `scale_digits`: listed rows that match the digits of the scale
- `class_means`: listed rows that match exact means and variances of classes
- `run_differences`: the row by which the exact scales of two runs differ
- `cluster_rounds`: differences between rounds of k-means over all sites
- `cut_differences`: differences between cuts of the cutting plane, and the single rows in them
- `joint_blocks`: the same for cuts of the joint problem of all classes
- `plain_cuts`: cuts of one row where features are the columns themselves
- `subset_cuts`: differences between cuts of linear SVMs on columns
- `support_posterior`: the posterior of the candidates that an SVM's weights are a sum of
- `support_differences`: differences between class sums over support rows
- `chosen_columns`: other attacks, on rows that are known in some columns only
- `finite_domain`: counts of each possible record, by least squares
- `newton_path`: the path of the interior point, for an attacker who knows its masks
- `own_noise`: noise in the objective that members of a coalition drew themselves
- `newton_systems`: rows from Newton's systems, for a coordinator who knows the masks
- `joint_systems`: the same of the joint problem of all classes
- `newton_steps`: candidates in the data, by the noisy steps that every site receives
- `secret_barriers`: the same where rows have secret barriers
- `opened_scalars`: candidates that the numbers opened behind a committee decide, by lattice reduction
- `logistic_steps`: the same, by the noisy steps of logistic regression
- `weight_equations`: the same, by exact weights of least squares or logistic regression
- `binary_counts`: which of some rows are in the data, by noisy sums over them
- `support_rows`: candidates that are support vectors of the trained model
- `wrapper_models`: the same of the PAN-SVMs that wrappers train on the way to the columns that are kept
- `membership`: the optimal test of one row against noisy sums
- `kernel_matrix`: a kernel matrix together with some known records
- `bin_sums`: an attack on sums over rows in the bins of random grids
- `cross_tables`: rows from cross-tables of columns, bins and classes
- `dual_points`: rows at the margin from a sum of rows weighted by dual variables, by whoever has a list (on
  consensus ADMM)
- `encrypted_items`: rows from encrypted sets of items, by finding out which item each ciphertext is (on PP-SVM)
- `every_problem`: attacks on binary problems where there are several
- `second_moments`: an attack on the second moments of all rows in known features

A new attack is a class of the interface in `attack`. Its algorithm lists it (`Algorithm.attacks`) and imports it
there, since audits alone need it.
"""
