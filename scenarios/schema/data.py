"""The [data] table: which rows there are, and who holds what of them."""

from __future__ import annotations

import codecs
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationInfo, field_validator, model_validator

from fedsvm.algorithms.data.scaling import ScaleName
from fedsvm.algorithms.data.vertical import Align
from fedsvm.algorithms.settings import MAX_COUNT, shorten_value
from fedsvm.scenarios.schema.base import Number, SiteRef
from fedsvm.scenarios.schema.corrections import Corrections, as_written
from fedsvm.scenarios.schema.federation import require_name
from fedsvm.scenarios.schema.split import EVEN, RANDOM, require_split

ALL = "all"
Separator = Literal[",", ";", "\t", "|"]
Decimal = Literal[".", ","]
MAX_FOLDS = 1000  # each is a model to train


class DataSpec(Corrections):
    """The rows, and their split over sites.

    Private training takes the scale of columns from `public` rows, or scales the declared `ranges` to [-1, 1].
    `categories`, `public` and `ranges` are for horizontal partitions; `label_site`, `identifier`, `align` and `overlap`
    are for vertical ones.
    """

    partition: Literal["horizontal", "vertical"] = "horizontal"
    """Horizontal: each site holds rows. Vertical: each site holds columns of the same rows."""
    sources: dict[str, str] = Field(default={})
    """A file for each site, by site name, instead of `source`. Columns are matched by name."""
    source: Annotated[str | None, Field(validate_default=True)] = None
    """A built-in data set, a .csv, .csv.gz, .svm or .parquet file, the name of a file in the FEDSVM_DATA folder, or
    openml:ID."""
    test_source: str | None = None
    """A separate file of test rows."""
    site: str | None = None
    """The column that names the site of each row, instead of a split."""
    separator: Separator | None = None
    """The separator of values in a text file. Detected by default."""
    decimal: Decimal | None = None
    """The decimal separator of numbers. Detected by default. With a comma, points separate thousands: 4.102 is 4102."""
    encoding: str | None = None
    """The encoding of a text file, such as "cp1252". Detected by default."""
    label: str = "label"
    """The column that holds the classes."""
    positive: str | None = None
    """The class to predict as +1; all others are -1. Without it, more than two classes are all predicted. For numeric
    labels, "above-median" selects those above the median of all rows, or of the public rows if the model is private."""
    classes: list[str] = Field(default=[])
    """All classes in order. Default: those in the data, numbers by size and text alphabetically."""
    weight: str | None = None
    """The column that holds the weight of each row's loss."""
    ignore: list[str] = Field(default=[])
    """Columns to ignore."""
    by_site: dict[str, Corrections] = Field(default={})
    """Further `missing_values`, `recode`, `rename` and `convert` of single sites, by site name."""
    missing: Literal["refuse", "drop", "mean"] = "refuse"
    """The treatment of rows with missing values: refuse them, drop them, or fill numbers with the mean over all
    sites."""
    unlabeled: Literal["refuse", "drop"] = "refuse"
    """The treatment of rows without a label: refuse them, or drop them and keep the others. missing = "drop" also drops
    them."""
    missing_indicators: bool = False
    """With missing = "mean": add a column that marks filled values."""
    scale: ScaleName = "standard"
    """The scaling of columns, from secure sums over training rows. minmax scales to [-1, 1]."""
    statistics_privacy: Annotated[float, Field(ge=0, le=100)] = 0.0
    """Privacy of the scale, means and counts of columns: mu of Gaussian differential privacy for one row, in one noisy
    release. 0 releases exact values, which can name rows. Without it 0.5 for algorithms that train in features, such as
    landmarks, and 0 for others."""
    test_fraction: Annotated[float, Field(ge=0, lt=1)] = 0.2
    """The share of rows used for testing."""
    rows: Annotated[float, Field(gt=0, le=MAX_COUNT)] | None = None
    """The number of training rows, drawn at random: a share up to 1, or a count. Test rows stay the same."""
    tested_by: Literal["runner", "sites"] = "runner"
    """The tester: the runner, on rows selected from all, or each site, on its own rows, through sums."""
    calibration: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """The share of rows reserved to fit probabilities and thresholds. Models are not trained on them."""
    folds: Annotated[int, Field(ge=2, le=MAX_FOLDS)] | None = None
    """The number of cross-validation folds, instead of a test fraction."""
    repeats: Annotated[int, Field(ge=1, le=MAX_FOLDS)] = 1
    """The number of cross-validation repeats. Each repeat assigns rows to new folds."""
    stratify: bool = True
    """Spread the rows of each class evenly over test rows and folds. Without it, labels decide nothing, and a class may
    have fewer rows than there are folds."""
    evaluation: Literal["nested", "separate", "whole"] = "nested"
    """The test of algorithms that select columns. nested: columns are selected without the test rows. separate: the
    best size on one test set. whole: the best size by cross-validation on the rows that selected the columns."""
    permute_labels: bool = False
    """Shuffle the labels before anything else, to measure the accuracy of chance."""
    split: str = RANDOM
    """The assignment of rows or columns to sites. Rows: random, label-skew, by-feature:NAME or sizes:[100, 200].
    Columns: even or columns:[[a, b], [c]]."""
    categories: dict[str, list[str]] = Field(default={})
    """The values of categorical columns. For other columns, sites agree on the values by a secure sum."""
    public: Annotated[int, Field(ge=0, le=MAX_COUNT)] = 0
    """The number of rows set apart as public."""
    public_source: Annotated[str, Field(min_length=1)] | None = None
    """The coordinator's file of public rows, for private training across hosts."""
    ranges: dict[str, Annotated[list[Number], Field(min_length=2, max_length=2)]] = Field(default={})
    """Lowest and highest value of numeric columns. They must be public: noisy statistics clip to them, and private
    training scales by them."""
    label_site: SiteRef = 1
    """Vertical: the site that holds the labels, or "all"."""
    identifier: str | None = None
    """Vertical: the column that aligns records. Without it, records are numbered."""
    align: Align = "position"
    """Vertical: records have the same order at all sites, or are shuffled and then aligned privately by their
    identifiers."""
    overlap: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Vertical: the share of records that all sites hold."""

    @model_validator(mode="before")
    @classmethod
    def _derive(cls, given: Any) -> Any:
        """Set the default split of columns, and align by identifiers if there are any."""
        if not isinstance(given, dict) or given.get("partition") != "vertical":
            return given
        aligned = {"align": "identifier"} if "identifier" in given or given.get("overlap", 1.0) != 1.0 else {}
        return {"split": EVEN, **aligned, **given}

    @field_validator("source")
    @classmethod
    def _check_source(cls, source: str | None, info: ValidationInfo) -> str | None:
        if source is None and not info.data.get("sources"):
            raise ValueError("is missing; add it to the scenario")
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
            raise ValueError(
                f'must be an encoding such as "utf-8" or "cp1252", got {shorten_value(encoding)}'
            ) from None
        return encoding

    @field_validator("positive", mode="before")
    @classmethod
    def _as_label(cls, positive: Any) -> Any:
        """Return labels as text, also if the file has numbers."""
        return as_written(positive)

    @field_validator("classes", mode="before")
    @classmethod
    def _as_labels(cls, classes: Any) -> Any:
        """Return labels as text, also if the file has numbers."""
        return [as_written(each) for each in classes] if isinstance(classes, list) else classes

    @field_validator("classes")
    @classmethod
    def _check_classes(cls, classes: list[str]) -> list[str]:
        if classes and len(classes) < 2:
            raise ValueError("must name two classes or more, or be left out")
        if len(set(classes)) < len(classes):
            raise ValueError(f"must name each class once, got {shorten_value(classes)}")
        return classes

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
                raise ValueError("folds and test_fraction exclude each other; remove one (--unset data.test_fraction)")
            return {**given, "test_fraction": 0.0}
        return given

    @model_validator(mode="before")
    @classmethod
    def _rows_of_evaluation(cls, given: Any) -> Any:
        """Set the test rows that an evaluation requires: none for `whole`, one set for `separate`."""
        if not isinstance(given, dict) or given.get("evaluation", "nested") == "nested":
            return given
        if given.get("folds") is not None:
            raise ValueError(
                f'folds apply to evaluation = "nested"; remove them, or do not set {given["evaluation"]!r}'
            )
        if given["evaluation"] == "whole":
            if given.get("test_source") is not None or given.get("test_fraction", 0) not in (0, 0.0):
                raise ValueError('evaluation = "whole" tests on the rows that columns are chosen by; set none apart')
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
        "rows",
        "tested_by",
        "site",
        "by_site",
        "weight",
        "calibration",
        "missing_indicators",
        "categories",
        "public",
        "public_source",
        "ranges",
        "label_site",
        "identifier",
        "align",
        "overlap",
    )
    @classmethod
    def _check_partition(cls, value: Any, info: ValidationInfo) -> Any:
        """Refuse keys of the other partition, unless they have their default, as in a fully written scenario."""
        name = str(info.field_name)
        needed = "vertical" if name in ("label_site", "identifier", "align", "overlap") else "horizontal"
        if info.data.get("partition", needed) != needed and value != cls.model_fields[name].default:
            raise ValueError(f'applies to {needed} partitions; remove it, or set data.partition = "{needed}"')
        return value

    @property
    def tested_at_sites(self) -> bool:
        """True if sites hold out rows of their own."""
        return self.tested_by == "sites" and (self.folds is not None or self.test_fraction > 0)

    @property
    def models(self) -> int:
        """The number of models to train."""
        return (self.folds or 1) * self.repeats

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        if self.decimal == "," and self.separator == ",":
            raise ValueError('decimal = "," needs another separator than ","')
        if self.site is not None and self.sources:
            raise ValueError(
                "site and sources exclude each other: the site of a row follows from a column or from its file"
            )
        if self.by_site and self.site is None and not self.sources:
            raise ValueError("by_site needs one file for each site or a column of sites; set sources or site")
        if self.site is not None and (renaming := [site for site, own in self.by_site.items() if own.rename]):
            raise ValueError(f"by_site.{renaming[0]}.rename applies to files, and all sites share one; use data.rename")
        if (self.site is not None or self.sources) and self.split != RANDOM:
            raise ValueError("split deals rows without a site; remove it, since site or sources assign rows to sites")
        if self.tested_by == "sites" and (self.test_source is not None or self.calibration):
            raise ValueError('tested_by = "sites" excludes test_source and calibration; remove them')
        if self.rows is not None and (self.calibration or self.tested_by == "sites"):
            raise ValueError('rows are drawn by the runner; remove calibration and tested_by = "sites", or rows')
        if self.public and self.public_source is not None:
            raise ValueError("public sets rows apart and public_source is a file of them; leave one of them out")
        if self.repeats > 1 and self.folds is None:
            raise ValueError("repeats apply to cross-validation; set folds too")
        if self.models > MAX_FOLDS:
            raise ValueError(f"folds times repeats must be {MAX_FOLDS} or less, got {self.models}")
        if self.missing == "mean" and self.partition != "horizontal":
            raise ValueError('missing = "mean" applies to horizontal partitions; set it to "refuse" or "drop"')
        if self.missing_indicators and self.missing != "mean":
            raise ValueError('missing_indicators needs missing = "mean"')
        return self

    @model_validator(mode="after")
    def _check_alignment(self) -> Self:
        if self.align == "position" and self.overlap < 1.0:
            raise ValueError('overlap below 1 needs align = "identifier"; by position every site must hold every row')
        if self.identifier is not None and self.identifier == self.label:
            raise ValueError(f"identifier must be another column than label, got {self.label!r} for both")
        if self.align == "position" and self.identifier is not None:
            raise ValueError('identifier is for alignment; remove it, or set align = "identifier"')
        return self
