"""One secure sum, run in memory: what the coordinator learns, what it cost, and every vector that a party has seen.

The parties are threads and run the very functions that site processes run. What they send, draw and put in becomes a
record, in which every vector has a label that says whose it is; the transcripts of a run over sockets are labelled the
same way, so that what follows from the one record can be tried on the other.
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
        Who received or drew it, or put it in; "" of the total.
    peer : str, default ""
        Who sent what was received; which keystream it is that was drawn.
    place : int, default 0
        Its place among those of the same kind, party and peer.
    """

    what: str
    party: str
    peer: str = ""
    place: int = 0


Record = dict[Label, Residues]
"""All vectors of a round, each of shape (limbs, d)."""


class Execution(NamedTuple):
    """One secure sum that was run in memory.

    Attributes
    ----------
    inputs : mapping of site to Residues of shape (limbs, d)
        What each site put in.
    total : Residues of shape (limbs, d), or None
        What the coordinator's part returned; None where a site receives it, and of a protocol that returns nothing.
    network : InMemoryNetwork
        All that was sent and drawn.
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
        """Every vector of the inputs' shape that was put in, received, drawn or revealed."""
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
    """Run one secure sum in memory.

    Parameters
    ----------
    protocol : SecureSum
    inputs : mapping of site to Residues of shape (limbs, d)
        What each site puts in; in ring order, all of one shape.
    network : InMemoryNetwork, default one over the sites of `inputs`
        A network without a past, such as one in which sites die.
    receiver : str, default the coordinator
        Who learns the sum: the coordinator, or one of the sites.

    Returns
    -------
    Execution

    Raises
    ------
    RoundAborted
        Where a party died and the others gave up.
    Exception
        Whatever a party raised, such as PeerDropped where a site died whom the sum cannot do without.
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
        In the order in which they came or were drawn. Those of another type or number of limbs are left out.
    shape : (limbs, d)
        Of the vectors.

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
