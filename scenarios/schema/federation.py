"""The [federation] table: who takes part, and how they are connected."""

from __future__ import annotations

import re
from collections import Counter
from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from fedsvm.algorithms.settings import shorten_value
from fedsvm.scenarios.schema.base import Count, Part, Seconds

MAX_PORT = 65_535
MAX_SITES = 10_000
MAX_NAME = 200
"""Names of sites become names of files, which have 255 bytes with what is before and behind."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def require_name(value: str) -> str:
    """Return the value if it is a valid name of a site or a scenario. Raises ValueError otherwise."""
    if len(value) > MAX_NAME:
        raise ValueError(f"must have {MAX_NAME} letters or fewer, got {shorten_value(value)}")
    if not _NAME.fullmatch(value) or value == "coordinator":
        raise ValueError(
            "must be made of letters, digits, dots, hyphens and underscores, start with a letter or digit, and not be "
            f"the word coordinator, got {shorten_value(value)}"
        )
    return value


class FederationSpec(Part):
    """The sites and their connections."""

    sites: Annotated[int, Field(ge=1, le=MAX_SITES)] = 5
    """The number of sites. They are called site-1, site-2, … unless `names` is set."""
    names: Annotated[list[str], Field(min_length=1, max_length=MAX_SITES)] | None = None
    """The names of the sites, which also set their number."""
    launcher: Literal["local", "ray"] = "local"
    """The place of the sites: this machine, or the nodes of a Ray cluster, which requires `fedsvm[ray]`."""
    ray_address: Annotated[str, Field(min_length=1, max_length=300)] = "auto"
    """The Ray cluster as HOST:PORT of its head. auto: the cluster that this machine belongs to."""
    transport: Literal["tcp", "ipc"] = "tcp"
    """TCP sockets, or sockets of this machine (ipc), whose wire bytes are not measured."""
    encryption: bool = True
    """Encrypt TCP with CURVE and keys made for this run, so that only parties of its roster can connect."""
    port: Annotated[int, Field(ge=0, le=MAX_PORT)] = 0
    """The coordinator listens on this port, and site i on port + i. 0 lets the system choose."""
    round_timeout_s: Seconds = 30.0
    """Seconds of silence after which a site is dropped."""
    min_sites: Count = 1
    """Minimum number of sites; with fewer the run fails. A sum may require more. Across hosts the default is 3, or the
    number of invited sites if that is smaller, and a site that declines ends the run unless this key is set."""
    on_dropout: Literal["continue", "abort"] = "continue"
    """Continue or abort the run when a site drops out."""
    site_log: Literal["debug", "info", "warning", "error", "none"] = "warning"
    """The minimum level of log records that sites send the coordinator in the clear: text and numbers, 10 records per
    round, no arrays and no tracebacks. none: sites send nothing and log to standard error."""

    @model_validator(mode="before")
    @classmethod
    def _derive(cls, given: Any) -> Any:
        """Set the number of sites from their names, and no encryption on ipc."""
        if not isinstance(given, dict):
            return given
        derived = dict(given)
        if isinstance(given.get("names"), list) and given["names"]:
            derived.setdefault("sites", len(given["names"]))
        if given.get("transport") == "ipc":
            derived.setdefault("encryption", False)
        return derived

    @field_validator("names")
    @classmethod
    def _check_names(cls, names: list[str] | None) -> list[str] | None:
        if names is not None:
            if twice := sorted(name for name, times in Counter(names).items() if times > 1):
                raise ValueError(f"{twice[0]!r} appears more than once; names must differ from each other")
            for name in names:
                require_name(name)
        return names

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.names is not None and len(self.names) != self.sites:
            raise ValueError(f"sites is {self.sites} but names lists {len(self.names)}; leave one of them out")
        if self.transport == "ipc" and self.encryption:
            raise ValueError('encryption needs transport = "tcp"; ipc never leaves the machine')
        if self.launcher == "ray" and (self.transport == "ipc" or self.port):
            raise ValueError('launcher = "ray" needs transport = "tcp" and port = 0: nodes have ports of their own')
        if self.launcher == "local" and self.ray_address != "auto":
            raise ValueError('ray_address applies to launcher = "ray"; set that, or remove it')
        if self.ray_address.startswith("ray://"):
            raise ValueError(
                "ray_address must be auto or HOST:PORT: run on a node of the cluster, whom sites can reach"
            )
        if self.min_sites > self.sites:
            raise ValueError(f"min_sites is {self.min_sites} and there are {self.sites} sites; lower it")
        if self.transport == "ipc" and self.port:
            raise ValueError('port needs transport = "tcp"')
        if self.port and self.port + self.sites > MAX_PORT:
            raise ValueError(f"port {self.port} leaves too few ports for {self.sites} sites; choose a lower one")
        return self

    @property
    def site_names(self) -> list[str]:
        """site-1, site-2, … unless they are named."""
        return self.names if self.names is not None else [f"site-{i + 1}" for i in range(self.sites)]
