"""The tasks that tests train over sites that hold rows: a small table, each site's part, and a task with public
rows."""

from __future__ import annotations

import numpy as np

from fedsvm.algorithms.data.columns import Columns, LabeledRows
from fedsvm.algorithms.data.encoding import Vocabulary
from fedsvm.algorithms.data.partition import site_partition
from fedsvm.algorithms.data.public_rows import PublicTask
from fedsvm.algorithms.data.scaling import Scale
from fedsvm.algorithms.privacy.accountant import PrivacyAccountant
from fedsvm.federation.site.partition import Partition

NAMES = ("a", "b", "c", "d")


def table(rows: int, seed: int = 0) -> LabeledRows:
    """Rows of four columns, and labels that are neither linear in them nor free of errors."""
    random = np.random.default_rng(seed)
    points = random.normal(size=(rows, len(NAMES)))
    return LabeledRows(
        points, np.where(points[:, 0] + points[:, 1] ** 2 + 0.5 * random.normal(size=rows) > 1, 1.0, -1.0)
    )


def partitions(private: LabeledRows, sites: int) -> list[Partition]:
    """Rows dealt evenly, in their order."""
    dealt = np.array_split(np.arange(len(private.rows)), sites)
    return [site_partition(private.rows[part], private.labels[part], names=NAMES) for part in dealt]


def public_task(public: LabeledRows, accountant: PrivacyAccountant | None = None) -> PublicTask:
    """One model, of columns as they are, with noise in shares for three sites; without an accountant, no budget."""
    columns = Columns(NAMES, Vocabulary({}), Scale.none(len(NAMES)))
    return PublicTask(columns, public, accountant or PrivacyAccountant(), noise_shares=3, seed=1)
