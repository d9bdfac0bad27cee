"""The modules that a participant of the hub loads, where there are no sockets and no processes, as in a browser."""

from __future__ import annotations

import subprocess
import sys

import pytest
from zmq.utils import z85 as pyzmq_z85

from fedsvm.federation.transport import z85
from tests.conftest import ROOT

_ABSENT = ("zmq", "resource", "multiprocessing", "piqp", "pyarrow", "typer", "uvicorn", "fastapi", "sqlalchemy")


def test_participant_needs_no_sockets_and_no_processes() -> None:
    words = f"import sys; sys.modules |= dict.fromkeys({_ABSENT}); import fedsvm.scenarios.hub.participation as used"
    line = [sys.executable, "-c", f"{words}; print(used.TaskParticipation.__name__)"]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "TaskParticipation", done.stderr


@pytest.mark.parametrize("size", [0, 4, 32, 64])
def test_keys_have_the_letters_that_zeromq_gives_them(size: int) -> None:
    content = bytes((7 * place + size) % 256 for place in range(size))
    letters = z85.encode(content)
    assert letters == pyzmq_z85.encode(content)
    assert z85.decode(letters) == z85.decode(letters.decode()) == content
    assert z85.decode(z85.encode(b"\xff" * 4)) == b"\xff" * 4


@pytest.mark.parametrize("text", ["abcd", '"""""', "~~~~~", "#####", "ééééé"])
def test_text_that_is_not_z85_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"Z85|multiple of 5"):
        z85.decode(text)
