"""What every part of a search works with: the models, the attempt, and the steps of a path."""

from collections.abc import Sequence
from dataclasses import dataclass

from fallback_audit.ports import EvidenceStore
from fallback_tier.answers.segment import Segment
from fallback_tier.budget.audited import AuditMeter
from fallback_tier.llm.calling import ModelAttempt
from fallback_tier.llm.selfrag.beam import Path
from fallback_tier.ports import LanguageModel, SolvedExampleRetriever
from fallback_tier.prompt.self_rag import SelfRagPrompts, Situation
from fallback_tier.retrieval import FewShot, example_text


@dataclass(frozen=True)
class SearchModels:
    """What is wired once. ``meter`` is only asked for room: charging is the caller's business."""

    author: LanguageModel
    critic: LanguageModel
    prompts: SelfRagPrompts
    retriever: SolvedExampleRetriever | None
    evidence: EvidenceStore
    meter: AuditMeter | None = None


@dataclass(frozen=True)
class SearchContext:
    """One attempt, and what is known of it."""

    parts: SearchModels
    attempt: ModelAttempt
    examples: tuple[FewShot, ...]
    situation: Situation

    @property
    def snippet_ids(self) -> frozenset[str]:
        """The snippets that a plan may cite."""
        return frozenset(snippet.id for snippet in self.attempt.prompt.snippets)


@dataclass(frozen=True)
class WrittenSegment:
    """A segment on a path: author call ``call`` wrote it from ``shot`` (None: from no example).

    ``shots``: the examples of its step, which the next may continue with.
    """

    segment: Segment
    call: int
    shot: FewShot | None = None
    shots: tuple[FewShot, ...] = ()


def segments_text(moves: Sequence[WrittenSegment]) -> str:
    """The segments as the next prompt shows them, one a line."""
    return "\n".join(move.segment.model_dump_json() for move in moves)


def shown(shot: FewShot | None) -> str:
    """An example as a prompt shows it; empty for none."""
    return "" if shot is None else example_text(shot.example, shot.text, shot.edits)


def example_id(shot: FewShot | None) -> str | None:
    """Its id; None for none."""
    return None if shot is None else shot.example.example_id


def shots_of(path: Path[WrittenSegment]) -> tuple[FewShot, ...]:
    """The examples that a path's segments were written from, each once, in order."""
    found = {move.shot.example.example_id: move.shot for move in path.segments if move.shot}
    return tuple(found.values())
