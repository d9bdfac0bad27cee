"""Entries that were chosen: listed, or run and judged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedsvm.scenarios.console import complain, errors, out
from fedsvm.scenarios.data import sources
from fedsvm.scenarios.data.downloads import origin
from fedsvm.scenarios.figures import TimeLeft
from fedsvm.scenarios.reproduction import judgment, page, plan
from fedsvm.scenarios.reproduction.entries import FOLDER, Entry, Paper, entries, select_ids
from fedsvm.scenarios.reproduction.judgment import JudgedEntry
from fedsvm.scenarios.reproduction.page import WORDS, Reproduction
from fedsvm.scenarios.reproduction.provenance import InputDigests


@dataclass(frozen=True)
class EntrySelection:
    """Entries to run and judge, in a folder; the page has all others too, as far as their runs are there."""

    ids: Sequence[str]
    known: Mapping[str, tuple[Paper, Entry]]
    folder: Path
    full: bool

    @classmethod
    def of(cls, ids: list[str], folder: Path, *, full: bool, papers: Path = FOLDER) -> EntrySelection:
        """Return the choice for some ids. Raises ScenarioError for an unknown id."""
        known = entries(papers)
        return cls(select_ids(ids, list(known)), known, folder, full)

    def table(self) -> list[tuple[str, ...]]:
        """Return a line for each entry: id, where it is printed, what it shows, and its runs, or why it has none."""
        head = ("id", "where", "what it shows", "runs", "")
        return [head, *(self._line(*self.known[each]) for each in self.ids)]

    def _line(self, paper: Paper, entry: Entry) -> tuple[str, ...]:
        where = f"{paper.name}, {entry.what}{f', {entry.page}' if entry.page else ''}"
        if entry.cannot:
            return entry.id, where, entry.title, "", f"cannot: {entry.cannot}"
        if entry.draws:
            return entry.id, where, entry.title, "", f"draws {', '.join(entry.draws)}"
        cells = plan.cells(entry, full=self.full)
        missing = sorted({cell.missing for cell in cells if cell.missing})
        lacking = [f"lacks {', '.join(missing)}"] if missing else []
        lacking += [f"{row.name}: {row.cannot}" for row in entry.rows if row.cannot]
        return entry.id, where, entry.title, str(len(plan.needed_runs(cells))), "; ".join(lacking)

    def reproduce(self, jobs: int) -> bool:
        """Carry out the runs that are missing, write the page and say what came of it.

        A line for each run goes to standard error.

        Parameters
        ----------
        jobs : int
            How many run at a time.

        Returns
        -------
        bool
            True if anything is worse than the papers' files say, or if nothing of an entry could be measured here.

        Raises
        ------
        ScenarioError
            For a scenario that is wrong, a folder that cannot be had, and data files that are not those that its runs
            have read.
        """
        cells = [cell for each in self._with_drawn() for cell in plan.cells(self.known[each][1], full=self.full)]
        sources.check_folder()
        with plan.alone_in(self.folder):
            self._name_other_mode()
            return self._conclude(self._carry_out(plan.needed_runs(cells), jobs))

    def _with_drawn(self) -> list[str]:
        """Return the chosen entries, and the tables that they plot."""
        return list(dict.fromkeys(name for each in self.ids for name in (each, *self.known[each][1].draws)))

    def _name_other_mode(self) -> None:
        if page.is_of_full(self.folder) not in (None, self.full):
            mode, other = ("--full", "--quick") if self.full else ("--quick", "--full")
            told = f"the page there is of {other}, whose runs stay; it is written anew of {mode}"
            errors.print(f"note {told}", soft_wrap=True)

    def _carry_out(self, runs: Sequence[plan.PlannedRun], jobs: int) -> dict[str, str]:
        waiting = [run for run in runs if not plan.is_done(run, self.folder)]
        files = [path for run in runs for path in run.files]
        made_with = InputDigests.of(self.folder).extend(self.folder, files, runs=bool(waiting))
        if made_with.is_of_other_code:
            told = "runs that are there may have been made by another state of the code"
            errors.print(f"note {told}; name another folder to measure this one alone", soft_wrap=True)
        errors.print(f"{len(runs)} runs, {len(runs) - len(waiting)} of them done before", highlight=False)
        left = TimeLeft(len(waiting))

        def tell(run: plan.PlannedRun, failure: str) -> None:
            word = f"failed: {failure}" if failure else "done"
            ahead = left.after_one()
            said = f"{left.done} of {left.total} {run.name} {word}{ahead}"
            errors.print(said, highlight=False, soft_wrap=True, markup=False)

        return plan.carry_out(waiting, self.folder, jobs, tell)

    def _conclude(self, failures: Mapping[str, str]) -> bool:
        judged = {
            name: judgment.judge(paper, entry, self.folder, full=self.full, failures=failures)
            for name, (paper, entry) in self.known.items()
        }
        own = [judged[each] for each in self._with_drawn()]
        for each in own:
            if each.shows:
                continue
            counts = ", ".join(f"{number} {WORDS[verdict][1]}" for verdict, number in judgment.count_verdicts([each]))
            out.print(f"{each.entry.id}: {counts}", highlight=False, soft_wrap=True)
        self._name_missing(own)
        for name, ours in (("the papers", False), ("this project", True)):
            verdicts = judgment.counted_apart(own, ours=ours)
            if counts := ", ".join(f"{number} {WORDS[verdict][1]}" for verdict, number in verdicts):
                out.print(f"{name}: {counts}", highlight=False, soft_wrap=True)
        out.print(str(Reproduction(list(judged.values()), self.full, self.folder).write()), soft_wrap=True)
        surprises = [each for each in own if each.surprises]
        if surprises:
            names = ", ".join(each.entry.id for each in surprises)
            complain(f"Worse than expected in the papers' files: {names}; the page says where and by how much.")
        impossible = [
            each.entry.id
            for each in own
            if set(each.counts) == {"cannot"} and any(cell.cell.missing for cell in each.cells)
        ]
        if impossible:
            complain(f"Nothing could be measured here of {', '.join(impossible)}; the page gives the reasons.")
        return bool(surprises or impossible)

    def _name_missing(self, judged: Sequence[JudgedEntry]) -> None:
        cells = (cell for each in judged for cell in each.cells if cell.verdict == "cannot")
        missing = sorted({cell.cell.missing for cell in cells if cell.cell.missing})
        if missing:
            errors.print("note these files are not in the folder of FEDSVM_DATA:")
            for name in missing:
                errors.print(f"  {name}.csv: {origin(name) or 'its origin is not known'}", soft_wrap=True, markup=False)
