"""The hash chain: how an event becomes a link, and how a stored link is read and checked.

A link is two byte strings. The *header* names the event, its payload's digest and the leaf before
it; the *leaf* is the header's digest. The *payload* is the event itself, stored separately, so that it
can be redacted without breaking the chain (ADR-0007). Verification hashes the stored bytes, without
parsing and serialising them again.
"""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from pydantic import ValidationError
from pydantic_core import PydanticSerializationError

from fallback_audit.canonical import (
    canonical_bytes,
    canonical_text,
    leaf_digest,
    payload_digest,
)
from fallback_audit.errors import AuditIntegrityError, AuditStoreError, TrailFault
from fallback_audit.events import SCHEMA_VERSION, AuditEvent, Digest, event_adapter
from fallback_audit.frozen import Frozen
from fallback_audit.ports import Scope, StoredEvent

if TYPE_CHECKING:
    from fallback_audit.checkpoints.note import Verifier
    from fallback_audit.statements import Tombstone

#: How a signed tombstone begins (its domain, ``statements``); a payload is a JSON object.
TOMBSTONE_START = b"fallback-tier/audit/tombstone/v1\n"


class Header(Frozen):
    """An event's header, whose digest is the leaf. Field order does not matter: RFC 8785 sorts keys."""

    seq: int
    fix_id: str
    gate_transition_id: str
    kind: str
    schema_version: int
    recorded_at: str
    payload_sha256: Digest
    previous_leaf: Digest


class StoredRow(NamedTuple):
    """The bytes of one link, exactly as stored; None if a table has no such row."""

    seq: int
    header: bytes | None
    leaf: str | None
    payload: bytes | None


class Link(NamedTuple):
    """A new link: the bytes to store, and the event as it will be read."""

    header: bytes
    payload: bytes
    event: StoredEvent


def make_link(
    scope: Scope, event: AuditEvent, *, seq: int, previous_leaf: str, recorded_at: str
) -> Link:
    """Chain ``event`` to ``previous_leaf``. Raises AuditStoreError if it has no canonical form."""
    try:
        payload = canonical_bytes(event.model_dump(mode="json"))
    except PydanticSerializationError as error:
        raise AuditStoreError(
            f"A {event.kind} can't be recorded: {error}.",
            next_step="Replace what is not valid Unicode text before recording.",
        ) from error
    digest = payload_digest(payload)
    header_bytes = canonical_header(scope, event.kind, seq, recorded_at, digest, previous_leaf)
    # Its values are checked, and building the validator of all events takes 13 ms in a new process.
    stored = StoredEvent.model_construct(
        seq=seq,
        scope=scope,
        kind=event.kind,
        schema_version=SCHEMA_VERSION,
        recorded_at=recorded_at,
        payload_sha256=digest,
        previous_leaf=previous_leaf,
        leaf=leaf_digest(header_bytes),
        payload=event,
    )
    return Link(header_bytes, payload, stored)


def canonical_header(
    scope: Scope, kind: str, seq: int, recorded_at: str, payload_sha256: str, previous_leaf: str
) -> bytes:
    """Return the RFC 8785 form of a Header.

    It is formatted here for speed: appends delay a fix, and only the scope's names may need escapes. Raises
    AuditStoreError if a name has a lone surrogate.
    """
    fix_id, transition = canonical_text(scope.fix_id), canonical_text(scope.gate_transition_id)
    return (
        f'{{"fix_id":{fix_id},"gate_transition_id":{transition},"kind":"{kind}",'
        f'"payload_sha256":"{payload_sha256}","previous_leaf":"{previous_leaf}",'
        f'"recorded_at":"{recorded_at}","schema_version":{SCHEMA_VERSION},"seq":{seq}}}'
    ).encode()


def read_row(row: StoredRow, verifiers: Sequence["Verifier"] = ()) -> StoredEvent:
    """Return the event of one row, after checking its own bytes (``broken_link`` checks its predecessor's).

    With ``verifiers`` (trusted keys) a redacted payload is read too, as far as its tombstone left it.
    Raises AuditIntegrityError if the bytes were altered.
    """
    header, payload = row.header, row.payload
    fault = broken_bytes(row, verifiers)
    if fault is None and header is not None and payload is not None:
        stone = redaction(row, verifiers)
        try:
            read = Header.model_validate_json(header)
            event = (
                event_adapter.validate_json(payload)
                if stone is None
                else event_adapter.validate_json(json.dumps(stone.residue))
            )
        except ValidationError:
            fault = unreadable(header)
        else:
            if (read.seq, read.kind) == (row.seq, event.kind):
                return _stored(read, row.leaf or "", event, redacted=stone is not None)
            fault = TrailFault(
                "event_misplaced",
                "the header stands at another place, or over another kind of event",
            )
    reason = fault.reason if fault is not None else None
    raise AuditIntegrityError(
        f"Event {row.seq} of the audit trail can't be trusted: {reason}.",
        next_step="Run `fallback-tier audit verify`, keep a copy of the store, find out who wrote to it.",
        kind="event_altered",
    )


