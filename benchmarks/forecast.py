"""The forecasts of `fedsvm predict-cost` for 100, 300 and 1,000 sites, and the cost of such runs.

`python -m benchmarks.forecast [SUM]`, the ring unless told, takes some minutes. It is Gaussian naive Bayes over made
rows: its rounds do not depend on the rows, so that counts and bytes must agree, and seconds should.
"""

from __future__ import annotations

from fedsvm.scenarios import forecast
from fedsvm.scenarios.forecast import MEASURED, Total
from tools.arguments import parser

SITES = (100, 300, 1000)
FIGURES = ("rounds", "hops", "messages", "payload_bytes", "wire_bytes", "control_bytes", "launch_s", "rounds_s")


def main() -> None:
    """Measure and print, as Markdown."""
    arguments = parser("benchmarks.forecast", __doc__)
    arguments.add_argument("sum", nargs="?", default="ring", metavar="SUM", help="secure sum")
    changes = ["data.source=made-census", "data.positive=above", f"protocol.sum={arguments.parse_args().sum}"]
    runs = [forecast.measure("naive-bayes", sites, changes) for sites in MEASURED]
    secure_sum = forecast.secure_sum_of("naive-bayes", changes)
    print(f"| sites | | {' | '.join(FIGURES)} |\n|---|---|{'---|' * len(FIGURES)}")
    for sites in SITES:
        print(_row("predicted", forecast.predict(runs, secure_sum, sites)), flush=True)
        print(_row("measured", forecast.measure("naive-bayes", sites, changes).total), flush=True)


def _row(how: str, total: Total) -> str:
    figures = (getattr(total, name) for name in FIGURES)
    return f"| {total.sites:,} | {how} | {' | '.join(f'{figure:,.6g}' for figure in figures)} |"


if __name__ == "__main__":
    main()
