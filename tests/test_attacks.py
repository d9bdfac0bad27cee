"""The inputs that coalitions learn: by the algebra of the protocols, and from transcripts of real runs; both must
agree."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsvm.federation.arrays import Residues
from fedsvm.federation.channel.interface import Channel, uniform_residues
from fedsvm.federation.channel.transcript import read_transcript
from fedsvm.federation.transport.keys import COORDINATOR
from fedsvm.protocols.analysis import coalitions
from fedsvm.protocols.analysis.coalitions import AnalysedSum, smallest_breaking_coalition
from fedsvm.protocols.analysis.execution import Label, execute
from fedsvm.protocols.analysis.span import Span, are_combinations
from fedsvm.protocols.analysis.symbolic import linear_views
from fedsvm.protocols.sums.changing_neighbours import changing_neighbours
from fedsvm.protocols.sums.k_secure import k_secure
from fedsvm.protocols.sums.masked import masked
from fedsvm.protocols.sums.plain import PLAIN
from fedsvm.protocols.sums.registry import SUMS
from fedsvm.protocols.sums.ring import CHUNK, RING
from fedsvm.protocols.sums.secure_sum import SecureSum
from tests.commands import fedsvm
from tests.conftest import long_but_for
from tests.small_runs import SMALL
from tests.test_runs import run

PROTOCOLS = [
    PLAIN,
    RING,
    *(k_secure(segments) for segments in range(2, 9)),
    *(changing_neighbours(rings) for rings in (1, 2, 3)),
    masked(0.66),
]


@pytest.mark.parametrize(
    ("protocol", "count"),
    [
        pytest.param(protocol, count, marks=[pytest.mark.long] if count > 6 else [])
        for protocol in PROTOCOLS
        for count in range(4, 9)
        if count >= protocol.min_sites
    ],
    ids=lambda value: value.described if isinstance(value, SecureSum) else str(value),
)
def test_the_smallest_breaking_coalition_is_the_stated_one(protocol: SecureSum, count: int) -> None:
    assert smallest_breaking_coalition(protocol, count) == min(protocol.smallest_coalition(count), count - 1)


def test_a_protocol_that_leaks_more_than_it_says_is_found_out() -> None:
    """A ring whose initiator forgets its mask: what its successor receives is its vector."""

    class Forgetful:
        def __init__(self, channel: Channel) -> None:
            self._channel = channel

        def __getattr__(self, name: str) -> Any:
            return getattr(self._channel, name)

        def random(self, shape: Sequence[int]) -> Residues:
            return np.zeros(shape, dtype=np.uint64)

    careless = replace(
        RING, contribute_residues=lambda channel, vector: RING.contribute_residues(Forgetful(channel), vector)
    )
    assert smallest_breaking_coalition(careless, 5) == 1
    assert AnalysedSum.of(careless, 5).leaks(("site-2",), coordinator=False) == {"site-1"}


def test_numbers_that_show_more_than_the_algebra_knows_are_an_error() -> None:
    """As if the first site of a ring sent its input, though the protocol says that it masks it."""
    analysed = AnalysedSum.of(RING, 4)
    shown = {Label("received", "site-2", "site-1"): analysed.numbers[Label("input", "site-1")]}
    with pytest.raises(AssertionError, match="algebra and numbers disagree on site-1"):
        replace(analysed, numbers=analysed.numbers | shown).leaks(["site-2"], coordinator=False)
    assert analysed.leaks(["site-2"], coordinator=False) == set()


def test_all_but_one_learn_the_last_input_from_the_sum() -> None:
    for protocol in PROTOCOLS:
        if protocol.min_sites <= 5:
            assert AnalysedSum.of(protocol, 5).leaks(("site-1", "site-2", "site-4", "site-5"), coordinator=False) == {
                "site-3"
            }


@settings(max_examples=50)
@given(st.integers(1, 8), st.integers(1, 12), st.data())
def test_a_combination_is_found_if_there_is_one(rows: int, columns: int, data: st.DataObject) -> None:
    generator = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    shifts = generator.integers(0, 5, size=(rows, columns), dtype=np.uint64)
    vectors = generator.integers(0, 2**64, size=(rows, columns), dtype=np.uint64) << shifts
    coefficients = generator.integers(0, 2**64, size=rows, dtype=np.uint64)
    target = (coefficients[:, None] * vectors).sum(axis=0)
    found = Span(vectors).combination(target)
    assert found is not None
    np.testing.assert_array_equal((found[:, None] * vectors).sum(axis=0), target)


def test_what_is_not_a_combination_is_not_found() -> None:
    vectors = uniform_residues((6, 40))
    assert Span(vectors).combination(uniform_residues((1, 40))[0]) is None
    too_few_columns = np.vstack([vectors[2], uniform_residues((3, 40))])
    assert are_combinations([vectors[2]], too_few_columns) == [False]
    long = uniform_residues((4, 200))
    among = [long[1], uniform_residues((1, 200))[0], np.zeros(200, dtype=np.uint64), long[3] - long[0]]
    assert are_combinations(among, long) == [True, False, False, True]
    assert are_combinations([], long) == []


def test_the_forms_of_a_protocol_show_that_it_adds_all_inputs_once() -> None:
    for protocol in PROTOCOLS:
        sites = tuple(f"site-{number}" for number in range(1, 9))
        total = linear_views(protocol, sites)[Label("total", "")]
        np.testing.assert_array_equal(total[0], [1] * 8 + [0] * (total.size - 8))


def test_a_vector_that_went_round_in_chunks_is_put_together() -> None:
    sites = ("site-1", "site-2", "site-3", "site-4")
    inputs = {site: uniform_residues((1, CHUNK + 10)) for site in sites}
    record = execute(RING, inputs).record
    seen = coalitions.view(record, ["site-1", "site-3"], coordinator=False)
    by_victim = coalitions.reconstruction_coefficients(linear_views(RING, sites), seen, sites, ["site-2", "site-4"])
    for victim, coefficients in by_victim.items():
        np.testing.assert_array_equal(coalitions.combine_vectors(coefficients, record), inputs[victim])
    assert set(by_victim) == {"site-2", "site-4"}


def test_of_a_site_that_was_given_up_late_the_own_mask_protects_the_input() -> None:
    """Its masked vector came in and its pairwise masks were opened; its own was not, and nobody learns it."""
    sites = tuple(f"site-{number}" for number in range(1, 6))
    symbols = linear_views(masked(0.6), sites, {"site-3": 2})
    seen = coalitions.view(symbols, ["site-1"], coordinator=True)
    assert Label("received", COORDINATOR, "site-3") in seen
    assert coalitions.reconstruction_coefficients(symbols, seen, sites, ["site-2", "site-3", "site-4", "site-5"]) == {}


@pytest.mark.parametrize(
    "protocol", [RING, k_secure(3), changing_neighbours(2), masked(0.6)], ids=lambda each: each.name
)
def test_a_sum_that_a_site_receives_says_nothing_to_all_others_together(protocol: SecureSum) -> None:
    """Every draw is accounted for, the receiver's blind too: it, and whoever has all other inputs, learns the last."""
    sites = tuple(f"site-{number}" for number in range(1, 6))
    symbols = linear_views(protocol, sites, receiver="site-3")
    assert Label("total", "") not in symbols
    others = coalitions.view(symbols, ["site-1", "site-2", "site-4", "site-5"], coordinator=True)
    assert coalitions.reconstruction_coefficients(symbols, others, sites, ["site-3"]) == {}
    with_receiver = coalitions.view(symbols, ["site-1", "site-2", "site-3", "site-4"], coordinator=False)
    (coefficients,) = coalitions.reconstruction_coefficients(symbols, with_receiver, sites, ["site-5"]).values()
    inputs = {site: uniform_residues((1, 30)) for site in sites}
    record = execute(protocol, inputs, receiver="site-3").record
    np.testing.assert_array_equal(coalitions.combine_vectors(coefficients, record), inputs["site-5"])


