"""Rules on attempts: retry as fresh context, the chain of tiers, what an attempt says of itself."""

from collections.abc import Iterator, Sequence

from fallback_audit.contract.rule import Added, Altered, Removed, rule
from fallback_audit.contract.trail import TERMINALS, Asked, Entry, Finding, Run, Trail
from fallback_audit.events import (
    KINDS,
    AnswerReused,
    AttemptFailed,
    AttemptRefused,
    AttemptStarted,
    ConsumerLeft,
    ExampleReplayed,
    FixStarted,
    GateJudged,
    ModelAnswered,
    ModelCalled,
    PatchProposed,
    RagSkippedOnRetry,
    RecipeEvaluated,
    RetrievalQueried,
    RetrieveDecided,
    StrategyDegraded,
)
from fallback_audit.vocabulary import (
    CallType,
    FailureKind,
    PromptShape,
    RetrievalVerdict,
    Retrieve,
    Tier,
)

# --- A retry is a fresh context (ADR-0011). --------------------------------------------------------

# This package can't import fallback_tier.limits; a test keeps this equal to the tier's own.
MAX_RETRIES = 3


@rule(
    "A retry that asks a model has exactly one RagSkippedOnRetry, before the first request.",
    "ADR-0011",
    breaches=(
        Removed(RagSkippedOnRetry),
        Added(RagSkippedOnRetry),
    ),
    sees={RagSkippedOnRetry, ModelCalled, AnswerReused},
    local=True,
)
def rag_skip_recorded(trail: Trail) -> Iterator[Finding]:
    """There is none on a first attempt."""
    for run in trail.runs:
        skips = run.of(RagSkippedOnRetry)
        calls = run.asked
        if not run.is_retry:
            yield from ((skip.seq, "a first attempt has nothing to skip") for skip in skips)
        elif calls and not (skips and skips[0].seq < calls[0].seq):
            yield calls[0].seq, "a retry asked the model before RagSkippedOnRetry was on record"
        if run.is_retry and len(skips) > 1:
            yield skips[1].seq, "RagSkippedOnRetry stands twice in one attempt"


@rule(
    "A retry has no retrieval, no replay and no recipe.",
    "ADR-0011",
    breaches=(
        Added(RetrievalQueried),
        Added(ExampleReplayed),
        Added(RecipeEvaluated),
    ),
    sees={RetrievalQueried, ExampleReplayed, RecipeEvaluated},
    local=True,
)
def retrieval_untouched_on_retry(trail: Trail) -> Iterator[Finding]:
    for run in trail.runs:
        if run.is_retry:
            for seq, event in run.any_of(RetrievalQueried, ExampleReplayed, RecipeEvaluated):
                if type(event) is not RecipeEvaluated or event.selected:
                    yield seq, f"{event.kind} on a retry"


@rule(
    "RagSkippedOnRetry counts the prior attempts that the attempt started with.",
    "ADR-0011",
    breaches=(Altered(RagSkippedOnRetry, "attempt_count"),),
    sees={RagSkippedOnRetry},
    local=True,
)
def skip_counts_priors(trail: Trail) -> Iterator[Finding]:
    for run in trail.runs:
        expected = run.start.event.prior_attempt_count
        for seq, skip in run.of(RagSkippedOnRetry):
            if skip.attempt_count != expected:
                yield seq, f"attempt_count {skip.attempt_count}, but {expected} prior attempts"


@rule(
    "The summary of the last failed attempt replaces the examples.",
    "ADR-0011",
    breaches=(
        Altered(RagSkippedOnRetry, "summary_sha256"),
        Altered(RagSkippedOnRetry, "last_failure_kind"),
    ),
    sees={RagSkippedOnRetry},
)
def retry_carries_last_failure(trail: Trail) -> Iterator[Finding]:
    last: AttemptFailed | None = None
    for seq, event in trail.any_of(AttemptFailed, RagSkippedOnRetry):
        if type(event) is AttemptFailed:
            last = event
        elif type(event) is RagSkippedOnRetry and last is not None:
            carried = (event.summary_sha256, event.last_failure_kind)
            if carried != (last.summary_sha256, last.failure_kind):
                yield seq, f"the summary is not that of failed attempt {last.attempt}"


