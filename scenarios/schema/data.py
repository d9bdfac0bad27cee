"""The [data] table: which rows there are, and who holds what of them."""

from __future__ import annotations

import codecs
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationInfo, field_validator, model_validator

from algorithms.data.scaling import ScaleName
from algorithms.data.vertical import Align
from algorithms.settings import MAX_COUNT, shown
from scenarios.schema.base import Number, Part, SiteRef
from scenarios.schema.federation import require_name
from scenarios.schema.split import EVEN, RANDOM, require_split

ALL = "all"
Separator = Literal[",", ";", "\t", "|"]
Decimal = Literal[".", ","]
MAX_FOLDS = 1000  # each is a model to train


class DataSpec(Part):
    """Which rows there are and how they are dealt.

    `source` has all rows, or `sources` a file for each site, and `test_source` those to test on, if they are apart;
    `site` is the column that says which site a row is of. How text is written is found out, unless `separator`,
    `decimal` or `encoding` say. `positive` is the label that is +1; `weight` the column of what a row's loss is
    multiplied by; `missing` = "mean" fills gaps with means over all sites, and `missing_indicators` adds columns of
    where they were.
    `calibration` is the share of the rows that no model is of, but probabilities and thresholds.
    `repeats` of the cross-validation deal rows to other folds each time.
    Of horizontal partitions, where sites hold different rows: `categories` declares the values of categorical columns;
    `public` rows are set apart before the others are dealt, and are nobody's secret; private training takes the scale
    of columns from them, or to [-1, 1] from the declared `ranges`.
    Of vertical ones, where sites hold different columns: `label_site` holds the labels, or "all" do. With `align` =
    "identifier" every site has its rows in an order of its own, and the column `identifier` tells which are the same;
    where the source has none, they are numbered. `overlap` is the share of rows that all sites hold.
    """

    partition: Literal["horizontal", "vertical"] = "horizontal"
    sources: dict[str, str] = Field(default={})
    source: Annotated[str | None, Field(validate_default=True)] = None
    test_source: str | None = None
    site: str | None = None
    separator: Separator | None = None
    decimal: Decimal | None = None
    encoding: str | None = None
    label: str = "label"
    positive: str | None = None
    weight: str | None = None
    ignore: list[str] = Field(default=[])
    missing: Literal["refuse", "drop", "mean"] = "refuse"
    missing_indicators: bool = False
    scale: ScaleName = "standard"
    test_fraction: Annotated[float, Field(ge=0, lt=1)] = 0.2
    calibration: Annotated[float, Field(ge=0, lt=1)] = 0.0
    folds: Annotated[int, Field(ge=2, le=MAX_FOLDS)] | None = None
    repeats: Annotated[int, Field(ge=1, le=MAX_FOLDS)] = 1
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

    @field_validator("source")
    @classmethod
    def _check_source(cls, source: str | None, info: ValidationInfo) -> str | None:
        if source is None and not info.data.get("sources"):
            raise ValueError("is missing; the scenario must say it")
        if source is not None and info.data.get("sources"):
            raise ValueError("and data.sources exclude each other; keep one of them")
        return source

    @field_validator("encoding")
    @classmethod
    def _check_encoding(cls, encoding: str | None) -> str | None:
        try:
            if encoding is not None and not codecs.lookup(encoding)._is_text_encoding:
                raise LookupError
        except LookupError:
            raise ValueError(f'must be an encoding such as "utf-8" or "cp1252", got {shown(encoding)}') from None
        return encoding

    @field_validator("positive", mode="before")
    @classmethod
    def _as_label(cls, positive: Any) -> Any:
        """Labels are text, also where a file has numbers."""
        if isinstance(positive, bool | int):
            return str(positive)
        return f"{positive:g}" if isinstance(positive, float) else positive

    @field_validator("sources")
    @classmethod
    def _check_sites(cls, sources: dict[str, str]) -> dict[str, str]:
        for site in sources:
            require_name(site)
        return sources

    @model_validator(mode="before")
    @classmethod
    def _one_kind_of_test(cls, given: Any) -> Any:
        if isinstance(given, dict) and given.get("test_source") is not None:
            if given.get("folds") is not None or given.get("test_fraction", 0) not in (0, 0.0):
                raise ValueError("test_source excludes folds and test_fraction; keep one of them")
            return {**given, "test_fraction": 0.0}
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

    @field_validator(
        "sources",
        "test_source",
        "site",
        "weight",
        "calibration",
        "missing_indicators",
        "categories",
        "public",
        "ranges",
        "label_site",
        "identifier",
        "align",
        "overlap",
    )
    @classmethod
    def _check_partition(cls, value: Any, info: ValidationInfo) -> Any:
        """Keys of the other partition may be there with their default, as in a scenario with all of them spelt out."""
        name = str(info.field_name)
        needed = "vertical" if name in ("label_site", "identifier", "align", "overlap") else "horizontal"
        if info.data.get("partition", needed) != needed and value != cls.model_fields[name].default:
            raise ValueError(f'is of {needed} partitions; leave it out, or set data.partition = "{needed}"')
        return value

    @property
    def models(self) -> int:
        """How many are trained."""
        return (self.folds or 1) * self.repeats

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        if self.decimal == "," and self.separator == ",":
            raise ValueError('decimal = "," needs another separator than ","')
        if self.site is not None and self.sources:
            raise ValueError("site and sources exclude each other: either a column says whose a row is, or its file")
        if (self.site is not None or self.sources) and self.split != RANDOM:
            raise ValueError(
                "split deals rows that are nobody's yet; leave it out, since site or sources say whose they are"
            )
        if self.repeats > 1 and self.folds is None:
            raise ValueError("repeats are of cross-validation; set folds too")
        if self.models > MAX_FOLDS:
            raise ValueError(f"folds times repeats must be {MAX_FOLDS} or less, got {self.models}")
        if self.missing == "mean" and self.partition != "horizontal":
            raise ValueError('missing = "mean" is of horizontal partitions; set it to "refuse" or "drop"')
        if self.missing_indicators and self.missing != "mean":
            raise ValueError('missing_indicators needs missing = "mean"')
        return self

    @model_validator(mode="after")
    def _check_alignment(self) -> Self:
        if self.align == "position" and self.overlap < 1.0:
            raise ValueError('overlap below 1 needs align = "identifier"; by position every site must hold every row')
        if self.align == "position" and self.identifier is not None:
            raise ValueError('identifier is there to align by; leave it out, or set align = "identifier"')
        return self
