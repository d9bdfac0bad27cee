"""The reference of scenario files as a page: every table and key, from the schema that files are read by."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from fedsvm.algorithms.registry import ALGORITHMS
from fedsvm.algorithms.settings import settings
from fedsvm.scenarios.schema import spec
from tools.markdown import flat, table

_TITLES = {
    "federation": "[federation]",
    "data": "[data]",
    "algorithm": "[algorithm]",
    "protocol": "[protocol]",
    "compare": "[compare]",
    "faults": "[[faults]]",
    "network": "[network]",
    "collusion": "[collusion]",
}


def scenario_reference() -> str:
    """Return the whole page below its title, as Markdown."""
    schema = spec.json_schema()
    parts = ["## Above all tables", _table(schema, {"name", "seed"})]
    for name, title in _TITLES.items():
        parts += [f"## {title}"]
        parts += list(_algorithms()) if name == "algorithm" else list(_part(schema, schema["properties"][name]))
    return "\n\n".join(parts)


def _part(schema: Mapping[str, Any], said: Mapping[str, Any]) -> Iterator[str]:
    """Yield the purpose of a table, its keys, and the tables in it."""
    name = _referred(said)
    if name is None:
        raise ValueError(f"no table of its own: {said}")
    described = schema["$defs"][name]
    yield described["description"]
    yield _table(described, set(described["properties"]))
    for key, inner in described["properties"].items():
        if _referred(inner) is not None and _referred(inner) in schema["$defs"]:
            yield f"### Each of {key}"
            yield from _part(schema, inner)


def _referred(said: Mapping[str, Any]) -> str | None:
    """Return the table that a key is, or lists; None for a plain value."""
    found = re.search(r'"\$ref": "#/\$defs/(\w+)"', json.dumps(said))
    return found.group(1) if found else None


def _table(schema: Mapping[str, Any], wanted: set[str]) -> str:
    """Return the keys of a table, without empty columns."""
    required = schema.get("required", ())
    rows = [
        (f"`{key}`", _words(said), _default(said, key in required), flat(said.get("description", "")))
        for key, said in schema["properties"].items()
        if key in wanted
    ]
    return table(("key", "must be", "default", "meaning"), rows)


def _algorithms() -> Iterator[str]:
    yield (
        "What is trained: `name`, and the settings of that algorithm, which `fedsvm scenarios keys` lists too. "
        "Algorithms of installed packages have theirs."
    )
    for name, algorithm in ALGORITHMS.loadable():
        yield f"### {name}"
        yield algorithm.summary
        yield table(
            ("key", "must be", "default", "meaning"),
            [
                (f"`{key.name}`", key.requirement, _literal(key.default), flat(key.sentence))
                for key in settings(algorithm.Settings)
            ],
        )


def _words(said: Mapping[str, Any]) -> str:
    """Return in words what a value may be, from a JSON schema."""
    if "enum" in said:
        return ", ".join(json.dumps(value) for value in said["enum"])
    if "anyOf" in said:
        each = [_words(one) for one in said["anyOf"] if one.get("type") != "null"]
        return " or ".join(dict.fromkeys(each))
    if "$ref" in said:
        return "a table"
    kind = said.get("type")
    if kind == "array":
        return "a list of tables" if "$ref" in said["items"] else f"a list of {_words(said['items'])}"
    if kind == "object":
        return f"a table of {_words(said['additionalProperties'])}" if "additionalProperties" in said else "a table"
    plain = {"integer": "a whole number", "number": "a number", "boolean": "true or false", "string": "text"}
    return f"{plain.get(str(kind), 'any value')}{_bounds(said)}"


def _bounds(said: Mapping[str, Any]) -> str:
    words = {"minimum": "from", "exclusiveMinimum": "above", "maximum": "to", "exclusiveMaximum": "below"}
    return "".join(f" {word} {_number(said[bound])}" for bound, word in words.items() if bound in said)


def _number(bound: float) -> str:
    return str(bound) if isinstance(bound, int) else f"{bound:g}".replace("e+", "e")


def _default(said: Mapping[str, Any], is_required: bool) -> str:
    return "required" if is_required else _literal(said.get("default"))


def _literal(value: Any) -> str:
    return "" if value is None else f"`{json.dumps(value)}`"
