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
    """The last model that was trained: what it is called, the fold that was held out, and how training went.

    classes: negative, then positive, or all of more.
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
    """A site, with what it holds."""

    rows: int
    columns: int


@dataclass(frozen=True)
class NetworkReport:
    """Seconds a round, as measured and as the network conditions alone would have it, computing left out."""

    rounds: int
    measured_s_per_round: float
    predicted_s_per_round: float


@dataclass(frozen=True)
class Timing:
    """Seconds: of libraries and data, until the sites were up, of training, of evaluation, of the audit, and in all.

    In all is from the command, or the call, until the result was known; files and report are written afterwards. A
    resumed run adds the rounds of its earlier processes, and a task of a hub the waiting for participants.
    """

    prepare_s: float = 0.0
    launch_s: float = 0.0
    train_s: float = 0.0
    evaluate_s: float = 0.0
    audit_s: float = 0.0
    total_s: float = 0.0


@dataclass(frozen=True)
class DataResult:
    """The table that a run was about: its rows and columns, and how many of the rows are tested on or public."""

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
    """Everything that is known of a run. A part that does not apply is None or empty, never missing.

    Attributes
    ----------
    status : {"completed", "failed", "interrupted"}
        What became of the run.
    error : str, optional
        Why it is not completed, in a sentence.
    warnings : tuple of str
        What a reader of the result should know, in sentences.
    scenario : mapping
        The scenario with every default spelled out.
    data : DataResult, optional
        The size of the table.
    alignment : Alignment, optional
        Of a vertical partition: how records were aligned, and how many all sites hold.
    model : ModelResult, optional
        The last model: its objective, the certified `lower_bound` and `gap`, and under `figures` what only its
        algorithm has, such as `records_exposed`, the number of landmarks that are a copy of a single row.
    model_file : ModelFile, optional
        What each array of model.npz is computed from, by which mechanism, and to how many digits.
    metrics : Metrics, optional
        Quality on test rows: means over the folds, and each fold.
    at_sites : SiteMetrics, optional
        Quality on rows that sites hold out and score themselves.
    centralised : PooledMetrics, optional
        What LIBSVM gets from pooled rows in the same features and, as `exact_kernel`, without landmarks.
    baselines : mapping of str to BaselineMetrics, optional
        Other methods on the same rows, for the last model.
    own_models : OwnModels, optional
        Each site's own model on the same test rows, and what federating gains (`compare.sites`).
    selection : SelectionResult, optional
        Which columns were chosen, and how. Only of algorithms that choose columns.
    cost : CostReport, optional
        Rounds, hops, messages and bytes, by phase, protocol and link.
    sites : tuple of SiteResult
        The process of each site.
    progress : ProgressReport, optional
        How far the run came.
    memberships : tuple of MembershipReport
        Who took part from which round on, and why sites left.
    faults : tuple of FaultReport
        Start, end and outcome of each fault of the scenario.
    network : NetworkReport, optional
        Seconds per round under simulated network conditions.
    collusion : CollusionReport, optional
        What declared colluders reconstruct of each victim's inputs to single sums.
    audit : tuple of PartyAudit
        What parties make of the whole run: declared colluders first, and others if the run was audited for all.
    disclosures : tuple of DisclosureReport
        Everything that left its site unmasked, or that the protocol reveals by design.
    secrecy : SecrecyReport, optional
        How many must collude to reveal an input to one sum, and what all sums of the run show together.
    refused : mapping of str to int
        Messages that the coordinator refused, by reason. Connections of own sites that ended before they carried a
        message are among them.
    privacy : PrivacyReport, optional
        What was released under differential privacy, and who is protected from whom.
    timing : Timing
        Seconds of each part of the run.
    environment : Environment
        Versions, machine, date and command.
    schema : int
        Version of the form of result.json.
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
        """Return the report's cards, for a notebook; None before the module of the cards is loaded."""
        return None if RunResult.as_cards is None else RunResult.as_cards(self)

    def to_pandas(self) -> DataFrame:
        """Return the measures of the test rows as a DataFrame, a row for each measure.

        Returns
        -------
        pandas.DataFrame
            `value`, `low` and `high` of the 95 % confidence interval, `deviation` over the folds, and a column for each
            fold (`fold 1` and so on) if there are several. Without tested rows it has no row. NaN is no value.

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
            If they are not those of a result.
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
        raise ScenarioError([f"{folder} is not the folder of a run: it holds no {RESULT} that can be read."]) from None


def open_private(path: Path) -> IO[bytes]:
    """Open a file to write, which is empty and which only its owner may read."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb")


def write_whole(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Write a file as one piece, that is on the disk when this returns: a reader finds all of it, or what was before.

    Only its owner may read it. write: is handed the open file. Raises OSError, and leaves nothing half written behind.
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
        os.fsync(descriptor)  # of the folder, which has the file's name
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
    columns = pa.schema(  # said, for a run that ended before its first message has no row to tell them from
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
    """Return the arrow array of a column of text, truth values or whole numbers, in which None is no value.

    From Python's values pyarrow would import pandas, which takes longer than all rounds of a small run.
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
    """Return truth values as arrow has them, eight to a byte."""
    return np.packbits(np.array(values, dtype=bool), bitorder="little")


def environment(command: str = "") -> Environment:
    """Return the current system on which figures are measured."""
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

    A round takes an order, its hops one after the other, and where nothing goes to the coordinator an answer. Over each
    of these hops goes, at the link's bandwidth, what the round's messages carry on average.
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
