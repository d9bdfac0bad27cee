"""The scenario file as a typed model, read with every mistake reported at once."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar, get_args

import tomli_w
from pydantic import BaseModel, Field, ValidationError, field_validator, model_validator

from protocols.masked_sum import threshold_of
from protocols.registry import SUMS
from protocols.secure_sum import SecureSum
from scenarios.adversity import CollusionSpec, FaultSpec, NetworkSpec, contradictions
from scenarios.partition import BY_FEATURE, SIZES, sizes_of
from scenarios.parts import Count, Part, Positive
from scenarios.problems import ScenarioError, nearest

CATALOGUE = Path(__file__).parent / "catalogue"
HIGHEST_PORT = 65_535
MOST_RELAYED_SITES = 100  # every two parties have a relay, with a port of its own
HIGHEST_WHOLE_NUMBER = 2**63 - 1  # of TOML
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def _require_name(value: str) -> str:
    if not _NAME.fullmatch(value) or value == "coordinator":
        raise ValueError(
            f"{value!r} will not do; it must be made of letters, digits, dots, hyphens and underscores, start with a "
            "letter or digit, and not be the word coordinator"
        )
    return value


_P = TypeVar("_P", bound=Part)


class FederationSpec(Part):
    """Who takes part and how. `port` is the coordinator's, and site i listens on port + i; 0 is any.

    A site that does not answer within `round_timeout_s` is dropped. on_dropout: whether the others go on; with fewer
    than `min_sites` they never do.
    """

    sites: Annotated[int, Field(ge=1, le=10_000)] = 5
    names: Annotated[list[str], Field(min_length=1)] | None = None
    launcher: Literal["local"] = "local"
    transport: Literal["tcp", "ipc"] = "tcp"
    encryption: bool = True
    port: Annotated[int, Field(ge=0, le=HIGHEST_PORT)] = 0
    round_timeout_s: Positive = 30.0
    min_sites: Count = 1
    on_dropout: Literal["continue", "abort"] = "continue"

    @model_validator(mode="before")
    @classmethod
    def _derive(cls, given: Any) -> Any:
        """Names tell how many sites there are; on ipc there is nothing to encrypt."""
        if not isinstance(given, dict):
            return given
        derived = dict(given)
        if isinstance(given.get("names"), list) and given["names"]:
            derived.setdefault("sites", len(given["names"]))
        if given.get("transport") == "ipc":
            derived.setdefault("encryption", False)
        return derived

    @field_validator("names")
    @classmethod
    def _check_names(cls, names: list[str] | None) -> list[str] | None:
        if names is not None:
            if twice := sorted({name for name in names if names.count(name) > 1}):
                raise ValueError(f"{twice[0]!r} appears more than once; names must differ from each other")
            for name in names:
                _require_name(name)
        return names

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.names is not None and len(self.names) != self.sites:
            raise ValueError(f"sites is {self.sites} but names lists {len(self.names)}; leave one of them out")
        if self.transport == "ipc" and self.encryption:
            raise ValueError('encryption needs transport = "tcp"; ipc never leaves the machine')
        if self.min_sites > self.sites:
            raise ValueError(f"min_sites is {self.min_sites} and there are {self.sites} sites; lower it")
        if self.transport == "ipc" and self.port:
            raise ValueError('port needs transport = "tcp"')
        if self.port and self.port + self.sites > HIGHEST_PORT:
            raise ValueError(f"port {self.port} leaves too few ports for {self.sites} sites; choose a lower one")
        return self

    @property
    def site_names(self) -> list[str]:
        """site-1, site-2, … unless they are named."""
        return self.names if self.names is not None else [f"site-{i + 1}" for i in range(self.sites)]


class DataSpec(Part):
    """Which rows there are and how they are dealt. `categories` declares the values of categorical columns."""

    source: str
    label: str = "label"
    positive: str | None = None
    ignore: list[str] = Field(default=[])
    categories: dict[str, list[str]] = Field(default={})
    missing: Literal["refuse", "drop"] = "refuse"
    scale: Literal["standard", "minmax", "none"] = "standard"
    test_fraction: Annotated[float, Field(ge=0, lt=1)] = 0.2
    folds: Annotated[int, Field(ge=2)] | None = None
    partition: Literal["horizontal"] = "horizontal"
    split: str = "random"

    @model_validator(mode="before")
    @classmethod
    def _one_kind_of_test(cls, given: Any) -> Any:
        if isinstance(given, dict) and "folds" in given:
            if given.get("test_fraction", 0) not in (0, 0.0):
                raise ValueError("folds and test_fraction exclude each other; keep one of them")
            return {**given, "test_fraction": 0.0}
        return given

    @field_validator("split")
    @classmethod
    def _check_split(cls, split: str) -> str:
        known = split in ("random", "label-skew") or (split.startswith(BY_FEATURE) and split != BY_FEATURE)
        if split.startswith(SIZES):
            known = bool(sizes_of(split))
        if not known:
            raise ValueError(
                f"{split!r} will not do; it must be random, label-skew, by-feature:NAME or sizes:[10, 20, …]"
            )
        return split


class AlgorithmSpec(Part):
    """What is trained. `landmarks` is a share of the training rows, or a count."""

    name: Literal["pan-svm"] = "pan-svm"
    kernel: Literal["linear", "rbf", "poly", "sigmoid"] = "rbf"
    C: Positive = 1.0
    gamma: Positive = 0.1
    degree: Count = 3
    coef0: Annotated[float, Field(allow_inf_nan=False)] = 0.0
    landmarks: int | float = 0.25
    landmark_method: Literal["local", "global"] = "local"
    min_cluster_size: Count = 1
    groups: Count = 32
    tolerance: Annotated[float, Field(gt=0, lt=1)] = 1e-4
    max_iterations: Count = 500
    rank_tolerance: Annotated[float, Field(gt=0, lt=1)] = 1e-10

    @field_validator("landmarks", mode="before")
    @classmethod
    def _check_landmarks(cls, landmarks: Any) -> Any:
        """1 is a count and 1.0 is all rows; true is neither, though Python calls it an int."""
        count = type(landmarks) is int and landmarks >= 1
        share = type(landmarks) is float and 0 < landmarks <= 1
        if not count and not share:
            raise ValueError(
                f"{landmarks!r} will not do; it must be a share of the rows above 0.0 and up to 1.0, or a count from 1"
            )
        return landmarks


class ProtocolSpec(Part):
    """How sums are kept secret, and how the line search spends its rounds.

    `segments` is of k-secure, `rings` of changing-neighbours, `threshold` (the share of sites that must remain) of
    masked, `step` of fixed-step.
    """

    sum: str = "ring"
    segments: Annotated[int, Field(ge=2)] = 3
    rings: Count = 2
    threshold: Annotated[float, Field(gt=0.5, le=1)] = 0.66
    line_search: Literal["grid", "fixed-step"] = "grid"
    step: Positive = 0.1

    @field_validator("sum")
    @classmethod
    def _check_sum(cls, name: str) -> str:
        if name not in SUMS:
            raise ValueError(f"{name!r} will not do; it must be one of {', '.join(SUMS)}")
        return name

    @property
    def secure_sum(self) -> SecureSum:
        """The protocol that is named, with its options."""
        options: dict[str, dict[str, float]] = {
            "k-secure": {"segments": self.segments},
            "changing-neighbours": {"rings": self.rings},
            "masked": {"threshold": self.threshold},
        }
        return SUMS[self.sum](**options.get(self.sum, {}))

    def fewest_sites(self, sites: int) -> int:
        """How many of `sites` sites must remain for the sums to go on."""
        remain = threshold_of(self.threshold, sites) if self.sum == "masked" else 1
        return max(self.secure_sum.fewest_sites, remain)


class CompareSpec(Part):
    """`centralised`: also train on pooled rows and report the difference."""

    centralised: bool = True


class Scenario(Part):
    """One experiment."""

    name: str
    seed: Annotated[int, Field(ge=0, le=HIGHEST_WHOLE_NUMBER)] = 0
    federation: FederationSpec = FederationSpec()
    data: DataSpec
    algorithm: AlgorithmSpec = AlgorithmSpec()
    protocol: ProtocolSpec = ProtocolSpec()
    compare: CompareSpec = CompareSpec()
    faults: list[FaultSpec] = Field(default=[])
    network: NetworkSpec | None = None
    collusion: CollusionSpec | None = None

    @field_validator("name")
    @classmethod
    def _check_name(cls, name: str) -> str:
        return _require_name(name)

    @property
    def fewest_sites(self) -> int:
        """With fewer the run fails."""
        return max(self.federation.min_sites, self.protocol.fewest_sites(self.federation.sites))

    @property
    def relayed(self) -> bool:
        """Whether links go through relays: for network conditions, and for faults on links."""
        return self.network is not None or any(fault.on_links for fault in self.faults)


# Reading.


def read(
    scenario: str | Path, *, overrides: Sequence[str] = (), faults: Sequence[str] = (), sites: int | None = None
) -> tuple[Scenario, Path]:
    """The scenario that a path or a catalogue name stands for, and the folder its relative paths start from.

    overrides: "key.path=value", the value as in TOML or a bare word. faults: "kind:key=value,…", added to the file's.
    sites: in place of the file's number. Raises ScenarioError with everything that is wrong.
    """
    path = _locate(str(scenario))
    given = _parse(path)
    given.setdefault("name", path.stem)
    _apply_all(given, overrides)
    for fault in faults:
        _add_fault(given, fault)
    if sites is not None:
        _override_sites(given, sites)
    return validate(given), path.parent


def validate(given: dict[str, Any]) -> Scenario:
    """A scenario from plain values. Raises ScenarioError with everything that is wrong."""
    try:
        scenario = Scenario.model_validate(given)
    except ValidationError as error:
        raise ScenarioError([*_sentences(error), *_impossible(given)]) from error
    if problems := list(_impossible(given)):
        raise ScenarioError(problems)
    return scenario


def resolved_toml(scenario: Scenario) -> str:
    """The scenario with every default spelt out; reading it gives the same scenario."""
    return tomli_w.dumps(scenario.model_dump(mode="json", exclude_none=True, by_alias=True))


def catalogue() -> dict[str, str]:
    """Name and one line of every scenario in the catalogue."""
    return {
        path.stem: path.read_text(encoding="utf-8").partition("\n")[0].removeprefix("#").strip()
        for path in sorted(CATALOGUE.glob("*.toml"))
    }


def catalogue_text(name: str) -> str:
    """The file of a catalogue scenario. Raises ScenarioError for an unknown name."""
    if name not in catalogue():
        raise ScenarioError(
            [
                f"There is no scenario {name!r} in the catalogue.{nearest(name, catalogue())} "
                f"It has {', '.join(catalogue())}; the name of a file of your own ends in .toml."
            ]
        )
    return (CATALOGUE / f"{name}.toml").read_text(encoding="utf-8")


def _locate(scenario: str) -> Path:
    path = Path(scenario)
    if path.suffix == ".toml" or "/" in scenario:
        if path.is_dir():
            raise ScenarioError([f"{scenario} is a folder; name the TOML file in it."])
        if not path.is_file():
            raise ScenarioError(
                [f"There is no scenario file {scenario!r}; the catalogue has {', '.join(catalogue())}."]
            )
        return path
    catalogue_text(scenario)
    return CATALOGUE / f"{scenario}.toml"


def _parse(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ScenarioError([f"{path} cannot be read: {error.strerror}."]) from error
    except UnicodeDecodeError as error:
        raise ScenarioError([f"{path} is not valid TOML: it is not UTF-8 text; save it as UTF-8."]) from error
    except tomllib.TOMLDecodeError as error:
        raise ScenarioError([f"{path} is not valid TOML: {error}."]) from error


def _apply_all(given: dict[str, Any], overrides: Sequence[str]) -> None:
    problems: list[str] = []
    for override in overrides:
        try:
            _apply(given, override)
        except ScenarioError as error:
            problems += error.problems
    if problems:
        raise ScenarioError(problems)


def _apply(given: dict[str, Any], override: str) -> None:
    key, equals, text = override.partition("=")
    path = key.strip().split(".")
    if not equals or not all(path):
        raise ScenarioError([f"--set {override}: write it as key.path=value, such as algorithm.C=10."])
    place = given
    for part in path[:-1]:
        place = place.setdefault(part, {})
        if not isinstance(place, dict):
            raise ScenarioError([f"--set {override}: {part} is not a table."])
    place[path[-1]] = _value(text.strip())


def _add_fault(given: dict[str, Any], text: str) -> None:
    """Add the fault that "kill:site=3,phase=train,round=5" describes; commas within brackets do not separate."""
    kind, _, rest = text.partition(":")
    listed = given.setdefault("faults", [])
    fault: dict[str, Any] = {"kind": kind.strip()}
    for part in re.findall(r"(?:\[[^=]*\]|[^,])+", rest):
        key, equals, value = part.partition("=")
        if not equals or not isinstance(listed, list):
            raise ScenarioError(
                [f"--fault {text}: write it as kind:key=value,…, such as kill:site=3,phase=train,round=5."]
            )
        fault[key.strip()] = _value(value.strip())
    listed.append(fault)


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _override_sites(given: dict[str, Any], sites: int) -> None:
    federation = given.setdefault("federation", {})
    if isinstance(federation, dict):
        if "names" in federation:
            raise ScenarioError(["--sites: this scenario names its sites; change federation.names instead."])
        federation["sites"] = sites


# Saying what is wrong.


def _impossible(given: dict[str, Any]) -> Iterator[str]:
    """What does not go together, as far as the parts concerned are valid by themselves."""
    federation = _valid(FederationSpec, given.get("federation", {}))
    protocol = _valid(ProtocolSpec, given.get("protocol", {}))
    data = _valid(DataSpec, given.get("data", {}))
    if federation and protocol and federation.sites < protocol.secure_sum.fewest_sites:
        yield (
            f"protocol.sum: a {_described(protocol)} sum needs {protocol.secure_sum.fewest_sites} sites or more and "
            f'there are {federation.sites}; with fewer it hides nothing. Add sites, or set protocol.sum = "plain".'
        )
    if federation and protocol:
        yield from _adverse(given, federation, protocol)
    sizes = sizes_of(data.split) if data and data.split.startswith(SIZES) else None
    if federation and sizes is not None and len(sizes) != federation.sites:
        yield f"data.split: {len(sizes)} sizes are given for {federation.sites} sites."


def _adverse(given: dict[str, Any], federation: FederationSpec, protocol: ProtocolSpec) -> Iterator[str]:
    """What cannot be of faults, network and collusion."""
    names = federation.site_names
    listed = given.get("faults", [])
    read_faults = [_valid(FaultSpec, fault) for fault in listed] if isinstance(listed, list) else []
    faults = [fault for fault in read_faults if fault is not None]
    phases = rounds_at_most(_valid(AlgorithmSpec, given.get("algorithm", {})), _valid(DataSpec, given.get("data", {})))
    phases = {phase: most * (1 + len(faults)) for phase, most in phases.items()}  # each fault may start it anew
    for number, fault in enumerate(read_faults, start=1):
        if fault is not None:
            yield from (f"faults.{number}: {problem}." for problem in fault.problems(names, phases))
    yield from (f"{problem}." for problem in contradictions(faults, names, phases))
    yield from _too_few(federation, protocol, faults)
    yield from _needs_tcp(federation, faults, given)
    if (network := _valid(NetworkSpec, given["network"]) if "network" in given else None) is not None:
        yield from network.problems(names)
    if (collusion := _valid(CollusionSpec, given["collusion"]) if "collusion" in given else None) is not None:
        yield from collusion.problems(names)


def _too_few(federation: FederationSpec, protocol: ProtocolSpec, faults: list[FaultSpec]) -> Iterator[str]:
    killed = {
        site
        for fault in faults
        if fault.kind == "kill" and not fault.rejoin
        for site in fault.sites(federation.site_names)
    }
    left = federation.sites - len(killed)
    fewest = max(federation.min_sites, protocol.fewest_sites(federation.sites))
    if killed and left < fewest and federation.on_dropout == "continue" and federation.sites >= fewest:
        yield (
            f"faults: kills leave {left} of {federation.sites} sites, and {fewest} are needed (federation.min_sites = "
            f"{federation.min_sites}, and a {_described(protocol)} sum); kill fewer, or set rejoin = true."
        )


def _needs_tcp(federation: FederationSpec, faults: list[FaultSpec], given: dict[str, Any]) -> Iterator[str]:
    relayed = "network" in given or any(fault.on_links for fault in faults)
    if relayed and federation.transport != "tcp":
        yield 'federation.transport: network conditions and faults on links need "tcp".'
    if relayed and federation.sites > MOST_RELAYED_SITES:
        yield f"federation.sites: network conditions and faults on links need {MOST_RELAYED_SITES} sites or fewer."
    if any(fault.kind == "corrupt" for fault in faults) and not federation.encryption:
        yield "faults: without encryption nothing can tell that a frame was changed; set federation.encryption = true."


def rounds_at_most(algorithm: AlgorithmSpec | None, data: DataSpec | None) -> dict[str, int]:
    """The phases that have rounds, and how many each can have at most, in a run without restarts."""
    if algorithm is None or data is None:
        return dict.fromkeys(("setup", "landmarks", "train"), HIGHEST_WHOLE_NUMBER)
    folds = data.folds or 1
    landmarks = 5 if algorithm.landmark_method == "local" else HIGHEST_WHOLE_NUMBER
    return {
        "setup": 6 + 7 * folds,
        "landmarks": landmarks * folds,
        "train": (2 + 201 * algorithm.max_iterations) * folds,
    }


def _described(protocol: ProtocolSpec) -> str:
    options = ", ".join(f"{name} = {value}" for name, value in protocol.secure_sum.options.items())
    return f"{protocol.sum} ({options})" if options else protocol.sum


def _valid(model: type[_P], given: Any) -> _P | None:
    try:
        return model.model_validate(given)
    except ValidationError:
        return None


def _sentences(error: ValidationError) -> list[str]:
    return [_sentence(problem) for problem in error.errors()]


def _sentence(problem: Any) -> str:
    path = [str(part + 1 if isinstance(part, int) else part) for part in problem["loc"]]
    key = ".".join(path) or "the scenario"
    kind, context = problem["type"], problem.get("ctx", {})
    if kind == "extra_forbidden":
        beside = _keys_beside(path)
        return f"{key}: unknown key.{nearest(path[-1], beside) or ' Known here: ' + ', '.join(beside) + '.'}"
    if kind == "missing":
        return f"{key}: is missing; the scenario must say it."
    if kind == "value_error":
        return f"{key}: {context['error']}."
    if kind == "literal_error":
        return f"{key}: {_got(problem)}it must be {context['expected'].replace(chr(39), chr(34))}."
    wanted = _WANTED.get(kind)
    if wanted is not None:
        return f"{key}: {_got(problem)}it must be {wanted.format(**context)}."
    return f"{key}: {_got(problem)}{problem['msg'][0].lower()}{problem['msg'][1:]}."


_WANTED = {
    "greater_than": "above {gt:g}",
    "greater_than_equal": "{ge:g} or more",
    "less_than": "below {lt:g}",
    "less_than_equal": "{le:g} or less",
    "int_type": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "string_type": "text, in quotes",
    "list_type": "a list",
    "too_short": "a list that is not empty",
    "dict_type": "a table",
    "model_type": "a table",
    "finite_number": "a finite number",
}


def _got(problem: Any) -> str:
    given = problem["input"]
    return f"{given!r} will not do; " if isinstance(given, str | int | float | bool) else ""


def _keys_beside(path: list[str]) -> list[str]:
    """The keys that are known in the table an unknown key stands in."""
    model: type[BaseModel] = Scenario
    for part in path[:-1]:
        if part.isdigit():  # of a list of tables
            continue
        inner = _table_of(model.model_fields[part].annotation) if part in model.model_fields else None
        if inner is None:
            return []
        model = inner
    return [field.alias or name for name, field in model.model_fields.items()]


def _table_of(annotation: Any) -> type[BaseModel] | None:
    """The table that an annotation stands for: itself, or within a list or an optional."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((table for inner in get_args(annotation) if (table := _table_of(inner))), None)
