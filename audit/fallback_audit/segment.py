"""A sealed segment: the oldest events, moved as they stood to a file, and the statement that says so.

The statement carries all that the rest of the chain is verified from: the last leaf, and the Merkle tree
over everything up to there (ADR-0036).
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from pydantic import Field, ValidationError

from fallback_audit.checkpoints.statement import SEGMENT_DOMAIN, open_statement
from fallback_audit.errors import AuditIntegrityError
from fallback_audit.event_types import Digest
from fallback_audit.frozen import Frozen

if TYPE_CHECKING:
    from fallback_audit.checkpoints.note import Verifier


class SegmentStatement(Frozen):
    """``tip``: leaf of event ``last_seq``; ``frontier``, ``root``: of the tree over events 1 to there.

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


def open_segment(statement: bytes, verifiers: Sequence["Verifier"]) -> SegmentStatement:
    """The signed statement of a segment. Raises AuditIntegrityError: no trusted signature, malformed."""
    try:
        return SegmentStatement.model_validate(open_statement(SEGMENT_DOMAIN, statement, verifiers))
    except ValidationError as error:
        raise AuditIntegrityError(
            f"The statement of a sealed segment is malformed: {error.errors()[0]['msg']}.",
            next_step="Keep a copy of the store, and find out who wrote to it.",
            kind="malformed",
        ) from error
