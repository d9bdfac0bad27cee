"""The set protocols and the scalar product as a site program, and the coordinator's functions that run them.

A site has a column, either of distinct items or of numbers. Each function of the coordinator runs one protocol and
records its disclosures. `intersection`, `union` and `fedsvm.protocols.scalar_product` state who learns what, and who
must not collude.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable

import numpy as np

from fedsvm.federation.arrays import FloatArray
from fedsvm.federation.channel.socket import SocketChannel
from fedsvm.federation.errors import FederationError
from fedsvm.federation.federation import Federation
from fedsvm.federation.site.program import SiteProgram, free, step
from fedsvm.protocols.common_seed import common_seed
from fedsvm.protocols.scalar_product import deal_and_reveal, fraction_bits, scalar_product
from fedsvm.protocols.sets.intersection import count_common, intersect, set_cardinality, set_intersection
from fedsvm.protocols.sets.union import reveal_union, set_union

_SECONDS_PER_HASH = 2.5e-4
_SECONDS_PER_ITEM = 1.5e-3
"""Seconds allowed to encrypt a point of P-256 and of P-521: three times the usual time, as sites may share a core."""

SHARED_POINTS = "how many encrypted items any of the sites have in common, and not what they are"

_MAX_EXPONENT = 1000
"""Maximum exponent of a bound; far smaller bounds are refused before."""

_COUNTS = {"counts": free("whole numbers by site", "nothing; wrong numbers end the run")}


class SetsSite(SiteProgram):
    """The column of one site.

    The partition's value `items` is a list of texts, no two the same, for the set protocols; its array `vector`,
    float64 of shape (d,), is for the scalar product.
    """

    common: list[str]

    @step(opens="value")
    def item_count(self) -> FloatArray:
        """Return the () number of items."""
        return np.array(float(len(self.partition.values["items"])))

    @step(told=_COUNTS)
    def set_intersection(self, counts: dict[str, int]) -> None:
        """Compute which of this site's items all sites have.

        Parameters
        ----------
        counts : dict of site to int
            The number of items of each site.
        """
        items = self.partition.values["items"]
        salt = common_seed(self.channel).tobytes()
        self.common = sorted(items[place] for place in set_intersection(self.channel, items, counts, salt))

    @step(
        told={
            "folder": free("any path", "a file of the common items, at a place where the site may write"),
            "column": free("any text", "the first line of that file"),
        }
    )
    def write_common(self, folder: str, column: str) -> None:
        """Write the items that all sites have to a file of this site.

        Parameters
        ----------
        folder : str
            The folder; the file has the name of the site.
        column : str
            The name of the column, for the first line.
        """
        write_column(f"{folder}/{self.site}.csv", column, self.common)

    @step(told=_COUNTS)
    def set_cardinality(self, counts: dict[str, int]) -> None:
        """Take part in counting the items that all sites hold.

        Parameters
        ----------
        counts : dict of site to int
            The number of items of each site.
        """
        salt = common_seed(self.channel).tobytes()
        set_cardinality(self.channel, self.partition.values["items"], counts, salt)

    @step(told=_COUNTS)
    def set_union(self, counts: dict[str, int]) -> None:
        """Take part in revealing the items of all sites.

        Parameters
        ----------
        counts : dict of site to int
            The number of items of each site.
        """
        set_union(self.channel, [item.encode() for item in self.partition.values["items"]], counts)

    @step(opens="value")
    def vector_size(self) -> FloatArray:
        """Return the number of entries d, and the smallest e with all absolute values below 2^e; shape (2,)."""
        vector = self.partition.arrays["vector"]
        return np.array([len(vector), math.frexp(np.abs(vector).max(initial=0.0))[1]], dtype=np.float64)

    @step(
        told={
            "bound": free("any number", "nothing; a larger entry is refused"),
        }
    )
    def scalar_product(self, bound: float) -> None:
        """Take part in revealing the product of both sites' vectors.

        Parameters
        ----------
        bound : float
            Maximum absolute value of an entry of either vector.
        """
        scalar_product(self.channel, np.asarray(self.partition.arrays["vector"], dtype=np.float64), bound)


def intersection(federation: Federation) -> int:
    """Return how many items all sites have, and let every site learn which of its own these are.

    Parameters
    ----------
    federation : Federation
        Two sites or more, each a `SetsSite` with items.

    Returns
    -------
    int
        The number of these items.

    Raises
    ------
    FederationError
        A site fails or is lost.
    """
    matched = _count_matches(federation, "set_intersection", intersect)
    federation.disclose("sites", "set_intersection", "which of its own items all sites hold", ())
    return matched


def cardinality(federation: Federation) -> int:
    """Return the number of items that all sites have. Nobody learns which items these are.

    Parameters
    ----------
    federation : Federation
        Two sites or more, each a `SetsSite` with items.

    Returns
    -------
    int

    Raises
    ------
    FederationError
        A site fails or is lost.
    """
    return _count_matches(federation, "set_cardinality", count_common)


def union(federation: Federation) -> list[str]:
    """Return the items of all sites, without their owners.

    Parameters
    ----------
    federation : Federation
        Two sites or more, each a `SetsSite` with items of at most `MAX_ITEM_BYTES` in UTF-8.

    Returns
    -------
    list of str
        Every item once, sorted by its bytes.

    Raises
    ------
    FederationError
        A site fails or is lost.
    """
    counts = _item_counts(federation)
    items: list[bytes] = federation.run(
        "set_union",
        take_part=reveal_union,
        work_s=_SECONDS_PER_ITEM * len(counts) * 2 * len(counts) * max(counts.values()),
        counts=counts,
    )
    federation.disclose("coordinator", "set_union", "every item that a site holds, and not which site", ())
    federation.disclose(federation.sites[-1], "set_union", "every item that a site holds, and not which site", ())
    federation.disclose(federation.sites[0], "set_union", "how many sites hold each item, and not what it is", ())
    return [item.decode() for item in items]


def product(federation: Federation) -> float:
    """Return the scalar product of two sites' vectors.

    The coordinator also learns their length, and a power of two that bounds their entries.

    Parameters
    ----------
    federation : Federation
        Two sites, each a `SetsSite` with a vector.

    Returns
    -------
    float

    Raises
    ------
    FederationError
        The vectors have different lengths or are too large, or a site fails or is lost.
    """
    sizes = federation.gather("vector_size", shape=(2,))
    lengths = {site: int(size[0]) for site, size in sizes.items()}
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{site} {length}" for site, length in lengths.items())
        raise FederationError(f"The vectors must have the same length, got {listed}.")
    length, bound = max(lengths.values()), math.ldexp(1.0, min(_MAX_EXPONENT, int(max(s[1] for s in sizes.values()))))
    try:
        fraction_bits(length, bound)
    except ValueError as error:
        raise FederationError(f"The vectors must have smaller entries: {error}.") from error
    value: float = federation.run(
        "scalar_product", take_part=lambda channel: deal_and_reveal(channel, length, bound), bound=bound
    )
    federation.disclose("coordinator", "scalar_product", "the product", ())
    return value


def write_column(path: str, column: str, values: Iterable[str]) -> None:
    """Write values as a file of comma-separated text that only its owner may read.

    Parameters
    ----------
    path : str
        The file. It is replaced if it exists, since a round may be repeated.
    column : str
        The name of the column, for the first line.
    values : iterable of str

    Raises
    ------
    OSError
    """
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        file.writelines(f"{_quote(value)}\n" for value in (column, *values))


def _quote(value: str) -> str:
    """Return a value quoted as in RFC 4180 if it contains a comma, a quote or a line end."""
    return '"' + value.replace('"', '""') + '"' if set(value) & set(',"\r\n') else value


def _count_matches(federation: Federation, step: str, take_part: Callable[[SocketChannel, dict[str, int]], int]) -> int:
    """Return the number of items that all sites have, by a protocol in which the coordinator compares points."""
    counts = _item_counts(federation)
    matched: int = federation.run(
        step,
        take_part=lambda channel: take_part(channel, counts),
        work_s=_SECONDS_PER_HASH * len(counts) * (len(counts) + 1) * max(counts.values()),
        counts=counts,
    )
    federation.disclose("coordinator", step, SHARED_POINTS, ())
    return matched


def _item_counts(federation: Federation) -> dict[str, int]:
    return {site: int(count) for site, count in federation.gather("item_count", shape=()).items()}
