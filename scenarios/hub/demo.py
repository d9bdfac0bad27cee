"""An example task: three participants hold the columns of the built-in table of cells."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

from fedsvm.scenarios.data import sources
from fedsvm.scenarios.hub import task_form
from fedsvm.scenarios.hub.accounts import UserAccounts
from fedsvm.scenarios.hub.new_task import Invited, NewTask
from fedsvm.scenarios.hub.task_form import TaskForm
from fedsvm.scenarios.hub.tasks import Tasks

CREATOR = "you@example.org"
_SOURCE, _LABEL = "wdbc", "label"
_SITES = ("clinic", "north", "south")


def prepare(tasks: Tasks, accounts: UserAccounts, folder: Path) -> str:
    """Make a task, unless there is one; write what each participant has into files. The creator's path to sign in."""
    if not tasks.of(CREATOR):
        _write(folder)
        wish = TaskForm(
            task_form.default(), {"kernel": "linear", "C": "1.0"}, _LABEL, "malignant", "benign", label_site=_SITES[0]
        )
        invited = [Invited(site, f"{site}@example.org") for site in _SITES]
        said = "Three laboratories measured the same cells. Which are malignant?"
        tasks.create(CREATOR, NewTask("Malignant or benign", said, wish, invited, len(_SITES), 14, 7))
    return accounts.sign_in_path(CREATOR)


def _write(folder: Path) -> None:
    """Write one file per participant, with a third of the columns; the first has the labels too."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    columns = sources.read(_SOURCE, Path()).columns
    features = [name for name in columns if name != _LABEL]
    for place, (site, part) in enumerate(zip(_SITES, np.array_split(np.array(features), len(_SITES)), strict=True)):
        held = [*map(str, part), *([_LABEL] if place == 0 else [])]
        with (folder / f"{site}.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(held)
            writer.writerows(zip(*(columns[name].tolist() for name in held), strict=True))
