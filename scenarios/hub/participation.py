"""A participant's visit: join a task by its link, do what is due, and go.

A visit needs the participant's data and the folder of its earlier visits, and nothing that a site of a run across hosts
has not: no part of the hub is loaded.
"""

from __future__ import annotations

import hashlib
import http.client
import secrets
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import msgpack

from fedsvm.algorithms.site_process import INSTALLATION
from fedsvm.federation.errors import FederationError, Malformed, OrderRefused, StepRefused
from fedsvm.federation.hosts import certificates
from fedsvm.federation.hosts.held_data import SiteData, describe_terms
from fedsvm.federation.offline.offline_site import OfflineSite, agreement_of
from fedsvm.federation.offline.sealing import Requests, derive_key
from fedsvm.federation.offline.site_store import OVER, SECRET_BYTES, SiteStore
from fedsvm.federation.site.partition import Partition
from fedsvm.federation.site.receipt import Receipt
from fedsvm.federation.site.rules import SiteRules
from fedsvm.federation.site.terms import Terms
from fedsvm.federation.text import visible
from fedsvm.federation.transport import wire, z85
from fedsvm.federation.transport.deadline import Deadline
from fedsvm.federation.transport.keys import KEY_BYTES, KeyPair, Party, voucher_content
from fedsvm.federation.transport.signing import PARTY, SigningKey
from fedsvm.federation.transport.wire import RUN_ID_BYTES, Message
from fedsvm.scenarios.figures import duration
from fedsvm.scenarios.hosts.new_records import hold_asked, write_answer
from fedsvm.scenarios.oversight.receipts import fingerprint
from fedsvm.scenarios.schema.corrections import Corrections
from fedsvm.scenarios.schema.errors import ScenarioError

WORDS = "/api/words"
_KEY, _STORE, _MODEL, _RECEIPT = "visitor", "diary", "model.npz", "task.receipt"
_ANSWER, _PREDICTIONS = "answer.npz", "predictions.csv"
ANSWER_S = 300.0
_AGAIN_S = 0.3
_MAY_PASS = (429, 502, 503, 504)
"""Answers of a hub that is asked too often, and of a server in front of one that is starting again."""
_MAX_ANSWER_BYTES = 1 << 29
_NO_PART = ("declined", "withdrawn", "missed", "cancelled", "expired")
"""States of a participant, or of its task, in which nothing more is asked of it."""


Post = Callable[[str, bytes], bytes]
"""Sends a request to an address and returns the answer. Raises OSError, or HTTPError where the answer is a refusal."""


@dataclass(frozen=True)
class InvitationLink:
    """The link of an invitation: the hub's address, the token, and the key by which the hub is known."""

    hub: str
    token: str
    hub_key: bytes

    @classmethod
    def read(cls, text: str) -> InvitationLink:
        """Return what a link says. Raises ScenarioError for text that is not a whole link."""
        none = ScenarioError(
            [f"link: must be the whole link of the invitation mail, in single quotes, got {text[:80]!r}."]
        )
        try:
            parts = urlsplit(text)
            key = z85.decode(unquote(parts.fragment))
        except (ValueError, KeyError):
            raise none from None
        where, _, token = parts.path.rpartition("/join/")
        if parts.scheme not in ("http", "https") or not parts.netloc or not token or len(key) != KEY_BYTES:
            raise none
        return cls(f"{parts.scheme}://{parts.netloc}{where}", token, key)

    @property
    def folder(self) -> str:
        """A name for what is kept of this invitation."""
        return hashlib.sha256(self.token.encode()).hexdigest()[:12]


