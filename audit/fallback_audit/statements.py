"""Signed statements of maintenance: tombstones, and statements of sealed segments.

A statement is a signed note of two lines: the *domain*, which names the kind of statement, and one
canonical JSON object (RFC 8785). No statement of one domain is valid in another, and none is a checkpoint:
a checkpoint has a number in its second line.

A *segment* is the oldest events, moved unchanged to a file. Its statement has all that is needed to verify
the rest of the chain: the last leaf, and the Merkle tree up to there. A *tombstone* replaces a redacted
payload. The header keeps the digest of that payload, so the chain is unbroken; the tombstone says by whom,
why and which members were removed, and has the ``residue``: the event with those members replaced. An event
``PayloadRedacted`` in the chain names it (ADR-0036).
"""

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Any, NamedTuple

from pydantic import Field, ValidationError

from fallback_audit.canonical import GENESIS, canonical_bytes
from fallback_audit.checkpoints.merkle import Frontier
from fallback_audit.checkpoints.note import Signer, Verifier, bad_note, open_note, sign_note
from fallback_audit.errors import AuditIntegrityError, AuditStoreError
from fallback_audit.event_types import Digest
from fallback_audit.frozen import Frozen

TOMBSTONE_DOMAIN = "fallback-tier/audit/tombstone/v1"
SEGMENT_DOMAIN = "fallback-tier/audit/segment/v1"


def sign_statement(domain: str, content: Mapping[str, Any], signers: Sequence[Signer]) -> bytes:
    """Return a signed statement to store. Raises AuditStoreError if ``content`` has no canonical form."""
    return sign_note(f"{domain}\n{canonical_bytes(content).decode()}\n", signers)


def open_statement(domain: str, data: bytes, verifiers: Collection[Verifier]) -> dict[str, Any]:
    """Return the content of a statement. Raises AuditIntegrityError: altered, or of another domain."""
    text = open_note(data, verifiers).text
    first_line, _, body = text.removesuffix("\n").partition("\n")
    if first_line != domain:
        raise bad_note(f"it is no statement of the kind {domain}", kind="another_domain")
    try:
        content = json.loads(body)
        canonical = isinstance(content, dict) and canonical_bytes(content).decode() == body
    except (ValueError, RecursionError, AuditStoreError):
        canonical = False
    if not canonical:
        raise bad_note("its content is not one canonical JSON object", kind="not_canonical")
    assert isinstance(content, dict)  # noqa: S101 - for the type checker: canonical says so
    return content


class SegmentStatement(Frozen):
    """Content of a segment's statement. ``tip``: leaf of event ``last_seq``; ``frontier``, ``root``: of the
    tree over events 1 to there.

    ``file``: a name without a folder; ``sha256``: the digest of its bytes.
    """

    number: int
    first_seq: int
    last_seq: int
    previous_leaf: Digest
    tip: Digest
    frontier: tuple[Digest, ...]
    root: Digest
    file: Annotated[str, Field(pattern=r"^[0-9A-Za-z][0-9A-Za-z._-]*$")]
    sha256: Digest
    sealed_at: str
    by: str
    reason: str


def open_segment(statement: bytes, verifiers: Sequence[Verifier]) -> SegmentStatement:
    """Open a segment's statement. Raises AuditIntegrityError: no trusted signature, malformed."""
    try:
        return SegmentStatement.model_validate(open_statement(SEGMENT_DOMAIN, statement, verifiers))
    except ValidationError as error:
        raise AuditIntegrityError(
            f"The statement of a sealed segment is malformed: {error.errors()[0]['msg']}.",
            next_step="Keep a copy of the store, and find out who wrote to it.",
            kind="malformed",
        ) from error


class Start(NamedTuple):
    """Where the stored events begin: after the last sealed segment, or at the first event."""

    frontier: Frontier
    tip: str

    @property
    def seq(self) -> int:
        """Return the number of the last sealed event; 0 if none was sealed."""
        return self.frontier.size

    @classmethod
    def behind(cls, last: SegmentStatement | None) -> "Start":
        """Return the start after this segment. Raises ValueError if its frontier is malformed."""
        if last is None:
            return cls(Frontier(), GENESIS)
        return cls(Frontier(last.last_seq, map(bytes.fromhex, last.frontier)), last.tip)

    @classmethod
    def of(cls, statements: Sequence[bytes], verifiers: Sequence[Verifier]) -> "Start":
        """Return the start after the last of these signed statements. Raises AuditIntegrityError."""
        return cls.behind(open_segment(statements[-1], verifiers) if statements else None)


class Tombstone(Frozen):
    """Content of a tombstone. ``fields``: the event's members that the residue has as ``[redacted]``."""

    seq: int
    leaf: Digest
    payload_sha256: Digest
    fields: tuple[str, ...]
    residue: dict[str, Any]
    by: str
    reason: str
    at: str


def open_tombstone(
    payload: bytes, verifiers: Sequence[Verifier], *, seq: int, leaf: str | None, header: bytes
) -> Tombstone:
    """Open the tombstone of event ``seq``. Raises AuditIntegrityError: not signed, or another event's."""
    try:
        stone = Tombstone.model_validate(open_statement(TOMBSTONE_DOMAIN, payload, verifiers))
    except ValidationError as error:
        raise _unfit(seq, "its tombstone is malformed", kind="malformed") from error
    claimed = b'"payload_sha256":"%b"' % stone.payload_sha256.encode()
    if (stone.seq, stone.leaf) != (seq, leaf) or claimed not in header:
        raise _unfit(seq, "its tombstone is that of another event", kind="another_event")
    return stone


def _unfit(seq: int, problem: str, *, kind: str) -> AuditIntegrityError:
    return AuditIntegrityError(
        f"Event {seq} of the audit trail can't be trusted: {problem}.",
        next_step="Keep a copy of the store, and find out who wrote to it.",
        kind=kind,
    )
