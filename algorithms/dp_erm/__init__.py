"""Private empirical risk minimization by output and objective perturbation (Chaudhuri, Monteleoni and Sarwate 2011).

    J(f) = (1/n) sum_i l(y_i f.x_i) + lambda/2 |f|^2,   |x_i| <= 1,   no intercept,

for logistic loss, Huber's hinge of half-width h, or any other convex loss (`losses`). k bounds the first derivative of
the loss, and c its second: k = 1 for both named losses, c = 1/4 for logistic loss, c = 1/(2h) for Huber's. The sites'
gradients and Hessians are summed, and the coordinator takes Newton's steps.

Output perturbation releases f + b, where b has density exp(-epsilon |b| n lambda / 2k): one row moves the minimizer
by at most 2k/(n lambda). Objective perturbation releases the minimizer of J(f) + b.f/n + Delta/2 |f|^2, where b has
density exp(-epsilon' |b| / 2k) and epsilon' = epsilon - 2 log(1 + c/(n lambda)) with Delta = 0. If that is not
positive, epsilon' is half of epsilon, and Delta makes up for it.

Both guarantees hold for exact minimizers. Training continues until the gradient is so small that the remaining error is
far below the noise. The sensitivity of output perturbation includes that error. The proof of objective perturbation has
no room for it, and its b is not drawn from a lattice: its guarantee is one for real numbers, not for float64.

With K classes, each is separated from the others, and all K problems share the rounds. One row moves each of the K
minimizers by 2k/(n lambda), and the vector of all by sqrt(K) times as much: output perturbation adds noise to that
vector. Objective perturbation gives each of the K models epsilon / K; these add up to epsilon. With multiclass =
"joint" the K weight vectors solve one problem, multinomial logistic regression. Its loss log sum_k exp((w_k - w_y).x)
has a slope of at most sqrt(2) in all of them, and one row moves them by 2 sqrt(2)/(n lambda) for any K. The joint
problem needs output perturbation. Rows of a class that is neither declared nor public have no loss in it.

Noise protects the model against everyone who receives it. It does not protect against the coordinator, which saw exact
sums, or the sites, which saw the points at which these were computed. Both proofs need the exact minimizer over all
rows, so no site can add a share of noise before the end. A site whose policy sets `max_epsilon` therefore refuses the
run before any step.

settings      its settings
model         the released model, and its map of rows into the unit ball
perturbation  the noise of output and objective perturbation, and the rows that suffice for it
training      training over the sites, and the release of the model
algorithm     the site half, the checks of settings, and comparison methods
"""