class HubClient:
    """The hub as a site calls it.

    Parameters
    ----------
    link : InvitationLink
    requests : Requests
        Seals and opens.
    wait_s : float
        How long a hub that cannot be reached is tried.
    post : callable
        Sends a request.
    tell : callable
        Told in a sentence when the hub cannot be reached and is tried again.
    """

    def __init__(
        self, link: InvitationLink, requests: Requests, wait_s: float, post: Post, tell: Callable[[str], None]
    ) -> None:
        self._link = link
        self._requests = requests
        self._wait_s = wait_s
        self._send = post
        self._tell = tell

    def ask(self, verb: str, **word: Any) -> Mapping[str, Any]:
        """Return the hub's answer. Raises FederationError if it cannot be reached, is another hub, or refuses."""
        request, opened = self._requests.seal(msgpack.packb({"verb": verb, **word}))
        try:
            answer = msgpack.unpackb(opened(self._post(request)))
        except (Malformed, ValueError, msgpack.exceptions.UnpackException) as error:
            raise FederationError(
                f"The answer of {self._link.hub} is not sealed by the hub of this invitation; check that the link is "
                "complete and the address is the hub's."
            ) from error
        if not isinstance(answer, dict):
            raise FederationError(f"The answer of {self._link.hub} is not one of a hub; check the address.")
        if "refused" in answer:
            raise FederationError(visible(str(answer["refused"])))
        return answer

    def _post(self, request: bytes) -> bytes:
        deadline, is_told = Deadline(self._wait_s), False
        while True:
            try:
                return self._send(self._link.hub + WORDS, request)
            except urllib.error.HTTPError as error:
                with error:
                    said = error.read(1000).decode(errors="replace")
                if error.code not in _MAY_PASS or deadline.expired:
                    raise FederationError(f"{self._link.hub} refuses: {visible(said) or error.reason}") from error
            except (OSError, http.client.HTTPException) as error:
                why = getattr(error, "reason", None) or error
                if deadline.expired:
                    raise FederationError(
                        f"{self._link.hub} cannot be reached ({why}); check the address and the firewall, then run "
                        "this command again. Nothing is lost."
                    ) from error
                if not is_told:
                    self._tell(f"{self._link.hub} cannot be reached ({why}); it is tried for {duration(self._wait_s)}")
                    is_told = True
            time.sleep(_AGAIN_S)  # it may be starting again


def post_by_http(url: str, request: bytes) -> bytes:
    """Send a request to a hub, and return its answer. Raises OSError or HTTPException where it cannot."""
    kind = {"Content-Type": "application/octet-stream"}
    asked = urllib.request.Request(url, request, kind)  # noqa: S310 - http(s), see InvitationLink
    with urllib.request.urlopen(asked, timeout=ANSWER_S) as answered:  # noqa: S310
        content: bytes = answered.read(_MAX_ANSWER_BYTES)
        if answered.length and len(content) < _MAX_ANSWER_BYTES:  # of a hub that ended as it answered
            raise http.client.IncompleteRead(content, answered.length)
        return content


