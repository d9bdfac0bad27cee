"""The receipt: a site's own record of a run, which a coordinator cannot change or prevent.

Each line is written before it has an effect, to a file that only its owner may read. It has a digest of itself and of
all lines before it, so an edited, removed or moved line is detected. An order is recorded before the site checks it. A
restarted process continues the file.

The digests use no secret: anyone who can write the file can also create another one. If the parties have keys for
signatures, each order has the coordinator's signature, and the last line the site's. Receipts of other sites have the
same orders.
"""

from __future__ import annotations

import errno
import fcntl
import functools
import hashlib
import json
import os
import time
from collections import deque
from collections.abc import Mapping, Sequence
from datetime import datetime
from json.encoder import encode_basestring_ascii as json_text
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsvm.federation.arrays import Residues
from fedsvm.federation.control import MissedOrders, Order
from fedsvm.federation.errors import SEE_SITE, StepRefused
from fedsvm.federation.site.order_facts import DIGEST_BYTES, list_or_digest, order_digest, order_facts
from fedsvm.federation.transport.keys import Roster
from fedsvm.federation.transport.signing import RECEIPT, SigningKey

ASKED, DECLINED, JOINED, PARTIES, CHARGED = "asked", "declined", "joined", "parties", "charged"
ORDERED, MISSED, LEFT, BROKEN, REFUSED = "ordered", "missed", "left", "broken off", "refused"
LOGGED, PAUSED, RESUMED, RESTARTED, ENDED = "logged", "paused", "resumed", "restarted", "ended"
ANSWERED, SIGNED = "answered", "signed"
CLOSING = (DECLINED, ENDED, SIGNED)
"""The last line of a receipt that is closed."""

IN_CLEAR, IN_SUM, NO_VALUE = "in the clear", "in a sum", "no value"
"""The forms in which a value leaves the site."""

_DIGEST = b', "digest": "'
_FIRST = hashlib.blake2b(b"fedsvm receipt 1\0", digest_size=DIGEST_BYTES).digest()
_MAX_LISTED = 64
"""Maximum number of parties whose keys are in a line; beyond that it has a digest of the keys."""

Line = dict[str, Any]


class DamagedReceipt(Exception):
    """A receipt was changed after it was written. The message names the line; `lines` are the valid lines before it."""

    def __init__(self, number: int, lines: list[Line]) -> None:
        super().__init__(f"line {number} does not match its digest: it, or a line before it, was changed")
        self.lines = lines


class Sent(dict[str, int]):
    """An observer of a channel that counts the numbers sent, by peer."""

    def sending(self, peer: str, array: NDArray[Any]) -> None:
        """Count an array."""
        self[peer] = self.get(peer, 0) + array.size

    def received(self, peer: str, array: NDArray[Any]) -> None:
        """Count nothing, since nothing leaves the site."""

    def drew(self, residues: Residues, stream: str = "") -> None:
        """Count nothing, since nothing leaves the site."""


