"""The catalogue in pictures: `python -m tools.gallery` runs every scenario and draws what it is about.

The pictures are in docs/gallery. Scenarios of data that FEDSVM_DATA does not have keep the picture they have.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from fedsvm.scenarios.api import run
from fedsvm.scenarios.report.chart import Chart
from fedsvm.scenarios.report.message_flow import read_ledger
from fedsvm.scenarios.report.run_plots import plots
from fedsvm.scenarios.run.log import read_log
from fedsvm.scenarios.schema import spec
from fedsvm.scenarios.schema.errors import ScenarioError
from tools.arguments import parser

FOLDER = Path("docs") / "gallery"
_TELLING = (
    "Sites and faults",
    "Comparison with other methods",
    "Accuracy by number of columns",
    "Convergence",
    "ROC curve",
    "Bytes",
)
"""Titles of plots: of those that a run has, the first says most of what its scenario is about."""


def gallery() -> str:
    """Return every scenario of the catalogue with its sentence, its command and its picture, as Markdown."""
    return "\n\n".join(part for name, sentence in spec.catalogue().items() for part in _entry(name, sentence))


def _entry(name: str, sentence: str) -> Iterator[str]:
    yield f"## {name}"
    yield sentence
    yield f"```sh\nfedsvm run {name}\n```"
    if (FOLDER / f"{name}.svg").is_file():
        yield f"![{name}](gallery/{name}.svg)"


def draw(names: Sequence[str]) -> None:
    """Run scenarios of the catalogue and draw them; name those that cannot be run."""
    FOLDER.mkdir(exist_ok=True)
    for name in names:
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place) / name
            try:
                result = run(name, out=folder)
            except ScenarioError as error:
                print(f"{name}: {error}", file=sys.stderr)
                continue
            drawn = plots(result, read_log(folder), read_ledger(folder / "ledger.parquet"))
            charts = {chart.title: chart for chart in drawn}
            chart = _telling(charts)
            if result.status == "completed" and chart is not None:
                (FOLDER / f"{name}.svg").write_text(chart.file(), encoding="utf-8")
                print(f"{name}: {chart.title}")


def _telling(charts: dict[str, Chart]) -> Chart | None:
    return next((charts[title] for title in _TELLING if title in charts), None)


if __name__ == "__main__":
    arguments = parser("tools.gallery", __doc__)
    arguments.add_argument("names", nargs="*", metavar="SCENARIO", help="scenarios of the catalogue; all without any")
    draw(arguments.parse_args().names or list(spec.catalogue()))
