"""Rules of the trace contract on the chain of tiers: recipe, solved examples, model."""

from collections.abc import Iterator, Sequence

from fallback_audit.contract.rule import Added, Altered, Removed, rule
from fallback_audit.contract.trail import Asked, Entry, Finding, Run, Trail
from fallback_audit.events import (
    AnswerReused,
    ExampleReplayed,
    ModelAnswered,
    ModelCalled,
    PatchProposed,
    RecipeEvaluated,
    RetrievalQueried,
    RetrieveDecided,
    StrategyDegraded,
)
from fallback_audit.vocabulary import (
    CallType,
    RetrievalVerdict,
    Retrieve,
    Tier,
)

# The floor can't import fallback_tier.limits; a test holds this equal to the tier's own.
MAX_EXAMPLES = 4


@rule(
    "After a selected recipe or a replayed example no later tier is asked.",
    "ADR-0005",
    breaches=(
        Added(RetrievalQueried),
        Added(ModelCalled),
        Added(AnswerReused),
    ),
    sees={RetrievalQueried, ModelCalled, AnswerReused},
    local=True,
)
def chain_ends_where_it_answers(trail: Trail) -> Iterator[Finding]:
    for run in trail.runs:
        for seq, event in run.any_of(RecipeEvaluated, ExampleReplayed):
            if type(event) is RecipeEvaluated and not event.selected:
                continue
            later = run.next_of(seq, RetrievalQueried, ModelCalled, AnswerReused)
            if later:
                yield later.seq, f"{later.event.kind} although {event.kind} had ended the chain"


@rule(
    "A patch comes from the tier that it names.",
    "ADR-0005",
    breaches=(
        Removed(RecipeEvaluated),
        Removed(ExampleReplayed),
        Removed(ModelAnswered),
        Altered(PatchProposed, "tier"),
    ),
    sees={PatchProposed},
    local=True,
)
def patches_have_a_source(trail: Trail) -> Iterator[Finding]:
    """Where gates alone are run again, it came from there once: ``rules_again`` compares the two."""
    for run in trail.runs if trail.judges_again is None else ():
        for seq, patch in run.of(PatchProposed):
            if not _was_made_by(patch.tier, run):
                yield seq, f"nothing on record made this {patch.tier} patch"


def _was_made_by(tier: Tier, run: Run) -> bool:
    if tier is Tier.RECIPE:
        return any(recipe.selected for _, recipe in run.of(RecipeEvaluated))
    if tier is Tier.RAG:
        return bool(run.of(ExampleReplayed))
    answers = run.any_of(ModelAnswered, AnswerReused)
    return any(e.event.call_type is CallType.AUTHOR for e in answers)  # type: ignore[attr-defined]


@rule(
    "A prompt has only examples that this attempt's retrieval returned, at most four.",
    "ADR-0005",
    breaches=(
        Removed(RetrievalQueried),
        Altered(ModelCalled, "example_ids"),
        Altered(AnswerReused, "example_ids"),
    ),
    sees={ModelCalled, AnswerReused},
    local=True,
)
def examples_come_from_retrieval(trail: Trail) -> Iterator[Finding]:
    for run in trail.runs:
        returned = {i for query in run.of(RetrievalQueried) for i in query.event.example_ids}
        for seq, call in run.asked:
            if not returned.issuperset(call.example_ids):
                yield seq, "the prompt has examples that retrieval did not return"
            if call.call_type is CallType.AUTHOR and len(call.example_ids) > MAX_EXAMPLES:
                yield seq, f"the prompt has more than {MAX_EXAMPLES} examples"


@rule(
    "A miss returned nothing, and only what this attempt's retrieval returned is replayed.",
    "ADR-0019",
    breaches=(
        Altered(RetrievalQueried, "verdict"),
        Altered(ExampleReplayed, "example_id"),
    ),
    sees={RetrievalQueried, ExampleReplayed},
    local=True,
)
def retrieval_means_what_it_says(trail: Trail) -> Iterator[Finding]:
    for run in trail.runs:
        queries = run.of(RetrievalQueried)
        for seq, query in queries:
            if query.verdict is RetrievalVerdict.MISS and query.example_ids:
                yield seq, "a miss that returned examples"
        returned = {i for query in queries for i in query.event.example_ids}
        for seq, replay in run.of(ExampleReplayed):
            if replay.example_id not in returned:
                yield seq, f"{replay.example_id} was replayed, and retrieval did not return it"


@rule(
    "Examples that retrieval returned are replayed, or are in a prompt, unless self-RAG decides no.",
    "ADR-0005",
    breaches=(Altered(ModelCalled, "example_ids"),),
    sees={RetrievalQueried, RetrieveDecided, StrategyDegraded, ModelCalled, AnswerReused},
    local=True,
)
def retrieval_acts(trail: Trail) -> Iterator[Finding]:
    for run in trail.runs:
        decisions = run.of(RetrieveDecided)
        if decisions:
            yield from _decided_retrieval_acts(run, decisions)
            continue
        for seq, query in run.of(RetrievalQueried):
            if query.example_ids and run.author_asked and not run.author_asked[0].event.example_ids:
                yield seq, "retrieval returned examples, and the prompt has none"


def _decided_retrieval_acts(
    run: Run, decisions: Sequence[Entry[RetrieveDecided]]
) -> Iterator[Finding]:
    """Self-RAG asks for each segment anew: what was wanted is in a prompt of its candidates."""
    wanted = any(e.event.decision is Retrieve.YES for e in decisions if e.event.step == 1)
    used: set[str] | None = None  # by the candidates after it; None: there are none
    for seq, event in reversed(
        run.any_of(RetrievalQueried, StrategyDegraded, ModelCalled, AnswerReused)
    ):
        if isinstance(event, StrategyDegraded):
            used = None  # a search that runs out of means asks for fewer candidates, and says so
        elif isinstance(event, Asked):
            if event.candidate is not None:
                used = set() if used is None else used
                used.update(event.example_ids)
        elif isinstance(event, RetrievalQueried):
            needed = wanted or seq > decisions[0].seq  # the chain's own query serves the first step
            if (
                needed
                and used is not None
                and event.example_ids
                and used.isdisjoint(event.example_ids)
            ):
                yield seq, "examples were fetched for a segment, and no prompt has them"
