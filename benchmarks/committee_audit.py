"""The training rows that parties of a default run name: the coordinator, each site, both, and two committee members.

`python -m benchmarks.committee_audit [NAME ...] [--seeds N] [--first SEED] [--named] [--set KEY=VALUE]` runs pan-svm by
default settings and five sites on quickstart, wdbc and pima (FEDSVM_DATA), with the audit of `fedsvm audit`, and prints
a line for each seed. The attackers have the list of all rows of the source. The committee is drawn anew in each round,
so that a site is a member in some rounds, the dealer in others, and outside in the rest. With --named the terms name
sites 1 and 2 as members and site 3 as the dealer, and a line has the rows of each role.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from benchmarks.landmarks import SETS, ranges_of
from fedsvm.scenarios.data import dataset
from fedsvm.scenarios.run import runner
from fedsvm.scenarios.run.audit import PartyAudit
from fedsvm.scenarios.schema import spec
from tools.arguments import parser

NAMES = ("quickstart", "wdbc", "pima")
_PAIR = ("collusion.sites=[1, 2]", "collusion.coordinator=true", "collusion.candidates=source")
_ATTACK = "Newton steps"
_NAMED = ("algorithm.masking=committee", "protocol.committee=[1, 2, 3]")
_ROLES = ("first member", "second member", "dealer", "outside", "outside")
"""Of the sites of a run with a named committee, in their order."""


def audits(name: str, seed: int, *more: str) -> dict[tuple[str, ...], PartyAudit]:
    """Return the audits of a default run with more settings, by their parties. Raises RuntimeError for a failed run."""
    words, *chosen = SETS[name]
    changes = [*chosen, f"seed={seed}", "compare.centralised=false", "compare.sites=false", *_PAIR, *more]
    scenario, base = spec.read(words, overrides=changes)
    rows = dataset.prepare(scenario, base)
    if rows.schema.numeric:
        scenario, base = spec.read(words, overrides=[*changes, f"data.ranges={ranges_of(rows)}"])
        rows = dataset.prepare(scenario, base)
    with tempfile.TemporaryDirectory() as folder:
        result = runner.run(scenario, rows, Path(folder), audit=True).result
    if result.status != "completed":
        raise RuntimeError(f"the run must complete, got {result.status}: {result.error}")
    return {each.parties: each for each in result.audit}


def line(found: dict[tuple[str, ...], PartyAudit]) -> list[str]:
    """Return the cells of a run: training rows, and rows named by each kind of party."""
    alone = {parties[0]: each for parties, each in found.items() if len(each.coalition) == 1 and not each.coordinator}
    both = {each.coalition[0]: each for each in found.values() if len(each.coalition) == 1 and each.coordinator}
    (pair,) = [each for each in found.values() if len(each.coalition) == 2]
    coordinator = found["coordinator",]
    areas = [
        attack.auc for each in alone.values() for attack in each.attacks if attack.attack == _ATTACK and attack.auc
    ]
    beyond = max(both[site].recovered - each.recovered for site, each in alone.items())
    named = [each.recovered for each in alone.values()]
    audited = [coordinator, *alone.values(), *both.values(), pair]
    return [
        str(coordinator.rows),
        str(coordinator.recovered),
        f"{min(named)} to {max(named)}",
        f"{min(areas):.2f} to {max(areas):.2f}" if areas else "",
        str(beyond),
        f"{pair.recovered} of {pair.rows}",
        str(max(each.false_claims for each in audited)),
    ]


def line_by_role(found: dict[tuple[str, ...], PartyAudit]) -> list[str]:
    """Return the cells of a run with a named committee: rows that each role names alone, and more with the
    coordinator."""
    alone = [each for each in found.values() if len(each.coalition) == 1 and not each.coordinator]
    cells = dict.fromkeys(_ROLES, "")
    for role, site in zip(_ROLES, sorted(alone, key=lambda each: each.coalition), strict=True):
        both = next(each for each in found.values() if each.coalition == site.coalition and each.coordinator)
        cells[role] += f"{', ' if cells[role] else ''}{site.recovered} + {both.recovered - site.recovered}"
    (pair,) = [each for each in found.values() if len(each.coalition) == 2]
    wrong = max(each.false_claims for each in found.values())
    return [str(found["coordinator",].recovered), *cells.values(), f"{pair.recovered} of {pair.rows}", str(wrong)]


def main() -> None:
    """Print the table."""
    arguments = parser("benchmarks.committee_audit", __doc__)
    arguments.add_argument("names", nargs="*", default=[*NAMES], metavar="NAME", help=", ".join(NAMES))
    arguments.add_argument("--seeds", type=int, default=10, help="runs of each set (default: 10)")
    arguments.add_argument("--first", type=int, default=1, help="seed of the first run (default: 1)")
    arguments.add_argument("--named", action="store_true", help="name the committee, and print rows by role")
    arguments.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="another setting of all runs"
    )
    given = arguments.parse_args()
    head = ["data", "seed"]
    if given.named:
        head += ["coordinator", *(f"{role}, + with the coordinator" for role in dict.fromkeys(_ROLES))]
        head += ["with two members", "most wrong"]
    else:
        head += ["training rows", "coordinator", "a site alone", "AUC of its steps"]
        head += ["coordinator with a site, beyond the site", "with two sites", "most wrong"]
    print(f"| {' | '.join(head)} |\n|{'---|' * len(head)}", flush=True)
    for seed in range(given.first, given.first + given.seeds):
        for name in given.names:
            found = audits(name, seed, *given.set, *(_NAMED if given.named else ()))
            cells = line_by_role(found) if given.named else line(found)
            print(f"| {' | '.join([name, str(seed), *cells])} |", flush=True)


if __name__ == "__main__":
    main()
