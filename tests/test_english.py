"""The check of docstrings: verbs for functions, no clauses, and clean folders that stay clean."""

from __future__ import annotations

import sys

import pytest

from tools import english

FUNCTION = "def count() -> int:\n    {}\n    return 1\n"


@pytest.mark.parametrize(
    ("docstring", "reason"),
    [
        ("Return the number of rows.", ""),
        ("What a run costs.", 'must not begin with "What"'),
        ("The number of rows.", 'a verb of tools/verbs.txt, got "The"'),
        ("(n,) labels.", 'a verb of tools/verbs.txt, got ""'),
    ],
)
def test_docstring_of_a_function_begins_with_a_verb(docstring: str, reason: str) -> None:
    found = list(english.findings(FUNCTION.format(f'"""{docstring}"""')))
    assert bool(found) == bool(reason)
    assert all(line == 2 and reason in said for line, said in found)


def test_properties_and_classes_name_a_thing() -> None:
    source = '"""Rows."""\nclass Rows:\n    """Rows of a site."""\n    @property\n    def count(self) -> int:\n'
    assert not list(english.findings(source + '        """The number of rows."""\n        return 1\n'))
    assert list(english.findings('LIMIT = 1\n"""Whether there is one."""\n')) == [
        (2, 'a docstring must not begin with "Whether": begin with a verb, or name the thing')
    ]


def test_clean_folders_stay_clean(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["tools.english"])
    with pytest.raises(SystemExit) as ended:
        english.main()
    assert capsys.readouterr().out == ""
    assert ended.value.code == 0


@pytest.mark.parametrize(("name", "reason"), [("join", ""), ("joined", 'got "joined"'), ("_sent", 'got "sent"')])
def test_functions_are_not_called_by_a_participle(name: str, reason: str) -> None:
    found = list(english.participles(FUNCTION.format("pass").replace("count", name)))
    assert bool(found) == bool(reason)
    assert all(line == 1 and reason in said for line, said in found)
