"""A site's own policy: a TOML file where the site is, or in a simulation a table of the scenario."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, field_validator, model_validator

from fedsvm.algorithms.algorithm import Premises
from fedsvm.algorithms.column_description import NAME as DESCRIBE
from fedsvm.algorithms.column_prediction import NAME as PREDICT
from fedsvm.algorithms.column_prediction import RULED
from fedsvm.algorithms.optimization.committee import BlindSystemSettings
from fedsvm.algorithms.registry import ALGORITHMS
from fedsvm.algorithms.settings import MAX_COUNT, settings
from fedsvm.federation.site.program import open_steps
from fedsvm.federation.site.rules import ANYTHING, MIN_CELL, MIN_SITES, SiteRules
from fedsvm.protocols.sums.registry import CAREFUL_SUMS, SUMS
from fedsvm.scenarios.schema.algorithm import whole_run
from fedsvm.scenarios.schema.base import Number, Part, SiteRef, resolve
from fedsvm.scenarios.schema.errors import nearest
from fedsvm.scenarios.schema.own_file import read_table_file


class Range(Part):
    """From `min` to `max`; one of them may be left out."""

    min: Number | None = None
    """The smallest allowed value."""
    max: Number | None = None
    """The largest allowed value."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.min is None and self.max is None:
            raise ValueError("needs min, max or both")
        return self


_OTHERS = {DESCRIBE: (), PREDICT: RULED}
"""The settings that a policy can limit, of the programs that train nothing."""

Rule = Annotated[list[Any], Field(min_length=1)] | Range
"""The allowed values of a setting: a list, or a range."""


class PolicyFile(Part):
    """The rules of a site's operator. A missing key restricts nothing, except `min_cell` and `max_repeats`. Without a
    policy, `min_cell` has the same value."""

    algorithms: dict[str, dict[str, Rule]] | None = None
    """The algorithms that the site trains, each with the allowed values of its settings. Others are refused. The name
    describe allows `fedsvm describe`, and predict allows `fedsvm coordinate --predict`."""
    sums: dict[str, dict[str, Rule | int]] | None = None
    """The secure sums that the site joins, each with its allowed options and `min_sites`. Others are refused."""
    gathers: list[str] | None = None
    """The steps whose result the coordinator may see in the clear."""
    columns: list[str] | None = None
    """The columns that may be used for training."""
    min_rows: Annotated[int, Field(ge=0, le=MAX_COUNT)] = 0
    """The minimum number of the site's own rows; with fewer it does not take part."""
    release: bool = True
    """true: the coordinator may receive the model. false: only runs whose weights stay at the sites. The coordinator
    then still has landmarks and scale."""
    max_epsilon: Annotated[Number, Field(gt=0)] | None = None
    """The largest epsilon of a run. A run without privacy guarantee is refused, too."""
    budget: Annotated[Number, Field(gt=0)] | None = None
    """The largest total epsilon of all runs in `ledger`. A run without privacy guarantee is refused, too."""
    ledger: str = ""
    """The site's own file that records the epsilon of each run."""
    max_mu: Annotated[Number, Field(gt=0)] | None = None
    """The largest total mu of the noisy statistics in `answers`. A run with exact statistics is refused, too."""
    answers: str = ""
    """The site's own file of noisy statistics. The same question gets the same answer."""
    min_cell: Annotated[int, Field(ge=0, le=MAX_COUNT)] = MIN_CELL
    """The minimum number of the site's rows in a category; smaller categories are not opened. 0 opens all."""
    max_repeats: Annotated[int, Field(ge=0, le=MAX_COUNT)] = 0
    """The number of times that the site takes part in a step again over other members once a sum was opened. The
    difference of two such sums shows a site. With 0, a run that loses a site goes on only if it repeats no sum."""
    colluders: Annotated[int, Field(ge=0, le=MAX_COUNT)] = 0
    """The number of sites that may work with the coordinator. A masked sum must then need more sites to go on."""
    pinned: bool = False
    """true: take part only with sites whose public keys the site was given (`fedsvm site --sites`)."""
    committee: list[str] | None = None
    """The sites that a run may name as members of its committee. Empty: only members that the sites draw."""

    @field_validator("algorithms")
    @classmethod
    def _check_algorithms(cls, listed: dict[str, dict[str, Any]] | None) -> dict[str, dict[str, Any]] | None:
        for name, rules in (listed or {}).items():
            if name in _OTHERS:
                _require_known(name, rules, _OTHERS[name])
                continue
            if name not in ALGORITHMS:
                raise ValueError(f"there is no algorithm {name!r}.{nearest(name, ALGORITHMS)}")
            _require_known(name, rules, [setting.name for setting in settings(ALGORITHMS[name].Settings)])
        return listed

    @field_validator("sums")
    @classmethod
    def _check_sums(cls, listed: dict[str, dict[str, Any]] | None) -> dict[str, dict[str, Any]] | None:
        for name, rules in (listed or {}).items():
            if name not in SUMS:
                raise ValueError(f"there is no secure sum {name!r}; there are {', '.join(SUMS)}")
            _require_known(name, rules, [*SUMS[name]().options, MIN_SITES])
            for option, rule in rules.items():
                if isinstance(rule, int) != (option == MIN_SITES):
                    raise ValueError(f"{name}.{option} must be " + ("a number" if option == MIN_SITES else "a rule"))
        return listed

    @model_validator(mode="after")
    def _check_budget(self) -> Self:
        if (self.budget is None) != (not self.ledger):
            raise ValueError("budget and ledger need each other")
        if self.max_mu is not None and not self.answers:
            raise ValueError("max_mu needs answers, the file in which noisy statistics are kept")
        return self

    @property
    def rules(self) -> SiteRules:
        """As the site's process enforces them."""
        return SiteRules.from_fields(self.model_dump(mode="json", exclude_none=True, exclude={"site"}))


