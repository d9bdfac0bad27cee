"""The result of attacks on a whole run, as a line of the summary and as a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fedsvm.federation.transport.keys import COORDINATOR
from fedsvm.scenarios.run.audit import HOLDER, AttackResult, PartyAudit

NOTHING_TRIED = "no attack on this algorithm is implemented"
NOTHING_FOUND = "nothing: what the attacks need is not in what they saw"
WITHOUT_LIST = "nothing: no attack finds rows in this file without a list of candidates"
HEAD = ("who", "attack", "rows recovered", "false claims")


def table(audits: Sequence[PartyAudit]) -> list[tuple[str, ...]]:
    """Return for each party what it saw, a row for each attack, and one for all attacks together."""
    return [row for audit in audits for row in _rows(audit)]


def _rows(audit: PartyAudit) -> Iterator[tuple[str, ...]]:
    sums, arrays = f"{audit.sums} sums ({audit.numbers} numbers), ", f"{audit.parameters} arrays"
    yield " + ".join(audit.parties), "saw", sums + arrays if audit.sums else arrays, ""
    for attack in audit.attacks:
        yield "", attack.attack, _came_of(audit, attack), "" if attack.ranked is not None else str(attack.false_claims)
    if not audit.attacks:
        nothing = NOTHING_FOUND if audit.tried else NOTHING_TRIED
        yield "", "none", WITHOUT_LIST if audit.parties == (HOLDER,) else nothing, ""
        return
    yield "", "together", f"{audit.recovered} of {audit.rows}", str(audit.false_claims)


def _came_of(audit: PartyAudit, attack: AttackResult) -> str:
    if attack.ranked is not None:
        area = f"AUC {attack.auc:.2f}" if attack.auc is not None else "no AUC"
        return f"{area} over {attack.ranked} candidates"
    if (before := attack.known_before) is not None:
        columns = " + ".join(before.columns_of)
        return f"{attack.recovered} of {before.held_back}: {columns}, from {before.known_records} known"
    note = f" ({attack.note})" if attack.note else ""
    return f"{attack.recovered} of {audit.rows}{note}"


def line(audits: Sequence[PartyAudit]) -> str:
    """Return the maximum that each kind of party recovered, and the number of false claims."""
    if not any(audit.tried for audit in audits):
        return NOTHING_TRIED
    if len(audits) == 1:
        found = [_sentence(" and ".join(audits[0].parties), audits[0])]
    else:
        tried = [each for each in audits if each.attacks]
        kinds = {
            "the coordinator alone": [each for each in audits if each.parties == (COORDINATOR,)],
            "a site alone": [each for each in audits if len(each.coalition) == 1 and not each.coordinator],
            "the coordinator with a site": [each for each in audits if len(each.parties) == 2 and each.coordinator],
            "whoever holds the model file": [each for each in tried if each.parties == (HOLDER,)],
            "whoever holds the model file with a list of candidates": [each for each in tried if each.has_list],
        }
        found = [_sentence(name, max(of, key=_share)) for name, of in kinds.items() if of]
    wrong = sum(each.false_claims for each in audits)
    return f"{'; '.join(found)}; {wrong or 'no'} false {'claims' if wrong > 1 else 'claim'}"


def _share(audit: PartyAudit) -> float:
    return audit.recovered / audit.rows if audit.rows else 0.0


def _sentence(who: str, audit: PartyAudit) -> str:
    by = [attack.attack for attack in audit.attacks if attack.recovered == audit.recovered > 0][:1]
    how = f" by {by[0]}" if by else ""
    verb = "recover" if " and " in who else "recovers"
    whose = "rows of others" if audit.coalition or audit.coordinator else "rows"
    return f"{who} {verb} {audit.recovered} of {audit.rows} {whose}{how}"