@rule(
    "Each attempt has more prior attempts than the last; before schema version 5 a linked transition has "
    "one.",
    "ADR-0014",
    breaches=(
        Altered(AttemptStarted, "prior_attempt_count"),
        Altered(FixStarted, "linked_transition"),
    ),
    sees={AttemptStarted, FixStarted},
)
def history_grows(trail: Trail) -> Iterator[Finding]:
    """No caller regains retrieval by emptying the list of prior attempts. The start of a transition that a
    person opened is compared with its opener (``transitions-are-opened``), unless its FixStarted names no
    gates: such a link had no event."""
    linked = any(e.event.linked_transition and not e.event.gates for e in trail.of(FixStarted))
    if linked and trail.runs and not trail.runs[0].is_retry:
        yield trail.runs[0].start.seq, "a linked transition starts without its prior attempt"
    for run in trail.runs:
        if run.successor:
            before = run.start.event.prior_attempt_count
            seq, start = run.successor.start
            grows = 0 if run.keeps_its_number else 1
            if start.prior_attempt_count < before + grows:
                yield seq, f"{start.prior_attempt_count} prior attempts after one with {before}"


@rule(
    "Attempt numbers increase; only an interrupted attempt is resumed under its own number.",
    "ADR-0028",
    breaches=(Altered(AttemptStarted, "attempt"),),
    sees={AttemptStarted},
    local=True,
)
def attempts_in_order(trail: Trail) -> Iterator[Finding]:
    """One that goes on with a recipe's next candidate keeps its number, too."""
    for run in trail.runs:
        successor, may_repeat = run.successor, run.resumed and run.keeps_its_number
        if successor and successor.attempt <= run.attempt and not may_repeat:
            yield (
                successor.start.seq,
                f"attempt {successor.attempt} starts after attempt {run.attempt}",
            )


@rule(
    "A gate transition has one first attempt and at most three retries.",
    "ADR-0014",
    breaches=(Altered(AttemptStarted, "prior_attempt_count"),),
    sees={AttemptStarted},
)
def retry_cap_holds(trail: Trail) -> Iterator[Finding]:
    """An attempt that is resumed counts once."""
    numbers: set[int] = set()
    for run in trail.runs:
        numbers.add(run.attempt)
        if run.start.event.prior_attempt_count > MAX_RETRIES or len(numbers) > MAX_RETRIES + 1:
            yield run.start.seq, f"more than {MAX_RETRIES} retries in one gate transition"


@rule(
    "No normalised edits are proposed twice in a gate transition, save to declare a capability.",
    "ADR-0011",
    breaches=(Altered(PatchProposed, "edit_digest"),),
    sees={PatchProposed},
)
def edits_are_new(trail: Trail) -> Iterator[Finding]:
    """What failed for a capability that its plan had not declared may come again once, with the
    declaration."""
    seen: dict[str, int] = {}
    undeclared = {
        failure.attempt
        for _, failure in trail.of(AttemptFailed)
        if failure.failure_kind is FailureKind.UNDECLARED_CAPABILITY
    }
    for seq, patch in trail.of(PatchProposed):
        if seen.get(patch.edit_digest) in undeclared:
            seen[patch.edit_digest] = patch.attempt
        elif patch.edit_digest in seen:
            yield seq, f"the edits of attempt {seen[patch.edit_digest]} were proposed again"
        seen.setdefault(patch.edit_digest, patch.attempt)


# --- The chain: recipe, solved example, model. -----------------------------------------------------

