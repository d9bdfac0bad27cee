"""Attacks on a whole run: what a coalition recovers from what it saw, although each sum hides its addends.

In the order to read it:

- `contract`: a view in, rows out, checked without knowing any truth
- `epochs`: a view in parts, over which sums are of the same rows
- `row_counts`: what different sums say of the same rows, put together
- `landmark_copies`: landmarks that are a single row's copy
- `model_file`: the view of whoever holds a model's file
- `landmark_means`: listed rows whose mean is a landmark, by `subset_sums`
- `fold_differences`: rows by which landmarks of two folds differ
- `scale_digits`: listed rows that have the digits of the scale
- `cluster_rounds`: rounds of k-means over all sites, subtracted from each other
- `cut_differences`: cuts of the cutting plane, subtracted from each other, and the rows in them peeled off
- `joint_blocks`: cuts of the joint problem of all classes, subtracted and peeled likewise
- `plain_cuts`: cuts of one row where features are the columns themselves
- `subset_cuts`: cuts of linear SVMs on columns, subtracted from each other
- `support_differences`: class sums over support rows, subtracted from each other
- `chosen_columns`: other attacks where rows are in some of their columns
- `finite_domain`: how often each possible record occurs, by least squares
- `newton_path`: the path of the interior point, and where rows stand on it, for who knows its masks
- `newton_systems`: rows from Newton's systems, where a coordinator knows the masks
- `newton_steps`: which candidates are in the data, by the steps that every site sees, through the noise on them
- `binary_counts`: which of some rows are there, by noisy sums of them
- `support_rows`: which candidates the trained point is made of
- `kernel_matrix`: a kernel matrix, and some known records

Another attack is a class of the contract in `contract`, listed by its algorithm (`Algorithm.attacks`).
"""
