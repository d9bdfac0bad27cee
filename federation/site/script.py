"""Scripts: which steps a coordinator may order, in which order, and how often.

A script is a regular expression over the names of steps. A site derives it from the agreed terms alone. After each
order, the site replaces its script by the derivative for that step, the script of all orders that may follow (J. A.
Brzozowski, Journal of the ACM 11, 1964). It refuses any other order before it computes anything.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


class Script(ABC):
    """A regular expression over steps. Scripts are immutable.

    Attributes
    ----------
    nullable : bool
        Whether the script may end here.
    steps : frozenset of str
        All steps that the script names.
    """

    nullable: bool
    steps: frozenset[str]

    @abstractmethod
    def after(self, step: str) -> Scripts:
        """Return the possible scripts after an order of the step; none if it may not be ordered now."""

    def anew(self) -> Scripts:
        """Return the script that remains if an open stage starts again, for each open stage."""
        return ()

    def grow(self) -> Script:
        """Return the script with the additional rounds that a change of membership allows."""
        return self

    @property
    @abstractmethod
    def counts(self) -> dict[str, Count]:
        """The numbers of orders of each step without changes of membership, in the order of the script."""


Scripts = tuple[Script, ...]


@dataclass(frozen=True, slots=True)
class Count:
    """A range of numbers of orders.

    Parameters
    ----------
    least : int
        Minimum number.
    most : int or None
        Maximum number; None if there is no limit.
    """

    least: int
    most: int | None

    def __add__(self, other: Count) -> Count:
        most = None if self.most is None or other.most is None else self.most + other.most
        return Count(self.least + other.least, most)

    def times(self, other: Count) -> Count:
        """Return the range of the total, if this many orders come `other` times."""
        bounded = self.most is not None and other.most is not None
        return Count(self.least * other.least, (self.most or 0) * (other.most or 0) if bounded else None)


@dataclass(frozen=True, slots=True)
class _End(Script):
    @property
    def nullable(self) -> bool:  # type: ignore[override]
        return True

    @property
    def steps(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset()

    @property
    def counts(self) -> dict[str, Count]:
        return {}

    def after(self, step: str) -> Scripts:
        return ()


END = _End()
"""The empty script: no further order."""


@dataclass(frozen=True, slots=True)
class _SingleStep(Script):
    step: str

    @property
    def nullable(self) -> bool:  # type: ignore[override]
        return False

    @property
    def steps(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset((self.step,))

    @property
    def counts(self) -> dict[str, Count]:
        return {self.step: Count(1, 1)}

    def after(self, step: str) -> Scripts:
        return (END,) if step == self.step else ()


@dataclass(frozen=True, slots=True)
class _Sequence(Script):
    first: Script
    second: Script

    @property
    def nullable(self) -> bool:  # type: ignore[override]
        return self.first.nullable and self.second.nullable

    @property
    def steps(self) -> frozenset[str]:  # type: ignore[override]
        return self.first.steps | self.second.steps

    @property
    def counts(self) -> dict[str, Count]:
        first, second = self.first.counts, self.second.counts
        return {step: first.get(step, _NEVER) + second.get(step, _NEVER) for step in [*first, *second]}

    def after(self, step: str) -> Scripts:
        left = tuple(_then(each, self.second) for each in self.first.after(step))
        return distinct((*left, *self.second.after(step))) if self.first.nullable else left

    def anew(self) -> Scripts:
        return tuple(_then(each, self.second) for each in self.first.anew())

    def grow(self) -> Script:
        return _Sequence(self.first.grow(), self.second.grow())


@dataclass(frozen=True, slots=True)
class _Alternatives(Script):
    choices: Scripts

    @property
    def nullable(self) -> bool:  # type: ignore[override]
        return any(each.nullable for each in self.choices)

    @property
    def steps(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset[str]().union(*(each.steps for each in self.choices))

    @property
    def counts(self) -> dict[str, Count]:
        each = [choice.counts for choice in self.choices]
        steps = [step for found in each for step in found]
        return {step: _widest([found.get(step, _NEVER) for found in each]) for step in steps}

    def after(self, step: str) -> Scripts:
        return distinct(left for each in self.choices for left in each.after(step))


@dataclass(frozen=True, slots=True)
class _AnyOrder(Script):
    """Some steps in any order, each any number of times."""

    steps: frozenset[str]

    @property
    def nullable(self) -> bool:  # type: ignore[override]
        return True

    @property
    def counts(self) -> dict[str, Count]:
        return dict.fromkeys(sorted(self.steps), Count(0, None))

    def after(self, step: str) -> Scripts:
        return (self,) if step in self.steps else ()


@dataclass(frozen=True, slots=True)
class _Repeat(Script):
    body: Script
    least: int
    most: int | None
    per_change: int

    @property
    def nullable(self) -> bool:  # type: ignore[override]
        return self.least == 0 or self.body.nullable

    @property
    def steps(self) -> frozenset[str]:  # type: ignore[override]
        return self.body.steps

    @property
    def counts(self) -> dict[str, Count]:
        times = Count(self.least, self.most)
        return {step: count.times(times) for step, count in self.body.counts.items()}

    def after(self, step: str) -> Scripts:
        if self.most == 0:
            return ()
        most = None if self.most is None else self.most - 1
        rest = _Repeat(self.body, max(0, self.least - 1), most, self.per_change)
        return tuple(_then(each, rest) for each in self.body.after(step))

    def grow(self) -> Script:
        if self.most is None or not self.per_change:
            return self
        return _Repeat(self.body, self.least, self.most + self.per_change, self.per_change)


@dataclass(frozen=True, slots=True)
class _Stage(Script):
    """A script that may start again. rest: the remaining script once the body has begun, otherwise None."""

    body: Script
    rest: Script | None = None

    @property
    def nullable(self) -> bool:  # type: ignore[override]
        return (self.rest or self.body).nullable

    @property
    def steps(self) -> frozenset[str]:  # type: ignore[override]
        return self.body.steps

    @property
    def counts(self) -> dict[str, Count]:
        return (self.rest or self.body).counts

    def after(self, step: str) -> Scripts:
        return tuple(_Stage(self.body, left) for left in (self.rest or self.body).after(step))

    def anew(self) -> Scripts:
        if self.rest is None:
            return ()
        return (*(_Stage(self.body, inner) for inner in self.rest.anew()), _Stage(self.body))

    def grow(self) -> Script:
        return self if self.rest is None else _Stage(self.body, self.rest.grow())


_NEVER = Count(0, 0)


def _widest(counts: Sequence[Count]) -> Count:
    """Return the range that covers all of some ranges."""
    most = [count.most for count in counts]
    bounded = [each for each in most if each is not None]
    return Count(min(count.least for count in counts), max(bounded) if len(bounded) == len(most) else None)


def _then(first: Script, second: Script) -> Script:
    return second if first is END else first if second is END else _Sequence(first, second)


def distinct(scripts: Iterable[Script]) -> Scripts:
    """Return each script once. A list is enough: there are few, and most are the same objects."""
    found: list[Script] = []
    for script in scripts:
        if script not in found:
            found.append(script)
    return tuple(found)


def once(step: str) -> Script:
    """Return the script of one step."""
    return _SingleStep(step)


def seq(*scripts: Script | str) -> Script:
    """Return a script of several scripts or steps, one after the other."""
    whole: Script = END
    for each in reversed(scripts):
        whole = _then(_script(each), whole)
    return whole


def either(*scripts: Script | str) -> Script:
    """Return a script that is any one of several scripts or steps."""
    return _Alternatives(tuple(_script(each) for each in scripts))


def maybe(*scripts: Script | str) -> Script:
    """Return a script of several scripts or steps, one after the other, all of which may be skipped together."""
    return either(seq(*scripts), END)


def repeat(script: Script | str, least: int = 0, most: int | None = None, *, per_change: int = 0) -> Script:
    """Return a script that repeats a script or step.

    Parameters
    ----------
    script : Script or str
    least : int, default 0
        Minimum number of repetitions.
    most : int, optional
        Maximum number of repetitions; unlimited by default.
    per_change : int, default 0
        The number of further repetitions that each change of membership allows.
    """
    return _Repeat(_script(script), least, most, per_change)


def stage(*scripts: Script | str) -> Script:
    """Return a script of several scripts or steps, which starts again from the first when sites leave or join."""
    return _Stage(seq(*scripts))


def any_order(steps: Iterable[str]) -> Script:
    """Return a script of these steps in any order, each any number of times."""
    return _AnyOrder(frozenset(steps))


def _script(script: Script | str) -> Script:
    return once(script) if isinstance(script, str) else script
