"""The [data] table: which rows there are, and who holds what of them."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationInfo, field_validator, model_validator

from algorithms.data.scaling import ScaleName
from algorithms.data.vertical import Align
from algorithms.settings import MAX_COUNT
from scenarios.schema.base import Number, Part, SiteRef
from scenarios.schema.split import EVEN, RANDOM, require_split

ALL = "all"
MAX_FOLDS = 1000  # each is a model to train


class DataSpec(Part):
    """Which rows there are and how they are dealt.

    Of horizontal partitions, where sites hold different rows: `categories` declares the values of categorical columns;
    `public` rows are set apart before the others are dealt, and are nobody's secret; private training takes the scale
    of columns from them, or to [-1, 1] from the declared `ranges`.
    Of vertical ones, where sites hold different columns: `label_site` holds the labels, or "all" do. With `align` =
    "identifier" every site has its rows in an order of its own, and the column `identifier` tells which are the same;
    where the source has none, they are numbered. `overlap` is the share of rows that all sites hold.
    """

    source: str
    label: str = "label"
    positive: str | None = None
    ignore: list[str] = Field(default=[])
    missing: Literal["refuse", "drop"] = "refuse"
    scale: ScaleName = "standard"
    test_fraction: Annotated[float, Field(ge=0, lt=1)] = 0.2
    folds: Annotated[int, Field(ge=2, le=MAX_FOLDS)] | None = None
    partition: Literal["horizontal", "vertical"] = "horizontal"
    split: str = RANDOM
    categories: dict[str, list[str]] = Field(default={})
    public: Annotated[int, Field(ge=0, le=MAX_COUNT)] = 0
    ranges: dict[str, Annotated[list[Number], Field(min_length=2, max_length=2)]] = Field(default={})
    label_site: SiteRef = 1
    identifier: str | None = None
    align: Align = "position"
    overlap: Annotated[float, Field(gt=0, le=1)] = 1.0

    @model_validator(mode="before")
    @classmethod
    def _derive(cls, given: Any) -> Any:
        """Columns are dealt in another way than rows, and where there are identifiers they are there to align by."""
        if not isinstance(given, dict) or given.get("partition") != "vertical":
            return given
        aligned = {"align": "identifier"} if "identifier" in given or given.get("overlap", 1.0) != 1.0 else {}
        return {"split": EVEN, **aligned, **given}

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
    def _check_split(cls, split: str, info: ValidationInfo) -> str:
        return require_split(split, info.data.get("partition", ""))

    @field_validator("ranges")
    @classmethod
    def _check_ranges(cls, ranges: dict[str, list[float]]) -> dict[str, list[float]]:
        if upside_down := [name for name, (low, high) in ranges.items() if not low < high]:
            raise ValueError(f"the range of {upside_down[0]!r} must be written [lowest, highest]")
        return ranges

    @field_validator("categories", "public", "ranges", "label_site", "identifier", "align", "overlap")
    @classmethod
    def _check_partition(cls, value: Any, info: ValidationInfo) -> Any:
        """Keys of the other partition may be there with their default, as in a scenario with all of them spelt out."""
        name = str(info.field_name)
        needed = "horizontal" if name in ("categories", "public", "ranges") else "vertical"
        if info.data.get("partition", needed) != needed and value != cls.model_fields[name].default:
            raise ValueError(f'is of {needed} partitions; leave it out, or set data.partition = "{needed}"')
        return value

    @model_validator(mode="after")
    def _check_alignment(self) -> Self:
        if self.align == "position" and self.overlap < 1.0:
            raise ValueError('overlap below 1 needs align = "identifier"; by position every site must hold every row')
        if self.align == "position" and self.identifier is not None:
            raise ValueError('identifier is there to align by; leave it out, or set align = "identifier"')
        return self
