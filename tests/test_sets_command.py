"""`fedsvm sets`: site processes compare columns of files; what each party learns, what it costs, what is refused."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fedsvm.algorithms import SITE_MODULE
from fedsvm.federation.errors import FederationError, SiteFailed
from fedsvm.federation.site.partition import Partition
from fedsvm.federation.startup import local_federation
from fedsvm.protocols.common_seed import SHAPE
from fedsvm.protocols.sets import program
from fedsvm.protocols.sums.plain import PLAIN
from fedsvm.protocols.sums.secure_sum import RESIDUE_BYTES
from tests.commands import fedsvm
from tests.conftest import site_processes, workspaces

PATIENTS = {
    "a.csv": ["007", "Ümit", "9", 'Anna, "Nan" B.'],
    "b.csv": ["9", "007", "8", 'Anna, "Nan" B.'],
    "c.csv": ["7", "9", 'Anna, "Nan" B.', "007"],
}


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    """Files of patients, with a weight each."""
    for name, patients in PATIENTS.items():
        quoted = ['"' + patient.replace('"', '""') + '"' for patient in patients]
        lines = [f"{patient},{number - 1.5}" for number, patient in enumerate(quoted)]
        (tmp_path / name).write_text("\n".join(["patient,weight", *lines]) + "\n")
    return list(PATIENTS)


def learnt(path: Path) -> list[str]:
    """The values in a file that a party learnt."""
    return [line.strip('"').replace('""', '"') for line in path.read_text().splitlines()[1:]]


def test_every_site_learns_the_intersection_and_writes_it_for_its_owner(
    files: list[str], tmp_path: Path, temporary_folder: Path
) -> None:
    done = fedsvm("sets", "intersection", *files, "--column", "patient", "--out", "out", folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "3 values of 'patient' are in all 3 files" in done.stdout
    assert "b.csv: learns which 3 of its 4 values all others hold, in out/site-2.csv" in done.stdout
    written = sorted((tmp_path / "out").iterdir())
    assert [path.name for path in written] == ["site-1.csv", "site-2.csv", "site-3.csv"]
    assert {path.stat().st_mode & 0o777 for path in written} == {0o600}
    for path in written:
        assert learnt(path) == ["007", "9", 'Anna, "Nan" B.']
    points = 4 * 12 + 3 * 3  # every set goes to four parties, and what all have to the three sites
    counted, seeds = 8 * 3, 2 * RESIDUE_BYTES * int(np.prod(SHAPE))
    expected = f"{18 + 3 + 2} messages of {32 * points + 8 * 3 + counted + seeds:,} bytes in all"
    assert done.stdout.splitlines()[-1].endswith(expected)
    assert not site_processes(temporary_folder)
    assert not workspaces(temporary_folder)


def test_the_cardinality_tells_sites_nothing(files: list[str], tmp_path: Path) -> None:
    done = fedsvm("sets", "cardinality", *files, "--column", "patient", folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "3 values of 'patient' are in all 3 files" in done.stdout
    assert not any(patient in done.stdout for patients in PATIENTS.values() for patient in patients if len(patient) > 1)
    points = 3 * 12
    assert f"{32 * points + 8 * 3 + 2 * 32:,} bytes" in done.stdout


def test_the_union_is_the_coordinators(files: list[str], tmp_path: Path) -> None:
    everything = sorted({patient for patients in PATIENTS.values() for patient in patients}, key=str.encode)
    shown = fedsvm("sets", "union", *files, "--column", "patient", folder=tmp_path)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert shown.stdout.splitlines()[1 : 1 + len(everything)] == everything
    assert "so does site-3" in shown.stdout
    points = 3 * 12 - 4 + 3 * len(everything)
    assert f"{66 * points + 8 * 3 + 8 * 3:,} bytes" in shown.stdout
    fedsvm("sets", "union", *files, "--column", "patient", "--out", "out", folder=tmp_path)
    (written,) = (tmp_path / "out").iterdir()
    assert (written.name, written.stat().st_mode & 0o777) == ("coordinator.csv", 0o600)
    assert learnt(written) == everything


def test_the_scalar_product_is_that_of_the_columns(files: list[str], tmp_path: Path) -> None:
    done = fedsvm("sets", "scalar-product", *files[:2], "--column", "weight", folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "5 over 4 rows of 'weight'" in done.stdout
    assert f"{16 * (4 * 4 + 5) + 2 * 16:,} bytes" in done.stdout


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["intersection", "a.csv", "--column", "patient"], "There must be two files or more, got 1."),
        (["intersection", "a.csv", "none.csv", "--column", "patient"], "there is no file 'none.csv'"),
        (["union", "a.csv", "b.csv", "--column", "patiens"], "a.csv has no column 'patiens'. Did you mean 'patient'?"),
        (["cardinality", "a.csv", "twice.csv", "--column", "patient"], "in column 'patient', got '1' 2 times (1 such"),
        (
            ["intersection", "a.csv", "gap.csv", "--column", "patient"],
            "must have a value in every row, got none in row 2",
        ),
        (["intersection", "a.csv", "gap.parquet", "--column", "patient"], "gap.parquet: column 'patient' must have a"),
        (["union", "a.csv", "long.csv", "--column", "patient"], "must be of at most 63 bytes, got 64"),
        (["intersection", "a.csv", "b.csv", "--column", "patient", "--out", "."], "--out: no folder . can be made"),
        (["scalar-product", "a.csv", "b.csv", "--column", "patient"], "'patient' must be of numbers, got text such as"),
        (
            ["scalar-product", "a.csv", "twice.csv", "--column", "weight"],
            "must have rows of the same records in the same",
        ),
        (
            ["scalar-product", "a.csv", "gap.csv", "--column", "weight"],
            "must have finite numbers only, got nan in row 1",
        ),
    ],
)
def test_bad_input_is_a_sentence(words: Sequence[str], sentence: str, files: list[str], tmp_path: Path) -> None:
    (tmp_path / "twice.csv").write_text("patient,weight\n1,1\n2,2\n1,3\n")
    (tmp_path / "gap.csv").write_text("patient,weight\n1,\n,2\n3,3\n4,4\n")
    (tmp_path / "long.csv").write_text(f"patient,weight\n{'x' * 64},1\n")
    pq.write_table(pa.table({"patient": [7, None]}), tmp_path / "gap.parquet")
    done = fedsvm("sets", *words, folder=tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr


def test_both_halves_say_what_is_disclosed() -> None:
    partitions = {f"site-{number}": Partition({}, {"items": ["a", f"b{number}"]}) for number in (1, 2)}
    with local_federation(SITE_MODULE, "sets", partitions, PLAIN, settings={"seed": 0}) as federation:
        assert program.intersection(federation) == program.cardinality(federation) == 1
        assert program.union(federation) == ["a", "b1", "b2"]
    told = {(entry.to, entry.step) for entry in federation.disclosures}
    assert {("sites", "set_intersection"), ("coordinator", "set_cardinality"), ("coordinator", "set_union")} <= told
    assert {("site-1", "set_union"), ("site-2", "set_union")} <= told


def test_a_site_that_is_not_as_the_protocol_needs_it_ends_the_run() -> None:
    too_long = {"site-1": Partition({}, {"items": ["x" * 64]}), "site-2": Partition({}, {"items": ["y"]})}
    with (
        pytest.raises(SiteFailed, match=r"site-1 failed in .*must have 63 bytes or fewer, got 64"),
        local_federation(SITE_MODULE, "sets", too_long, PLAIN, settings={"seed": 0}) as federation,
    ):
        program.union(federation)
    vectors = {"site-1": Partition({"vector": np.ones(2)}), "site-2": Partition({"vector": np.ones(3)})}
    with (
        pytest.raises(FederationError, match="must have the same length, got site-1 2, site-2 3"),
        local_federation(SITE_MODULE, "sets", vectors, PLAIN, settings={"seed": 0}) as federation,
    ):
        program.product(federation)
    for entry, says in ((1e30, "the product of 1 entries of size"), (1.7e308, "the product of entries of size")):
        large = {"site-1": Partition({"vector": np.array([entry])}), "site-2": Partition({"vector": np.ones(1)})}
        with (
            pytest.raises(FederationError, match=f"must have smaller entries: {says}"),
            local_federation(SITE_MODULE, "sets", large, PLAIN, settings={"seed": 0}) as federation,
        ):
            program.product(federation)
