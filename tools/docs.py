"""The generated parts of the site's pages, for pages with `render_macros: true`.

`notebook(name)` is a notebook, `gallery()` the catalogue, `scenario_reference()` every key of a scenario,
`command_reference()` every command, `result_reference()` every field of result.json, and `model_file_reference()` every
array of model.npz.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tools.commands import command_reference
from tools.gallery import gallery
from tools.model_files import model_file_reference
from tools.reference import scenario_reference
from tools.results import result_reference


def define_env(env: Any) -> None:
    """Register the macros with the site's generator."""
    for macro in (notebook, gallery, scenario_reference, command_reference, result_reference, model_file_reference):
        env.macro(macro)


def notebook(name: str) -> str:
    """Return a notebook of docs/ as Markdown: its text, its code, and its output."""
    cells = json.loads((Path("docs") / name).read_text(encoding="utf-8"))["cells"]
    return "\n\n".join(part for cell in cells for part in _parts(cell))


def _parts(cell: dict[str, Any]) -> list[str]:
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        return [source]
    return [_fenced("python", source), *(_shown(output) for output in cell["outputs"])]


def _shown(output: dict[str, Any]) -> str:
    data = output.get("data", {})
    if "image/png" in data:
        encoded = "".join(data["image/png"]).replace("\n", "")
        return f"![{''.join(data.get('text/plain', 'plot'))}](data:image/png;base64,{encoded})"
    return _fenced("text", "".join(output.get("text", data.get("text/plain", ""))))


def _fenced(language: str, text: str) -> str:
    return f"```{language}\n{text.rstrip()}\n```"
