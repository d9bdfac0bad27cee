"""Rows from encrypted sets of items, by finding out which item each ciphertext is (on PP-SVM).

The coordinator sees of every row which ciphertexts it has. Two ways to names:

- *known items*: rows whose items are known. Of the coalition's own sites' rows it knows the items, and in which rows a
  ciphertext occurs, so that a column and a ciphertext that occur in the same rows, and no other pair does, are one. A
  site may make sure of it by a row for each column: a canary. Nothing is guessed.
- *item frequencies*: where it is known how often each column is 1 among records of its kind, in either class, the
  ciphertext that occurs about as often is that column, if no other is near. What it gives is only as sure as that.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from fedsvm.algorithms.attacks.attack import Prior
from fedsvm.algorithms.attacks.epochs import Epoch, epochs
from fedsvm.algorithms.attacks.row_counts import CountingAttack, ShownRows
from fedsvm.algorithms.data.columns import LabeledRows
from fedsvm.federation.arrays import BoolArray, FloatArray, IntArray
from fedsvm.protocols.analysis.views import RoundView, RunView
from fedsvm.protocols.sets.records import incidence

_NEAR = 4.0
"""Deviations within which a frequency may be that of a column: a guess is wrong in few of ten thousand cases."""


@dataclass(frozen=True)
class _CipherTable:
    """The ciphertexts of rows, (n, k) of 0 and 1, labels (n,), and which rows are the coalition's own (n,)."""

    items: IntArray
    labels: FloatArray
    is_own: BoolArray


def _tables(view: RunView, epoch: Epoch) -> Iterator[_CipherTable]:
    """Yield the table of each comparison that the coordinator received."""
    labels: dict[str, FloatArray] = {}
    for each in epoch.rounds:
        if each.step == "class_labels":
            labels = {site: values[0] for (site,), values in each.sums.items()}
        if each.step == "encrypt_records" and view.coalition.coordinator and each.heard:
            yield _table(view, each, labels)


def _table(view: RunView, each: RoundView, labels: dict[str, FloatArray]) -> _CipherTable:
    records, items = each.parameters["records"], each.parameters["items"]
    sites = list(records)
    last = each.heard[-2 * len(sites) :]  # the coordinator's come behind those of sites
    of_sizes, of_points = last[: len(sites)], last[len(sites) :]
    arrived = dict(zip([*sites[1:], sites[0]], of_points, strict=True))
    points = np.concatenate([arrived[site].reshape(items[site], -1) for site in sites])
    known = [labels.get(site, np.full(records[site], np.nan))[: records[site]] for site in sites]
    own = np.concatenate([np.full(records[site], site in view.coalition.sites) for site in sites])
    return _CipherTable(incidence(np.concatenate(of_sizes), points), np.concatenate(known), own)


def _whole_rows(table: _CipherTable, column_of: IntArray, epoch: Epoch) -> ShownRows:
    """Return the rows of others whose ciphertexts are all known. column_of (k,): -1 where it is not."""
    known = column_of >= 0
    whole = ~table.is_own & ~table.items[:, ~known].any(axis=1)
    ones = np.zeros((int(whole.sum()), epoch.columns))
    ones[:, column_of[known]] = table.items[np.ix_(whole, known)]
    return ShownRows.of(epoch, ones, table.labels[whole])


class KnownItems(CountingAttack):
    """Ciphertexts named by the rows of sites that collude with the coordinator."""

    name = "known items"

    def shown_rows(self, view: RunView, prior: Prior) -> Iterator[ShownRows]:
        """Yield the rows of each comparison; none of folds, which have other rows, if own rows cannot be identified."""
        for epoch in epochs(view) if prior.own is not None else []:
            for table in _tables(view, epoch):
                if (own := _binary(prior.own)) is not None and table.is_own.sum() == len(own.rows):
                    yield _whole_rows(table, _same_rows(table.items[table.is_own], own.rows), epoch)
                else:
                    yield ShownRows.of(epoch, np.zeros((0, epoch.columns)), np.zeros(0))


def _binary(rows: LabeledRows | None) -> LabeledRows | None:
    """Return rows of 0 and 1; None for others, which sets do not determine."""
    return rows if rows is not None and np.isin(rows.rows, (0.0, 1.0)).all() else None


def _same_rows(ciphertexts: IntArray, columns: FloatArray) -> IntArray:
    """Return (k,) the column of each ciphertext (n, k) that occurs in the same rows (n, p), if there is exactly one."""
    same: BoolArray = np.all(ciphertexts[:, :, None] == columns[:, None, :], axis=0)
    return _unique(same & np.any(ciphertexts, axis=0)[:, None])


def _unique(may_be: BoolArray) -> IntArray:
    """Return (k,) the certain pairs among possible ones (k, p), where neither side fits another; -1 otherwise."""
    certain = may_be & (may_be.sum(axis=1, keepdims=True) == 1) & (may_be.sum(axis=0, keepdims=True) == 1)
    return np.where(certain.any(axis=1), certain.argmax(axis=1), -1)


class ItemFrequencies(CountingAttack):
    """Ciphertexts named by how often they occur in each class."""

    name = "item frequencies"

    def shown_rows(self, view: RunView, prior: Prior) -> Iterator[ShownRows]:
        """Yield the rows of each comparison, by the candidates' frequencies."""
        if (public := _binary(prior.candidates)) is None:
            return
        for epoch in epochs(view):
            for table in _tables(view, epoch):
                yield _whole_rows(table, _near_frequencies(table, public), epoch)


def _near_frequencies(table: _CipherTable, public: LabeledRows) -> IntArray:
    """Return (k,) the column whose share of ones in every class is near a ciphertext's, if it is the only one."""
    may_be = np.ones((table.items.shape[1], public.rows.shape[1]), dtype=np.bool_)
    for label in np.unique(public.labels):
        here, there = table.items[table.labels == label], public.rows[public.labels == label]
        if not len(here) or not len(there):
            continue
        seen, known = here.mean(axis=0)[:, None], there.mean(axis=0)[None, :]
        pooled = (seen * len(here) + known * len(there)) / (len(here) + len(there))
        deviation = np.sqrt(pooled * (1 - pooled) * (1 / len(here) + 1 / len(there)))
        may_be &= np.abs(seen - known) <= _NEAR * deviation
    return _unique(may_be)
