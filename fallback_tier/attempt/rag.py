"""The memory of solved examples, as an attempt uses it: asked, accounted for, replayed.

The only module that touches the retriever: what a retry must not do (ADR-0011) is done in one place.
"""

from collections.abc import Generator, Sequence

from fallback_audit.events import ExampleReplayed, RetrievalQueried
from fallback_audit.ports import EvidenceStore
from fallback_audit.vocabulary import ProofLevel, RetrievalVerdict, Tier
from fallback_tier.attempt.task import AttemptTask, Proposal, Recorder, TierEvent
from fallback_tier.limits import MAX_EXAMPLES
from fallback_tier.patch.edits import apply_edits
from fallback_tier.patch.identity import replayable
from fallback_tier.ports import SolvedExampleRetriever
from fallback_tier.retrieval import FewShot, RagMiss, Retrieval


def retrieve(
    retriever: SolvedExampleRetriever | None,
    task: AttemptTask,
    evidence: EvidenceStore,
    record: Recorder,
    *,
    beyond: frozenset[str] = frozenset(),
) -> Generator[TierEvent, None, tuple[FewShot, ...]]:
    """Ask the memory for at most MAX_EXAMPLES, none of them in ``beyond`` (ids seen before)."""
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
    """Scores, floors and what was dropped: whole as evidence, since an event must stay small.

    What was returned is written from the examples themselves, so that it can be traced by content.
    """
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
    """Replay needs identity (package and code), never similarity. Its patch meets every gate too."""
    for example in (shot.example for shot in examples):
        if replayable(example, task.advisory, task.repo):
            yield record(ExampleReplayed(attempt=task.number, example_id=example.example_id))
            changes = apply_edits(task.repo, example.edits)
            return Proposal(Tier.RAG, changes, ProofLevel.SOURCE, example_ids=(example.example_id,))
    return None
