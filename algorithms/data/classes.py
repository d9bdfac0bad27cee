"""Labels of rows: +1 and -1 of two classes, and of more the number of each row's class, 0 … K - 1.

A model consists of binary problems, or of one joint problem of all classes. A binary problem has a label of +1
or -1 for every row, or 0 for a row that is not part of it. Two classes give one problem. More classes give a problem
for each class against the others, or for each pair. Scores of two classes have the shape (n,) and are positive for the
second one. Scores of K classes have the shape (n, K), and the largest is that of the predicted class.
"""

from __future__ import annotations

from itertools import combinations
from typing import Literal

import numpy as np

from fedsvm.federation.arrays import FloatArray, IntArray

Scheme = Literal["ovr", "ovo", "joint"]
"""Of what problems the telling apart of K classes is made: each against the others, every two, or all in one."""


def problems_of(classes: int, scheme: Scheme) -> int:
    """Return the number of binary problems; one for two classes."""
    if classes == 2 or scheme == "joint":
        return 1
    return classes if scheme == "ovr" else classes * (classes - 1) // 2


def one_against_rest(labels: FloatArray, classes: int) -> FloatArray:
    """Return (K, n) +1 for the rows of a class and -1 for the others, from labels (n,); (1, n) for two classes.

    A row whose number is that of no class is -1 in all of them.
    """
    if classes == 2:
        return np.ascontiguousarray(labels[None, :])
    return np.where(np.equal.outer(np.arange(classes), labels), 1.0, -1.0)


def members(problems: FloatArray) -> FloatArray:
    """Return (K, n) of 0 and 1: which rows are of each class, from one against the rest (K, n), or (1, n) for two
    classes."""
    if len(problems) == 1:
        return np.stack([problems[0] < 0, problems[0] > 0]).astype(np.float64)
    return np.asarray(problems > 0, dtype=np.float64)


def numbers(problems: FloatArray) -> IntArray:
    """Return (n,) the class number of each row, from one against the rest (K, n), or (1, n) for two classes."""
    return np.asarray(members(problems).argmax(axis=0))


def pairs(classes: int) -> IntArray:
    """Return (K (K - 1) / 2, 2) the numbers of every two classes i < j."""
    return np.array(list(combinations(range(classes), 2)), dtype=np.int64)


def one_against_one(problems: FloatArray) -> FloatArray:
    """Return (K (K - 1) / 2, n) +1 for the first class of a pair, -1 for the second, 0 for all others."""
    of_class = members(problems)
    return np.stack([of_class[i] - of_class[j] for i, j in pairs(len(of_class))])


def signs_of(classes: int, scheme: Scheme) -> FloatArray:
    """Return (P, K) the label of each class in each binary problem, 0 for a class that is not part of it."""
    if classes == 2:
        return np.array([[-1.0, 1.0]])
    against_rest = one_against_rest(np.arange(classes, dtype=np.float64), classes)
    return one_against_one(against_rest) if scheme == "ovo" else against_rest


def ranked_by_votes(values: FloatArray, classes: int) -> FloatArray:
    """Return (n, K) scores of the classes from the values (n, K (K - 1) / 2) of one against one.

    A pair's value from 0 on is a vote for its first class. Scores are the votes, less K - 3/2, so that who wins all of
    its pairs is above 0, and margins added up decide between equal numbers of votes, as in scikit-learn: what is added
    to a score for a sum of margins M is M / (3 (|M| + 1)).
    """
    votes, margins = np.zeros((len(values), classes)), np.zeros((len(values), classes))
    for (first, second), value in zip(pairs(classes), values.T, strict=True):
        votes[:, first] += value >= 0
        votes[:, second] += value < 0
        margins[:, first] += value
        margins[:, second] -= value
    return np.asarray(votes - (classes - 1.5) + margins / (3 * (np.abs(margins) + 1)))


def above_others(values: FloatArray) -> FloatArray:
    """Return (n, K) scores from values (n, K) of the classes of a joint problem: each minus the largest of the
    others."""
    places = np.arange(len(values))
    best = values.argmax(axis=1)
    without = values.copy()
    without[places, best] = -np.inf
    highest = np.repeat(values[places, best][:, None], values.shape[1], axis=1)
    highest[places, best] = without.max(axis=1)
    return np.asarray(values - highest)


def log_odds(logarithms: FloatArray) -> FloatArray:
    """Return scores from (n, K) logarithms of unnormalized class probabilities: each class against all others together.

    (n,) of the second against the first where there are two.
    """
    if logarithms.shape[1] == 2:
        return np.asarray(logarithms[:, 1] - logarithms[:, 0])
    others = [np.logaddexp.reduce(np.delete(logarithms, k, axis=1), axis=1) for k in range(logarithms.shape[1])]
    return np.asarray(logarithms - np.column_stack(others))


def predict_class(scores: FloatArray, threshold: float = 0.0) -> IntArray:
    """Return (n,) the predicted class number by scores (n,) or (n, K); the first of equal ones.

    threshold: of two classes, the score from which a row is called the second.
    """
    if scores.ndim == 1:
        return (scores >= threshold).astype(np.int64)
    return np.asarray(scores.argmax(axis=1))
