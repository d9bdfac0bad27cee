"""Sections of numpydoc docstrings, read as mkdocstrings reads them."""

from __future__ import annotations

import inspect
from dataclasses import dataclass

import griffe

_WITH_ITEMS = {"attributes", "parameters", "returns"}


@dataclass(frozen=True)
class Item:
    """A named thing that a docstring describes: its type or shape, and a sentence."""

    name: str
    kind: str
    meaning: str


def text_of(documented: object) -> str:
    """Return the prose of a docstring, without its sections."""
    return "\n\n".join(str(section.value) for section in _sections(documented) if section.kind.value == "text")


def items_of(documented: object) -> list[Item]:
    """Return what the sections Attributes, Parameters and Returns list; several names share a line."""
    found = []
    for section in _sections(documented):
        for listed in section.value if section.kind.value in _WITH_ITEMS else ():
            names, kind = listed.name, str(listed.annotation or "")
            if not names:  # several of Returns
                names, _, kind = kind.rpartition(" : ")
            found += [Item(name.strip(), kind, listed.description) for name in names.split(",")]
    return found


def _sections(documented: object) -> list[griffe.DocstringSection]:
    return griffe.parse_numpy(griffe.Docstring(inspect.getdoc(documented) or ""), warnings=False)
