"""A participant in a web browser: the visits of `participation`, in a worker of the invitation's page.

The worker (`static/worker.js`) starts Python by Pyodide and calls `run_in_worker`. Only two things differ from
`fedsvm join`: the browser sends the requests, and the folder of the visits is in memory. Before each request the folder
is copied to two private files of the browser (the origin private file system), so that it is stored before it is sent.
"""

from __future__ import annotations

import hashlib
import io
import struct
import urllib.error
from collections.abc import Callable
from email.message import Message
from pathlib import Path
from typing import Any

import msgpack

from fedsvm.federation.errors import FederationError
from fedsvm.federation.site.rules import SiteRules
from fedsvm.scenarios.hosts.new_records import rules_for
from fedsvm.scenarios.hub.participation import ANSWER_S, InvitationLink, Post, TaskParticipation
from fedsvm.scenarios.schema.errors import ScenarioError
from fedsvm.scenarios.schema.policy import read_policy

FOLDER, POLICY = Path("visits"), "policy.toml"
_COPIES = 2
_COUNT = struct.Struct("<Q")
_DIGEST_BYTES = 32

Read = Callable[[int], bytes]
"""Returns the content of one of the browser's two files, by its number."""
Write = Callable[[int, bytes], None]
"""Replaces the content of one of the browser's two files, and returns once it is stored."""


class StoredFolder:
    """A folder in memory, and its copies in two files of the browser.

    They are written in turn. A copy that is cut short, as when the tab is closed, leaves the earlier one.

    Parameters
    ----------
    folder : Path
    read : callable
        Reads one of the files.
    write : callable
        Replaces one of them.
    """

    def __init__(self, folder: Path, read: Read, write: Write) -> None:
        self._folder = folder
        self._read = read
        self._write = write
        self._count = 0
        self._last = b""

    def restore(self) -> None:
        """Fill the folder with the newest whole copy."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        copies = [copy for copy in map(_open_copy, map(self._read, range(_COPIES))) if copy is not None]
        if not copies:
            return
        self._count, self._last = max(copies)
        for name, content in msgpack.unpackb(self._last).items():
            path = self._folder / name
            path.write_bytes(content)
            path.chmod(0o600)

    def save(self) -> None:
        """Copy the folder, if it has changed."""
        paths = sorted(path for path in self._folder.iterdir() if path.is_file())
        content = msgpack.packb({path.name: path.read_bytes() for path in paths})
        if content == self._last:
            return
        count = self._count + 1
        body = _COUNT.pack(count) + content
        self._write(count % _COPIES, hashlib.sha256(body).digest() + body)
        self._count, self._last = count, content  # a copy that could not be written leaves the other one


def _open_copy(copy: bytes) -> tuple[int, bytes] | None:
    """Return the number and the content of a copy; None if it is empty or was cut short."""
    digest, body = copy[:_DIGEST_BYTES], copy[_DIGEST_BYTES:]
    if len(body) < _COUNT.size or hashlib.sha256(body).digest() != digest:
        return None
    return int(_COUNT.unpack_from(body)[0]), body[_COUNT.size :]


def post_by_browser(url: str, request: bytes) -> bytes:
    """Return the hub's answer to a request, which this worker waits for. Raises OSError, as `urllib` does."""
    import js  # type: ignore[import-not-found]  # of Pyodide
    from pyodide.ffi import to_js  # type: ignore[import-not-found]

    asked = js.XMLHttpRequest.new()
    asked.open("POST", url, False)
    asked.timeout = int(1000 * ANSWER_S)
    asked.responseType = "arraybuffer"
    asked.setRequestHeader("Content-Type", "application/octet-stream")
    try:
        asked.send(to_js(request))
    except Exception as error:
        raise OSError("the browser has no connection") from error
    content: bytes = asked.response.to_bytes()
    if asked.status != 200:
        raise urllib.error.HTTPError(url, asked.status, asked.statusText, Message(), io.BytesIO(content))
    return content


def take_part(
    link: str, data: str, part: str, policy: str, tell: Callable[[str], None], read: Read, write: Write, post: Post
) -> str:
    """Take part until the task is over. Return why it ended early, or "".

    Parameters
    ----------
    link : str
        Of the invitation.
    data : str
        The path of the participant's file.
    part : str
        The path of its part of the model, in a task that predicts; otherwise "".
    policy : str
        The text of its policy; "" without one.
    tell : callable
        Receives a sentence for the participant.
    read, write : callable
        Read and replace the browser's two files.
    post : callable
        Sends a request.
    """
    stored = StoredFolder(FOLDER, read, write)
    stored.restore()

    def store_and_post(url: str, request: bytes) -> bytes:
        stored.save()
        return post(url, request)

    try:
        rules = _rules(FOLDER / POLICY, policy)
        TaskParticipation(
            InvitationLink.read(link),
            data,
            rules_for(rules) if part else rules,
            FOLDER,
            tell,
            watches=True,
            part=Path(part) if part else None,
            post=store_and_post,
        ).visit()
    except (FederationError, ScenarioError) as error:
        return str(error)
    finally:
        stored.save()
    return ""


def _rules(path: Path, policy: str) -> SiteRules:
    """Write the policy where `read_policy` finds it. Return its rules. Raises ScenarioError for a wrong policy."""
    if not policy.strip():
        path.unlink(missing_ok=True)
        return SiteRules()
    path.write_text(policy, encoding="utf-8")
    return read_policy(path)


def run_in_worker(worker: Any) -> str:
    """Take part with what the worker was given: `link`, `data`, `part`, `policy`, and its functions."""
    from pyodide.ffi import to_js

    return take_part(
        worker.link,
        worker.data,
        worker.part,
        worker.policy,
        worker.tell,
        lambda number: bytes(worker.read(number).to_bytes()),
        lambda number, content: worker.write(number, to_js(content)),
        post_by_browser,
    )
