"""Starts site processes on the nodes of a Ray cluster and watches them.

Ray places one actor on each node. The actor starts a server there, as on one machine, and sites are forked from it.
Each is a process that starts in milliseconds and owns only the memory that it writes. An actor for each site would load
Python and Ray again. Partitions go to the nodes through Ray's object store. Everything else is as on one machine: sites
listen on their node's address, and the coordinator on its own.

When a node is lost, its sites count as killed. If the coordinator's process is killed, Ray ends its actors, which ends
the servers and the sites.
"""

from __future__ import annotations

import importlib.metadata
import logging
import os
import select
import shutil
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fedsvm.federation.errors import LaunchError
from fedsvm.federation.processes.forkserver import WORKSPACE_PREFIX
from fedsvm.federation.processes.launcher import LocalLauncher
from fedsvm.federation.processes.launcher_interface import Ended
from fedsvm.federation.site.assignment import Assignment
from fedsvm.federation.transport.keys import Party

_START_S = 120.0
_CLOSE_S = 20.0
_REACH_S = 5.0
_ADDRESS = "RAY_ADDRESS"
_WATCH_S = 0.2
"""Duration of one poll of a node for events, in seconds; it may delay the node's next order as long."""


@dataclass
class News:
    """The events at a node since the last poll; faults and continued stalls with their age in seconds."""

    ended: list[Ended]
    struck: dict[int, float]
    continued: list[tuple[str, float]]


class NodeAgent:
    """The launcher's agent on a node: a Ray actor with a process of its own.

    Parameters
    ----------
    module : str
        See `LocalLauncher`.
    host : str
        The node's address.
    """

    def __init__(self, module: str, host: str) -> None:
        self._host = host
        self._launcher = LocalLauncher(module)
        self._reported: set[int] = set()
        self._reported_continued = 0

    def prepare(self) -> str:
        """Wait until the server is up, and return the version of fedsvm on this node. Raises LaunchError."""
        self._launcher.prepare()
        return _version()

    def start(self, assignments: Sequence[Assignment], partitions: Sequence[bytes]) -> list[tuple[Party, int]]:
        """Start sites on this node, and return the party and process of each. Raises LaunchError."""
        workspace, placed = self._launcher.prepare(), []
        for assignment, partition in zip(assignments, partitions, strict=True):
            path = workspace / f"{assignment.name}.partition"
            path.unlink(missing_ok=True)  # a process that was killed before reading it leaves it behind
            path.write_bytes(partition)
            placed.append(replace(assignment, listen=f"tcp://{self._host}:*", partition_path=str(path)))
        parties = self._launcher.start(placed)
        return [(party, self._launcher.pids[party.name]) for party in parties]

    def watch(self) -> News:
        """Wait a moment for events, and return them. Raises LaunchError if the server is gone."""
        launcher, now = self._launcher, time.monotonic()
        if not (ended := launcher.collect_ended()):
            select.select([launcher], [], [], _WATCH_S)
            ended, now = launcher.collect_ended(), time.monotonic()
        struck = {fault: now - at for fault, at in launcher.struck.items() if fault not in self._reported}
        continued = [(site, now - at) for site, at in launcher.continued[self._reported_continued :]]
        self._reported |= struck.keys()
        self._reported_continued += len(continued)
        return News(ended, struck, continued)

    def close(self) -> None:
        """End the sites on this node, and their server."""
        self._launcher.close()


@dataclass(eq=False)
class _Node:
    """A node as its launcher knows it."""

    host: str
    cpus: float
    agent: Any
    sites: set[str] = field(default_factory=set)
    lost: bool = False