class PolicySpec(PolicyFile):
    """The policy of one site, in a simulation: the keys of a policy file, and `site`."""

    site: SiteRef
    """The site, by number or name."""

    @field_validator("pinned")
    @classmethod
    def _check_pinned(cls, pinned: bool) -> bool:
        if pinned:
            raise ValueError("a simulation makes its keys itself; pinned belongs in the policy file of a real site")
        return pinned


def rules_at(site: str, policies: Sequence[PolicySpec], names: list[str]) -> SiteRules:
    """Return the rules of a site in a simulation: those of its last policy, or of a site without one."""
    own = [policy.rules for policy in policies if resolve(policy.site, names) == site]
    return own[-1] if own else ANYTHING


def _require_known(name: str, rules: dict[str, Any], known: Sequence[str]) -> None:
    for setting in rules:
        if setting not in known:
            raise ValueError(f"{name} has no setting {setting!r}.{nearest(setting, known)}")


def read_policy(path: Path) -> SiteRules:
    """Return the rules in a policy file. Raises ScenarioError with all mistakes."""
    return read_table_file("--policy", path, PolicyFile).rules


_TEMPLATE = """\
# What this site allows. The site's own process refuses whatever a key forbids. A key that is missing restricts nothing;
# only min_cell and max_repeats then have the values below.
{leakage}

# Minimum number of the site's own rows.
min_rows = 20
# Columns that may be used for training.
# columns = ["age", "sex"]
# Steps whose value the coordinator may see in the clear.
gathers = {gathers}
# true: the coordinator may get the model. false: only runs whose weights stay at the sites (algorithm.release). The
# coordinator then still has landmarks and scale, which can name rows.
release = true
# max_epsilon: limit for one run. budget: limit for all runs in the site's own ledger. With either, runs without a
# privacy guarantee are refused. Only max_epsilon also refuses private runs in which the coordinator sees exact sums.
# max_epsilon = 1.0
# budget = 4.0
# ledger = "{name}.ledger"
# max_mu: limit for all noisy statistics, which answers keeps. min_cell: rows of the smallest category that is opened.
# max_mu = 1.0
# answers = "{name}.answers"
# min_cell = 5
# colluders: number of sites that may work with the coordinator; a masked sum must then need more sites to go on.
# colluders = 0
# max_repeats: how often a run that loses a site may repeat steps over the others, which shows that site's sums.
# max_repeats = 0
# pinned: the site takes part only with sites whose public keys it was given (fedsvm site --sites).
# pinned = true
# committee: sites that a run may name as members of its committee, of whom two together see the system of all rows.
committee = []  # only members that the sites draw

# Only algorithms with a table are allowed. A setting has a list of allowed values, or a range: {{ min = 1, max = 9 }}.
[algorithms.{algorithm}]
{settings}
{others}
# Only secure sums with a table are allowed. The site refuses to join a sum over fewer than min_sites sites.
# A ring, which runs use unless they set protocol.sum, has no table: a site's two neighbors together learn its values.
{sums}
"""

