"""The cards of a run: its most important figures, for the report and for notebooks."""

from __future__ import annotations

import html

from fedsvm.scenarios.report.section import Card, find_sections
from fedsvm.scenarios.run.result import RunResult

_ROW = "display:flex;flex-wrap:wrap;gap:.6em;font-family:sans-serif"
_CARD = "border:1px solid #8886;border-radius:.5em;padding:.5em .8em;max-width:14em"
_QUIET, _LARGE = "opacity:.7;font-size:.8em", "font-size:1.4em;font-weight:600"


def cards(result: RunResult) -> list[Card]:
    """Return the cards of all sections, in their order."""
    found = (card for section in find_sections() for card in section.cards(result))
    return sorted(found, key=lambda card: card.place)


def notebook_html(result: RunResult) -> str:
    """Return the cards of a run as HTML that brings its own style, with every value escaped."""
    head = f"{result.scenario['name']}: {result.status}"
    told = [f'<div style="font-weight:600">{html.escape(head)}</div>']
    if result.error:
        told.append(f"<div>{html.escape(result.error)}</div>")
    shown = "".join(_card(each) for each in cards(result))
    return f'<div>{"".join(told)}<div style="{_ROW}">{shown}</div></div>'


def _card(card: Card) -> str:
    styles = ((card.name, _QUIET), (card.value, _LARGE), (card.beside, _QUIET))
    lines = "".join(f'<div style="{style}">{html.escape(text)}</div>' for text, style in styles)
    return f'<div style="{_CARD}">{lines}</div>'


RunResult.as_cards = notebook_html
