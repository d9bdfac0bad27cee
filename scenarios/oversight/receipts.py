"""Receipts as people read them: the values that left a site in a run."""

from __future__ import annotations

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fedsvm.federation.site import receipt as lines_of
from fedsvm.federation.site.receipt import DamagedReceipt, Line
from fedsvm.federation.site.rules import ANYTHING
from fedsvm.federation.transport.keys import COORDINATOR
from fedsvm.scenarios.oversight import signatures
from fedsvm.scenarios.run.outcome import RECEIPT, RECEIPTS
from fedsvm.scenarios.schema.errors import ScenarioError

HEAD = ("step", "times", "numbers each time", "form", "over", "opened by")
_OWN_PROTOCOL = "in a protocol of its own"
NOT_CLOSED = "it is not closed: its end was cut off, or the site was killed, or the run is not over"


@dataclass(frozen=True)
class Left:
    """Values of one step that left the site in one form.

    Parameters
    ----------
    step : str
        Its name.
    times : int
        The number of rounds.
    numbers : tuple of int
        The smallest and the largest number of numbers in a round.
    form : str
        "in a sum", "in the clear", or "in a protocol of its own", which may show the coordinator some numbers and hide
        others.
    over : str
        The sites of the sum.
    opened_by : str
        The party that opens it.
    """

    step: str
    times: int
    numbers: tuple[int, int]
    form: str
    over: str
    opened_by: str

    @property
    def row(self) -> tuple[str, ...]:
        """The cells of a table with HEAD."""
        least, most = self.numbers
        size = str(least) if least == most else f"{least} to {most}"
        return self.step, str(self.times), size, self.form, self.over, self.opened_by


