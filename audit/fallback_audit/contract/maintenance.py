"""Rules of the trace contract on maintenance: redaction, sealing, flags, keys.

They also hold for trails whose beginning was sealed.
"""

from collections.abc import Iterator

from fallback_audit.contract.rule import Added, Altered, Removed, rule
from fallback_audit.contract.trail import Finding, Trail
from fallback_audit.events import (
    AppendFlagged,
    EvidenceCollected,
    FixStarted,
    PayloadRedacted,
    RecordBegunAgain,
    SegmentRetired,
    SegmentSealed,
    SigningKeyRotated,
)

#: Kinds that are only in the scope ``MAINTENANCE``.
MAINTAINING = (
    SegmentSealed,
    SegmentRetired,
    EvidenceCollected,
    SigningKeyRotated,
    RecordBegunAgain,
)


@rule(
    "A redaction has a name and a reason, and is of an earlier event of this trail, once.",
    "ADR-0036",
    breaches=(
        Altered(PayloadRedacted, "by"),
        Altered(PayloadRedacted, "reason"),
        Altered(PayloadRedacted, "fields"),
        Altered(PayloadRedacted, "seq"),
    ),
    sees={PayloadRedacted},
    of_maintenance=True,
)
def redactions_are_named(trail: Trail) -> Iterator[Finding]:
    earlier: set[int] = set()
    redacted: set[int] = set()
    for seq, event in trail.everything if trail.notes else ():
        if isinstance(event, PayloadRedacted):
            if not (event.by.strip() and event.reason.strip()):
                yield seq, "PayloadRedacted without a name and a reason"
            if not event.fields:
                yield seq, "PayloadRedacted, and no member is named"
            if event.seq not in earlier and event.seq > trail.base:
                yield seq, f"event {event.seq} does not stand before it in this trail"
            if event.seq in redacted:
                yield seq, f"event {event.seq} was redacted twice"
            redacted.add(event.seq)
        earlier.add(seq)


@rule(
    "A flag follows directly after the event that it is about.",
    "ADR-0035",
    breaches=(Altered(AppendFlagged, "at"),),
    sees={AppendFlagged},
    of_maintenance=True,
)
def flags_stand_behind(trail: Trail) -> Iterator[Finding]:
    previous_seq: int | None = None
    for seq, event in trail.everything if trail.notes else ():
        if not isinstance(event, AppendFlagged):
            previous_seq = seq
        elif event.at != previous_seq:
            yield seq, f"the flag is about event {event.at}, and stands behind {previous_seq}"


@rule(
    "The maintenance of the record has a scope of its own, with nothing else in it.",
    "ADR-0036",
    breaches=(
        Added(SegmentSealed),
        Added(FixStarted),
    ),
    sees=None,
    of_maintenance=True,
)
def upkeep_stands_apart(trail: Trail) -> Iterator[Finding]:
    for seq, event in trail.any_of(*MAINTAINING) if trail.of_a_fix else trail.entries:
        if isinstance(event, MAINTAINING) is trail.of_a_fix:
            yield (
                seq,
                f"{event.kind} in the scope of {'a fix' if trail.of_a_fix else 'maintenance'}",
            )


@rule(
    "Sealing, retiring, collecting, rotating a key and beginning again have a name and a reason.",
    "ADR-0036",
    breaches=(
        Altered(SegmentSealed, "by"),
        Altered(SegmentRetired, "reason"),
        Altered(EvidenceCollected, "by"),
        Altered(SigningKeyRotated, "reason"),
        Altered(RecordBegunAgain, "by"),
    ),
    sees=MAINTAINING,
    of_maintenance=True,
)
def upkeep_is_signed(trail: Trail) -> Iterator[Finding]:
    for seq, event in trail.any_of(*MAINTAINING):
        if not (event.by.strip() and event.reason.strip()):  # type: ignore[attr-defined]
            yield seq, f"{event.kind} without a name and a reason"


@rule(
    "Each sealed segment continues where the one before it ended, and holds earlier events.",
    "ADR-0036",
    breaches=(
        Added(SegmentSealed),
        Altered(SegmentSealed, "first_seq"),
        Altered(SegmentSealed, "last_seq"),
    ),
    sees={SegmentSealed},
    of_maintenance=True,
)
def segments_follow(trail: Trail) -> Iterator[Finding]:
    """The first on record may follow one whose own event was sealed."""
    end: int | None = None
    for seq, sealed in trail.of(SegmentSealed):
        if end is not None and sealed.first_seq != end + 1:
            yield seq, f"events {sealed.first_seq} on are sealed after those up to {end}"
        if not sealed.first_seq <= sealed.last_seq < seq:
            yield seq, f"events {sealed.first_seq} to {sealed.last_seq} are no events before it"
        end = sealed.last_seq


@rule(
    "Only a sealed segment is retired, as it was sealed, and once.",
    "ADR-0036",
    breaches=(
        Removed(SegmentSealed),
        Added(SegmentRetired),
        Altered(SegmentRetired, "sha256"),
    ),
    sees={SegmentRetired},
    of_maintenance=True,
)
def retired_were_sealed(trail: Trail) -> Iterator[Finding]:
    sealed: set[tuple[int, int, str]] = set()
    retired: set[int] = set()
    first_sealed = next((entry.event.first_seq for entry in trail.of(SegmentSealed)), None)
    cut = bool(trail.base and trail.entries and trail.entries[0].seq > trail.base)
    for seq, event in trail.any_of(SegmentSealed, SegmentRetired):
        segment = (event.first_seq, event.last_seq, event.sha256)  # type: ignore[attr-defined]
        if isinstance(event, SegmentSealed):
            sealed.add(segment)
            continue
        # The SegmentSealed of an earlier one was itself sealed, in a later segment.
        is_earlier = first_sealed is not None and segment[1] < first_sealed
        if segment not in sealed and not (is_earlier and cut):
            yield seq, f"events {segment[0]} to {segment[1]} are retired, and were not sealed"
        if segment[0] in retired:
            yield seq, f"events {segment[0]} to {segment[1]} are retired twice"
        retired.add(segment[0])


@rule(
    "A new signing key replaces the one in use.",
    "ADR-0033",
    breaches=(
        Removed(SigningKeyRotated),
        Altered(SigningKeyRotated, "old_vkey"),
    ),
    sees={SigningKeyRotated},
    of_maintenance=True,
)
def keys_rotate_in_turn(trail: Trail) -> Iterator[Finding]:
    current: str | None = None
    for seq, rotated in trail.of(SigningKeyRotated):
        if rotated.old_vkey == rotated.new_vkey:
            yield seq, "the key was replaced by itself"
        if current is not None and rotated.old_vkey != current:
            yield seq, "the key that was replaced is not the one in use"
        current = rotated.new_vkey
