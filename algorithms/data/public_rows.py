"""Columns and scale from public rows, so that nothing of the private ones is chosen by looking at them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedsvm.algorithms.data.columns import Columns, LabeledRows, Schema
from fedsvm.algorithms.data.encoding import Vocabulary, one_hot
from fedsvm.algorithms.data.horizontal import HorizontalSite, each_model
from fedsvm.algorithms.data.scaling import Scale, ScaleName
from fedsvm.algorithms.privacy.accountant import PrivacyAccountant
from fedsvm.federation.arrays import FloatArray
from fedsvm.federation.federation import Federation
from fedsvm.federation.site.program import CHECKED, free, step
from fedsvm.federation.site.script import Script, maybe
from fedsvm.federation.site.terms import Terms


class PubliclyScaledSite(HorizontalSite):
    """The rows of one site, in columns and on a scale that were chosen without it."""

    noisy_settings: ClassVar[str] = (
        'algorithm.name = "hybrid-svm", variant = "one-shot" and mechanism = "laplace" or "gaussian", without tests at '
        "sites"
    )

    @step(
        remembered=True,
        told={
            "values": free(
                "lists with every value that the site holds", "columns of values that it adds, which are zero"
            ),
            "offset, scale": free("any numbers", "columns on a scale on which later sums can isolate rows"),
            "fold": CHECKED,
        },
    )
    def encode_known(self, values: list[list[str]], offset: FloatArray, scale: FloatArray, fold: int | None) -> None:
        """Hold a fold out, turn categories that are public into 0/1 columns, ignore others, and scale all columns."""
        self.hold_out(fold)
        codes, categories = self.partition.arrays["codes"], self.partition.values["categories"]
        blocks = [one_hot(codes[:, j], categories[j], values[j]) for j in range(codes.shape[1])]
        self.encoded = np.hstack([self.numeric[:], *blocks]) if blocks else self.numeric
        self.rescale(offset, scale)


def each_private_model(terms: Terms, *parts: Script | str) -> Script:
    """Return the script of a run that trains a model of private rows for each agreed fold, and counts rows in the end.

    parts: how each is trained, in their order.
    """
    return each_model(terms, "encode_known", *parts, maybe("row_count"))


@dataclass
class PublicTask:
    """One model to train over sites that hold private rows, which choose nothing.

    Parameters
    ----------
    columns : Columns
        What rows become, chosen from public rows or declared.
    public : LabeledRows
        The public rows, scaled, with their labels.
    accountant : PrivacyAccountant
        What was released so far, and the budget; one for all models of a run.
    noise_shares : int
        By how many sites noise that is drawn in shares must be complete.
    seed : int
        Of the experiment's generators; never of masks or noise.
    fold : int, optional
        The fold that is held out; None holds out none.
    classes : int, default 2
        How many there are; private rows of none of them are among the others of each.
    """

    columns: Columns
    public: LabeledRows
    accountant: PrivacyAccountant
    noise_shares: int
    seed: int
    fold: int | None = None
    classes: int = 2

    @property
    def problems(self) -> int:
        """The number of binary problems of one class against the rest: one for two classes."""
        return 1 if self.classes == 2 else self.classes

    def prepare(self, federation: Federation) -> None:
        """Encode and scale the rows at the sites like the public ones. The round is of phase "setup"."""
        scale = self.columns.scale
        with federation.phase("setup"):
            federation.run(
                "encode_known",
                remember=True,
                values=[list(values) for values in self.columns.vocabulary.values.values()],
                offset=scale.offset,
                scale=scale.scale,
                fold=self.fold,
            )


def public_columns(
    schema: Schema,
    numeric: FloatArray,
    categorical: NDArray[np.str_],
    method: ScaleName,
    ranges: Mapping[str, Sequence[float]],
) -> Columns:
    """Return columns and scale from public rows, numeric (n, q) and categorical (n, r) as text.

    Categories are those declared, or those that public rows have. ranges: lowest and highest value of numeric columns
    whose range is declared, which then go to [-1, 1].
    """
    texts = zip(schema.categorical, categorical.T, strict=True)
    vocabulary = Vocabulary({name: sorted(schema.declared.get(name, set(text.tolist()))) for name, text in texts})
    scale = Scale.of(vocabulary.encode(numeric, categorical), method)
    columns = Columns(schema.numeric, vocabulary, scale)
    for name, (low, high) in ranges.items():
        place = columns.names.index(name)
        scale.offset[place], scale.scale[place] = (high + low) / 2, (high - low) / 2
    return columns
