"""Machines of their own, as far as the network can tell: namespaces with addresses on a bridge. Needs root and `ip`."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_ETC = Path("/etc/netns")
_NOBODYS = "02:00:00:00:00:01"


def why_not() -> str:
    """Why there can be no namespaces here, in a sentence; "" where there can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("ip") is None:
        return "network namespaces need ip, of the package iproute2"
    done = subprocess.run(
        ["ip", "netns", "add", probe := f"fsv{os.getpid()}p"], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        return f"network namespaces are not allowed here: {done.stderr.strip()}"
    _ip("netns", "del", probe)
    return ""


@dataclass(frozen=True)
class Network:
    """Namespaces and their network devices by the names of their hosts, and the bridge between them."""

    bridge: str
    spaces: dict[str, str]
    devices: dict[str, str]
    addresses: dict[str, str]

    def within(self, host: str) -> list[str]:
        """Return the prefix of a command that is run at a host."""
        return ["ip", "netns", "exec", self.spaces[host]]

    def cut(self, host: str, other: str) -> None:
        """From now on what a host sends to another is lost: it has the wrong hardware address of it."""
        wrong = ["lladdr", _NOBODYS, "dev", self.devices[host], "nud", "permanent"]
        _ip("-n", self.spaces[host], "neigh", "replace", self.addresses[other], *wrong)

    @contextmanager
    def down(self, host: str) -> Iterator[None]:
        """A context in which nothing reaches a host or comes from it."""
        device = f"{self.bridge.removesuffix('br')}h{list(self.spaces).index(host)}"
        _ip("link", "set", device, "down")
        try:
            yield
        finally:
            _ip("link", "set", device, "up")


@contextmanager
def network(hosts: Sequence[str]) -> Iterator[Network]:
    """Hosts that know each other by NAME.example, each with an address of its own on one bridge."""
    mark = f"fsv{os.getpid() % 10_000}"
    spaces = {host: f"{mark}{host[:5]}" for host in hosts}
    addresses = {host: f"10.213.7.{number}" for number, host in enumerate(hosts, start=1)}
    devices = {host: f"{mark}t{number}" for number, host in enumerate(hosts)}
    found = Network(f"{mark}br", spaces, devices, addresses)
    names = "".join(f"{address} {host}.example {host}\n" for host, address in addresses.items())
    try:
        _ip("link", "add", found.bridge, "type", "bridge")
        _ip("link", "set", found.bridge, "up")
        for number, (host, space) in enumerate(spaces.items()):
            _ip("netns", "add", space)
            here, there = f"{mark}h{number}", devices[host]
            _ip("link", "add", here, "type", "veth", "peer", "name", there, "netns", space)
            _ip("link", "set", here, "master", found.bridge, "up")
            _ip("-n", space, "addr", "add", f"{addresses[host]}/24", "dev", there)
            _ip("-n", space, "link", "set", there, "up")
            _ip("-n", space, "link", "set", "lo", "up")
            (_ETC / space).mkdir(parents=True)
            (_ETC / space / "hosts").write_text(f"127.0.0.1 localhost\n{names}")
        yield found
    finally:
        for space in spaces.values():
            subprocess.run(["ip", "netns", "del", space], capture_output=True, check=False)
            shutil.rmtree(_ETC / space, ignore_errors=True)
        subprocess.run(["ip", "link", "del", found.bridge], capture_output=True, check=False)


def _ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"ip {' '.join(words)}: {done.stderr}"
