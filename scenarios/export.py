"""Export of models as scikit-learn pipelines for encoding, filling, scaling, features and classification.

A pipeline has only parts of scikit-learn, so it loads without fedsvm. It takes a DataFrame with the columns of the run.
ONNX graphs are made from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedsvm.algorithms.calibration import Calibration
from fedsvm.algorithms.sklearn_parts import NotExportable
from fedsvm.federation.arrays import FloatArray
from fedsvm.scenarios.run.result import write_whole
from fedsvm.scenarios.saved_model import SavedModel, read_model
from fedsvm.scenarios.schema.errors import ScenarioError

Format = Literal["skops", "joblib", "onnx"]

MAX_DIFFERENCE = 1e-6
_CHECKED_ROWS = 200


def export(folder: Path, target: Path, form: Format = "skops") -> None:
    """Write the model in a run's folder as a scikit-learn pipeline or ONNX graph, after comparing it with the model.

    Parameters
    ----------
    folder : Path
        The folder of the run.
    target : Path
        The file to write.
    form : {"skops", "joblib", "onnx"}
        A skops file has a pipeline and runs no code when it is loaded. A joblib file is a pickle: load it only if you
        trust its author. An ONNX file has the pipeline as a graph in float64.

    Raises
    ------
    ScenarioError
        There is no model, scikit-learn has no equivalent parts, or a package is not installed.
    OSError
        The file cannot be written.
    """
    saved = read_model(folder)
    drawn = _draw(saved)
    made = _pipeline(saved, drawn, folder)
    if form == "onnx":
        written = _onnx(saved, made, drawn, folder)
        write_whole(target, lambda file: file.write(written))
        return
    if form == "skops":
        try:
            from skops import io
        except ImportError:
            raise ScenarioError(['--format skops needs skops; pip install "fedsvm[export]".']) from None
        write_whole(target, lambda file: file.write(io.dumps(made)))
        return
    import joblib

    write_whole(target, lambda file: joblib.dump(made, file))


def pipeline(folder: Path) -> Any:
    """Return the model in a run's folder as a fitted scikit-learn pipeline. Raises ScenarioError; see `export`."""
    saved = read_model(folder)
    return _pipeline(saved, _draw(saved), folder)


def _pipeline(saved: SavedModel, table: Mapping[str, NDArray[Any]], folder: Path) -> Any:
    """Return the pipeline, fitted to a table of random rows and compared with the model on it."""
    if not saved.complete or saved.model.kept_by_sites:
        raise ScenarioError([f"The model in {folder} cannot be exported: its sites keep parts of it."])
    try:
        import pandas as pd
        from sklearn.pipeline import Pipeline
    except ImportError:
        raise ScenarioError(['fedsvm export needs pandas; pip install "fedsvm[export]".']) from None
    try:
        steps = saved.model.sklearn_steps(saved.classes)
    except NotExportable as reason:
        raise ScenarioError([f"The model in {folder} cannot be exported: {reason}."]) from None
    drawn = pd.DataFrame(table)
    made = Pipeline([*_prepare(saved, drawn), *steps])
    _compare(saved, made, drawn, folder)
    return made


def _origins(saved: SavedModel) -> tuple[list[str], dict[str, list[str]]]:
    """Return the numeric columns, and the values of each categorical one."""
    rows = saved.rows("", {})
    categories = rows.categories(saved.columns)
    numeric = list(dict.fromkeys(name for name in rows.origins(saved.columns).values() if name not in categories))
    return numeric, categories


def _draw(saved: SavedModel) -> dict[str, NDArray[Any]]:
    """Return random rows that look like training rows on the model's scale, by column."""
    random = np.random.default_rng(0)
    numeric, categories = _origins(saved)
    found: dict[str, NDArray[Any]] = {}
    for name in numeric:
        at = saved.columns.index(name) if name in saved.columns else None
        offset, scale = (0.0, 1.0) if at is None else (saved.scale.offset[at], saved.scale.scale[at])
        found[name] = offset + scale * random.normal(size=_CHECKED_ROWS)
        if name in saved.filled:
            found[name][random.random(_CHECKED_ROWS) < 0.1] = np.nan
    for name, values in categories.items():
        found[name] = np.array(values)[random.integers(len(values), size=_CHECKED_ROWS)]
    return found


