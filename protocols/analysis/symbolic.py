"""A secure sum on symbols: every message as a linear form of the inputs and of what was drawn.

Sums are linear, so what a party sees is a set of linear forms over unknowns. The forms are not written down by hand:
the protocol itself is executed, with a unit vector for every input and every random vector, and what a party receives
is then the coefficients of what it would receive.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np

from fedsvm.federation.arrays import Residues
from fedsvm.federation.channel.interface import uniform_residues
from fedsvm.federation.channel.memory import InMemoryNetwork, MemoryChannel
from fedsvm.federation.transport.keys import COORDINATOR
from fedsvm.protocols.analysis.execution import Record, execute
from fedsvm.protocols.sums.secure_sum import SecureSum


@dataclass
class SymbolicNetwork(InMemoryNetwork):
    """A network on which every random vector of the inputs' shape is the unit vector of an unknown of its own.

    Attributes
    ----------
    unknowns : int, default 0
        How many there are so far.
    shape : (1, int), default (1, 0)
        Of the inputs: one limb, as many columns as there may be unknowns.
    """

    unknowns: int = 0
    shape: tuple[int, int] = (1, 0)
    _of_secret: dict[bytes, int] = field(default_factory=dict)

    def unit(self, secret: bytes | None = None) -> Residues:
        """Return the unit vector of a new unknown, or of the one that a secret represents.

        Parameters
        ----------
        secret : bytes, default None
            What two parties expand comes to the same if the secret does.

        Returns
        -------
        Residues of shape `shape`
        """
        with self._news:
            number = self._of_secret.get(secret, self.unknowns) if secret is not None else self.unknowns
            self.unknowns = max(self.unknowns, number + 1)
            if secret is not None:
                self._of_secret[secret] = number
        return unit_vector(number, self.shape[1])

    def _channel(self, name: str) -> MemoryChannel:
        return _SymbolicChannel(self, name)


class _SymbolicChannel(MemoryChannel):
    _network: SymbolicNetwork

    def random(self, shape: Sequence[int]) -> Residues:
        """Return a new unknown for a vector; secrets stay numbers."""
        is_vector = tuple(shape) == self._network.shape
        return self._draw(self._network.unit() if is_vector else uniform_residues(shape))

    def expand(self, secrets: Sequence[bytes], shape: Sequence[int], part: int = 0) -> Residues:
        """Return the unknowns that the secrets represent."""
        return self._expand(secrets, np.stack([self._network.unit(secret) for secret in secrets]))


def unit_vector(number: int, length: int) -> Residues:
    """Return the linear form of one unknown.

    Parameters
    ----------
    number : int
        Which, from 0.
    length : int
        How many there may be.

    Returns
    -------
    Residues of shape (1, length)
        Zeros, but for a 1 at `number`.
    """
    vector = np.zeros((1, length), dtype=np.uint64)
    vector[0, number] = 1
    return vector


def linear_views(
    protocol: SecureSum,
    sites: tuple[str, ...],
    deaths: Mapping[str, int] = MappingProxyType({}),
    receiver: str = COORDINATOR,
) -> Record:
    """Return what every party sees in one sum, as linear forms.

    Parameters
    ----------
    protocol : SecureSum
    sites : tuple of str
        In ring order.
    deaths : mapping of site to int, default {}
        Before which of its messages, counted from 1, a site dies.
    receiver : str, default the coordinator
        Who learns the sum.

    Returns
    -------
    Record of Residues of shape (1, d)
        Coefficients. The first unknowns are the sites' inputs, in the order of `sites`; the others are what was drawn.

    Raises
    ------
    Transient
        Where a site died and the others gave up.
    """
    count = len(sites)
    length = count * (count + 3)  # no protocol draws more than n vectors a site, and a receiver one more
    network = SymbolicNetwork(sites, deaths=deaths, unknowns=count, shape=(1, length))
    inputs = {site: unit_vector(number, length) for number, site in enumerate(sites)}
    return execute(protocol, inputs, network, receiver).record
