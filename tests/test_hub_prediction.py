"""New records predicted in a task of a hub, by the model of an earlier task over columns."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import numpy as np
import pytest

from fedsvm.algorithms.optimization import libsvm
from fedsvm.scenarios.data import splits
from tests import hub as hubs
from tests.commands import fedsvm
from tests.conftest import wait_until
from tests.hub import CREATOR, SITES, cells, create, join, link_of, watching

pytestmark = [pytest.mark.long, pytest.mark.timeout(400)]


def refuse(folder: Path, link: str, said: str, *options: str) -> None:
    """Check that a visit of the north is refused with this sentence."""
    refused = join(folder, link, folder / "new-north.csv", "--folder", "asked-north", *options)
    assert (refused.returncode, said in refused.stderr) == (3, True), refused.stderr


def test_participants_predict_new_records_that_equal_the_pooled_model(tmp_path: Path) -> None:
    files, table, labels = cells(tmp_path)
    new = np.random.default_rng(11).normal(size=(7, table.shape[1])).round(6)
    with hubs.hub(tmp_path) as running:
        anna = running.signed_in(CREATOR)
        trained = create(running, anna)
        first = {site: link_of(running, site) for site in SITES}
        visits = [watching(tmp_path, first[site], files[site]) for site in SITES]
        assert [visit.wait(200) for visit in visits] == [0, 0, 0]
        wait_until(lambda: "Predict new records" in anna.get(f"/tasks/{trained}")[1], 60)
        bert = running.signed_in("north@example.org")
        status, page = bert.post(f"/tasks/{trained}/predictions", {"form_key": bert.form_key()})
        assert (status, "Only the creator of a task can ask" in page) == (400, True)
        status, page = anna.post(f"/tasks/{trained}/predictions", {"form_key": anna.form_key()})
        found = re.search(r'action="/tasks/(\w+)/cancel"', page)
        assert (status, found is not None) == (200, True), page
        assert "clinic receives decision values" in page
        wait_until(lambda: all(link_of(running, site) != first[site] for site in SITES), 60)
        status, page = anna.get(link_of(running, "north").removeprefix(running.url).partition("#")[0])
        assert (status, "--data mine.csv --predict model.npz" in page) == (200, True), page
        for place, site in enumerate(SITES):
            head = files[site].read_text().partition("\n")[0].removesuffix(",diagnosis")
            rows = [",".join(map(repr, row.tolist())) for row in new[:, 2 * place : 2 * place + 2]]
            (tmp_path / f"new-{site}.csv").write_text("\n".join([head, *rows, ""]))
        refuse(tmp_path, link_of(running, "north"), "add --predict with")
        refuse(tmp_path, link_of(running, "north"), "cannot be read (No such file", "--predict", "missing.npz")
        refuse(tmp_path, link_of(running, "north"), "is not a file of a model", "--predict", "new-north.csv")
        over: dict[str, str] = {}
        for _ in range(14):
            for site in SITES:
                part = tmp_path / f"visits-{site}" / "model.npz"
                kept = ("--predict", str(part), "--folder", f"asked-{site}")
                ended = join(tmp_path, link_of(running, site), tmp_path / f"new-{site}.csv", *kept)
                assert ended.returncode == 0, ended.stderr
                over |= {site: ended.stderr} if "is over" in ended.stderr else {}
            if len(over) == len(SITES):
                break
        assert found
        wait_until(lambda: "completed" in anna.get(f"/tasks/{found[1]}/progress")[1])
        folder = running.folder / "tasks" / trained
    assert "decision values and classes are in" in over["clinic"]
    assert not any((tmp_path / f"asked-{site}" / "predictions.csv").exists() for site in ("north", "south"))
    training, _ = splits.blind_test_split(len(table), 0.2, 0)
    mean, deviation = table[training].mean(axis=0), table[training].std(axis=0)
    rows, asked = (table[training] - mean) / deviation, (new - mean) / deviation
    exact = libsvm.dual(rows @ rows.T, np.where(labels[training] == "M", 1.0, -1.0), 1.0)
    with (tmp_path / "asked-clinic" / "predictions.csv").open() as file:
        answers = list(csv.DictReader(file))
    decisions = exact.decision_function(asked @ rows.T)
    assert np.abs([float(each["decision"]) for each in answers] - decisions).max() < 1e-9
    assert [each["predicted"] for each in answers] == ["M" if value > 0 else "B" for value in decisions]
    alone = fedsvm("predict", str(folder), str(files["north"]), folder=tmp_path)
    assert (alone.returncode, "each site keeps the part for its columns" in alone.stderr) == (2, True), alone.stderr
