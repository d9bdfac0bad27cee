"""Statements on secrecy: of a single sum beside the whole run, and no more protection than attacks leave."""

from __future__ import annotations

import html
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from fedsvm import run
from fedsvm.algorithms.leakage import LISTED as LISTED_RECORDS
from fedsvm.algorithms.leakage import Recovery, WholeRunLeakage
from fedsvm.algorithms.naive_bayes import NaiveBayesSettings
from fedsvm.federation.report import MembershipReport
from fedsvm.protocols.analysis.views import Coalition
from fedsvm.scenarios.data import dataset
from fedsvm.scenarios.report.summary import lines
from fedsvm.scenarios.run import runner
from fedsvm.scenarios.run.audit import PartyAudit
from fedsvm.scenarios.run.secrecy import secrecy
from fedsvm.scenarios.schema import spec
from tests.conftest import long_but_for
from tests.run_results import simulate
from tests.test_selection_attacks import COLUMNS


def cards(path: Path, count: int = 150) -> Path:
    """Write rows of four columns of three categories, all combinations of which can be listed."""
    random = np.random.default_rng(4)
    codes = random.integers(0, 3, size=(count, 4))
    labels = codes[:, 0] + codes[:, 1] * (codes[:, 2] > 0) + random.normal(0, 0.7, count) > 1.5
    lines = [",".join(["red", "green", "blue"][code] for code in row) for row in codes]
    body = "\n".join(f"{line},{'yes' if label else 'no'}" for line, label in zip(lines, labels, strict=True))
    path.write_text(f"a,b,c,d,label\n{body}\n")
    return path


def audited(
    folder: Path, changes: Sequence[str], monkeypatch: pytest.MonkeyPatch
) -> tuple[WholeRunLeakage | None, list[PartyAudit]]:
    """Return what a scenario's algorithm states of a whole run, and what the parties that it speaks of recover.

    These are the coordinator, the coordinator with a site, and this site, if it is spoken of.
    """
    folder.mkdir(parents=True)
    written = folder.with_suffix(".toml")
    written.write_text("[federation]\nsites = 3\n[compare]\ncentralised = false\n[collusion]\ncoordinator = true\n")
    scenario, base = spec.read(str(written), overrides=changes)
    stated = scenario.algorithm.implementation.whole_run(scenario.algorithm.settings)
    coalitions = [Coalition((), coordinator=True), Coalition(("site-1",), coordinator=True)]
    if stated is not None and stated.one_site is not None:
        coalitions.append(Coalition(("site-1",), coordinator=False))
    monkeypatch.setattr(runner, "standard_coalitions", lambda sites: coalitions)
    monkeypatch.setattr(runner, "file_audits", lambda *run: [])
    finished = runner.run(scenario, dataset.prepare(scenario, base), folder, audit=True)
    assert finished.result.error is None, finished.traceback
    return stated, list(finished.result.audit)


def check(stated: Recovery | None, audit: PartyAudit, *, has_prior: bool) -> None:
    """Check that no attack recovers more than is stated. has_prior: the audit has what the statement supposes."""
    recovered = {each.attack: each.recovered for each in audit.attacks if each.recovered}
    if stated is None:
        assert not recovered
        return
    extents = {stated.extent if has_prior or not stated.given else None, stated.otherwise}
    if extents & {"every row", "every record"}:
        return
    if "some rows" in extents:
        assert audit.recovered < audit.rows
    else:
        assert recovered.keys() <= ({"landmarks"} if "copies" in extents else set())


