"""The control messages of the coordinator, their form on the wire, and the effect of every control message.

Those of a site are in `site_messages`.

    message        from         when                                effect
    -------------  -----------  ----------------------------------  ----------------------------------------------------
    RosterUpdate   coordinator  at launch, and when a site was      the site admits exactly these parties, loads its
                                restarted or joins again            partition if necessary, and answers StepDone
    MissedOrders   coordinator  a site that missed orders joins     the site moves on in its script, answers StepDone
    Order          coordinator  a round begins                      the site runs the step and its part of the protocol,
                                                                    answers StepDone, StepFailure or Aborted
    StepDone       site         its part of the order is complete   the coordinator waits for the others
    StepFailure    site         a step or a protocol raised, or     `cut_off`: the round is aborted and runs again;
                                the order was refused               otherwise the run ends with SiteFailed
    Abort          coordinator  a round cannot end, and to sites    a site in that round leaves it by RoundAborted; each
                                that are late                       site answers Aborted
    Aborted        site         it received Abort                   the coordinator counts the site as reachable
    LogRecord      site         its code logged something           the coordinator writes and shows it
    RunOver        coordinator  the run is over, or failed          the site answers FinalReport, and its process ends;
                                                                    it waits if the run may be resumed
    FinalReport    site         it received RunOver                 the coordinator keeps it

In a simulation the coordinator opens the connections, across hosts the sites do; answers use the same ones. Every
message carries the run and the round in the frame's header (`transport.wire`). `to_message` lists its `fields`. The
coordinator refuses an answer for another round than the current one.

Every `from_message` is strict: a missing or additional field or array, or a field of another type, raises Malformed,
and the receiver uses no part of the message. The arrays of an Order are its step's arguments, which the site checks. No
other module spells the name of a field.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import msgpack
import numpy as np

from fedsvm.federation.control_fields import check_all, check_text, read_fields
from fedsvm.federation.errors import Malformed
from fedsvm.federation.transport.keys import COORDINATOR, KEY_BYTES, SIGNATURE_BYTES, Roster
from fedsvm.federation.transport.wire import Array, Message, decode

MAX_LOG_TEXT = 500
"""Characters of a log record's text, and of the reason why a run failed."""


_BYTES_PER_PARTY: Mapping[str, int] = {
    "public_keys": KEY_BYTES,
    "agreement_keys": KEY_BYTES,
    "vouchers": SIGNATURE_BYTES,
}
"""The arrays of a roster, with the bytes for each party."""


_ORDER: dict[str, tuple[type, ...]] = {
    "verb": (str,),
    "step": (str,),
    "protocol": (str,),
    "phase": (str,),
    "turn": (int,),
    "sites": (list, type(None)),
    "args": (dict,),
    "wait_s": (float,),
    "after": (int,),
    "sig": (bytes,),
}
_GATHER = _ORDER | {"shape": (list,)}
_SUM = _GATHER | {"bound": (float,), "options": (dict,), "opened_by": (str,)}
_ORDER_FIELDS: Mapping[str, dict[str, tuple[type, ...]]] = {
    "run": _ORDER,
    "gather": _GATHER,
    "sum": _SUM,
    "sum-at": _SUM,
}
"""The fields of an order by its verb, with the types of each."""


# Messages of the coordinator.


