"""Files of three hospitals that write the same things in different ways, as real exports do."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

FILES = {"north": "north.csv", "south": "south.csv", "west": "west.csv"}
LABEL = "readmitted"
HEAD = ("patient_id", "admitted", "town", "age", "sex", "smoking", "diabetes", "crp", "sbp", "bmi", LABEL)

_Ways = dict[str, dict[str, tuple[str, ...]]]
_SEXES: _Ways = {
    "north": {"m": ("M", "m", "Male"), "f": ("F", "F", "f")},
    "south": {"m": ("Male",), "f": ("Female",)},
    "west": {"m": ("M",), "f": ("F",)},
}
_SMOKING: _Ways = {
    "north": {"never": ("never",), "former": ("former",), "current": ("current", "Current")},
    "south": {"never": ("Never",), "former": ("Ex-smoker",), "current": ("Current",)},
    "west": {"never": ("never",), "former": ("former",), "current": ("CURRENT", "current")},
}
_YES = {"north": ("no", "yes"), "south": ("N", "Y"), "west": ("0", "1")}
_TOWNS = {"north": ("Alder",), "south": ("Birch",), "west": ("Cedar", "Dale", "Elm")}
_GAPS = {"north": ("NA", ""), "south": ("-",), "west": ("999",)}


def write(folder: Path, rows: int = 120, seed: int = 5) -> None:
    """Write north.csv with a byte order mark, south.csv with semicolons in latin-1, and west.csv with codes."""
    random = np.random.default_rng(seed)
    for site, file in FILES.items():
        table = [_row(site, number, random) for number in range(rows)]
        head: Sequence[str] = HEAD
        if site == "south":
            table = [[cell.replace(".", ",") for cell in row] for row in table]
            order = [10, 0, 3, 4, 6, 5, 2, 8, 7, 9, 1]
            head, table = [HEAD[place] for place in order], [[row[place] for place in order] for row in table]
            head[head.index("town")], head[head.index("sbp")] = "Town", "SBP"
        if site == "west":
            head, table = [name for name in HEAD if name != "bmi"], [[*row[:9], row[10]] for row in table]
        text = "\n".join((";" if site == "south" else ",").join(row) for row in [list(head), *table])
        encoding = {"north": "utf-8-sig", "south": "latin-1", "west": "utf-8"}[site]
        (folder / file).write_text(text + "\n", encoding=encoding)


def _row(site: str, number: int, random: np.random.Generator) -> list[str]:
    age, crp, sbp = random.integers(25, 90), random.gamma(2.0, 20.0), random.normal(130, 15)
    bmi, diabetes = random.normal(27, 4), int(random.random() < 0.3)
    smoking = ("never", "former", "current")[int(random.integers(3))]
    sex = "mf"[int(random.integers(2))]
    risk = 0.05 * (age - 60) + 0.03 * (crp - 40) + 1.5 * diabetes + (smoking == "current") - 1.2
    label = int(risk + random.normal(0, 0.7) > 0)

    def pick(choices: Sequence[str]) -> str:
        return choices[int(random.integers(len(choices)))]

    def figure(value: str) -> str:
        return pick(_GAPS[site]) if random.random() < 0.05 else value

    day = np.datetime64("2024-01-01") + int(random.integers(0, 365))
    return [
        f"S-{20001 + number}" if site == "south" else str(10001 + 7 * number),
        str(day),
        pick(_TOWNS[site]).replace("Birch", "B\u00fcrch"),
        figure(str(age)),
        pick(_SEXES[site][sex]),
        pick(_SMOKING[site][smoking]),
        _YES[site][diabetes],
        figure(f"{crp:.1f}"),
        figure(f"{sbp:.0f}"),
        figure(f"{bmi:.1f}"),
        _YES[site][label],
    ]
