"""The scenario file as a typed model, read with every mistake reported at once."""

from __future__ import annotations

import functools
import math
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, TypeVar, get_args

import tomli_w
from pydantic import BaseModel, Field, ValidationError, create_model, field_validator

from fedsvm.algorithms.baselines import OF_CHOSEN, POOLED_BASELINES
from fedsvm.algorithms.registry import ALGORITHMS, DEFAULT_ALGORITHM
from fedsvm.algorithms.settings import shorten_value
from fedsvm.federation.errors import FederationError
from fedsvm.scenarios.schema.algorithm import AlgorithmTable, others_with, table_of
from fedsvm.scenarios.schema.base import Part
from fedsvm.scenarios.schema.changes import (
    add_fault,
    apply_overrides,
    override_sites,
    override_values,
    put_value,
    unset_key,
)
from fedsvm.scenarios.schema.consistency import Tables, impossible
from fedsvm.scenarios.schema.data import DataSpec
from fedsvm.scenarios.schema.errors import ScenarioError, nearest
from fedsvm.scenarios.schema.federation import FederationSpec, require_name
from fedsvm.scenarios.schema.policy import PolicySpec
from fedsvm.scenarios.schema.protocol import ProtocolSpec
from fedsvm.scenarios.schema.threats import MAX_FAULTS, CollusionSpec, FaultSpec, NetworkSpec

CATALOGUE = Path(__file__).parent.parent / "catalogue"


_T = TypeVar("_T", bound=Part)
MAX_WHOLE_NUMBER = 2**63 - 1  # of TOML


class CompareSpec(Part):
    """The models to compare with."""

    centralised: bool = True
    """Also train on all rows in one place and report the difference. Off for private algorithms unless it is set."""
    baselines: bool | list[str] = False
    """Other methods to train on the same rows: the algorithm's own baselines (true), or a list of methods."""
    sites: bool = False
    """Also train a model at each site on its own rows, and report what federating gains on the same test rows."""

    @field_validator("baselines", mode="before")
    @classmethod
    def _check_baselines(cls, wanted: Any) -> Any:
        known = ", ".join(POOLED_BASELINES)
        if isinstance(wanted, list) and all(each in POOLED_BASELINES for each in wanted):
            return list(dict.fromkeys(wanted))
        if isinstance(wanted, bool):
            return wanted
        raise ValueError(f"must be true, false or a list of {known}, got {shorten_value(wanted)}")


def _wants_chosen(compare: CompareSpec) -> bool:
    return isinstance(compare.baselines, list) and OF_CHOSEN in compare.baselines


class Scenario(Part):
    """One experiment."""

    name: str
    """The name of the run and the beginning of its folder's name. Default: the name of the file."""
    seed: Annotated[int, Field(ge=0, le=MAX_WHOLE_NUMBER)] = 0
    """The seed of splits, clusterings and groups of the experiment. Masks, keys and noise never use it."""
    federation: FederationSpec = FederationSpec()
    data: DataSpec
    algorithm: AlgorithmTable = AlgorithmTable()
    protocol: ProtocolSpec = ProtocolSpec()
    compare: CompareSpec = CompareSpec()
    faults: list[FaultSpec] = Field(default=[], max_length=MAX_FAULTS)
    network: NetworkSpec | None = None
    collusion: CollusionSpec | None = None
    policy: list[PolicySpec] = Field(default=[])

    @field_validator("name")
    @classmethod
    def _check_name(cls, name: str) -> str:
        return require_name(name)

    @property
    def min_sites(self) -> int:
        """With fewer the run fails."""
        return max(self.federation.min_sites, self.protocol.min_sites(self.federation.sites))

    @property
    def committee(self) -> tuple[str, ...]:
        """The named members of every committee; empty if sites draw them."""
        return self.protocol.members(self.federation.site_names)

    @property
    def is_private(self) -> bool:
        """True if the released model has a privacy guarantee for single rows."""
        return self.algorithm.implementation.is_private(self.algorithm.settings)

    @property
    def relayed(self) -> bool:
        """True if links go through relays: for network conditions, and for faults on links."""
        return self.network is not None or any(fault.on_links for fault in self.faults)