# Real runs.


def collude(folder: Path, sites: list[int], *changes: str, coordinator: bool = False) -> dict[str, Any]:
    """A run of the quickstart with a coalition: few rounds of training and few landmarks are as good as all."""
    declared = [f"collusion.sites={sites}", f"collusion.coordinator={str(coordinator).lower()}"]
    declared += ["compare.centralised=false", "algorithm.max_iterations=5", "algorithm.landmarks=30"]
    return run("quickstart", folder, *declared, *changes).result


def learnt(collusion: dict[str, Any]) -> set[str]:
    """The victims of whom anything was recovered."""
    return {victim["site"] for victim in collusion["victims"] if victim["recovered"]}


def test_two_neighbours_on_the_ring_recover_everything_exactly(tmp_path: Path) -> None:
    training = ["algorithm.solver=cutting-plane", "algorithm.max_iterations=10", "algorithm.landmarks=0.25"]
    result = collude(tmp_path / "run", [1, 3], *training)
    collusion, (whole,) = result["collusion"], result["audit"]
    victims = [victim for victim in collusion["victims"] if victim["site"] == "site-2"]
    assert {victim["step"] for victim in victims} >= {"category_tables", "local_landmarks", "cuts", "line"}
    assert all(victim["recovered"] == victim["values"] > 0 for victim in victims)
    assert all(victim["max_error"] == 0.0 for victim in victims)
    assert learnt(collusion) == {"site-2"}
    # of its cuts by themselves, with all boards as candidates, follow rows, and of nobody else any
    assert whole["recovered"] >= 100
    assert whole["false_claims"] == 0
    files = sorted((tmp_path / "run" / "transcripts").iterdir())
    assert [file.name for file in files] == ["site-1-1.transcript", "site-3-1.transcript"]
    assert {file.stat().st_mode & 0o777 for file in files} == {0o600}
    assert {entry.what for entry in read_transcript(str(files[0]))} == {"sent", "received", "drew", "input"}


