"""A site's own policy: what it does not allow is refused by its process, before anything is computed."""

from __future__ import annotations

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedsvm.federation.control import GatherTerms, Order, SumTerms
from fedsvm.federation.errors import Malformed, OrderRefused
from fedsvm.federation.site.rules import SiteRules
from fedsvm.federation.site.terms import Terms
from fedsvm.federation.transport.keys import COORDINATOR
from fedsvm.scenarios.run.offered_terms import terms_of
from fedsvm.scenarios.schema import spec
from fedsvm.scenarios.schema.errors import ScenarioError
from fedsvm.scenarios.schema.policy import read_policy, template
from tests.conftest import long_but_for
from tests.hosts import NAMES, hosts
from tests.run_results import simulate

TERMS = Terms("pan-svm", {"solver": "interior-point", "min_cluster_size": 3}, "masked", {"threshold": 0.6}, 3)
TERMS = replace(TERMS, reading={"statistics_privacy": 0.5})


def write(folder: Path, text: str) -> Path:
    path = folder / "north.toml"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[algorithms.pan-svm]\nmin_cluster_size = { min = 5 }", "min_cluster_size must be 5 or more, got 3"),
        ('[algorithms.pan-svm]\nsolver = ["cutting-plane"]', 'solver must be "cutting-plane", got "interior-point"'),
        ("[algorithms.naive-bayes]", "the algorithm must be naive-bayes, got pan-svm"),
        ("[sums.ring]", "the sum must be ring, got masked"),
        ("[sums.masked]\nthreshold = { min = 0.8 }", "threshold must be 0.8 or more, got 0.6"),
        ("[sums.masked]\nmin_sites = 4", "sums must be of 4 sites or more, and the run continues with 3"),
        ("release = false", "the sites alone may keep the model"),
        ("max_epsilon = 1.0", "epsilon must be 1 or less, and the run promises none"),
        ('max_mu = 0.4\nanswers = "a"', r"data\.statistics_privacy must be 0\.4 or less, got 0\.5"),
    ],
)
def test_terms_beyond_a_rule_are_refused(text: str, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(OrderRefused, match=f"by this site's policy .*{sentence}"):
        read_policy(write(tmp_path, text)).check_terms(TERMS)


@pytest.mark.parametrize(
    ("allowed", "refused"), [("[]", "east, north, south"), ('["north", "west"]', "east, south")], ids=["drawn", "two"]
)
def test_terms_that_name_members_whom_a_site_does_not_accept_are_refused(
    allowed: str, refused: str, tmp_path: Path
) -> None:
    rules = read_policy(write(tmp_path, f"committee = {allowed}"))
    rules.check_terms(TERMS)
    with pytest.raises(OrderRefused, match=f"protocol.committee must not name {refused}; without the key"):
        rules.check_terms(replace(TERMS, committee=("east", "north", "south")))
    read_policy(write(tmp_path, "release = true")).check_terms(replace(TERMS, committee=("east", "north", "south")))


def test_a_budget_of_noisy_statistics_refuses_exact_ones(tmp_path: Path) -> None:
    rules = read_policy(write(tmp_path, 'max_mu = 0.5\nanswers = "a"'))
    rules.check_terms(TERMS)
    rules.check_terms(replace(TERMS, epsilon=1.0, reading={"statistics_privacy": 0.0}))
    with pytest.raises(OrderRefused, match=r"must be above 0 and 0\.5 or less, and the run takes exact statistics"):
        rules.check_terms(replace(TERMS, reading={"statistics_privacy": 0.0}))
    with pytest.raises(ScenarioError, match="max_mu needs answers"):
        read_policy(write(tmp_path, "max_mu = 0.5"))


def test_a_template_is_a_policy_that_allows_a_careful_run(tmp_path: Path) -> None:
    rules = read_policy(write(tmp_path, template("pan-svm", "north")))
    settings = {
        "solver": "interior-point",
        "masking": "congruence",
        "objective_noise": 0.2,
        "step_noise": 0.2,
        "tolerance": 0.2,
        "min_cluster_size": 3,
    }
    rules.check_terms(Terms("pan-svm", settings, "masked", {"threshold": 0.67}, 3))


def test_a_template_requires_a_committee_of_algorithms_without_other_masks() -> None:
    for name in ("least-squares", "logistic-regression"):
        assert 'masking = ["committee"]' in template(name, "north")
    assert 'masking = ["congruence", "committee"]' in template("pan-svm", "north")


def test_a_template_requires_noise_in_the_objective_of_algorithms_that_add_it_by_default() -> None:
    assert "objective_noise = { min = 0.2 }" in template("pan-svm", "north")
    assert "objective_noise" not in template("rfe", "north")


@pytest.mark.parametrize(
    ("algorithm", "says"),
    [
        ("pan-svm", "the coordinator and any one site together can recover every row of the other sites"),
        ("least-squares", "together: the coordinator and two of the three committee members can recover every row"),
        ("naive-bayes", "what all sums show together was not analyzed; `fedsvm audit SCENARIO`"),
        ("hybrid-svm", "Differential privacy covers who gets the model"),
    ],
)
def test_a_template_says_what_its_rules_do_not_limit(algorithm: str, says: str) -> None:
    comments = [line.removeprefix("# ") for line in template(algorithm, "north").splitlines() if line.startswith("# ")]
    assert says in " ".join(comments)


@pytest.mark.parametrize(
    ("order", "sentence"),
    [
        (Order("row_count", "gather", GatherTerms(()), sites=NAMES), "column_sums is shown in the clear, and not"),
        (Order("cuts", "ring", SumTerms((3,), 1.0, {}, COORDINATOR), sites=NAMES), "for 4 sites or more, got 3"),
        (Order("cluster", "cluster", None, {"min_cluster_size": 1}, sites=NAMES), "must be 3 or more, got 1"),
    ],
)
def test_orders_are_held_against_the_rules_whatever_the_terms_said(order: Order, sentence: str) -> None:
    rules = SiteRules(
        algorithms={"pan-svm": {"min_cluster_size": {"min": 3.0}}},
        sums={"ring": {"min_sites": 4}},
        gathers=("column_sums",),
    )
    with pytest.raises(OrderRefused, match=sentence):
        rules.check_order(order, "pan-svm")


def test_too_few_rows_and_other_columns_are_refused() -> None:
    rules = SiteRules(columns=("age",), min_rows=10)
    with pytest.raises(OrderRefused, match="10 rows or more, and has 9"):
        rules.check_held(9, ["age"])
    with pytest.raises(OrderRefused, match=r"trains only with age, and not with zip; add them to data\.ignore"):
        rules.check_held(10, ["age", "zip"])


def test_a_budget_alone_refuses_runs_that_promise_no_epsilon() -> None:
    """Nothing would charge them."""
    rules = SiteRules(budget=4.0, ledger="north.ledger")
    assert rules.refusals(Terms("pan-svm", {}, "masked", {}, 3)) == [
        "all runs together may spend epsilon 4, and the run promises none"
    ]
    assert rules.refusals(Terms("dp-erm", {}, "masked", {}, 3, epsilon=0.5)) == []


def test_runs_are_charged_once_and_never_beyond_the_budget(tmp_path: Path) -> None:
    rules = SiteRules(budget=1.0, ledger=str(tmp_path / "north.ledger"))
    terms = Terms("dp-erm", {}, "ring", {}, 3, epsilon=0.6)
    rules.charge(terms, b"run-1...")
    for run in (b"run-2...", b"run-1..."):  # the same run is another process, which draws its noise anew
        with pytest.raises(OrderRefused, match=r"may spend epsilon 1; 0\.6 is spent, and this one asks for 0\.6"):
            rules.charge(terms, run)
    assert [json.loads(line)["epsilon"] for line in Path(rules.ledger).read_text().splitlines()] == [0.6]


@pytest.mark.parametrize("line", ['{"run": "ab", "epsi', '{"run": "ab"}', '{"epsilon": NaN}', '{"epsilon": -3}', "[]"])
def test_a_ledger_that_is_damaged_ends_it_with_a_sentence(line: str, tmp_path: Path) -> None:
    rules = SiteRules(budget=1.0, ledger=str(tmp_path / "north.ledger"))
    (tmp_path / "north.ledger").write_text(f"{line}\n")
    with pytest.raises(OrderRefused, match=r"north\.ledger of its policy is damaged"):
        rules.charge(Terms("dp-erm", {}, "ring", {}, 3, epsilon=0.1), b"run-1...")


def test_what_a_run_promises_is_of_all_models_that_it_releases() -> None:
    scenario, _ = spec.read("dp-logistic", overrides=["algorithm.epsilon=0.5"])
    assert terms_of(scenario).epsilon == 0.5 * scenario.data.models
    folded, _ = spec.read("dp-logistic", overrides=["algorithm.epsilon=0.5", "algorithm.budget=2.0", "data.folds=3"])
    assert terms_of(folded).epsilon == 1.5


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("min_row = 3", "min_row: there is no such key"),
        ("[algorithms.pan-svn]", "there is no algorithm 'pan-svn'"),
        ("[algorithms.pan-svm]\nsolvers = ['x']", "pan-svm has no setting 'solvers'"),
        ("[sums.masked]\nsegments = { min = 2 }", "masked has no setting 'segments'"),
        ("budget = 1.0", "budget and ledger need each other"),
        ("min_rows = ", "is not valid TOML"),
    ],
)
def test_a_policy_file_that_cannot_be_is_refused_with_a_sentence(text: str, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(ScenarioError) as refused:
        read_policy(write(tmp_path, text))
    assert sentence in " ".join(refused.value.problems)


@pytest.mark.parametrize(
    ("policy", "sentence"),
    [
        ({"gathers": []}, "the value of step 'row_count' must not be shown in the clear"),
        ({"sums": {"masked": {}}}, "the sum must be masked, got ring"),
        ({"min_rows": 1000}, "it must have 1000 rows or more"),
    ],
)
def test_a_simulation_has_the_same_policies(policy: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    result = simulate("quickstart", tmp_path, changes={"policy": [{"site": 2, **policy}]}).result
    refused = "site-2 failed in round 0 (launch, step join): it refuses the order: by this site's policy"
    assert f"{refused} {sentence}" in str(result.error)
    assert result.cost is not None and result.cost.rounds == 0


PRIVATE = """\
[data]
label = "diagnosis"
positive = "M"
classes = ["B", "M"]
public_source = "public.csv"
categories = { ward = ["a", "b", "east", "north", "south"] }

[algorithm]
epsilon = 0.8
"""
PRIVATELY = {
    "dp-erm": 'name = "dp-erm"\nperturbation = "objective"\n',
    "hybrid-svm": 'name = "hybrid-svm"\nfeatures = 5\nvariant = "one-shot"\nmechanism = "laplace"\nprior = "public"\n',
}


def write_private(folder: Path, algorithm: str = "dp-erm") -> None:
    """A scenario of private training, and the coordinator's file of public rows."""
    shutil.copy(folder / "east.csv", folder / "public.csv")
    (folder / "hospitals.toml").write_text(f"{PRIVATE}{PRIVATELY[algorithm]}")


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("algorithm", PRIVATELY)
def test_a_deployment_that_asks_for_more_epsilon_than_a_site_has_left_is_refused_at_both_ends(
    algorithm: str, tmp_path: Path
) -> None:
    with hosts(tmp_path) as there:
        write_private(tmp_path, algorithm)
        (tmp_path / "north.toml").write_text('budget = 1.0\nledger = "north.ledger"')
        (tmp_path / "south.toml").write_text("max_epsilon = 0.9")
        of_south = ["--policy", "south.toml"] if algorithm == "hybrid-svm" else []  # the other has no noise of sites
        first = there.coordinator()
        begun = [
            there.site("east", first),
            there.site("north", first, "--policy", "north.toml"),
            there.site("south", first, *of_south),
        ]
        assert [each.ends() for each in (first, *begun)] == [0] * 4, [each.said for each in (first, *begun)]
        result = json.loads((tmp_path / "deployed" / "result.json").read_text())
        assert result["privacy"]["epsilon"] == 0.8
        assert [site["rows"] for site in result["sites"]] == [40, 40, 40]
        assert result["privacy"]["not_covered"][0].startswith("journal: ")
        spent = (tmp_path / "north.ledger").read_text()
        assert json.loads(spent)["epsilon"] == 0.8
        predicted = there.command("east", "predict", "deployed", "north.csv")
        assert predicted.ends() == 0, predicted.said

        second = there.coordinator("--out", "second")
        begun = [
            there.site("east", second),
            there.site("north", second, "--policy", "north.toml"),
            there.site("south", second),
        ]
        sentence = "all runs together may spend epsilon 1; 0.8 is spent, and this one asks for 0.8"
        assert second.ends() == 3
        assert sentence in second.said
        assert begun[1].ends() == 3 and sentence in begun[1].said
        assert (tmp_path / "north.ledger").read_text() == spent
        result = json.loads((tmp_path / "second" / "result.json").read_text())
        assert result["cost"] is None or result["cost"]["rounds"] == 0
        third = there.coordinator("--out", "third", "--set", "algorithm.epsilon=0.95")
        south = there.site("south", third, "--policy", "south.toml")
        assert south.ends() == 3 and "epsilon must be 0.9 or less, got 0.95" in south.said
        third.says("south declines")


@pytest.mark.parametrize(
    ("policy", "sentence"),
    [
        ({"max_epsilon": 0.5}, "epsilon must be 0.5 or less, got 1"),
        ({"min_rows": 10**6}, "it must have 1000000 rows or more, and has"),
    ],
)
def test_a_private_run_beyond_the_sites_epsilon_is_refused(
    policy: dict[str, Any], sentence: str, tmp_path: Path
) -> None:
    changes = {"policy": [{"site": 1, **policy}], "algorithm.epsilon": 1.0}
    result = simulate("dp-logistic", tmp_path, changes=changes).result
    assert sentence in str(result.error)
    assert result.cost is not None and result.cost.rounds == 0


def test_a_ledger_is_charged_once_for_a_run_and_refuses_the_next(tmp_path: Path) -> None:
    policy = {"site": 1, "budget": 1.5, "ledger": str(tmp_path / "site-1.ledger")}
    changes = {"policy": [policy], "algorithm.epsilon": 1.0}
    folders = [tmp_path / "first", tmp_path / "second"]
    first, second = (simulate("dp-logistic", folder, changes=changes).result for folder in folders)
    assert first.status == "completed", first.error
    assert "all runs together may spend epsilon 1.5; 1 is spent, and this one asks for 1" in str(second.error)


def test_a_release_over_other_sites_is_charged_to_the_sites_too(tmp_path: Path) -> None:
    """The sites draw the noise of these, so that a budget has no room for a release that nobody announced."""
    ledger = tmp_path / "site-1.ledger"
    changes: dict[str, Any] = {
        "federation.min_sites": 4,
        "algorithm.mechanism": "laplace",
        "algorithm.delta": None,
        "algorithm.features": 5,
        "algorithm.budget": 5.0,
        "data.source": "wdbc",
        "data.positive": "malignant",
    }
    outcomes = []
    for budget in (2.5, 1.5):
        changes["policy"] = [{"site": 1, "budget": budget, "ledger": str(ledger)}]
        ledger.unlink(missing_ok=True)
        # Site 3 ends before its first message, so after that of site 1, which has charged the release by then.
        fault = "kill:site=3,phase=train,round=4,message=1"
        folder = tmp_path / f"budget-{budget}"
        outcomes.append(simulate("hybrid-stand-in", folder, changes=changes, faults=[fault]).result)
        assert len(ledger.read_text().splitlines()) == (2 if budget == 2.5 else 1)
    enough, short = outcomes
    assert enough.status == "completed", enough.error
    assert enough.privacy is not None and len(enough.privacy.releases) == 2
    assert "all runs together may spend epsilon 1.5; 1 is spent, and this one asks for 1" in str(short.error)
    assert short.model is None


def test_a_policy_of_no_site_is_refused() -> None:
    with pytest.raises(ScenarioError, match=r"policy\.1: there is no site 'west'"):
        spec.read("quickstart", changes={"policy": [{"site": "west"}]})


EVERY_SITE = ("--set", "federation.min_sites=3")
REFUSED = {
    "plain": ("[sums.ring]", ("--set", "protocol.sum=plain", *EVERY_SITE), "the sum must be ring, got plain"),
    "too few sites": (
        "[sums.ring]\nmin_sites = 4",
        (),
        "sums must be of 4 sites or more, and the run continues with 3",
    ),
    "small clusters": (
        "[algorithms.pan-svm]\nmin_cluster_size = { min = 3 }",
        ("--set", "algorithm.min_cluster_size=1"),
        "min_cluster_size must be 3 or more, got 1",
    ),
    "a step that gathers": ("gathers = []", (), "the value of step 'row_count' must not be shown in the clear"),
}


@pytest.mark.parametrize("case", long_but_for(REFUSED, "too few sites"))
def test_a_site_on_a_host_of_its_own_refuses_at_both_ends_before_anything_is_computed(
    case: str, tmp_path: Path
) -> None:
    policy, words, sentence = REFUSED[case]
    with hosts(tmp_path) as there:
        write(tmp_path, policy)
        coordinator = there.coordinator(*words)
        north = there.site("north", coordinator, "--policy", "north.toml")
        assert (north.ends(), coordinator.ends()) == (3, 3)
    assert f"north does not take part: it refuses the order: by this site's policy {sentence}" in north.said
    assert f"north declines: it refuses the order: by this site's policy {sentence}" in coordinator.said
    result = json.loads((tmp_path / "deployed" / "result.json").read_text())
    assert sentence in result["error"]
    assert result["cost"] is None


@pytest.mark.parametrize("epsilon", [math.nan, math.inf, 0.0, -1.0])
def test_terms_with_an_epsilon_that_no_budget_can_bound_are_refused(epsilon: float) -> None:
    fields = replace(TERMS, epsilon=epsilon).to_fields()
    with pytest.raises(Malformed, match="epsilon of the terms must be a finite number above 0"):
        Terms.from_fields(fields)
