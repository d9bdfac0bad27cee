"""The [algorithm] table: made from the settings of the algorithm that it names."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Annotated, Any, Literal

from pydantic import Field, ValidatorFunctionWrapHandler, WrapValidator, create_model

from fedsvm.algorithms.algorithm import Algorithm
from fedsvm.algorithms.leakage import NAMES_ROWS, limited_by_noise
from fedsvm.algorithms.registry import ALGORITHMS, DEFAULT_ALGORITHM
from fedsvm.algorithms.settings import Setting, settings
from fedsvm.scenarios.schema.base import Part

NOT_ANALYZED = (
    "what all sums show together was not analyzed; `fedsvm audit SCENARIO` lists what each party saw and tries the "
    "attacks that are known"
)


class AlgorithmTable(Part):
    """The algorithm to train: `name`, and the settings of that algorithm."""

    name: str = DEFAULT_ALGORITHM

    @property
    def implementation(self) -> Algorithm[Any, Any, Any]:
        """The algorithm."""
        return ALGORITHMS[self.name]

    @property
    def settings(self) -> Any:
        """The settings, as the algorithm's own dataclass."""
        return self.implementation.Settings(**self.model_dump(exclude={"name"}))


def whole_run(
    algorithm: Algorithm[Any, Any, Any], settings: Any, statistics_privacy: float = 0.0, *, scaled: bool = False
) -> str:
    """Return clauses on what the whole run of an algorithm gives away, and what its model file does.

    Parameters
    ----------
    algorithm : Algorithm
    settings : Settings
        Those of the algorithm.
    statistics_privacy : float, default 0.0
        mu of noisy statistics; 0 of exact ones.
    scaled : bool, default False
        True if the model file has means and deviations of the training rows.
    """
    found = algorithm.whole_run(settings)
    by_sums = algorithm.scaling == "secure-sums"
    is_noisy = by_sums and statistics_privacy > 0 and not getattr(settings, "has_exact_landmarks", False)
    if is_noisy and found is not None:
        found = found.with_noisy_landmarks()
    clauses = [NOT_ANALYZED if found is None else str(found)]
    has_exact_scale = by_sums and scaled and not statistics_privacy
    if is_noisy:
        has_landmarks = getattr(settings, "features", None) == "landmarks"
        is_whole = algorithm.model_is_statistics
        clauses.append(limited_by_noise(statistics_privacy, has_landmarks=has_landmarks, is_whole=is_whole))
    has_exact_means = algorithm.model_is_statistics and not statistics_privacy
    if has_exact_means or (has_exact_scale and (found is None or not found.is_file_named)):
        clauses.append(NAMES_ROWS)
    return "; ".join(clauses)


@functools.cache
def table_of(name: str) -> type[AlgorithmTable]:
    """Return the table of an installed algorithm: its name, and a key for every setting.

    Raises FederationError where it is of another package and cannot be loaded.
    """
    keys = fields(_settings(name))
    return create_model("AlgorithmTable", __base__=AlgorithmTable, name=(Literal[name], name), **keys)  # type: ignore[arg-type]


def _settings(name: str) -> list[Setting]:
    return settings(ALGORITHMS[name].Settings)


def fields(listed: Iterable[Setting]) -> dict[str, Any]:
    """Return the fields of a table that has these settings as its keys."""
    return {setting.name: (_type_of(setting), setting.default) for setting in listed}


def _type_of(setting: Setting) -> Any:
    """Return the type of a key. The setting checks its values itself; the annotation is for editors."""

    def check(value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
        return setting.check(value)

    return Annotated[setting.annotation, WrapValidator(check), Field(description=setting.sentence)]


def others_with(key: str, name: str) -> list[str]:
    """Return the other algorithms that have a setting."""
    loadable = [other for other, _ in ALGORITHMS.loadable() if other != name]
    return [other for other in loadable if any(key == each.name for each in _settings(other))]
