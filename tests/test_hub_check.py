"""A hub's check and its log as JSON, by the command."""

import json
import subprocess
import sys
from datetime import datetime
from pathlib import Path

from tests.commands import FEDSVM, fedsvm


def test_a_running_hub_is_found_healthy_and_its_log_is_json(tmp_path: Path) -> None:
    command = [str(FEDSVM), "hub", "--folder", "hub", "--listen", "127.0.0.1:0", "--log-json"]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            first = json.loads(process.stderr.readline())
            assert set(first) == {"time", "party", "run", "round", "message"}
            assert first["party"] == "hub"
            assert datetime.fromisoformat(first["time"]).tzinfo is not None
            url = first["message"].split("listens at ")[1].split(";")[0]
            assert fedsvm("hub", "--folder", "hub", "--check", "--url", url, folder=tmp_path).returncode == 0
        finally:
            process.terminate()
            process.wait(60)
    found = fedsvm("hub", "--folder", "hub", "--check", "--url", url, folder=tmp_path)
    assert found.returncode == 3
    assert "cannot be reached" in found.stderr
    found = fedsvm("hub", "--folder", "hub", "--check", "--url", "hub.example", folder=tmp_path)
    assert (found.returncode, "Traceback" in found.stderr) == (3, False)


def test_an_error_with_its_traceback_is_one_line_of_json() -> None:
    program = """
import logging
from fedsvm.scenarios.console import log_as_json, say
log_as_json("hub")
say("hub", "listens")
try:
    raise OSError("disk is full")
except OSError:
    logging.getLogger("uvicorn.error").exception("an answer failed")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    first, second = map(json.loads, done.stderr.splitlines())
    assert (first["party"], first["message"]) == ("hub", "hub: listens")
    assert second["message"].startswith("an answer failed\nTraceback")
    assert second["message"].endswith("OSError: disk is full")
