"""The language of claims: arithmetic and comparisons over measured values, and nothing that Python could carry out."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from fedsvm.scenarios.reproduction.claims import ValuesMissing, holds
from fedsvm.scenarios.schema.errors import ScenarioError

VALUES = {"a": [1.0, 2.0, 3.0], "b": [1.5, np.nan, 2.5], "none": [np.nan] * 3, "level": [0.3, 0.1 + 0.2, 0.3]}
PLACES = np.array([0.05, 0.15, 0.85])
ROWS = ["one", "two", "three"]
SEEDS = {
    "one": (1.0, 1.1, 0.9),
    "two": (3.0,),
    "three": (2.0, 2.2, 1.9),
    "ticks": (0.3, 0.1 + 0.2, 0.3),  # one of them off by rounding
    "more ticks": (0.7, 0.7, 0.1 + 0.6),
}


class Table:
    """Three rows, of which "two" lacks its b."""

    def column(self, name: str, low: float, high: float) -> NDArray[np.float64]:
        return np.array(VALUES[name])[(low <= PLACES) & (high >= PLACES)]

    def errors(self, name: str, low: float, high: float) -> NDArray[np.float64]:
        return 0.1 * self.column(name, low, high)

    def row(self, name: str, first: str, last: str) -> NDArray[np.float64]:
        columns = list(VALUES)
        some = columns[columns.index(first) : columns.index(last) + 1] if first else columns
        return np.array([VALUES[column][ROWS.index(name)] for column in some])

    def cell(self, row: str, column: str) -> float:
        return VALUES[column][ROWS.index(row)]

    def paper(self, row: str, column: str) -> float:
        return 10 * self.cell(row, column)

    def seeds(self, row: str, column: str) -> tuple[float, ...]:
        return SEEDS[row]


@pytest.mark.parametrize(
    ("test", "expected"),
    [
        ('spread(column("a")) == 2', True),
        ('spread(column("a", 0.15, 0.85)) <= 1 and rises(column("a")) and not falls(column("a"))', True),
        ('all(column("a") < column("b"))', False),  # 3 is above 2.5; row two is left out
        ('count(column("a") < column("b")) == 1 or min(column("a")) > 7', True),
        ('any(column("a") - 2 * error("a") > column("b"))', False),
        ('cell("one", "a") < cell("two", "a") < cell("three", "a")', True),
        ('paper("three", "a") == 30 and mean(row("three", "a", "b")) == 2.75', True),
        ('sum(row("three", "a", "a")) == 3 and mean(row("three", "a", "none")) == 2.75', True),
        ('all(abs(column("a") - 2) <= 1) and max(-column("a")) == -1', True),
        ('sum(column("a")) / 3 * 2 == 4', True),
        ("0.1 + 0.2 > 0.3 or 0.3 < 0.1 + 0.2 or 0.1 + 0.2 - 0.3 > 0 or 0.1 + 0.2 != 0.3", False),
        ("0.1 + 0.2 <= 0.3 and 0.3 >= 0.1 + 0.2 and 0.1 + 0.2 == 0.3 and 0.3 < 0.3001", True),
        ("1e999 == 1e999 and not 1e999 <= 1 and -1e999 < 1e999", True),
        ('rises(column("level", 0, 0.5)) or falls(column("level", 0.1, 1))', False),
        ('0.0005 < welch("one", "three", "a") < 0.002', True),
        ('0.003 < welch("one", "ticks", "a") < 0.008', True),
    ],
)
def test_claims_hold_or_do_not(test: str, expected: bool) -> None:
    assert holds(test, Table()) is expected


@pytest.mark.parametrize(
    "test",
    [
        'welch("one", "two", "a") < 0.05',
        'welch("ticks", "more ticks", "a") < 0.05',
        'all(column("none") > 1)',
        'cell("two", "b") > 1',
        'all(column("a", 5, 6) > 1)',
        'rises(column("a", 0, 0.1))',
    ],
)
def test_what_could_not_be_measured_cannot_be_told(test: str) -> None:
    with pytest.raises(ValuesMissing):
        holds(test, Table())


@pytest.mark.parametrize(
    ("test", "said"),
    [
        ("__import__('os').system('true')", "does not have"),
        ("open('/etc/passwd')", "calls open, which is not one of its functions"),
        ("(lambda: 1)()", "does not have"),
        ("[x for x in (1,)]", "does not have"),
        ("column", "does not have"),
        ("True", "does not have"),
        ("column('a').size > 1", "does not have"),
        ("2 ** 9 ** 9 > 1", "does not have"),
        ("column('a')[0] > 1", "does not have"),
        ("spread('a') > 1", "gives spread what it does not take"),
        ("'a' + 'b' == 'ab'", "reckons with a text"),
        ("column('c') > 1", "names 'c', which the entry does not have"),
        ("column('a') > 1", "put a comparison of columns into all"),
        ("sum(row('one', 'a')) > 1", "gives row what it does not take"),
        ("1 + 1", "must be true or false"),
        ("1 +", "is no expression"),
        ("1 / 0 > 1", "divides by 0"),
        ("all(column('a') > column('b', 0, 0.1))", "has columns of different rows"),
        ("not column('a')", "where true or false must stand"),
    ],
)
def test_everything_else_is_refused(test: str, said: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        holds(test, Table())
    assert said in caught.value.problems[0]
