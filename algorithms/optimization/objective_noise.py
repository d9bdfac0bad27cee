"""Noise in the objective of an SVM: a linear term that each site draws and keeps to itself.

The optimum w is the sum of a_i y_i f_i over rows at the margin or within. So exact weights name these rows to whoever
can list the possible ones (`attacks.support_rows`). With noise the sites minimize

    1/2 |w|^2 + B.w + sum_i C_i max(0, 1 - y_i (w.f_i + b)),    B = sum_s b_s,

so that w = sum_i a_i y_i f_i - B. Site s knows its b_s only, the coordinator and the holder of a model file none. Each
entry of b_s is normal, of r / sqrt(S - 1) times the root mean square of C_i |f_i| over the rows of site s. So any site
faces noise of r times the largest part of a usual row, and k sites together sqrt((S - k) / (S - 1)) of that.

At this optimum the margins of many training rows are exactly 1, which names them without the equation. So weights that
leave the sites have a little noise more. Each site adds a share to their sum, by a key of its own, and another order
for the same weights gives the same noise.

The same question, to the last bit of terms, rows and features, has the same b_s, as noisy statistics do (`answers`):
the noise does not average out over repetitions. Objective perturbation is due to Chaudhuri, Monteleoni and Sarwate
(JMLR 12, 2011). Their proof needs a smooth loss, and the hinge loss is not: this is not differential privacy.
"""

from __future__ import annotations

import hashlib
import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from fedsvm.algorithms.data.horizontal import HorizontalSite
from fedsvm.algorithms.features.row_blocks import RowBlocks
from fedsvm.algorithms.optimization.interior_point import NoiseSize
from fedsvm.algorithms.optimization.masking import Dither
from fedsvm.federation.arrays import FloatArray, Residues

_VERSION = 2
"""Of the draws: raised when the same question gets another answer."""

_FURTHEST = 5.0
"""A draw is cut to the length that no normal one exceeds by more than so many deviations."""


RELEASED_NOISE = 0.05
"""The standard deviation of the margin of a usual row that noise on released weights causes; the margin is at 1."""


def released_deviation(mean_square: float) -> float:
    """Return the standard deviation of the noise on each released weight, for rows of this mean |f|^2."""
    return RELEASED_NOISE / math.sqrt(max(mean_square, sys.float_info.min))


@dataclass(frozen=True)
class SiteNoise:
    """The noise of one site: its draws (P, m), one for each problem, and the deviation of each entry.

    mean_square: of the lengths of its rows' features; 1 without rows, as it is with kernel features at most.
    sites: how many there were at the draw. key (1, 4): of the noise on released weights, and of secrets of rows.
    """

    draws: FloatArray
    deviation: float
    mean_square: float
    sites: int
    key: Residues

    @property
    def sizes(self) -> FloatArray:
        """(2,): a bound on the length of each draw, and the variance of an entry; sites' sizes add up."""
        return np.array([_longest(self.deviation, self.draws.shape[1]), self.deviation**2])

    def has_enough(self, present: int) -> bool:
        """Return whether the noise of these many sites, as it is now, is at least 0.7 of the agreed size for each."""
        return 2 * (present - 1) >= self.sites - 1

    def released_share(self, weights: FloatArray, present: int) -> FloatArray:
        """Return (K, m + 1) this site's share, of `present` sites, of the noise on weights and intercepts (K, m + 1).

        Intercepts and constant models have none; no noise is longer than the weights. The share of a problem follows
        from the key, its number, the number of sites and the weights alone: if those of others changed it, a
        coordinator that orders another as constant would get a second draw.
        """
        noise, usual = np.zeros_like(weights), released_deviation(self.mean_square)
        for problem, exact in enumerate(weights):
            if exact[:-1].any():
                own = float(np.linalg.norm(exact[:-1])) / math.sqrt(len(exact) - 1)  # features next to 0 need no more
                deviation = min(usual, own) / math.sqrt(present)
                content = self.key.tobytes() + f"release {problem} {present} ".encode() + exact.tobytes()
                drawn_by = np.frombuffer(hashlib.shake_256(content).digest(self.key.nbytes), dtype=np.uint64)
                noise[problem, :-1] = deviation * Dither(drawn_by.reshape(self.key.shape)).draw(len(exact) - 1)
        return noise


