"""A short run of a site in the process from which sites are forked.

Python caches results of the first use of code: method lookups in its classes, and specialized instructions. Each site
would write these caches to its own pages. If they are written before the fork, sites share them and start sooner. So a
site and a coordinator run here over sockets, with their own keys: the site joins, takes part in a few rounds, and ends.
Everything that they opened is closed before the first fork.

Then the code that ran is copied to neighboring addresses, including the code of the installation's computations. A call
writes to the code object, since Python counts references. Otherwise the code that a site calls would be spread among
code that it never calls, and the site would own more pages.
"""

from __future__ import annotations

import gc
import secrets
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from types import CodeType, FrameType, FunctionType
from typing import Any, cast

import numpy as np
import zmq

from fedsvm.federation.arrays import FloatArray, Residues
from fedsvm.federation.channel.interface import Channel
from fedsvm.federation.control import Order, RosterUpdate, RunOver, SumTerms
from fedsvm.federation.errors import DeadlineExpired, FederationError
from fedsvm.federation.site.assignment import Assignment
from fedsvm.federation.site.partition import Partition
from fedsvm.federation.site.program import Installation, SiteProgram, SumProtocol, step
from fedsvm.federation.site.script import Script, either, maybe, repeat, seq, stage
from fedsvm.federation.site.signed import OrderSigner
from fedsvm.federation.site.site_policy import SitePolicy
from fedsvm.federation.site.site_start import run_site
from fedsvm.federation.site.terms import Terms
from fedsvm.federation.site_messages import FinalReport, StepDone
from fedsvm.federation.transport.deadline import Deadline
from fedsvm.federation.transport.endpoint import Endpoint
from fedsvm.federation.transport.keys import COORDINATOR, KeyPair, Party, Roster
from fedsvm.federation.transport.signing import SigningKey
from fedsvm.federation.transport.wire import RUN_ID_BYTES

_SITE = "rehearsal"
_LISTEN = "tcp://127.0.0.1:*"
_ROUNDS = 3
_SHAPE = (300,)
_ENOUGH = 10
"""Number of calls after which CPython has specialized the instructions of a function."""

_REPLACED: list[CodeType] = []
"""Code that no longer runs. If it were freed, a site would use the gaps and own a page for each."""

_PATIENCE_S = 2.0
"""Seconds after which the run ends if a message does not arrive. The cause then also fails a site, which reports it."""


class _MinimalSum:
    """A minimal secure sum, which only sends numbers to the party that opens them."""

    discloses = "sum"

    def sends_to(self, me: str, sites: tuple[str, ...]) -> tuple[str, ...]:
        return (COORDINATOR,)

    def encode(self, value: FloatArray, bound: float, sites: int) -> Residues:
        return np.zeros(value.shape, dtype=np.uint64)

    def contribute(self, channel: Channel, residues: Residues, receiver: str) -> None:
        channel.send(receiver, residues + channel.random(residues.shape))


_SUM = cast(Callable[..., SumProtocol], _MinimalSum)


class _WarmUpSite(SiteProgram):
    @classmethod
    def script(cls, terms: Terms) -> Script:
        """Return a script that has parts of every kind, so that sites share the code of all of them."""
        name = cls.ones.__name__
        return repeat(seq(stage(maybe(name), either(name, "other")), maybe("another")))

    @step
    def ones(self) -> FloatArray:
        return np.ones(_SHAPE)


def warm_up_server(workspace: Path, lifeline: int, practice: Callable[[], None]) -> None:
    """Run the code of sites before they are forked, so that they share Python's caches. Leave nothing open.

    Errors are ignored: their cause, for example a port that cannot be used, also fails a site, which reports it.

    Parameters
    ----------
    workspace : Path
        A folder for the partition of the site.
    lifeline : int
        See `run_site`.
    practice : callable
        See `Installation`.
    """
    began = time.monotonic()
    with _collect_code() as ran:
        _run_session(workspace, lifeline)
        practice()
    if is_fast := time.monotonic() - began < _PATIENCE_S:  # otherwise a second run takes too long
        _copy_together(ran.values())
    for _ in range(_ENOUGH):
        practice()
    if is_fast:
        _run_session(workspace, lifeline)


