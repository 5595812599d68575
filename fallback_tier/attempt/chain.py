"""The steps of an attempt's chain of tiers, one function per step of ``fallback_tier.tier``; those of
retrieval are in ``rag``. (The audit trail's hash chain is ``fallback_audit.chain``.)

Each is a generator: it yields what it has recorded and returns its result, or None if the next tier should
try. A ``Refusal`` ends the attempt.
"""

import hashlib
from collections.abc import Generator

from fallback_audit.events import (
    MAX_EXCERPT_CHARS,
    AttemptRefused,
    AttemptStarted,
    PatchProposed,
    RagSkippedOnRetry,
    RecipeEvaluated,
)
from fallback_audit.evidence.store import put_document
from fallback_audit.ports import EvidenceStore
from fallback_audit.vocabulary import PromptShape, RefusalReason, Tier
from fallback_tier.advisory import lets_stay
from fallback_tier.attempt.task import AttemptTask, Proposal, Recorder, Refusal, TierEvent
from fallback_tier.errors import (
    PatchError,
    RecipeError,
    RepositoryError,
    SettingMissingError,
    ToolError,
    ToolMissingError,
)
from fallback_tier.limits import MAX_PATCH_BYTES, MAX_RETRIES
from fallback_tier.outcome import (
    Applied,
    NotApplicable,
    RecipeResult,
    Refused,
    Remediation,
    Selected,
    UnreadItem,
    shared_fields,
)
from fallback_tier.patch.admission import check_recipe
from fallback_tier.patch.diff import unified_diff
from fallback_tier.patch.normalise import edit_digest
from fallback_tier.prompt.redact import excerpt, without_secrets

#: The longest sentence of a refusal: a client's message fits, a log does not.
MAX_SENTENCE_CHARS = 1_500


def check_cap(task: AttemptTask) -> None:
    """Raise Refusal for a fourth retry, before anything is spent or recorded (ADR-0014)."""
    if task.over_cap:
        raise Refusal(
            RefusalReason.RETRY_CAP_REACHED,
            f"{MAX_RETRIES} retries have failed, and nothing raises this cap. Review the audit "
            "trail, then open a new gate transition or fix it by hand.",
        )


def started(task: AttemptTask) -> AttemptStarted:
    """Return the first event: the attempt counts from here, however it ends."""
    return AttemptStarted(
        attempt=task.number,
        advisory_id=task.advisory.id,
        prior_attempt_count=len(task.prior_attempts),
        prompt_shape=task.shape,
    )


def rag_skipped(task: AttemptTask) -> RagSkippedOnRetry:
    """Return the evidence for ADR-0011: what was skipped, and what the prompt contains instead."""
    last = task.prior_attempts[-1]
    summary = last.prior_failure_summary.encode("utf-8", "replace")
    return RagSkippedOnRetry(
        attempt=task.number,
        attempt_count=len(task.prior_attempts),
        last_failure_kind=last.failure_kind,
        summary_sha256=hashlib.sha256(summary).hexdigest(),
        summary_excerpt=excerpt(last.prior_failure_summary, MAX_EXCERPT_CHARS),
    )


def apply_recipe(
    task: AttemptTask, record: Recorder
) -> Generator[TierEvent, None, tuple[Proposal, None] | tuple[None, NotApplicable]]:
    """Apply the selected recipe. If it declines, the chain continues, unless the refusal is final."""
    selection = task.selection
    recipe = selection.recipe if isinstance(selection, Selected) else None
    outcome = _try_recipe(task)
    if isinstance(outcome, Proposal):
        moves = outcome.recipe.moves if outcome.recipe else ()
        steps = tuple(dict.fromkeys(move.step for move in moves))
        yield record(
            RecipeEvaluated(attempt=task.number, selected=True, recipe=recipe, steps=steps)
        )
        return outcome, None
    # It may contain a client's output.
    reason = excerpt(outcome.sentence, MAX_SENTENCE_CHARS)
    yield record(RecipeEvaluated(attempt=task.number, selected=False, recipe=recipe, reason=reason))
    has_failed_candidate = isinstance(selection, Selected) and bool(selection.left_out)
    if outcome.reason.ends_chain or has_failed_candidate:
        # If a later candidate declines, stop: gates have refused a patch already (ADR-0048).
        raise Refusal(
            outcome.reason, outcome.sentence, unread=outcome.unread, declined=outcome.declined
        )
    return None, outcome


def _try_recipe(task: AttemptTask) -> Proposal | NotApplicable:
    if isinstance(task.selection, NotApplicable):
        return task.selection
    try:
        result = task.plugin.apply(task.selection, task.advisory, task.repo)
        check_recipe(result.changes, task.plugin, task.repo)
    except (RecipeError, RepositoryError) as error:
        return NotApplicable.of(error)
    except ToolMissingError as error:
        if task.is_resumed:
            raise
        return NotApplicable(reason=RefusalReason.TOOL_MISSING, sentence=str(error))
    except ToolError as error:
        return NotApplicable(reason=RefusalReason.RESOLVER_FAILED, sentence=str(error))
    for remaining in result.left:
        # A partial fix is not a fix: the caller that fixes a bundle leaves out what can't be fixed, or
        # declares that it stays.
        if not lets_stay(
            task.advisory, task.plugin.name, remaining.package, remaining.advisory_ids
        ):
            return remaining.why
    return Proposal(Tier.RECIPE, result.changes, result.proof_level, recipe=result)


