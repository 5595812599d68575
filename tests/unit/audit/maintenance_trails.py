"""Valid trails with notes on a fix's events, and of the record's own maintenance."""

from fallback_audit.events import (
    AppendFlagged,
    AuditEvent,
    EvidenceCollected,
    PayloadRedacted,
    RecordBegunAgain,
    SegmentRetired,
    SegmentSealed,
    SigningKeyRotated,
)
from fallback_audit.vocabulary import Tier
from tests.unit.audit import human_trails as h
from tests.unit.audit import model_trails as m
from tests.unit.audit import trails as t
from tests.unit.audit.trails import Events, digest

BY, WHY = "A. Keeper", "a customer's name stood there"
VKEYS = [f"shop+{number:08x}+AAAA" for number in range(4)]


def redacted(seq: int, *fields: str) -> AuditEvent:
    return PayloadRedacted(
        seq=seq,
        payload_sha256=digest(f"payload {seq}"),
        tombstone_sha256=digest(f"tombstone {seq}"),
        fields=fields or ("detail",),
        by=BY,
        reason=WHY,
    )


def flag(at: int, rule: str) -> AuditEvent:
    return AppendFlagged(at=at, rule=rule, detail="it was not to be")


def sealed(first: int, last: int) -> AuditEvent:
    return SegmentSealed(
        first_seq=first, last_seq=last, sha256=digest(f"file {first}"), by=BY, reason="a year old"
    )


def retired(first: int, last: int) -> AuditEvent:
    return SegmentRetired(
        first_seq=first, last_seq=last, sha256=digest(f"file {first}"), by=BY, reason="ten years"
    )


def collected() -> AuditEvent:
    return EvidenceCollected(
        removed=3,
        removed_bytes=4_096,
        list_sha256=digest("list"),
        older_than="2025-01-01T00:00:00.000000Z",
        by=BY,
        reason="a year old",
    )


def rotated(old: int) -> AuditEvent:
    return SigningKeyRotated(
        old_vkey=VKEYS[old], new_vkey=VKEYS[old + 1], by=BY, reason="the keeper left"
    )


def begun_again() -> AuditEvent:
    return RecordBegunAgain(
        lost_size=14, lost_sha256=digest("checkpoint 14"), by=BY, reason="it was scratch"
    )


def redacted_while_open() -> Events:
    """Between a failed attempt and the next, and while the process that had the fix was dead."""
    first = [h.planned(), *t.first_by_recipe(), *t.failing_gates(1, tier=Tier.RECIPE)]
    again = [h.resumed("AttemptFailed"), *t.retry(2), *t.passing_gates(2), t.verified(2)]
    return [*first, redacted(6), redacted(7, "summary_excerpt"), *again]


def redacted_afterwards() -> Events:
    """The end is redacted, then what a person said of it, then who redacted that."""
    events = h.cap_then_approved()
    end = len(events)
    return [
        *events,
        redacted(end - 2, "question"),
        redacted(end - 1, "by"),
        redacted(end + 1, "by"),
    ]


def redacted_at_a_budget() -> Events:
    """A note between a stop and what raises it changes neither."""
    stopped = m.stopped_at_budget()
    return [*stopped, redacted(len(stopped), "question"), m.raised(), *m.resumed_later()]


NOTED = (redacted_while_open, redacted_afterwards, redacted_at_a_budget)


def flagged() -> Events:
    """Not valid: a verified fix is verified again, which the store was told to let through."""
    events = [*t.recipe_verified(), t.verified(1, Tier.RECIPE)]
    return [*events, flag(len(events), "one-terminal-event"), redacted(1, "repository")]


def kept() -> Events:
    """In the scope of maintenance. As if other fixes' events stood between: see ``PLACES``."""
    return [
        begun_again(),
        rotated(0),
        collected(),
        sealed(1, 8),
        sealed(9, 12),
        retired(1, 8),
        rotated(1),
        redacted(20, "by"),
        rotated(2),
        sealed(13, 24),
    ]


#: Numbers of the events of ``kept``.
PLACES = (1, 4, 7, 11, 20, 21, 22, 23, 26, 30)

#: One of each kind of event.
KINDS = (redacted_while_open, flagged, kept)
