"""Pages from their templates: one file each that fetches nothing and runs no script but its own."""

from __future__ import annotations

import base64
import hashlib
from importlib.metadata import version
from pathlib import Path
from typing import Any

from fedsvm.federation.text import visible

_FOLDER = Path(__file__).parent


def render(template: str, title: str, **parts: Any) -> str:
    """Return a page with every value escaped. Unprintable characters are escaped as in Python; line ends are kept."""
    import jinja2  # slow to import

    loader = jinja2.FileSystemLoader(_FOLDER)
    environment = jinja2.Environment(
        loader=loader, autoescape=True, undefined=jinja2.StrictUndefined, finalize=printable
    )
    script = (_FOLDER / "page.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return environment.get_template(template).render(
        title=title,
        style=(_FOLDER / "page.css").read_text(encoding="utf-8"),
        script=script,
        script_hash=f"sha256-{digest}",
        version=version("fedsvm"),
        **parts,
    )


def printable(value: Any) -> Any:
    """Return a value of a template, of which text has no letters that no page can show but line ends."""
    return visible(value, keep="\n") if type(value) is str else value
