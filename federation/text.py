"""Text of others, such as names in files and what sites say, made fit to be shown.

A terminal obeys control characters, a line end makes of one record two, and half a surrogate pair cannot be written.
"""

from __future__ import annotations


def visible(text: str, keep: str = "") -> str:
    """The text, with what would not be printed as itself escaped as Python escapes it; letters in `keep` stay."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() or each in keep else _escaped(each) for each in text)


def _escaped(letter: str) -> str:
    return letter.encode("unicode_escape").decode("ascii")
