"""Models as evidence: stored as JSON, read back as what they were."""

import json
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from fallback_audit.errors import EvidenceError
from fallback_audit.events import Digest
from fallback_audit.ports import EvidenceStore

ModelT = TypeVar("ModelT", bound=BaseModel)


def put_document(evidence: EvidenceStore, model: BaseModel) -> Digest:
    """Store a model. Raises EvidenceError.

    In ASCII: a model's words may hold a lone surrogate, which JSON can escape and UTF-8 can't express.
    """
    return evidence.put(json.dumps(model.model_dump(mode="json")).encode("ascii"))


def get_document(evidence: EvidenceStore, kind: type[ModelT], digest: Digest) -> ModelT:
    """Read it back. Raises EvidenceError: gone, altered, or of another version's form."""
    content = evidence.get(digest)
    try:
        return kind.model_validate(json.loads(content))
    except (ValidationError, ValueError) as error:
        raise EvidenceError(
            f"Evidence {digest} is no {kind.__name__} as this version writes it.",
            next_step="Resume with the version that started the fix, or start a new one.",
            kind="not_the_document",
        ) from error
