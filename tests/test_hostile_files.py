"""Files of anything: whatever bytes they hold, they are columns or a sentence, in bounded memory."""

from __future__ import annotations

import gzip
import os
import random
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fedsvm.scenarios.data import categories, files, sources, table_description
from fedsvm.scenarios.data.tables import Dataset, Table
from fedsvm.scenarios.schema.errors import ScenarioError, nearest
from tests.commands import fedsvm

TABLE = b"a,label\n1,x\n2,y\n"


def refused(path: Path, memory_bytes: int | None = None) -> str:
    """The one sentence with which a file is refused, which is a line."""
    with pytest.raises(ScenarioError) as caught:
        files.read(path, memory_bytes=memory_bytes)
    (sentence,) = caught.value.problems
    assert sentence.startswith(f"data.source: {path}")
    assert sentence.endswith(".")
    assert "\n" not in sentence
    return sentence


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("a.csv", random.Random(1).randbytes(20_000), "zero bytes"),
        ("a.csv", b"a,label\n1,x\n\0\0,y\n", "zero bytes"),
        ("a.csv", TABLE.decode().encode("utf-16")[:-1], "is not utf-16-le text; save the file as UTF-8"),
        ("a.csv", TABLE + b"\x81,x\n", "is not UTF-8 text; save the file as UTF-8, or say what it is by data.encoding"),
        ("a.csv", TABLE + b"\x01\xff,x\n", "it is not UTF-8 text, nor any other"),
        ("a.csv", b"a;label\n1;x\n2,5\n", "read as utf-8 text with semicolons between columns and a decimal comma"),
        ("a.csv", b'a,label\n"1,x\n2,y\n', "line 2 has 1 values for 2 columns"),
        ("a.csv", b"\n\n\n", "Empty CSV file"),
        ("a.csv.gz", gzip.compress(TABLE * 1000, mtime=0)[:60], "ended before the end-of-stream marker"),
        ("a.csv.gz", gzip.compress(TABLE, mtime=0) + b"rest", "cannot be read"),
        ("a.csv.gz", TABLE, "cannot be read"),
        ("a.svm", b"+1 4000000000:1\n-1 1:1\n", "beyond all measure; count columns from 1"),
        ("a.svm", b"+1 2000000000:1\n-1 1:1\n" * 10, "do not fit into memory; count columns from 1"),
        ("a.svm", b"+1 99999999999999999999:1\n", "beyond all measure"),
        ("a.svm", b"+1 -5:1\n", "Invalid index -5"),
        ("a.parquet", b"PAR1" + random.Random(2).randbytes(1000) + b"PAR1", "cannot be read"),
    ],
)
def test_a_file_that_is_no_table_is_a_sentence(name: str, content: bytes, says: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    assert says in refused(tmp_path / name)


@pytest.mark.parametrize("what", ["folder", "pipe", "/dev/zero", "/dev/urandom", "itself"])
def test_what_is_no_file_is_not_opened(what: str, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    if what == "folder":
        path.mkdir()
    elif what == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to(path if what == "itself" else what)
    with pytest.raises(ScenarioError, match="is no file, but a folder or a device; name a file"):
        sources.read_columns("a.csv", tmp_path)


@pytest.mark.parametrize("packed", [False, True])
def test_a_line_without_end_takes_no_memory(packed: bool, tmp_path: Path) -> None:
    """A hundred megabytes, which gzip packs into a hundred kilobytes."""
    path = tmp_path / ("a.csv.gz" if packed else "a.csv")
    with gzip.open(path, "wb", compresslevel=1) if packed else path.open("wb") as file:
        for _ in range(100):
            file.write(b"a" * 1_000_000)
    tracemalloc.start()
    said = refused(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert f"a line has more than {files.MAX_LINE_BYTES} bytes" in said
    assert peak < 20e6


def test_more_cells_than_memory_has_room_for_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(TABLE + b"3,x\n" * 600)
    assert "more than 1000 cells do not fit into memory" in refused(tmp_path / "a.csv", 24 * 1000)
    (tmp_path / "b.csv").write_bytes(TABLE + b"z" * 4000 + b",x\n")
    assert "column 'a' has a value of 4000 letters" in refused(tmp_path / "b.csv", 24 * 1000)


def test_more_columns_than_a_table_may_have_are_refused_before_they_take_memory(tmp_path: Path) -> None:
    """A reader of a header of a million names took seven gigabytes, and then ended the process."""
    quoted = [f'"{number}{", and so on" * 100}"' for number in range(1000)]  # more than is read at once
    (tmp_path / "a.csv").write_text(f"{','.join(quoted)}\n{'1,' * 999}1\n")
    assert len(files.read(tmp_path / "a.csv")[0]) == 1000
    more_than = f"it has more than {files.MAX_COLUMNS} columns; keep fewer"
    (tmp_path / "b.svm").write_text(f"+1 {files.MAX_COLUMNS + 1}:1\n-1 1:1\n")
    assert more_than in refused(tmp_path / "b.svm")
    (tmp_path / "c.csv").write_text(f"{','.join(map(str, range(1_000_000)))},label\n")
    tracemalloc.start()
    assert more_than in refused(tmp_path / "c.csv")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 20e6
    (tmp_path / "own.toml").write_text('name = "own"\n[data]\nsource = "c.csv"\n')
    done = fedsvm("run", "own.toml", folder=tmp_path)
    assert (done.returncode, more_than in done.stderr) == (2, True)


PIECES = st.sampled_from(
    [b",", b"\n", b"\r", b'"', b"1", b"-2.5e3", b"x", b"label", b"", b" ", b":", b"\xff", b"\xc3\xa9"]
)
CONTENTS = st.one_of(st.binary(max_size=300), st.lists(PIECES, max_size=60).map(b"".join))


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=CONTENTS, name=st.sampled_from(["a.csv", "a.csv.gz", "packed.csv.gz", "a.svm", "a.parquet"]))
def test_whatever_bytes_there_are_they_are_columns_or_a_sentence(content: bytes, name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(gzip.compress(content, mtime=0) if name == "packed.csv.gz" else content)
    try:
        columns, _ = files.read(path)
    except ScenarioError as error:
        (sentence,) = error.problems
        assert "\n" not in sentence
    else:
        assert len({len(values) for values in columns.values()}) == 1
        assert {values.dtype.kind for values in columns.values()} <= {"f", "U"}


def test_tens_of_thousands_of_columns_are_described_in_a_hundred_lines(tmp_path: Path) -> None:
    """It took no end when names were compared with each other."""
    count = 20_000 - 1
    names = ",".join(f"gene{number}" for number in range(count))
    rows = "".join(f"{','.join(['0.25'] * count)},{label}\n" for label in "abab")
    (tmp_path / "wide.csv").write_text(f"{names},label\n{rows}")
    found = table_description.describe("wide.csv", "label", "random", 2, tmp_path)
    assert (found.rows, found.width) == (4, count)
    assert found.columns[-1] == (f"and {count - 100} more", "numbers", "0", "")
    assert len(found.columns) == 102
    said = sources.lacks(Table("wide.csv", dict.fromkeys(names.split(","), np.zeros(4))), "lable")
    assert said.startswith("wide.csv has no column 'lable'. It has: gene0, gene1")
    assert said.endswith(" and 19959 more.")


def test_thousands_of_classes_and_sites_are_counted(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,label\n" + "".join(f"{row},class-{row}\n" for row in range(3000)))
    found = table_description.describe("a.csv", "label", "random", 1000, tmp_path)
    assert found.classes[-1] == ("and 2900 more", "2900")
    assert found.sites[0] == ("site", "rows", *sorted(f"class-{row}" for row in range(3000))[:8], "others")
    assert found.sites[-1] == ("and 900 more", "2700")
    assert len(found.sites) == 102


def text_column(folder: Path, values: list[str]) -> Dataset:
    (folder / "a.csv").write_text(
        "c,label\n" + "".join(f"{value},{'xy'[row % 2]}\n" for row, value in enumerate(values))
    )
    return sources.load("a.csv", label="label", base_folder=folder)


def test_columns_that_may_be_meant_otherwise_are_told(tmp_path: Path) -> None:
    many = text_column(tmp_path, [f"v{row % 400}" for row in range(1200)])
    (said,) = categories.warnings(many)
    assert said.startswith("Column 'c' has 400 different texts in 1200 rows, and becomes as many columns of 0 and 1")
    (said,) = categories.warnings(text_column(tmp_path, [*map(str, range(50)), "oops"]))
    assert said.startswith("Column 'c' is read as text because of 'oops' in row 51 among numbers")
    assert not list(categories.warnings(text_column(tmp_path, ["a", "b", "c"] * 10)))


def test_columns_that_sites_cannot_agree_on_are_refused_before_a_run(tmp_path: Path) -> None:
    identifiers = text_column(tmp_path, [f"patient-{row}" for row in range(5000)])
    with pytest.raises(ScenarioError, match=r"'c' has 5000 different values in 5000 rows: it looks like an identifier"):
        categories.require_few(identifiers, (), agreed=True)
    categories.require_few(identifiers, ("c",), agreed=True)
    long = text_column(tmp_path, ["b", "a" * 65])
    with pytest.raises(ScenarioError, match=r"data\.categories\.c: a value has 65 bytes, and sites can agree on 64"):
        categories.require_few(long, (), agreed=True)


def test_columns_of_0_and_1_that_memory_has_no_room_for_are_refused(tmp_path: Path) -> None:
    data = text_column(tmp_path, [f"v{row}" for row in range(1000)])
    with pytest.raises(ScenarioError, match=r"becomes 1000 columns, 1000 of them of 'c', and 1000 rows of them do not"):
        categories.require_few(data, ("c",), agreed=True, memory_bytes=7_000_000)


def test_a_likeness_is_found_among_very_many_names() -> None:
    assert nearest("gene123x", (f"gene{number}" for number in range(10**6))) == " Did you mean 'gene123'?"
    assert np.isfinite(len(nearest("a" * 10**6, ["b"] * 10)))
