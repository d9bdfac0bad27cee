"""The tables of a scenario file, each valid by itself. What does not go together is said by `consistency`."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationInfo, field_validator, model_validator

from algorithms.features.landmarks import landmark_count
from federation.errors import FederationError
from protocols.sums.changing_neighbours import DEFAULT_RINGS
from protocols.sums.contract import SecureSum
from protocols.sums.k_secure import DEFAULT_SEGMENTS
from protocols.sums.masked import DEFAULT_THRESHOLD, threshold_of
from protocols.sums.registry import OWN_SUMS, SUMS
from scenarios.schema.base import Count, Part, Positive, SiteRef
from scenarios.schema.split import EVEN, RANDOM, require_split

MAX_PORT = 65_535
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def require_name(value: str) -> str:
    """The value, if it can be the name of a site or a scenario. Raises ValueError otherwise."""
    if not _NAME.fullmatch(value) or value == "coordinator":
        raise ValueError(
            f"{value!r} will not do; it must be made of letters, digits, dots, hyphens and underscores, start with a "
            "letter or digit, and not be the word coordinator"
        )
    return value


class FederationSpec(Part):
    """Who takes part and how. `port` is the coordinator's, and site i listens on port + i; 0 is any.

    A site that does not answer within `round_timeout_s` is dropped. on_dropout: whether the others go on; with fewer
    than `min_sites` they never do.
    """

    sites: Annotated[int, Field(ge=1, le=10_000)] = 5
    names: Annotated[list[str], Field(min_length=1)] | None = None
    launcher: Literal["local"] = "local"
    transport: Literal["tcp", "ipc"] = "tcp"
    encryption: bool = True
    port: Annotated[int, Field(ge=0, le=MAX_PORT)] = 0
    round_timeout_s: Positive = 30.0
    min_sites: Count = 1
    on_dropout: Literal["continue", "abort"] = "continue"

    @model_validator(mode="before")
    @classmethod
    def _derive(cls, given: Any) -> Any:
        """Names tell how many sites there are; on ipc there is nothing to encrypt."""
        if not isinstance(given, dict):
            return given
        derived = dict(given)
        if isinstance(given.get("names"), list) and given["names"]:
            derived.setdefault("sites", len(given["names"]))
        if given.get("transport") == "ipc":
            derived.setdefault("encryption", False)
        return derived

    @field_validator("names")
    @classmethod
    def _check_names(cls, names: list[str] | None) -> list[str] | None:
        if names is not None:
            if twice := sorted({name for name in names if names.count(name) > 1}):
                raise ValueError(f"{twice[0]!r} appears more than once; names must differ from each other")
            for name in names:
                require_name(name)
        return names

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.names is not None and len(self.names) != self.sites:
            raise ValueError(f"sites is {self.sites} but names lists {len(self.names)}; leave one of them out")
        if self.transport == "ipc" and self.encryption:
            raise ValueError('encryption needs transport = "tcp"; ipc never leaves the machine')
        if self.min_sites > self.sites:
            raise ValueError(f"min_sites is {self.min_sites} and there are {self.sites} sites; lower it")
        if self.transport == "ipc" and self.port:
            raise ValueError('port needs transport = "tcp"')
        if self.port and self.port + self.sites > MAX_PORT:
            raise ValueError(f"port {self.port} leaves too few ports for {self.sites} sites; choose a lower one")
        return self

    @property
    def site_names(self) -> list[str]:
        """site-1, site-2, … unless they are named."""
        return self.names if self.names is not None else [f"site-{i + 1}" for i in range(self.sites)]


Align = Literal["identifier", "position"]
ALL = "all"


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
    scale: Literal["standard", "minmax", "none"] = "standard"
    test_fraction: Annotated[float, Field(ge=0, lt=1)] = 0.2
    folds: Annotated[int, Field(ge=2)] | None = None
    partition: Literal["horizontal", "vertical"] = "horizontal"
    split: str = RANDOM
    categories: dict[str, list[str]] = Field(default={})
    public: Annotated[int, Field(ge=0)] = 0
    ranges: dict[str, Annotated[list[float], Field(min_length=2, max_length=2)]] = Field(default={})
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


ADDITIVE = ("linear", "rbf", "poly", "sigmoid")
_PAN_LANDMARKS = 0.25
_HYBRID_TOLERANCE = 1e-11
AlgorithmName = Literal["pan-svm", "dpp-svm", "hybrid-svm", "dp-erm"]
_KEYS_OF: dict[tuple[AlgorithmName, ...], tuple[str, ...]] = {
    ("pan-svm",): ("landmark_method", "min_cluster_size"),
    ("pan-svm", "dpp-svm"): ("gamma", "degree", "coef0", "landmarks", "rank_tolerance"),
    ("pan-svm", "dpp-svm", "hybrid-svm"): ("C", "groups", "tolerance", "max_iterations"),
    ("hybrid-svm",): ("delta", "mechanism", "sensitivity", "prior", "variant", "budget_delta"),
    ("hybrid-svm", "dp-erm"): ("features", "sigma", "fit", "epsilon", "budget", "intercept"),
    ("dp-erm",): ("loss", "half_width", "perturbation", "regularisation", "long_rows"),
}
_WHOSE = {key: algorithms for algorithms, keys in _KEYS_OF.items() for key in keys}
"""Keys that some algorithms only have a use for."""


class AlgorithmSpec(Part):
    """What is trained. `landmarks` is a share of the training rows, or a count; dpp-svm without them is exact.

    Of hybrid-svm: `features` frequencies of an RBF kernel exp(-|x - y|^2 / sigma^2), `fit` to public rows or not; what
    is promised of the released model (`epsilon`, `delta`), by which `mechanism` and which bound on its `sensitivity`;
    its `prior`; how it is trained (`variant`); and a `budget` of epsilon and delta for all releases of the run. Of
    dp-erm: the `loss` (huber with `half_width`), `regularisation` (lambda), the `perturbation`, features as above or
    0 for linear ones, and what becomes of rows longer than the longest public one.
    """

    name: AlgorithmName = "pan-svm"
    kernel: Literal["linear", "rbf", "poly", "sigmoid"] = "rbf"
    C: Positive = 1.0
    gamma: Positive = 0.1
    degree: Count = 3
    coef0: Annotated[float, Field(allow_inf_nan=False)] = 0.0
    landmarks: int | float | None = None
    landmark_method: Literal["local", "global"] = "local"
    min_cluster_size: Count = 1
    groups: Count = 32
    tolerance: Annotated[float, Field(gt=0, lt=1)] = 1e-4
    max_iterations: Count = 500
    rank_tolerance: Annotated[float, Field(gt=0, lt=1)] = 1e-10
    features: Annotated[int, Field(ge=0)] = 60
    sigma: Positive | None = None
    fit: Literal["paired", "paper", "random"] = "paired"
    epsilon: Positive | None = None
    delta: Annotated[float, Field(gt=0, lt=1)] | None = None
    mechanism: Literal["laplace", "gaussian", "spherical", "none"] = "laplace"
    sensitivity: Literal["paper", "tight"] = "paper"
    prior: Literal["none", "public"] = "none"
    variant: Literal["cutting-plane", "one-shot"] = "cutting-plane"
    budget: Positive | None = None
    budget_delta: Annotated[float, Field(gt=0, lt=1)] | None = None
    intercept: bool = False
    loss: Literal["logistic", "huber"] = "logistic"
    half_width: Positive = 0.5
    perturbation: Literal["output", "objective"] = "output"
    regularisation: Positive = 0.01
    long_rows: Literal["clip", "refuse"] = "clip"

    def landmark_count(self, rows: int) -> int | None:
        """How many landmarks there are for so many training rows; None without any."""
        return None if self.landmarks is None else landmark_count(self.landmarks, rows)

    @model_validator(mode="before")
    @classmethod
    def _derive(cls, given: Any) -> Any:
        name = given.get("name", "pan-svm") if isinstance(given, dict) else None
        if name == "pan-svm":
            return {"landmarks": _PAN_LANDMARKS, **given}
        if name == "dp-erm":
            return {"features": 0, **given}
        return {"tolerance": _HYBRID_TOLERANCE, **given} if name == "hybrid-svm" else given

    @field_validator(*_WHOSE)
    @classmethod
    def _check_whose(cls, value: Any, info: ValidationInfo) -> Any:
        name, algorithm = str(info.field_name), info.data.get("name")
        if algorithm is not None and algorithm not in _WHOSE[name] and value != cls.model_fields[name].default:
            raise ValueError(f"is no part of {algorithm}; leave it out")
        return value

    @model_validator(mode="after")
    def _check_promise(self) -> Self:
        if self.name not in ("hybrid-svm", "dp-erm"):
            return self
        if self.kernel != "rbf":
            raise ValueError(f'kernel must be "rbf" for {self.name}, whose features are those of its spectral density')
        if self.intercept:
            raise ValueError("intercept = true cannot be had: nothing regularises it, so no noise would cover it")
        if self.sigma is None and self.features:
            raise ValueError("sigma is missing; choose it beforehand or from public rows, never from private ones")
        if self.name == "hybrid-svm":
            self._check_mechanism()
        return self

    def _check_mechanism(self) -> None:
        if not self.features:
            raise ValueError("features = 0 is of dp-erm, which can be linear; hybrid-svm has some")
        if (self.epsilon is None) != (self.mechanism == "none"):
            raise ValueError('epsilon and a mechanism go together; give both, or mechanism = "none" to promise nothing')
        if (self.delta is None) != (self.mechanism != "gaussian"):
            raise ValueError('delta is what mechanism = "gaussian" needs, and no other; add it or leave it out')

    @field_validator("groups", "tolerance", "max_iterations", "rank_tolerance")
    @classmethod
    def _check_approximate(cls, value: Any, info: ValidationInfo) -> Any:
        exact = info.data.get("name") == "dpp-svm" and info.data.get("landmarks") is None
        if exact and value != cls.model_fields[str(info.field_name)].default:
            raise ValueError("is of training with landmarks, and dpp-svm without them is exact; leave it out")
        return value

    @field_validator("kernel", mode="before")
    @classmethod
    def _check_kernel(cls, kernel: Any) -> Any:
        if kernel not in ADDITIVE:
            raise ValueError(
                f'{kernel!r} will not do; it must be "linear", "rbf", "poly" or "sigmoid", which follow from inner '
                "products or squared distances, so that sites can add up their columns' parts"
            )
        return kernel

    @field_validator("landmarks", mode="before")
    @classmethod
    def _check_landmarks(cls, landmarks: Any) -> Any:
        """1 is a count and 1.0 is all rows; true is neither, though Python calls it an int."""
        if landmarks is None:
            return landmarks
        count = type(landmarks) is int and landmarks >= 1
        share = type(landmarks) is float and 0 < landmarks <= 1
        if not count and not share:
            raise ValueError(
                f"{landmarks!r} will not do; it must be a share of the rows above 0.0 and up to 1.0, or a count from 1"
            )
        return landmarks


def _require_loads(name: str) -> None:
    """Raise ValueError for a sum of another package that cannot be loaded."""
    try:
        SUMS[name]()
    except FederationError as error:
        raise ValueError(str(error).rstrip(".")) from error


class ProtocolSpec(Part):
    """How sums are kept secret, how kernels are exchanged, and how the line search spends its rounds.

    `kernel_exchange` is of dpp-svm: "summed" by the secure sum, or "plain", every site's own matrix, as in the paper.
    `segments` is of k-secure, `rings` of changing-neighbours, `threshold` (the share of sites that must remain) of
    masked, `step` of fixed-step.
    """

    sum: str = "ring"
    segments: Annotated[int, Field(ge=2)] = DEFAULT_SEGMENTS
    rings: Count = DEFAULT_RINGS
    threshold: Annotated[float, Field(gt=0.5, le=1)] = DEFAULT_THRESHOLD
    kernel_exchange: Literal["summed", "plain"] = "summed"
    line_search: Literal["grid", "fixed-step"] = "grid"
    step: Positive = 0.1

    @field_validator("sum")
    @classmethod
    def _check_sum(cls, name: str) -> str:
        if name not in SUMS:
            raise ValueError(f"{name!r} will not do; it must be one of {', '.join(SUMS)}")
        if name not in OWN_SUMS:
            _require_loads(name)
        return name

    @property
    def secure_sum(self) -> SecureSum:
        """The protocol that is named, with its options."""
        options: dict[str, dict[str, float]] = {
            "k-secure": {"segments": self.segments},
            "changing-neighbours": {"rings": self.rings},
            "masked": {"threshold": self.threshold},
        }
        return SUMS[self.sum](**options.get(self.sum, {}))

    def min_sites(self, sites: int) -> int:
        """How many of `sites` sites must remain for the sums to go on."""
        remain = threshold_of(self.threshold, sites) if self.sum == "masked" else 1
        return max(self.secure_sum.min_sites, remain)


class CompareSpec(Part):
    """`centralised`: also train on pooled rows and report the difference.

    `baselines`, of hybrid-svm: public rows alone, random frequencies, and no noise, on the same rows.
    """

    centralised: bool = True
    baselines: bool = False
