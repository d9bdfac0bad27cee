"""The SVM of one site's rows near a center: what a site of consensus ADMM solves in each iteration."""

from __future__ import annotations

import numpy as np

from fedsvm.federation.arrays import FloatArray

_LOCAL = {"maxiter": 10_000, "maxfun": 20_000, "ftol": 1e-15, "gtol": 1e-9}
"""The accuracy of a site's own problem: as high as float64 allows, whatever the tolerance of the consensus."""


def local_model(
    features: FloatArray, labels: FloatArray, centre: FloatArray, rho: float, start: FloatArray, lever: float = 1.0
) -> tuple[FloatArray, FloatArray]:
    """Return a site's own model near a center, and its dual variables.

    Parameters
    ----------
    features : (n, m)
    labels : (n,)
        Of +1 and -1.
    centre : (m + 1,)
        v = z - u.
    rho : float
        Penalty of the squared distance from it.
    start : (n,)
        Dual variables to start from.
    lever : float, default 1.0
        f~ = (f, lever).

    Returns
    -------
    x : (m + 1,)
        The minimiser of sum max(0, 1 - y f~.x) + rho/2 |x - v|^2, as v + B^T lambda / rho, B = y f~.
    dual : (n,)
        lambda, that of |B^T lambda|^2 / (2 rho) + lambda.(B v - 1) over [0, 1]^n.
    """
    from scipy.optimize import minimize  # the server that sites are forked from has no use for it

    def weigh_rows(dual: FloatArray) -> FloatArray:
        signed = dual * labels
        return np.append(signed @ features, lever * signed.sum())

    def margins(x: FloatArray) -> FloatArray:
        return np.asarray(labels * (features @ x[:-1] + lever * x[-1]))

    if not len(labels):
        return centre, start
    short = 1.0 - margins(centre)

    def objective(dual: FloatArray) -> tuple[float, FloatArray]:
        direction = weigh_rows(dual)
        value = direction @ direction / (2 * rho) - dual @ short
        return float(value), margins(direction) / rho - short

    found = minimize(objective, start, jac=True, method="L-BFGS-B", bounds=[(0.0, 1.0)] * len(start), options=_LOCAL)
    dual = np.asarray(found.x)
    return centre + weigh_rows(dual) / rho, dual
