"""Rules of the trace contract over the parts of a run over several advisories (ADR-0051)."""

from collections.abc import Iterator

from fallback_audit.contract.rule import Altered, Removed, rule
from fallback_audit.contract.trail import TERMINALS, Finding, Trail
from fallback_audit.events import AttemptFailed, FixRefused, FixStarted, GateJudged
from fallback_audit.vocabulary import PROVING_GATES, GateStatus, RefusalReason


@rule(
    "Only several fixes of a batch fail together, in one patch that gates refused or could not prove.",
    "ADR-0051",
    breaches=(
        Removed(AttemptFailed),
        Altered(GateJudged, "status"),
        Altered(FixRefused, "reason"),
        Altered(FixStarted, "batch_sha256"),
        Altered(FixStarted, "advisory_ids"),
    ),
    sees={FixStarted, AttemptFailed, GateJudged, *TERMINALS},
)
def fails_together_is_of_a_batch(trail: Trail) -> Iterator[Finding]:
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
    """Gates had their say of all of it, none failed, and one was undecided or none saw what a fix must
    show."""
    verdicts = [event for _, event in trail.of(GateJudged)]
    passed = {event.gate for event in verdicts if event.status is GateStatus.PASSED}
    statuses = {event.status for event in verdicts}
    unproved = GateStatus.UNDECIDED in statuses or PROVING_GATES.isdisjoint(passed)
    return isinstance(last, GateJudged) and GateStatus.FAILED not in statuses and unproved


@rule(
    "Only a part of a batch fixes an advisory in part, and names it among those that it is about.",
    "ADR-0051",
    breaches=(Altered(FixStarted, "in_part"), Altered(FixStarted, "batch_sha256")),
    sees={FixStarted},
)
def in_part_is_said_of_a_batch(trail: Trail) -> Iterator[Finding]:
    for seq, start in trail.of(FixStarted):
        if start.in_part and start.batch_sha256 is None:
            yield seq, "an advisory is fixed in part, and this is no part of a batch"
        if alien := set(start.in_part) - set(start.advisory_ids):
            yield seq, f"fixed in part, and not among its advisories: {min(alien)}"