# Reading.


def read(
    scenario: str | Path,
    *,
    overrides: Sequence[str] = (),
    unset: Sequence[str] = (),
    changes: Mapping[str, Any] = MappingProxyType({}),
    faults: Sequence[str] = (),
    sites: int | None = None,
) -> tuple[Scenario, Path]:
    """Return the scenario of a path or a catalogue name, and the folder at which its relative paths start.

    overrides: "key.path=value", the value as in TOML or a bare word; of another algorithm than the file's, the file's
    settings that it does not take are removed. unset: paths of keys that are removed first. changes: values by key
    path. faults: "kind:key=value,…", added to the file's. sites: in place of the file's number. Raises ScenarioError
    with everything that is wrong.
    """
    path = _locate(str(scenario))
    given = _parse(path, unset)
    given.setdefault("name", path.stem)
    changed = {**override_values(overrides), **changes}
    for name in _settings_of_another(given, changed):
        del given["algorithm"][name]
    apply_overrides(given, overrides)
    for key, value in changes.items():
        put_value(given, key, value, said=f"changes[{key!r}]")
    for fault in faults:
        add_fault(given, fault)
    if sites is not None:
        override_sites(given, sites)
    return validate(given), path.parent


def removed_settings(scenario: str | Path, overrides: Sequence[str], unset: Sequence[str] = ()) -> list[str]:
    """Return the settings of a file's algorithm that are removed since the overrides name another algorithm."""
    return _settings_of_another(_parse(_locate(str(scenario)), unset), override_values(overrides))


def partition_of(scenario: str | Path, overrides: Sequence[str] = (), unset: Sequence[str] = ()) -> str:
    """Return whether the sites of a scenario hold rows or columns, before it is read. Raises ScenarioError."""
    return str(_table(scenario, overrides, unset, "data").get("partition", "horizontal"))


def says_source(scenario: str | Path, overrides: Sequence[str] = (), unset: Sequence[str] = ()) -> bool:
    """Return whether a scenario names its data; otherwise it is of a run across hosts. Raises ScenarioError."""
    return not _table(scenario, overrides, unset, "data").keys().isdisjoint({"source", "sources"})


def says_min_sites(scenario: str | Path, overrides: Sequence[str] = (), unset: Sequence[str] = ()) -> bool:
    """Return whether a scenario says how few sites are enough, before it is read. Raises ScenarioError."""
    return "min_sites" in _table(scenario, overrides, unset, "federation")


def _table(scenario: str | Path, overrides: Sequence[str], unset: Sequence[str], name: str) -> dict[str, Any]:
    given = _parse(_locate(str(scenario)), unset)
    apply_overrides(given, overrides)
    table = given.get(name)
    return table if isinstance(table, dict) else {}


def validate(given: dict[str, Any]) -> Scenario:
    """Return a scenario from plain values. Raises ScenarioError with all mistakes."""
    given, of_algorithm = _algorithm_known(_sites_named(given))
    given = _with_statistics(given)
    kind = scenario_type(_algorithm_name(given))
    try:
        scenario: Scenario = kind.model_validate(given)
    except ValidationError as error:
        mistakes = [_sentence(each, kind) for each in error.errors()]
        raise ScenarioError([*mistakes, *of_algorithm, *impossible(_valid_tables(given, kind))]) from error
    tables = Tables(
        None if _is_unlocated(given) else scenario.federation,
        scenario.data,
        scenario.algorithm,
        scenario.protocol,
        scenario.network,
        scenario.collusion,
        dict(enumerate(scenario.faults, start=1)),
        scenario.compare.baselines is True,
        _wants_chosen(scenario.compare),
        scenario.compare.sites,
        scenario.policy,
    )
    if problems := [*of_algorithm, *impossible(tables)]:
        raise ScenarioError(problems)
    return _without_pooled(scenario)


