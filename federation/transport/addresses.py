"""Addresses of parties: their form, and the version of IP that they need."""

from __future__ import annotations

import socket

_MAX_PORT = 65_535
_TCP = "tcp://"


def is_tcp(address: str) -> bool:
    """Return whether an address is one that another host can connect to: tcp://HOST:PORT.

    A literal IPv6 address is in brackets.
    """
    host, _, port = address.removeprefix(_TCP).rpartition(":")
    is_port = port.isascii() and port.isdigit() and int(port) <= _MAX_PORT
    plain = host.isprintable() and not any(each in host for each in " ;/@")
    return address.startswith(_TCP) and bool(host) and is_port and plain and (_is_literal_6(host) or ":" not in host)


def is_wildcard(address: str) -> bool:
    """Return whether an address means all addresses of a machine, so that nobody can connect to it."""
    return _host(address) in ("0.0.0.0", "[::]", "*")  # noqa: S104 - compared, and not bound


def needs_ipv6(address: str) -> bool:
    """Return whether an address can be used with IPv6 only: in brackets, or a name without an IPv4 address."""
    host = _host(address)
    return _is_literal_6(host) or (not _resolves(host, socket.AF_INET) and _resolves(host, socket.AF_INET6))


def is_unknown(address: str) -> bool:
    """Return whether the host of an address is a name that this machine cannot resolve."""
    host = _host(address)
    return not (_is_literal_6(host) or _resolves(host, socket.AF_INET) or _resolves(host, socket.AF_INET6))


def _host(address: str) -> str:
    """Return the host of a tcp address; "" of an address of another kind."""
    return address.removeprefix(_TCP).rpartition(":")[0] if address.startswith(_TCP) else ""


def _is_literal_6(host: str) -> bool:
    return host.startswith("[") and host.endswith("]")


def _resolves(host: str, family: int) -> bool:
    """Return whether a host has an address of a family; False without a host."""
    if host in ("", "*") or host.replace(".", "").isdigit():
        return family == socket.AF_INET
    try:
        return bool(socket.getaddrinfo(host, None, family, socket.SOCK_STREAM))
    except (OSError, UnicodeError):
        return False
