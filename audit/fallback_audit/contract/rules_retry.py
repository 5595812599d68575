"""Rules of the trace contract on a retry as fresh context, and on how attempts follow each other."""

from collections.abc import Iterator

from fallback_audit.contract.rule import Added, Altered, Removed, rule
from fallback_audit.contract.trail import Finding, Trail
from fallback_audit.events import (
    AnswerReused,
    AttemptFailed,
    AttemptStarted,
    ExampleReplayed,
    FixStarted,
    ModelCalled,
    PatchProposed,
    RagSkippedOnRetry,
    RecipeEvaluated,
    RetrievalQueried,
)
from fallback_audit.vocabulary import (
    FailureKind,
)

# The floor can't import fallback_tier.limits; a test holds this equal to the tier's own.
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
        after, again = run.successor, run.resumed and run.keeps_its_number
        if after and after.attempt <= run.attempt and not again:
            yield after.start.seq, f"attempt {after.attempt} starts after attempt {run.attempt}"


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
