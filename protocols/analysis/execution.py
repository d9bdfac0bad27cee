"""One secure sum, executed in memory: its result, its cost, and every vector that a party has seen.

The parties are threads that run the same functions as site processes. Their messages, draws and inputs become a record,
in which a label names the owner of every vector. Transcripts of runs over sockets have the same labels, so conclusions
from one record can be checked on the other.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from fedsvm.federation.arrays import Residues
from fedsvm.federation.channel.memory import InMemoryNetwork, MemoryChannel
from fedsvm.federation.transport.keys import COORDINATOR
from fedsvm.protocols.sums.secure_sum import Cost, SecureSum


class Label(NamedTuple):
    """The name of a vector in a round.

    Attributes
    ----------
    what : str
        "received", "drew", "input" or "total".
    party : str
        The party that received or drew the vector, or whose input it is; "" for the total.
    peer : str, default ""
        The sender of a received vector; the name of a drawn keystream.
    place : int, default 0
        Its position among the vectors of the same kind, party and peer.
    """

    what: str
    party: str
    peer: str = ""
    place: int = 0


Record = dict[Label, Residues]
"""All vectors of a round, each of shape (limbs, d)."""


class Execution(NamedTuple):
    """One secure sum that was executed in memory.

    Attributes
    ----------
    inputs : mapping of site to Residues of shape (limbs, d)
        The input of each site.
    total : Residues of shape (limbs, d), or None
        The value of the coordinator's part; None if a site receives the sum, or the protocol returns nothing.
    network : InMemoryNetwork
        The record of all messages and draws.
    """

    inputs: Mapping[str, Residues]
    total: Residues | None
    network: InMemoryNetwork

    @property
    def cost(self) -> Cost:
        """The cost of the sum."""
        return Cost(len(self.network.sent), self.network.hops, self.network.payload_bytes)

    @property
    def record(self) -> Record:
        """Every vector of the inputs' shape: inputs, received and drawn vectors, and the total."""
        shape = next(iter(self.inputs.values())).shape
        record = {Label("input", site): vector for site, vector in self.inputs.items()}
        if self.total is not None:
            record[Label("total", "")] = self.total
        received: dict[tuple[str, str], list[Residues]] = defaultdict(list)
        for message in self.network.sent:
            received[message.receiver, message.sender].append(message.array)
        for (receiver, sender), arrays in received.items():
            record |= label_vectors("received", receiver, sender, arrays, shape)
        for party, arrays in self.network.drawn.items():
            record |= label_vectors("drew", party, "", arrays, shape)
        for party, streams in self.network.expanded.items():
            for number, arrays in enumerate(streams.values(), start=1):
                record |= label_vectors("drew", party, f"keystream {number}", arrays, shape)
        return record


def execute(
    protocol: SecureSum,
    inputs: Mapping[str, Residues],
    network: InMemoryNetwork | None = None,
    receiver: str = COORDINATOR,
) -> Execution:
    """Execute one secure sum in memory.

    Parameters
    ----------
    protocol : SecureSum
    inputs : mapping of site to Residues of shape (limbs, d)
        The input of each site, in ring order; all have the same shape.
    network : InMemoryNetwork, default one over the sites of `inputs`
        An unused network, for example one in which sites die.
    receiver : str, default the coordinator
        The party that learns the sum: the coordinator, or one of the sites.

    Returns
    -------
    Execution

    Raises
    ------
    RoundAborted
        A party died and the others aborted the round.
    Exception
        The error of a party, such as PeerDropped after the death of a site without which there is no sum.
    """
    network = network or InMemoryNetwork(tuple(inputs))
    limbs, length = next(iter(inputs.values())).shape

    def contribute(vector: Residues) -> Callable[[MemoryChannel], Residues | None]:
        return lambda channel: protocol.contribute(channel, vector, receiver)

    parties = {site: contribute(vector) for site, vector in inputs.items()}
    parties[COORDINATOR] = lambda channel: protocol.forward(channel, (limbs, length), receiver)
    return Execution(inputs, network.run(parties)[COORDINATOR], network)


def label_vectors(what: str, party: str, peer: str, arrays: Iterable[Residues], shape: Sequence[int]) -> Record:
    """Return the vectors of one shape that a party received or drew. Chunks are joined again.

    Parameters
    ----------
    what, party, peer : str
        As in `Label`.
    arrays : iterable of arrays
        The arrays in the order in which they arrived or were drawn. Other types and numbers of limbs are omitted.
    shape : (limbs, d)
        The shape of the vectors.

    Returns
    -------
    Record
    """
    vectors: list[Residues] = []
    chunks: list[Residues] = []
    for array in arrays:
        if array.dtype != np.uint64 or array.ndim != 2 or array.shape[0] != shape[0]:
            continue
        chunks.append(array)
        columns = sum(chunk.shape[1] for chunk in chunks)
        if columns == shape[1]:
            vectors.append(np.concatenate(chunks, axis=1))
        if columns >= shape[1]:
            chunks = []
    return {Label(what, party, peer, place): vector for place, vector in enumerate(vectors)}


def site_names(count: int) -> tuple[str, ...]:
    """Return names for sites.

    Parameters
    ----------
    count : int

    Returns
    -------
    tuple of str
        site-1, site-2, …
    """
    return tuple(f"site-{number}" for number in range(1, count + 1))