def draw_noise(
    site: HorizontalSite,
    size: float,
    stored: FloatArray | RowBlocks,
    labels: FloatArray,
    prices: FloatArray,
    shape: tuple[int, int] | None = None,
) -> SiteNoise:
    """Draw a site's noise, or return the kept one of the same question.

    Parameters
    ----------
    site : HorizontalSite
    size : float
        r.
    stored : FloatArray or RowBlocks
        The features (n, m) of its rows.
    labels : (P, n) FloatArray
        Of each problem.
    prices : (n,) FloatArray
        C_i.
    shape : tuple of int, optional
        (P, d) of the draws, if a problem has other weights than m.
    """
    digest, squares, lengths = hashlib.sha256(), 0.0, 0.0
    for place, features in _blocks(stored):
        digest.update(np.ascontiguousarray(features).tobytes())
        each = (features**2).sum(axis=1)
        squares += float(prices[place] ** 2 @ each)
        lengths += float(each.sum())
    shape = shape or (len(labels), len(stored.columns) if isinstance(stored, RowBlocks) else stored.shape[1])
    others = max(1, len(site.channel.sites) - 1)
    deviation = size * math.sqrt(squares / max(1, len(stored)) / others)
    question = {
        "version": _VERSION,
        "step": "objective noise",
        "sites": site.channel.sites,
        "terms": site.terms.to_fields(),
        "features": digest.hexdigest(),
        "labels": hashlib.sha256(labels.tobytes()).hexdigest(),
        "prices": hashlib.sha256(prices.tobytes()).hexdigest(),
        "shape": list(shape),
    }
    dither = Dither(site.channel.random((1, 4)))  # drawn each time: a step that is carried out again draws as often
    normal = site.answers.answer(question, site.partition, 0.0, lambda: dither.draw(math.prod(shape)))
    draws = _of_size(normal.reshape(shape), deviation)
    mean_square = lengths / len(stored) if lengths else 1.0
    return SiteNoise(draws, deviation, mean_square, len(site.channel.sites), key_of(normal))


def key_of(normal: FloatArray) -> Residues:
    """Return the key (1, 4) of a site whose draws came from these normal numbers: the same question has the same."""
    digest = hashlib.shake_256(b"key " + np.ascontiguousarray(normal, dtype=np.float64).tobytes()).digest(32)
    return np.frombuffer(digest, dtype=np.uint64).reshape(1, 4)


def repeat_draws(seed: Residues, deviation: float, problems: int, width: int) -> tuple[FloatArray, Residues]:
    """Return the draws (P, m) that a site made by a seed (1, 4), and its key, for whoever has its record of random
    numbers.

    They are not those of a site that had kept the answer to this question from another run.
    """
    normal = Dither(seed).draw(problems * width)
    return _of_size(normal.reshape(problems, width), deviation), key_of(normal)


def share_faced(sites: int, known: int) -> float:
    """Return the noise that is left to whoever knows the draws of some sites, as a share of the agreed size.

    sites: how many drew. known: of how many the draws are known; with none the noise exceeds the agreed size, which is
    that of all sites but one.
    """
    return math.sqrt((sites - known) / max(1, sites - 1))


def noise_size(sizes: FloatArray, dimensions: int) -> NoiseSize:
    """Return the size of all noise together, by the sum of the sites' sizes (2,), for weights of so many dimensions.

    The constant is above 1/2 |B|^2 as good as always, so that objectives are above 0.
    """
    length, variance = np.maximum(sizes, 0.0).tolist()
    usual = variance * dimensions / 2
    return NoiseSize(length * (1 + 1e-9), usual * (1 + _FURTHEST * math.sqrt(2 / max(dimensions, 1))))


def _of_size(normal: FloatArray, deviation: float) -> FloatArray:
    """Return normal draws (P, m) of this deviation, cut to the longest."""
    draws = deviation * normal
    long = np.linalg.norm(draws, axis=1, keepdims=True)
    cut = np.minimum(1.0, _longest(deviation, normal.shape[1]) / np.maximum(long, np.finfo(float).tiny))
    return np.asarray(draws * cut)


def _longest(deviation: float, dimensions: int) -> float:
    return deviation * (math.sqrt(dimensions) + _FURTHEST)


def _blocks(stored: FloatArray | RowBlocks) -> Iterator[tuple[slice, FloatArray]]:
    """Yield the place and the features of some rows at a time."""
    if isinstance(stored, RowBlocks):
        yield from stored
    else:
        yield slice(None), stored
