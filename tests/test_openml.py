"""Data sets of openml.org: as scikit-learn's cache has them, and a sentence where it has not. No network is used."""

from __future__ import annotations

import gzip
import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsvm.scenarios.data import sources
from fedsvm.scenarios.data.tables import Dataset
from fedsvm.scenarios.schema.errors import ScenarioError

ARFF = """@relation patients
@attribute age numeric
@attribute town {Ulm, Wien}
@attribute ill {yes, no}
@data
40, Ulm, yes
?, Wien, no
70.5, ?, no
"""
COLUMNS: list[dict[str, Any]] = [
    {"name": "age", "data_type": "numeric", "is_target": "false"},
    {"name": "town", "data_type": "nominal", "nominal_value": ["Ulm", "Wien"], "is_target": "false"},
    {"name": "ill", "data_type": "nominal", "nominal_value": ["yes", "no"], "is_target": "true"},
]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of scikit-learn's that holds data set 7, and proxies that lead nowhere."""
    monkeypatch.setenv("SCIKIT_LEARN_DATA", str(tmp_path))
    for scheme in ("http_proxy", "https_proxy"):
        monkeypatch.setenv(scheme, "http://127.0.0.1:9")
    downloaded(tmp_path, COLUMNS, ARFF)
    return tmp_path


def downloaded(folder: Path, columns: list[dict[str, Any]], arff: str, kind: str = "ARFF") -> None:
    """Write what scikit-learn keeps of a download."""
    described = {
        "id": "7",
        "name": "patients",
        "description": "",
        "version": "1",
        "format": kind,
        "file_id": "7",
        "status": "active",
        "url": "https://api.openml.org/data/v1/download/7/patients.arff",
        "default_target_attribute": "ill",
        "md5_checksum": hashlib.md5(arff.encode()).hexdigest(),  # noqa: S324 - what OpenML gives
    }
    ignored = {"is_ignore": "false", "is_row_identifier": "false", "number_of_missing_values": "0"}
    features = [{"index": str(place), **ignored, **column} for place, column in enumerate(columns)]
    qualities = [{"name": "NumberOfInstances", "value": "3"}, {"name": "NumberOfFeatures", "value": str(len(columns))}]
    root = folder / "openml" / "openml.org"
    for path, content in {
        "api/v1/json/data/7": json.dumps({"data_set_description": described}),
        "api/v1/json/data/features/7": json.dumps({"data_features": {"feature": features}}),
        "api/v1/json/data/qualities/7": json.dumps({"data_qualities": {"quality": qualities}}),
        "data/v1/download/7/patients.arff": arff,
    }.items():
        target = root / f"{path}.gz"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(gzip.compress(content.encode()))


def load(source: str, missing: str = "refuse") -> Dataset:
    return sources.load(source, label="label", missing=missing, base_folder=Path())


def test_a_cached_set_is_read_with_its_target_as_the_label(cache: Path) -> None:
    data = sources.read_columns("openml:7", Path())
    np.testing.assert_array_equal(data["age"], [40.0, np.nan, 70.5])
    assert data["town"].tolist() == ["Ulm", "Wien", ""]
    assert data["label"].tolist() == ["yes", "no", "no"]
    with pytest.raises(ScenarioError, match="openml:7 has no value in row 2, column 'age'"):
        load("openml:7")


def test_a_set_that_is_not_cached_needs_a_network(cache: Path) -> None:
    with pytest.raises(ScenarioError, match=r"openml:8 is not in scikit-learn's cache \(.*\), and cannot be had"):
        load("openml:8")


@pytest.mark.parametrize("source", ["openml:", "openml:iris", "openml:0", "openml:-1", "openml:6 1"])
def test_a_set_is_named_by_its_number(source: str) -> None:
    with pytest.raises(ScenarioError, match=r"must be openml: and the data set's number"):
        load(source)


def test_a_cache_that_cannot_be_made_is_said(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (cache / "file").write_text("")
    monkeypatch.setenv("SCIKIT_LEARN_DATA", str(cache / "file"))
    with pytest.raises(ScenarioError, match="openml:7 is not in scikit-learn's cache"):
        load("openml:7")


def test_what_cannot_be_used_is_refused(cache: Path) -> None:
    numeric = [COLUMNS[0], COLUMNS[1] | {"data_type": "numeric"}, COLUMNS[2] | {"data_type": "numeric"}]
    head = ARFF.partition("@data")[0].replace("{Ulm, Wien}", "numeric").replace("{yes, no}", "numeric")
    downloaded(cache, numeric, head + "@data\n{0 40, 1 1, 2 1}\n{0 50, 2 2}\n{1 1, 2 1}\n", kind="sparse_ARFF")
    with pytest.raises(ScenarioError, match="openml:7 is sparse"):
        load("openml:7")
    downloaded(cache, [COLUMNS[0] | {"data_type": "string"}, *COLUMNS[1:]], ARFF.replace("numeric", "string"))
    with pytest.raises(ScenarioError, match="openml:7 has columns of free text"):
        load("openml:7")
    downloaded(cache, [COLUMNS[0] | {"name": "label"}, *COLUMNS[1:]], ARFF.replace("age", "label"))
    with pytest.raises(ScenarioError, match="has a column 'label' besides its target"):
        load("openml:7")
    downloaded(cache, [COLUMNS[0], COLUMNS[1], COLUMNS[2] | {"is_target": "false"}], ARFF)
    with pytest.raises(ScenarioError, match="openml:7 has not one target column"):
        load("openml:7")
