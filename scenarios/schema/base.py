"""What all tables of a scenario have in common."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from algorithms.settings import MAX_COUNT, MAX_MAGNITUDE, MAX_SECONDS

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

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, populate_by_name=True, use_attribute_docstrings=True
    )


def resolve(reference: SiteRef, names: list[str]) -> str | None:
    """The name of the site that is meant, or None if there is none."""
    if isinstance(reference, int):
        return names[reference - 1] if reference <= len(names) else None
    return reference if reference in names else None
