"""The secure sums of this installation, by the name a scenario calls them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from protocols.plain_sum import PLAIN
from protocols.ring_sum import RING
from protocols.secure_sum import SecureSum

SUMS: Mapping[str, SecureSum] = MappingProxyType({protocol.name: protocol for protocol in (PLAIN, RING)})