@contextmanager
def _collect_code() -> Iterator[dict[int, CodeType]]:
    """Collect the code of Python functions that this thread calls in the context."""
    ran: dict[int, CodeType] = {}

    def note(frame: FrameType, event: str, argument: Any) -> None:
        ran[id(frame.f_code)] = frame.f_code

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        yield ran
    finally:
        sys.setprofile(before)


def _copy_together(ran: Collection[CodeType]) -> None:
    """Replace the code of these functions by copies that are made in sequence, and so are neighbors in memory."""
    codes = set(map(id, ran))
    for function in gc.get_objects():
        if isinstance(function, FunctionType) and id(function.__code__) in codes:
            _REPLACED.append(function.__code__)
            function.__code__ = _copy_code(function.__code__, codes)


def _copy_code(code: CodeType, ran: Collection[int]) -> CodeType:
    """Return a copy of code, with copies of the code that ran among its constants: comprehensions and inner functions.

    ran: identities of code objects.
    """
    constants = (_copy_code(each, ran) if id(each) in ran else each for each in code.co_consts)
    return code.replace(co_consts=tuple(constants))


def _run_session(workspace: Path, lifeline: int) -> None:
    path, receipt = workspace / f"{_SITE}.partition", workspace / f"{_SITE}.receipt"
    run, keys, reports = secrets.token_bytes(RUN_ID_BYTES), KeyPair.generate(), SimpleQueue[dict[str, Any]]()
    signing, terms = SigningKey(), Terms(_SITE, {}, _SITE, {}, 1)
    signer = OrderSigner(signing, run, (_SITE,), terms)
    with suppress(FederationError, DeadlineExpired, OSError, zmq.ZMQError):
        Partition({"rows": np.zeros((1, 1))}).write(str(path))
        with Endpoint(COORDINATOR, _LISTEN, keys, peers=1) as endpoint:
            me = Party(COORDINATOR, endpoint.address, keys.public)
            coordinator = threading.Thread(target=_coordinate, args=(endpoint, me, run, signer, reports), daemon=True)
            coordinator.start()
            assignment = Assignment(
                name=_SITE,
                run=run,
                listen=_LISTEN,
                peers=1,
                encrypted=True,
                coordinator_address=me.address,
                coordinator_key=me.public_key,
                program=_SITE,
                partition_path=str(path),
                coordinator_signing_key=signing.public,
                policy=SitePolicy((_SITE,), terms),
                patience_s=_PATIENCE_S,
                receipt_path=str(receipt),
            )
            try:
                run_site(assignment, Installation({_SITE: _WarmUpSite}, {_SITE: _SUM}), reports.put, lifeline)
            finally:
                reports.put({})  # the site may not have reported in
                coordinator.join()
    path.unlink(missing_ok=True)
    receipt.unlink(missing_ok=True)


def _coordinate(
    endpoint: Endpoint, me: Party, run: bytes, signer: OrderSigner, reports: SimpleQueue[dict[str, Any]]
) -> None:
    """Run the coordinator's part until the site has ended or is late."""
    deadline = Deadline(_PATIENCE_S)
    if "party" not in (report := reports.get()):
        return
    roster = Roster([me, report["party"]])
    first = Order(
        _WarmUpSite.ones.__name__, _SITE, SumTerms(_SHAPE, 1.0, {}, COORDINATOR), sites=(_SITE,), timeout_s=_PATIENCE_S
    )
    orders = [signer.sign_order(replace(first, after=number - 1), number) for number in range(1, _ROUNDS + 1)]
    said: list[RosterUpdate | Order | RunOver] = [RosterUpdate(roster), *orders, RunOver()]
    with suppress(FederationError, DeadlineExpired, OSError, zmq.ZMQError):
        endpoint.admit(roster)
        for number, message in enumerate(said):
            endpoint.send(_SITE, message.to_message(run, number), deadline)
            answered = FinalReport.kind if isinstance(message, RunOver) else StepDone.kind
            while (received := endpoint.received()) is None or received.message.kind != answered:
                if received is None:
                    endpoint.wait(deadline)
