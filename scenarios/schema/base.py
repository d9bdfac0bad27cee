"""The base of all tables of a scenario."""

from __future__ import annotations

import ast
import inspect
import itertools
import textwrap
from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from fedsvm.algorithms.settings import MAX_COUNT, MAX_MAGNITUDE, MAX_SECONDS

Count = Annotated[int, Field(ge=1, le=MAX_COUNT)]
Seconds = Annotated[float, Field(ge=0.001, le=MAX_SECONDS, allow_inf_nan=False)]
Delay = Annotated[float, Field(ge=0, le=1000 * MAX_SECONDS, allow_inf_nan=False)]
"""Milliseconds, or none."""

Rate = Annotated[float, Field(ge=1e-6, le=MAX_MAGNITUDE, allow_inf_nan=False)]
"""Megabits a second; at the lowest a byte takes eight seconds."""

Number = Annotated[float, Field(ge=-MAX_MAGNITUDE, le=MAX_MAGNITUDE, allow_inf_nan=False)]


def _require_site(value: Any) -> Any:
    if not (isinstance(value, str) or (type(value) is int and value >= 1)):
        raise ValueError(f"must be the number of a site, counted from 1, or its name, got {value!r}")
    return value


SiteRef = Annotated[int | str, BeforeValidator(_require_site)]
"""A site by its number, counted from 1, or by its name."""


class Part(BaseModel):
    """A table: unknown keys are refused, values are not converted, and nothing changes afterwards."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, populate_by_name=True)

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Return the schema, with the docstrings of attributes as descriptions of the keys.

        They are read when it is asked for: pydantic's own way reads every source file at import, for every command.
        """
        schema = handler(core)
        properties = handler.resolve_ref_schema(schema).get("properties", {})
        for parent in reversed(cls.__mro__[: cls.__mro__.index(Part)]):
            for name, sentence in _attribute_docstrings(parent):
                properties[cls.model_fields[name].alias or name]["description"] = sentence
        return schema


def _attribute_docstrings(table: type) -> Iterator[tuple[str, str]]:
    """Yield the attributes of a class with the docstrings below them; none if the class has no source file."""
    try:
        (definition,) = ast.parse(textwrap.dedent(inspect.getsource(table))).body
    except OSError:
        return
    for attribute, beneath in itertools.pairwise(definition.body if isinstance(definition, ast.ClassDef) else []):
        match attribute, beneath:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(sentence))):
                yield name, inspect.cleandoc(sentence)


def resolve(reference: SiteRef, names: list[str]) -> str | None:
    """Return the name of the referenced site, or None if there is none."""
    if isinstance(reference, int):
        return names[reference - 1] if reference <= len(names) else None
    return reference if reference in names else None