class ClusterLauncher:
    """Starts sites on the nodes of a Ray cluster, in proportion to their CPUs, and ends them all.

    Parameters
    ----------
    module : str
        See `LocalLauncher`; every node must have it installed.
    address : str
        The address of the cluster for `ray.init`: `auto` if this machine is one of its nodes.

    Attributes
    ----------
    host : str
        This machine's address, by which nodes reach it.
    workspace : Path or None
        A folder of this run on this machine, once the nodes are up.
    pids : dict of str to int
        The process of each site, on its node.
    nodes : dict of str to str
        The address of the node that each site is on.
    struck, continued
        See `LocalLauncher`.

    Raises
    ------
    LaunchError
        Ray is not installed, or there is no such cluster.
    """

    def __init__(self, module: str, address: str) -> None:
        self.pids: dict[str, int] = {}
        self.nodes: dict[str, str] = {}
        self.struck: dict[int, float] = {}
        self.continued: list[tuple[str, float]] = []
        self.workspace: Path | None = None
        self._module = module
        self._nodes: list[_Node] = []
        self._lock = threading.Lock()
        self._ended: list[Ended] = []
        self._closing = threading.Event()
        self._watcher: threading.Thread | None = None
        self._ray, self._is_ours = _connect(address)
        self.host: str = self._ray.util.get_node_ip_address()
        self._read, self._write = socket.socketpair()
        self._read.setblocking(False)

    def __enter__(self) -> ClusterLauncher:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def prepare(self) -> Path:
        """Start an actor on each node and wait until all are up. Return a workspace on this machine. Raises
        LaunchError."""
        if self.workspace is not None:
            return self.workspace
        self._nodes = self._create_actors()
        versions = self._answers([node.agent.prepare.remote() for node in self._nodes], "were not up")
        for node, version in zip(self._nodes, versions, strict=True):
            if version != _version():
                raise LaunchError(
                    f"Node {node.host} has fedsvm {version} and this machine {_version()}; install the same on all."
                )
        self.workspace = Path(tempfile.mkdtemp(prefix=WORKSPACE_PREFIX))
        return self.workspace

    def start(self, assignments: Iterable[Assignment]) -> list[Party]:
        """Start a site for each assignment and wait until all have reported in. Raises LaunchError."""
        wanted = list(assignments)
        orders = []
        for node, share in self._assign_nodes(wanted):
            partitions = [_take_file(assignment.partition_path) for assignment in share]
            node.sites.update(assignment.name for assignment in share)
            orders.append((node, node.agent.start.remote(share, partitions)))
        parties: dict[str, Party] = {}
        answers = self._answers([order for _, order in orders], "did not start their sites")
        for (node, _), started in zip(orders, answers, strict=True):
            for party, pid in started:
                parties[party.name], self.pids[party.name], self.nodes[party.name] = party, pid, node.host
        if self._watcher is None:
            self._watcher = threading.Thread(target=self._watch, name="nodes", daemon=True)
            self._watcher.start()
        return [parties[assignment.name] for assignment in wanted]

    def fileno(self) -> int:
        """Return a descriptor that is readable when a site ended."""
        return self._read.fileno()

    def collect_ended(self) -> list[Ended]:
        """Return the sites that ended since the last call."""
        with suppress(BlockingIOError):
            self._read.recv(1 << 12)
        with self._lock:
            ended, self._ended = self._ended, []
        return ended

    def close(self) -> None:
        """End every process that is left on any node, and remove the workspace."""
        self._closing.set()
        if self._watcher is not None:
            self._watcher.join(_CLOSE_S)
        with suppress(Exception):  # a node that does not answer ends with its actor
            self._ray.get([node.agent.close.remote() for node in self._nodes if not node.lost], timeout=_CLOSE_S)
        for node in self._nodes:
            with suppress(Exception):
                self._ray.kill(node.agent)
        self._read.close()
        self._write.close()
        if self.workspace is not None:
            shutil.rmtree(self.workspace, ignore_errors=True)
        if self._is_ours:
            self._ray.shutdown()

    # Nodes.

    def _create_actors(self) -> list[_Node]:
        """Create an actor on each living node with CPUs, or on each node if none has CPUs."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        living = [each for each in self._ray.nodes() if each["Alive"]]
        cpus = {each["NodeID"]: float(each["Resources"].get("CPU", 0.0)) for each in living}
        placed, remote = [], self._ray.remote(NodeAgent)
        for each in sorted(living, key=lambda each: (each["NodeManagerAddress"], each["NodeID"])):
            if any(cpus.values()) and not cpus[each["NodeID"]]:
                continue
            host, here = each["NodeManagerAddress"], NodeAffinitySchedulingStrategy(each["NodeID"], soft=False)
            agent = remote.options(num_cpus=0, scheduling_strategy=here).remote(self._module, host)
            placed.append(_Node(host, cpus[each["NodeID"]] or 1.0, agent))
        return placed

    def _assign_nodes(self, wanted: Sequence[Assignment]) -> list[tuple[_Node, list[Assignment]]]:
        """Assign sites to nodes in ring order, in proportion to their CPUs.

        A site that is started again goes where it was, or, if that node is lost, where fewest are.
        """
        there = [node for node in self._nodes if not node.lost]
        if not there:
            raise LaunchError("All nodes of the cluster were lost; see ray status, and run again.")
        shares: list[list[Assignment]] = [[] for _ in there]
        total, before, first = sum(node.cpus for node in there), 0.0, 0
        fresh = [each for each in wanted if each.name not in self.nodes]
        for share, node in zip(shares, there, strict=True):
            before += node.cpus
            last = round(len(fresh) * before / total)
            share.extend(fresh[first:last])
            first = last
        for each in wanted:
            if each.name in self.nodes:
                was = [number for number, node in enumerate(there) if each.name in node.sites]
                shares[was[0] if was else min(range(len(there)), key=lambda k: len(there[k].sites))].append(each)
        return [(node, share) for node, share in zip(there, shares, strict=True) if share]

    def _answers(self, orders: Sequence[Any], what: str) -> list[Any]:
        """Return the answers of actors. Raises LaunchError if one fails."""
        errors = self._ray.exceptions
        try:
            return list(self._ray.get(list(orders), timeout=_START_S))
        except errors.GetTimeoutError:
            raise LaunchError(f"The nodes {what} within {_START_S:g} s; see ray status.") from None
        except errors.RayTaskError as error:
            if isinstance(error.cause, LaunchError):
                raise LaunchError(str(error.cause)) from None
            raise LaunchError(f"A node of the cluster failed: {error.cause!r}; is fedsvm installed there?") from error
        except errors.RayError as error:
            said = str(error).strip().splitlines()[0]
            raise LaunchError(
                f"A node of the cluster was lost, or cannot run fedsvm: {said}; see ray status."
            ) from error

    # Watching.

    def _watch(self) -> None:
        """Poll the nodes for events in a thread until the launcher is closed."""
        asked = {node.agent.watch.remote(): node for node in self._nodes}
        while asked and not self._closing.is_set():
            ready, _ = self._ray.wait(list(asked), num_returns=1, timeout=_WATCH_S)
            for order in ready:
                node = asked.pop(order)
                try:
                    self._note(node, self._ray.get(order))
                except Exception as error:  # noqa: BLE001 - after any error, its sites cannot be watched any more
                    self._note_lost(node, error)
                else:
                    asked[node.agent.watch.remote()] = node

    def _note(self, node: _Node, news: News) -> None:
        now = time.monotonic()
        with self._lock:
            self.struck |= {fault: now - ago for fault, ago in news.struck.items()}
            self.continued += [(site, now - ago) for site, ago in news.continued]
            self._ended += news.ended
        if news.ended:
            self._write.send(b"\0")

    def _note_lost(self, node: _Node, error: Exception) -> None:
        if self._closing.is_set():
            return
        node.lost = True
        kind = type(error).__name__
        with self._lock:
            self._ended += [
                Ended(site, f"was lost with its node {node.host} ({kind})", well=False) for site in node.sites
            ]
            node.sites.clear()
        self._write.send(b"\0")


def _connect(address: str) -> tuple[Any, bool]:
    """Return Ray, connected to a cluster, and whether it was not connected before. Raises LaunchError."""
    try:
        import ray
        import ray.exceptions
        import ray.util
    except ImportError as error:
        raise LaunchError(
            'federation.launcher = "ray" needs Ray, on this machine and on every node: pip install "fedsvm[ray]".'
        ) from error
    if ray.is_initialized():
        return ray, False
    none_there = LaunchError(
        f"There is no Ray cluster at federation.ray_address = {address!r}; start one with ray start --head, and its "
        "other nodes with ray start --address=HEAD:6379, or name another."
    )
    _require_listener(os.environ.get(_ADDRESS, address) if address == "auto" else address, none_there)
    before = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(address=address, logging_level=logging.ERROR, log_to_driver=False, namespace="fedsvm")
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise none_there from error
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)  # ray replaces the handler by which a run ends cleanly
    return ray, True


def _require_listener(address: str, otherwise: LaunchError) -> None:
    """Raise `otherwise` if nobody listens at HOST:PORT, because ray would try for minutes."""
    host, colon, port = address.rpartition(":")
    if not colon:  # auto: ray looks for processes of this machine
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_REACH_S).close()
    except (OSError, ValueError) as error:
        raise otherwise from error


def _take_file(path: str) -> bytes:
    """Return the content of a site's file, and remove the file."""
    content = Path(path).read_bytes()
    Path(path).unlink()
    return content


def _version() -> str:
    return importlib.metadata.version("fedsvm")