def _without_pooled(scenario: Scenario) -> Scenario:
    """Return a private scenario without a comparison with pooled rows, unless it asks for one.

    The comparison writes the exact objective, which no noise covers.
    """
    if not scenario.is_private or "centralised" in scenario.compare.model_fields_set:
        return scenario
    return scenario.model_copy(update={"compare": scenario.compare.model_copy(update={"centralised": False})})


@functools.cache
def scenario_type(algorithm: str) -> type[Scenario]:
    """Return the type of scenarios with one algorithm's table. Raises FederationError if it cannot be loaded."""
    table = table_of(algorithm)
    return create_model("Scenario", __base__=Scenario, algorithm=(table, table()))


def _sites_named(given: dict[str, Any]) -> dict[str, Any]:
    """Return the values with the names of sites that have files of their own."""
    data, federation = given.get("data"), given.get("federation", {})
    files = data.get("sources") if isinstance(data, dict) else None
    if not isinstance(files, dict) or not files or not isinstance(federation, dict) or "names" in federation:
        return given
    return {**given, "federation": {**federation, "names": list(files)}}


def _is_unlocated(given: dict[str, Any]) -> bool:
    """Return whether a column names the sites and has not been read yet."""
    data, federation = given.get("data"), given.get("federation", {})
    by_column = isinstance(data, dict) and data.get("site") is not None
    return by_column and isinstance(federation, dict) and "names" not in federation


def _algorithm_name(given: dict[str, Any]) -> str:
    table = given.get("algorithm", {})
    return str(table.get("name", DEFAULT_ALGORITHM)) if isinstance(table, dict) else DEFAULT_ALGORITHM