_DESCRIBE = """\
# fedsvm describe: counts, means and quantiles of columns over all sites.
# [algorithms.describe]
"""
_PREDICT = """\
# fedsvm coordinate --predict: decision values of new records. records: of one request. receiver: who may get them.
# [algorithms.predict]
# records = {{ max = 100 }}
# receiver = ["{name}"]
"""
"""Other programs that a policy can allow: over sites that hold rows, and over sites that hold columns."""

_WIDTH = 118
"""Of comments."""

_CAREFUL = {
    "solver": ('["interior-point"]', "Cutting planes let a coordinator rebuild rows."),
    "masking": (
        '["congruence", "committee"]',
        "The coordinator sees no system unless one other site helps it, or two of a committee's three members.",
    ),
    "topology": ('["star"]', "On a ring, neighbors get models in the clear."),
    "step_noise": ("{ min = 0.1 }", "Without noise on the steps a single site can recover every row that it can list."),
    "min_cluster_size": ("{ min = 3 }", "Each landmark is the mean of three rows or more."),
}
"""Settings that decide what is given away, as a careful site has them, and why."""

_CAREFUL_WITH_NOISE = {
    "objective_noise": (
        "{ min = 0.2 }",
        "Without it, the model file names rows at the margin to whoever has a list.",
    ),
    "step_noise": ("{ min = 0.2 }", "With less noise on the steps, or none, other sites recover more rows."),
    "tolerance": ("{ min = 0.2 }", "Each step to a smaller gap tells other sites more about the rows."),
}
"""The same for algorithms with noise in the objective."""

_CAREFUL_WITHOUT_PATH = {
    "masking": (
        '["committee"]',
        'With "none" the coordinator sees the system of all rows, and recovers every row that it can list.',
    )
}
"""The same for algorithms whose systems have no masks that all sites know."""

_USUAL = Premises(sites=3, statistics_privacy=0.5)
"""A run with noisy statistics. The template limits settings that its algorithm then has a value of."""


def template(algorithm: str, name: str) -> str:
    """Return a policy file to edit, for a site of this name that trains one algorithm."""
    found = ALGORITHMS[algorithm]
    usual, _ = found.resolve_settings(found.Settings(), _USUAL)
    without_path = issubclass(found.Settings, BlindSystemSettings)
    noise = getattr(usual, "objective_noise", None)
    careful = _CAREFUL | (_CAREFUL_WITH_NOISE if noise else {}) | (_CAREFUL_WITHOUT_PATH if without_path else {})
    required = {"masking": "committee"} if without_path else {}
    if noise is not None:
        required["objective_noise"] = noise
    known = [each for each in careful if getattr(usual, each, None) is not None]
    lines = [f"# {why}\n{setting} = {rule}\n" for setting, (rule, why) in careful.items() if setting in known]
    return _TEMPLATE.format(
        name=name,
        gathers=json.dumps(open_steps(found.Site)),
        others=_PREDICT.format(name=name) if found.partition == "vertical" else _DESCRIBE,
        algorithm=algorithm,
        settings="".join(lines),
        leakage=_leakage(algorithm, required),
        sums="\n\n".join("\n".join([f"[sums.{sum_name}]", *_least(least)]) for sum_name, least in CAREFUL_SUMS.items()),
    )


def _least(values: Mapping[str, float]) -> Iterator[str]:
    """Yield the lines of a table that sets a minimum for each key; that of the sites is a plain number."""
    yield from (
        f"{key} = {value}" if key == MIN_SITES else f"{key} = {{ min = {value} }}" for key, value in values.items()
    )


def _leakage(algorithm: str, required: Mapping[str, Any]) -> str:
    """Return comments on what the sums of a run show together, with the settings that the rules require."""
    made = ALGORITHMS[algorithm]
    chosen = made.Settings(**required)
    said = f"These rules limit what a run may ask for, and not what its sums show together: {whole_run(made, chosen)}."
    if made.is_private(chosen):
        said += " Differential privacy covers who gets the model; the result of a run lists who is also covered."
    return textwrap.fill(said, _WIDTH, initial_indent="# ", subsequent_indent="# ", break_on_hyphens=False)
