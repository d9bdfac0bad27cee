"""Column selection by a penalty on the kernel's widths (KP-SVM; Maldonado and others 2011), on rows in one place.

The RBF kernel has a width for each column, K(x, s) = exp(-gamma sum_j v_j^2 (x_j - s_j)^2). A column of v_j = 0 has no
effect:

    min over 0 <= v <= 1   P(v) / (C n) + L mean_j (1 - exp(-b v_j)),   P(v): the optimum of the SVM with this kernel.

P has the derivative of -1/2 a'K(v)a at the optimal dual variables a, which have the signs of labels. The descent starts
at v = 1, the run's kernel, and ends at a stationary point. The paper takes steps of a fixed length, and tunes L, the
step and a threshold for each set. Here L is fixed, and L-BFGS-B descends. The kernel becomes no narrower than the
run's, since P(v) falls with a narrower one, which over-fits. It is a method to compare with, and no federated one.

References
----------
S. Maldonado, R. Weber and J. Basak, "Simultaneous feature selection and classification using kernel-penalized support
vector machines", Information Sciences 181, 2011.
"""

from __future__ import annotations

import numpy as np

from fedsvm.algorithms.features.kernels import Kernel
from fedsvm.algorithms.optimization import libsvm
from fedsvm.federation.arrays import FloatArray

SUPPRESSION = 0.3
"""L: the weight of the number of columns. With 0.1 Pima keeps all eight columns, with 1 two of them."""

STEEPNESS = 5.0
"""b: how quickly 1 - exp(-b v) reaches 1; the paper's value."""

_MOST_STEPS = 30


def kernel_widths(rows: FloatArray, labels: FloatArray, gamma: float, prices: libsvm.Prices) -> FloatArray:
    """Return v (p,): what the columns are multiplied by before the run's kernel; 0 of columns that are not used.

    rows (n, p), labels (n,): of two classes. prices: C of all rows, or (n,) of each.
    """
    from scipy.optimize import minimize

    total, columns = float(np.broadcast_to(prices, labels.shape).sum()), rows.shape[1]

    def cost(v: FloatArray) -> tuple[float, FloatArray]:
        optimum, slopes = optimum_and_slopes(rows, labels, v, gamma, prices)
        left = np.exp(-STEEPNESS * v)
        penalty = SUPPRESSION * float(np.mean(1 - left))
        return optimum / total + penalty, slopes / total + SUPPRESSION * STEEPNESS * left / columns

    limits, most = [(0.0, 1.0)] * columns, {"maxiter": _MOST_STEPS}
    return np.asarray(minimize(cost, np.ones(columns), jac=True, method="L-BFGS-B", bounds=limits, options=most).x)


def optimum_and_slopes(
    rows: FloatArray, labels: FloatArray, v: FloatArray, gamma: float, prices: libsvm.Prices
) -> tuple[float, FloatArray]:
    """Return P(v) and its derivative (p,), by the dual variables of the SVM."""
    kernel = Kernel("rbf", gamma)
    svm = libsvm.kernel(kernel, rows * v, labels, prices)
    dual, support = svm.dual_coef_[0], rows[svm.support_]
    products = np.outer(dual, dual) * kernel(support * v, support * v)
    squares = 2 * (products.sum(axis=1) @ support**2 - np.einsum("ij,ij->j", support, products @ support))
    return float(np.abs(dual).sum() - 0.5 * products.sum()), gamma * v * squares
