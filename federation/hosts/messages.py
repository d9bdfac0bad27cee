"""The messages between a site and a coordinator on different hosts before the first roster, and on a new connection.

    message   from         when                             what follows
    --------  -----------  -------------------------------  -----------------------------------------------------------
    Join      site         its connection for orders is open Offer, or Refused
    Offer     coordinator  the site may take part            the site reads its data, and asks its own policy
    Ready     site         it takes part on these terms      the coordinator waits for the others
    Declined  site         it does not, with the reason      the site's process ends
    Refused   coordinator  it must not, with the reason      the site's process ends
    Begin     coordinator  all sites are ready               a roster, and orders: see `fedsvm.federation.control`
    Hello     site         after an offer, on a new          the coordinator assigns the connection to the site, for
                           connection                        orders or for protocols

The ticket of an offer is 16 random bytes. A second process with a copy of a site's key has none, and cannot take over
the connections of the first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

from fedsvm.federation.control_fields import read_fields
from fedsvm.federation.errors import Malformed
from fedsvm.federation.transport.keys import KEY_BYTES, SIGNATURE_BYTES
from fedsvm.federation.transport.wire import RUN_ID_BYTES, Message

PROTOCOL_VERSION = 3
"""Version of a run's messages. It changes when parties with different versions of the package cannot work together."""

_BEFORE_ANY_RUN = bytes(RUN_ID_BYTES)


class _Plain:
    """A message whose fields are its attributes, of the types that it lists."""

    kind: ClassVar[str]
    types: ClassVar[dict[str, tuple[type, ...]]]

    def to_message(self, round_number: int = 0) -> Message:
        """Encode with the attributes as fields."""
        return Message(self.kind, _BEFORE_ANY_RUN, round_number, fields=dict(vars(self)))

    @classmethod
    def from_message(cls, message: Message) -> Self:
        """Decode a message. Raises Malformed."""
        return cls(**read_fields(message, **cls.types))


@dataclass(frozen=True)
class Join(_Plain):
    """A site asks to take part.

    Parameters
    ----------
    protocol : int
        The protocol version of its installation.
    version : str
        The version of its installation.
    name : str
        The name that its certificate was made for.
    address : str
        The address at which other sites reach it; empty if they cannot.
    """

    kind = "join"
    types = {"protocol": (int,), "version": (str,), "name": (str,), "address": (str,)}

    protocol: int
    version: str
    name: str
    address: str


@dataclass(frozen=True)
class Offer(_Plain):
    """The site may take part, on these terms."""

    kind = "offer"
    types = {"run": (bytes,), "ticket": (bytes,), "terms": (dict,)}

    run: bytes
    ticket: bytes
    terms: dict[str, Any]

    @classmethod
    def from_message(cls, message: Message) -> Self:
        """Decode a message. Raises Malformed."""
        offer = super().from_message(message)
        if len(offer.run) != RUN_ID_BYTES or not offer.ticket:
            raise Malformed(f"an offer must name its run by {RUN_ID_BYTES} bytes, and have a ticket")
        return offer


@dataclass(frozen=True)
class Ready(_Plain):
    """The site takes part.

    Parameters
    ----------
    columns : list
        [name, whether it is categorical] of each column, in the order of its file.
    agreement_key : bytes or None
        The public key with which it agrees on secrets with other sites; None if no protocol needs any.
    voucher : bytes or None
        Its signature of its keys and the terms, for the other sites; None without a signing key.
    """

    kind = "ready"
    types = {
        "columns": (list,),
        "agreement_key": (bytes, type(None)),
        "voucher": (bytes, type(None)),
    }

    columns: list[list[Any]]
    agreement_key: bytes | None
    voucher: bytes | None

    @classmethod
    def from_message(cls, message: Message) -> Self:
        """Decode a message. Raises Malformed, also for keys that no roster may have."""
        ready = super().from_message(message)
        for column in ready.columns:
            if not isinstance(column, list) or [type(value) for value in column] != [str, bool]:
                raise Malformed("a column must be a name and whether it is categorical")
        if ready.agreement_key is not None and len(ready.agreement_key) != KEY_BYTES:
            raise Malformed(f"an agreement key must be {KEY_BYTES} bytes")
        if ready.voucher is not None and len(ready.voucher) != SIGNATURE_BYTES:
            raise Malformed(f"a voucher must be {SIGNATURE_BYTES} bytes")
        return ready


@dataclass(frozen=True)
class Declined(_Plain):
    """The site does not take part. by_policy: its operator forbids it, regardless of its data."""

    kind = "declined"
    types = {"reason": (str,), "by_policy": (bool,)}

    reason: str
    by_policy: bool


@dataclass(frozen=True)
class SiteRefused(_Plain):
    """The site must not take part."""

    kind = "refused"
    types = {"reason": (str,)}

    reason: str


@dataclass(frozen=True)
class Begin(_Plain):
    """The run begins, with these sites in ring order, and columns in this order."""

    kind = "begin"
    types = {"sites": (list,), "columns": (list,)}

    sites: list[str]
    columns: list[str]


@dataclass(frozen=True)
class Hello(_Plain):
    """This connection belongs to the site with this ticket; `control`: it is the one for orders."""

    kind = "hello"
    types = {"ticket": (bytes,), "control": (bool,)}

    ticket: bytes
    control: bool
