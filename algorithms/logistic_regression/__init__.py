"""Logistic regression in common features by Newton's method on secure sums, without privacy noise.

    min over v = (w, b) of  sum_i log(1 + exp(-y_i v.z_i)) + lambda/2 |w|^2,   z_i = (f_i, 1),

equals scikit-learn's with C = 1 / lambda. A round opens the loss, its gradient and its Hessian at a point v: these are
d (d + 1)/2 + d + 1 numbers. The coordinator takes Newton's step, and halves it while the objective does not fall; from
0 this takes six to ten rounds. Training stops when the next step promises less than `tolerance` of the objective. With
more than two classes, each is separated from the others. All of these problems share the rounds, which each leaves when
it has converged. `dp-erm` is the same with noise, for models that are released.

Disclosures. The coordinator learns every point and the sums over all rows there; the sites learn the points. At v = 0
the Hessian is a quarter of the second moments, and the gradient half of their products with the labels. `least-squares`
shows the same, with the same consequence (`attacks.second_moments`).

With `masking = "committee"` the coordinator solves each system behind the masks of two sites, and no party has both
(`protocols.blind_system`). It learns Newton's step and the loss, each with noise of both sites. The noise of the step
is on the right-hand side of its equation. It costs about `step_noise` squared of the decrease that the step before
promised. The noise of the loss is a share of the objective; a step is halved only if the objective rose by more. Sites
learn the points, as without masks.

settings   its settings
systems    Newton's equation of the logistic loss, and its system behind a committee
site       the site half
training   training over the sites, in the clear or behind a committee
algorithm  the choice of masking, comparison methods and attacks

The sums are those of Wu, Jiang, Kim and Ohno-Machado, "Grid binary logistic regression (GLORE)" (JAMIA 19, 2012), which
adds them up without hiding the addends.
"""
