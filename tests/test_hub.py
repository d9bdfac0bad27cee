"""The task service: a hub in its own process, people who read pages, and participants who never meet."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from algorithms.optimisation import libsvm
from scenarios.data import splits
from tests import hub as hubs
from tests.conftest import wait_until
from tests.hub import CREATOR, SITES, Person, RunningHub, cells, create, join, link_of

pytestmark = [pytest.mark.timeout(600)]
VISITS = 11
"""Of each participant: two for a sum, one for whatever else all do, see docs/task-service.md."""


@dataclass
class Finished:
    """A task that three participants finished without ever meeting."""

    running: RunningHub
    number: str
    person: Person
    folder: Path
    spans: list[tuple[str, float, float]] = field(default_factory=list)
    said: list[str] = field(default_factory=list)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Finished]:
    folder = tmp_path_factory.mktemp("hub")
    files, _, _ = cells(folder)
    with hubs.hub(folder) as running:
        anna = running.signed_in(CREATOR)
        done = Finished(running, create(running, anna), anna, folder)
        links = {site: link_of(running, site) for site in SITES}
        for _ in range(2 * VISITS):
            for site in SITES:
                began = time.time()
                ended = join(folder, links[site], files[site], "--folder", f"visits-{site}")
                done.spans.append((site, began, time.time()))
                done.said.append(ended.stderr)
                assert ended.returncode == 0, ended.stderr
            if all("is over" in said for said in done.said[-3:]):
                break
        yield done


@pytest.mark.long
def test_three_who_never_meet_train_the_pooled_model(finished: Finished) -> None:
    folder = finished.folder
    assert all(before[2] <= after[1] for before, after in zip(finished.spans, finished.spans[1:], strict=False))
    wait_until(lambda: "completed" in finished.person.get(f"/tasks/{finished.number}")[1], 30)
    _, table, labels = cells(folder)
    training, _ = splits.blind_test_split(len(table), 0.2, 0)
    rows = (table - table[training].mean(axis=0)) / table[training].std(axis=0)
    signs = np.where(labels == "M", 1.0, -1.0)
    exact = libsvm.dual(rows[training] @ rows[training].T, signs[training], 1.0)
    weights = np.concatenate([np.load(folder / f"visits-{site}" / "model.npz")["weights"] for site in SITES])
    with np.load(folder / "hub" / "tasks" / finished.number / "model.npz") as model:
        found = rows @ weights + model["b"]
    assert np.abs(found - exact.decision_function(rows @ rows[training].T)).max() < 1e-9


@pytest.mark.long
def test_the_number_of_visits_is_as_documented(finished: Finished) -> None:
    assert len(finished.spans) <= 3 * (VISITS + 2), finished.said


@pytest.mark.long
def test_nothing_is_readable_in_the_database(finished: Finished) -> None:
    content = b"".join(path.read_bytes() for path in (finished.running.folder).glob("hub.sqlite*"))
    _, table, _ = cells(finished.folder)
    assert b"Malignant or not" in content
    for value in table.ravel():
        assert value.tobytes() not in content
        assert repr(float(value)).encode() not in content
    for site in SITES:
        token = link_of(finished.running, site).rpartition("/")[2].partition("#")[0]
        assert token.encode() not in content
