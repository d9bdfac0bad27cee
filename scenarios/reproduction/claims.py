"""The language of claims: arithmetic and comparisons over what an entry measured, read by a parser and nothing more.

    all(column("output") > column("objective") + 2 * error("objective"))
    spread(column("PAN-SVM", 0.15, 0.85)) <= 3.0
    cell("by f1", "ensemble") < 90

It is a subset of Python's expressions: numbers, text, + - * /, comparisons, `and`, `or`, `not`, and
calls of the functions below; everything else is refused, and nothing is ever given to Python to carry out. Values of
cells that could not be had are left out of columns, and of several columns that are compared; a claim that has none
left cannot be told. Values that differ by rounding alone are equal.

column(name[, low, high])   values of a column, by row, or of the rows that stand between two places of the axis;
                            without rows that are sums or deviations of others
row(name[, first, last])    values of a row, by column, or of the columns from one to another
cell(row, column)           one value
paper(row, column)          the printed one
error(column[, low, high])  standard errors of a column's values
welch(row, other, column)   how probable so large a difference of two cells is where there is none: p of Welch's t-test
                            of the values of their seeds
spread, min, max, mean, sum, abs
rises, falls                whether each value is above (below) the one before
all, any, count             of comparisons of columns or rows
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from fedsvm.scenarios.schema.errors import ScenarioError

ROUNDING = 1e-9
"""By which values that are the same may differ, in parts of them."""

_NOTHING = 1e-12
"""The maximum difference of values that count as equal."""

Value = Any
"""A number, a truth, a text, or a masked array of numbers or truths."""


class MeasuredValues(Protocol):
    """The values that claims are about. Missing values are NaN."""

    def column(self, name: str, low: float, high: float) -> NDArray[np.float64]:
        """Return values by row. Raises KeyError for an unknown name."""

    def errors(self, name: str, low: float, high: float) -> NDArray[np.float64]:
        """Return standard errors by row. Raises KeyError for an unknown name."""

    def row(self, name: str, first: str, last: str) -> NDArray[np.float64]:
        """Return values by column, of all or, with names, from one to another. Raises KeyError for an unknown name."""

    def cell(self, row: str, column: str) -> float:
        """Return one value. Raises KeyError for an unknown name."""

    def paper(self, row: str, column: str) -> float:
        """Return the printed value. Raises KeyError for an unknown name."""

    def seeds(self, row: str, column: str) -> Sequence[float]:
        """Return the values of a cell, one per seed. Raises KeyError for an unknown name."""


class ValuesMissing(Exception):
    """The values that a claim is about are missing."""


def _same(left: Value, right: Value) -> Value:
    """Return whether two values differ only by rounding: a tie is neither above nor below."""
    rounding = ROUNDING * np.ma.minimum(np.ma.abs(left), np.ma.abs(right)) + _NOTHING
    return np.ma.logical_or(left == right, np.ma.abs(np.ma.subtract(left, right)) < rounding)


def _other(left: Value, right: Value) -> Value:
    return np.ma.logical_not(_same(left, right))


_OPERATORS: Mapping[type[ast.AST], Callable[[Value, Value], Value]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Lt: lambda left, right: np.ma.logical_and(left < right, _other(left, right)),
    ast.LtE: lambda left, right: np.ma.logical_or(left <= right, _same(left, right)),
    ast.Gt: lambda left, right: np.ma.logical_and(left > right, _other(left, right)),
    ast.GtE: lambda left, right: np.ma.logical_or(left >= right, _same(left, right)),
    ast.Eq: _same,
    ast.NotEq: _other,
}


def holds(test: str, measured: MeasuredValues) -> bool:
    """Return whether a claim holds for the measured values.

    Parameters
    ----------
    test : str
        The claim, in the language of this module.
    measured : MeasuredValues

    Returns
    -------
    bool

    Raises
    ------
    CannotTell
        Where it was not measured.
    ScenarioError
        For a claim that is not written in the language.
    """
    found = _require_known(_ClaimEvaluator(test, measured).of(_parse(test)))
    if not isinstance(found, bool | np.bool_):
        raise _wrong(test, "must be true or false; put a comparison of columns into all(…) or any(…)")
    return bool(found)


def _parse(test: str) -> ast.expr:
    try:
        return ast.parse(test.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError):
        raise _wrong(test, "is no expression") from None


def _wrong(test: str, why: str) -> ScenarioError:
    return ScenarioError([f"The claim {test!r} {why}."])


@dataclass(frozen=True)
class _ClaimEvaluator:
    test: str
    measured: MeasuredValues

    def of(self, node: ast.expr) -> Value:
        """Return the value of an expression."""
        found: Value
        match node:
            case ast.Constant(value=int() | float() | str() as value) if not isinstance(value, bool):
                found = value
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                found = -self.of(operand)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                found = not self._truth(operand)
            case ast.BoolOp(op=op, values=parts):
                truths = [self._truth(part) for part in parts]
                found = all(truths) if isinstance(op, ast.And) else any(truths)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
                found = self._apply(type(op), self.of(left), self.of(right))
            case ast.Compare(left=left, ops=ops, comparators=rights) if {type(op) for op in ops} <= _OPERATORS.keys():
                found = self._compare([self.of(each) for each in (left, *rights)], [type(op) for op in ops])
            case ast.Call(func=ast.Name(id=name), args=given, keywords=[]):
                found = self._call_function(name, [self.of(each) for each in given])
            case _:
                raise _wrong(self.test, f"has {ast.unparse(node)!r}, which the language of claims does not have")
        return found

    def _truth(self, node: ast.expr) -> bool:
        found = _require_known(self.of(node))
        if not isinstance(found, bool | np.bool_):
            raise _wrong(self.test, f"has {ast.unparse(node)!r} where true or false must stand")
        return bool(found)

    def _apply(self, kind: type[ast.AST], left: Value, right: Value) -> Value:
        if isinstance(left, str) or isinstance(right, str):
            raise _wrong(self.test, "reckons with a text; put the name of a column into column(…)")
        if np.ndim(left) and np.ndim(right) and len(left) != len(right):
            raise _wrong(self.test, "has columns of different rows")
        try:
            return _OPERATORS[kind](left, right)
        except ZeroDivisionError:
            raise _wrong(self.test, "divides by 0") from None

    def _compare(self, values: list[Value], kinds: list[type[ast.AST]]) -> Value:
        found = [self._apply(kind, left, right) for left, kind, right in zip(values, kinds, values[1:], strict=False)]
        return found[0] if len(found) == 1 else np.ma.array(found).all(axis=0)

    def _call_function(self, name: str, given: list[Value]) -> Value:
        try:
            if name in ("column", "error"):
                of = self.measured.column if name == "column" else self.measured.errors
                column, low, high = [*given, -np.inf, np.inf] if len(given) == 1 else given
                return np.ma.masked_invalid(of(column, low, high))
            if name == "row":
                row, first, last = [*given, "", ""] if len(given) == 1 else given
                return np.ma.masked_invalid(self.measured.row(row, first, last))
            if name in ("cell", "paper"):
                return _require_known(np.ma.masked_invalid(getattr(self.measured, name)(*given)))
            if name == "welch":
                one, other, column = given
                return _welch(self.measured.seeds(one, column), self.measured.seeds(other, column))
            if name == "abs":
                (value,) = given
                return np.ma.abs(value)
            if name in _FUNCTIONS:
                (value,) = given
                return _FUNCTIONS[name](_some(value))
        except KeyError as error:
            raise _wrong(self.test, f"names {error.args[0]!r}, which the entry does not have") from None
        except (TypeError, ValueError):
            raise _wrong(self.test, f"gives {name} what it does not take") from None
        raise _wrong(self.test, f"calls {name}, which is not one of its functions")


def _require_known(value: Value) -> Value:
    if value is np.ma.masked or (isinstance(value, np.ma.MaskedArray) and not value.count()):
        raise ValuesMissing
    return value.item() if isinstance(value, np.ma.MaskedArray) and not value.ndim else value


def _some(value: Value) -> NDArray[Any]:
    """Return the known values of a column, in order."""
    known = np.ma.atleast_1d(value).compressed()
    if not len(known):
        raise ValuesMissing
    return np.asarray(known)


def _welch(one: Sequence[float], other: Sequence[float]) -> float:
    if len(one) < 2 or len(other) < 2:
        raise ValuesMissing
    deviations = _deviation(one), _deviation(other)
    if not any(deviations):
        raise ValuesMissing
    sizes, means = (len(one), len(other)), (np.mean(one), np.mean(other))
    found = stats.ttest_ind_from_stats(
        means[0], deviations[0], sizes[0], means[1], deviations[1], sizes[1], equal_var=False
    )
    return float(found.pvalue)


def _deviation(values: Sequence[float]) -> float:
    """Return the standard deviation, 0 if values differ only by rounding, since counted ticks would seem exact
    otherwise."""
    if np.ptp(values) <= ROUNDING * np.max(np.abs(values)):
        return 0.0
    return float(np.std(values, ddof=1))


def _each_with_next(values: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    if len(values) < 2:
        raise ValuesMissing
    return values[:-1], values[1:]


_FUNCTIONS: Mapping[str, Callable[[NDArray[Any]], Value]] = {
    "spread": lambda values: float(values.max() - values.min()),
    "min": lambda values: float(values.min()),
    "max": lambda values: float(values.max()),
    "mean": lambda values: float(values.mean()),
    "sum": lambda values: float(values.sum()),
    "rises": lambda values: bool(_OPERATORS[ast.Lt](*_each_with_next(values)).all()),
    "falls": lambda values: bool(_OPERATORS[ast.Gt](*_each_with_next(values)).all()),
    "all": lambda values: bool(values.all()),
    "any": lambda values: bool(values.any()),
    "count": lambda values: int(values.sum()),
}
