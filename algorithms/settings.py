"""The words that settings are made of: numbers with bounds, and the sentence of each setting.

Settings are fields of plain dataclasses, which site processes may import. Everything that is said of a setting
anywhere (a scenario's key, an estimator's parameter, an error, the documentation) is derived from its field.
"""

from __future__ import annotations

import dataclasses
import inspect
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np
from annotated_types import Ge, Gt, Le, Lt, doc

from fedsvm.federation.transport.wire import MAX_ARRAY_BYTES

__all__ = [
    "Count",
    "Degree",
    "Dimension",
    "Finite",
    "Natural",
    "Portion",
    "Positive",
    "Renamed",
    "Seconds",
    "Setting",
    "Share",
    "ShareOrCount",
    "Tolerance",
    "check_settings",
    "doc",
    "parameters",
    "settings",
    "shorten_value",
]

MAX_MAGNITUDE = 1e12
"""A million times as much, as a sum over rows may be, is still below the 2^62 that fixed-point sums have room for."""

MIN_TOLERANCE = 1e-15
"""Relative differences that are smaller are rounding errors of float64."""

MAX_DIMENSION = math.isqrt(MAX_ARRAY_BYTES // 8)
"""A matrix of float64 with this many rows and columns is the largest that one message carries."""

MAX_DEGREE = 100
"""Of a power: of a number up to a thousand it is still a float64."""

MAX_SECONDS = 100_000.0
"""More than a day. Sockets wait for milliseconds in 31 bits, and sites four times as long as the coordinator."""

MAX_COUNT = 10**9
"""Of what is counted, not held."""

Positive = Annotated[float, Ge(1 / MAX_MAGNITUDE), Le(MAX_MAGNITUDE)]
"""A number above 0 that float64 and fixed-point sums can reckon with."""

HingePenalty = Annotated[
    Positive, doc("Regularization parameter C, as in scikit-learn's SVC: the weight of each row's hinge loss.")
]
"""The setting C of algorithms over sites that hold rows."""

Finite = Annotated[float, Ge(-MAX_MAGNITUDE), Le(MAX_MAGNITUDE)]
"""A number, of either sign or 0, that float64 and fixed-point sums can reckon with."""

Share = Annotated[float, Gt(0), Lt(1)]
"""A number above 0 and below 1."""

Portion = Annotated[float, Ge(0), Lt(1)]
"""A number from 0, below 1."""

Tolerance = Annotated[float, Ge(MIN_TOLERANCE), Lt(1)]
"""A relative difference that float64 can tell from none."""

Count = Annotated[int, Ge(1), Le(MAX_COUNT)]
"""A whole number from 1, of what is counted and not held."""

Dimension = Annotated[int, Ge(1), Le(MAX_DIMENSION)]
"""A whole number from 1, of what arrays have as many entries as."""

Natural = Annotated[int, Ge(0), Le(MAX_DIMENSION)]
"""A whole number from 0, of what arrays have as many entries as."""

Seconds = Annotated[float, Ge(0.001), Le(MAX_SECONDS)]
"""The duration of something, in seconds."""

Degree = Annotated[int, Ge(1), Le(MAX_DEGREE)]
"""The exponent of a power."""

ShareOrCount = Annotated[int, Ge(1), Le(MAX_DIMENSION)] | Annotated[float, Gt(0), Le(1.0)]
"""A count of the rows, as an int from 1, or a share of them, as a float up to 1.0."""


@dataclass(frozen=True)
class Renamed:
    """Former values of a setting and their replacements; use it together with `doc`."""

    values: Mapping[str, str]


_MAX_SHOWN = 100
"""Letters, digits or bits of a value that an error repeats."""

_KINDS = (
    "an int or float, with Ge, Gt, Le or Lt, a bool, a str, a Literal of strings, a dict from str to one of these, or "
    "one of these or None"
)


@dataclass(frozen=True)
class Setting:
    """One setting: its name, what it may be, what it is when nobody says, and what it means in a sentence."""

    name: str
    annotation: Any
    default: Any
    sentence: str

    @property
    def requirement(self) -> str:
        """The allowed values, in words: 'a whole number from 1', '"grid" or "fixed-step"'."""
        *others, last = _alternatives(self.annotation)
        return f"{', '.join(others)} or {last}" if others else last

    def require_sound(self) -> None:
        """Raise TypeError for a kind of value that no setting can have, and for one without a default or a sentence."""
        if unknown := next(_unknown(self.annotation), None):
            raise TypeError(f"the setting {self.name} must be {_KINDS}, got {unknown}")
        if not self.sentence:
            raise TypeError(f"the setting {self.name} must have a description: Annotated[…, doc(…)]")
        if not _fits(self.annotation, self.default):
            raise TypeError(f"the default of the setting {self.name} must be {self.requirement}")

    def check(self, value: Any) -> Any:
        """Return the value as a plain Python value. Raises ValueError, naming the allowed values."""
        plain = value.item() if isinstance(value, np.generic) else value
        if isinstance(plain, Mapping):
            plain = {str(key): each.item() if isinstance(each, np.generic) else each for key, each in plain.items()}
        if not _fits(self.annotation, plain):
            if isinstance(plain, str) and (new := self._renamed_values.get(plain)):
                raise ValueError(f'must be {self.requirement}; "{plain}" is now "{new}"')
            raise ValueError(f"must be {self.requirement}, got {shorten_value(plain)}")
        if isinstance(plain, dict):
            return {name: self._as_float(each) for name, each in plain.items()}
        return self._as_float(plain)

    @property
    def _renamed_values(self) -> Mapping[str, str]:
        notes = get_args(self.annotation)[1:] if get_origin(self.annotation) is Annotated else ()
        return next((note.values for note in notes if isinstance(note, Renamed)), {})

    def _as_float(self, value: Any) -> Any:
        """Return a whole number as float if only floats are allowed, anything else unchanged."""
        is_measure = isinstance(value, int) and not isinstance(value, bool) and not _knows(self.annotation, int)
        return float(value) if is_measure else value


def shorten_value(value: Any) -> str:
    """Return an invalid value as an error repeats it: of a long one the beginning, and its length."""
    if isinstance(value, int) and value.bit_length() > _MAX_SHOWN:
        return f"a number of {int(value.bit_length() * math.log10(2)) + 1} digits"
    written = repr(value[: _MAX_SHOWN + 1] if isinstance(value, str) else value)
    if len(written) <= _MAX_SHOWN + 2:
        return written
    length = f" ({len(value)} letters)" if isinstance(value, str) else ""
    return f"{written[:_MAX_SHOWN]}…{length}"


def settings(kind: type[Any]) -> list[Setting]:
    """Return the settings of a dataclass: its own first, then those of its base classes."""
    hints = get_type_hints(kind, include_extras=True)
    fields = {field.name: field for field in dataclasses.fields(kind)}
    names = dict.fromkeys(name for base in kind.__mro__ for name in inspect.get_annotations(base))
    return [
        Setting(name, hints[name], fields[name].default, _sentence(hints[name])) for name in names if name in fields
    ]


def check_settings(kind: type[Any], source: Any) -> Any:
    """Return settings of a kind from the attributes of an object. Raises ValueError, naming the invalid setting."""
    values = {}
    for setting in settings(kind):
        try:
            values[setting.name] = setting.check(getattr(source, setting.name))
        except ValueError as error:
            raise ValueError(f"{setting.name} {error}") from None
    return kind(**values)


def parameters(make: Callable[..., Any]) -> list[Setting]:
    """Return the settings that the annotated parameters of a function are."""
    hints = get_type_hints(make, include_extras=True)
    return [
        Setting(each.name, hints[each.name], each.default, _sentence(hints[each.name]))
        for each in inspect.signature(make).parameters.values()
    ]


def _sentence(annotation: Any) -> str:
    notes = get_args(annotation)[1:] if get_origin(annotation) is Annotated else ()
    return next((note.documentation for note in notes if isinstance(note, doc)), "")


def _unknown(annotation: Any) -> Iterator[Any]:
    """Yield the parts of an annotation that no setting may have. Bounds belong to numbers."""
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        yield from _unknown(inner[0])
        known = (Ge, Gt, Le, Lt, doc) if inner[0] in (int, float) else (doc, Renamed)
        yield from (each for each in inner[1:] if not isinstance(each, known))
    elif origin in (Union, UnionType):
        for each in inner:
            yield from _unknown(each)
    elif origin is dict and inner[0] is str:
        yield from _unknown(inner[1])
    elif origin is Literal:
        yield from (annotation for word in inner if not isinstance(word, str))
    elif annotation not in (NoneType, bool, str, int, float):
        yield annotation


def _alternatives(annotation: Any) -> list[str]:
    """Return each kind of value that an annotation allows, in words, without None."""
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return [_number(inner[0], _bounds(inner))] if inner[0] in (int, float) else _alternatives(inner[0])
    if origin in (Union, UnionType):
        return [words for each in inner for words in _alternatives(each)]
    if origin is Literal:
        return [f'"{word}"' for word in inner]
    if origin is dict:
        return [f"a table with, for each name, {' or '.join(_alternatives(inner[1]))}"]
    words = {NoneType: [], bool: ["true", "false"], str: ["text"], int: ["a whole number"], float: ["a number"]}
    return words[annotation]


def _number(kind: type, bounds: list[Any]) -> str:
    words, limits = "a whole number" if kind is int else "a number", []
    for bound in bounds:
        match bound:
            case Ge():
                limits.append(f"from {_figure(bound.ge)}")
            case Le():
                limits.append(f"up to {_figure(bound.le)}")
            case Gt() if bound.gt != -math.inf:
                limits.append(f"above {_figure(bound.gt)}")
            case Lt() if bound.lt != math.inf:
                limits.append(f"below {_figure(bound.lt)}")
            case _:
                words = "a finite number"
    if len(limits) == 2 and limits[0].startswith("from ") and limits[1].startswith("up to "):
        limits = [f"{limits[0]} {limits[1].removeprefix('up ')}"]
    return f"{words} {' and '.join(limits)}".strip()


def _figure(bound: Any) -> str:
    """Return a bound in its usual form: 1e12 instead of 1000000000000.0."""
    return str(bound) if isinstance(bound, int) else f"{bound:g}".replace("e+", "e")


def _fits(annotation: Any, value: Any) -> bool:
    """Return whether an annotation allows a value. A bool is no number here."""
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _fits(inner[0], value) and all(_within(bound, value) for bound in _bounds(inner))
    if origin in (Union, UnionType):
        return any(_fits(each, value) for each in inner)
    if origin is Literal:
        return isinstance(value, str) and value in inner
    if origin is dict:
        return isinstance(value, Mapping) and all(_fits(inner[1], each) for each in value.values())
    if isinstance(value, bool):
        return annotation is bool
    return isinstance(value, int | float) if annotation is float else isinstance(value, annotation)


def _within(bound: Any, value: Any) -> bool:
    match bound:
        case Ge():
            return bool(value >= bound.ge)
        case Gt():
            return bool(value > bound.gt)
        case Le():
            return bool(value <= bound.le)
        case _:
            return bool(value < bound.lt)


def _bounds(inner: tuple[Any, ...]) -> list[Any]:
    return [each for each in inner[1:] if isinstance(each, Ge | Gt | Le | Lt)]


def _knows(annotation: Any, kind: type) -> bool:
    """Return whether an annotation allows a kind of value."""
    return annotation is kind or any(_knows(each, kind) for each in get_args(annotation))
