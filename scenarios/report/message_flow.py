"""Message flow, from a run's ledger: a map of the parties, and the messages of a round in their order."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedsvm.federation.traffic_ledger import CONTROL
from fedsvm.federation.transport.keys import COORDINATOR
from fedsvm.scenarios.figures import human_bytes
from fedsvm.scenarios.report.chart import Chart, Key
from fedsvm.scenarios.report.drawing import EXCHANGE, HUB, PAPER, WIDTH, element, shorten, text

MAX_PARTIES = 26
"""Of more, a picture would show a grey mesh."""

_MAX_ROUNDS = 16
_ROW = 34.0

LedgerRow = Mapping[str, Any]


def read_ledger(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a ledger with the columns that pictures need; none if the file is missing."""
    if not path.is_file():
        return []
    import pyarrow.parquet as pq  # slow to import

    wanted = ["round", "phase", "step", "protocol", "from", "to", "messages", "payload_bytes", "predicted_wire_bytes"]
    with pq.ParquetFile(path) as file:  # read_table would import what reads folders of files
        rows: list[dict[str, Any]] = file.read(columns=wanted).to_pylist()
    return rows


def topology(ledger: Sequence[LedgerRow], sites: Sequence[str]) -> Chart | None:
    """Draw the parties, and a line between those that exchanged arrays, wider for more bytes."""
    sent: dict[frozenset[str], dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for row in ledger:
        if row["messages"] and row["protocol"] != CONTROL:
            sent[frozenset((row["from"], row["to"]))][row["from"]] += row["predicted_wire_bytes"]
    if not sent or len(sites) >= MAX_PARTIES:
        return None
    height, radius = 300.0, 104.0
    at = {COORDINATOR: (WIDTH / 2, height / 2)}
    for number, site in enumerate(sites):
        turn = 2 * math.pi * number / len(sites) - math.pi / 2
        at[site] = (WIDTH / 2 + radius * math.cos(turn) * 1.25, height / 2 + radius * math.sin(turn))
    largest = max(sum(by.values()) for by in sent.values())
    body = []
    for pair, by in sorted(sent.items(), key=lambda each: sum(each[1].values())):
        (x1, y1), (x2, y2) = (at[name] for name in sorted(pair))
        tip = "; ".join(f"{name} → {_other(pair, name)} {human_bytes(count)}" for name, count in by.items())
        is_hub = COORDINATOR in pair
        body.append(
            element(
                "line",
                data_series=0 if is_hub else 1,
                **{"x1": x1, "y1": y1, "x2": x2, "y2": y2},
                stroke=HUB if is_hub else EXCHANGE,
                stroke_opacity=0.75,
                stroke_width=1 + 11 * math.sqrt(sum(by.values()) / largest),
                data_tip=tip,
            )
        )
    for name, (x, y) in at.items():
        size = 13 if name == COORDINATOR else 9
        body.append(element("circle", cx=x, cy=y, r=size, fill="var(--ink)", stroke=PAPER, stroke_width=3))
        aside = 0 if name == COORDINATOR or abs(x - WIDTH / 2) < 20 else 1 if x > WIDTH / 2 else -1
        down = 30 if name == COORDINATOR else 4 if aside else 27 if y > height / 2 else -16
        anchor = {0: "middle", 1: "start", -1: "end"}[aside]
        body.append(text(x + 15 * aside, y + down, shorten(name, 14), text_anchor=anchor, halo=True))
    keys = (Key("with the coordinator", HUB), Key("between sites", EXCHANGE))
    caption = "Line width is proportional to the square root of the bytes exchanged (requests and replies excluded)."
    return Chart("Message flow", caption, height, "".join(body), keys)


def _other(pair: frozenset[str], name: str) -> str:
    """Return the other party of a pair."""
    return next(iter(pair - {name}), name)


@dataclass(frozen=True)
class RoundPicture:
    """The messages of one round: what to call it, and the picture."""

    name: str
    chart: Chart
    payload_bytes: int


def round_pictures(
    ledger: Sequence[LedgerRow], log: Sequence[Mapping[str, Any]], sites: Sequence[str]
) -> list[RoundPicture]:
    """Return the messages of the first complete round of every step of each phase."""
    rounds = {event["round"]: event for event in log if event["event"] == "round" and not event["aborted"]}
    first: dict[tuple[str, str], int] = {}
    for number, event in rounds.items():
        first.setdefault((event["phase"], event["step"]), number)
    rows: dict[int, list[LedgerRow]] = defaultdict(list)
    for row in ledger:
        if row["messages"] and row["round"] in first.values():
            rows[row["round"]].append(row)
    if len(sites) >= MAX_PARTIES:
        return []
    chosen = [number for number in first.values() if rows[number]][:_MAX_ROUNDS]
    return [_picture(rounds[number], rows[number], sites) for number in chosen]


def _picture(event: Mapping[str, Any], rows: Sequence[LedgerRow], sites: Sequence[str]) -> RoundPicture:
    messages = [row for row in rows if row["protocol"] != CONTROL]
    orders = [row for row in rows if row["protocol"] == CONTROL and row["from"] == COORDINATOR]
    answers = [row for row in rows if row["protocol"] == CONTROL and row["to"] == COORDINATOR]
    levels = [orders, *_in_order(messages, sites), answers]
    parties = [COORDINATOR, *sites]
    gap = (WIDTH - 60) / max(1, len(parties) - 1)
    at = {name: 30 + gap * place for place, name in enumerate(parties)}
    body = [_lifeline(name, at[name], gap, place, len(levels)) for place, name in enumerate(parties)]
    for level, of_level in enumerate(levels):
        body += [_arrow(row, at, 34 + _ROW * level, level, len(levels)) for row in of_level]
    kind = {"sum": "a secure sum", "sum-at": "a secure sum for one site", "gather": "every site's value"}
    what = kind.get(event["verb"], "a local step")
    name = f"{event['phase']}: {event['step'].replace('_', ' ')}"
    # the protocol of a local step is called as the step is
    by = f" by {event['protocol']}" if event["protocol"] != event["step"] else ""
    payload = sum(row["payload_bytes"] for row in messages)
    hops = f"{event['hops']} hop{'' if event['hops'] == 1 else 's'}, one after the other"
    went = (
        f" {len(messages)} links carried {human_bytes(payload)} of arrays in {hops}."
        if messages
        else " Nothing else was sent."
    )
    caption = (
        f"Round {event['round']} is {what}{by}. Time runs downwards: requests, messages between the "
        f"parties, and replies.{went}"
    )
    keys = (Key("request or reply", "var(--grey)"), Key("array of the protocol", EXCHANGE))
    chart = Chart(f"Round {event['round']}", caption, 34 + _ROW * len(levels) + 12, "".join(body), keys)
    return RoundPicture(name, chart, payload)


def _in_order(messages: Sequence[LedgerRow], sites: Sequence[str]) -> list[list[LedgerRow]]:
    """Return messages by the time at which they can be sent: a party sends after it received what it waits for.

    The ledger has no times. Where everybody waits for somebody, those begin who speak once more than they are answered,
    then those who answer, then those who send to each other; without such the first site of the ring, and what that
    sends the coordinator comes last.
    """
    count = {(row["from"], row["to"]): row["messages"] for row in messages}
    opened = [row for row in messages if 0 < count.get((row["to"], row["from"]), 0) < row["messages"]]
    waiting, levels, level_of = [*messages, *(dict(row) for row in opened)], list[list[LedgerRow]](), dict[str, int]()
    while waiting:
        ready = _ready(waiting, opened, sites)
        reached: dict[str, int] = {}
        for row in ready:
            level = level_of.get(row["from"], 0)
            levels += [[] for _ in range(level + 1 - len(levels))]
            levels[level].append(row)
            reached[row["to"]] = max(reached.get(row["to"], 0), level + 1)
        waiting = [row for row in waiting if not any(row is each for each in ready)]
        for name, level in reached.items():
            level_of[name] = max(level_of.get(name, 0), level)
    return levels


def _ready(waiting: Sequence[LedgerRow], opened: Sequence[LedgerRow], sites: Sequence[str]) -> list[LedgerRow]:
    """Return the messages that can be sent next; opened: the first of those that are sent again after an answer."""
    unfilled = {row["to"] for row in waiting}
    if free := [row for row in waiting if row["from"] not in unfilled]:
        return free
    if opening := [row for row in waiting if any(row is each for each in opened)]:
        return opening
    asked = {(row["to"], row["from"]) for row in opened}
    if answering := [row for row in waiting if (row["from"], row["to"]) in asked]:
        return answering
    pairs = {(row["from"], row["to"]) for row in waiting}
    if mutual := [row for row in waiting if (row["to"], row["from"]) in pairs]:
        return mutual
    place = {name: number for number, name in enumerate(sites)}
    begins = min((row["from"] for row in waiting), key=lambda name: place.get(name, len(place)))
    own = [row for row in waiting if row["from"] == begins]
    return [row for row in own if row["to"] != COORDINATOR] or own


def _lifeline(name: str, x: float, gap: float, place: int, levels: int) -> str:
    letters = int(gap / 7)
    if name == COORDINATOR:
        shown = name if letters >= len(name) else "coord." if letters >= 6 else "C"
    else:
        shown = shorten(name, letters) if letters >= min(len(name), 6) else str(place)
    line = {"x1": x, "x2": x, "y1": 24, "y2": 34 + _ROW * levels}
    return element("line", **line, stroke="var(--soft)", stroke_width=2) + text(
        x, 15, shown, text_anchor="middle", data_tip=name
    )


def _arrow(row: LedgerRow, at: Mapping[str, float], y: float, level: int, levels: int) -> str:
    x1, x2, down = at[row["from"]], at[row["to"]], _ROW - 8
    is_control = row["protocol"] == CONTROL
    stroke = "var(--grey)" if is_control else EXCHANGE
    long = math.hypot(x2 - x1, down) or 1
    ux, uy = (x2 - x1) / long, down / long
    tx, ty = x2 - 2 * ux, y + down - 2 * uy
    head = f"{tx:.1f},{ty:.1f} {tx - 7 * ux - 3.5 * uy:.1f},{ty - 7 * uy + 3.5 * ux:.1f} "
    head += f"{tx - 7 * ux + 3.5 * uy:.1f},{ty - 7 * uy - 3.5 * ux:.1f}"
    what = ("request" if level == 0 else "reply" if level == levels - 1 else "array") if is_control else row["protocol"]
    size = human_bytes(row["predicted_wire_bytes"])
    several = f" in {row['messages']} messages" if row["messages"] > 1 else ""
    line = {"x1": x1, "y1": y, "x2": tx - 5 * ux, "y2": ty - 5 * uy, "stroke_width": 1.2 if is_control else 2.2}
    return element(
        "g",
        element("line", **line, stroke=stroke) + element("polygon", points=head, fill=stroke),
        data_series=0 if is_control else 1,
        data_tip=f"{row['from']} → {row['to']}: {what}, {size}{several}",
    )
