"""The output of a run: `RunResult`, which result.json serializes, and the ledger."""

from __future__ import annotations

import functools
import importlib.metadata
import json
import os
import platform
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from datetime import datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from fedsvm.algorithms.algorithm import TrainingReport
from fedsvm.algorithms.origins import ArrayOrigin
from fedsvm.algorithms.privacy.accountant import PrivacyReport
from fedsvm.federation.report import CostReport, DisclosureReport, MembershipReport, ProgressReport, SiteReport
from fedsvm.federation.traffic_ledger import Accounts, RoundRecord, Traffic
from fedsvm.scenarios.run.audit import CollusionReport, PartyAudit
from fedsvm.scenarios.run.injector import FaultReport
from fedsvm.scenarios.run.metrics import MEASURES, BaselineMetrics, Metrics, PooledMetrics, SiteMetrics
from fedsvm.scenarios.run.outcome import Alignment
from fedsvm.scenarios.run.own_models import OwnModels
from fedsvm.scenarios.run.secrecy import SecrecyReport
from fedsvm.scenarios.run.selection import SelectionResult
from fedsvm.scenarios.schema.errors import ScenarioError
from fedsvm.scenarios.schema.threats import NetworkSpec

if TYPE_CHECKING:
    from pandas import DataFrame
    from pydantic import TypeAdapter

SCHEMA = 2
RESULT = "result.json"
_PACKAGES = ("cryptography", "msgpack", "numpy", "piqp", "pyzmq", "scikit-learn", "scipy")


@dataclass(frozen=True, kw_only=True)
class ModelResult(TrainingReport):
    """The last trained model: its algorithm, the fold that was held out, and the report on its training.

    classes: the negative and the positive class, or all of more than two.
    """

    algorithm: str
    fold: int | None
    classes: tuple[str, ...]


@dataclass(frozen=True)
class ModelFile:
    """The content of model.npz: a line on its origin, and the origin of every array."""

    summary: str
    arrays: tuple[ArrayOrigin, ...]


@dataclass(frozen=True, kw_only=True)
class SiteResult(SiteReport):
    """A site, with its numbers of rows and columns."""

    rows: int
    columns: int


@dataclass(frozen=True)
class NetworkReport:
    """Seconds a round, as measured, and as predicted from the network conditions without computing."""

    rounds: int
    measured_s_per_round: float
    predicted_s_per_round: float


@dataclass(frozen=True)
class Timing:
    """The seconds of each part of a run.

    prepare_s: to load libraries and data. launch_s: to start the sites. total_s: from the command or the call until the
    result was known; files and report are written afterwards. A resumed run adds the rounds of its earlier processes,
    and a task of a hub the waiting for participants.
    """

    prepare_s: float = 0.0
    launch_s: float = 0.0
    train_s: float = 0.0
    evaluate_s: float = 0.0
    audit_s: float = 0.0
    total_s: float = 0.0


@dataclass(frozen=True)
class DataResult:
    """The table of a run: the numbers of rows and columns, and of test rows and public rows."""

    rows: int
    columns: int
    test_rows: int
    public_rows: int


@dataclass(frozen=True)
class Environment:
    """The system on which the figures were measured, the time, and the command; "" if unknown.

    date: when the run ended, in ISO 8601, with the offset from UTC.
    """

    fedsvm: str
    python: str
    system: str
    cpus: int | None
    packages: Mapping[str, str]
    date: str = ""
    command: str = ""