@dataclass
class TaskParticipation:
    """One participant's part in one task.

    Parameters
    ----------
    link : InvitationLink
    data : str
        What it brings: a file.
    rules : SiteRules
        What its own operator allows.
    folder : Path
        What it keeps between visits.
    tell : callable
        Told of whatever happens, in a sentence.
    watches : bool, default False
        Whether it stays until the task is over.
    wait_s : float, default 60.0
        How long a hub that cannot be reached is tried.
    corrections : Corrections, optional
        Those of its file.
    pins : mapping of str to bytes, optional
        The public keys for signatures that it was given of the other participants.
    part : Path, optional
        The file of its part of a model, in a task that predicts.
    post : callable, optional
        Sends a request to the hub; by default with `urllib`.
    """

    link: InvitationLink
    data: str
    rules: SiteRules
    folder: Path
    tell: Callable[[str], None]
    watches: bool = False
    wait_s: float = 60.0
    corrections: Corrections | None = None
    pins: Mapping[str, bytes] | None = None
    part: Path | None = None
    post: Post = post_by_http
    _hub: HubClient = field(init=False)
    _standing: Mapping[str, Any] = field(init=False)
    _signing: SigningKey | None = field(init=False)

    def visit(self) -> bool:
        """Do what is due; whether the task is over.

        Raises FederationError where the hub refuses, cannot be reached, or asks for what this site does not do.
        """
        keys = self._introduce()
        with self._open_store(keys) as store:
            if OVER in store.facts:
                self._tell_over()
                return True
            task = self._join(store)
            terms = _terms(store.facts["terms"])
            held = self._read_data(str(task["site"]), bytes(task["run"]), terms)
            is_first = "secret" not in store.facts
            if is_first:
                store.note({"secret": secrets.token_bytes(SECRET_BYTES)})
            agreement = agreement_of(store.facts["secret"], store.facts["run"])
            if is_first:
                self._tell_fingerprints(keys.public, agreement.public, store.facts["signing_key"])
            self._hub.ask(
                "ready",
                columns=[[c.name, c.categorical] for c in held.columns],
                agreement_key=agreement.public,
                voucher=self._voucher(store.facts, keys, agreement.public, terms),
            )
            site = OfflineSite(
                store.facts["site"],
                keys.public,
                INSTALLATION,
                store,
                terms,
                self.rules,
                {"model_path" if self.part is None else "answer_path": str((self.folder / self._kept).resolve())},
                str(self.folder / _RECEIPT),
                version("fedsvm"),
                self._signing,
                self.pins,
            )
            try:
                return self._carry_on(store, site, held)
            finally:
                with suppress(FederationError):  # what went wrong before is to be read, and a hub finds out by itself
                    HubClient(self.link, Requests(keys, self.link.hub_key), 0.0, self.post, self.tell).ask("leave")

    def _tell_fingerprints(self, public: bytes, agreement: bytes, signing: bytes) -> None:
        """Print the fingerprints of the keys, for comparison with those that other parties see."""
        own, hub = fingerprint([public.hex(), agreement.hex()]), fingerprint([signing.hex()])
        self.tell(f"fingerprint of this site's keys: {own}; the page of the task must show it to everybody")
        self.tell(f"fingerprint of the hub's key, which signs orders: {hub}")
        path = self.folder / f"{_KEY}{certificates.PUBLIC}"
        self.tell(f"public key of this site, for other participants who use --sites: {path}")

    def _voucher(self, facts: Mapping[str, Any], keys: KeyPair, agreement_key: bytes, terms: Terms) -> bytes | None:
        """Return the site's signature of its keys and the terms; None with a key file of an earlier version."""
        if self._signing is None:
            return None
        me = Party(str(facts["site"]), "", keys.public, agreement_key)
        return self._signing.sign(PARTY, voucher_content(bytes(facts["run"]), me, terms.content))

    def decline(self, reason: str) -> None:
        """Take no part, or no longer. Raises FederationError where the hub refuses, or cannot be reached."""
        with self._open_store(self._introduce()) as store:
            self._ask_to_join()
            self._hub.ask("decline", reason=reason)
            store.close_for_good({})
        self.tell("you have declined, and the hub knows")

    def _introduce(self) -> KeyPair:
        """Return the keys by which the hub knows this site, created at the first visit."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self.folder / f"{_KEY}{certificates.SECRET}"
        if not path.exists():
            certificates.create(self.folder, _KEY)
        certificate = certificates.read_secret(path)
        keys, self._signing = certificate.keys, certificate.signing
        self._hub = HubClient(self.link, Requests(keys, self.link.hub_key), self.wait_s, self.post, self.tell)
        return keys

    def _open_store(self, keys: KeyPair) -> SiteStore:
        return SiteStore(self.folder / _STORE, derive_key(keys.secret, "diary"))

    def _ask_to_join(self) -> Mapping[str, Any]:
        return self._hub.ask("join", token=self.link.token, version=version("fedsvm"))

    def _join(self, store: SiteStore) -> Mapping[str, Any]:
        """Return the task, which must not have changed since the first visit. Raises FederationError."""
        task = self._ask_to_join()
        said = {name: task[name] for name in ("site", "run", "terms", "signing_key")}
        if len(said["run"]) != RUN_ID_BYTES or len(said["signing_key"]) != KEY_BYTES:
            raise FederationError(f"What {self.link.hub} says of the task is no hub's.")
        if not store.facts:
            terms = _terms(said["terms"])
            asked = describe_terms(terms, INSTALLATION.default_settings(terms.program))
            self.tell(visible(f"{task['creator']} asks in the task {task['title']!r}: {asked}"))
            store.note(said)
        elif any(store.facts[name] != value for name, value in said.items()):
            raise FederationError(
                "The hub has changed the task since the first visit, so this site sends nothing more; ask the "
                "creator of the task."
            )
        return task

    def _read_data(self, name: str, run: bytes, terms: Terms) -> SiteData:
        """Return this site's data. Raises FederationError if it does not take part; declines what its policy
        forbids."""
        try:
            self.rules.check_terms(terms)
            held = hold_asked(name, self.data, self.part, terms, self.corrections)
            self.rules.check_held(held.rows, [column.name for column in held.columns])
        except OrderRefused as error:
            self._note_declined(name, run, terms, error.shared)
            self._hub.ask("decline", reason=error.shared)
            raise FederationError(f"{name} does not take part: {error}") from error
        except StepRefused as error:
            raise FederationError(f"{name} cannot take part: {error}") from error
        return held

    def _note_declined(self, name: str, run: bytes, terms: Terms, reason: str) -> None:
        """Record in the receipt what was asked for, and why this site takes no part."""
        receipt = Receipt(str(self.folder / _RECEIPT), version("fedsvm"), key=self._signing, repeats=True)
        receipt.record_asked(run, name, terms.to_fields(), asdict(self.rules))
        receipt.record_declined(reason)
        receipt.release()

    def _carry_on(self, store: SiteStore, site: OfflineSite, held: SiteData) -> bool:
        standing = self._take(store)
        while standing["state"] == "inviting" and self.watches:
            standing = self._take(store)
        if standing["state"] == "inviting":
            self.tell("you have joined; a mail will tell you when to run this command again")
            return False
        self._require_part(store)
        if self.rules.pinned and self.pins is None:
            raise FederationError(
                "The policy has pinned = true; run this command again with --sites, the folder of the public keys of "
                f"{', '.join(standing['sites'])}. Nothing was sent."
            )
        if "sites" not in store.facts:
            partition = held.partition(standing["columns"])
            store.note({"sites": standing["sites"], "columns": standing["columns"], "held": _digest(partition)})
        partition = held.partition(store.facts["columns"])
        if store.facts["held"] != _digest(partition):
            raise FederationError(
                f"{self.data} has changed since the first visit, and the task has begun; use the original file."
            )
        if int(standing["said"]) > len(store.sent):
            raise FederationError(
                f"{self.folder} is an older copy of this site's folder; use the folder of the last visit, or withdraw "
                "with --decline."
            )
        for number in range(int(standing["said"]), len(store.sent)):
            self._say(number, store.sent[number])
        before = len(store.received)
        is_over = site.carry_on(store.facts["sites"], partition, lambda: self._more(store, standing), self._say)
        if is_over:
            store.close_for_good({OVER: True})
            self._tell_over()
        else:
            self._require_part(store)
            came = len(store.received) - before
            messages = "1 message" if came == 1 else f"{came} messages"
            self.tell(f"{messages} processed; a mail will tell you when to run this command again")
        return is_over

    def _require_part(self, store: SiteStore) -> None:
        """Raise FederationError, and forget the task's secrets, if the last answer says that this site has no part."""
        state, reason = self._standing["state"], visible(str(self._standing["reason"]))
        if state in _NO_PART or not self._standing["sites"]:
            store.close_for_good({})
            raise FederationError(f"You no longer take part in this task ({state}). {reason}".rstrip())

    @property
    def _kept(self) -> str:
        """The name of the file that the program of this site keeps."""
        return _MODEL if self.part is None else _ANSWER

    def _tell_over(self) -> None:
        model, answer = self.folder / _MODEL, self.folder / _ANSWER
        if answer.exists():
            write_answer(answer, self.folder / _PREDICTIONS)
            self.tell(f"the task is over; decision values and classes are in {self.folder / _PREDICTIONS}")
            return
        self.tell(f"the task is over{f'; your part of the model is in {model}' if model.exists() else ''}")

    def _more(self, store: SiteStore, standing: Mapping[str, Any]) -> Iterator[Message]:
        """Yield further messages."""
        while True:
            letters = list(standing["letters"])
            for letter in letters:
                yield _message(letter)
            is_due = letters or (self.watches and standing["state"] in ("inviting", "running"))
            if not is_due:
                return
            standing = self._take(store, acted=True)

    def _take(self, store: SiteStore, *, acted: bool = False) -> Mapping[str, Any]:
        """Return the state of the task, and new messages. acted: all earlier messages were processed."""
        self._standing = self._hub.ask("take", after=len(store.received), acted=acted, watches=self.watches)
        return self._standing

    def _say(self, number: int, message: Message) -> None:
        self._hub.ask("say", number=number, message=message.frame)


def _terms(fields: Any) -> Terms:
    try:
        return Terms.from_fields(fields)
    except (Malformed, AttributeError) as error:
        raise FederationError(f"The terms of the task cannot be read: {error}.") from error


def _message(letter: Any) -> Message:
    try:
        return wire.decode(letter)
    except (Malformed, TypeError) as error:
        raise FederationError(f"The hub forwarded an invalid message: {error}.") from error


def _digest(partition: Partition) -> bytes:
    """Return a digest of a site's data."""
    found = hashlib.sha256(msgpack.packb(dict(partition.values)))
    for name, array in sorted(partition.arrays.items()):
        found.update(msgpack.packb([name, array.dtype.str, list(array.shape)]) + array.tobytes())
    return found.digest()
