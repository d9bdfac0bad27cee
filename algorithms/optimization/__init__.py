"""Training from sums over rows.

kernel_dual    the dual of a kernel SVM, by LIBSVM
line_search    steps along a line, in one round or several
cutting_plane  linear SVMs by cutting planes, to a certified gap
weighting      weights of classes and rows, as factors of their penalty
hinge_sums     the sums that cuts and line searches need, over local rows or a federation
joint_hinge    the same for all classes in one problem
objective_noise  noise in the objective; each site keeps its draw to itself
path_rounds    one round of the interior point: its order, a site's part of its sum, and the decoded sum
path_sums      the interior point over a federation: at a site, and at the coordinator
loss_sums      regularized losses, by Newton's method on sums over rows
linear_svm_settings  settings of both solvers
linear_svm     a linear SVM by either solver
single_rows    single rows that cuts on columns reveal
libsvm         LIBSVM on pooled rows, for comparison, and on a kernel matrix
barrier        contributions of rows to a step of the interior point
joint_barrier  the same for all classes in one problem
blocked_problem  the same for rows whose features are computed block by block
blind_path     interior point behind a committee
committee      conditions of a committee, behind whose masks a coordinator solves systems
               (`fedsvm.protocols.blind_system`)
duration_forecast  predicted duration of training by each solver
interior_point  linear SVMs by a federated interior point
local_path     path of rows that are all in one place, as the interior point trains on them without a federation
masking        secret matrices, drawn anew by all sites for every round, behind which a coordinator solves without
               seeing what
masking_choice  choice of a committee by its predicted cost
solution       solution of a problem
proximal_model  SVM of one site's rows near a center, for ADMM
"""