@pytest.mark.parametrize(
    ("sites", "changes", "coordinator"),
    [
        pytest.param([1, 3], ["protocol.sum=k-secure", "protocol.segments=5"], False, marks=pytest.mark.long),
        ([1, 3, 4], ["protocol.sum=k-secure", "protocol.segments=5"], False),
        ([1, 3, 4], ["protocol.sum=masked"], False),
        ([1, 3, 5], ["protocol.sum=masked"], True),
        ([3], ["algorithm.landmark_method=global"], True),
    ],
    ids=["k-secure 2", "k-secure 3", "masked", "masked and coordinator", "ring and coordinator"],
)
def test_a_coalition_that_is_too_small_recovers_nothing(
    sites: list[int], changes: list[str], coordinator: bool, tmp_path: Path
) -> None:
    result = collude(tmp_path / "run", sites, *changes, coordinator=coordinator)
    collusion, (whole,) = result["collusion"], result["audit"]
    assert len(collusion["victims"]) >= (5 - len(sites)) * 4
    assert learnt(collusion) == set()
    assert {victim["max_error"] for victim in collusion["victims"]} == {None}
    # nothing of a site's part of any sum; the path of training, which sites must know, tells of rows all the same, and
    # with the coordinator's systems, which no mask hides from a site, of most
    of_training = {"Newton steps", "Newton systems"} if coordinator else {"Newton steps"}
    assert {each["attack"] for each in whole["attacks"] if each["recovered"]} <= of_training
    assert whole["false_claims"] <= 2, "the noise of steps makes a false claim in one run of some dozens"
    assert bool(collusion["remarks"]) == coordinator


def test_the_plain_sum_shows_the_coordinator_everything(tmp_path: Path) -> None:
    collusion = collude(tmp_path / "run", [], "protocol.sum=plain", coordinator=True)["collusion"]
    assert learnt(collusion) == {f"site-{number}" for number in range(1, 6)}
    assert {victim["max_error"] for victim in collusion["victims"]} == {0.0}


@pytest.mark.parametrize("protocol", long_but_for(["ring", "masked", "plain"], "ring"))
def test_the_audit_holds_when_sites_drop(protocol: str, tmp_path: Path) -> None:
    """Of rounds that were aborted the coalition keeps what it saw; the algebra follows what was really sent."""
    command = ["run", "quickstart", "--json", "--out", str(tmp_path / "run"), *(f"--set={change}" for change in SMALL)]
    command += [f"--set=protocol.sum={protocol}", "--set=collusion.sites=[1,3]", "--set=collusion.coordinator=true"]
    command += [
        "--fault=kill:site=5,phase=train,round=4,message=2",
        "--fault=kill:site=3,phase=landmarks,round=3,rejoin=true",
    ]
    command += ["--set=federation.sites=6"]
    done = fedsvm(*command, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    everyone = {"site-2", "site-4", "site-5", "site-6"}
    expected = {"ring": {"site-2"}, "masked": set(), "plain": everyone}
    if result["memberships"][-1]["sites"] == ["site-1", "site-2", "site-3", "site-4", "site-6"]:
        expected["ring"] = {"site-2"}
    assert learnt(result["collusion"]) == expected[protocol]


def test_the_sweep_is_a_table_and_a_page(tmp_path: Path) -> None:
    done = fedsvm("audit", "--sites", "4", "--out", tmp_path / "sweep", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "ring" in done.stdout
    assert "33 %" in done.stdout
    cells = json.loads((tmp_path / "sweep" / "audit.json").read_text())
    page = (tmp_path / "sweep" / "audit.html").read_text()
    assert {cell["size"] for cell in cells} == {1, 2, 3}
    assert {cell["sum"].partition(" ")[0] for cell in cells} == set(SUMS)
    assert all(cell["leaks"] == 0 for cell in cells if cell["sum"].startswith("masked") and cell["size"] < 3)
    sums = len({cell["sum"] for cell in cells})
    assert page.count("<tr>") == 2 * (1 + sums) + 1 + sums  # without and with the coordinator, and what each costs
    again = fedsvm("audit", "--sites", "4", "--out", tmp_path / "sweep", folder=tmp_path)
    assert again.returncode == 2
    assert "File exists; name another" in again.stderr
