"""The scenario of a task, from what its form says."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from fedsvm.algorithms import column_description, column_prediction
from fedsvm.algorithms.algorithm import VerticalAlgorithm
from fedsvm.algorithms.registry import ALGORITHMS, DEFAULT_ALGORITHM
from fedsvm.algorithms.settings import Setting, settings
from fedsvm.federation.site.terms import Terms
from fedsvm.federation.text import list_names
from fedsvm.protocols.sums.registry import DROPOUT_SUM
from fedsvm.scenarios import description
from fedsvm.scenarios.hosts import host_scenario as across_hosts
from fedsvm.scenarios.hub import public_rows
from fedsvm.scenarios.run.offered_terms import resolve_settings, terms_of
from fedsvm.scenarios.schema import spec
from fedsvm.scenarios.schema.changes import value_of
from fedsvm.scenarios.schema.errors import ScenarioError
from fedsvm.scenarios.schema.spec import Scenario, resolved_toml

MIN_PARTICIPANTS, MAX_PARTICIPANTS = 2, 50
DESCRIBE = column_description.NAME
"""In place of an algorithm: a task that describes columns and trains nothing. Also the kind of such a task."""
PREDICT = column_prediction.NAME
"""The kind of a task that predicts new records by the model of another one."""
TRAIN = "train"
"""The kind of all other tasks."""
_PREDICT_SUMMARY = "Decision values of new records, whose columns are at different participants, by a trained model."
_DESCRIBE_SUMMARY = "Counts, gaps, means, quantiles and frequencies of columns over all participants, without training."
_LOOKS_EVERY_S = 60.0
_FILES_OF_HUB = ("ledger",)
"""Settings that name a file of the coordinator, whose machine is not the creator's."""
_ESSENTIAL = {
    *("C", "budget", "class_weight", "delta", "epsilon", "features", "gamma", "inner_folds", "kernel", "landmarks"),
    *("loss", "max_depth", "regularisation", "remove", "size", "statistic", "threshold", "threshold_target"),
}
"""Settings that a form shows at once, of whatever algorithm. It folds the others, if they are more than a few."""
_FEW_SETTINGS = 6
_NOT_A_NAME = re.compile(r"[^A-Za-z0-9._-]+")
_NUMBER = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,3})?"
_RANGE = re.compile(rf"\S.*\s{_NUMBER}\s+{_NUMBER}")


@dataclass(frozen=True)
class TaskForm:
    """The request of a task's creator, as text from a form.

    Parameters
    ----------
    algorithm : str
        Its name, or `DESCRIBE`.
    settings : mapping of str to str
        Those that were written, by name; others are as the algorithm has them.
    label : str
        The column of labels.
    positive, negative : str
        Its values.
    sum : str
        The secure sum.
    more_classes : str
        Further values, with commas between them; then each class is told from the others.
    test_fraction : str
        Of the rows that are not trained on.
    folds : str
        Number of folds in which models are tested, in place of a test fraction.
    label_site : str
        Of columns that are at different participants, who holds the labels.
    identifier : str
        The column by which their records are aligned in secret; without one they come in the same order.
    statistics_privacy : str
        Of participants with the same columns: mu of their noisy statistics; empty for the default of the algorithm.
    ranges : str
        A line for each numeric column whose range is public: its name, its lowest and its highest value.
    public_rows : str
        Of algorithms that promise privacy: rows that are nobody's secret, as CSV with the columns of the participants.
    committee : str
        The participants that are the members of the committee, the dealer last, with commas or spaces between them;
        empty or "auto" if participants draw it.
    compare_sites : {"no", "yes"}
        Of participants with the same columns: whether each also trains a model of its own, to compare with.
    """

    algorithm: str
    settings: Mapping[str, str] = field(default_factory=dict)
    label: str = "label"
    positive: str = ""
    negative: str = ""
    more_classes: str = ""
    sum: str = DROPOUT_SUM
    test_fraction: str = "0.2"
    folds: str = ""

    @property
    def classes(self) -> list[str]:
        """All values of the label: negative, positive, and more."""
        more = [each.strip() for each in self.more_classes.split(",")]
        return [self.negative, self.positive, *filter(None, more)]

    label_site: str = ""
    identifier: str = ""
    statistics_privacy: str = ""
    ranges: str = ""
    public_rows: str = ""
    committee: str = ""
    compare_sites: str = "no"

    @property
    def members(self) -> list[str]:
        """The named members of the committee; none if participants draw it."""
        return [] if self.committee.strip() in ("", "auto") else self.committee.replace(",", " ").split()

    @property
    def kind(self) -> str:
        """The kind of the task."""
        return DESCRIBE if self.algorithm == DESCRIBE else TRAIN