PAN = "algorithm.name=pan-svm"
HYBRID = "algorithm={name='hybrid-svm', features=40}"
VERTICAL = ("data.partition=vertical", "data.label_site=1", "data.split=even")
CASES: dict[str, tuple[str, ...]] = {
    "pan-svm": (PAN, "algorithm.landmarks=40"),
    "pan-svm orthogonal": (PAN, "algorithm.masking=orthogonal", "algorithm.landmarks=40"),
    "pan-svm unmasked": (PAN, "algorithm.masking=none", "algorithm.landmarks=40"),
    "pan-svm committee": (PAN, "algorithm.masking=committee", "algorithm.landmarks=40"),
    "pan-svm kept by sites": (PAN, "algorithm.release=sites", "algorithm.landmarks=40"),
    "pan-svm copies": (PAN, "algorithm.min_cluster_size=1", "algorithm.landmarks=60"),
    "pan-svm global": (PAN, "algorithm.landmark_method=global", "algorithm.landmarks=40"),
    "pan-svm fourier": (PAN, "algorithm.features=fourier", "algorithm.frequencies=20"),
    "pan-svm identity": (PAN, "algorithm.features=identity", "algorithm.kernel=linear"),
    "pan-svm cuts": (PAN, "algorithm.solver=cutting-plane", "algorithm.landmarks=40"),
    "pan-svm plain sums": (PAN, "protocol.sum=plain", "algorithm.landmarks=40"),
    "svm-admm": ("algorithm.name=svm-admm", "algorithm.landmarks=40"),
    "voting-ensemble": ("algorithm.name=voting-ensemble", "algorithm.landmarks=40"),
    "voting-ensemble votes": ("algorithm.name=voting-ensemble", "algorithm.release=sites", "algorithm.landmarks=40"),
    "least-squares": ("algorithm.name=least-squares", "algorithm.landmarks=40"),
    "least-squares committee": (
        "algorithm.name=least-squares",
        "algorithm.masking=committee",
        "algorithm.landmarks=40",
    ),
    "least-squares global": (
        "algorithm.name=least-squares",
        "algorithm.landmarks=40",
        "algorithm.landmark_method=global",
    ),
    "logistic-regression": ("algorithm.name=logistic-regression", "algorithm.landmarks=40"),
    "logistic-regression committee": (
        "algorithm.name=logistic-regression",
        "algorithm.masking=committee",
        "algorithm.landmarks=20",
    ),
    "binned-least-squares": ("algorithm.name=binned-least-squares", "algorithm.gamma=0.1"),
    "decision-tree": ("algorithm.name=decision-tree",),
    "decision-tree small": ("algorithm.name=decision-tree", "algorithm.min_class_rows=1"),
    "decision-tree folds": ("algorithm.name=decision-tree", "data.folds=3", "data.test_fraction=0"),
    "pp-svm": ("algorithm.name=pp-svm",),
    "naive-bayes": ("algorithm.name=naive-bayes",),
    "filter": ("algorithm.name=filter", "algorithm.landmarks=20"),
    "rfe": ("algorithm.name=rfe", "algorithm.landmarks=20"),
    "rfe committee": ("algorithm.name=rfe", "algorithm.landmarks=20", "algorithm.masking=committee"),
    "rfe cuts": ("algorithm.name=rfe", "algorithm.select_solver=cutting-plane", "algorithm.landmarks=20"),
    "voted-wrappers": ("algorithm.name=voted-wrappers", "algorithm.landmarks=20"),
    "voted-wrappers any change": (
        "algorithm.name=voted-wrappers",
        "algorithm.min_change=0",
        "algorithm.landmarks=20",
    ),
    "sparse-svm": ("algorithm.name=sparse-svm", "algorithm.landmarks=20"),
    "hybrid-svm": (HYBRID, "algorithm.mechanism=none", "data.public=30"),
    "hybrid-svm committee": (HYBRID, "algorithm.mechanism=none", "algorithm.masking=committee", "data.public=30"),
    "dpp-svm": ("algorithm.name=dpp-svm", *VERTICAL),
    "dpp-svm rbf": ("algorithm.name=dpp-svm", "algorithm.kernel=rbf", *VERTICAL),
    "dpp-svm plain": (
        "algorithm.name=dpp-svm",
        "algorithm.kernel_exchange=plain",
        *VERTICAL,
    ),
    "dpp-svm landmarks": (
        "algorithm.name=dpp-svm",
        "algorithm.landmarks=20",
        *VERTICAL,
    ),
    "dpp-selection": ("algorithm.name=dpp-selection", *VERTICAL),
}


LISTED, NUMBERS = "cards", "wdbc"
EXAMPLES = [(case, LISTED) for case in CASES] + [(case, NUMBERS) for case in CASES if case != "pp-svm"]