@dataclass(frozen=True, kw_only=True, repr=False)
class RunResult:
    """The result of a run. A part that does not apply is None or empty, never missing.

    Attributes
    ----------
    status : {"completed", "failed", "interrupted"}
        The outcome of the run.
    error : str, optional
        The reason why it was not completed, in a sentence.
    warnings : tuple of str
        Sentences that a reader of the result should know.
    scenario : mapping
        The scenario with all defaults.
    data : DataResult, optional
        The size of the table.
    alignment : Alignment, optional
        For a vertical partition: how records were aligned, and the number of records that all sites hold.
    model : ModelResult, optional
        The last model: its objective, the certified `lower_bound` and `gap`, and under `figures` the values specific to
        its algorithm, such as `records_exposed`, the number of landmarks that are a copy of a single row.
    model_file : ModelFile, optional
        The origin of each array of model.npz: its inputs, its mechanism, and its number of digits.
    metrics : Metrics, optional
        Measures on test rows: means over the folds, and each fold.
    at_sites : SiteMetrics, optional
        Measures on rows that sites hold out and score themselves.
    centralised : PooledMetrics, optional
        The result of LIBSVM on pooled rows, with the same features and, as `exact_kernel`, without landmarks.
    baselines : mapping of str to BaselineMetrics, optional
        Other methods on the same rows, for the last model.
    own_models : OwnModels, optional
        Each site's own model on the same test rows, and the gain of federating (`compare.sites`).
    selection : SelectionResult, optional
        The selected columns, and how they were selected. Only for algorithms that select columns.
    cost : CostReport, optional
        Rounds, hops, messages and bytes, by phase, protocol and link.
    sites : tuple of SiteResult
        The process of each site.
    progress : ProgressReport, optional
        The last phase and round of the run.
    memberships : tuple of MembershipReport
        The changes of the membership: sites that left, with reasons, or joined.
    faults : tuple of FaultReport
        Start, end and outcome of each fault of the scenario.
    network : NetworkReport, optional
        Seconds per round under simulated network conditions.
    collusion : CollusionReport, optional
        Each victim's inputs to single sums that declared colluders reconstruct.
    audit : tuple of PartyAudit
        The results of attacks on the whole run: by declared colluders first, and by others if all were audited.
    disclosures : tuple of DisclosureReport
        All values that left their site unmasked, or that the protocol reveals by design.
    secrecy : SecrecyReport, optional
        The number of parties that must collude to reveal an input to one sum, and what all sums reveal together.
    refused : mapping of str to int
        The number of messages that the coordinator refused, by reason. It includes connections of sites that ended
        before their first message.
    privacy : PrivacyReport, optional
        The releases under differential privacy, and who is protected from whom.
    timing : Timing
        Seconds of each part of the run.
    environment : Environment
        Versions, machine, date and command.
    schema : int
        Version of the format of result.json.
    """

    status: Literal["completed", "failed", "interrupted"]
    error: str | None
    warnings: tuple[str, ...]
    scenario: Mapping[str, Any]
    data: DataResult | None = None
    alignment: Alignment | None = None
    model: ModelResult | None = None
    model_file: ModelFile | None = None
    metrics: Metrics | None = None
    at_sites: SiteMetrics | None = None
    centralised: PooledMetrics | None = None
    baselines: Mapping[str, BaselineMetrics] | None = None
    own_models: OwnModels | None = None
    selection: SelectionResult | None = None
    cost: CostReport | None = None
    sites: tuple[SiteResult, ...] = ()
    progress: ProgressReport | None = None
    memberships: tuple[MembershipReport, ...] = ()
    faults: tuple[FaultReport, ...] = ()
    network: NetworkReport | None = None
    collusion: CollusionReport | None = None
    audit: tuple[PartyAudit, ...] = ()
    disclosures: tuple[DisclosureReport, ...] = ()
    secrecy: SecrecyReport | None = None
    refused: Mapping[str, int] = field(default_factory=dict)
    privacy: PrivacyReport | None = None
    timing: Timing = Timing()
    environment: Environment
    schema: int = SCHEMA
    as_cards: ClassVar[Callable[[RunResult], str] | None] = None
    """The cards of a result as HTML; set by the report, which imports this module."""

    def __repr__(self) -> str:
        """Return the run's name, status and main figures in a line."""
        known = [f"{self.scenario.get('name', '')!r}", self.status]
        if self.model is not None:
            known.append(self.model.algorithm)
        if self.metrics is not None:
            known.append(f"accuracy={self.metrics.accuracy:.4f}")
            known += [] if self.metrics.auc is None else [f"auc={self.metrics.auc:.4f}"]
        if self.cost is not None:
            known.append(f"rounds={self.cost.rounds}")
        return f"RunResult({', '.join(known)}, sites={len(self.sites)})"

    def _repr_html_(self) -> str | None:
        """Return the report's cards as HTML for a notebook; None before the module of the cards is loaded."""
        return None if RunResult.as_cards is None else RunResult.as_cards(self)

    def to_pandas(self) -> DataFrame:
        """Return the measures of the test rows as a DataFrame, a row for each measure.

        Returns
        -------
        pandas.DataFrame
            `value`, `low` and `high` of the 95 % confidence interval, `deviation` over the folds, and a column for each
            fold (`fold 1` and so on) if there are several. Without test rows it is empty. NaN means no value.

        Raises
        ------
        ImportError
            pandas is not installed: `pip install "fedsvm[pandas]"`.
        """
        try:
            import pandas as pd
        except ImportError as error:
            raise ImportError('to_pandas needs pandas; pip install "fedsvm[pandas]".') from error
        columns = ["value", "low", "high", "deviation"]
        if (measured := self.metrics) is None:
            return pd.DataFrame(columns=columns, index=pd.Index([], name="measure"), dtype=float)
        rows = {}
        for name in MEASURES:
            interval = measured.intervals.get(name)
            folds = [getattr(fold, name) for fold in measured.folds] if len(measured.folds) > 1 else []
            rows[name] = [
                getattr(measured, name),
                None if interval is None else interval.low,
                None if interval is None else interval.high,
                measured.deviations.get(name),
                *folds,
            ]
            columns[4:] = [f"fold {number}" for number in range(1, len(folds) + 1)]
        known = {name: row for name, row in rows.items() if row[0] is not None}
        return pd.DataFrame.from_dict(known, orient="index", columns=columns, dtype=float).rename_axis("measure")

    def to_dict(self) -> dict[str, Any]:
        """Return the content of result.json as plain values."""
        plain: dict[str, Any] = json.loads(self.to_json())
        return plain

    def to_json(self) -> str:
        """Return the text of result.json."""
        fields = asdict(self)
        return json.dumps({"schema": fields.pop("schema"), **fields}, indent=1, allow_nan=False) + "\n"

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> RunResult:
        """Return the result that the values of a result.json describe.

        Raises
        ------
        ValueError
            The values are not those of a result.
        """
        found: RunResult = _reader().validate_python(values)
        return found


