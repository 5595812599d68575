"""Accounts of retrievals: the evidence named by ``RetrievalQueried`` that explains the memory's answer.

The complete model is in ``fallback_tier.retrieval``; only the part that is printed or compared is read
here.
"""

from collections.abc import Mapping

from pydantic import BaseModel, ConfigDict, ValidationError

from fallback_audit.errors import EvidenceError
from fallback_audit.events import Digest, RetrievalQueried
from fallback_audit.ports import EvidenceStore


class _Read(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)


#: None: not a number (JSON can't express infinity).
Score = float | None


class FloorRead(_Read):
    """A safety bound, and the score that it is on."""

    name: str
    score: str
    value: Score


class DroppedRead(_Read):
    """An example that was looked at and not returned."""

    example_id: str
    reason: str
    scores: Mapping[str, Score] = {}


class AccountRead(_Read):
    """The part of an account that readers of a trail use."""

    mode: str
    manifest_sha256: Digest | None = None
    floors: tuple[FloorRead, ...] = ()
    rewrites: int = 0
    returned: tuple[str, ...] = ()
    content_sha256: Mapping[str, Digest] = {}
    scores: Mapping[str, Mapping[str, Score]] = {}
    dropped: tuple[DroppedRead, ...] = ()
    notes: tuple[str, ...] = ()


def read_account(event: RetrievalQueried, evidence: EvidenceStore) -> AccountRead | None:
    """Return the account of a retrieval, or None if the event names none.

    It names none before schema version 3, or if the retriever gives none. Raises EvidenceError: missing,
    altered, not an account, of another answer.
    """
    if event.account_sha256 is None:
        return None
    content = evidence.get(event.account_sha256)
    try:
        account = AccountRead.model_validate_json(content)
    except ValidationError as error:
        raise _unfit(event.account_sha256, "is no account of a retrieval") from error
    if account.returned != event.example_ids:
        raise _unfit(event.account_sha256, "is of another answer: it returned other examples")
    return account


def _unfit(digest: Digest, problem: str) -> EvidenceError:
    return EvidenceError(
        f"Evidence {digest} {problem}.",
        next_step="Run `fallback-tier audit verify` and find out who wrote it.",
        kind="not_the_account",
    )
