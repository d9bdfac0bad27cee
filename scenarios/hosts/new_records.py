"""The new records of a site and its part of a model, on the terms of a request for predictions."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedsvm.algorithms.column_prediction import NAME
from fedsvm.algorithms.data.scaling import Scale
from fedsvm.algorithms.features.kernel_expansion import digest_of
from fedsvm.algorithms.features.kernels import Kernel
from fedsvm.federation.errors import StepRefused
from fedsvm.federation.hosts.held_data import HeldColumn, SiteData
from fedsvm.federation.site.private_file import replace_private
from fedsvm.federation.site.rules import SiteRules
from fedsvm.federation.site.terms import Terms
from fedsvm.scenarios.column_prediction import part_with, predictions
from fedsvm.scenarios.data import file_join
from fedsvm.scenarios.data.sources import as_text
from fedsvm.scenarios.hosts.site_data import hold, reading_explained
from fedsvm.scenarios.saved_model import read_arrays
from fedsvm.scenarios.schema.corrections import Corrections
from fedsvm.scenarios.schema.data import DataSpec
from fedsvm.scenarios.schema.errors import ScenarioError
from fedsvm.scenarios.table_rows import TableRows

if TYPE_CHECKING:
    from fedsvm.federation.hosts.site_session import SiteSession


def hold_asked(name: str, file: str, part: Path | None, terms: Terms, corrections: Corrections | None) -> SiteData:
    """Return what a site contributes to whatever the coordinator asks: rows to train on, or new records.

    Parameters
    ----------
    name : str
        The site's.
    file : str
        Its file of rows.
    part : Path, optional
        The file of its part of the model, if it was started to predict.
    terms : Terms
    corrections : Corrections, optional
        The site's own.

    Raises
    ------
    StepRefused
        The coordinator asks for the other, or the file cannot be used.
    """
    if (terms.program == NAME) != (part is not None):
        asked = "asks for predictions; add --predict with" if part is None else "trains a model; remove --predict and"
        raise StepRefused(
            f"the coordinator {asked} the file of this site's part of the model",
            "it was started for training" if part is None else "it was started for predictions",
        )
    return hold(name, file, terms, corrections) if part is None else hold_new(file, part, terms, corrections)


def hold_new(file: str, path: Path, terms: Terms, corrections: Corrections | None = None) -> SiteData:
    """Return the new records in a file, scaled as the model in the file of the site's part.

    Raises StepRefused if one of the files cannot be read, or is not what the terms are about.
    """
    with reading_explained():
        settings = DataSpec.model_validate({**terms.reading, "source": file})
        part = read_arrays(path)
        _check_part(path, part, terms)
        table = file_join.read_table(settings, Path(), corrections)
        beside = {settings.label, settings.identifier or "", *settings.ignore}
        taken = TableRows(file, table.columns, beside, {}, part["left_out"].tolist() if "left_out" in part else ())
        names: list[str] = part["columns"].tolist()
        origins = taken.origins(names)
        rows = Scale(part["offset"], part["scale"])(taken.take(names))
        identifiers = None
        if settings.align == "identifier":
            identifiers = _identifiers(file, table.columns, settings.identifier or "")
    columns = tuple(HeldColumn(each, each not in names) for each in dict.fromkeys(origins.values()))
    partition = part_with(part, rows, identifiers)
    return SiteData(len(rows), columns, lambda order: partition)


def _check_part(path: Path, part: Mapping[str, NDArray[Any]], terms: Terms) -> None:
    """Raise StepRefused for a file that is not the site's part of the model that the terms name."""
    is_part = {"reference", "dual_coef", "kernel", "columns", "offset", "scale"} <= part.keys()
    asked = {**terms.settings, "classes": len(terms.settings.get("classes", ()))}
    if not is_part or any(asked.get(name) != value for name, value in _identity_of(part).items()):
        why = "is not this site's part of the model that the coordinator asks about"
        raise StepRefused(
            f"{path} {why}; name the file that the site kept in that run", f"the file that it named {why}"
        )


def _identity_of(part: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
    """Return the kernel, the digest of coefficients and the number of classes, by which terms name a model."""
    dual_coef = part["dual_coef"]
    classes = max(2, len(np.atleast_2d(dual_coef)))
    return {**Kernel.from_arrays(part).to_named_fields(), "model": digest_of(dual_coef), "classes": classes}


def _identifiers(file: str, table: Mapping[str, NDArray[Any]], column: str) -> list[str]:
    """Return the identifiers of records. Raises ScenarioError if a record has none."""
    if column not in table:
        raise ScenarioError([f"data.identifier: {file} has no column {column!r}; add it."])
    found: list[str] = as_text(table[column]).tolist()
    if "" in found:
        raise ScenarioError([f"data.identifier: row {found.index('') + 1} of {file} has no {column!r}; fill it."])
    return found


def rules_for(rules: SiteRules) -> SiteRules:
    """Return a site's rules for predictions: one record may come alone, since nothing is learned from it."""
    return replace(rules, min_rows=0)


def answer(session: SiteSession, target: Path) -> None:
    """Take part in a request, and write what the site learned to a new file that only its owner may read.

    Parameters
    ----------
    session : SiteSession
    target : Path
        The file, comma-separated. For the receiver it has decision values and classes. If the coordinator is the
        receiver, it has the numbers under which the coordinator has the site's records. If another site is, there is no
        file.

    Raises
    ------
    ScenarioError
        The file exists.
    FederationError
        See `SiteSession.take_part`.
    """
    if target.exists():
        raise ScenarioError([f"{target} exists already; name a file that does not (--keep), or remove it."])
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "answer.npz"
        replace(session, settings={**session.settings, "answer_path": str(path)}).take_part()
        if not path.exists():
            return
        write_answer(path, target)
    session.tell(f"what it learned of its new records is in {target}")


def write_answer(kept: Path, target: Path) -> None:
    """Write what a site's program kept of a request as comma-separated text, to a file that only its owner may read."""
    text = _answer_text(read_arrays(kept))

    def write(file: IO[bytes]) -> None:
        file.write(text.encode())

    replace_private(str(target), write)


def _answer_text(kept: Mapping[str, NDArray[Any]]) -> str:
    """Return what a site's program kept as comma-separated text."""
    head, records = str(kept["called"]), kept["records"].tolist()
    if "decisions" in kept:
        return "\n".join([*predictions(kept["decisions"], kept["classes"], (head, records)).lines(), ""])
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([("row", head), *enumerate(records, start=1)])
    return text.getvalue()
