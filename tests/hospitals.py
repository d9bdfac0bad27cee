"""A made table such as hospitals have: gaps, dates, an identifier, few deaths; written in the ways that files are."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

NAMES = ("St. Anna", "Köln-Süd", "Nord", "West", "Ost")
HEAD = ("patient_id", "hospital", "aufnahme", "age", "bmi", "creatinine", "ward", "died")
Row = tuple[str, ...]


def rows(count: int = 800, seed: int = 1) -> list[Row]:
    """Rows of HEAD, decimals with points; 7 % died, and 6 % of the figures are missing."""
    random = np.random.default_rng(seed)
    age, bmi = random.normal(62, 14, count).round(), random.normal(26, 4, count).round(1)
    creatinine = np.exp(random.normal(0.1, 0.35, count)).round(2)
    risk = 0.08 * (age - 62) + 2.2 * (creatinine - 1.2) + random.normal(0, 0.8, count)
    died = risk >= np.sort(risk)[-round(0.07 * count)]
    days = random.integers(0, 365, count)
    made = []
    for row in range(count):
        figures = [f"{age[row]:.0f}", f"{bmi[row]:.1f}", f"{creatinine[row]:.2f}"]
        figures = ["" if random.random() < 0.06 else figure for figure in figures]
        day = np.datetime64("2024-01-01") + days[row]
        ward = ("surgery", "medicine", "icu")[random.integers(3)]
        outcome = "died" if died[row] else "survived"
        made.append((f"P-{row:05d}", NAMES[random.integers(5)], str(day), *figures, ward, outcome))
    return made


def as_excel_writes(path: Path, table: Sequence[Row]) -> Path:
    """With semicolons, decimal commas and dates of Germany, in cp1252."""
    lines = [";".join(HEAD)]
    for patient, hospital, day, age, bmi, creatinine, ward, died in table:
        year, month, date = day.split("-")
        figures = (each.replace(".", ",") for each in (age, bmi, creatinine))
        lines.append(";".join((patient, hospital, f"{date}.{month}.{year}", *figures, ward, died)))
    path.write_bytes("\r\n".join([*lines, ""]).encode("cp1252"))
    return path


def plain(path: Path, table: Sequence[Row], without: Sequence[str] = ()) -> Path:
    """With commas and points, in UTF-8. without: columns that are left out."""
    kept = [place for place, name in enumerate(HEAD) if name not in without]
    lines = [",".join(row[place] for place in kept) for row in [HEAD, *table]]
    path.write_text("\n".join([*lines, ""]), encoding="utf-8")
    return path
