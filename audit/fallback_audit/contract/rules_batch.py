"""Predicates of the trace contract over the parts of a run over several advisories (ADR-0051).

As in ``rules_attempt``, each takes a trail and yields (seq, what is wrong there).
"""

from collections.abc import Iterator

from fallback_audit.contract.trail import Finding, Trail
from fallback_audit.events import AttemptFailed, FixRefused, FixStarted, GateJudged
from fallback_audit.vocabulary import PROVING_GATES, GateStatus, RefusalReason


def fails_together_is_of_a_batch(trail: Trail) -> Iterator[Finding]:
    """Fixes are taken apart only where there are several, and after gates refused all of them in one patch,
    or could say nothing of it."""
    for seq, end in trail.of(FixRefused):
        if end.reason is not RefusalReason.FAILS_TOGETHER:
            continue
        starts = trail.of(FixStarted)
        if not any(it.event.batch_sha256 and len(it.event.advisory_ids) > 1 for it in starts):
            yield seq, "it is no part of a batch with several advisories"
        before = [entry.event for entry in trail.acts if entry.seq < seq]
        last = before[-1] if before else None
        if not isinstance(last, AttemptFailed) and not _could_not_be_proved(trail, last):
            yield seq, "gates had not refused them in one patch"


def _could_not_be_proved(trail: Trail, last: object) -> bool:
    """Gates had their say of all of it, and none failed or saw what a fix must show."""
    verdicts = [event for _, event in trail.of(GateJudged)]
    passed = {event.gate for event in verdicts if event.status is GateStatus.PASSED}
    failed = any(event.status is GateStatus.FAILED for event in verdicts)
    return isinstance(last, GateJudged) and not failed and PROVING_GATES.isdisjoint(passed)


def in_part_is_said_of_a_batch(trail: Trail) -> Iterator[Finding]:
    """What a fix leaves affected on purpose is something that it is about, in a run over several."""
    for seq, start in trail.of(FixStarted):
        if start.in_part and start.batch_sha256 is None:
            yield seq, "an advisory is fixed in part, and this is no part of a batch"
        if alien := set(start.in_part) - set(start.advisory_ids):
            yield seq, f"fixed in part, and not among its advisories: {min(alien)}"
