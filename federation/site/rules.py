"""The rules of a site's operator, which the site's own process enforces in every run.

Each site checks the terms of a run before anything is computed (`terms`), and declines terms that its rules do not
allow, with a reason. Later the site compares every order with the same rules and terms. It refuses a step that the
agreed settings do not imply (`SitePolicy.check_step`), and an argument that differs from the setting that it repeats.
Within the agreed steps, the coordinator still chooses arguments that no setting fixes. Everything that the rules do not
forbid is allowed.
"""

from __future__ import annotations

import fcntl
import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self

from fedsvm.federation.control import GatherTerms, Order
from fedsvm.federation.errors import OrderRefused
from fedsvm.federation.site.terms import Terms

MIN_CELL = 5
"""Default minimum number of the site's rows in a category that it opens, also without a policy."""

MIN_SITES = "min_sites"
"""The key of a rule of every secure sum: the minimum number of sites."""


@dataclass(frozen=True)
class SiteRules:
    """A site's own policy.

    Parameters
    ----------
    algorithms : mapping, default None
        The algorithms that the site trains, by name. Each has the allowed values of settings, by name: a list, or a
        table of `min` and `max`. None: all.
    sums : mapping, default None
        The secure sums to which the site contributes, by name. Each has the allowed values of its options, and
        `min_sites`. None: all.
    gathers : tuple of str, default None
        The steps whose value the site shows to the coordinator in the clear. None: all that are declared so.
    columns : tuple of str, default None
        The columns that the site trains with. None: all.
    min_rows : int, default 0
        Minimum number of rows of the site.
    release : bool, default True
        Whether the coordinator may receive the model. If not, the site takes part only if the sites alone keep it.
    max_epsilon : float, default None
        Maximum epsilon of a run; a run without one is refused. None: no limit.
    budget : float, default None
        Maximum sum of the epsilons of all runs in `ledger`; a run without epsilon is refused. None: no limit.
    ledger : str, default ""
        The file with the epsilons of all runs.
    max_mu : float, default None
        Maximum mu of all noisy statistics in `answers`; a run with exact statistics is refused. None: no limit.
    answers : str, default ""
        The file of noisy statistics, which gives the same answer to the same question.
    min_cell : int, default MIN_CELL
        Minimum number of the site's rows in a category that it opens; the rows of other categories have none.
    max_repeats : int, default None
        Maximum number of times that the site repeats a step over other members after a sum was opened: the difference
        of the sums may show one site. None: no limit.
    colluders : int, default 0
        Number of sites that may collude with the coordinator. A sum that continues without lost sites must withstand
        them, or the coordinator could open the sum of some of the sites.
    pinned : bool, default False
        Whether the site takes part only with sites whose public keys for signatures it has, see `SitePolicy.pins`.
    committee : tuple of str, default None
        The sites that terms may name as members of a committee; if empty, sites must draw the members. None: all.
    """

    algorithms: Mapping[str, Mapping[str, Any]] | None = None
    sums: Mapping[str, Mapping[str, Any]] | None = None
    gathers: tuple[str, ...] | None = None
    columns: tuple[str, ...] | None = None
    min_rows: int = 0
    release: bool = True
    max_epsilon: float | None = None
    budget: float | None = None
    ledger: str = ""
    max_mu: float | None = None
    answers: str = ""
    min_cell: int = MIN_CELL
    max_repeats: int | None = None
    colluders: int = 0
    pinned: bool = False
    committee: tuple[str, ...] | None = None

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> Self:
        """Return rules from the fields of `dataclasses.asdict`, in which a pipe turned tuples into lists."""
        plain: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()
        }
        return cls(**plain)

    def check_terms(self, terms: Terms) -> None:
        """Raise OrderRefused, with all reasons, for terms that ask for more than the rules allow."""
        if problems := self.refusals(terms):
            raise OrderRefused(f"by this site's policy {'; '.join(problems)}")

    def refusals(self, terms: Terms) -> list[str]:
        """Return a clause for each part of the terms that the rules do not allow."""
        return list(self._problems(terms))

    def check_held(self, rows: int, columns: Sequence[str]) -> None:
        """Raise OrderRefused if the site has too few rows, or would train with columns that the rules do not allow."""
        if rows < self.min_rows:
            raise OrderRefused(
                f"by this site's policy it must have {self.min_rows} rows or more, and has {rows}",
                "by this site's policy min_rows must be reached, and it has fewer rows",
            )
        if self.columns is not None and (others := [name for name in columns if name not in self.columns]):
            raise OrderRefused(
                f"by this site's policy it trains only with {', '.join(self.columns)}, and not with "
                f"{', '.join(others)}; add them to data.ignore"
            )

    def check_colluders(self, withstood: int, sites: int) -> None:
        """Raise OrderRefused for a sum of which the coordinator and the policy's colluders can open parts."""
        if self.colluders > withstood:
            raise OrderRefused(
                f"by this site's policy {self.colluders} of {sites} sites may collude with the coordinator, and the "
                f"sum withstands {withstood}; raise protocol.threshold of a masked sum, or helpers of additive-shares"
            )

    def check_order(self, order: Order, program: str) -> None:
        """Raise OrderRefused for an order that reveals more than the rules allow."""
        least = self._min_sites(order.protocol)
        if order.terms is not None and len(order.sites) < least:
            raise OrderRefused(f"by this site's policy it must be for {least} sites or more, got {len(order.sites)}")
        if isinstance(order.terms, GatherTerms) and self.gathers is not None and order.step not in self.gathers:
            shown = ", ".join(self.gathers) or "nothing"
            raise OrderRefused(
                f"by this site's policy {shown} is shown in the clear, and not the value of step {order.step!r}"
            )
        ruled = (self.algorithms or {}).get(program, {})
        for name in ruled.keys() & order.parameters.keys():
            if why := _beyond(ruled[name], order.parameters[name]):
                raise OrderRefused(f"by this site's policy {name} must be {why}, got {order.parameters[name]!r}")

    def charge(self, terms: Terms, run: bytes) -> None:
        """Enter the run's epsilon in the ledger, before anything is computed. Raises OrderRefused beyond the budget.

        A restarted process in the same run is charged again. Without a journal it draws new noise. With a journal it
        does not know whether an earlier process contributed to an aborted sum.
        """
        if not self.ledger or terms.epsilon is None:
            return
        try:
            descriptor = os.open(self.ledger, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        except OSError as error:
            raise OrderRefused(f"the ledger {self.ledger} of its policy cannot be written: {error.strerror}") from error
        with os.fdopen(descriptor, "r+", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            self._check_budget(file.read(), terms.epsilon)
            day = datetime.now().astimezone().isoformat(timespec="seconds")
            entry = {"run": run.hex(), "date": day, "program": terms.program, "epsilon": terms.epsilon}
            file.write(f"{json.dumps(entry)}\n")
            file.flush()
            os.fsync(file.fileno())

    def check_budget(self, terms: Terms) -> None:
        """Raise OrderRefused if the ledger has no room for the run; nothing is written."""
        if self.ledger and terms.epsilon is not None and os.path.exists(self.ledger):  # noqa: PTH110 - see private_file
            with open(self.ledger, encoding="utf-8") as file:  # noqa: PTH123 - see private_file
                self._check_budget(file.read(), terms.epsilon)

    def _check_budget(self, charged: str, epsilon: float) -> None:
        """Raise OrderRefused for an epsilon that exceeds what the lines of the ledger leave of the budget."""
        spent = sum(_spent_by(line, self.ledger) for line in charged.splitlines())
        if self.budget is not None and spent + epsilon > self.budget:
            raise OrderRefused(
                f"by this site's policy all runs together may spend epsilon {self.budget:g}; {spent:g} is spent, "
                f"and this one asks for {epsilon:g}"
            )

    def _problems(self, terms: Terms) -> Iterator[str]:
        yield from _find_unlisted("algorithm", self.algorithms, terms.program, terms.settings)
        yield from _find_unlisted("sum", self.sums, terms.sum_name, {**terms.sum_options, MIN_SITES: None})
        if terms.min_sites < (least := self._min_sites(terms.sum_name)):
            yield (
                f"sums must be of {least} sites or more, and the run continues with {terms.min_sites}; raise "
                "federation.min_sites"
            )
        if self.gathers is not None and (shown := [step for step in terms.gathers if step not in self.gathers]):
            yield f"the value of step {shown[0]!r} must not be shown in the clear"
        if self.committee is not None and (others := [each for each in terms.committee if each not in self.committee]):
            yield f"protocol.committee must not name {', '.join(others)}; without the key, sites draw the members"
        if terms.releases and not self.release:
            yield "the sites alone may keep the model, and the run shows it to the coordinator"
        if self.max_epsilon is not None and terms.epsilon is None:
            yield f"epsilon must be {self.max_epsilon:g} or less, and the run promises none"
        elif self.max_epsilon is not None and terms.epsilon is not None and terms.epsilon > self.max_epsilon:
            yield f"epsilon must be {self.max_epsilon:g} or less, got {terms.epsilon:g}"
        elif self.budget is not None and terms.epsilon is None:
            yield f"all runs together may spend epsilon {self.budget:g}, and the run promises none"

        if self.max_mu is not None:
            yield from self._problems_of_statistics(terms, self.max_mu)

    def _problems_of_statistics(self, terms: Terms, max_mu: float) -> Iterator[str]:
        """Yield a clause if a run takes statistics of columns with too little noise, or without noise."""
        mu = terms.reading.get("statistics_privacy")
        if mu is None or terms.epsilon is not None or terms.reading.get("partition") == "vertical":
            return
        if mu == 0:
            yield f"data.statistics_privacy must be above 0 and {max_mu:g} or less, and the run takes exact statistics"
        elif mu > max_mu:
            yield f"data.statistics_privacy must be {max_mu:g} or less, got {mu:g}"

    def _min_sites(self, name: str) -> int:
        return int((self.sums or {}).get(name, {}).get(MIN_SITES, 1))


ANYTHING = SiteRules()
"""The rules of a site without a policy of its own."""


def _spent_by(line: str, ledger: str) -> float:
    """Return the epsilon of one line. Raises OrderRefused for a malformed line, since the spent amount is unknown."""
    try:
        epsilon = json.loads(line)["epsilon"]
    except (ValueError, KeyError, TypeError):
        epsilon = None
    if type(epsilon) not in (int, float) or not 0 <= epsilon < math.inf:
        raise OrderRefused(
            f"the ledger {ledger} of its policy is damaged: {line[:80]!r} is not a valid line; fix it",
            "the ledger of its policy is damaged",
        )
    return float(epsilon)


def _find_unlisted(
    kind: str, listed: Mapping[str, Mapping[str, Any]] | None, name: str, settings: Mapping[str, Any]
) -> Iterator[str]:
    """Yield the names and settings that are not listed."""
    if listed is None:
        return
    if name not in listed:
        where = " (protocol.sum)" if kind == "sum" else ""
        yield f"the {kind} must be {' or '.join(listed) or 'none at all'}, got {name}{where}"
        return
    for setting, rule in listed[name].items():
        if setting == MIN_SITES:
            continue
        if why := _beyond(rule, settings.get(setting)):
            yield f"{setting} must be {why}, got {json.dumps(settings.get(setting))}"


def _beyond(rule: Any, value: Any) -> str:
    """Return the allowed values in words if a value breaks a rule, otherwise ""."""
    if isinstance(rule, Mapping):
        low, high = rule.get("min"), rule.get("max")
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if is_number and (low is None or value >= low) and (high is None or value <= high):
            return ""
        bounds = [f"{low:g} or more"] if low is not None else []
        return " and ".join([*bounds, f"{high:g} or less"] if high is not None else bounds)
    return "" if value in rule else " or ".join(map(json.dumps, rule))
