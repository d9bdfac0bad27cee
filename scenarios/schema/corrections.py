"""Keys of the [data] table that bring files of different sites into one form."""

from __future__ import annotations

from math import isfinite
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, field_validator

from fedsvm.algorithms.settings import shorten_value
from fedsvm.scenarios.schema.base import Number, Part
from fedsvm.scenarios.schema.own_file import read_table_file


def as_written(value: Any) -> Any:
    """Return the text of a label or value that a scenario writes as a number."""
    if isinstance(value, bool | int):
        return str(value)
    return f"{value:g}" if isinstance(value, float) else value


class Corrections(Part):
    """Changes to a file before it is used.

    Columns are renamed, then codes become gaps, then values are replaced, then numbers are converted to another unit.
    """

    missing_values: list[str] | dict[str, list[str]] = Field(default=[])
    """Values that stand for a missing one: a list for all columns, such as [999, "unknown"], or one for each column."""
    recode: dict[str, dict[str, str]] = Field(default={})
    """Other spellings of values, by column: label = { yes = "1", Y = "1" }."""
    rename: dict[str, str] = Field(default={})
    """New names of columns: { gender = "sex" }."""
    convert: dict[str, Annotated[list[Number], Field(min_length=2, max_length=2)]] = Field(default={})
    """Units of columns: a factor, such as { cholesterol = 38.67 } from mmol/l to mg/dl, or a factor and a number to add
    to the product, such as { temperature = [0.5556, -17.78] }."""

    @field_validator("missing_values", mode="before")
    @classmethod
    def _codes_as_text(cls, given: Any) -> Any:
        by_column = given if isinstance(given, dict) else {"": given}
        lists = {
            name: [as_written(code) for code in codes] for name, codes in by_column.items() if isinstance(codes, list)
        }
        if len(lists) < len(by_column) or not all(isinstance(code, str) for codes in lists.values() for code in codes):
            raise ValueError(f"must be a list of values, or of each column a list, got {shorten_value(given)}")
        return lists if isinstance(given, dict) else lists[""]

    @field_validator("recode", mode="before")
    @classmethod
    def _spellings_as_text(cls, given: Any) -> Any:
        if not isinstance(given, dict) or not all(isinstance(each, dict) for each in given.values()):
            raise ValueError(
                f'must be a table for each column, such as label = {{ Y = "yes" }}, got {shorten_value(given)}'
            )
        return {name: {old: as_written(new) for old, new in each.items()} for name, each in given.items()}

    @field_validator("convert", mode="before")
    @classmethod
    def _as_pairs(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        pairs = {name: each if isinstance(each, list) else [each, 0.0] for name, each in given.items()}
        if not all(map(_is_conversion, pairs.values())):
            raise ValueError(
                "must have a factor other than 0 for each column, such as ldl = 38.67, or [factor, addend], got "
                f"{shorten_value(given)}"
            )
        return pairs

    @field_validator("rename")
    @classmethod
    def _check_rename(cls, rename: dict[str, str]) -> dict[str, str]:
        if len(set(rename.values())) < len(rename):
            raise ValueError(f"must give each column a name of its own, got {shorten_value(rename)}")
        return rename

    def codes(self, column: str) -> list[str]:
        """Return the values of a column that stand for a missing one."""
        if isinstance(self.missing_values, dict):
            return self.missing_values.get(column, [])
        return self.missing_values

    def columns(self) -> dict[str, list[str]]:
        """Return the columns that each key names, by the key; `rename` names them as they are in the file."""
        codes = list(self.missing_values) if isinstance(self.missing_values, dict) else []
        return {
            "rename": list(self.rename),
            "missing_values": codes,
            "recode": list(self.recode),
            "convert": list(self.convert),
        }


def _is_conversion(given: list[Any]) -> bool:
    """Return whether a list is a factor other than 0 and a number to add."""
    are_numbers = all(isinstance(each, int | float) and not isinstance(each, bool) and isfinite(each) for each in given)
    return are_numbers and len(given) == 2 and given[0] != 0


def read_corrections(path: Path | None) -> Corrections | None:
    """Return a site's own corrections in a file; None for no file. Raises ScenarioError with all mistakes."""
    return None if path is None else read_table_file("--corrections", path, Corrections)
