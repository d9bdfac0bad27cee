"""New rows beside training rows: ranges, missing values, unknown categories and shifts."""

from __future__ import annotations

import numpy as np

from fedsvm.scenarios.drift import category_drift, numeric_drift, sparse_rows

NAN = float("nan")


def test_outside_of_a_standard_scale_are_more_rows_than_training_rows_can_be() -> None:
    values = np.zeros(100)
    values[:4] = 5.5
    few = numeric_drift("age", values, 0.0, 1.0, "standard", None)
    assert (few.within, few.outside, list(few.warnings())) == ((-5.0, 5.0), 4, [])
    values[4] = 5.5
    (warning,) = numeric_drift("age", values, 0.0, 1.0, "standard", None).warnings()
    assert warning.startswith("5 rows are outside the training range of column 'age', -5 to 5")
    values[:5] = [21.0, 0, 0, 0, 0]
    assert len(list(numeric_drift("age", values, 0.0, 1.0, "standard", None).warnings())) == 1


def test_declared_ranges_and_those_of_minmax_allow_no_row_outside() -> None:
    values = np.array([1.0, 3.0, 3.1, NAN])
    for found in (
        numeric_drift("age", values, 2.0, 1.0, "minmax", None),
        numeric_drift("age", values, 0.0, 9.0, "standard", (1.0, 3.0)),
    ):
        assert (found.within, found.outside, found.missing, found.rows) == ((1.0, 3.0), 1, 1, 4)
        assert len(list(found.warnings())) == 1


def test_noisy_quantiles_of_the_release_come_before_the_moments() -> None:
    values = np.array([0.0] * 95 + [3.5] * 5)
    found = numeric_drift("age", values, 0.0, 1.0, "standard", None, (-3.0, 3.0))
    assert found.cells() == ("age", "-3 to 3", "noisy quantiles", "5.0 %", "", "", "+0.17")
    assert not list(found.warnings()), "noise decides how many training rows are outside"
    (warning,) = numeric_drift("age", 2 * values, 0.0, 1.0, "standard", None, (-3.0, 3.0)).warnings()
    assert warning.startswith("5 rows are outside the noisy quantiles of column 'age', -3 to 3")
    declared = numeric_drift("age", values, 0.0, 1.0, "standard", (-4.0, 4.0), (-3.0, 3.0))
    assert (declared.origin, declared.outside) == ("declared", 0)


def test_a_column_without_a_known_range_or_without_a_value_has_no_warning() -> None:
    assert list(numeric_drift("age", np.array([1e9]), 0.0, 1.0, "none", None).warnings()) == []
    empty = numeric_drift("age", np.array([NAN, NAN]), 0.0, 1.0, "standard", None)
    assert (empty.missing, empty.shift, list(empty.warnings())) == (2, None, [])


def test_the_shift_of_the_mean_is_in_standard_deviations() -> None:
    found = numeric_drift("age", np.array([12.0, 14.0, NAN]), 10.0, 2.0, "standard", None)
    assert found.cells() == ("age", "0 to 20", "mean and 5 SD", "", "33.3 %", "", "+1.50")


def test_unknown_categories_are_counted_and_named() -> None:
    found = category_drift("sex", np.array(["f", "", "x", "x"]), ["f", "m"])
    assert (found.unknown, found.missing, found.values) == (2, 1, ("x",))
    assert found.cells() == ("sex", "", "", "", "25.0 %", "50.0 %", "")


def test_rows_that_lack_more_than_half_of_their_values_are_named() -> None:
    table = {"a": np.array([1.0, NAN, NAN]), "b": np.array([NAN, NAN, 1.0]), "c": np.array(["x", "x", ""])}
    assert sparse_rows(table, ["a", "b", "c"]) == "Rows 2, 3 lack more than half of the values."
    assert sparse_rows({"a": np.array([1.0, NAN])}, ["a"]) == "Row 2 lacks more than half of the values."
    assert sparse_rows({"a": np.array([1.0])}, ["a"]) is None
