"""The reference of result.json as a page: every field, from the dataclasses that are written."""

from __future__ import annotations

import dataclasses
import re
import typing
from collections.abc import Iterator
from typing import Any

from fedsvm.scenarios.run.result import RunResult
from tools.docstrings import items_of, text_of
from tools.markdown import flat, table


def result_reference() -> str:
    """Return a section for `RunResult`, and for each dataclass that its fields hold, as Markdown."""
    return "\n\n".join(part for held in _held(RunResult, []) for part in _section(held))


def _held(parent: type, seen: list[type]) -> list[type]:
    """Return a dataclass, its bases, and those that its fields hold, each once, in the order of the fields."""
    if parent not in seen:
        seen.append(parent)
        for hint in [*parent.__bases__, *typing.get_type_hints(parent).values()]:
            for inner in _dataclasses_in(hint):
                _held(inner, seen)
    return seen


def _dataclasses_in(hint: Any) -> Iterator[type]:
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        yield hint
    for argument in typing.get_args(hint):
        yield from _dataclasses_in(argument)


def _section(held: type) -> Iterator[str]:
    """Yield the title, the docstring, and a table of the fields that the bases do not have."""
    yield f"## {held.__name__}"
    yield flat(text_of(held))
    if inherited := [_link(base.__name__) for base in held.__bases__ if dataclasses.is_dataclass(base)]:
        yield f"It also has the fields of {', '.join(inherited)}."
    meanings, hints = {item.name: item.meaning for item in items_of(held)}, typing.get_type_hints(held)
    rows = [
        (f"`{field.name}`", _words(hints[field.name]), flat(meanings.get(field.name, "")))
        for field in dataclasses.fields(held)
        if field.name in held.__annotations__
    ]
    if rows:
        yield table(("field", "holds", "meaning"), rows)


def _words(hint: Any) -> str:
    """Return a type as the page writes it, with a link to the section of each dataclass in it."""
    written = hint.__name__ if isinstance(hint, type) and not typing.get_args(hint) else str(hint)
    without_modules = re.sub(r"\b(?:\w+\.)+(\w+)", r"\1", written).replace("None", "null")
    for name in {inner.__name__ for inner in _dataclasses_in(hint)}:
        without_modules = re.sub(rf"\b{name}\b", _link(name), without_modules)
    return without_modules


def _link(name: str) -> str:
    return f"[{name}](#{name.lower()})"
