"""Columns of sites: which sites deviate from most, and in which words."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from fedsvm.federation.columns import deviations


def held(**sites: str) -> dict[str, Mapping[str, bool]]:
    """Return the columns of each site; a name that ends in * is of a categorical one."""
    return {site: {name.rstrip("*"): name.endswith("*") for name in names.split()} for site, names in sites.items()}


@pytest.mark.parametrize(
    ("sites", "said"),
    [
        (held(), {}),
        (held(a="x y*"), {}),
        (held(a="x y*", b="y* x", c="x y*"), {}),
        (held(a="age", b="Age", c="Age"), {"a": "has 'age', and 2 of 3 sites (b, c) have 'Age'"}),
        (held(a="x", b="x y", c="x y"), {"a": "lacks 'y', which 2 of 3 sites (b, c) have"}),
        (held(a="x", b="x", c="x z"), {"c": "has 'z', which no other has"}),
        (held(a="x*", b="x", c="x"), {"a": "has text in 'x', and 2 of 3 sites (b, c) have numbers"}),
        (held(a="x*", b="x"), {"a": "has text in 'x', and b has numbers", "b": "has numbers in 'x', and a has text"}),
        (held(a="x", b="x z"), {"a": "lacks 'z', which b has", "b": "has 'z', which a has not"}),
        (
            held(a="x z", b="x z", c="x", d="x", e="x"),
            dict.fromkeys("ab", "has 'z', which only 2 of 5 sites (a, b) have"),
        ),
        (
            held(a="x", b="y", c="x y"),
            {"a": "lacks 'y', which 2 of 3 sites (b, c) have", "b": "lacks 'x', which 2 of 3 sites (a, c) have"},
        ),
    ],
)
def test_a_site_deviates_if_its_columns_are_not_those_of_most(
    sites: dict[str, Mapping[str, bool]], said: dict[str, str]
) -> None:
    assert deviations(sites) == said


def test_of_many_differences_some_are_listed() -> None:
    many = {f"c{number}": False for number in range(3000)}
    said = deviations({"a": many, "b": {"x": False}, "c": {"x": False}})["a"]
    assert said.startswith("has 'c0', which no other has; has 'c1', which no other has; ")
    assert said.endswith("; and 2993 more")
    (sites,) = deviations({f"s{number}": {"x": number == 0} for number in range(20)}).values()
    assert sites == "has text in 'x', and 19 of 20 sites (s1, s2, s3, s4, s5, s6, s7, s8 …) have numbers"
