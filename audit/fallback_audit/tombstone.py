"""What stands in place of a redacted payload: a signed statement, with what the contract still needs.

The header keeps the digest of what stood there before, so the chain is unbroken; the tombstone says by
whom, why and which members were taken out, and carries the ``residue``: the event with those members
replaced. An event ``PayloadRedacted`` in the chain names it (ADR-0036).
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from fallback_audit.checkpoints.statement import TOMBSTONE_DOMAIN, open_statement
from fallback_audit.errors import AuditIntegrityError
from fallback_audit.event_types import Digest
from fallback_audit.frozen import Frozen

if TYPE_CHECKING:
    from fallback_audit.checkpoints.note import Verifier


class Tombstone(Frozen):
    """``fields``: the members of the event that were replaced by ``[redacted]`` in the residue."""

    seq: int
    leaf: Digest
    payload_sha256: Digest
    fields: tuple[str, ...]
    residue: dict[str, Any]
    by: str
    reason: str
    at: str


def open_tombstone(
    payload: bytes, verifiers: Sequence["Verifier"], *, seq: int, leaf: str | None, header: bytes
) -> Tombstone:
    """The tombstone of event ``seq``. Raises AuditIntegrityError: not signed, or of another event."""
    try:
        stone = Tombstone.model_validate(open_statement(TOMBSTONE_DOMAIN, payload, verifiers))
    except ValidationError as error:
        raise _unfit(seq, "its tombstone is malformed") from error
    claimed = b'"payload_sha256":"%b"' % stone.payload_sha256.encode()
    if (stone.seq, stone.leaf) != (seq, leaf) or claimed not in header:
        raise _unfit(seq, "its tombstone is that of another event")
    return stone


def _unfit(seq: int, problem: str) -> AuditIntegrityError:
    return AuditIntegrityError(
        f"Event {seq} of the audit trail can't be trusted: {problem}.",
        next_step="Keep a copy of the store, and find out who wrote to it.",
    )
