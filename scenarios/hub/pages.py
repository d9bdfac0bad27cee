"""The hub's pages: sign in with a mailed link, create a task, follow it, answer an invitation.

Every page works without scripts. htmx, which the hub serves itself, only updates the progress of a task. Every change
is a POST from a page of this hub, with the form key of the visitor or the token of a mailed link.
"""

from __future__ import annotations

import functools
import hmac
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from fastapi import APIRouter, Request
from fastapi.responses import FileResponse, HTMLResponse, RedirectResponse, Response
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from fedsvm.algorithms.settings import Setting
from fedsvm.protocols.sums.registry import DROPOUT_SUM, OWN_SUMS
from fedsvm.scenarios.hub import presentation, task_form
from fedsvm.scenarios.hub.accounts import SIGNED_IN_S, RequestRefused, address
from fedsvm.scenarios.hub.browser_files import CODE, PACKAGES
from fedsvm.scenarios.hub.database import Task, Visitor, day
from fedsvm.scenarios.hub.description_task import PAGE, VALUES
from fedsvm.scenarios.hub.form_reader import new_task, read_form, task_form_of
from fedsvm.scenarios.hub.limits import RateLimiter
from fedsvm.scenarios.hub.new_task import Invited
from fedsvm.scenarios.hub.prediction_task import prediction_terms
from fedsvm.scenarios.hub.presentation import ModelMeasure
from fedsvm.scenarios.hub.roles import EVERYBODY
from fedsvm.scenarios.hub.task_form import TaskForm
from fedsvm.scenarios.report.template import printable
from fedsvm.scenarios.run.result import read_result
from fedsvm.scenarios.schema.errors import ScenarioError

if TYPE_CHECKING:
    from fedsvm.scenarios.hub.service import Hub

