"""Events of the audit trail itself: redaction, sealing, deletion, new keys, and flags.

Events that are not about one fix have the scope ``MAINTENANCE``.
"""

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from fallback_audit.event_types import Badge, Digest, Event, Excerpt, Role, Structural
from fallback_audit.events.people import Words
from fallback_audit.metrics import Metric, Move

FLAGGED = Metric(
    "counter",
    "fallback_tier_contract_breaches_total",
    "Events that broke a rule, recorded all the same.",
)

Seq = Annotated[int, Field(ge=1)]


class AppendFlagged(Event):
    """The event number ``at``, just before this one, broke a rule; the store was told to flag, not refuse.

    Stands in the scope of that event. Verification reports the broken rule all the same.
    """

    kind: Literal["AppendFlagged"] = "AppendFlagged"
    role = Role.NOTE
    BADGE = Badge(warns=True)
    at: Seq
    rule: Structural
    detail: Excerpt

    def in_words(self) -> str:
        return f"RULE BROKEN at event {self.at}, recorded all the same: {self.rule}"

    def excerpt(self) -> str | None:
        return self.detail

    def moves(self) -> Iterator[Move]:
        yield Move(FLAGGED)


class PayloadRedacted(Event):
    """A person had words taken out of event ``seq`` of this scope: a signed tombstone stands there now.

    ``fields``: which of its members. The header keeps the digest of what stood there before.
    """

    kind: Literal["PayloadRedacted"] = "PayloadRedacted"
    role = Role.NOTE
    seq: Seq
    payload_sha256: Digest
    tombstone_sha256: Digest
    fields: tuple[Structural, ...]
    by: Words
    reason: Words

    def in_words(self) -> str:
        what = ", ".join(self.fields)
        return f"event {self.seq} REDACTED ({what}) by {self.by}: {self.reason}"


class SegmentSealed(Event):
    """The oldest events were moved, as they stood, to a sealed file; ``sha256`` is the file's digest."""

    kind: Literal["SegmentSealed"] = "SegmentSealed"
    first_seq: Seq
    last_seq: Seq
    sha256: Digest
    by: Words
    reason: Words

    def in_words(self) -> str:
        return f"{_segment(self)} sealed by {self.by}: {self.reason}"


class SegmentRetired(Event):
    """A sealed file was deleted, its retention over: its absence is no damage."""

    kind: Literal["SegmentRetired"] = "SegmentRetired"
    first_seq: Seq
    last_seq: Seq
    sha256: Digest
    by: Words
    reason: Words

    def in_words(self) -> str:
        return f"{_segment(self)} deleted by {self.by}, its retention over: {self.reason}"


class EvidenceCollected(Event):
    """Evidence past its retention was deleted. ``list_sha256``: the digests of what went, as evidence."""

    kind: Literal["EvidenceCollected"] = "EvidenceCollected"
    removed: Annotated[int, Field(ge=1)]
    removed_bytes: Annotated[int, Field(ge=0)]
    list_sha256: Digest
    older_than: Structural
    by: Words
    reason: Words

    def in_words(self) -> str:
        return (
            f"evidence older than {self.older_than} deleted by {self.by}: {self.removed} pieces,"
            f" {self.removed_bytes} bytes: {self.reason}"
        )


class RecordBegunAgain(Event):
    """A person said that a record of ``lost_size`` events was removed on purpose: a checkpoint of it was
    signed, and is gone. Since schema version 10.

    ``lost_sha256``: that checkpoint's digest, by which a copy of it is known again. Events that stand
    before this one were there when it was said.
    """

    kind: Literal["RecordBegunAgain"] = "RecordBegunAgain"
    since = 10
    lost_size: Seq
    lost_sha256: Digest
    by: Words
    reason: Words

    def in_words(self) -> str:
        lost = f"{self.lost_size} events (checkpoint {self.lost_sha256[:12]})"
        return f"RECORD BEGUN AGAIN by {self.by}, {lost} are gone: {self.reason}"


class SigningKeyRotated(Event):
    """Checkpoints are signed by another key from now on, for a while by both. Keys are C2SP vkeys."""

    kind: Literal["SigningKeyRotated"] = "SigningKeyRotated"
    old_vkey: Structural
    new_vkey: Structural
    by: Words
    reason: Words

    def in_words(self) -> str:
        keys = f"from {_key(self.old_vkey)} to {_key(self.new_vkey)}"
        return f"signing key rotated {keys} by {self.by}: {self.reason}"


def _key(vkey: str) -> str:
    """Return the key's name and hash, without the key itself."""
    return "+".join(vkey.split("+")[:2])


def _segment(event: SegmentSealed | SegmentRetired) -> str:
    """Return the segment's events, and the beginning of its digest."""
    return f"events {event.first_seq} to {event.last_seq} ({event.sha256[:12]})"
