"""Tables in TOML files of a site's own: its policy, and the corrections of its file."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from fedsvm.scenarios.schema.base import Part
from fedsvm.scenarios.schema.errors import ScenarioError, nearest

_Table = TypeVar("_Table", bound=Part)


def read_table_file(option: str, path: Path, kind: type[_Table]) -> _Table:
    """Return the table in a TOML file, given the option that named it. Raises ScenarioError with all mistakes."""
    try:
        return kind.model_validate(tomllib.loads(path.read_text(encoding="utf-8-sig")))
    except OSError as error:
        raise ScenarioError([f"{option}: {path} cannot be read: {error.strerror}."]) from error
    except ValidationError as error:
        raise ScenarioError(list(_sentences(f"{option}: {path}", list(kind.model_fields), error))) from error
    except (ValueError, RecursionError) as error:
        raise ScenarioError([f"{option}: {path} is not valid TOML: {error}."]) from error


def _sentences(file: str, known: list[str], error: ValidationError) -> Iterator[str]:
    for each in error.errors():
        where = ".".join(str(part) for part in each["loc"])
        said = each["msg"].removeprefix("Value error, ")
        if each["type"] == "extra_forbidden":
            said = f"there is no such key.{nearest(where, known)} There are {', '.join(known)}"
        yield f"{file}: {where + ': ' if where else ''}{said}."