@pytest.mark.parametrize("example", long_but_for(EXAMPLES, ("pan-svm", LISTED)), ids="{0[0]} of {0[1]}".format)
def test_no_statement_claims_more_protection_than_attacks_leave(
    example: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With categories, whose combinations anybody can list, and with numbers, of which nobody has a list."""
    case, source = example
    changes = ["data.source=wdbc", "data.positive=malignant", *CASES[case]]
    changes += [] if {"data.folds=3", *VERTICAL} & set(changes) else ["data.rows=200"]
    if case in ("rfe", "rfe committee", "voted-wrappers", "voted-wrappers any change"):
        changes.append(f"data.ignore={json.dumps(COLUMNS)}")  # each further column is removed like those that are left
    if source == LISTED:
        changes = [f"data.source={cards(tmp_path / 'cards.csv')}", "data.scale=none", "data.positive=yes", *CASES[case]]
        changes += [] if set(VERTICAL) & set(changes) else ["collusion.candidates=source"]
    stated, (alone, with_site, *one_site) = audited(tmp_path / "run", changes, monkeypatch)
    if stated is None:
        assert alone.recovered == with_site.recovered == 0
        return
    has_prior = source == LISTED or set(VERTICAL) <= set(changes)  # a list, or records that are known before
    check(stated.alone, alone, has_prior=has_prior)
    check(stated.with_site, with_site, has_prior=has_prior)
    for audit in one_site:
        check(stated.one_site, audit, has_prior=has_prior)
    if case == "pan-svm" and source == LISTED:
        assert with_site.recovered == with_site.rows, "every row is what the statement says"


@pytest.mark.parametrize("masking", long_but_for(["congruence", "committee"], "committee"))
def test_only_two_members_of_a_committee_have_the_systems_in_chosen_columns(
    masking: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of three sites, every two are members in every round. Every record that there can be is on the list."""
    coalitions = [Coalition(("site-1", "site-2"), coordinator=True), Coalition(("site-1",), coordinator=True)]
    monkeypatch.setattr(runner, "standard_coalitions", lambda sites: coalitions)
    scenario = tmp_path / "cards.toml"
    scenario.write_text(
        f"""
        data = {{ source = "{cards(tmp_path / "cards.csv")}", positive = "yes", scale = "none" }}
        federation.sites = 3
        algorithm = {{ name = "rfe", size = 9, remove = "half", landmarks = 40, masking = "{masking}" }}
        compare.centralised = false
        collusion = {{ coordinator = true, candidates = "source" }}
        """
    )
    result = simulate(scenario, tmp_path / "run", audit=True).result
    assert result.error is None
    found = {each.parties: each for each in result.audit}
    systems = {
        parties: [attack for attack in each.attacks if attack.attack == "Newton systems"]
        for parties, each in found.items()
    }
    by_systems = {parties: sum(attack.recovered for attack in attacks) for parties, attacks in systems.items()}
    assert not any(attack.false_claims for attacks in systems.values() for attack in attacks)
    assert by_systems["site-1", "site-2", "coordinator"] == found["site-1", "site-2", "coordinator"].rows > 20
    assert not by_systems["coordinator",]
    assert (by_systems["site-1", "coordinator"] > 40) == (masking == "congruence")
    assert (by_systems["site-1", "coordinator"] == 0) == (masking == "committee")


ALL_SITES = MembershipReport(0, "launch", {}, (), tuple(f"site-{number}" for number in range(1, 6)))
TWO_LEFT = MembershipReport(7, "train", {"site-1": "it died"}, (), ("site-4", "site-5"))


@pytest.mark.parametrize(
    ("sum_name", "memberships", "says"),
    [
        ("ring", [ALL_SITES], "one ring sum, at least 2 other sites must collude, even if the coordinator helps"),
        ("masked", [ALL_SITES], "one masked sum, all other sites must collude, even if the coordinator helps"),
        ("ring", [ALL_SITES, TWO_LEFT], "sum that no site dropped from, one other site must collude, even if"),
        ("plain", [ALL_SITES], "The coordinator sees each site's input to every sum"),
    ],
)
def test_a_single_sum_is_never_stated_without_the_whole_run(
    sum_name: str, memberships: list[MembershipReport], says: str
) -> None:
    scenario, _ = spec.read("quickstart", overrides=[f"protocol.sum={sum_name}"])
    found = secrecy(scenario, memberships, None)
    assert says in found.single_sum
    assert found.whole_run.startswith("the coordinator and any one site together can recover every row")
    assert found.analyzed


def test_statements_follow_from_the_settings() -> None:
    def stated(*changes: str) -> str:
        scenario, _ = spec.read("quickstart", overrides=changes)
        return secrecy(scenario, [ALL_SITES], None).whole_run

    assert stated().startswith("the coordinator and any one site together can recover every row of the other sites if")
    both = "; the coordinator alone, or any one site alone, can recover some rows if the possible records can be listed"
    assert both + ", and rows that equal a landmark otherwise" in stated()
    kept = stated("algorithm.release=sites")
    assert "; the coordinator alone can recover rows that equal a landmark; any one site alone can recover some" in kept
    for change in ("algorithm.solver=cutting-plane", "algorithm.solver=auto", "algorithm.masking=none"):
        assert stated(change).startswith("the coordinator, alone or with any one site, can recover every row")
    for change in ("algorithm.release=sites", "algorithm.class_weight=balanced"):
        assert stated(change, "algorithm.solver=auto") == stated(change, "algorithm.solver=interior-point")
    members, with_site, *_ = stated("algorithm.masking=committee").split("; ")
    assert members.startswith("the coordinator and two of the three committee members can recover every row")
    assert with_site.startswith("the coordinator, alone or with any one site, can recover some rows if")
    assert not spec.read("naive-bayes")[0].algorithm.implementation.whole_run(NaiveBayesSettings())


def test_noisy_statistics_limit_what_the_model_file_tells() -> None:
    def stated(*changes: str) -> str:
        scenario, _ = spec.read("quickstart", overrides=["data.statistics_privacy=0.5", *changes])
        return secrecy(scenario, [ALL_SITES], None).whole_run

    for method in ("auto", "drawn"):
        said = stated(f"algorithm.landmark_method={method}")
        assert "the coordinator alone" not in said
        assert "can name training rows" not in said
        assert "equal a landmark" not in said
        exact = stated(f"algorithm.landmark_method={method}", "algorithm.objective_noise=0")
        assert "; whoever holds the model file can name training rows if the possible records can be listed; " in exact
        assert "the coordinator alone, or any one site alone, can recover some rows" in exact
        assert "by its scale and drawn landmarks with an AUC of 0.64 at most (mu 0.5), " in said
        assert said.endswith("no such limit holds for its weights or for landmarks that are means with noise")
    for name in ("local", "global"):
        assert stated(f"algorithm.landmark_method={name}").endswith("can name training rows if " + LISTED_RECORDS)
    tree, bayes = stated("algorithm.name=decision-tree"), stated("algorithm.name=naive-bayes")
    assert tree.endswith(
        "by its scale with an AUC of 0.64 at most (mu 0.5), and no noise limits what its other arrays reveal"
    )
    assert bayes.endswith("whoever holds the model file can tell a row with an AUC of 0.64 at most (mu 0.5)")
    assert "name training rows" not in bayes
    scenario, _ = spec.read("naive-bayes", overrides=["data.scale=standard", "data.statistics_privacy=0"])
    assert secrecy(scenario, [ALL_SITES], None).whole_run.endswith("can name training rows if " + LISTED_RECORDS)


def test_result_and_summary_of_a_private_run_state_what_the_promise_covers(tmp_path: Path) -> None:
    changes = {"data.public": 60, "compare.centralised": False, "compare.baselines": False}
    result = run("dp-logistic", changes=changes, out=tmp_path / "run")
    written = json.loads((tmp_path / "run" / "result.json").read_text())["secrecy"]
    assert not written["analyzed"]
    assert "was not analyzed; `fedsvm audit SCENARIO`" in written["whole_run"]
    covered = "everyone who gets the model; not the coordinator and the sites, which saw it trained"
    assert written["whole_run"].endswith(f". Differential privacy covers {covered}")
    shown = dict(lines(result))
    assert (shown["one sum"], shown["all sums"]) == (written["single_sum"], written["whole_run"])
    page = html.unescape((tmp_path / "run" / "report.html").read_text())
    assert written["single_sum"] in page
    assert written["whole_run"] in page
