"""Kept noisy answers: the same question, other questions, what is charged, and records that are damaged."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fedsvm.federation.arrays import FloatArray
from fedsvm.federation.errors import OrderRefused
from fedsvm.federation.site.answers import AnswerRecord
from fedsvm.federation.site.partition import Partition
from tests.hosts import NAMES, hosts

ROWS = Partition({"numeric": np.arange(6.0).reshape(3, 2)}, {"numeric": ["a", "b"]})
QUESTION = {"step": "noisy_statistics", "terms": {"seed": 1}, "asked": [[0.1, 0.2]]}


def drawing() -> Callable[[], FloatArray]:
    """Return a function that gives other numbers each time."""
    random = np.random.default_rng(1)
    return lambda: random.normal(size=3)


@pytest.fixture(params=["", "north.answers"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return where a record is; empty for one in memory."""
    return str(tmp_path / request.param) if request.param else ""


def test_the_same_question_gets_the_kept_answer_to_the_last_bit(path: str) -> None:
    record, draw = AnswerRecord(path), drawing()
    once = record.answer(QUESTION, ROWS, 0.5, draw)
    later = AnswerRecord(path) if path else record
    copied = Partition({"numeric": ROWS.arrays["numeric"].copy()}, dict(ROWS.values))
    for _ in range(3):
        assert later.answer(dict(reversed(QUESTION.items())), copied, 0.5, draw).tobytes() == once.tobytes()
    assert later.spent_mu == 0.5


OTHERS = {
    "a setting": ({**QUESTION, "terms": {"seed": 2}}, ROWS),
    "a bit of an argument": ({**QUESTION, "asked": [[math.nextafter(0.1, 1), 0.2]]}, ROWS),
    "a bit of a row": (QUESTION, Partition({"numeric": np.nextafter(ROWS.arrays["numeric"], 9.0)}, ROWS.values)),
    "the shape of rows": (QUESTION, Partition({"numeric": np.arange(6.0).reshape(2, 3)}, ROWS.values)),
    "a name": (QUESTION, Partition(ROWS.arrays, {"numeric": ["a", "c"]})),
}


@pytest.mark.parametrize("name", OTHERS)
def test_any_other_question_gets_fresh_noise_and_is_charged(name: str, path: str) -> None:
    record, draw = AnswerRecord(path), drawing()
    once, other = record.answer(QUESTION, ROWS, 0.3, draw), record.answer(*OTHERS[name], 0.4, draw)
    assert not np.isclose(once, other).any()
    assert record.spent_mu == pytest.approx(0.5)
    np.testing.assert_array_equal(record.answer(QUESTION, ROWS, 0.3, draw), once)


def test_answers_never_exceed_the_budget_over_all_versions_of_the_data(path: str) -> None:
    record, draw = AnswerRecord(path, max_mu=0.5), drawing()
    once = record.answer(QUESTION, ROWS, 0.4, draw)
    for other in OTHERS.values():
        with pytest.raises(OrderRefused, match=r"may spend mu 0\.5; 0\.4 is spent, and this one asks for 0\.31"):
            record.answer(*other, 0.31, draw)
    np.testing.assert_array_equal(record.answer(QUESTION, ROWS, 0.4, draw), once)
    record.answer(*OTHERS["a name"], 0.3, draw)
    assert record.spent_mu == pytest.approx(0.5)


def test_a_record_is_its_owners_alone_and_tells_nothing_without_its_key(tmp_path: Path) -> None:
    records = [tmp_path / name for name in ("north.answers", "south.answers")]
    for each in records:
        AnswerRecord(str(each)).answer(QUESTION, ROWS, 0.5, drawing())
    assert {each.stat().st_mode & 0o777 for each in records} == {0o600}
    one, other = (each.read_text().splitlines() for each in records)
    assert one[0] != other[0]
    assert one[1].split('"')[3] != other[1].split('"')[3], "the same question has another digest"


@pytest.mark.parametrize(
    "text",
    ["{}\n", "[]\n", "x", '{"format": "fedsvm answers 1", "key": "00"}\n', "HEAD\n{}\n", "HEAD\n[]\n", "HEAD\nnot"],
)
def test_a_damaged_record_ends_it_with_a_sentence(text: str, tmp_path: Path) -> None:
    path = tmp_path / "north.answers"
    AnswerRecord(str(path)).answer(QUESTION, ROWS, 0.5, drawing())
    path.write_text(text.replace("HEAD", path.read_text().splitlines()[0]))
    with pytest.raises(
        OrderRefused, match=r"north\.answers of its policy is damaged in line \d, so the spent mu is unknown"
    ):
        AnswerRecord(str(path)).answer(QUESTION, ROWS, 0.5, drawing())


def test_a_record_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    with pytest.raises(OrderRefused, match="cannot be opened: Is a directory"):
        AnswerRecord(str(tmp_path)).answer(QUESTION, ROWS, 0.5, drawing())


RANGES = "data.ranges={size=[-4, 4], depth=[-4, 4], age=[-4, 4]}"


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_deployment_that_is_repeated_gets_the_kept_statistics_and_another_one_is_charged(tmp_path: Path) -> None:
    settings = ("data.statistics_privacy=0.5", RANGES, "algorithm.landmarks=6", "algorithm.landmark_method=local")
    asked = [word for setting in settings for word in ("--set", setting)]
    with hosts(tmp_path) as there:
        for name in NAMES:
            (tmp_path / f"{name}.toml").write_text(f'max_mu = 0.8\nanswers = "{name}.answers"\n')

        def deployed(folder: str, *changes: str) -> int:
            """Return the exit status of a run."""
            coordinator = there.coordinator(*asked, *changes, "--out", folder)
            sites = [there.site(name, coordinator, "--policy", f"{name}.toml") for name in NAMES]
            statuses = {each.ends() for each in (coordinator, *sites)}
            assert len(statuses) == 1, [each.said for each in (coordinator, *sites)]
            return statuses.pop()

        def records() -> list[str]:
            """Return the records of all sites."""
            return [(tmp_path / f"{name}.answers").read_text() for name in NAMES]

        def charged() -> list[int]:
            """Return how many answers each site has charged. Noise in the objective is kept, and costs nothing."""
            return [each.count('"mu": 0.5') for each in records()]

        assert deployed("first") == 0
        kept = records()
        assert charged() == [1, 1, 1]
        assert deployed("again") == 0
        assert records() == kept
        first, again = there.model("first"), there.model("again")
        assert (
            first["offset"].tobytes() + first["scale"].tobytes() == again["offset"].tobytes() + again["scale"].tobytes()
        )
        assert deployed("other", "--set", "algorithm.C=2.5") == 0
        assert charged() == [2, 2, 2]
        assert not np.array_equal(there.model("other")["scale"], first["scale"])
        assert deployed("beyond", "--set", "algorithm.C=3.5") == 3
        said = "".join(each.said for each in there.started)
        assert "may spend mu 0.8; 0.707 is spent, and this one asks for 0.5" in said
