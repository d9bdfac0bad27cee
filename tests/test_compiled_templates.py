"""Compiled templates are kept, and only used for the source that they were made of."""

from __future__ import annotations

import resource
import signal
import sys
from pathlib import Path
from typing import IO

import jinja2
import pytest
from jinja2.bccache import Bucket, bc_magic

from fedsvm.scenarios.report.compiled_templates import CompiledTemplates


@pytest.fixture(autouse=True)
def _writes_bytecode(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)


def rendered(folder: Path, source: str) -> str:
    """Return the page of a fresh environment, as of another process."""
    loader = jinja2.DictLoader({"page": source})
    environment = jinja2.Environment(loader=loader, autoescape=True, bytecode_cache=CompiledTemplates(folder))
    return environment.get_template("page").render(name="<b>")


def test_a_kept_template_renders_the_same_without_being_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert rendered(tmp_path, "Hello {{ name }}") == "Hello &lt;b&gt;"
    (kept,) = tmp_path.iterdir()
    monkeypatch.setattr(jinja2.Environment, "compile", None)
    assert rendered(tmp_path, "Hello {{ name }}") == "Hello &lt;b&gt;"
    assert list(tmp_path.iterdir()) == [kept]


def test_another_source_or_a_damaged_file_is_compiled_again(tmp_path: Path) -> None:
    rendered(tmp_path, "Hello {{ name }}")
    assert rendered(tmp_path, "Bye {{ name }}") == "Bye &lt;b&gt;"
    (kept,) = tmp_path.iterdir()
    whole = kept.read_bytes()
    kept.write_bytes(whole[: len(whole) // 2])
    assert rendered(tmp_path, "Bye {{ name }}") == "Bye &lt;b&gt;"
    assert kept.read_bytes() == whole


@pytest.mark.parametrize("kept_bytes", [*range(len(bc_magic) + 16), 40])
def test_a_file_that_ends_anywhere_in_its_head_is_compiled_again(kept_bytes: int, tmp_path: Path) -> None:
    rendered(tmp_path, "Hello {{ name }}")
    (kept,) = tmp_path.iterdir()
    whole = kept.read_bytes()
    kept.write_bytes(whole[:kept_bytes])
    assert rendered(tmp_path, "Hello {{ name }}") == "Hello &lt;b&gt;"
    kept.write_bytes(whole[: len(bc_magic)] + b"damaged" * 9)
    assert rendered(tmp_path, "Hello {{ name }}") == "Hello &lt;b&gt;"
    assert kept.read_bytes() == whole


def test_a_full_disk_leaves_no_part_of_a_file(tmp_path: Path) -> None:
    """A limit on the size of files stands for the disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (16, before[1]))
    try:
        page = rendered(tmp_path, "Hello {{ name }}")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    assert page == "Hello &lt;b&gt;"
    assert not list(tmp_path.iterdir())


def test_an_interrupt_leaves_no_part_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(bucket: Bucket, file: IO[bytes]) -> None:
        file.write(b"a part")
        raise KeyboardInterrupt

    monkeypatch.setattr(Bucket, "write_bytecode", interrupted)
    with pytest.raises(KeyboardInterrupt):
        rendered(tmp_path, "Hello {{ name }}")
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    assert rendered(tmp_path / "file", "Hello {{ name }}") == "Hello &lt;b&gt;"
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    assert rendered(tmp_path / "none", "Hello {{ name }}") == "Hello &lt;b&gt;"
    assert not (tmp_path / "none").exists()