def _algorithm_known(given: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return the values without the table of an unknown algorithm, and a sentence about it."""
    name = _algorithm_name(given)
    if name in ALGORITHMS:
        try:
            ALGORITHMS[name]
        except FederationError as error:
            return {**given, "algorithm": {}}, [f"algorithm.name: {error}"]
        return given, []
    there = ", ".join(ALGORITHMS)
    return {**given, "algorithm": {}}, [
        f"algorithm.name: must be one of {there}, got {shorten_value(name)}.{nearest(name, ALGORITHMS)}"
    ]


def _with_statistics(given: dict[str, Any]) -> dict[str, Any]:
    """Return the values with the mu of noisy statistics; the algorithm says it unless the scenario does."""
    data = given.get("data")
    if not isinstance(data, dict) or "statistics_privacy" in data:
        return given
    mu = ALGORITHMS[_algorithm_name(given)].statistics_privacy
    return {**given, "data": {**data, "statistics_privacy": mu}}


def _valid_tables(given: dict[str, Any], kind: type[Scenario]) -> Tables:
    """Return the tables that are valid by themselves."""

    def valid(name: str) -> Any:
        field = kind.model_fields[name]
        if name not in given:
            return None if field.is_required() else field.get_default()
        return _valid(_table_of(field.annotation) or Part, given[name])

    listed = given.get("faults", [])
    faults = {
        number: fault
        for number, each in enumerate(listed if isinstance(listed, list) and len(listed) <= MAX_FAULTS else [], start=1)
        if (fault := _valid(FaultSpec, each)) is not None
    }
    names = ("data", "algorithm", "protocol", "network", "collusion")
    compare = valid("compare")
    return Tables(
        federation=None if _is_unlocated(given) else valid("federation"),
        **{name: valid(name) for name in names},
        faults=faults,
        wants_baselines=compare is not None and compare.baselines is True,
        wants_chosen=compare is not None and _wants_chosen(compare),
        wants_own=compare is not None and compare.sites,
    )


def _valid(table: type[_T], given: Any) -> _T | None:
    try:
        return table.model_validate(given)
    except ValidationError:
        return None


def keys() -> Iterator[str]:
    """Yield every key of a scenario by its path, such as "protocol.sum", of all algorithms; none within lists of
    tables."""
    for name, field in Scenario.model_fields.items():
        tables = [_table_of(field.annotation)] if name not in ("faults", "policy") else []
        if name == "algorithm":
            tables = [table_of(each) for each, _ in ALGORITHMS.loadable()]
        yield name
        yield from dict.fromkeys(f"{name}.{key}" for table in tables for key in _keys_of(table))


def json_schema() -> dict[str, Any]:
    """Return the JSON schema of scenario files, for editors. Every installed algorithm has its own table."""
    schema = Scenario.model_json_schema()
    tables = [
        table_of(name).model_json_schema() | ({} if name == DEFAULT_ALGORITHM else {"required": ["name"]})
        for name, _ in ALGORITHMS.loadable()
    ]
    schema["properties"]["algorithm"] = {"anyOf": tables, "description": AlgorithmTable.__doc__}
    schema["$defs"].pop("AlgorithmTable", None)
    schema["required"].remove("name")  # a file without it is called as the file is
    finite: dict[str, Any] = _without_infinities(schema)
    return finite


def _without_infinities(value: Any) -> Any:
    """Remove infinite bounds, which JSON does not have."""
    if isinstance(value, dict):
        return {
            key: _without_infinities(each)
            for key, each in value.items()
            if not (isinstance(each, float) and math.isinf(each))
        }
    return [_without_infinities(each) for each in value] if isinstance(value, list) else value


def resolved_toml(scenario: Scenario) -> str:
    """Return the scenario with all defaults. Reading it gives the same scenario."""
    return tomli_w.dumps(scenario.model_dump(mode="json", exclude_none=True, by_alias=True))


def short_toml(scenario: Scenario) -> str:
    """Return the scenario without defaults. Reading it gives the same scenario.

    It always has the mu of the statistics, whose default is the algorithm's.
    """
    said = scenario.model_dump(mode="json", exclude_none=True, exclude_defaults=True, by_alias=True)
    always = (("algorithm", "name"), ("protocol", "sum"), ("federation", "sites"), ("data", "statistics_privacy"))
    for table, key in always:
        chosen = scenario.model_dump(mode="json", include={table: {key}}, by_alias=True)
        said[table] = {**chosen[table], **said.get(table, {})}
    return tomli_w.dumps(said)


def catalogue() -> dict[str, str]:
    """Name and one line of every scenario in the catalogue."""
    return {
        path.stem: path.read_text(encoding="utf-8").partition("\n")[0].removeprefix("#").strip()
        for path in sorted(CATALOGUE.glob("*.toml"))
    }


def catalogue_text(name: str) -> str:
    """Return the file of a catalogue scenario. Raises ScenarioError for an unknown name."""
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
    if path.suffix == ".toml" or "/" in scenario or (path.is_dir() and scenario not in catalogue()):
        if path.is_dir():
            of_run = path / "scenario.toml"
            if of_run.is_file():
                raise ScenarioError([f"{scenario} is the folder of a run; name {of_run}."])
            raise ScenarioError([f"{scenario} is a folder; name the TOML file in it."])
        if not path.is_file():
            raise ScenarioError([f"There is no scenario file {scenario!r}; `fedsvm scenarios` lists the catalogue."])
        return path
    catalogue_text(scenario)
    return CATALOGUE / f"{scenario}.toml"


def _parse(path: Path, unset: Sequence[str]) -> dict[str, Any]:
    """Return the values of a file without the keys that are unset."""
    try:
        given = tomllib.loads(path.read_text(encoding="utf-8-sig"))  # with the mark that some editors begin files with
    except OSError as error:
        raise ScenarioError([f"{path} cannot be read: {error.strerror}."]) from error
    except UnicodeDecodeError as error:
        raise ScenarioError([f"{path} is not valid TOML: it is not UTF-8 text; save it as UTF-8."]) from error
    except (ValueError, RecursionError) as error:  # also of numbers of thousands of digits, and of lists in lists
        raise ScenarioError([f"{path} is not valid TOML: {error}."]) from error
    for key in unset:
        unset_key(given, key)
    return given


def _settings_of_another(given: dict[str, Any], changed: Mapping[str, Any]) -> list[str]:
    """Return the keys of the [algorithm] table that another algorithm, which changes name, does not take so."""
    table, name = given.get("algorithm"), changed.get("algorithm.name")
    if not isinstance(table, dict) or name not in ALGORITHMS or name == table.get("name", DEFAULT_ALGORITHM):
        return []
    try:
        named = table_of(name)
    except FederationError:  # of another package and broken: reading the scenario says how
        return []
    kept = [(key, value) for key, value in table.items() if key != "name"]
    return [key for key, value in kept if key not in named.model_fields or not _is_fit(named, key, value)]


def _is_fit(table: type[BaseModel], key: str, value: Any) -> bool:
    """Return whether a table's key takes a value, whatever its other keys are."""
    try:
        table.model_validate({key: value})
    except ValidationError as error:
        return not any(each["loc"][:1] == (key,) for each in error.errors())
    return True


# Saying what is wrong.


def _sentence(problem: Any, model: type[Scenario]) -> str:
    path = [str(part + 1 if isinstance(part, int) else part) for part in problem["loc"]]
    key = ".".join(path) or "the scenario"
    kind, context = problem["type"], problem.get("ctx", {})
    if kind == "extra_forbidden":
        return f"{key}: unknown key.{_known_instead(path, model)}"
    if kind == "missing":
        return f"{key}: is missing; add it to the scenario."
    if kind == "value_error":
        return f"{key}: {context['error']}."
    if kind == "literal_error":
        return f"{key}: must be {context['expected'].replace(chr(39), chr(34))}{_got(problem)}."
    wanted = _WANTED.get(kind)
    if wanted is not None:
        return f"{key}: must be {wanted.format(**context)}{_got(problem)}."
    return f"{key}: {problem['msg'][0].lower()}{problem['msg'][1:]}{_got(problem)}."


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
    "too_long": "a list of {max_length} or fewer, got {actual_length}",
    "dict_type": "a table",
    "model_type": "a table",
    "finite_number": "a finite number",
}


