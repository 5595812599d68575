"""The trace contract on the steps of self-RAG. A part of ``contract.table``."""

from fallback_audit.contract import rules_selfrag as selfrag
from fallback_audit.contract.rule import Added, Altered, Removed, Rule
from fallback_audit.events import (
    AnswerReused,
    GroundingJudged,
    GroundingNotEvaluated,
    ModelCalled,
    PatchProposed,
    PlanRejected,
    RetrievalQueried,
    RetrieveDecided,
    SegmentScored,
)

SELFRAG_RULES: tuple[Rule, ...] = (
    # --- Self-RAG ---
    Rule(
        "retrieve-forced-on-retry",
        "On a retry each of self-RAG's decisions on retrieval is a forced no.",
        "ADR-0011",
        selfrag.retrieve_forced_on_retry,
        breaches=(
            Altered(RetrieveDecided, "decision"),
            Altered(RetrieveDecided, "forced"),
        ),
        sees=frozenset({RetrieveDecided}),
        local=True,
    ),
    Rule(
        "retrieve-acts",
        "A candidate follows one decision on retrieval, and has no example where that is no.",
        "DESIGN §6",
        selfrag.retrieve_acts,
        breaches=(
            Removed(RetrieveDecided),
            Added(RetrieveDecided),
            Altered(RetrieveDecided, "decision"),
        ),
        sees=frozenset({RetrieveDecided, ModelCalled, AnswerReused}),
        local=True,
    ),
    Rule(
        "retrieve-yes-fetches",
        "Examples are fetched for a segment exactly where a path decided yes.",
        "DESIGN §6",
        selfrag.retrieve_yes_fetches,
        breaches=(
            Removed(RetrievalQueried),
            Altered(RetrieveDecided, "decision"),
        ),
        sees=frozenset({RetrievalQueried, ModelCalled, AnswerReused}),
        local=True,
    ),
    Rule(
        "candidates-come-first",
        "Self-RAG's candidates make the first draft of an attempt, and nothing after it.",
        "DESIGN §6",
        selfrag.candidates_come_first,
        breaches=(Altered(ModelCalled, "candidate"),),
        sees=frozenset({ModelCalled, AnswerReused}),
        local=True,
    ),
    Rule(
        "segments-are-scored",
        "Each answered candidate is scored once before the search goes on; a kept one has a score.",
        "DESIGN §6",
        selfrag.segments_are_scored,
        breaches=(
            Removed(SegmentScored),
            Added(SegmentScored),
            Altered(SegmentScored, "score"),
        ),
        sees=frozenset(
            {
                SegmentScored,
                PatchProposed,
                PlanRejected,
                GroundingJudged,
                GroundingNotEvaluated,
                ModelCalled,
                AnswerReused,
            }
        ),
        local=True,
    ),
)
