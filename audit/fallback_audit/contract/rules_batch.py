"""Predicates of the trace contract over the parts of a run over several advisories (ADR-0051).

As in ``rules_attempt``, each takes a trail and yields (seq, what is wrong there).
"""

from collections.abc import Iterator

from fallback_audit.contract.trail import Finding, Trail
from fallback_audit.events import AttemptFailed, FixRefused, FixStarted
from fallback_audit.vocabulary import RefusalReason


def fails_together_is_of_a_batch(trail: Trail) -> Iterator[Finding]:
    """Fixes are taken apart only where there are several, and after an attempt at all of them failed."""
    for seq, end in trail.of(FixRefused):
        if end.reason is not RefusalReason.FAILS_TOGETHER:
            continue
        starts = trail.of(FixStarted)
        if not any(it.event.batch_sha256 and len(it.event.advisory_ids) > 1 for it in starts):
            yield seq, "it is no part of a batch with several advisories"
        before = [entry for entry in trail.acts if entry.seq < seq]
        if not before or not isinstance(before[-1].event, AttemptFailed):
            yield seq, "no attempt had failed"


def in_part_is_said_of_a_batch(trail: Trail) -> Iterator[Finding]:
    """What a fix leaves affected on purpose is something that it is about, in a run over several."""
    for seq, start in trail.of(FixStarted):
        if start.in_part and start.batch_sha256 is None:
            yield seq, "an advisory is fixed in part, and this is no part of a batch"
        if alien := set(start.in_part) - set(start.advisory_ids):
            yield seq, f"fixed in part, and not among its advisories: {min(alien)}"
