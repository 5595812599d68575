"""The trace contract: what may stand in a trail, as a table of small rules.

Evidence without action is a violation that a command finds: each recorded verdict must be followed
by what it demands. A fix that has not ended is *open*, never wrong for what may still come.
"""

from collections.abc import Iterator, Sequence

from fallback_audit.contract.links import Link, transitions_are_opened
from fallback_audit.contract.rule import Altered, FixRule, Removed, Rule
from fallback_audit.contract.table_again import GATES_AGAIN_ARE_OF_RECORD
from fallback_audit.contract.table_attempt import ATTEMPT_RULES
from fallback_audit.contract.table_batch import BATCH_RULES
from fallback_audit.contract.table_candidates import CANDIDATE_RULES
from fallback_audit.contract.table_fix import FIX_AND_HUMAN_RULES
from fallback_audit.contract.table_model import MODEL_RULES
from fallback_audit.contract.table_selfrag import SELFRAG_RULES
from fallback_audit.contract.table_upkeep import UPKEEP_RULES
from fallback_audit.contract.trail import Entry, Finding, Trail
from fallback_audit.events import (
    AppendFlagged,
    AttemptFailed,
    AttemptStarted,
    FixStarted,
    RagSkippedOnRetry,
    TransitionReopened,
)
from fallback_audit.frozen import Frozen


class Violation(Frozen):
    """One rule broken at one event."""

    rule: str
    seq: int
    fix_id: str
    gate_transition_id: str
    detail: str


def flags_are_real(trail: Trail) -> Iterator[Finding]:
    """The trail up to the flagged event breaks the rule that the flag names.

    Of a rule between gate transitions only the name is compared: the other transitions are not here.
    """
    by_id = {rule.id: rule for rule in RULES}
    between = {rule.id for rule in FIX_RULES}
    for seq, flag in _flags(trail):
        rule = by_id.get(flag.rule)
        if rule is None and flag.rule not in between:
            yield seq, f"there is no rule {flag.rule!r}"
        elif rule is not None and rule.check is not flags_are_real:
            before = (entry for entry in trail.everything if entry.seq <= flag.at)
            if not any(rule.check(Trail(trail.scope, before, base=trail.base))):
                yield seq, f"event {flag.at} did not break {flag.rule!r}"


def _flags(trail: Trail) -> Iterator[Entry[AppendFlagged]]:
    for seq, event in trail.notes:
        if isinstance(event, AppendFlagged):
            yield Entry(seq, event)


#: Every rule has mutants in the tests, made by its breaches: valid trails that it alone keeps valid.
RULES: tuple[Rule, ...] = (
    *ATTEMPT_RULES,
    *FIX_AND_HUMAN_RULES,
    *CANDIDATE_RULES,
    *BATCH_RULES,
    *MODEL_RULES,
    *SELFRAG_RULES,
    *UPKEEP_RULES,
    Rule(
        "flags-are-real",
        "A flag names a rule that the event before it broke.",
        "ADR-0035",
        flags_are_real,
        breaches=(Altered(AppendFlagged, "rule"),),
        sees=frozenset({AppendFlagged}),
        of_upkeep=True,
    ),
)


#: Rules over all gate transitions of a fix.
FIX_RULES: tuple[FixRule, ...] = (
    FixRule(
        "transitions-are-opened",
        "A further gate transition is opened by a person, once, and starts with the last failure.",
        "ADR-0014",
        transitions_are_opened,
        breaches=(
            Removed(TransitionReopened),
            Altered(FixStarted, "linked_transition"),
            Altered(RagSkippedOnRetry, "summary_sha256"),
        ),
        sees=frozenset(
            {FixStarted, AttemptStarted, RagSkippedOnRetry, AttemptFailed, TransitionReopened}
        ),
    ),
    GATES_AGAIN_ARE_OF_RECORD,
)


#: Both sorts.
ALL_RULES: tuple[Rule | FixRule, ...] = (*RULES, *FIX_RULES)

#: What each rule says, and where it comes from.
SAID = {rule.id: (rule.sentence, rule.source) for rule in ALL_RULES}


def link_violations(fix_id: str, links: Sequence[Link]) -> Iterator[Violation]:
    """Everything that breaks a rule between the gate transitions of one fix."""
    for rule in FIX_RULES:
        for link, (seq, detail) in rule.check(links):
            yield Violation(
                rule=rule.id,
                seq=seq,
                fix_id=fix_id,
                gate_transition_id=link.transition,
                detail=detail,
            )


def violations(trail: Trail, rules: Sequence[Rule] = RULES) -> Iterator[Violation]:
    """Everything in this trail that breaks a rule, rule by rule.

    Where its beginning may stand in a sealed segment, only the rules of upkeep can be judged here.
    """
    if trail.is_cut:
        rules = [rule for rule in rules if rule.of_upkeep]
    for rule in rules:
        for seq, detail in rule.check(trail):
            yield Violation(
                rule=rule.id,
                seq=seq,
                fix_id=trail.scope.fix_id,
                gate_transition_id=trail.scope.gate_transition_id,
                detail=detail,
            )
