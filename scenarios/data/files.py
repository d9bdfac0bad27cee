"""Reading files of rows: what is in them is a stranger's, and whatever it is ends in columns or in a clause.

Text is looked through once before it is taken apart: in which encoding it is, that its lines end, and that a number for
each cell has room in memory, so that nothing is allocated that a few bytes ask for.
"""

from __future__ import annotations

import codecs
import gzip
import zlib
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsvm.federation.processes.memory import available_bytes
from fedsvm.federation.text import list_names
from fedsvm.scenarios.data.notation import GAP_MARKS, numbers_with_gaps
from fedsvm.scenarios.data.text_form import SEPARATORS, WESTERN, TextForm
from fedsvm.scenarios.schema.errors import ScenarioError

Columns = dict[str, NDArray[Any]]

SUFFIXES = (".csv.gz", ".csv", ".svm", ".parquet")
MISSING_MARKS = ("", "?", "NA", "NaN", "nan", "null")
_EXPECTED = {
    ".csv.gz": "separated text with a line of column names, packed by gzip",
    ".csv": "separated text with a line of column names",
    ".svm": "lines of a label followed by number:value pairs",
    ".parquet": "an Apache Parquet file",
}
MAX_LINE_BYTES = 1 << 26
"""A line is taken apart in one piece: with a hundred thousand columns, 600 letters each."""

MAX_COLUMNS = 20_000
"""Readers take kilobytes of memory for each column, however few rows there are."""

_CHUNK_BYTES = 1 << 20
_CELL_BYTES = 8 * 3
"""A float64 as it was read, as a column, and in the matrix of all columns."""

_LETTER_BYTES = 4 * 2
"""Of text, as a column and in the matrix of all columns; every row has as many letters as the longest."""

_SWALLOWED = 2
"""Lines of as many values as the table has columns that a value must not hold."""

_FIRST_LINES = 1000
"""By which the form of a file is found out."""

_CODEC_OF_PAGES = "charmap"
"""The name of the codec of cp1252 in Python's errors."""

_CONTROLS = frozenset(map(chr, range(32))) - set("\t\n\r\f")
"""Letters that no text has, but files of other kinds do."""

_MAX_REASON = 200


class _UnusableError(Exception):
    """A file that can be read, but not used: a clause that says what to change."""


def read(
    path: Path, text: Collection[str] = (), memory_bytes: int | None = None, form: TextForm | None = None
) -> tuple[Columns, TextForm | None]:
    """Return every column of a file, (n,) each, float64 with NaN or text with "" for missing values, and the form of
    the file.

    text: columns that are text whatever they look like, as it is written, NA and the like included. memory_bytes: how
    much it may take, and else what there is. form: what is told of how text is written. Raises ScenarioError.
    """
    try:
        room = available_bytes() if memory_bytes is None else memory_bytes
        columns, found = _read(path, text, room, form or TextForm())
    except _UnusableError as error:
        raise ScenarioError([f"data.source: {path}: {error}."]) from None
    except UnicodeDecodeError as error:
        told = form.encoding if form is not None else None
        tried = told or ("UTF-8" if error.encoding == _CODEC_OF_PAGES else error.encoding)
        said = f"is not {tried} text; save the file as UTF-8, or set data.encoding"
        raise ScenarioError([f"data.source: {path} {said}."]) from error
    except MemoryError as error:
        raise ScenarioError([f"data.source: {path} does not fit into memory with a number in every cell."]) from error
    except PermissionError as error:
        raise ScenarioError([f"data.source: {path} may not be read by the user of this process; allow it."]) from error
    except (OSError, EOFError, zlib.error, ValueError, ArithmeticError, LookupError) as error:
        expected = next(_EXPECTED[suffix] for suffix in SUFFIXES if path.name.endswith(suffix))
        raise ScenarioError(
            [f"data.source: {path} cannot be read: {_reason(error)}. It must be {expected}."]
        ) from error
    if not columns or not len(next(iter(columns.values()))):
        raise ScenarioError([f"data.source: {path} has no rows; add some of two classes or more."])
    return columns, found


def _reason(error: Exception) -> str:
    """Return the message of a library about a file, in one short line."""
    said = str(error).splitlines()
    reason = said[0].rstrip(".") if said else type(error).__name__
    return reason if len(reason) <= _MAX_REASON else f"{reason[:_MAX_REASON]}…"