class Receipt:
    """The writer of one site's receipt.

    Parameters
    ----------
    path : str
        Its file, in a folder that exists. It is opened with the first line. "" for a receipt that writes nothing.
    version : str
        The version of the installation.
    repeats : bool, default False
        True if each process repeats the run from its start, as in visits. Lines that the file already has in this place
        are then not written again.
    key : SigningKey, optional
        The key with which the site signs a receipt that it closes.
    coordinator_key : bytes, optional
        The key by which the site verified that orders were signed by the coordinator.
    """

    def __init__(
        self,
        path: str,
        version: str,
        *,
        repeats: bool = False,
        key: SigningKey | None = None,
        coordinator_key: bytes | None = None,
    ) -> None:
        self._path = path
        self._version = version
        self._repeats = repeats
        self._key = key
        self._coordinator_key = coordinator_key
        self._run, self._site = "", ""
        self._mu = 0.0
        self._file = -1
        self._digest = _FIRST
        self._lines = 0
        self._earlier: deque[Line] = deque()
        self._sent = Sent()
        self._link = b""

    @property
    def path(self) -> str:
        """The file; empty for none."""
        return self._path

    # Events.

    def record_asked(self, run: bytes, site: str, terms: Mapping[str, Any], policy: Mapping[str, Any]) -> None:
        """Record the terms of a run and the policy that they were compared with."""
        versions = {"fedsvm": self._version, "numpy": np.__version__}
        self._run, self._site = run.hex(), site
        keys = {"site": None if self._key is None else self._key.public, "coordinator": self._coordinator_key}
        signing = {party: _hex(key) for party, key in keys.items()}
        self._note(ASKED, run=run.hex(), site=site, terms=terms, policy=policy, versions=versions, signing=signing)

    def record_declined(self, reason: str) -> None:
        """Record that the site declines."""
        self._note(DECLINED, reason=reason)
        self._close()

    def record_joined(self, sites: Sequence[str], rows: int, columns: Sequence[str], chain: bytes) -> None:
        """Record that the site takes part: all sites, its rows and columns, and the first link of the chain."""
        names = list_or_digest(columns)
        self._note(JOINED, sites=list_or_digest(sites), rows=rows, columns=names, chain=chain.hex())

    def record_parties(self, roster: Roster) -> None:
        """Record the keys of all parties."""
        if not self._path:
            return
        names, _, public, agreement, _ = roster.to_columns()
        digest = hashlib.sha256(names.encode() + b"\0" + public + b"\0" + agreement).hexdigest()
        count = len(roster)
        listed = roster if count <= _MAX_LISTED else ()
        keys = {party.name: [_hex(party.public_key), _hex(party.agreement_key)] for party in listed}
        self._note(PARTIES, keys=keys, parties=count, roster=digest)

    def record_charged(self, epsilon: float) -> None:
        """Record the epsilon that a release spends of the privacy budget."""
        self._note(CHARGED, epsilon=epsilon)

    def record_answered(self, mu: float) -> None:
        """Record the mu of all noisy statistics that the site's record of answers holds, if it changed."""
        if mu != self._mu:
            self._mu = mu
            self._note(ANSWERED, mu=mu)

    def record_ordered(self, order: Order, number: int) -> None:
        """Record an order before it is checked."""
        if not self._path:
            return
        self._link = b""
        facts, signature = order_facts(order, number), order.signature.hex()
        self._write(f'"what": "{ORDERED}", "order": {facts}, "signature": "{signature}"}}')

    def record_missed(self, missed: MissedOrders) -> None:
        """Record the orders that only other sites received."""
        if not self._path:
            return
        orders = {
            str(number): [order.after, order_digest(order_facts(order, number)).hex()]
            for number, order in missed.orders
        }
        self._note(MISSED, orders=orders)

    def begin_step(self, link: bytes) -> Sent:
        """Return the observer of the channel of an order, whose link in the chain of orders this is."""
        self._sent, self._link = Sent(), link
        return self._sent

    def record_left(self, order: Order, number: int, form: str) -> None:
        """Record the form of the value, and the numbers sent, by an order that is complete here."""
        if not self._path:
            return
        sent = ", ".join([f"{json_text(peer)}: {count}" for peer, count in self._sent.items()])
        said = f'"what": "{LEFT}", "round": {number}, "step": {json_text(order.step)}, "form": "{form}"'
        self._write(f'{said}, "sent": {{{sent}}}, "link": "{self._link.hex()}"}}')
        self._sent, self._link = Sent(), b""

    def record_broken(self, number: int, reason: str, *, refused: bool = False) -> None:
        """Record an order that was refused or aborted; messages of its protocol may have left."""
        what, sent, link = REFUSED if refused else BROKEN, dict(self._sent), self._link.hex()
        self._note(what, round=number, reason=reason, sent=sent, link=link)
        self._sent, self._link = Sent(), b""

    def record_logged(self, text: str) -> None:
        """Record a line that the site's code logged to the coordinator."""
        self._note(LOGGED, text=text)

    def record_paused(self, failure: str) -> None:
        """Record that the run failed, and may be resumed."""
        self._note(PAUSED, reason=failure)

    def record_resumed(self) -> None:
        """Record that a failed run continues."""
        self._note(RESUMED)

    def record_ended(self, outcome: str, refused: Mapping[str, int]) -> None:
        """Record how the run ended, and close the receipt."""
        self._note(ENDED, outcome=outcome, refused=dict(refused))
        self._close()

    # The file.

    def release(self) -> None:
        """Close the file, so that another process of the site can continue it."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _close(self) -> None:
        """Sign the last line, which covers all before it, unless an earlier visit did."""
        is_signed = bool(self._earlier) and self._earlier[0]["what"] == SIGNED
        if self._key is not None and not is_signed:
            content = head_content(self._run, self._site, self._digest.hex())
            self._note(SIGNED, signature=self._key.sign(RECEIPT, content).hex())
        self.release()

    def _note(self, what: str, **facts: Any) -> None:
        if self._path:
            self._write(json.dumps({"what": what, **facts})[1:])

    def _write(self, rest: str) -> None:
        """Write a line, given its text after its number and its time."""
        try:
            if self._file < 0:
                self._open()
            if self._earlier:
                if json.loads("{" + rest) == _without(self._earlier[0], "line", "at", "digest"):
                    self._earlier.popleft()
                    return
                self._earlier.clear()
            self._append(rest)
        except OSError as error:
            is_full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
            way_out = "make room there" if is_full else "name another folder"
            raise StepRefused(
                f"its receipt {self._path} cannot be written: {error.strerror}; {way_out}",
                f"its receipt cannot be written: {error.strerror}; {SEE_SITE}",
            ) from error

    def _open(self) -> None:
        """Open the file and read what an earlier process of the site wrote. Raises StepRefused for a damaged one."""
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StepRefused(f"its receipt {self._path} is written by another process; end that one first") from None
        content = b"".join(iter(lambda: os.read(self._file, 1 << 20), b""))
        if not content:
            return
        try:
            lines, whole = verify_lines(content)
        except DamagedReceipt as error:
            raise StepRefused(f"its receipt {self._path} is damaged: {error}; move it to another folder") from error
        os.ftruncate(self._file, whole)
        self._lines = len(lines)
        self._digest = bytes.fromhex(lines[-1]["digest"]) if lines else _FIRST
        if self._repeats:
            self._earlier.extend(lines)
        elif lines:
            self._append(json.dumps({"what": RESTARTED, "cut": len(content) - whole})[1:])

    def _append(self, rest: str) -> None:
        seconds, milliseconds = divmod(time.time_ns() // 1_000_000, 1000)
        before, after = _second(seconds)
        text = f'{{"line": {self._lines + 1}, "at": "{before}.{milliseconds:03}{after}", {rest}'.encode()
        digest = digest_of(self._digest, text)
        written = memoryview(line_of(text, digest))
        while written:
            written = written[os.write(self._file, written) :]
        self._digest, self._lines = digest, self._lines + 1


@functools.lru_cache(maxsize=1)
def _second(seconds: int) -> tuple[str, str]:
    """Return the text of a second before and after its fraction."""
    before, _, after = datetime.fromtimestamp(seconds).astimezone().isoformat(timespec="milliseconds").partition(".000")
    return before, after


def head_content(run: str, site: str, head: str) -> bytes:
    """Return the content that a site signs: the run, its name, and the digest of the last line, in hexadecimal."""
    return json.dumps([run, site, head]).encode()


def verify_lines(content: bytes) -> tuple[list[Line], int]:
    """Return the lines of a receipt, and the number of their bytes without an incomplete last line.

    Raises
    ------
    DamagedReceipt
        A line was edited, removed or moved.
    """
    *whole, rest = content.split(b"\n")
    lines: list[Line] = []
    digest = _FIRST
    for number, text in enumerate(whole, start=1):
        try:
            line = json.loads(text)
            body, _, _ = text.rpartition(_DIGEST)
            digest = digest_of(digest, body + b"}")
            is_right = line_of(body + b"}", digest) == text + b"\n"
            is_right = is_right and line["line"] == number and isinstance(line["what"], str)
        except (ValueError, KeyError, TypeError, AttributeError):
            is_right = False
        if not is_right:
            raise DamagedReceipt(number, lines)
        lines.append(line)
    return lines, len(content) - len(rest)


def digest_of(before: bytes, text: bytes) -> bytes:
    """Return the digest of a line and of all before it, given the text of the line without its digest."""
    return hashlib.blake2b(before + text, digest_size=DIGEST_BYTES).digest()


def line_of(text: bytes, digest: bytes) -> bytes:
    """Return a line of the file, given its text without its digest."""
    return b'%s%s%s"}\n' % (text[:-1], _DIGEST, digest.hex().encode())


def _without(line: Line, *names: str) -> Line:
    return {name: value for name, value in line.items() if name not in names}


def _hex(key: bytes | None) -> str:
    return "" if key is None else key.hex()
