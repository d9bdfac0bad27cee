"""The command `fedsvm` and the import `fedsvm`: light, quiet when interrupted, and plain about what is in their way."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import typer

import fedsvm
from fedsvm.scenarios import cli
from tests.commands import FEDSVM
from tests.commands import fedsvm as run_command
from tests.conftest import ROOT, site_processes, wait_until

PAUSE = """
import os, sys

class Pause:
    def find_spec(self, name, path=None, target=None):
        if name == os.environ["PAUSE_AT"]:
            os.write(int(os.environ["PAUSED"]), b".")
            os.read(int(os.environ["GO_ON"]), 1)

def stop(event, details):
    if event == "os.mkdir" and str(details[0]).endswith("never-made"):
        os.read(int(os.environ["GO_ON"]), 1)

sys.meta_path.insert(0, Pause())
sys.addaudithook(stop)
"""
"""The command waits where it is about to import a module, and for ever where it is about to make a folder."""


def command(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """The command from its very start, where nothing is loaded yet."""
    return subprocess.run(
        [str(FEDSVM), *words],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"COLUMNS": "80"} | variables,
    )


def python(code: str, folder: Path, path: Sequence[Path] = (ROOT,)) -> subprocess.CompletedProcess[str]:
    """A script of a user, who works in this folder."""
    (folder / "script.py").write_text(code)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, path))}
    words = [sys.executable, "script.py"]
    return subprocess.run(words, capture_output=True, text=True, check=False, cwd=folder, env=environment)


def test_every_public_name_is_there_and_is_listed() -> None:
    for name in fedsvm.__all__:
        assert getattr(fedsvm, name) is not None
    assert set(fedsvm.__all__) <= set(dir(fedsvm))
    with pytest.raises(AttributeError, match="no attribute 'PanSCV'"):
        fedsvm.PanSCV  # type: ignore[attr-defined]  # noqa: B018
    as_module = [sys.executable, "-m", "fedsvm", "--version"]
    assert subprocess.run(as_module, capture_output=True, check=True).stdout.decode() == command("--version").stdout
    assert fedsvm.__version__ == command("--version").stdout.split()[-1]


def test_help_names_no_type_of_flags() -> None:
    printed = command("run", "--help").stdout
    assert "--journal" in printed
    assert "bool" not in printed


def test_public_names_are_not_hidden_by_modules_of_the_same_name(tmp_path: Path) -> None:
    done = python("import fedsvm.scenarios.run.runner, fedsvm; print(callable(fedsvm.run))", tmp_path)
    assert done.stdout == "True\n", done.stderr


def test_importing_it_loads_nothing_heavy(tmp_path: Path) -> None:
    done = python("import fedsvm, sys; print(*sys.modules)", tmp_path)
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    assert "fedsvm" in loaded
    assert not loaded & {"numpy", "sklearn", "zmq", "pydantic"}
    assert not {name for name in done.stdout.split() if name.startswith("fedsvm.")}


@pytest.mark.long
def test_a_type_checker_sees_the_public_names(tmp_path: Path) -> None:
    """Beside an installation, where the stubs of its modules are found by `py.typed` alone."""
    (tmp_path / "use.py").write_text(
        "from fedsvm import PanSVC, run\nreveal_type(PanSVC().fit)\nrun(1)\nimport fedsvm\nfedsvm.nil\n"
    )
    words = [sys.executable, "-m", "mypy", "--config-file", "", "--follow-imports", "silent", "use.py"]
    environment = os.environ | {"MYPYPATH": str(ROOT)}
    printed = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False, env=environment).stdout
    assert "PanSVC" in printed
    assert 'Argument 1 to "run" has incompatible type "int"' in printed
    assert 'Module has no attribute "nil"' in printed


@pytest.mark.parametrize(
    "module", ["fedsvm.scenarios.cli", "typer", "pydantic", "rich.table", "fedsvm.federation.errors"]
)
def test_an_interrupt_during_imports_is_a_sentence(module: str, tmp_path: Path) -> None:
    expected = "fedsvm: Interrupted before anything was started.\n"
    assert _interrupted_at(module, tmp_path, "run", "quickstart") == (130, expected)


def _interrupted_at(module: str, folder: Path, *words: str) -> tuple[int, str]:
    """Exit status and output of a command that gets a SIGINT when it is about to import a module, and then goes on."""
    (folder / "sitecustomize.py").write_text(PAUSE)
    paused, tell = os.pipe()
    wait, go_on = os.pipe()
    environment = os.environ | {
        "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}",
        "PAUSE_AT": module,
        "PAUSED": str(tell),
        "GO_ON": str(wait),
    }
    with subprocess.Popen(
        [str(FEDSVM), *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
        pass_fds=[tell, wait],
    ) as process:
        assert select.select([paused], [], [], 30)[0], "it never came to import it"
        process.send_signal(signal.SIGINT)
        os.write(go_on, b".")
        printed, _ = process.communicate(timeout=30)
    for descriptor in (paused, tell, wait, go_on):
        os.close(descriptor)
    return process.returncode, printed


def test_an_interrupt_in_a_command_that_starts_nothing_is_quiet(tmp_path: Path) -> None:
    """In the middle of an import it waits for that to end."""
    words = ["audit", "--sites", "4", "--out", str(tmp_path / "never-made")]
    assert _interrupted_at("fedsvm.protocols.analysis.survey", tmp_path, *words) == (130, "")


def test_many_interrupts_end_a_run_as_one_does(tmp_path: Path, temporary_folder: Path) -> None:
    words = [
        "run",
        "quickstart",
        "--set",
        "algorithm.cut_groups=1",
        "--set",
        "algorithm.tolerance=1e-12",
        "--out",
        "run",
    ]
    with subprocess.Popen(
        [str(FEDSVM), *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=tmp_path
    ) as process:
        wait_until(lambda: len(site_processes(temporary_folder)) > 5, 60)
        wait_until(lambda: _interrupted_again(process))
        printed = process.stdout.read() if process.stdout else ""
    assert process.returncode == 130, printed
    assert "Traceback" not in printed
    assert json.loads((tmp_path / "run" / "result.json").read_text())["status"] == "interrupted"
    wait_until(lambda: not site_processes(temporary_folder))


def _interrupted_again(process: subprocess.Popen[str]) -> bool:
    """Return whether the process has ended; if not, send one more signal."""
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
    return process.returncode is not None


@pytest.mark.parametrize("folder", ["algorithms", "federation", "protocols", "scenarios"])
def test_own_packages_of_a_user_do_not_get_in_the_way(folder: str, tmp_path: Path) -> None:
    """A package of the user that is named like one of the floors is found first, and is not the one imported."""
    (tmp_path / folder).mkdir()
    (tmp_path / folder / "__init__.py").write_text("raise ImportError('not the package of fedsvm')")
    done = python("from fedsvm import PanSVC; print(PanSVC.__module__)", tmp_path)
    assert done.stdout == "fedsvm.algorithms.estimators.horizontal\n", done.stderr


def _names_of(asked: str) -> set[str]:
    """Return the commands of the application that is made for one."""
    return set(typer.main.get_command(cli.application(asked)).commands)  # type: ignore[attr-defined]


@pytest.mark.parametrize("area", cli.AREAS)
def test_an_area_has_the_commands_that_the_command_line_lists(area: str) -> None:
    """Those alone are imported if one of them is asked for."""
    for name in cli.AREAS[area]:
        assert _names_of(name) == set(cli.AREAS[area])


def test_all_areas_are_there_unless_one_of_their_commands_is_asked_for() -> None:
    names = {name for area in cli.AREAS.values() for name in area}
    assert _names_of("") == _names_of("--help") == _names_of("no-such-command") == names


@pytest.mark.parametrize("words", [[], ["run"], ["data", "describe"], ["scenarios", "show"], ["check-sum"]])
def test_short_and_long_help_are_the_same(words: list[str], tmp_path: Path) -> None:
    short, long = (run_command(*words, option, folder=tmp_path) for option in ("-h", "--help"))
    assert short.returncode == long.returncode == 0
    assert short.stdout == long.stdout
    assert "Usage: " in short.stdout


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("fedsvm run quick", "quickstart"),
        ("fedsvm sweep killed", "killed-sites"),
        ("fedsvm scenarios show pim", "pima"),
        ("fedsvm data describe tic", "tic-tac-toe ticks"),
        ("fedsvm predict run made-c", "made-census"),
        ("fedsvm check-sum k-", "k-secure"),
        ("fedsvm check", "check-sum"),
    ],
)
def test_a_shell_completes_names(line: str, offered: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As bash asks for it."""
    (tmp_path / "ticks.csv").write_text("a,label\n1,x\n")
    last = str(len(line.split()) - 1)
    asked = {"_FEDSVM_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": last, "FEDSVM_DATA": str(tmp_path)}
    for name, value in asked.items():
        monkeypatch.setenv(name, value)
    done = run_command(folder=tmp_path)
    assert done.stdout.split() == offered.split(), done.stderr


def test_data_describe_refuses_a_split_that_is_none(tmp_path: Path) -> None:
    done = run_command("data", "describe", "wine", "--split", "zzz", folder=tmp_path)
    assert done.returncode == 2
    assert done.stderr == (
        "fedsvm: --split: must be random, label-skew, by-feature:NAME, by-value:NAME, dirichlet:ALPHA, quantity:ALPHA "
        "or sizes:[10, 20, …], got 'zzz'.\n"
    )


def test_names_of_columns_are_no_markup(tmp_path: Path) -> None:
    rows = "".join(f"{number},{number % 3},[bold]{'ab'[number % 2]}[/]\n" for number in range(20))
    (tmp_path / "marked.csv").write_text("[red]a[/red],[/],label\n" + rows)
    done = run_command("data", "describe", tmp_path / "marked.csv", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    for name in ("[red]a[/red]", "[/] ", "[bold]a[/]"):
        assert name in done.stdout