# This package can't import fallback_tier.limits; a test keeps this equal to the tier's own.
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
    """Where gates alone are run again, it came from there once: a rule of ``people`` compares the two."""
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
    return any(answer.event.call_type is CallType.AUTHOR for answer in answers)  # type: ignore[attr-defined]


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
    """Yield queries whose examples no prompt has. Self-RAG decides on retrieval for each segment."""
    wanted = any(e.event.decision is Retrieve.YES for e in decisions if e.event.step == 1)
    used: set[str] | None = None  # examples in later candidates' prompts; None: no candidates
    for seq, event in reversed(
        run.any_of(RetrievalQueried, StrategyDegraded, ModelCalled, AnswerReused)
    ):
        if isinstance(event, StrategyDegraded):
            used = None  # a degraded search makes fewer candidates, on record
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


# --- One attempt: its prompt, its events, its outcome. ---------------------------------------------

#: Kinds that name their attempt, and are recorded inside it.
_NUMBERED = frozenset(
    kind for kind in KINDS if "attempt" in kind.model_fields and kind not in TERMINALS
)


@rule(
    "The prompt shape on record is that of the attempt.",
    "ADR-0011",
    breaches=(
        Altered(AttemptStarted, "prompt_shape"),
        Altered(ModelCalled, "prompt_shape"),
        Altered(AnswerReused, "prompt_shape"),
        Altered(PatchProposed, "prompt_shape"),
        Altered(AttemptRefused, "prompt_shape"),
    ),
    sees={FixStarted, AttemptStarted, PatchProposed, AttemptRefused, ModelCalled, AnswerReused},
    local=True,
)
def prompt_shapes_agree(trail: Trail) -> Iterator[Finding]:
    """Initial on a first attempt, retry on a retry, none where no model was asked or is to be."""
    judges_again = trail.judges_again is not None
    for run in trail.runs:
        shape = PromptShape.asked(retry=run.is_retry)
        shape = PromptShape.NONE if judges_again else shape
        refused_shape = shape if run.asked else PromptShape.NONE
        for seq, event in run.any_of(
            AttemptStarted, ModelCalled, AnswerReused, PatchProposed, AttemptRefused
        ):
            if type(event) is AttemptRefused:
                expected = refused_shape
            elif type(event) is PatchProposed:
                if judges_again:  # it has the shape of its making
                    continue
                expected = shape if event.tier is Tier.LLM else PromptShape.NONE
            else:
                expected = shape
            if event.prompt_shape is not expected:  # type: ignore[attr-defined]
                yield seq, f"{event.kind} does not have the prompt shape {expected}"


@rule(
    "An event of an attempt is recorded between its AttemptStarted and the next.",
    "ADR-0070",
    breaches=(
        Removed(AttemptStarted),
        Altered(GateJudged, "attempt"),
    ),
    sees=_NUMBERED,
    local=True,
)
def events_stand_in_their_attempt(trail: Trail) -> Iterator[Finding]:
    for seq, event in trail.preamble:
        if type(event) in _NUMBERED:
            yield seq, f"{event.kind} before any AttemptStarted"
    for run in trail.runs:
        number = run.attempt
        for seq, event in run.entries:
            if type(event) in _NUMBERED and event.attempt != number:  # type: ignore[attr-defined]
                yield seq, (f"{event.kind} of attempt {event.attempt} stands in attempt {number}")  # type: ignore[attr-defined]


@rule(
    "An attempt ends in exactly one of PatchProposed, AttemptRefused, ConsumerLeft.",
    "ADR-0070",
    breaches=(
        Removed(PatchProposed),
        Removed(AttemptRefused),
        Added(ConsumerLeft),
    ),
    sees={PatchProposed, AttemptRefused, ConsumerLeft, AttemptStarted, *TERMINALS},
    local=True,
)
def attempts_have_one_outcome(trail: Trail) -> Iterator[Finding]:
    """A crash has none: its attempt is resumed."""
    for run in trail.runs:
        outcomes = run.any_of(PatchProposed, AttemptRefused, ConsumerLeft)
        for seq, event in outcomes[1:]:
            yield seq, f"{event.kind} is a second outcome of attempt {run.attempt}"
        if not outcomes and run.went_on and not run.resumed:
            yield run.start.seq, f"attempt {run.attempt} has no outcome, and the fix went on"