def redaction(row: StoredRow, verifiers: Sequence["Verifier"]) -> "Tombstone | None":
    """Return the tombstone that replaced the row's payload, or None if the payload itself is there.

    Raises AuditIntegrityError if no trusted key signed it, or if it is another event's.
    """
    if row.header is None or row.payload is None or not row.payload.startswith(TOMBSTONE_START):
        return None
    from fallback_audit.statements import open_tombstone

    return open_tombstone(row.payload, verifiers, seq=row.seq, leaf=row.leaf, header=row.header)


def broken_link(
    row: StoredRow, *, seq: int, previous_leaf: str, verifiers: Sequence["Verifier"] = ()
) -> TrailFault | None:
    """Return why this row is not link number ``seq`` after ``previous_leaf``, or None if it is.

    Nothing is parsed. In canonical JSON a quote inside a string is always escaped, so the text searched for
    can't occur inside another member's value.
    """
    return broken_bytes(row, verifiers) or _broken_place(row, seq, previous_leaf)


def broken_bytes(row: StoredRow, verifiers: Sequence["Verifier"] = ()) -> TrailFault | None:
    """Return what is wrong with the row itself, or None."""
    if row.header is None:
        return TrailFault(
            "no_header", "a payload without a header (extra, or its header was deleted)"
        )
    if leaf_digest(row.header) != row.leaf:
        return TrailFault("header_altered", "the header's bytes do not match its leaf (altered)")
    if row.payload is None:
        return TrailFault("no_payload", "its payload is missing")
    if b'"payload_sha256":"%b"' % payload_digest(row.payload).encode() in row.header:
        return None
    if not verifiers or not row.payload.startswith(TOMBSTONE_START):
        return TrailFault(
            "payload_altered", "the payload's bytes do not match its header (altered)"
        )
    try:
        redaction(row, verifiers)
    except AuditIntegrityError as error:
        return TrailFault(
            error.kind,
            f"the payload does not match its header, and its tombstone can't be trusted: {error.problem}",
        )
    return None


def _broken_place(row: StoredRow, seq: int, previous_leaf: str) -> TrailFault | None:
    """Return what is wrong with an intact row's place in the chain, or None."""
    if (moved := misnumbered(row)) is not None:
        return moved
    if row.seq > seq:
        reason = f"the events from {seq} to {row.seq - 1} are missing before it"
        return TrailFault("events_missing", reason)
    if row.seq < seq:
        return TrailFault("out_of_place", f"it stands where event {seq} belongs")
    if b'"previous_leaf":"%b","recorded_at":"' % previous_leaf.encode() not in (row.header or b""):
        return TrailFault(
            "rechained",
            "it does not follow the event before it (reordered, replaced, or re-chained)",
        )
    return None


def misnumbered(row: StoredRow) -> TrailFault | None:
    """Return the fault if the header has another number than its row, else None."""
    if (row.header or b"").endswith(b',"seq":%d}' % row.seq):
        return None
    return TrailFault(
        "misnumbered", "its header says another sequence number (moved or duplicated)"
    )


def unreadable(header: bytes) -> TrailFault:
    """Return why intact bytes could not be read as an event."""
    try:
        version = json.loads(header)["schema_version"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return TrailFault("foreign_header", "its header is not one of ours")
    if isinstance(version, int) and version > SCHEMA_VERSION:
        return TrailFault(
            "newer_schema",
            f"it has schema version {version}, this program reads up to {SCHEMA_VERSION}",
        )
    return TrailFault("not_an_event", "its payload is not an event of its schema version")


def _stored(header: Header, leaf: str, event: AuditEvent, *, redacted: bool = False) -> StoredEvent:
    return StoredEvent(
        seq=header.seq,
        scope=Scope(fix_id=header.fix_id, gate_transition_id=header.gate_transition_id),
        kind=header.kind,
        schema_version=header.schema_version,
        recorded_at=header.recorded_at,
        payload_sha256=header.payload_sha256,
        previous_leaf=header.previous_leaf,
        leaf=leaf,
        payload=event,
        redacted=redacted,
    )
