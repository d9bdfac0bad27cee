"""The position of a site in its script: which orders it accepts next.

After changes of the membership a coordinator orders steps again, which a script alone does not allow:

- When a site leaves or joins, a stage starts again (`Federation.until_stable`). A stage stays open until a later order
  arrives, since a site may have finished it when another drops in its last round.
- A round can fail at other sites, so the last order may come again unchanged.
- Each change of membership allows some more rounds, where the script says so.
"""

from __future__ import annotations

from collections.abc import Sequence

from fedsvm.federation.errors import OrderRefused
from fedsvm.federation.site.script import Script, Scripts, distinct

MAX_REPEATS = 10
"""Maximum number of times that an unchanged order may be repeated while the same sites take part."""


class ScriptPosition:
    """The position of a site in its script.

    An example: `seq(stage("count", "scale"), repeat("newton", 1, 3))` at a site of a run with the sites x, y and z:

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
        The script of the whole run.
    max_repeats : int, optional
        Maximum number of times that steps may be repeated over other members once a sum of this site was opened. By
        default the script alone limits them.
    """

    def __init__(self, script: Script, max_repeats: int | None = None) -> None:
        self._max_repeats = max_repeats
        self._repeats_over_others = 0
        self._has_opened = self._last_opened = False
        self._may: Scripts = (script,)  # what may follow the last order
        self._before: Scripts = ()  # what could follow the order before it
        self._last: tuple[str, bytes] = ("", b"")  # its step, and the digest of its content
        self._members: tuple[str, ...] = ()  # the sites that took part in it
        self._changed = False  # whether sites left or joined since
        self._restarts: Scripts = ()  # the stages that the last change still lets start again
        self._repeats = 0  # how often it was repeated unchanged
        self._round = 0
        self._missed: list[str] = []  # steps that this site missed, and may receive alone

    def admit(self, step: str, content: bytes, members: tuple[str, ...], round_number: int) -> None:
        """Move on by an order of a round, or stay if it is the last one unchanged.

        Parameters
        ----------
        step : str
        content : bytes
            A digest of the order's content.
        members : tuple of str
            The sites that take part.
        round_number : int

        Raises
        ------
        OrderRefused
            The order may not come now. The position is unchanged.
        """
        changed = self._changed or (bool(self._members) and self._members != members)
        is_repeated = (step, content) == self._last and (changed or self._repeats < MAX_REPEATS)
        last, now, anew = self._before, self._may, self._restarts
        if changed:
            last, now, anew = _grow(last), _grow(now), _grow(self._started_again())
        has_opened = self._last_opened if is_repeated else self._has_opened
        is_over_others = changed and has_opened and (is_repeated or not _after(now, step))
        if is_over_others and self._repeats_over_others == self._max_repeats:
            raise OrderRefused(
                f"by this site's policy steps may be repeated over other sites at most {self._max_repeats} times "
                f"(max_repeats), and step {step!r} would be repeated once more; start a new run, or raise max_repeats "
                "there"
            )
        before = distinct((*now, *anew))
        may = _after(before, step)
        if is_repeated:  # or the script has the step twice in a row, and this is the second time
            before, may = distinct((*before, *last)), distinct((*may, *now))
        if not may:
            raise OrderRefused(self._reason(step))
        self._repeats_over_others += is_over_others
        self._last_opened &= is_repeated  # an opened value stays open if the order comes again
        self._repeats = self._repeats + 1 if is_repeated and not changed else 0
        self._before, self._may, self._last = before, may, (step, content)
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
            The script does not allow these orders. The position is unchanged.
        """
        before, may, last, missed = self._before, self._may, self._last[0], False
        for number, step in zip(rounds, steps, strict=True):
            if number <= self._round:
                continue
            again = may if step == last and not missed else ()  # the last order of this site may have failed
            started = tuple(begun for each in (*before, *may) for begun in each.anew())
            left = distinct((*_after(may, step), *again, *_after(started, step)))
            if not left:
                left = _after(_grow(may), step)
            if not left:
                raise OrderRefused(self._reason(step))
            before, may, last, missed = distinct((*may, *started)), left, step, True
        if missed or not self._round:
            self._before, self._may, self._last, self._repeats = before, may, (last, b""), 0
            self._round = max(self._round, *rounds, 0)
        self._missed = list(steps)
        self._has_opened |= bool(steps)  # by an earlier process of this site
        self._changed = True

    def admit_missed(self, step: str) -> None:
        """Check an order that only this site receives, for a step that it missed. Each comes once, in their order.

        Raises
        ------
        OrderRefused
            The site did not miss the step, or it has received a later one already.
        """
        if step not in self._missed:
            raise OrderRefused(f"the site did not miss step {step!r}, so it may not be ordered of this site alone")
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
        return distinct(left for each in (*self._before, *self._may) for left in each.anew())

    def _reason(self, step: str) -> str:
        return f"step {step!r} is out of place: the agreed terms do not allow it now, or not again"


def _after(scripts: Scripts, step: str) -> Scripts:
    if len(scripts) == 1:
        return scripts[0].after(step)
    return distinct(left for each in scripts for left in each.after(step))


def _grow(scripts: Scripts) -> Scripts:
    return tuple(each.grow() for each in scripts)
