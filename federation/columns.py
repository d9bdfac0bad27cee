"""The differences between the columns of some sites and those that most sites have."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence

_MAX_NAMED = 8
_MAX_COMPARED = 100
"""Maximum number of columns compared to find a similar name, and of characters of each: the search is slow."""

_MAX_SHOWN = 500
"""Maximum number of characters of a name that are shown."""

_Holders = Mapping[tuple[str, bool], Sequence[str]]
"""The sites that have each column, by its name and whether it is categorical."""


def deviations(held: Mapping[str, Mapping[str, bool]]) -> dict[str, str]:
    """Return how the columns of sites differ from those that most sites have.

    Parameters
    ----------
    held : mapping of str to mapping of str to bool
        The columns of each site: whether each is categorical, by name.

    Returns
    -------
    dict of str to str
        For each site that deviates, clauses whose subject is the site, such as "has 'years', and 2 of 3 sites (north,
        west) have 'age'". If exactly half of the sites have a column, either half may be wrong, so all sites deviate.
        Empty if all sites have the same columns.
    """
    holders: dict[tuple[str, bool], list[str]] = {}
    for site, columns in held.items():
        for column in columns.items():
            holders.setdefault(column, []).append(site)
    common = {column for column, sites in holders.items() if 2 * len(sites) > len(held)}
    is_undecided = any(2 * len(sites) == len(held) for sites in holders.values())
    found = {}
    for site, columns in held.items():
        if is_undecided or columns.items() != common:
            clauses = list(_clauses(site, columns, holders, list(held)))
            more = f"; and {len(clauses) - _MAX_NAMED} more" if len(clauses) > _MAX_NAMED else ""
            found[site] = "; ".join(clauses[:_MAX_NAMED]) + more
    return found


def _clauses(site: str, columns: Mapping[str, bool], holders: _Holders, sites: Sequence[str]) -> Iterator[str]:
    """Yield a clause for each difference between a site's columns and those that half of the sites or more have."""
    usual = {column: having for column, having in holders.items() if 2 * len(having) >= len(sites)}
    lacking = {name: having for (name, _), having in usual.items() if name not in columns}
    unusual = [column for column in columns.items() if 2 * len(holders[column]) <= len(sites)]
    for place, (name, is_text) in enumerate(unusual):
        having = holders[name, is_text]
        if (name, not is_text) in usual:
            kinds = ("text", "numbers") if is_text else ("numbers", "text")
            who = _who(usual[name, not is_text], sites)
            yield f"has {kinds[0]} in {_shorten(name)}, and {who} {kinds[1]}"
        elif place < _MAX_NAMED and (similar := _similar(name, lacking)):
            yield f"has {_shorten(name)}, and {_who(lacking.pop(similar), sites)} {_shorten(similar)}"
        else:
            others = [each for each in sites if each != site]
            rest = f"only {_who(having, sites)}"
            if len(having) == 1:
                rest = f"{others[0]} has not" if len(others) == 1 else "no other has"
            yield f"has {_shorten(name)}, which {rest}"
    for name, having in lacking.items():
        yield f"lacks {_shorten(name)}, which {_who(having, sites)}"


def _similar(name: str, lacking: Mapping[str, object]) -> str | None:
    """Return the lacking column that is most similar to a name, or None."""
    names = {each[:_MAX_COMPARED].strip().casefold(): each for each in list(lacking)[:_MAX_COMPARED]}
    close = difflib.get_close_matches(name[:_MAX_COMPARED].strip().casefold(), names, n=1)
    return names[close[0]] if close else None


def _who(having: Sequence[str], sites: Sequence[str]) -> str:
    if len(having) == 1:
        return f"{having[0]} has"
    more = " …" if len(having) > _MAX_NAMED else ""
    return f"{len(having)} of {len(sites)} sites ({', '.join(having[:_MAX_NAMED])}{more}) have"


def _shorten(name: str) -> str:
    return repr(name[:_MAX_SHOWN])