@functools.cache
def _reader() -> TypeAdapter[RunResult]:
    from pydantic import TypeAdapter  # slow to import, and to make

    return TypeAdapter(RunResult)


def read_result(folder: Path) -> RunResult:
    """Return the result of the run in a folder. Raises ScenarioError if there is none."""
    try:
        return RunResult.from_dict(json.loads((folder / RESULT).read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise ScenarioError([f"{folder} is not the folder of a run: it has no readable {RESULT}."]) from None


def open_private(path: Path) -> IO[bytes]:
    """Open an empty file for writing that only its owner may read."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb")


def write_whole(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Write a file atomically: a reader finds all of it, or the earlier file. It is on the disk when this returns.

    Only its owner may read it. write: writes the content, given the open file. Raises OSError, without leaving a
    partial file.
    """
    partial = path.with_name(f"{path.name}.partial")
    try:
        with open_private(partial) as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except BaseException:
        with suppress(OSError):
            partial.unlink()
        raise
    descriptor = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(descriptor)  # the folder has the file's new name
    finally:
        os.close(descriptor)


def write_result(folder: Path, result: RunResult) -> None:
    """Write result.json. Raises OSError."""
    write_whole(folder / RESULT, lambda file: file.write(result.to_json().encode()))


def write_ledger(path: Path, accounts: Accounts) -> None:
    """Write the ledger as parquet, one row per round and link. Raises OSError."""
    import pyarrow as pa  # slow to import, needed once
    import pyarrow.parquet as pq

    counts = [f"{witness}{item.name}" for witness in ("", "sent_", "received_") for item in fields(Traffic)]
    columns = pa.schema(  # explicit, because a run without messages has no row from which to infer it
        [
            ("round", pa.int64()),
            ("aborted", pa.bool_()),
            *((name, pa.string()) for name in ("phase", "step", "protocol", "from", "to")),
            *((name, pa.int64()) for name in counts),
        ]
    )
    rows = accounts.rows()
    arrays = [_column([row[each.name] for row in rows], each.type) for each in columns]
    write_whole(path, lambda file: pq.write_table(pa.Table.from_arrays(arrays, schema=columns), file))


def _column(values: Sequence[Any], kind: Any) -> Any:
    """Return the arrow array of a column of text, booleans or integers; None means no value.

    Given Python values, pyarrow would import pandas, which takes longer than all rounds of a small run.
    """
    import pyarrow as pa

    known = _bits([value is not None for value in values])
    if kind == pa.string():
        texts = [(value or "").encode() for value in values]
        ends = np.cumsum([0, *map(len, texts)], dtype=np.int32)
        content: list[Any] = [ends, b"".join(texts)]
    elif kind == pa.bool_():
        content = [_bits([bool(value) for value in values])]
    else:
        content = [np.array([value or 0 for value in values], dtype=np.int64)]
    return pa.Array.from_buffers(kind, len(values), [pa.py_buffer(each) for each in (known, *content)])


def _bits(values: Sequence[bool]) -> NDArray[np.uint8]:
    """Return booleans in arrow's format, eight to a byte."""
    return np.packbits(np.array(values, dtype=bool), bitorder="little")


def environment(command: str = "") -> Environment:
    """Return the versions, the system and the time of now."""
    return Environment(
        fedsvm=importlib.metadata.version("fedsvm"),
        python=platform.python_version(),
        system=f"{platform.system()} {platform.release()}",
        cpus=os.cpu_count(),
        packages={name: importlib.metadata.version(name) for name in _PACKAGES},
        date=datetime.now().astimezone().isoformat(timespec="milliseconds"),
        command=command,
    )


def network_report(conditions: NetworkSpec, accounts: Accounts) -> NetworkReport:
    """Return measured and predicted seconds per round.

    A round takes an order, its hops one after the other, and an answer if no message goes to the coordinator. Each hop
    transfers the mean size of the round's messages at the link's bandwidth.
    """
    rounds = [record for record in accounts.rounds.values() if not record.aborted]
    sizes: dict[int, Traffic] = defaultdict(Traffic)
    for link, traffic in accounts.select(control=False):
        sizes[link.round].add(traffic)
    count = max(1, len(rounds))
    return NetworkReport(
        rounds=len(rounds),
        measured_s_per_round=sum(record.seconds for record in rounds) / count,
        predicted_s_per_round=sum(_predicted_s(conditions, record, sizes[record.round]) for record in rounds) / count,
    )


def _predicted_s(conditions: NetworkSpec, record: RoundRecord, traffic: Traffic) -> float:
    steps = 1 + record.hops + (1 if record.verb == "run" else 0)
    seconds = steps * conditions.latency_ms / 1000
    if conditions.bandwidth_mbit is not None and traffic.messages:
        seconds += record.hops * traffic.predicted_wire_bytes / traffic.messages * 8e-6 / conditions.bandwidth_mbit
    return seconds