def seal(
    proposal: Proposal, task: AttemptTask, evidence: EvidenceStore, record: Recorder
) -> Generator[TierEvent, None, Applied]:
    """Compute the diff, store it as evidence, and only then return it."""
    diff = _diff(proposal)
    content = diff.encode()
    if len(content) > MAX_PATCH_BYTES:
        raise Refusal(
            RefusalReason.RECIPE_UNSUPPORTED,
            f"The patch has more than {MAX_PATCH_BYTES:,} bytes, which nobody reviews.",
            proposal.usage,
        )
    if not diff:
        raise Refusal(
            RefusalReason.NOTHING_CHANGED,
            f"The {proposal.tier} tier changed nothing, so nothing is fixed.",
            proposal.usage,
        )
    # The application becomes evidence that anyone may read, and part of what is handed over.
    plan = proposal.plan and without_secrets(proposal.plan)
    remediation = _remediation(proposal.recipe, evidence)
    application = Applied(
        attempt=task.number,
        prompt_shape=task.shape if proposal.tier is Tier.LLM else PromptShape.NONE,
        usage=proposal.usage,
        tier=proposal.tier,
        diff=diff,
        patch_sha256=evidence.put(content),
        edit_digest=edit_digest(proposal.changes),
        files=tuple(sorted(change.path for change in proposal.changes)),
        proof_level=proposal.proof_level,
        plan=plan,
        remediation=remediation,
        citations=plan.citations if plan else (),
        grounded=proposal.grounding.grounded,
        faithfulness_score=proposal.grounding.faithfulness_score,
        low_confidence=proposal.grounding.low_confidence,
        loose_edits=proposal.loose_edits,
        notes=proposal.notes,
        used_few_shot_ref=proposal.example_ids,
    )
    yield record(
        PatchProposed(
            **shared_fields(application, PatchProposed)
            | {"low_confidence": application.low_confidence is not None},
            remediation_sha256=remediation.evidence_sha256 if remediation else None,
            application_sha256=put_document(evidence, application),
        )
    )
    return application


def _remediation(recipe: RecipeResult | None, evidence: EvidenceStore) -> Remediation | None:
    """Return the account of a recipe: its readable part; the whole, with its trees, becomes evidence."""
    if recipe is None:
        return None
    recipe = without_secrets(recipe)
    document = recipe.model_dump_json(exclude={"changes"}).encode("utf-8", "replace")
    return Remediation(**shared_fields(recipe, Remediation), evidence_sha256=evidence.put(document))


def _diff(proposal: Proposal) -> str:
    try:
        return unified_diff(proposal.changes)
    except PatchError as error:
        is_model = proposal.tier is Tier.LLM
        reason = RefusalReason.PLAN_INVALID if is_model else RefusalReason.RECIPE_UNSUPPORTED
        raise Refusal(reason, str(error), proposal.usage) from error


def refuse(
    task: AttemptTask, refusal: Refusal, record: Recorder
) -> Generator[TierEvent, None, Refused]:
    """Return the result of an attempt without a patch, with the reason, after recording it."""
    refused = Refused(
        attempt=task.number,
        prompt_shape=task.shape if record.asked_model else PromptShape.NONE,
        usage=refusal.usage,
        reason=refusal.reason,
        # They may contain text of a model or a client.
        sentence=excerpt(refusal.sentence, MAX_SENTENCE_CHARS),
        unread=tuple(
            UnreadItem(**{name: excerpt(text, MAX_SENTENCE_CHARS) for name, text in item})
            for item in refusal.unread
        ),
        declined=refusal.declined,
    )
    yield record(AttemptRefused(**shared_fields(refused, AttemptRefused)))
    return refused


def model_missing(fix_id: str) -> SettingMissingError:
    """Return the error for a recorded fix that can't continue without a model."""
    return SettingMissingError(
        f"Fix {fix_id} needs a model to continue, and no model is configured.",
        next_step=f"Name one: `fallback-tier resume {fix_id} --model NAME`, with its key in the "
        "environment (--base-url URL for a server of yours, --script FILE for scripted answers). A service "
        "or a campaign has it in the table [model] of its configuration.",
        kind="no_model",
    )


def no_model(task: AttemptTask, declined: NotApplicable | None) -> SettingMissingError | Refusal:
    """Return the end of an attempt that has no model: an error if the fix is recorded and needs one. If the
    recipe declined, its reason says more."""
    if task.needs_model:
        return model_missing(task.repo.fix_id)
    hint = "No model is configured (--model, --base-url)."
    if declined is None:
        return Refusal(RefusalReason.MODEL_NOT_CONFIGURED, f"A retry needs a model. {hint}")
    return Refusal(declined.reason, f"{declined.sentence} {hint}", declined=declined.declined)
