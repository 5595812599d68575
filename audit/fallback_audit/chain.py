"""The hash chain: how an event becomes a link, and how a stored link is read and checked.

A link is two byte strings. The *header* names the event, its payload's digest and the leaf before
it; the *leaf* is the header's digest. The *payload* is the event itself, stored apart, so that one
can be redacted without breaking the chain (DESIGN §8). Verification hashes the stored bytes:
nothing is parsed and written again on the way.
"""

import json
from typing import NamedTuple

from pydantic import ValidationError
from pydantic_core import PydanticSerializationError

from fallback_audit.canonical import canonical_bytes, leaf_digest, payload_digest
from fallback_audit.errors import AuditIntegrityError, AuditStoreError
from fallback_audit.events import SCHEMA_VERSION, AuditEvent, Digest, event_adapter
from fallback_audit.frozen import Frozen
from fallback_audit.ports import Scope, StoredEvent


class Header(Frozen):
    """What a leaf is the digest of. Field order does not matter: RFC 8785 sorts keys."""

    seq: int
    fix_id: str
    gate_transition_id: str
    kind: str
    schema_version: int
    recorded_at: str
    payload_sha256: Digest
    previous_leaf: Digest


class StoredRow(NamedTuple):
    """One link as bytes, exactly as the store has them; None where a table has no such row."""

    seq: int
    header: bytes | None
    leaf: str | None
    payload: bytes | None


class Link(NamedTuple):
    """A new link: the bytes to store, and the event as readers will see it."""

    header: bytes
    payload: bytes
    event: StoredEvent


def make_link(
    scope: Scope, event: AuditEvent, *, seq: int, previous_leaf: str, recorded_at: str
) -> Link:
    """Chain ``event`` behind ``previous_leaf``. Raises AuditStoreError: no canonical form."""
    try:
        payload = canonical_bytes(event.model_dump(mode="json"))
    except PydanticSerializationError as error:
        raise AuditStoreError(
            f"A {event.kind} can't be recorded: {error}.",
            next_step="Replace what is not valid Unicode text before recording.",
        ) from error
    header = Header(
        seq=seq,
        fix_id=scope.fix_id,
        gate_transition_id=scope.gate_transition_id,
        kind=event.kind,
        schema_version=SCHEMA_VERSION,
        recorded_at=recorded_at,
        payload_sha256=payload_digest(payload),
        previous_leaf=previous_leaf,
    )
    header_bytes = canonical_bytes(header.model_dump())
    return Link(header_bytes, payload, _stored(header, leaf_digest(header_bytes), event))


def read_row(row: StoredRow) -> StoredEvent:
    """The event of one row, its own bytes checked (not its predecessor's: that is ``broken_link``).

    Raises AuditIntegrityError: a reader never acts on altered bytes.
    """
    reason = broken_bytes(row)
    if reason is None and row.header is not None and row.payload is not None:
        try:
            header = Header.model_validate_json(row.header)
            event = event_adapter.validate_json(row.payload)
        except ValidationError:
            reason = unreadable(row.header)
        else:
            if (header.seq, header.kind) == (row.seq, event.kind):
                return _stored(header, row.leaf or "", event)
            reason = "the header stands at another place, or over another kind of event"
    raise AuditIntegrityError(
        f"Event {row.seq} of the audit trail can't be trusted: {reason}.",
        next_step="Run `fallback-tier audit verify`, keep a copy of the store, find out who wrote.",
    )


def broken_link(row: StoredRow, *, seq: int, previous_leaf: str) -> str | None:
    """Why this row is not link number ``seq`` behind ``previous_leaf``; None where it is.

    The fast path parses nothing. In canonical JSON a quote inside a string is always escaped, so
    the member text that is looked for can stand only where the members themselves stand.
    """
    header, payload = row.header, row.payload
    if header is not None and payload is not None and leaf_digest(header) == row.leaf:
        members = (
            f'"payload_sha256":"{payload_digest(payload)}","previous_leaf":"{previous_leaf}",'
            '"recorded_at":"'
        ).encode()
        if row.seq == seq and members in header and header.endswith(b',"seq":%d}' % seq):
            return None
    return broken_bytes(row) or _broken_place(row, seq)


def broken_bytes(row: StoredRow) -> str | None:
    """What is wrong with the row taken alone."""
    if row.header is None:
        return "a payload without a header (extra, or its header was deleted)"
    if leaf_digest(row.header) != row.leaf:
        return "the header's bytes do not match its leaf (altered)"
    if row.payload is None:
        return "its payload is missing"
    if b'"payload_sha256":"%b"' % payload_digest(row.payload).encode() not in row.header:
        return "the payload's bytes do not match its header (altered)"
    return None


def _broken_place(row: StoredRow, seq: int) -> str:
    """What is wrong with an intact row's place in the chain."""
    if row.header is not None and not row.header.endswith(b',"seq":%d}' % row.seq):
        return "its header says another sequence number (moved or duplicated)"
    if row.seq != seq:
        return f"the events from {seq} to {row.seq - 1} are missing before it"
    return "it does not follow the event before it (reordered, replaced, or re-chained)"


def unreadable(header: bytes) -> str:
    """Why intact bytes could not be read as an event."""
    try:
        version = json.loads(header)["schema_version"]
    except (ValueError, KeyError, TypeError):
        return "its header is not one of ours"
    if isinstance(version, int) and version > SCHEMA_VERSION:
        return f"it has schema version {version}, this program reads up to {SCHEMA_VERSION}"
    return "its payload is not an event of its schema version"


def _stored(header: Header, leaf: str, event: AuditEvent) -> StoredEvent:
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
    )
