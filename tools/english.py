"""A check that docstrings are plain English: `python -m tools.english` lists those that are not.

The docstring of a function begins with a verb of `tools/verbs.txt`. No docstring begins with a word that makes it a
clause, such as "What" or "Whether". A property may name the thing that it returns. No function is called by a bare
participle, such as "joined": a verb says what it does. `CLEAN` lists what is checked.
"""

from __future__ import annotations

import ast
import itertools
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from tools.arguments import parser

ROOT = Path(__file__).parent.parent
CLEAN = (
    "federation",
    "protocols",
    "algorithms",
    "scenarios",
    "benchmarks",
    "fedsvm/__init__.py",
    "fedsvm/__main__.py",
    "tools",
)
"""Files and folders without a finding. Extend it; never shorten it."""

WITHOUT_CLAUSES = ("tests", "examples")
"""Folders in which no docstring begins with a clause, while functions may begin without a verb."""

CLAUSES = frozenset({"How", "That", "What", "Where", "Whether", "Which", "Who", "Whom", "Whose"})
"""Words with which a clause begins instead of a sentence."""

STEMS = frozenset({"bound", "embed", "exceed", "feed", "heed", "need", "proceed", "seed", "shed", "speed"})
"""Names that look like participles, and are nouns or verbs."""

PARTICIPLES = frozenset((ROOT / "tools" / "participles.txt").read_text().split())
"""Participles that do not end in -ed."""

NAMED = ("federation", "protocols", "algorithms", "scenarios")
"""Folders whose functions are called by verbs or nouns, and by no bare participle."""

KEPT_PARTICIPLES = frozenset(
    {
        "agreed",
        "dropped",
        "masked",
        "opened",
        "posed",
        "received",
        "released",
        "spent",
        "told",
    }
)
"""Participles that functions are still called by. Shorten it; never extend it."""

VERBS = frozenset((ROOT / "tools" / "verbs.txt").read_text().split())


def findings(source: str, *, verbs: bool = True) -> Iterator[tuple[int, str]]:
    """Yield line and reason of each docstring of a file that is no plain English. verbs: functions need one."""
    for owner, docstring, line in _docstrings(ast.parse(source)):
        word = _first_word(docstring)
        if word in CLAUSES:
            yield line, f'a docstring must not begin with "{word}": begin with a verb, or name the thing'
        elif verbs and _is_function(owner) and word not in VERBS:
            yield line, f'the docstring of a function must begin with a verb of tools/verbs.txt, got "{word}"'


def participles(source: str) -> Iterator[tuple[int, str]]:
    """Yield line and reason of each function of a file that is called by a bare participle."""
    for function in ast.walk(ast.parse(source)):
        if _is_function(function) and isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            word = function.name.strip("_")
            ends = word.endswith("ed") and "_" not in word and word not in STEMS
            if (ends or word in PARTICIPLES) and word not in KEPT_PARTICIPLES:
                yield function.lineno, f'a function must not be called by a participle, got "{word}": use a verb'


def _docstrings(tree: ast.Module) -> Iterator[tuple[ast.AST, str, int]]:
    """Yield the docstrings of modules, classes, functions and attributes, with owner and line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            if node.body and (text := _text(node.body[0])) is not None:
                yield node, text, node.body[0].lineno
            for attribute, beneath in itertools.pairwise(node.body):
                if isinstance(attribute, ast.Assign | ast.AnnAssign) and (text := _text(beneath)) is not None:
                    yield attribute, text, beneath.lineno


def _text(statement: ast.stmt) -> str | None:
    """Return the text of a statement that is a string."""
    match statement:
        case ast.Expr(value=ast.Constant(value=str(text))):
            return text
    return None


def _first_word(docstring: str) -> str:
    """Return the letters that a docstring begins with."""
    found = re.match(r"\s*([A-Za-z]*)", docstring)
    return found[1] if found else ""


def _is_function(owner: ast.AST) -> bool:
    """Return whether the owner of a docstring is a function, and no property."""
    if not isinstance(owner, ast.FunctionDef | ast.AsyncFunctionDef):
        return False
    return not any("property" in ast.unparse(decorator) for decorator in owner.decorator_list)


def _listed(paths: Sequence[str], *, verbs: bool = True) -> Iterator[str]:
    """Yield the findings in files and folders, one a line."""
    for path in (ROOT / name for name in paths):
        for file in [path] if path.is_file() else sorted(path.rglob("*.py")):
            source, floor = file.read_text(), file.relative_to(ROOT).parts[0]
            for line, reason in [*findings(source, verbs=verbs), *(participles(source) if floor in NAMED else ())]:
                yield f"{file.relative_to(ROOT)}:{line}: {reason}"


def main() -> None:
    """Print the findings of the clean folders, or of those on the command line. Exit with status 1 if there are any."""
    arguments = parser("tools.english", __doc__)
    arguments.add_argument("paths", nargs="*", help="files and folders to check; without any, the clean ones")
    paths = arguments.parse_args().paths
    found = [*_listed(paths or CLEAN), *_listed(() if paths else WITHOUT_CLAUSES, verbs=False)]
    print("\n".join(found), end="\n" if found else "")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