@dataclass(frozen=True)
class SiteReceipt:
    """One site's receipt.

    Parameters
    ----------
    path : str
        Its file.
    problems : tuple of str
        What is wrong with the file, in clauses.
    site, run : str
        The site and the run.
    began, ended, outcome : str
        Times, and how the run ended for the site.
    terms, policy, versions : mapping
        What was asked for, the site's own policy, and the versions of the software.
    rows : int or None
        The number of rows that the site took part with.
    keys : mapping
        Of each party the public keys that it had last.
    left : tuple of Left
        What left the site.
    to_peers : mapping of str to int
        Numbers that were sent to each party, masked or not.
    unsettled : tuple of str
        Orders that were broken off, or that may have been carried out or not.
    interruptions : tuple of str
        When the run failed, or another process of the site went on, and when it was resumed.
    refused : tuple of str
        What the site refused, and why.
    epsilon : float or None
        The privacy budget that was spent; None in a run without noise.
    mu : float or None
        The mu of all noisy statistics that the site's record held last; None without any.
    logged : tuple of str
        Texts that the site's code logged to the coordinator.
    restarts : int
        How often a new process of the site went on.
    orders : mapping of str to str
        The digest of the order of each round.
    members : mapping of str to list of str
        The sites of each round that was ordered of this site.
    links : mapping of str to str
        The link of each round in the chain of orders, computed from the orders.
    signing : mapping of str to str
        The public keys for signatures of "site" and "coordinator"; "" for none.
    signed : mapping of str to int
        Of each round whose order a valid signature of the coordinator covers the number of its line.
    compared : mapping of str to str
        Of "site" and "coordinator", whether their key was compared with a given one, in a clause; empty without keys.
    """

    path: str
    problems: tuple[str, ...]
    site: str
    run: str
    began: str
    ended: str
    outcome: str
    terms: Mapping[str, Any]
    policy: Mapping[str, Any]
    versions: Mapping[str, str]
    rows: int | None
    keys: Mapping[str, Sequence[str]]
    left: tuple[Left, ...]
    to_peers: Mapping[str, int]
    unsettled: tuple[str, ...]
    interruptions: tuple[str, ...]
    refused: tuple[str, ...]
    epsilon: float | None
    mu: float | None
    logged: tuple[str, ...]
    restarts: int
    orders: Mapping[str, str]
    members: Mapping[str, Sequence[str]]
    links: Mapping[str, str]
    signing: Mapping[str, str]
    signed: Mapping[str, int]
    compared: Mapping[str, str]

    def with_site(self, site: str) -> list[str]:
        """Return the rounds that were ordered of a site too."""
        return [number for number, sites in self.members.items() if site in sites]

    @property
    def is_whole(self) -> bool:
        """True if the file is closed, and nothing in it was changed."""
        return not self.problems

    def to_fields(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)

    @property
    def facts(self) -> list[tuple[str, str]]:
        """The facts of the order without its tables, with titles."""
        usual = asdict(ANYTHING)
        asked = {name: value for name, value in self.policy.items() if value != usual.get(name)}
        allowed = f"none: everything was allowed but to open categories of fewer than {ANYTHING.min_cell} rows"
        sum_name, least = self.terms.get("sum_name", ""), self.terms.get("min_sites", "")
        spent = [] if self.epsilon is None else [f"epsilon {self.epsilon:g}"]
        spent += [] if self.mu is None else [f"mu {self.mu:.3g} by all noisy statistics of this site's record"]
        return [
            ("run", self.run),
            ("time", f"{self.began} to {self.ended}"),
            ("outcome", self.outcome),
            ("asked for", f"{self.terms.get('program', '')}, {sum_name} sums over {least} sites or more"),
            ("model", "the coordinator gets it" if self.terms.get("releases") else "the sites alone keep its weights"),
            ("rows", "none were used" if self.rows is None else f"{self.rows}, none of which is in this file"),
            ("policy", "; ".join(_list_keys(asked)) or allowed),
            ("budget spent", "; ".join(spent) or "none: no noise protects single rows"),
            ("software", ", ".join(f"{name} {number}" for name, number in self.versions.items())),
            ("receipt", "whole and closed" if self.is_whole else "; ".join(self.problems)),
            ("orders signed by", self._signer("coordinator")),
            ("receipt signed by", self._signer("site")),
        ]

    def _signer(self, role: str) -> str:
        key, compared = self.signing[role], self.compared.get(role, "")
        return "; ".join(filter(None, (f"the key {fingerprint([key])}" if key else "nobody", compared)))

    @property
    def lists(self) -> list[tuple[str, Sequence[str]]]:
        """Titles of what else happened, with sentences."""
        peers = [f"{peer}: {count:,}" for peer, count in self.to_peers.items()]
        return [
            ("Refused", self.refused or ("Nothing.",)),
            ("Broken off, or not known to be carried out", self.unsettled or ("Nothing.",)),
            ("Interruptions", self.interruptions or ("None.",)),
            ("Numbers sent, by receiver", peers or ("None.",)),
            ("Logged to the coordinator", self.logged or ("Nothing.",)),
        ]

    @property
    def key_rows(self) -> list[tuple[str, str]]:
        """Each party with the fingerprint of its keys."""
        return [(name, fingerprint(keys)) for name, keys in self.keys.items()]

    def to_text(self) -> str:
        """Return the page as text."""
        lines = [f"# What left {self.site}", "", *(f"{name}: {value}" for name, value in self.facts)]
        lines += ["", "## What left, and how", "", _row(HEAD), _row(["---"] * len(HEAD))]
        lines += [_row(each.row) for each in self.left]
        for title, sentences in self.lists:
            lines += ["", f"## {title}", "", *(f"- {sentence}" for sentence in sentences)]
        lines += ["", "## Who took part", "", *(f"- {name} {key}" for name, key in self.key_rows)]
        return "\n".join(lines) + "\n"


def find(path: Path) -> list[Path]:
    """Return the receipts in a folder or in the folder of a run, or the one file. Raises ScenarioError."""
    if path.is_file():
        return [path]
    if not path.exists():
        raise ScenarioError([f"{path}: there is no such file or folder."])
    found = sorted(path.glob(f"*{RECEIPT}")) or sorted((path / RECEIPTS).glob(f"*{RECEIPT}"))
    if not found:
        raise ScenarioError([f"{path}: has no receipt; name a file that ends in {RECEIPT}, or a folder with some."])
    return found