def _read(path: Path, text: Collection[str], memory_bytes: int, form: TextForm) -> tuple[Columns, TextForm | None]:
    if path.name.endswith(".svm"):
        return _read_svm(path, memory_bytes), None
    import pyarrow as pa

    try:
        if path.name.endswith(".parquet"):
            return _read_parquet(path, text, memory_bytes), None
        return _read_csv(path, text, memory_bytes, form)
    except pa.ArrowException as error:  # only some of which are errors that Python knows
        raise error if isinstance(error, MemoryError) else ValueError(str(error)) from None


# Separated text.


def _read_csv(path: Path, text: Collection[str], memory_bytes: int, told: TextForm) -> tuple[Columns, TextForm]:
    """Read a file of text. Raises _UnusableError naming the first line with too few or too many values."""
    form = _look_through(path, memory_bytes // _CELL_BYTES, told)
    table = _without_empty(_parse(path, text, form))
    columns, has_points, doubts = _columns(table, text, memory_bytes), False, [form.doubt] if form.doubt else []
    _require_closed_quotes(columns, form.separator or ",")
    for name in [name for name in columns if name not in text]:
        written = columns[name]
        columns[name], is_grouped = _as_numbers(written, form.decimal or ".")
        has_points |= is_grouped and form.decimal == ","
        read = (name, written, columns[name])
        if is_grouped and form.decimal == ".":
            doubts.append(_reading(*read, ",", "if its comma is a decimal one, write a point."))
        elif written.dtype != columns[name].dtype and any("%" in text for text in written.tolist()):
            doubts.append(_reading(*read, "%", "see that other files have percents too, not shares."))
    return _without_last_gaps(columns), replace(form, thousands=has_points, doubt=" ".join(doubts))


def _parse(path: Path, text: Collection[str], form: TextForm) -> Any:
    """Return the table in a file of text of a known form. Raises _UnusableError as `_read_csv` does."""
    import pyarrow as pa
    from pyarrow import csv

    ragged: list[Any] = []

    def set_aside(row: Any) -> str:
        ragged.append((row.number, row.actual_columns, row.expected_columns))
        return "skip"

    table = csv.read_csv(
        path,
        read_options=csv.ReadOptions(
            use_threads=False,  # with threads, rows have no numbers
            skip_rows=form.preamble,
            block_size=MAX_LINE_BYTES,
            encoding="utf8" if form.encoding in ("utf-8", "utf-8-sig") else form.encoding,
        ),
        parse_options=csv.ParseOptions(
            delimiter=form.separator, invalid_row_handler=set_aside, newlines_in_values=True
        ),
        convert_options=csv.ConvertOptions(
            null_values=list(MISSING_MARKS),
            strings_can_be_null=False,  # of columns that are text, so that these are as they are written
            column_types=dict.fromkeys(text, pa.string()),
            decimal_point=form.decimal,
        ),
    )
    if ragged:
        number, actual, expected = ragged[0]
        title = "; if line 1 is a title, remove it" if expected == 1 else ""
        raise _UnusableError(
            f"line {number} has {actual} values for {expected} columns "
            f"({len(ragged)} in all), read as {form}; complete it, put values that hold the separator in quotes, or "
            f"say how the file is written by data.separator, data.decimal and data.encoding{title}"
        )
    return table.rename_columns([name.strip() for name in table.column_names])


def _without_empty(table: Any) -> Any:
    """Return a table without the columns that have neither name nor value, as behind separators that end each line."""
    import pyarrow as pa

    kept = [
        place
        for place, (name, column) in enumerate(zip(table.column_names, table.itercolumns(), strict=True))
        if name or not (pa.types.is_null(column.type) or column.null_count == len(column))
    ]
    return table.select(kept)


def _without_last_gaps(columns: Columns) -> Columns:
    """Return columns without the rows at their end that hold separators alone, as spreadsheets write them."""
    has_value = np.zeros(len(next(iter(columns.values()), ())), dtype=np.bool_)
    for values in columns.values():
        has_value |= np.asarray(values != "" if values.dtype.kind == "U" else ~np.isnan(values))
    rows = int(np.flatnonzero(has_value).max(initial=-1)) + 1
    return columns if rows == len(has_value) else {name: values[:rows] for name, values in columns.items()}


def _require_closed_quotes(columns: Columns, separator: str) -> None:
    """Raise _UnusableError for a value that holds rows of the table, since its quotation mark is not closed."""
    for name, values in columns.items():
        if values.dtype.kind != "U":
            continue
        for row in np.flatnonzero(np.char.find(values, "\n") >= 0).tolist():
            lines = str(values[row]).split("\n")[1:]
            whole = sum(line.count(separator) == len(columns) - 1 > 0 for line in lines)
            if whole >= _SWALLOWED or (row == len(values) - 1 and not lines[-1]):
                raise _UnusableError(
                    f"the quotation mark in row {row + 1}, column {name!r}, is not closed before the next rows; "
                    "close or remove it"
                )


def _as_numbers(values: NDArray[Any], decimal: str) -> tuple[NDArray[Any], bool]:
    """Return a column as numbers, and whether marks separate its thousands: points, or commas if points are decimal.

    A column whose every number has a percent sign is one of percents. It is text still where anything but marks of
    missing values, such as n/a, such marks, minus signs and digits that are not ASCII has made it so.
    """
    if values.dtype.kind != "U":
        return values, False
    texts = values.tolist()
    known = [value for value in texts if value and value not in GAP_MARKS]
    if known and all(value.endswith("%") for value in known):
        texts = [value.removesuffix("%") for value in texts]
    mark = "." if decimal == "," else ","
    is_grouped = any(mark in value for value in known)
    if not is_grouped and texts == values.tolist() and GAP_MARKS.isdisjoint(texts) and all(map(str.isascii, texts)):
        return values, False
    numbers = numbers_with_gaps(texts, decimal)
    return (values, False) if numbers is None else (np.array(numbers, dtype=np.float64), is_grouped)


def _reading(name: str, texts: NDArray[Any], numbers: NDArray[Any], mark: str, doubt: str) -> str:
    """Return a sentence about the first number of a column that was written with a mark."""
    row = next(row for row, text in enumerate(texts.tolist()) if mark in text)
    return f"{str(texts[row])!r} in row {row + 1}, column {name!r}, is read as {numbers[row]:.15g}; {doubt}"


def _look_through(path: Path, room: int, told: TextForm) -> TextForm:
    """Return the form of a file. Raises _UnusableError if it is not text in lines, or has too many cells."""
    form = told.encode(next(_chunks(path), b""), is_utf_8=lambda: _is_utf_8(path))
    beginning, cells, letters = "", 0, 0
    for text in _decode(path, form.encoding or ""):
        if form.encoding == WESTERN and not _CONTROLS.isdisjoint(text):
            raise _UnusableError("it is not UTF-8 text, nor any other; save it as comma-separated text in UTF-8")
        beginning = beginning or text
        cells += max(map(text.count, SEPARATORS)) + text.count("\n")
        if cells > room:
            raise _UnusableError(f"more than {room} cells do not fit into memory; keep fewer rows or columns")
        last = text.rfind("\n")
        letters = len(text) - last - 1 if last >= 0 else letters + len(text)
        if letters > MAX_LINE_BYTES:
            raise _UnusableError(f"a line has more than {MAX_LINE_BYTES} bytes; end each row with a line end")
    form = form.complete(beginning.splitlines()[:_FIRST_LINES] or [""])
    _require_few_names(path, form)
    return form


def _require_few_names(path: Path, form: TextForm) -> None:
    """Raise _UnusableError for a line of names with more columns than a table may have; read it piece by piece."""
    columns, quotes = 1, 0
    for piece, text in enumerate(_decode(path, form.encoding or "")):
        lines = text.split("\n", form.preamble)[-1] if piece == 0 else text  # the first piece holds lines before
        line, end, _ = lines.partition("\n")
        columns += sum(part.count(form.separator or ",") for part in line.split('"')[quotes % 2 :: 2])
        quotes += line.count('"')
        _require_few_columns(columns)
        if end:
            return


def _require_few_columns(count: int) -> None:
    """Raise _UnusableError for more columns than a table may have."""
    if count > MAX_COLUMNS:
        raise _UnusableError(f"it has more than {MAX_COLUMNS} columns; keep fewer")


def _is_utf_8(path: Path) -> bool:
    try:
        for _ in _decode(path, "utf-8"):
            pass
    except UnicodeDecodeError:
        return False
    return True


def _decode(path: Path, encoding: str) -> Iterator[str]:
    """Yield the text of a file in pieces. Raises UnicodeDecodeError, and _UnusableError for zero bytes."""
    decoder = codecs.getincrementaldecoder(encoding)()
    for chunk in _chunks(path):
        if b"\0" in chunk and not encoding.lower().replace("_", "-").startswith(("utf-16", "utf-32")):
            raise _UnusableError("there are zero bytes in it, which no text has; save it as comma-separated text")
        yield decoder.decode(chunk)
    yield decoder.decode(b"", final=True)


def _chunks(path: Path) -> Iterator[bytes]:
    with gzip.open(path) if path.name.endswith(".gz") else path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            yield chunk


# Tables of Arrow.


def _read_parquet(path: Path, text: Collection[str], memory_bytes: int) -> Columns:
    from pyarrow import parquet

    with parquet.ParquetFile(path) as file:
        _require_few_columns(file.metadata.num_columns)
        cells = file.metadata.num_rows * file.metadata.num_columns
        if cells > memory_bytes // _CELL_BYTES:
            raise _UnusableError(f"{cells} cells do not fit into memory; keep fewer rows or columns")
        names = _usable_names(file.schema_arrow)
        read = (
            (name, file.read(columns=[name]).column(name)) for name in names
        )  # one at a time beside what is returned
        return {name: _values(name, column, name in text, memory_bytes) for name, column in read}


def _columns(table: Any, text: Collection[str], memory_bytes: int) -> Columns:
    """Return the columns of a pyarrow table. Raises _UnusableError as `_usable_names` does."""
    columns = zip(_usable_names(table.schema), table.itercolumns(), strict=True)
    return {name: _values(name, column, name in text, memory_bytes) for name, column in columns}


def _usable_names(schema: Any) -> list[str]:
    """Return the names of columns. Raises _UnusableError for duplicate names, and for values that are no numbers or
    text."""
    import pyarrow as pa

    names: list[str] = schema.names
    if twice := sorted(name for name, times in Counter(names).items() if times > 1):
        places = [str(place) for place, name in enumerate(names, start=1) if name == twice[0]]
        if not twice[0]:
            raise _UnusableError(f"columns {list_names(places)} have values and no name; name or remove them")
        raise _UnusableError(f"columns {list_names(places)} have the same name {twice[0]!r}; rename all but one")
    if binary := [name for name, kind in zip(names, schema.types, strict=True) if pa.types.is_binary(kind)]:
        raise _UnusableError(f"column {binary[0]!r} is not UTF-8 text; save the file as UTF-8")
    if nested := [name for name, kind in zip(names, schema.types, strict=True) if pa.types.is_nested(kind)]:
        raise _UnusableError(f"column {nested[0]!r} holds lists or records; remove it, or give each value a column")
    return names


def _values(name: str, column: Any, is_text: bool, memory_bytes: int) -> NDArray[Any]:
    """Return float64 with NaN for numbers, text with "" otherwise.

    is_text: whether whole numbers and decimals are text too, with every digit that they have.
    """
    import pyarrow as pa

    is_exact = pa.types.is_integer(column.type) or pa.types.is_decimal(column.type)
    if pa.types.is_floating(column.type) or (is_exact and not is_text):
        # Not "safe": a whole number beyond 2^53, say an identifier, is rounded instead of refused.
        return np.array(column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False), dtype=np.float64)
    missing = () if is_text else MISSING_MARKS
    values = ["" if value is None or value in missing else str(value) for value in column.to_pylist()]
    longest = max(map(len, values), default=0)
    if longest * len(values) * _LETTER_BYTES > memory_bytes:
        raise _UnusableError(
            f"column {name!r} has a value of {longest} letters, and with as much for each of {len(values)} rows does "
            "not fit into memory; shorten it, or remove the column"
        )
    return np.array(values, dtype=np.str_)


# Lines of LIBSVM.


def _read_svm(path: Path, memory_bytes: int) -> Columns:
    from sklearn.datasets import load_svmlight_file

    try:
        matrix, labels = load_svmlight_file(str(path))
    except OverflowError:
        raise _UnusableError("a column's number is beyond all measure; count columns from 1") from None
    if (cells := matrix.shape[0] * matrix.shape[1]) > memory_bytes // _CELL_BYTES:
        raise _UnusableError(
            f"its {matrix.shape[0]} rows have columns up to number {matrix.shape[1]}, and {cells} cells do not fit "
            "into memory; count columns from 1, or keep fewer"
        )
    _require_few_columns(matrix.shape[1])
    dense = np.asarray(matrix.toarray(), dtype=np.float64)
    return {f"f{j + 1}": dense[:, j] for j in range(dense.shape[1])} | {"label": np.asarray(labels, dtype=np.float64)}
