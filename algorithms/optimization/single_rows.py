"""The single rows that cuts of a linear SVM on columns reveal, which a result counts."""

from __future__ import annotations

import numpy as np

from fedsvm.algorithms.optimization.cutting_plane import Points
from fedsvm.federation.arrays import FloatArray


def lone_rows(cuts: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return rows (k, m), with labels (k,), that are alone in one of the cuts (T, g, m + 2)."""
    alone = cuts.reshape(-1, cuts.shape[2])
    alone = alone[np.rint(alone[:, -1]) == 1]
    labels = np.rint(alone[:, -2])
    return alone[:, :-2] * labels[:, None], labels


def rows_apart(points: Points, cuts: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return rows (k, m), with labels (k,), by which two cuts of a group differ, from cuts (T, g, m + 2) at points.

    A difference counts one row if its d and m say so, and the row, which then is the difference, is on the wrong side
    of the margin at one of both points alone.
    """
    rows, signs = [np.zeros((0, cuts.shape[2] - 2))], [np.zeros(0)]
    first, second = np.triu_indices(len(cuts), 1)
    for group in cuts.transpose(1, 0, 2):
        one = (np.abs(np.rint(group[first, -2:] - group[second, -2:])) == 1).all(axis=1)
        left = group[first[one]] - group[second[one]]
        labels = np.rint(left[:, -2] * left[:, -1])
        features = left[:, :-2] * np.rint(left[:, -2:-1])
        margins = [
            labels * (np.einsum("ij,ij->i", features, points.w[at]) + points.b[at]) for at in (first[one], second[one])
        ]
        right = (margins[0] < 1).astype(int) - (margins[1] < 1) == np.rint(left[:, -1])
        rows.append(features[right])
        signs.append(labels[right])
    return _distinct(np.concatenate(rows), np.concatenate(signs))


def rows_of_cuts(points: Points, cuts: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return rows (k, m), with labels (k,), that are alone in a cut or a difference of two; each once."""
    found = [lone_rows(cuts), rows_apart(points, cuts)]
    return _distinct(np.concatenate([rows for rows, _ in found]), np.concatenate([labels for _, labels in found]))


def _distinct(rows: FloatArray, labels: FloatArray) -> tuple[FloatArray, FloatArray]:
    direction = np.random.default_rng(0).normal(size=rows.shape[1] + 1)
    _, places = np.unique(np.round(np.column_stack([rows, labels]) @ direction, 6), return_index=True)
    return rows[places], labels[places]
