"""The disclosures of a run, the most sensitive first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from fedsvm.federation.report import DisclosureReport
from fedsvm.scenarios.report.section import Section

_TEMPLATE = """<p>Most sensitive disclosures first.</p>
<div class="scroll"><table class="stack">
<thead><tr><th>concerns</th><th class="text">to</th><th class="text">what</th><th class="text">step</th>
<th>shape</th><th>times</th></tr></thead>
<tbody>{% for each in rows %}<tr>
<td><span class="severity severity-{{ each.level }}">{{ each.severity }}</span></td>
<td class="text" data-name="to">{{ each.to }}</td>
<td class="text wide">{{ each.what }}</td>
<td class="text" data-name="step">{{ each.step }}</td>
<td data-name="shape">{{ each.shape }}</td>
<td data-name="times">{{ each.times }}</td>
</tr>{% endfor %}</tbody></table></div>"""

_SEVERITY = {
    "single-row": (0, "rows", "a single row", "The part of the sum that comes from one row alone"),
    "row-difference": (1, "rows", "a single row", "Two sums whose difference is a single row"),
    "value": (2, "sites", "one site", "Each site's own value"),
    "difference": (3, "sites", "sites that left", "The difference of two sums reveals the value of sites that left"),
    "design": (4, "sites", "by design", "A disclosure that is part of the protocol"),
    "sum": (5, "rest", "all sites together", "Sum over all sites; individual contributions stay hidden"),
    "parameter": (6, "rest", "the model", "A parameter sent by the coordinator"),
}
_MAX_SHAPES = 2


def _rows(listed: Sequence[DisclosureReport]) -> Iterator[dict[str, Any]]:
    """Yield each disclosure once, with its shapes, which may differ by fold."""
    alike: dict[tuple[str, str, str, str], list[DisclosureReport]] = {}
    for each in listed:
        alike.setdefault((each.to, each.step, each.kind, each.detail), []).append(each)
    for same in alike.values():
        shapes = [" x ".join(map(str, each.shape)) or "1" for each in same]
        more = f" and {len(shapes) - _MAX_SHAPES} more" if len(shapes) > _MAX_SHAPES else ""
        shape = f"{', '.join(shapes[:_MAX_SHAPES])}{more}"
        yield {**_describe(same[0]), "shape": shape, "times": sum(each.times for each in same)}


def _describe(each: DisclosureReport) -> dict[str, Any]:
    """Return how sensitive a disclosure is, in words."""
    rank, level, severity, sentence = _SEVERITY[each.kind]
    what = f"{sentence}: {each.detail}" if each.detail else sentence
    return {
        "rank": rank,
        "level": level,
        "severity": severity,
        "to": each.to,
        "what": what,
        "step": each.step.replace("_", " "),
    }


SECTION = Section(
    place=160,
    id="disclosed",
    title="Disclosures",
    content=lambda run: {"rows": sorted(_rows(run.result.disclosures), key=lambda each: each["rank"])},
    template=_TEMPLATE,
)
