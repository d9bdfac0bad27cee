"""Scripts: which steps a coordinator may order, in which order, and how often.

A script is a regular expression over the names of steps. A site derives it from the agreed terms alone, and keeps the
script of the orders that may follow: each order that it carries out leaves a derivative of the script (J. A.
Brzozowski, Journal of the ACM 11, 1964). It refuses any other order before it computes anything.

After changes of the membership a coordinator orders steps again, which a script alone does not allow:

- A site that left or joined makes a stage start again (`Federation.until_stable`). A stage stays open until an order
  that comes after it arrives, since a site may have finished it when another drops in its last round.
- A round can fail at other sites, so the last order may come again unchanged.
- Each change of membership allows some more rounds, where the script says so.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fedsvm.federation.errors import OrderRefused

MAX_REPEATS = 10
"""Maximum number of times that an unchanged order may be repeated while the same sites take part."""


class Script(ABC):
    """The orders that a site accepts. Scripts are immutable.

    Attributes
    ----------
    nullable : bool
        True if the script may end here.
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
        """Return the script with the rounds that a change of membership allows in addition."""
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
    most : int or None
        None if there is no limit.
    """

    least: int
    most: int | None

    def __add__(self, other: Count) -> Count:
        most = None if self.most is None or other.most is None else self.most + other.most
        return Count(self.least + other.least, most)

    def times(self, other: Count) -> Count:
        """Return the range of a number of orders that comes several times."""
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
"""The script of nothing."""


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
        return _distinct((*left, *self.second.after(step))) if self.first.nullable else left

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
        return _distinct(left for each in self.choices for left in each.after(step))


@dataclass(frozen=True, slots=True)
class _AnyOrder(Script):
    """Any of some steps, in any order and as often as ordered."""

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
    """rest: the remaining script of the body once it was begun."""

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


def _distinct(scripts: Iterable[Script]) -> Scripts:
    """Return each script once. There are few of them, and mostly the same objects."""
    found: list[Script] = []
    for script in scripts:
        if script not in found:
            found.append(script)
    return tuple(found)


def once(step: str) -> Script:
    """Return the script of one step."""
    return _SingleStep(step)


def seq(*scripts: Script | str) -> Script:
    """Return the script of some scripts, or steps, one after the other."""
    whole: Script = END
    for each in reversed(scripts):
        whole = _then(_script(each), whole)
    return whole


def either(*scripts: Script | str) -> Script:
    """Return the script of one of some scripts, or steps."""
    return _Alternatives(tuple(_script(each) for each in scripts))


def maybe(*scripts: Script | str) -> Script:
    """Return the script of some scripts, or steps, one after the other, or of nothing."""
    return either(seq(*scripts), END)


def repeat(script: Script | str, least: int = 0, most: int | None = None, *, per_change: int = 0) -> Script:
    """Return the script of a script, or step, several times.

    Parameters
    ----------
    script : Script or str
    least : int, default 0
    most : int, optional
        Without it there is no limit.
    per_change : int, default 0
        How many more each change of membership allows.
    """
    return _Repeat(_script(script), least, most, per_change)


def stage(*scripts: Script | str) -> Script:
    """Return the script of some scripts, or steps, which start again from the first when sites leave or join."""
    return _Stage(seq(*scripts))


def any_order(steps: Iterable[str]) -> Script:
    """Return the script of some steps in any order, as often as ordered."""
    return _AnyOrder(frozenset(steps))


def _script(script: Script | str) -> Script:
    return once(script) if isinstance(script, str) else script


# Where a site is.


class ScriptPosition:
    """The place of a site in its script.

    An example, of `seq(stage("count", "scale"), repeat("newton", 1, 3))` at a site of a run with the sites x, y and z:

        order    sites    accepted as                                  may follow
        -------  -------  -------------------------------------------  -------------------------------------
        count    x, y, z  the first step                               scale; count unchanged
        scale    x, y, z  the next step                                newton; scale unchanged
        count    x, y     the stage, which starts again: z left        scale; count unchanged
        scale    x, y     the next step                                newton; scale unchanged
        newton   x, y     the next step                                newton, twice; newton unchanged
        newton   x, y     the last order, repeated unchanged; as the   newton, once or twice, since only the
                          script has newton again, also the next step  coordinator knows which it was
        scale    x, y     refused: nothing changed since the stage     the same as before

    Parameters
    ----------
    script : Script
        That of the whole run.
    max_repeats : int, optional
        How often steps may come again over other members once a sum of this site was opened; without it as often as the
        script allows.
    """

    def __init__(self, script: Script, max_repeats: int | None = None) -> None:
        self._max_repeats = max_repeats
        self._over_others = 0
        self._has_opened = self._last_opened = False
        self._may: Scripts = (script,)  # what may follow the last order
        self._before: Scripts = ()  # what could follow the order before it
        self._last: tuple[str, bytes] = ("", b"")  # its step, and the digest of all else that it said
        self._members: tuple[str, ...] = ()  # the sites that took part in it
        self._changed = False  # whether sites left or joined since
        self._restarts: Scripts = ()  # the stages that the last change still lets start again
        self._repeats = 0  # how often it was repeated unchanged
        self._round = 0
        self._missed: list[str] = []  # steps that this site missed, and may receive alone

    def admit(self, step: str, told: bytes, members: tuple[str, ...], round_number: int) -> None:
        """Move on by an order of a round, or stay if it is the last one unchanged.

        Parameters
        ----------
        step : str
        told : bytes
            A digest of the rest of the order.
        members : tuple of str
            The sites that take part.
        round_number : int

        Raises
        ------
        OrderRefused
            The order may not come now. The place is unchanged.
        """
        changed = self._changed or (bool(self._members) and self._members != members)
        is_repeated = (step, told) == self._last and (changed or self._repeats < MAX_REPEATS)
        last, now, anew = self._before, self._may, self._restarts
        if changed:
            last, now, anew = _grow(last), _grow(now), _grow(self._started_again())
        has_opened = self._last_opened if is_repeated else self._has_opened
        is_over_others = changed and has_opened and (is_repeated or not _after(now, step))
        if is_over_others and self._over_others == self._max_repeats:
            raise OrderRefused(
                f"by this site's policy steps are repeated over other sites {self._max_repeats} times at most "
                f"(max_repeats); step {step!r} would be repeated once more"
            )
        before = _distinct((*now, *anew))
        may = _after(before, step)
        if is_repeated:  # or, if the script has the step twice in a row, its second time
            before, may = _distinct((*before, *last)), _distinct((*may, *now))
        if not may:
            raise OrderRefused(self._reason(step))
        self._over_others += is_over_others
        self._last_opened = False
        self._repeats = self._repeats + 1 if is_repeated and not changed else 0
        self._before, self._may, self._last = before, may, (step, told)
        self._members, self._changed, self._round = members, False, round_number
        self._restarts = self._left_to_restart(anew, step)
        self._missed.clear()

    def note_opened(self) -> None:
        """Record that the coordinator may have opened this site's contribution to the last round."""
        self._has_opened = self._last_opened = True

    def note_change(self) -> None:
        """Record that sites left or joined since the last order."""
        self._changed = True

    def miss(self, rounds: Sequence[int], steps: Sequence[str]) -> None:
        """Move on by the orders of rounds that this site missed.

        Rounds up to the last one in which the site received an order are ignored.

        Parameters
        ----------
        rounds, steps : sequence of int, sequence of str
            All rounds that are complete, in their order, and their steps.

        Raises
        ------
        OrderRefused
            The script does not allow these orders. The place is unchanged.
        """
        before, may, last, missed = self._before, self._may, self._last[0], False
        for number, step in zip(rounds, steps, strict=True):
            if number <= self._round:
                continue
            again = may if step == last and not missed else ()  # the last order of this site may have failed
            started = tuple(begun for each in (*before, *may) for begun in each.anew())
            left = _distinct((*_after(may, step), *again, *_after(started, step)))
            if not left:
                left = _after(_grow(may), step)
            if not left:
                raise OrderRefused(self._reason(step))
            before, may, last, missed = _distinct((*may, *started)), left, step, True
        if missed or not self._round:
            self._before, self._may, self._last, self._repeats = before, may, (last, b""), 0
            self._round = max(self._round, *rounds, 0)
        self._missed = list(steps)
        self._has_opened |= bool(steps)  # by an earlier process of this site
        self._changed = True

    def admit_missed(self, step: str) -> None:
        """Check an order that only this site receives, of a step that it missed; each comes once, in their order.

        Raises
        ------
        OrderRefused
            The site did not miss the step, or it has received a later one already.
        """
        if step not in self._missed:
            raise OrderRefused(f"the site did not miss step {step!r}, and has it in its turn or not at all")
        del self._missed[: self._missed.index(step) + 1]

    def _left_to_restart(self, anew: Scripts, step: str) -> Scripts:
        """Return the stages that the last change lets start again, and that are open and did not start by this step.

        A change in an inner stage can start that stage again first, and the outer one only after some of its rounds.
        """
        if not anew:
            return ()
        still_open = self._started_again()
        return tuple(each for each in anew if each in still_open and not each.after(step))

    def _started_again(self) -> Scripts:
        return _distinct(left for each in (*self._before, *self._may) for left in each.anew())

    def _reason(self, step: str) -> str:
        return f"step {step!r} is out of place: by the agreed terms it may not be ordered now, or not once more"


def _after(scripts: Scripts, step: str) -> Scripts:
    if len(scripts) == 1:
        return scripts[0].after(step)
    return _distinct(left for each in scripts for left in each.after(step))


def _grow(scripts: Scripts) -> Scripts:
    return tuple(each.grow() for each in scripts)