def _got(problem: Any) -> str:
    given = problem["input"]
    return f", got {shorten_value(given)}" if isinstance(given, str | int | float | bool) else ""


def _known_instead(path: list[str], model: type[Scenario]) -> str:
    """Return a hint for an unknown key: a similar key, its table, or the keys of this table."""
    key, beside = path[-1], _keys_beside(path, model)
    tables = [name for name in model.model_fields if name != "faults" and key in _keys_beside([name, ""], model)]
    if tables and len(path) > 1:
        return f" It is a key of {' and '.join(f'[{name}]' for name in tables)}."
    if others := others_with(key, model.model_fields["algorithm"].get_default().name):
        return f" It is a setting of {', '.join(others)}."
    return nearest(key, beside) or f" Known here: {', '.join(beside)}."


def _keys_beside(path: list[str], scenario: type[Scenario]) -> list[str]:
    """Return the known keys of the table that contains an unknown key."""
    model: type[BaseModel] = scenario
    for part in path[:-1]:
        if part.isdigit():  # of a list of tables
            continue
        inner = _table_of(model.model_fields[part].annotation) if part in model.model_fields else None
        if inner is None:
            return []
        model = inner
    return _keys_of(model)


def _keys_of(table: type[BaseModel] | None) -> list[str]:
    return [field.alias or name for name, field in table.model_fields.items()] if table is not None else []


def _table_of(annotation: Any) -> type[BaseModel] | None:
    """Return the table of an annotation: itself, or within a list or an optional."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((table for inner in get_args(annotation) if (table := _table_of(inner))), None)