def read(path: Path, known: Mapping[str, bytes] | None = None) -> SiteReceipt:
    """Return what a receipt says.

    Parameters
    ----------
    path : Path
    known : mapping of str to bytes, optional
        Public keys for signatures of parties, by name, to compare with those in the receipt.

    Raises
    ------
    ScenarioError
        The file cannot be read, or has no line that is right.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ScenarioError([f"{path}: cannot be read: {error.strerror}."]) from error
    problems = []
    try:
        lines, whole = lines_of.verify_lines(content)
        if whole < len(content):
            problems.append("its last line is cut off")
    except DamagedReceipt as error:
        lines = error.lines
        problems.append(str(error))
    if not lines or lines[0]["what"] != lines_of.ASKED:
        raise ScenarioError([f"{path}: is no receipt, or its first line was changed."])
    if not problems and lines[-1]["what"] not in lines_of.CLOSING:
        problems.append(NOT_CLOSED)
    try:
        problems += [*signatures.wrong(lines), *signatures.of_other_keys(lines, known or {})]
        return _to_receipt(path, lines, problems, signatures.compared_keys(lines, known))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ScenarioError([f"{path}: is no receipt of this version of fedsvm."]) from error


def select_receipts(path: Path, site: str | None, known: Mapping[str, bytes] | None = None) -> list[SiteReceipt]:
    """Return the receipts at a path, or that of one site among them. known: see `read`. Raises ScenarioError."""
    found = [read(each, known) for each in find(path)]
    if site is None:
        return found
    if not (of_site := [record for record in found if record.site == site]):
        raise ScenarioError([f"--site: must be one of {', '.join(record.site for record in found)}, got {site}."])
    return of_site


def only(path: Path, site: str | None, known: Mapping[str, bytes] | None = None) -> SiteReceipt:
    """Return the one receipt at a path. known: see `read`. Raises ScenarioError if there are several."""
    found = select_receipts(path, site, known)
    if len(found) > 1:
        raise ScenarioError([f"{path}: has {len(found)} receipts; name one of the files."])
    return found[0]


def _to_receipt(path: Path, lines: Sequence[Line], problems: Sequence[str], compared: Mapping[str, str]) -> SiteReceipt:
    by_kind: dict[str, list[Line]] = defaultdict(list)
    for line in lines:
        by_kind[line["what"]].append(line)
    asked, last = by_kind[lines_of.ASKED][-1], lines[-1]
    charged = [line["epsilon"] for line in by_kind[lines_of.CHARGED]]
    joined = by_kind[lines_of.JOINED]
    to_peers: Counter[str] = Counter()
    for line in lines:
        to_peers.update(line.get("sent", {}))
    refusals = [*by_kind[lines_of.DECLINED], *by_kind[lines_of.REFUSED]]
    return SiteReceipt(
        path=str(path),
        problems=tuple(problems),
        site=asked["site"],
        run=asked["run"],
        began=lines[0]["at"],
        ended=last["at"],
        outcome=_outcome(by_kind),
        terms=asked["terms"],
        policy=asked["policy"],
        versions=asked["versions"],
        rows=joined[-1]["rows"] if joined else None,
        keys=by_kind[lines_of.PARTIES][-1]["keys"] if by_kind[lines_of.PARTIES] else {},
        left=tuple(_left(lines)),
        to_peers=dict(to_peers),
        unsettled=tuple(_find_unsettled(lines)),
        interruptions=tuple(_find_interruptions(lines)),
        refused=tuple(_in_round(line, line["reason"]) for line in refusals),
        epsilon=sum(charged) if charged else None,
        mu=answered[-1]["mu"] if (answered := by_kind[lines_of.ANSWERED]) else None,
        logged=tuple(line["text"] for line in by_kind[lines_of.LOGGED]),
        restarts=len(by_kind[lines_of.RESTARTED]),
        orders={str(number): digest for number, digest in signatures.order_digests(lines).items()},
        members={str(number): line["order"]["sites"] for number, line in signatures.ordered_lines(lines).items()},
        links={str(number): link.hex() for number, link in signatures.computed_links(lines).items() if number},
        signing=asked["signing"],
        signed={str(number): line["line"] for number, line in signatures.signed_orders(lines).items()},
        compared=compared,
    )


def _outcome(by_kind: Mapping[str, Sequence[Line]]) -> str:
    if ended := by_kind[lines_of.ENDED]:
        return str(ended[-1]["outcome"])
    return "the site took no part" if by_kind[lines_of.DECLINED] else "not known"


def _in_round(line: Line, reason: str) -> str:
    return f"round {line['round']}: {reason}" if "round" in line else reason


def _list_keys(table: Mapping[str, Any], before: str = "") -> Iterator[str]:
    """Yield the keys of a policy with their values, as TOML writes them in one line each."""
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _list_keys(value, f"{before}{key}.")
        else:
            yield f"{before}{key} = {json.dumps(value)}"


def _left(lines: Sequence[Line]) -> Iterator[Left]:
    """Yield what left in complete rounds, joined by step, form and receiver, in the order of the first time."""
    ordered: dict[int, Line] = {}
    found: dict[tuple[str, str, str, str], list[int]] = defaultdict(list)
    for line in lines:
        if line["what"] == lines_of.ORDERED:
            ordered[line["order"]["round"]] = line["order"]
        elif line["what"] == lines_of.LEFT and line["form"] != lines_of.NO_VALUE:
            order = ordered[line["round"]]
            over = ", ".join(order["sites"]) if line["form"] == lines_of.IN_SUM else "this site alone"
            found[line["step"], line["form"], over, order["opened_by"]].append(order["numbers"])
        elif line["what"] == lines_of.LEFT and (numbers := line["sent"].get(COORDINATOR)):
            over = ", ".join(ordered[line["round"]]["sites"])
            found[line["step"], _OWN_PROTOCOL, over, COORDINATOR].append(numbers)
    for (step, form, over, opened_by), numbers in found.items():
        yield Left(step, len(numbers), (min(numbers), max(numbers)), form, over, opened_by)


def _find_unsettled(lines: Sequence[Line]) -> Iterator[str]:
    """Yield orders without a known end, and those that were broken off."""
    open_orders: dict[int, Line] = {}
    for line in signatures.chained_lines(lines):
        if line["what"] == lines_of.ORDERED:
            open_orders[line["order"]["round"]] = line["order"]
        elif line["what"] in (lines_of.LEFT, lines_of.REFUSED):
            open_orders.pop(line["round"], None)
        elif line["what"] == lines_of.BROKEN:
            order = open_orders.pop(line["round"], None)
            step = f" ({order['step']})" if order else ""
            yield f"round {line['round']}{step} was broken off: {line['reason']}"
    for number, order in open_orders.items():
        yield f"round {number} ({order['step']}) was ordered; whether its value left is not known"


def _find_interruptions(lines: Sequence[Line]) -> Iterator[str]:
    for line in lines:
        if line["what"] == lines_of.PAUSED:
            yield f"{line['at']}: the run failed, and the site waited: {line['reason']}"
        elif line["what"] == lines_of.RESUMED:
            yield f"{line['at']}: the run was resumed"
        elif line["what"] == lines_of.RESTARTED:
            yield f"{line['at']}: another process of the site went on with this file"


def fingerprint(keys: Sequence[str]) -> str:
    """Return a fingerprint of a party's keys, of 256 bits in groups of four digits."""
    digest = hashlib.sha256("\n".join(keys).encode()).hexdigest()
    return " ".join(digest[start : start + 4] for start in range(0, len(digest), 4))


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"
