"""The description of a new task by its creator, and what can be wrong with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fedsvm.scenarios.hub import task_form
from fedsvm.scenarios.hub.roles import CREATOR, EVERYBODY
from fedsvm.scenarios.hub.task_form import TaskForm
from fedsvm.scenarios.schema.federation import require_name

MOST_DAYS = 365
_MAX_TITLE, _MAX_DESCRIPTION = 120, 5000


@dataclass(frozen=True)
class Invited:
    """Somebody who is to be invited: a name for the site, and an address."""

    site: str
    email: str


@dataclass(frozen=True)
class NewTask:
    """The description of a task by its creator.

    Parameters
    ----------
    title, description : str
    wish : TaskForm
    invited : sequence of Invited
    min_sites : int
        With fewer it is not begun.
    join_days : float
        How long participants have to join.
    patience_days : float
        How long a participant has, whenever it is its turn.
    end_days : float, optional
        How long the task may take. It ends then, whatever is missing. None is without an end.
    results_to : {"participants", "creator"}
        The users who see results and model, besides administrators. "participants" includes the creator.
    """

    title: str
    description: str
    wish: TaskForm
    invited: Sequence[Invited]
    min_sites: int
    join_days: float
    patience_days: float
    end_days: float | None = None
    results_to: str = EVERYBODY


def problems_of(new: NewTask) -> list[str]:
    """Return what is wrong with a task, in sentences."""
    problems = _title_problems(new.title)
    if len(new.description) > _MAX_DESCRIPTION:
        problems.append(f"Description: must have at most {_MAX_DESCRIPTION} characters.")
    least, most = task_form.MIN_PARTICIPANTS, task_form.MAX_PARTICIPANTS
    if not least <= len(new.invited) <= most:
        problems.append(f"Participants: must be {least} to {most}, one per line, got {len(new.invited)}.")
    for each in new.invited:
        try:
            require_name(each.site)
        except ValueError as error:
            problems.append(f"Participants: the site name {each.site[:40]!r} {error}.")
    for what in ("site", "email"):
        said = [getattr(each, what) for each in new.invited]
        if twice := next((each for each in said if said.count(each) > 1), None):
            problems.append(
                f"Participants: {twice} is listed twice; list each {'site' if what == 'site' else 'address'} once."
            )
    if not least <= new.min_sites <= max(least, len(new.invited)):
        problems.append(f"Minimum participants: must be {least} to {len(new.invited)}, got {new.min_sites}.")
    spans = {"to join": new.join_days, "per turn": new.patience_days}
    spans |= {} if new.end_days is None else {"in all": new.end_days}
    for name, days in spans.items():
        if not 0 < days <= MOST_DAYS:
            problems.append(f"Days {name}: must be above 0 and at most {MOST_DAYS}, got {days:g}.")
    if new.end_days is not None and new.end_days < new.join_days:
        problems.append(f"Days in all: must be at least the days to join ({new.join_days:g}), got {new.end_days:g}.")
    if new.results_to not in (EVERYBODY, CREATOR):
        problems.append(f"Results: must be for {EVERYBODY} or the {CREATOR}, got {new.results_to[:40]!r}.")
    return problems


def _title_problems(title: str) -> list[str]:
    if not 0 < len(title.strip()) <= _MAX_TITLE:
        return [f"Title: must have 1 to {_MAX_TITLE} characters."]
    if unprintable := next((letter for letter in title if not letter.isprintable()), None):
        return [f"Title: must have printable characters only, got {unprintable!r}; remove it."]
    return []