def askable() -> list[str]:
    """Return the algorithms that tasks can use."""
    return [name for name, found in ALGORITHMS.loadable() if _is_askable(found)]


def default() -> str:
    """Return the default algorithm of a form: the first for columns of the same rows, as in the paper of the
    service."""
    return next(filter(is_vertical, askable()))


def choices() -> list[str]:
    """Return what a form offers: the algorithms, and to describe columns."""
    return [*askable(), DESCRIBE]


def is_vertical(name: str) -> bool:
    """Return whether participants hold columns of the same rows."""
    return name != DESCRIBE and isinstance(ALGORITHMS[name], VerticalAlgorithm)


def takes_public_rows(name: str) -> bool:
    """Return whether an algorithm takes scale and features from public rows, and from no participant's."""
    return name != DESCRIBE and getattr(ALGORITHMS[name], "scaling", "") == "public-rows"


def masks(name: str) -> bool:
    """Return whether an algorithm can hide systems behind a committee."""
    return any(each.name == "masking" for each in fields_of(name))


def summary_of(name: str) -> str:
    """Return what an algorithm is, in a sentence."""
    of_others = {DESCRIBE: _DESCRIBE_SUMMARY, PREDICT: _PREDICT_SUMMARY}
    return of_others.get(name) or ALGORITHMS[name].summary


def fields_of(name: str) -> list[Setting]:
    """Return the settings of an algorithm, from which its form is made."""
    if name == DESCRIBE:
        return []
    return [each for each in settings(ALGORITHMS[name].Settings) if each.name not in _FILES_OF_HUB]


def split_fields(name: str) -> tuple[list[Setting], list[Setting]]:
    """Return the settings of an algorithm that its form shows, and those that it folds."""
    found = fields_of(name)
    if len(found) <= _FEW_SETTINGS:
        return found, []
    return [each for each in found if each.name in _ESSENTIAL], [each for each in found if each.name not in _ESSENTIAL]


def default_mu(name: str) -> float:
    """Return the mu of noisy statistics that a task has if its form does not set one."""
    return ALGORITHMS[DEFAULT_ALGORITHM if name == DESCRIBE else name].statistics_privacy


def scenario_of(name: str, wish: TaskForm, sites: Sequence[str], min_sites: int) -> Scenario:
    """Return the scenario of a task. Raises ScenarioError with all mistakes."""
    if wish.algorithm not in choices():
        raise ScenarioError([f"algorithm.name: must be one of {', '.join(choices())}, got {wish.algorithm!r}."])
    if problems := [*_unsaid(wish), *_range_problems(wish)]:
        raise ScenarioError(problems)
    data: dict[str, Any] = {"label": wish.label, "classes": wish.classes}
    data |= {"positive": wish.positive} if len(wish.classes) == 2 else {}
    if takes_public_rows(wish.algorithm):
        data |= {"public_source": public_rows.FILE, "test_fraction": 0.0}
    else:
        tested = "folds" if wish.folds else "test_fraction"
        data[tested] = value_of(getattr(wish, tested))
    if is_vertical(wish.algorithm):
        data |= {"source": across_hosts.HELD_BY_SITE, "partition": "vertical"}
        data |= {"label_site": wish.label_site or sites[0], "align": "identifier" if wish.identifier else "position"}
        data |= {"identifier": wish.identifier} if wish.identifier else {}
    else:
        data |= {"sources": dict.fromkeys(sites, across_hosts.HELD_BY_SITE)}
        data |= {} if takes_public_rows(wish.algorithm) else {"tested_by": "sites"}
        data |= {"statistics_privacy": value_of(wish.statistics_privacy)} if wish.statistics_privacy else {}
        data |= {"ranges": dict(map(_range, _range_lines(wish)))}
    given = {
        "name": run_name(name),
        "federation": {"names": list(sites), "min_sites": min_sites},
        "data": data,
        "algorithm": {
            **{key: value_of(text) for key, text in wish.settings.items() if text.strip()},
            "name": DEFAULT_ALGORITHM if wish.kind == DESCRIBE else wish.algorithm,
        },
        "protocol": {"sum": wish.sum, "routing": "via-coordinator"}
        | ({"committee": wish.members} if wish.members else {}),
        "compare": {"centralised": False, "baselines": False, "sites": _compares_sites(wish)},
    }
    try:
        scenario = spec.validate(given)
    except ScenarioError as error:
        raise ScenarioError([across_hosts.in_words_of_hosts(problem, sites) for problem in error.problems]) from None
    if problems := list(across_hosts.class_problems(scenario)):
        raise ScenarioError(problems)
    return description.describable(scenario) if wish.kind == DESCRIBE else _fix_settings(scenario)