@dataclass(frozen=True)
class RosterUpdate:
    """The parties of a run, with the addresses at which the receiving site reaches them."""

    kind: ClassVar[str] = "roster"

    parties: Roster

    def to_message(self, run: bytes, round_number: int) -> Message:
        """Encode with fields names and addresses, a text with a line per party, and arrays public_keys and
        agreement_keys, of 32 bytes per party, and vouchers, of 64. They have zeros for a party without one, and are
        empty if no party has one."""
        names, addresses, *columns = self.parties.to_columns()
        fields = {"names": names, "addresses": addresses}
        tables = {name: np.frombuffer(column, np.uint8) for name, column in zip(_BYTES_PER_PARTY, columns, strict=True)}
        return Message(self.kind, run, round_number, fields=fields, arrays=tables)

    @classmethod
    def from_message(cls, message: Message, all_sites: tuple[str, ...] = ()) -> RosterUpdate:
        """Decode a message. all_sites: the sites of the run, as the reader knows them. Raises Malformed."""
        fields = read_fields(message, _BYTES_PER_PARTY, names=(str,), addresses=(str,))
        names, addresses = fields["names"], fields["addresses"]
        parties, reachable = (column.count("\n") + 1 for column in (names, addresses))
        if parties != reachable:
            raise Malformed(f"a roster must have an address for each of {parties} parties, got {reachable}")
        for name, table in message.arrays.items():
            if table.dtype != np.uint8 or table.shape not in ((_BYTES_PER_PARTY[name] * parties,), (0,)):
                raise Malformed(f"{name} of a roster must be {_BYTES_PER_PARTY[name]} bytes for each party")
        known = "\n".join((COORDINATOR, "\n".join(all_sites)))  # the usual case, checked without splitting the names
        if names != known and len(set(names.split("\n"))) < parties:
            raise Malformed("each party of the roster must be listed once")
        public_keys, agreement_keys, vouchers = (message.arrays[name].tobytes() for name in _BYTES_PER_PARTY)
        return cls(Roster.from_columns(names, addresses, public_keys, agreement_keys, vouchers))


@dataclass(frozen=True)
class MissedOrders:
    """The orders of the rounds that a run has completed, for a site that missed some of them.

    Parameters
    ----------
    orders : tuple of (int, Order)
        The number of each round with its order in full, in the order of the rounds.
    """

    kind: ClassVar[str] = "missed"

    orders: tuple[tuple[int, Order], ...]

    def to_message(self, run: bytes, round_number: int) -> Message:
        """Return a message with the arrays frames, of all orders, and lengths, of the frame of each."""
        frames = [order.to_message(run, number).frame for number, order in self.orders]
        arrays: dict[str, Array] = {
            "frames": np.frombuffer(b"".join(frames), dtype=np.uint8),
            "lengths": np.array([len(frame) for frame in frames], dtype=np.int64),
        }
        return Message(self.kind, run, round_number, arrays=arrays)

    @classmethod
    def from_message(cls, message: Message, all_sites: tuple[str, ...] = ()) -> MissedOrders:
        """Decode a message. all_sites: the sites of the run, as the reader knows them. Raises Malformed."""
        read_fields(message, ("frames", "lengths"))
        frames, lengths = message.arrays["frames"], message.arrays["lengths"]
        if frames.dtype != np.uint8 or lengths.dtype != np.int64 or frames.ndim != 1 or lengths.ndim != 1:
            raise Malformed(f"frames of {cls.kind} must be bytes, and lengths whole numbers")
        if (lengths < 0).any() or (lengths > len(frames)).any() or lengths.sum() != len(frames):
            raise Malformed(f"lengths of {cls.kind} must be those of its frames")
        orders: list[tuple[int, Order]] = []
        start = 0
        for length in lengths.tolist():
            each = decode(frames[start : start + length].tobytes())
            start += length
            if each.kind != Order.kind or each.run != message.run or (orders and each.round <= orders[-1][0]):
                raise Malformed(f"frames of {cls.kind} must be orders of this run, of rising rounds")
            orders.append((each.round, Order.from_message(each, all_sites)))
        return cls(tuple(orders))


@dataclass(frozen=True)
class SumTerms:
    """The terms of a secure sum that every party must know: shape of a value, bound of the sum, options of the
    protocol, and the party that learns the sum."""

    shape: tuple[int, ...]
    bound: float
    options: Mapping[str, float]
    receiver: str


@dataclass(frozen=True)
class GatherTerms:
    """The terms of a value that goes to the coordinator in the clear."""

    shape: tuple[int, ...]