_HERE = Path(__file__).parent
_COOKIE = "fedsvm"
_REPORT_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; form-action 'none'; "
    "frame-ancestors 'none'; sandbox allow-scripts allow-downloads"
)
"""A report has scripts of its own. Under this policy they cannot send requests in a visitor's name."""
SIGN_INS_OF_CLIENT = 20
"""The maximum number of sign-in links that are mailed in an hour on request of one network address."""
_WORKER = "worker.js"
_STATIC = {
    "hub.css": "text/css",
    "htmx.js": "text/javascript",
    "join.js": "text/javascript",
    _WORKER: "text/javascript",
}
_WORKER_POLICY = (
    "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)
"""Python in a participant's browser loads from the hub and sends to the hub, and to no other server."""


@dataclass
class Caller:
    """The sender of a request: cookie, network address, and the fields of the form."""

    cookie: str
    visitor: Visitor | None
    client: str = ""
    form: Mapping[str, str] = field(default_factory=dict)

    @property
    def form_key(self) -> str:
        """The key in this visitor's forms, without which other sites cannot send one."""
        return self.visitor.form_key.hex() if self.visitor is not None else ""


def pages_of(hub: Hub) -> APIRouter:
    """Return the pages of a hub."""
    pages = Pages(hub)
    router = APIRouter()
    for method, path, page in (
        ("GET", "/", pages.home),
        ("POST", "/sign-in", pages.send_sign_in),
        ("GET", "/sign-in/{token}", pages.show_sign_in),
        ("POST", "/sign-in/{token}", pages.sign_in),
        ("POST", "/sign-out", pages.sign_out),
        ("GET", "/tasks/new", pages.new),
        ("POST", "/tasks", pages.create),
        ("GET", "/tasks/{number}", pages.task),
        ("GET", "/tasks/{number}/progress", pages.progress),
        ("GET", "/tasks/{number}/report", pages.report),
        ("GET", "/tasks/{number}/description.json", pages.description),
        ("GET", "/tasks/{number}/model", pages.model),
        ("POST", "/tasks/{number}/predictions", pages.predict),
        ("POST", "/tasks/{number}/cancel", pages.cancel),
        ("POST", "/tasks/{number}/invite", pages.invite_anew),
        ("GET", "/join/{token}", pages.invitation),
        ("POST", "/join/{token}/decline", pages.decline),
        ("GET", "/static/{name}", pages.static),
        ("GET", "/pyodide/{name}", pages.python),
    ):
        router.add_api_route(path, _answer_in_thread(hub, page), methods=[method], include_in_schema=False)
    return router


def _answer_in_thread(hub: Hub, page: Any) -> Any:
    """Return a route that reads the request, answers it in a thread, and shows a refusal as a page."""

    async def answer(request: Request) -> Response:
        cookie = request.cookies.get(_COOKIE, "")
        visitor = await run_in_threadpool(hub.accounts.visitor, cookie) if cookie else None
        caller = Caller(cookie, visitor, request.client.host if request.client is not None else "")
        try:
            if request.method == "POST":
                caller.form = await read_form(request, hub.settings.url)
            given = {**request.path_params, **({"query": dict(request.query_params)} if page.__name__ == "new" else {})}
            answered: Response = await run_in_threadpool(page, caller, **given)
        except RequestRefused as error:
            refusal = render_template("sentence", caller, title="This request was refused", said="", problem=str(error))
            answered = HTMLResponse(refusal, 400)
        return answered

    return answer


def say_there_is_none(request: Request, error: Exception) -> Response:
    """Return the page for an unknown address or a wrong method."""
    status = error.status_code if isinstance(error, HTTPException) else 500
    said = "There is no such page." if status == 404 else f"This page does not accept {request.method}."
    headers = error.headers if isinstance(error, HTTPException) else None
    return HTMLResponse(render_template("sentence", Caller("", None), title=said, said=""), status, headers)


class Pages:
    """The pages, each a function of the caller and of the parts of the address."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._tasks = hub.tasks
        self._sign_ins = RateLimiter(SIGN_INS_OF_CLIENT / 3600, SIGN_INS_OF_CLIENT)

    def home(self, caller: Caller) -> Response:
        """Return the visitor's tasks, or the form to sign in."""
        tasks = self._tasks.of(caller.visitor.email) if caller.visitor is not None else []
        can_create = caller.visitor is not None and self._tasks.roles.can_create(caller.visitor.email)
        return HTMLResponse(render_template("home", caller, title="fedsvm hub", tasks=tasks, can_create=can_create))

    def send_sign_in(self, caller: Caller) -> Response:
        """Mail a sign-in link. Raises RequestRefused if this network address asked for too many."""
        if not self._sign_ins.allows(caller.client):
            raise RequestRefused(
                "Too many sign-in links were requested from your network address; try again in an hour."
            )
        self._hub.accounts.send_sign_in(caller.form.get("email", ""))
        said = "We have mailed you a sign-in link. It works for 15 minutes. You can close this page."
        return HTMLResponse(render_template("sentence", caller, title="Check your mail", said=said))

    def show_sign_in(self, caller: Caller, token: str) -> Response:
        """Return a page with a button, since programs that scan mails follow links too."""
        return HTMLResponse(render_template("sign_in", caller, title="Sign in", token=token))

    def sign_in(self, caller: Caller, token: str) -> Response:
        """Set a cookie that identifies this browser."""
        cookie = self._hub.accounts.sign_in(token)
        answer = RedirectResponse("/", 303)
        is_secure = self._hub.settings.url.startswith("https:")
        answer.set_cookie(
            _COOKIE, cookie, max_age=int(SIGNED_IN_S), httponly=True, samesite="lax", secure=is_secure, path="/"
        )
        return answer

    def sign_out(self, caller: Caller) -> Response:
        """Sign this browser out, and delete its cookie."""
        _require_form(caller)
        self._hub.accounts.sign_out(caller.cookie)
        answer = RedirectResponse("/", 303)
        answer.delete_cookie(_COOKIE, path="/")
        return answer

    def new(self, caller: Caller, query: Mapping[str, str]) -> Response:
        """Return the form of a task, made from the settings of its algorithm."""
        self._tasks.roles.require_maker(_require_signed_in(caller).email)
        chosen = query.get("algorithm", "")
        return self._form(caller, {"algorithm": chosen if chosen in task_form.choices() else task_form.default()})

    def create(self, caller: Caller) -> Response:
        """Create a task. If something is wrong, return the form as it was filled in, with the problem."""
        visitor = _require_form(caller)
        try:
            number = self._tasks.create(visitor.email, new_task(caller.form))
        except RequestRefused as error:
            return self._form(caller, caller.form, str(error))
        return RedirectResponse(f"/tasks/{number}", 303)

    def task(self, caller: Caller, number: str) -> Response:
        """Return the page of a task: its participants, progress, results and disclosures."""
        task = self._tasks.task(number, _require_signed_in(caller).email)
        return HTMLResponse(
            render_template(
                "task",
                caller,
                title=task.title,
                task=task,
                shown=presentation.disclosures_of(task),
                can_invite_anew=self._can_invite_anew(caller, task),
                **self._outcome_of(caller, task),
            )
        )

    def progress(self, caller: Caller, number: str) -> Response:
        """Return the progress of a task, for htmx."""
        task = self._tasks.task(number, _require_signed_in(caller).email)
        return HTMLResponse(render_template("progress", caller, title="", task=task, **self._outcome_of(caller, task)))

    def report(self, caller: Caller, number: str) -> Response:
        """Return the report of a task's run, or the page of a description."""
        task = self._tasks.results(number, _require_signed_in(caller).email)
        if not self._has_report(task):
            raise RequestRefused("There is no report yet; it is written when the task ends.")
        text = self._report_of(task).read_text(encoding="utf-8")
        return HTMLResponse(text, headers={"Content-Security-Policy": _REPORT_POLICY})

    def description(self, caller: Caller, number: str) -> Response:
        """Return the description of a task that describes columns, as JSON."""
        task = self._tasks.results(number, _require_signed_in(caller).email)
        path = self._hub.conductor.folder_of(task.id) / VALUES
        if not path.is_file():
            raise RequestRefused("There is no description of columns; a task of this kind writes it when it ends.")
        return FileResponse(path, media_type="application/json")

    def model(self, caller: Caller, number: str) -> Response:
        """Return the file of a task's model."""
        task = self._tasks.results(number, _require_signed_in(caller).email)
        if not self._has_model(task):
            raise RequestRefused("There is no file of a model; a task that releases its model writes it when it ends.")
        return FileResponse(self._model_of(task), filename=f"{task.id}.npz")

    def predict(self, caller: Caller, number: str) -> Response:
        """Create a task that predicts new records by the model of this one."""
        task = self._tasks.results(number, _require_form(caller).email)
        try:
            terms = prediction_terms(self._hub.conductor.folder_of(task.id))
        except ScenarioError as error:
            raise RequestRefused(" ".join(error.problems)) from error
        return RedirectResponse(f"/tasks/{self._tasks.predict(number, _require_form(caller).email, terms)}", 303)

    def cancel(self, caller: Caller, number: str) -> Response:
        """Cancel a task."""
        self._tasks.cancel(number, _require_form(caller).email)
        return RedirectResponse(f"/tasks/{number}", 303)

    def invite_anew(self, caller: Caller, number: str) -> Response:
        """Invite a participant again, or another one in its place."""
        creator = _require_form(caller).email
        invited = Invited(caller.form.get("site", ""), address(caller.form.get("email", "")))
        return RedirectResponse(f"/tasks/{self._tasks.invite_anew(number, creator, invited)}", 303)

    def invitation(self, caller: Caller, token: str) -> Response:
        """Return a participant's page, by the link of the invitation."""
        who = self._tasks.invitation(token)
        shown = presentation.disclosures_of(who.task)
        vertical = presentation.is_over_columns(who.task)
        link = self._tasks.notices.link(token)
        page = render_template(
            "join",
            caller,
            title=who.task.title,
            who=who,
            task=who.task,
            shown=shown,
            vertical=vertical,
            link=link,
            token=token,
            packages=PACKAGES,
            readers=self._hub.browser_files.readers if self._hub.browser_files is not None else {},
            policy=presentation.policy_for(who),
        )
        return HTMLResponse(page)

    def decline(self, caller: Caller, token: str) -> Response:
        """Decline the invitation, or withdraw."""
        who = self._tasks.invitation(token)
        self._tasks.decline(who.id, caller.form.get("reason", "").strip())
        return RedirectResponse(f"/join/{token}", 303)

    def static(self, caller: Caller, name: str) -> Response:
        """Return a file of the package."""
        if name not in _STATIC:
            raise RequestRefused("There is no such file.")
        headers = {"Cache-Control": "max-age=3600"}
        if name == _WORKER:
            headers["Content-Security-Policy"] = _WORKER_POLICY
        return FileResponse(_HERE / "static" / name, media_type=_STATIC[name], headers=headers)

    def python(self, caller: Caller, name: str) -> Response:
        """Return a file of Pyodide, or the code of fedsvm, for a participant's browser."""
        files = self._hub.browser_files
        if files is not None and name == CODE:
            return Response(files.code, media_type=files.media_type(name))
        path = files.path(name) if files is not None else None
        if files is None or path is None:
            raise RequestRefused("There is no such file.")
        return FileResponse(path, media_type=files.media_type(name), headers={"Cache-Control": "max-age=3600"})

    def _has_report(self, task: Task) -> bool:
        return task.ended_at is not None and self._report_of(task).is_file()

    def _report_of(self, task: Task) -> Path:
        name = PAGE if task.kind == task_form.DESCRIBE else "report.html"
        return self._hub.conductor.folder_of(task.id) / name

    def _can_invite_anew(self, caller: Caller, task: Task) -> bool:
        is_creator = caller.visitor is not None and caller.visitor.email == task.creator
        return is_creator and self._tasks.can_invite_anew(task)

    def _has_model(self, task: Task) -> bool:
        return task.state == "completed" and self._model_of(task).is_file()

    def _model_of(self, task: Task) -> Path:
        return self._hub.conductor.folder_of(task.id) / "model.npz"

    def _outcome_of(self, caller: Caller, task: Task) -> dict[str, Any]:
        """Return the fingerprints of keys, and the results of a completed run that the visitor may see."""
        email = _require_signed_in(caller).email
        sees = self._tasks.roles.sees_results(email, task)
        measures: list[ModelMeasure] = []
        if sees and task.state == "completed" and task.kind == task_form.TRAIN:
            with suppress(ScenarioError):  # the run's folder was removed
                measures = list(presentation.measures_of(read_result(self._hub.conductor.folder_of(task.id))))
        fingerprints = presentation.fingerprints_of(task, self._hub.signing_key)
        return {
            "measures": measures,
            "has_report": sees and self._has_report(task),
            "has_model": sees and self._has_model(task),
            "can_predict": email == task.creator and self._has_model(task) and presentation.is_split(task),
            "can_cancel": self._tasks.roles.manages(email, task),
            "fingerprints": fingerprints,
        }

    def _form(self, caller: Caller, given: Mapping[str, str], problem: str = "") -> Response:
        wish = task_form_of(given)
        if wish.algorithm not in task_form.choices():
            wish = TaskForm(task_form.default())
        defaults = {
            "title": "",
            "description": "",
            "invited": "",
            "min_sites": "",
            "join_days": "14",
            "patience_days": "7",
            "end_days": "",
            "results_to": EVERYBODY,
        }
        shown, folded = task_form.split_fields(wish.algorithm)
        page = render_template(
            "new",
            caller,
            title="Create a task",
            problem=problem,
            wish=wish,
            given={**defaults, **given},
            partitions=presentation.algorithms_by_partition(),
            summary=task_form.summary_of(wish.algorithm),
            vertical=task_form.is_vertical(wish.algorithm),
            trains=wish.kind == task_form.TRAIN,
            public=task_form.takes_public_rows(wish.algorithm),
            masks=task_form.masks(wish.algorithm),
            can_compare=task_form.can_compare_sites(wish.algorithm),
            default_mu=task_form.default_mu(wish.algorithm),
            settings=shown,
            folded=folded,
            unfolds=any(wish.settings.get(each.name, "").strip() not in ("", str(each.default)) for each in folded),
            sums=list(OWN_SUMS),
            dropout_sum=DROPOUT_SUM,
        )
        return HTMLResponse(page, 400 if problem else 200)


def _require_signed_in(caller: Caller) -> Visitor:
    if caller.visitor is None:
        raise RequestRefused("Sign in first: the home page mails you a link.")
    return caller.visitor


def _require_form(caller: Caller) -> Visitor:
    """Return the visitor who sent their own form. Raises RequestRefused."""
    visitor = _require_signed_in(caller)
    if not hmac.compare_digest(caller.form.get("form_key", "").encode(), caller.form_key.encode()):
        raise RequestRefused("The form has expired; reload the page and send it again.")
    return visitor


def render_template(template: str, caller: Caller, **parts: Any) -> str:
    """Return a page, with every value escaped."""
    return str(
        _environment()
        .get_template(f"{template}.html.j2")
        .render(
            **{"problem": "", **parts},
            visitor=caller.visitor,
            form_key=caller.form_key,
            version=version("fedsvm"),
            day=day,
            choices=_choices,
            default_of=_default_of,
            phase_of=presentation.phase_of,
            task_state=presentation.task_state,
            participant_state=presentation.participant_state,
        )
    )


@functools.cache
def _environment() -> Any:
    import jinja2

    loader = jinja2.FileSystemLoader(_HERE / "templates")
    return jinja2.Environment(loader=loader, autoescape=True, undefined=jinja2.StrictUndefined, finalize=printable)


def _choices(setting: Setting) -> list[str]:
    """Return the allowed words of a setting."""
    kinds = get_args(setting.annotation)
    words = get_args(kinds[0]) if kinds else ()
    return [str(word) for word in words] if words and all(isinstance(word, str) for word in words) else []


def _default_of(setting: Setting) -> str:
    return "" if setting.default is None else str(setting.default)
