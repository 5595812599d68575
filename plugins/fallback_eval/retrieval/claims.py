"""Why each default is what it is, where figures don't decide.

The table docs/evaluation/retrieval/defaults.md is made from this, from the code and from results. A
default's alternatives are the variants that differ from it in nothing else (``variants``).
"""

from dataclasses import dataclass
from typing import Literal

Basis = Literal["quality", "safety", "speed", "contract"]


@dataclass(frozen=True)
class DefaultClaim:
    """One default. ``also``: alternatives that differ in something else as well. ``bound``: the
    variant without floors, and the score, that a floor is read from. ``despite``: why it stays
    although an alternative is better, or a floor refuses what is right.
    """

    setting: str
    basis: Basis
    reason: str
    also: tuple[str, ...] = ()
    bound: tuple[str, Literal["routing", "chunk"]] | None = None
    despite: str = ""


def _weight(component: str, reason: str) -> DefaultClaim:
    return DefaultClaim(f"retrieval.weights.{component}", "quality", reason)


def _floors() -> tuple[DefaultClaim, ...]:
    unbounded = {"hybrid": "no-floors", "lexical": "lexical-no-floors"}
    scores: tuple[Literal["routing", "chunk"], ...] = ("routing", "chunk")
    return tuple(
        claim
        for score in scores
        for mode, variant in unbounded.items()
        for claim in (
            DefaultClaim(
                f"retrieval.floors.{score}.{mode}",
                "safety",
                "A safety bound just below the lowest relevant score, no tuned optimum.",
                bound=(variant, score),
            ),
            DefaultClaim(
                f"retrieval.floors.{score}.{mode}.score",
                "contract",
                "Of the scores tried it tells answerable questions best; lexical has no cosine.",
            ),
        )
    )


CLAIMS: tuple[DefaultClaim, ...] = (
    DefaultClaim(
        "retrieval.mode",
        "quality",
        "Hybrid wherever vectors can be had, words alone elsewhere; it says which.",
    ),
    DefaultClaim(
        "retrieval.k",
        "contract",
        "What a prompt shows (MAX_EXAMPLES); the report's curve has what other values would give.",
    ),
    DefaultClaim(
        "retrieval.pool",
        "speed",
        "Large enough that a larger one finds nothing more.",
    ),
    DefaultClaim(
        "retrieval.rerank",
        "speed",
        "Counts only where a reranker is given; its time grows with it.",
    ),
    DefaultClaim(
        "retrieval.fusion",
        "quality",
        "Keeps how much better a candidate is, which ranks throw away.",
    ),
    DefaultClaim(
        "retrieval.reciprocal_rank_k", "contract", "As published (Cormack et al., SIGIR 2009)."
    ),
    DefaultClaim(
        "retrieval.aggregation",
        "quality",
        "The best chunk speaks for its record; the others can't be told from it.",
    ),
    DefaultClaim(
        "retrieval.ecosystem",
        "quality",
        "A flaw and its remedy cross ecosystems; language has a weight instead.",
    ),
    _weight("bm25", "Equal weights, as long as no other is better."),
    _weight("cosine", "Equal weights, as long as no other is better."),
    _weight("family", "Equal weights, as long as no other is better."),
    _weight("language", "Half: an edit in another language can still show the remedy."),
    DefaultClaim(
        "retrieval.weights.rerank",
        "contract",
        "Counts only where a reranker is given; as the rest.",
    ),
    DefaultClaim(
        "retrieval.reranker",
        "quality",
        "A reranker costs a model's run a candidate, and has to earn it.",
        also=("learned-alone",),
    ),
    DefaultClaim(
        "retrieval.max_rewrites",
        "quality",
        "Off: asking again has not helped, and it can only turn misses into answers.",
    ),
    *_floors(),
    DefaultClaim(
        "retrieval.coefficients",
        "contract",
        "Learned on the dev split alone; dev figures use coefficients of other repositories' folds.",
    ),
    DefaultClaim(
        "retrieval.weakness_lexicon",
        "contract",
        "Written from CWE, not from the queries; no-family says what it brings.",
    ),
    DefaultClaim(
        "question.distilled",
        "quality",
        "Boilerplate finds other advisories with the same boilerplate.",
    ),
    DefaultClaim(
        "lexical.max_postings", "speed", "Bounds the time of common words (docs/benchmarks.md)."
    ),
    DefaultClaim("lexical.max_terms", "speed", "Each word is counted first, at up to 0.2 ms."),
    DefaultClaim(
        "chunking.splitter",
        "quality",
        "Cuts no unit that fits: a prompt never shows half a rule, which ranking can't measure.",
    ),
    DefaultClaim(
        "chunking.max_tokens",
        "quality",
        "Whole functions and sections stay together; the model reads a long chunk's beginning.",
    ),
    DefaultClaim(
        "chunking.overlap_tokens",
        "quality",
        "Only a unit above the cap is told twice.",
    ),
    DefaultClaim(
        "chunking.code",
        "quality",
        "The fix's own words are found as well as its advisory's.",
    ),
)
