"""What the record's keepers did, in words: the part of ``fallback_audit.showing.describe`` about
maintenance.

Nothing is neutralised here: ``describe.sentence`` does that for all of them.
"""

from fallback_audit import events


def maintenance_sentence(event: events.AuditEvent) -> str:
    """What happened, in one line; empty for an event of another kind."""
    match event:
        case events.AppendFlagged():
            return f"RULE BROKEN at event {event.at}, recorded all the same: {event.rule}"
        case events.PayloadRedacted():
            what = ", ".join(event.fields)
            return f"event {event.seq} REDACTED ({what}) by {event.by}: {event.reason}"
        case events.SegmentSealed():
            return f"{_segment(event)} sealed by {event.by}: {event.reason}"
        case events.SegmentRetired():
            return f"{_segment(event)} deleted by {event.by}, its retention over: {event.reason}"
        case events.EvidenceCollected():
            return (
                f"evidence older than {event.older_than} deleted by {event.by}: {event.removed} pieces,"
                f" {event.removed_bytes} bytes: {event.reason}"
            )
        case events.SigningKeyRotated():
            keys = f"from {_key(event.old_vkey)} to {_key(event.new_vkey)}"
            return f"signing key rotated {keys} by {event.by}: {event.reason}"
        case events.RecordBegunAgain():
            lost = f"{event.lost_size} events (checkpoint {event.lost_sha256[:12]})"
            return f"RECORD BEGUN AGAIN by {event.by}, {lost} are gone: {event.reason}"
        case _:
            return ""


def _segment(event: events.SegmentSealed | events.SegmentRetired) -> str:
    return f"events {event.first_seq} to {event.last_seq} ({event.sha256[:12]})"


def _key(vkey: str) -> str:
    """Name and key hash, without the key itself."""
    return "+".join(vkey.split("+")[:2])
