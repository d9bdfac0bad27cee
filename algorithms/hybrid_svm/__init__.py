"""Hybrid SVM (Li, Xiong, Ohno-Machado and Jiang 2014): features from public rows, training on private ones, noise.

    min over w of  1/2 |w - w0|^2 + (C / n) sum_i max(0, 1 - y_i w.z(x_i)),   |z(x)| = 1,   no intercept.

What one row can change. Between data sets that differ in one of n rows the gradient of the second term differs by at
most 2C/n, and the objective is 1-strongly convex, so that its minimisers are within 2C/n of each other in L2 ("tight";
it is attained). The paper takes 4C/n from Rubinstein et al. (2012, corollary 15), loose by 2 ("paper"). A prior w0 of
public rows alone changes neither.

Corrections. (1) The paper prints C times the sum, not C/n, with noise for C/n: with that its epsilon is false by a
factor of n. n, the number of private rows, is public. (2) No intercept: what regularises nothing has no such bound.
(3) The bound is for the exact minimiser: an objective within g of its minimum adds 2 sqrt(2 g), for both neighbours.
What is accounted for is the tolerance, which is public, and not the gap that training happened to reach.

Who sees what. In `joint` training the sites see the points that they go to, and the coordinator what its solver shows
(see `optimization.linear_svm`): noise protects the model against everyone who gets it, not against these. In `one-shot`
every site trains on its own rows, and one secure sum adds the models, weighted by n_s / n, and shares of the noise:
nobody sees anything without noise. One row changes its site's minimiser by 2C/n_s at most, and what is released by
n_s/n of that: 2C/n again.

With K classes, each is separated from the others, and K models are one vector, in which one row moves each by 2C/n: all
together by sqrt(K) 2C/n, which is attained, by a row that goes to the opposite point and keeps its class. Noise is for
the whole vector, and there is one release. Private rows of a class that is neither declared nor among the public rows
are among the others of all K. With multiclass = "joint" the K weight vectors are those of one problem, whose loss has a
slope of sqrt(2) in all of them (`optimization.joint_hinge`): one row moves the vector by 2 sqrt(2) C/n, whatever K is.
That is trained by cutting planes; rows of a class that nobody named have no loss in it.

settings   its settings
model      the released model, and its decision values
minimizer  minimizers on rows in memory: of a site, of pooled rows, and of public rows
noise      the noise that hides one row
release    the release with noise, at a site and at the coordinator
training   training over the sites by either solver, or at each site alone
algorithm  the site half, the checks of settings, and comparison methods
"""
