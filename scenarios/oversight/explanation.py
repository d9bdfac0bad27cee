"""An explanation of what would leave a site in a run, generated from the script of the agreed terms."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from fedsvm.algorithms.optimization.linear_svm_settings import OBJECTIVE_NOISE
from fedsvm.federation.site.program import mark_of, script_of, step_methods
from fedsvm.federation.site.script import Count
from fedsvm.federation.site.terms import Terms
from fedsvm.scenarios.report.template import render
from fedsvm.scenarios.run.offered_terms import resolve_settings
from fedsvm.scenarios.run.secrecy import single_sum
from fedsvm.scenarios.schema.algorithm import whole_run
from fedsvm.scenarios.schema.spec import Scenario

HEAD = ("step", "what", "numbers", "times")
_SHAPE = re.compile(
    r"^(?:Return (?:the )?)?(?P<shape>\((?:[^()]|\([^()]*\))*\))(?:, or [^:]*| or \([^)]*\))?[:,]?\s*(?P<rest>.*)$"
)
_LETTERS = {
    "p": "columns after encoding",
    "q": "numeric columns",
    "K": "classes",
    "k": "problems or columns of the order",
    "m": "features",
    "d": "features",
    "n": "records",
    "l": "landmarks",
    "c": "columns without a range, or numbers of landmarks that are tried",
    "ENTRIES": "counts of the sizes of one column",
    "slots": "places of a table of categories",
    "record": "numbers in a place",
    "length": "numbers of one problem",
}
_SINGLE = re.compile(r"(Return the )?(how many|number of|largest)", re.IGNORECASE)
_AS_ORDERED = "as ordered"
_OPENED_BY = {
    "coordinator": "the coordinator",
    "site": "one site",
    "either": "the coordinator, or one site",
}


@dataclass(frozen=True)
class LeavingStep:
    """A step whose value leaves the site.

    Parameters
    ----------
    step : str
        Its name.
    what : str
        The value, in a sentence.
    numbers : str
        The shape of the value.
    least, most : int, int or None
        The range of numbers of orders while no site leaves or joins; None if there is no limit.
    receiver : str
        Who opens the value, or the sum of it.
    """

    step: str
    what: str
    numbers: str
    least: int
    most: int | None
    receiver: str

    @property
    def times(self) -> str:
        """The range of numbers of orders, in words."""
        if self.most is None:
            return f"{self.least} or more"
        return str(self.least) if self.least == self.most else f"{self.least} to {self.most}"

    @property
    def row(self) -> tuple[str, ...]:
        """The cells of a table with HEAD."""
        return self.step, self.what, self.numbers, self.times


@dataclass(frozen=True)
class Explanation:
    """The values that would leave a site.

    Parameters
    ----------
    name : str
        The scenario's.
    asks : tuple of str
        The terms, in sentences.
    in_clear, in_sums : tuple of Leaving
        Values that the coordinator sees of each site, and values that leave in secure sums only.
    staying : tuple of str
        Steps whose value stays at the site.
    undoing : tuple of str
        Who could undo the protection, in sentences.
    beside : tuple of str
        What leaves besides the values of steps.
    """

    name: str
    asks: tuple[str, ...]
    in_clear: tuple[LeavingStep, ...]
    in_sums: tuple[LeavingStep, ...]
    staying: tuple[str, ...]
    undoing: tuple[str, ...]
    beside: tuple[str, ...]

    @property
    def tables(self) -> list[tuple[str, tuple[LeavingStep, ...]]]:
        """Titles and their values: those in the clear, and those in sums by who opens them."""
        receivers = dict.fromkeys(each.receiver for each in self.in_sums)
        by_receiver = [
            (f"In sums over the sites, opened by {receiver}", tuple(e for e in self.in_sums if e.receiver == receiver))
            for receiver in receivers
        ]
        clear = [("In the clear, to the coordinator", self.in_clear)] if self.in_clear else []
        return [*clear, *by_receiver]

    @property
    def legend(self) -> str:
        """The meaning of the letters in shapes."""
        used = set(re.findall(r"[A-Za-z]+", " ".join(each.numbers for each in (*self.in_clear, *self.in_sums))))
        return ", ".join(f"{letter} {meaning}" for letter, meaning in _LETTERS.items() if letter in used)

    @property
    def kept(self) -> str:
        """The steps whose value stays at the site, in a sentence."""
        listed = ", ".join(self.staying) or "none"
        return (
            f"These steps give no value away: {listed}. Some of them exchange seeds, keys or encrypted values with "
            "other sites."
        )

    def to_fields(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)

    def to_markdown(self) -> str:
        """Return the page as text."""
        lines = [f"# What would leave this site: {self.name}", "", *self.asks]
        for title, values in self.tables:
            lines += ["", f"## {title}", "", _line(HEAD), _line(["---"] * len(HEAD)), *(_line(e.row) for e in values)]
        lines += ["", *([f"Numbers: {self.legend}."] if self.legend else []), COUNTED]
        lines += ["", "## Stays here", "", self.kept]
        lines += ["", "## Who could undo it", "", *(f"- {each}" for each in self.undoing)]
        lines += ["", "## Also", "", *(f"- {each}" for each in self.beside)]
        return "\n".join(lines) + "\n"


_OPENED_INSIDE = "In the step {} the sites exchange messages with each other, and show the coordinator {}."

COUNTED = "Times are those of a run in which no site leaves or joins. A round that broke off is repeated."


def explain(scenario: Scenario, terms: Terms) -> Explanation:
    """Return what would leave a site that takes part in a scenario on these terms. Raises FederationError."""
    program = scenario.algorithm.implementation.Site
    methods = step_methods(program)
    listed = list(script_of(program, terms).counts.items())
    possible = [(step, count) for step, count in listed if count.most != 0]
    leaving = [(step, count) for step, count in possible if _returns(methods[step])]
    inside = {step: mark.shown for step, _ in possible if (mark := mark_of(methods[step])).shown}
    gathered = [step for step, _ in leaving if step in terms.gathers]
    shown = [step for step in gathered if mark_of(methods[step]).opens == "value" or step in terms.shown]
    return Explanation(
        name=scenario.name,
        asks=tuple(_asks(scenario, terms)),
        in_clear=tuple(_leaving(step, methods[step], count) for step, count in leaving if step in shown),
        in_sums=tuple(_leaving(step, methods[step], count) for step, count in leaving if step not in shown),
        staying=tuple(step for step, _ in possible if not _returns(methods[step]) and step not in inside),
        undoing=tuple(_undoing(scenario, terms)),
        beside=(*(_OPENED_INSIDE.format(*each) for each in inside.items()), *_beside(terms)),
    )


def render_page(page: Explanation) -> str:
    """Return the page as HTML."""
    title = f"What would leave this site: {page.name}"
    return render("explanation.html.j2", title, page=page, head=HEAD, counted=COUNTED)


def _returns(method: Callable[..., Any]) -> bool:
    return inspect.signature(method).return_annotation not in (None, "None")


def _leaving(step: str, method: Callable[..., Any], count: Count) -> LeavingStep:
    first = inspect.cleandoc(method.__doc__ or "").partition("\n\n")[0].replace("\n", " ")
    found = _SHAPE.match(first)
    otherwise = "1" if _SINGLE.match(first) else _AS_ORDERED
    what, numbers = (found["rest"], found["shape"]) if found else (first.removeprefix("Return "), otherwise)
    sentence = what.partition(". ")[0].partition("; ")[0].rstrip(".:").replace("this site's", "the site's")
    return LeavingStep(step, sentence, numbers, count.least, count.most, _OPENED_BY[mark_of(method).receiver])


def _asks(scenario: Scenario, terms: Terms) -> Iterator[str]:
    algorithm = scenario.algorithm.implementation
    yield f"{terms.program}: {algorithm.summary}"
    via = ", through the coordinator, sealed for the other site" if terms.routing == "via-coordinator" else ""
    yield f"Sites exchange messages{via or ' directly'}."
    if scenario.protocol.secure_sum.discloses == "value":
        yield f"Sums are {terms.sum_name}: nothing hides a site's value."
    else:
        yield (
            f"Sums are {scenario.protocol.secure_sum.described}: masks hide each site's value, and only the sum is "
            f"opened. The run ends with fewer than {terms.min_sites} sites."
        )
    if terms.committee:
        first, second, dealer = terms.committee
        yield (
            f"The committee is {first}, {second} and, as its dealer, {dealer}, in every round. Any two of them can "
            "compute the systems together. The run ends if it loses one of them."
        )
    yield (
        "The coordinator gets the model, and may pass it on."
        if terms.releases
        else "The sites alone keep the weights of the model. The coordinator keeps its other parts, such as landmarks "
        "and scale, which can name rows."
    )
    if terms.epsilon is None and (mu := terms.reading.get("statistics_privacy")):
        yield f"Noise of mu {mu:g} protects single rows in the statistics of columns, and none in sums of training."
    elif terms.epsilon is None:
        yield "No noise protects single rows (no differential privacy)."
    else:
        yield f"Noise protects single rows in what is released: epsilon {terms.epsilon:g} for the run."
    if terms.releases and (size := terms.settings.get("objective_noise")):
        yield (
            f"Noise of size {size:g} in the objective, and a little on released weights, makes it harder to tell "
            f"by the model file which rows made them; at {OBJECTIVE_NOISE:g} the audit's attacks name none. Every site "
            "has exact weights and the steps of training, which can name rows. The noise is not differential privacy."
        )


def _undoing(scenario: Scenario, terms: Terms) -> Iterator[str]:
    table, sites = scenario.algorithm, min(terms.min_sites, scenario.federation.sites)
    yield f"{single_sum(scenario.protocol.secure_sum, max(sites, scenario.federation.sites), same=True)}."
    data, (settings, remarks) = scenario.data, resolve_settings(scenario)
    whole = whole_run(table.implementation, settings, data.statistics_privacy, scaled=data.scale == "standard")
    yield f"All sums together: {whole}."
    yield from (f"{remark.name.capitalize()}: {remark.sentence}." for remark in remarks)
    yield "A coordinator that admits sites of its own knows what these put into a sum."


def _beside(terms: Terms) -> Iterator[str]:
    yield "The coordinator learns the names and types of the columns, the version of fedsvm, and why a step failed."
    if terms.reading.get("tested_by") == "sites":
        yield "Held-out rows stay at the site: their results are the step score_counts."
    yield "Sizes and times of messages are no secret."


def _line(cells: Any) -> str:
    return f"| {' | '.join(str(cell).replace('|', '/') for cell in cells)} |"