def _prepare(saved: SavedModel, drawn: Any) -> list[tuple[str, Any]]:
    """Return the steps that turn a DataFrame into scaled rows."""
    from sklearn.compose import ColumnTransformer
    from sklearn.impute import MissingIndicator, SimpleImputer
    from sklearn.preprocessing import MinMaxScaler, OneHotEncoder, StandardScaler

    numeric, categories = _origins(saved)
    rows = saved.rows("", {})
    indicated = [name for name in numeric if rows.indicator_of(name) in saved.columns]
    fills = [saved.filled.get(name, np.nan) for name in numeric]
    numbers = SimpleImputer(keep_empty_features=True) if saved.filled else "passthrough"
    parts: list[tuple[str, Any, list[str]]] = [("numbers", numbers, numeric)] if numeric else []
    if indicated:
        parts.append(("missing", MissingIndicator(features="all"), indicated))
    for name, values in categories.items():
        encoder = OneHotEncoder(categories=[values], handle_unknown="ignore", sparse_output=False)
        parts.append((f"values of {name}", encoder, [name]))
    encoded = ColumnTransformer(parts, sparse_threshold=0).fit(drawn)
    if saved.filled and numeric:
        encoded.named_transformers_["numbers"].statistics_ = np.array(fills, dtype=np.float64)
    names = [*numeric, *(rows.indicator_of(name) for name in indicated)]
    names += [f"{name}={value}" for name, values in categories.items() for value in values]
    places = [names.index(name) for name in saved.columns]
    ordered = ColumnTransformer([("columns", "passthrough", places)]).fit(np.zeros((2, len(names))))
    steps, offset, scale = [("encode", encoded), ("order", ordered)], saved.scale.offset, saved.scale.scale
    if (window := saved.scale.window) is not None:
        steps.append(("clip", MinMaxScaler(clip=True).fit(window)))  # to [0, 1], in which the scale is then
        offset, scale = (offset - window[0]) / (window[1] - window[0]), scale / (window[1] - window[0])
    scaler = StandardScaler().fit(np.zeros((2, len(places))))
    scaler.mean_, scaler.scale_, scaler.var_ = offset, scale, scale**2
    return [*steps, ("scale", scaler)]


def _compare(saved: SavedModel, made: Any, drawn: Any, folder: Path) -> None:
    """Raise ScenarioError unless the pipeline predicts drawn rows as the model does."""
    table = {name: drawn[name].to_numpy() for name in drawn}
    rows = saved.rows("the rows drawn", {k: v.astype(np.str_) if v.dtype == object else v for k, v in table.items()})
    decisions = saved.model.decision_function(saved.scale(rows.take(saved.columns)))
    calibration = saved.model.calibrated
    if isinstance(calibration, Calibration):
        decisions = -(calibration.slope * decisions + calibration.offset)
    _require_equal(_decisions(made, drawn), decisions, "the pipeline", folder)


def _onnx(saved: SavedModel, made: Any, drawn: dict[str, NDArray[Any]], folder: Path) -> bytes:
    """Return a pipeline as the bytes of an ONNX file, after its decision values were compared on drawn rows."""
    try:
        from fedsvm.scenarios import onnx_graph
    except ImportError:
        raise ScenarioError(['--to onnx needs onnx; pip install "fedsvm[onnx]".']) from None
    import pandas as pd

    graph = onnx_graph.graph(made, drawn, saved.version)
    _require_equal(onnx_graph.decisions(graph, drawn), _decisions(made, pd.DataFrame(drawn)), "the graph", folder)
    return bytes(graph.SerializeToString())


def _require_equal(found: FloatArray, decisions: FloatArray, what: str, folder: Path) -> None:
    """Raise ScenarioError unless decision values are equal, relative to the largest."""
    difference = float(np.abs(found - decisions).max() / max(1.0, float(np.abs(decisions).max())))
    if not difference <= MAX_DIFFERENCE:
        raise ScenarioError(
            [
                f"The model in {folder} cannot be exported: the decision values of {what} differ by {difference:.1e}, "
                f"and {MAX_DIFFERENCE:g} is allowed."
            ]
        )


def _decisions(made: Any, rows: Any) -> FloatArray:
    """Return decision values; for a classifier with probabilities only, their log odds."""
    if hasattr(made, "decision_function"):
        return np.asarray(made.decision_function(rows))
    shares = made.predict_log_proba(rows)
    return np.asarray(shares[:, 1] - shares[:, 0])