@dataclass(frozen=True)
class Order:
    """The joint work of all sites in a round, and its place in the run.

    Parameters
    ----------
    step : str
        The step of the site's program.
    protocol : str
        The name under which its messages are counted: a secure sum's name, "gather", or the step's.
    terms : SumTerms, GatherTerms or None
        How the value of the step leaves the site; None: it stays there.
    parameters : mapping
        The step's plain arguments.
    arrays : mapping
        The step's arrays.
    phase : str
        Phase of the run, for the record and for faults.
    phase_round : int
        Round within the phase, from 1; 0 in an order that a site missed and receives later.
    sites : tuple of str
        Sites that take part, in ring order.
    timeout_s : float
        Seconds after this order that a site waits for a peer, except in `collect`, which counts from its own start.
    after : int, default 0
        The last round before this one that is complete; 0 for none. See `site.chain`.
    everyone : bool, default False
        Whether `sites` are all of the run. Then the order omits them on the wire, since every site knows them: their
        names would be most of the bytes of an order to a thousand sites.
    signature : bytes, default b""
        The coordinator's, see `site.signed`; empty for none.

    Attributes
    ----------
    facts_in : dict of int to str
        Cache of the order's facts by round, see `site.order_facts`.
    """

    kind: ClassVar[str] = "order"

    step: str
    protocol: str
    terms: SumTerms | GatherTerms | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)
    arrays: Mapping[str, Array] = field(default_factory=dict)
    phase: str = ""
    phase_round: int = 0
    sites: tuple[str, ...] = ()
    timeout_s: float = 0.0
    after: int = 0
    everyone: bool = False
    signature: bytes = b""
    facts_in: dict[int, str] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def arguments(self) -> dict[str, Any]:
        """All arguments of the step."""
        return {**self.parameters, **self.arrays}

    @property
    def verb(self) -> str:
        """The name of the order in ledger and log: "run", "gather", "sum", or "sum-at" if a site opens the sum."""
        if self.terms is None:
            return "run"
        if isinstance(self.terms, GatherTerms):
            return "gather"
        return "sum" if self.terms.receiver == COORDINATOR else "sum-at"

    @property
    def reveals(self) -> bool:
        """True if the order is complete once the coordinator has a value, not only when every site has finished."""
        return isinstance(self.terms, GatherTerms) or (
            isinstance(self.terms, SumTerms) and self.terms.receiver == COORDINATOR
        )

    def to_message(self, run: bytes, round_number: int) -> Message:
        """Encode with fields verb, step, protocol, phase, turn (`phase_round`), sites, args (`parameters`), wait_s
        (`timeout_s`), after and sig (`signature`). Long names would be most of what an order adds to a round.

        With a sum also shape, bound, options, opened_by; with a gather, shape.
        """
        fields = _terms_to_fields(self.terms) | {
            "verb": self.verb,
            "step": self.step,
            "protocol": self.protocol,
            "phase": self.phase,
            "turn": self.phase_round,
            "sites": None if self.everyone else list(self.sites),
            "args": dict(self.parameters),
            "wait_s": float(self.timeout_s),
            "after": self.after,
            "sig": self.signature,
        }
        return Message(self.kind, run, round_number, fields=fields, arrays=dict(self.arrays))

    @classmethod
    def from_message(cls, message: Message, all_sites: tuple[str, ...] = ()) -> Order:
        """Decode a message. all_sites: the sites of the run, as the reader knows them. Raises Malformed."""
        verb = message.fields.get("verb")
        if not isinstance(verb, str) or verb not in _ORDER_FIELDS:
            raise Malformed(f"the verb of an order must be run, gather, sum or sum-at, got {verb!r}")
        fields = read_fields(message, message.arrays, **_ORDER_FIELDS[verb])
        everyone = fields["sites"] is None
        if not everyone:
            check_all(message.kind, "sites", fields["sites"], (str,))
        order = cls(
            fields["step"],
            fields["protocol"],
            _terms_from_fields(verb, fields),
            fields["args"],
            message.arrays,
            fields["phase"],
            fields["turn"],
            all_sites if everyone else tuple(fields["sites"]),
            fields["wait_s"],
            fields["after"],
            everyone,
            fields["sig"],
        )
        if order.verb != verb:
            raise Malformed(f"an order to {verb} must not be opened by {fields['opened_by']}")
        return order

    @functools.cached_property
    def digest(self) -> bytes:
        """A digest of the step, its arguments, the verb, the terms and the protocol."""
        return self._digest_of(self.step, self.protocol, self.verb, _terms_to_fields(self.terms))

    @functools.cached_property
    def arguments_digest(self) -> bytes:
        """A digest of the step's arguments."""
        return self._digest_of()

    def _digest_of(self, *values: object) -> bytes:
        """Return a digest of these values and of the step's arguments."""
        arrays = [(name, array.dtype.str, array.shape) for name, array in self.arrays.items()] if self.arrays else []
        found = hashlib.blake2b(msgpack.packb((values, self.parameters, arrays)), digest_size=32)
        for array in self.arrays.values():
            found.update(np.ascontiguousarray(array).data)
        return found.digest()

    def describe(self) -> dict[str, Any]:
        """Return the properties of a secure sum as plain values for a transcript."""
        return {
            **_terms_to_fields(self.terms),
            "step": self.step,
            "protocol": self.protocol,
            "sites": list(self.sites),
        }


