"""The kernel's byte counts of a connection."""

from __future__ import annotations

import socket
import sys
import threading
from dataclasses import astuple

import pytest

from fedsvm.federation.traffic_ledger import Accounts, DirectedLink, Traffic
from fedsvm.federation.transport import counters

SENT = 1000


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the kernel does not say it here")
def test_the_end_of_a_stream_is_no_byte_of_it_whenever_one_looks() -> None:
    """The peer's FIN is counted before the state says so; of 200 streams whose end is watched some are seen there."""

    def speak(address: tuple[str, int]) -> None:
        with socket.create_connection(address) as peer:
            peer.sendall(bytes(SENT))

    seen = set()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        for _ in range(200):
            thread = threading.Thread(target=speak, args=(listener.getsockname(),))
            thread.start()
            accepted, _ = listener.accept()
            with accepted:
                accepted.settimeout(20)
                while thread.is_alive():
                    seen.add(counters.bytes_received(accepted))
                assert len(accepted.recv(SENT, socket.MSG_WAITALL)) == SENT
                assert accepted.recv(1) == b""
                assert counters.bytes_received(accepted) == SENT
            thread.join()
    assert seen <= {0, SENT}


def test_reports_of_a_link_add_up_for_each_of_its_witnesses_and_others_count_for_nothing() -> None:
    accounts, link = Accounts(), DirectedLink(1, False, "north", "south")
    reports = [Traffic(1, 8, 80, 88), Traffic(2, 16, 160, None), Traffic(1, 8, 80, 90)]
    for witness, traffic in (("south", reports[0]), ("north", reports[2]), ("south", reports[1]), ("west", reports[0])):
        accounts.enter(witness, [[*link, *astuple(traffic)]])
    entry = accounts.entries[link]
    assert entry.received == Traffic(3, 24, 240, None)
    assert entry.sent == reports[2]
    assert accounts.payload_bytes == 24
