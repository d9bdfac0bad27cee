"""The forms of the hub's pages: reads their fields, and the task that they describe."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import parse_qsl, urlsplit

from fastapi import Request

from fedsvm.scenarios.hub import task_form
from fedsvm.scenarios.hub.accounts import RequestRefused, address
from fedsvm.scenarios.hub.new_task import Invited, NewTask
from fedsvm.scenarios.hub.roles import EVERYBODY
from fedsvm.scenarios.hub.task_form import TaskForm

_MAX_FORM_BYTES = 1 << 16
_MAX_FIELDS = 200
_SETTING = "set-"
"""Prefix of the fields that are settings of the algorithm."""

_KEYS = (
    "algorithm",
    "label",
    "positive",
    "negative",
    "more_classes",
    "sum",
    "test_fraction",
    "folds",
    "label_site",
    "identifier",
    "statistics_privacy",
    "ranges",
    "public_rows",
    "committee",
    "compare_sites",
)
"""Fields that are keys of a `TaskForm`."""


async def read_form(request: Request, url: str) -> dict[str, str]:
    """Return the fields of a form of this hub, which is reached at `url`. Raises RequestRefused."""
    origin, host = request.headers.get("origin"), request.headers.get("host", "")
    is_own = origin is None or origin in (f"http://{host}", f"https://{host}", _origin_of(url))
    if not is_own or request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        raise RequestRefused("This form was sent from another website; open the hub's own page and send it there.")
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > _MAX_FORM_BYTES:
            raise RequestRefused(f"A form can have {_MAX_FORM_BYTES} bytes; shorten the text.")
    try:
        text = body.decode("ascii")
        fields = dict(parse_qsl(text, keep_blank_values=True, max_num_fields=_MAX_FIELDS, errors="strict"))
        if any("\0" in value for value in fields.values()):
            raise ValueError("there are databases whose texts cannot hold it")
        return {name: value.replace("\r\n", "\n") for name, value in fields.items()}  # as browsers end lines
    except ValueError:
        raise RequestRefused("The form cannot be read; reload the page and send it again.") from None


def _origin_of(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def task_form_of(form: Mapping[str, str]) -> TaskForm:
    """Return the part of a form that its task's scenario is made from."""
    said = {name: form[name].strip() for name in _KEYS if name in form}
    settings = {name.removeprefix(_SETTING): text for name, text in form.items() if name.startswith(_SETTING)}
    return TaskForm(settings=settings, **said)


def new_task(form: Mapping[str, str]) -> NewTask:
    """Return the task that a form describes. Raises RequestRefused."""
    invited = [_parse_invitation(line) for line in form.get("invited", "").splitlines() if line.strip()]
    return NewTask(
        title=form.get("title", "").strip(),
        description=form.get("description", "").strip(),
        wish=task_form_of({"algorithm": task_form.default(), **form}),
        invited=invited,
        min_sites=int(_number(form, "min_sites", "minimum participants", str(len(invited)))),
        join_days=_number(form, "join_days", "days to join", "14"),
        patience_days=_number(form, "patience_days", "days per turn", "7"),
        end_days=_number(form, "end_days", "days in all", "") if form.get("end_days", "").strip() else None,
        results_to=form.get("results_to", EVERYBODY),
    )


def _parse_invitation(line: str) -> Invited:
    words = line.replace(",", " ").split()
    if len(words) != 2:
        raise RequestRefused(
            f"Participants: each line must be a name and an e-mail address such as north anna@north.example, got "
            f"{line.strip()[:80]!r}."
        )
    return Invited(words[0], address(words[1]))


def _number(form: Mapping[str, str], name: str, what: str, default: str) -> float:
    text = form.get(name, "").strip() or default
    try:
        found = float(text)
    except ValueError:
        found = float("nan")
    if not abs(found) < 1e6:
        raise RequestRefused(f"{what.capitalize()}: must be a number, got {text[:40]!r}.")
    return found
