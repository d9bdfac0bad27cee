"""The scalar product of two sites' vectors: exact to the rounding, at its cost, uniform to whoever looks on."""

from __future__ import annotations

import functools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from fedsvm.federation.arrays import FloatArray
from fedsvm.federation.channel.memory import InMemoryNetwork, MemoryChannel
from fedsvm.federation.errors import BoundExceeded
from fedsvm.federation.transport.keys import COORDINATOR
from fedsvm.protocols.analysis.execution import site_names
from fedsvm.protocols.scalar_product import deal_and_reveal, fraction_bits, scalar_product
from tests.test_sums import is_uniform

VECTORS = npst.arrays(np.float64, st.integers(0, 20), elements=st.floats(-100, 100))


def multiply(x: FloatArray, y: FloatArray, bound: float) -> tuple[float, InMemoryNetwork]:
    """The product as the coordinator learns it, and the record of the protocol."""
    network = InMemoryNetwork(site_names(2))

    def part(vector: FloatArray, channel: MemoryChannel) -> None:
        scalar_product(channel, vector, bound)

    parts = {site: functools.partial(part, vector) for site, vector in zip(network.sites, (x, y), strict=True)}
    found: dict[str, float | None] = network.run(
        {**parts, COORDINATOR: lambda channel: deal_and_reveal(channel, len(x), bound)}
    )
    product = found[COORDINATOR]
    assert product is not None
    return product, network


@settings(max_examples=60)
@given(VECTORS, st.data())
def test_the_product_is_exact_to_the_rounding_of_its_entries(x: FloatArray, data: st.DataObject) -> None:
    y = data.draw(npst.arrays(np.float64, len(x), elements=st.floats(-100, 100)))
    product, network = multiply(x, y, 100.0)
    allowed = 2.0 ** -fraction_bits(len(x), 100.0) * (np.abs(x).sum() + np.abs(y).sum() + 1)
    exact = float(sum(Fraction(a) * Fraction(b) for a, b in zip(x.tolist(), y.tolist(), strict=True)))
    assert product == pytest.approx(exact, rel=1e-15, abs=allowed)
    assert (len(network.sent), network.hops, network.payload_bytes) == (9, 4, 16 * (4 * len(x) + 5))


def test_what_either_site_sees_of_the_other_is_uniform() -> None:
    zeros = np.zeros(4000)
    _, network = multiply(zeros, zeros, 1.0)
    for pair in (("site-1", "site-2"), ("site-2", "site-1")):
        assert is_uniform([m.array for m in network.sent if (m.sender, m.receiver) == pair and m.array.size > 2])


def test_the_coordinator_and_a_site_together_learn_the_other_vector() -> None:
    """Past its threshold: the mask that the coordinator dealt comes off what the site received."""
    x = np.array([1.0, -2.0, 0.5])
    _, network = multiply(x, np.ones(3), 4.0)
    (mask,) = [m.array for m in network.sent if m.receiver == "site-1" and m.sender == COORDINATOR and m.array.size > 2]
    (masked,) = [m.array for m in network.sent if (m.sender, m.receiver) == ("site-1", "site-2")]
    low = (masked[0] - mask[0]).view(np.int64)
    np.testing.assert_allclose(np.ldexp(low.astype(float), -fraction_bits(3, 4.0)), x, atol=1e-12)


def test_a_vector_that_does_not_fit_is_refused_before_anything_is_sent() -> None:
    for vector in (np.array([1.0, 5.0]), np.array([1.0, math.nan])):
        network = InMemoryNetwork(site_names(2))
        with pytest.raises(BoundExceeded, match="beyond the declared bound 4"):
            network.run({"site-1": functools.partial(scalar_product, vector=vector, bound=4.0)})
        assert network.sent == []
    with pytest.raises(ValueError, match="does not fit 128 bits"):
        fraction_bits(10, 1e30)
