"""The secure sums of this installation, by their names in scenarios.

Another package registers its sum by an entry point of the group `fedsvm.sums`. The entry point has the name of the sum,
and its object is a `SecureSum`. The package must be installed at every site, since a coordinator names a sum and cannot
send one. An entry point cannot replace a sum of this project.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from types import MappingProxyType

from fedsvm.federation.plugins import Registry
from fedsvm.protocols.sums.additive_shares import additive_shares
from fedsvm.protocols.sums.changing_neighbours import changing_neighbours
from fedsvm.protocols.sums.k_secure import k_secure
from fedsvm.protocols.sums.masked import masked
from fedsvm.protocols.sums.plain import PLAIN
from fedsvm.protocols.sums.ring import ring
from fedsvm.protocols.sums.secure_sum import SecureSum

GROUP = "fedsvm.sums"

OWN_SUMS: Mapping[str, Callable[..., SecureSum]] = MappingProxyType(
    {
        "plain": lambda: PLAIN,
        "ring": ring,
        "k-secure": k_secure,
        "changing-neighbours": changing_neighbours,
        "masked": masked,
        "additive-shares": additive_shares,
    }
)
"""The sums of this project. The annotated parameters of each are its settings in scenarios."""

DEFAULT_SUM = "ring"
"""The sum of a scenario that names none."""

DROPOUT_SUM = "masked"
"""The sum that continues if sites drop out during it."""

CAREFUL_SUMS: Mapping[str, Mapping[str, float]] = {
    "masked": {"min_sites": 3, "threshold": 0.6},
    "k-secure": {"min_sites": 4, "segments": 3},
}
"""The sums that a careful site allows, each with the minimum of its settings and of its number of sites."""


def _itself(make: Callable[..., SecureSum]) -> Callable[..., SecureSum]:
    return make


def _accept(offered: object, name: str) -> Callable[..., SecureSum] | None:
    """Return a constructor of another package's sum, which has no options."""
    return (lambda: offered) if isinstance(offered, SecureSum) and offered.name == name else None


SUMS: Registry[Callable[..., SecureSum]] = Registry(
    GROUP, "sum", {name: functools.partial(_itself, make) for name, make in OWN_SUMS.items()}, _accept
)