@dataclass(frozen=True)
class Abort:
    """Leave the round of this number."""

    kind: ClassVar[str] = "abort"

    def to_message(self, run: bytes, round_number: int) -> Message:
        """Encode without fields."""
        return Message(self.kind, run, round_number)

    @classmethod
    def from_message(cls, message: Message) -> Abort:
        """Decode a message. Raises Malformed."""
        read_fields(message)
        return cls()


@dataclass(frozen=True)
class RunOver:
    """The run is over.

    Parameters
    ----------
    failure : str, default ""
        Why it failed, in a sentence of MAX_LOG_TEXT printable characters or fewer; empty if it did not.
    resumable : bool, default False
        Whether a coordinator may resume it, so that sites that can should wait.
    """

    kind: ClassVar[str] = "stop"

    failure: str = ""
    resumable: bool = False

    def to_message(self, run: bytes, round_number: int) -> Message:
        """Encode with fields failure and resumable."""
        return Message(self.kind, run, round_number, fields=dict(vars(self)))

    @classmethod
    def from_message(cls, message: Message) -> RunOver:
        """Decode a message. Raises Malformed."""
        fields = read_fields(message, failure=(str,), resumable=(bool,))
        check_text(cls.kind, "failure", fields["failure"], MAX_LOG_TEXT)
        return cls(**fields)


# Decoding at a site.


ControlMessage = RosterUpdate | MissedOrders | Order | Abort | RunOver
"""The messages that a coordinator sends."""


def read_order(message: Message, all_sites: tuple[str, ...] = ()) -> RosterUpdate | MissedOrders | Order:
    """Decode a message of the coordinator. all_sites: the sites of the run that the reader knows. Raises Malformed."""
    if message.kind == RosterUpdate.kind:
        return RosterUpdate.from_message(message, all_sites)
    if message.kind == MissedOrders.kind:
        return MissedOrders.from_message(message, all_sites)
    if message.kind == Order.kind:
        return Order.from_message(message, all_sites)
    raise Malformed(f"an order must be {RosterUpdate.kind}, {MissedOrders.kind} or {Order.kind}, got {message.kind}")


def read_interrupt(message: Message) -> Abort | RunOver:
    """Decode a message of the coordinator that a site obeys during a round. Raises Malformed."""
    return RunOver.from_message(message) if message.kind == RunOver.kind else Abort.from_message(message)


# Encoding and decoding of terms.


def _terms_to_fields(terms: SumTerms | GatherTerms | None) -> dict[str, Any]:
    if terms is None:
        return {}
    if isinstance(terms, GatherTerms):
        return {"shape": list(terms.shape)}
    return {
        "shape": list(terms.shape),
        "bound": float(terms.bound),
        "options": dict(terms.options),
        "opened_by": terms.receiver,
    }


def _terms_from_fields(verb: str, fields: Mapping[str, Any]) -> SumTerms | GatherTerms | None:
    if verb == "run":
        return None
    check_all("order", "shape", fields["shape"], (int,))
    if verb == "gather":
        return GatherTerms(tuple(fields["shape"]))
    check_all("order", "options", list(fields["options"].values()), (int, float))
    return SumTerms(tuple(fields["shape"]), fields["bound"], fields["options"], fields["opened_by"])
