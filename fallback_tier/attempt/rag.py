"""The memory of solved examples, as an attempt uses it: query, account, replay.

The only module that touches the retriever, so that what a retry must not do (ADR-0011) is in one module.
"""

import hashlib
from collections.abc import Generator, Sequence

from fallback_audit.events import ExampleReplayed, RetrievalQueried
from fallback_audit.ports import EvidenceStore
from fallback_audit.vocabulary import ProofLevel, RetrievalVerdict, Tier
from fallback_tier.advisory import Advisory, canonical_name
from fallback_tier.attempt.task import AttemptTask, Proposal, Recorder, TierEvent
from fallback_tier.errors import EditError, RepositoryError
from fallback_tier.limits import MAX_EXAMPLES
from fallback_tier.patch.edits import apply_edits
from fallback_tier.patch.policy import check_policy
from fallback_tier.ports import SolvedExampleRetriever
from fallback_tier.repo import RepoContext
from fallback_tier.retrieval import FewShot, RagMiss, Retrieval, SolvedExample


def retrieve(
    retriever: SolvedExampleRetriever | None,
    task: AttemptTask,
    evidence: EvidenceStore,
    record: Recorder,
    *,
    beyond: frozenset[str] = frozenset(),
) -> Generator[TierEvent, None, tuple[FewShot, ...]]:
    """Query the memory for at most MAX_EXAMPLES, none of them in ``beyond`` (ids seen before)."""
    retrieval: Retrieval = RagMiss(evidence="no solved examples are configured")
    if retriever is not None:
        retrieval = retriever.query(task.advisory, task.repo, beyond=beyond)
    examples = () if isinstance(retrieval, RagMiss) else retrieval.examples[:MAX_EXAMPLES]
    yield record(
        RetrievalQueried(
            attempt=task.number,
            verdict=RetrievalVerdict(retrieval.verdict),
            example_ids=tuple(shot.example.example_id for shot in examples),
            reason=retrieval.evidence,
            account_sha256=_account(retrieval, examples, evidence),
        )
    )
    return examples


def _account(
    retrieval: Retrieval, examples: Sequence[FewShot], evidence: EvidenceStore
) -> str | None:
    """Store scores, floors and dropped examples as evidence, so that the event stays small. The returned
    examples are recorded from the examples themselves, to be traceable by content."""
    if retrieval.account is None:
        return None
    account = retrieval.account.model_copy(
        update={
            "returned": tuple(shot.example.example_id for shot in examples),
            "content_sha256": {shot.example.example_id: shot.content_sha256 for shot in examples},
        }
    )
    return evidence.put(account.model_dump_json().encode("utf-8", "replace"))


def replay(
    examples: Sequence[FewShot], task: AttemptTask, record: Recorder
) -> Generator[TierEvent, None, Proposal | None]:
    """Replay an example of the same package and code; similarity never suffices. Its patch must pass every
    gate too."""
    for example in (shot.example for shot in examples):
        if replayable(example, task.advisory, task.repo):
            yield record(ExampleReplayed(attempt=task.number, example_id=example.example_id))
            changes = apply_edits(task.repo, example.edits)
            return Proposal(Tier.RAG, changes, ProofLevel.SOURCE, example_ids=(example.example_id,))
    return None


def replayable(example: SolvedExample, advisory: Advisory, repo: RepoContext) -> bool:
    """Return whether an example is of the same package and code, and its edits apply.

    The advisory names its package, all files it was made on are tracked with the same content, and every
    edited file is one of them that ``policy`` lets edits touch.
    """
    return (
        _names_package(example, advisory)
        and {edit.path for edit in example.edits} <= example.file_sha256.keys()
        and not check_policy(edit.path for edit in example.edits)
        and all(_same_content(repo, *item) for item in example.file_sha256.items())
        and _applies(example, repo)
    )


def _names_package(example: SolvedExample, advisory: Advisory) -> bool:
    name = canonical_name(example.ecosystem, example.package)
    return name in advisory.packages(example.ecosystem)


def _same_content(repo: RepoContext, path: str, digest: str) -> bool:
    try:
        content = repo.read_text(path).encode("utf-8")
    except RepositoryError:
        return False
    return hashlib.sha256(content).hexdigest() == digest


def _applies(example: SolvedExample, repo: RepoContext) -> bool:
    try:
        apply_edits(repo, example.edits)
    except EditError:
        return False
    return True
