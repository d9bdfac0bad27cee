"""Statements of a result on secrecy: who can reveal an input to one sum, and what all sums of a run reveal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fedsvm.algorithms.privacy.accountant import PrivacyAccountant, PrivacyReport
from fedsvm.federation.report import MembershipReport
from fedsvm.protocols.sums.secure_sum import SecureSum
from fedsvm.scenarios.run.offered_terms import resolve_settings
from fedsvm.scenarios.run.outcome import JOURNAL
from fedsvm.scenarios.schema.algorithm import whole_run
from fedsvm.scenarios.schema.spec import Scenario


@dataclass(frozen=True)
class SecrecyReport:
    """Statements on secrecy, each a sentence without its period.

    Parameters
    ----------
    single_sum : str
        The number of sites that must collude to reveal one site's input to one sum.
    whole_run : str
        What all sums of the run reveal to the coordinator and one site, what the model file reveals, and what
        differential privacy covers.
    analyzed : bool
        Whether there are attacks on whole runs of this algorithm with these settings.
    """

    single_sum: str
    whole_run: str
    analyzed: bool


def secrecy(
    scenario: Scenario, memberships: Sequence[MembershipReport], privacy: PrivacyReport | None
) -> SecrecyReport:
    """Return the statements for a run. memberships: the sites that took part, from round to round."""
    table, data, (settings, _) = scenario.algorithm, scenario.data, resolve_settings(scenario)
    whole = whole_run(table.implementation, settings, data.statistics_privacy, scaled=data.scale == "standard")
    if privacy is not None:
        whole += f". Differential privacy covers {'; '.join(privacy.protects_against)}"
    analyzed = table.implementation.whole_run(settings) is not None
    fewest = min(len(each.sites) for each in memberships)
    return SecrecyReport(single_sum(scenario.protocol.secure_sum, fewest, same=len(memberships) == 1), whole, analyzed)


def single_sum(chosen: SecureSum, sites: int, *, same: bool) -> str:
    """Return a sentence on how many sites must collude, in the round with the fewest sites.

    same: whether no site left or joined.
    """
    if chosen.discloses == "value" or sites < 2:
        return "The coordinator sees each site's input to every sum"
    coalition = min(chosen.smallest_coalition(sites), sites - 1)
    who = "all other sites" if coalition == sites - 1 else f"at least {coalition} other sites"
    if coalition == 1:
        who = "one other site"
    of = "" if same else " that no site dropped from"
    return f"To reveal one site's input to one {chosen.name} sum{of}, {who} must collude, even if the coordinator helps"


def privacy_report(scenario: Scenario, accountant: PrivacyAccountant | None, folder: Path) -> PrivacyReport | None:
    """Return the releases of a run, and the files that noise does not cover; None without releases."""
    report = None if accountant is None else accountant.report()
    return None if report is None else replace(report, not_covered=tuple(_not_covered(scenario, folder)))


def _not_covered(scenario: Scenario, folder: Path) -> Iterator[str]:
    """Yield a sentence for each part of a run's folder that noise does not cover."""
    compare, data = scenario.compare, scenario.data
    if (folder / JOURNAL).is_dir():
        yield f"{JOURNAL}: every sum that the coordinator saw, on its disk; remove it when the run is over"
    tested = [
        *(["metrics"] if data.folds is not None or data.test_fraction or data.test_source else []),
        *(["centralised"] if compare.centralised else []),
        *(["baselines"] if compare.baselines else []),
    ]
    if tested:
        yield f"{', '.join(tested)}: exact figures of private rows, which only a simulation has together"
    yield "cost, progress, timing, disclosures, log.jsonl, ledger.parquet: how many rounds training took, and how long"
    if scenario.collusion is not None:
        yield "collusion, transcripts: what colluding parties saw of sums"
