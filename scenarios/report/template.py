"""Pages from their templates: one file each that fetches nothing and runs no script but its own."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedsvm.federation.text import visible

if TYPE_CHECKING:
    import jinja2

_FOLDER = Path(__file__).parent
_PARTS: dict[str, str] = {}
"""The templates of parts that were rendered, by the digest of their source."""

_MACROS = '{% from "parts.html.j2" import figure, keys, grid, copied %}'


def render(template: str, title: str, **parts: Any) -> str:
    """Return a page with every value escaped. Unprintable characters are escaped as in Python; line ends are kept."""
    script = (_FOLDER / "page.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        _environment()
        .get_template(template)
        .render(
            title=title,
            style=(_FOLDER / "page.css").read_text(encoding="utf-8"),
            script=script,
            script_hash=f"sha256-{digest}",
            version=version("fedsvm"),
            **parts,
        )
    )


def render_part(source: str, parts: Mapping[str, Any]) -> Any:
    """Return a part of a page, from a template of the macros in parts.html.j2, with every value escaped."""
    import markupsafe

    name = hashlib.sha256(source.encode()).hexdigest()
    _PARTS[name] = _MACROS + source
    return markupsafe.Markup(_environment().get_template(name).render(parts))  # noqa: S704 - it is escaped


@cache
def _environment() -> jinja2.Environment:
    import jinja2  # slow to import

    from fedsvm.scenarios.report.compiled_templates import CompiledTemplates

    return jinja2.Environment(
        loader=jinja2.ChoiceLoader([jinja2.FileSystemLoader(_FOLDER), jinja2.DictLoader(_PARTS)]),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=printable,
        bytecode_cache=CompiledTemplates(_FOLDER / "__pycache__"),
    )


def printable(value: Any) -> Any:
    """Return a value of a template. Its text has line ends and letters that a page can show."""
    return visible(value, keep="\n") if type(value) is str else value
