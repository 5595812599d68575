"""The trace contract: a table of small rules on the events of a trail.

It is made from the chapters, so a new rule is only added to its event's chapter. Evidence without action is
a violation that a command finds: each recorded verdict must be followed by what it demands. A fix that has
not ended is *open*, and never violates a rule by events that may still come.
"""

from collections.abc import Iterator, Sequence

from fallback_audit.contract import attempt, fix, maintenance, model, parts, people
from fallback_audit.contract.rule import Altered, FixRule, Rule, fix_rules_of, rule, rules_of
from fallback_audit.contract.trail import Entry, Finding, Link, Trail
from fallback_audit.events import AppendFlagged
from fallback_audit.frozen import Frozen


class Violation(Frozen):
    """One rule broken at one event."""

    rule: str
    seq: int
    fix_id: str
    gate_transition_id: str
    detail: str


@rule(
    "A flag names a rule that the event before it broke.",
    "ADR-0035",
    breaches=(Altered(AppendFlagged, "rule"),),
    sees={AppendFlagged},
    of_maintenance=True,
)
def flags_are_real(trail: Trail) -> Iterator[Finding]:
    """Of a rule between gate transitions only the name is compared: the other transitions are not here."""
    by_id = {each.id: each for each in RULES}
    between = {each.id for each in FIX_RULES}
    for seq, flag in _flags(trail):
        broken = by_id.get(flag.rule)
        if broken is None and flag.rule not in between:
            yield seq, f"there is no rule {flag.rule!r}"
        elif broken is not None and broken is not flags_are_real:
            up_to_event = (entry for entry in trail.everything if entry.seq <= flag.at)
            if not any(broken.check(Trail(trail.scope, up_to_event, base=trail.base))):
                yield seq, f"event {flag.at} did not break {flag.rule!r}"


def _flags(trail: Trail) -> Iterator[Entry[AppendFlagged]]:
    for seq, event in trail.notes:
        if isinstance(event, AppendFlagged):
            yield Entry(seq, event)


#: The chapters of rules, with the titles that they have on the page ``docs/trace-contract.md``.
CHAPTERS = {
    "An attempt": attempt,
    "Gates and ends": fix,
    "People": people,
    "Parts of a fix": parts,
    "Model traffic": model,
    "The audit trail itself": maintenance,
}

#: The tests break each rule by its breaches: changes of valid trails that only this rule forbids.
RULES: tuple[Rule, ...] = (*rules_of(*CHAPTERS.values()), flags_are_real)

#: Rules over all gate transitions of a fix.
FIX_RULES: tuple[FixRule, ...] = fix_rules_of(*CHAPTERS.values())

#: Rules of both sorts.
ALL_RULES: tuple[Rule | FixRule, ...] = (*RULES, *FIX_RULES)

#: Rule → its sentence and its source.
SENTENCES = {each.id: (each.sentence, each.source) for each in ALL_RULES}


def link_violations(fix_id: str, links: Sequence[Link]) -> Iterator[Violation]:
    """Yield the violations of rules between the gate transitions of one fix."""
    for fix_rule in FIX_RULES:
        for link, (seq, detail) in fix_rule.check(links):
            yield Violation(
                rule=fix_rule.id,
                seq=seq,
                fix_id=fix_id,
                gate_transition_id=link.transition,
                detail=detail,
            )


def violations(trail: Trail, rules: Sequence[Rule] = RULES) -> Iterator[Violation]:
    """Yield all violations in this trail, rule by rule.

    If its beginning may be in a sealed segment, only the rules of maintenance are checked.
    """
    if trail.is_cut:
        rules = [each for each in rules if each.of_maintenance]
    for each in rules:
        for seq, detail in each.check(trail):
            yield Violation(
                rule=each.id,
                seq=seq,
                fix_id=trail.scope.fix_id,
                gate_transition_id=trail.scope.gate_transition_id,
                detail=detail,
            )