def _fix_settings(scenario: Scenario) -> Scenario:
    """Return the scenario with what "auto" leaves to the task resolved, which stays the same however many join.

    Participants look for messages once in a while, as on a network that is as slow.
    """
    given = tomllib.loads(resolved_toml(scenario))
    resolved, _ = resolve_settings(scenario, latency_s=_LOOKS_EVERY_S)
    said, found = given["algorithm"], asdict(resolved)
    given["algorithm"] = {key: found[key] if value == "auto" else value for key, value in said.items()}
    return spec.validate(given)


def over(scenario: Scenario, sites: Sequence[str]) -> Scenario:
    """Return the same scenario over the sites that joined. Raises ScenarioError."""
    given = tomllib.loads(resolved_toml(scenario))
    given["federation"] |= {"names": list(sites), "sites": len(sites)}
    if given["data"].get("sources"):
        given["data"]["sources"] = dict.fromkeys(sites, across_hosts.HELD_BY_SITE)
    return spec.validate(given)


def lost_members(scenario: Scenario, sites: Sequence[str]) -> str:
    """Return in a sentence which named members of the committee are not among the sites that joined; "" if all are."""
    lost = [member for member in scenario.committee if member not in sites]
    why = "did not join, and nobody may serve in place of a named member; create a task with other members."
    return f"Committee: {list_names(lost)} {why}" if lost else ""


def fewest(scenario: Scenario) -> int:
    """Return the number of sites that sums of a task may begin with, which is the same however many join."""
    allowed = scenario.federation.min_sites
    return max(allowed, scenario.protocol.min_sites(allowed))


def terms(scenario: Scenario, kind: str) -> Terms:
    """Return the terms of a task of a kind, which are the same however many join."""
    offered = description.terms_to_describe(scenario) if kind == DESCRIBE else terms_of(scenario)
    return replace(offered, min_sites=fewest(scenario))


def run_name(title: str) -> str:
    """Return a name for the run of a task, made from its title."""
    return _NOT_A_NAME.sub("-", title).strip("-._")[:60] or "task"


def can_compare_sites(name: str) -> bool:
    """Return whether participants can compare models of their own with the common one."""
    return name != DESCRIBE and not is_vertical(name) and not takes_public_rows(name)


def _compares_sites(wish: TaskForm) -> bool:
    return wish.compare_sites == "yes" and can_compare_sites(wish.algorithm)


def _unsaid(wish: TaskForm) -> list[str]:
    said = {"label": wish.label, "positive": wish.positive, "negative": wish.negative}
    why = "is missing; the task must name it, because no participant sees all labels."
    problems = [f"data.{key}: {why}" for key in said if not said[key]]
    files = [name for name in _FILES_OF_HUB if wish.settings.get(name, "").strip()]
    problems += [f"algorithm.{name}: a task cannot name a file of the hub; remove it." for name in files]
    if takes_public_rows(wish.algorithm) and not wish.public_rows:
        problems.append(f"Public rows: are missing; {wish.algorithm} takes scale and features from them.")
    if wish.positive and len(set(wish.classes)) < len(wish.classes):
        problems.append("data.classes: must all be different; remove the one that is there twice.")
    return problems


def _range_lines(wish: TaskForm) -> list[str]:
    return [line.strip() for line in wish.ranges.splitlines() if line.strip()]


def _range_problems(wish: TaskForm) -> list[str]:
    """Return what is wrong with lines of ranges."""
    return [
        f"Ranges: each line must be a column, its lowest and its highest value, such as age 0 120, got {line[:80]!r}."
        for line in _range_lines(wish)
        if not _RANGE.fullmatch(line)
    ]


def _range(line: str) -> tuple[str, list[float]]:
    """Return the column and the range of a line."""
    name, low, high = line.rsplit(maxsplit=2)
    return name, [float(low), float(high)]


def _is_askable(algorithm: Any) -> bool:
    vertical = isinstance(algorithm, VerticalAlgorithm)
    rows = not vertical and getattr(algorithm, "scaling", "") in ("secure-sums", "public-rows")
    return (vertical or rows) and bool(algorithm.Site.is_replayable)
