"""Validity and novelty of a draft: deterministic, no model call. What passes becomes a proposal."""

from dataclasses import dataclass

from fallback_audit.events import MAX_EXCERPT_CHARS, PlanRejected, RepeatedPatchRejected
from fallback_audit.vocabulary import FailureKind, ProofLevel, RefusalReason, Tier
from fallback_tier.attempt.task import AttemptTask, Draft, Proposal, Refusal
from fallback_tier.errors import (
    EditError,
    RecipeError,
    RepositoryError,
    ToolError,
    ToolMissingError,
)
from fallback_tier.grounding.validity import check_plan
from fallback_tier.outcome import DependencyBump, Override, Refuse, SourceEdit
from fallback_tier.patch.admission import check_recipe
from fallback_tier.patch.edits import merge_edits
from fallback_tier.patch.normalise import edit_digest
from fallback_tier.prompt.builder import Prompt
from fallback_tier.prompt.redact import excerpt


@dataclass(frozen=True)
class Invalid:
    """A draft that can't be handed on: the event that says so, and what to tell the model."""

    event: PlanRejected | RepeatedPatchRejected
    problems: tuple[str, ...]
    reason: RefusalReason

    def content(self, draft: Draft) -> str:
        """Return what makes two rejected answers the same one: the changes that come of it, the plan
        without its reasons, or the words."""
        if isinstance(self.event, RepeatedPatchRejected):
            return self.event.edit_digest
        if draft.plan is not None:
            return draft.plan.model_dump_json(exclude={"rationale"})
        return " ".join(draft.text.split())


def check(draft: Draft, prompt: Prompt, task: AttemptTask) -> Proposal | Invalid:
    """A proposal, or why the draft must be asked for again.

    Raises Refusal where the model itself declines, or a client that is needed is not installed.
    """
    plan = draft.plan
    if isinstance(plan, Refuse):
        raise declining(plan)
    if plan is None:
        return _rejected(draft, draft.problems, task)
    problems = check_plan(
        plan,
        advisory=task.advisory,
        repo=task.repo,
        plugin=task.plugin,
        snippet_ids=frozenset(snippet.id for snippet in prompt.snippets),
        example_ids=prompt.example_citations,
    )
    if problems:
        return _rejected(draft, problems, task)
    try:
        proposal = _turned_into_changes(plan, draft, task)
    except ToolMissingError as error:
        raise Refusal(RefusalReason.TOOL_MISSING, str(error)) from error
    except (EditError, RecipeError, RepositoryError, ToolError) as error:
        return _rejected(draft, (str(error),), task)
    return _repeated(proposal, draft, task) or proposal


def declining(plan: Refuse) -> Refusal:
    """The model's own word ends the attempt."""
    return Refusal(RefusalReason.MODEL_REFUSED, f"The model declined: {plan.reason}")


def _turned_into_changes(
    plan: DependencyBump | Override | SourceEdit, draft: Draft, task: AttemptTask
) -> Proposal:
    """We compute the changes; a model never types a diff."""
    if isinstance(plan, SourceEdit):
        merged, recipe, level = merge_edits(task.repo, (), plan.edits), None, ProofLevel.SOURCE
    else:
        # A model's bump takes the recipe's own road; its call-site edits come on top.
        raising = task.plugin.override if isinstance(plan, Override) else task.plugin.bump
        selection = raising(plan.package, plan.version)
        recipe = task.plugin.apply(selection, task.advisory, task.repo)
        check_recipe(recipe.changes, task.plugin, task.repo)
        merged, level = merge_edits(task.repo, recipe.changes, plan.edits), recipe.proof_level
    return Proposal(
        Tier.LLM,
        merged.changes,
        level,
        plan=plan,
        recipe=recipe,
        example_ids=draft.example_ids,
        loose_edits=merged.loose,
        notes=draft.notes,
    )


def _rejected(draft: Draft, problems: tuple[str, ...], task: AttemptTask) -> Invalid:
    messages = tuple(excerpt(problem, MAX_EXCERPT_CHARS) for problem in problems)
    event = PlanRejected(attempt=task.number, call=draft.call, problems=messages)
    return Invalid(event, problems, RefusalReason.PLAN_INVALID)


def _repeated(proposal: Proposal, draft: Draft, task: AttemptTask) -> Invalid | None:
    """A fresh context is no use if it gives the same edits (ADR-0011). They are allowed if the plan now
    declares the capabilities that were missing."""
    digest = edit_digest(proposal.changes)
    declares = bool(proposal.plan and proposal.plan.capabilities)
    earlier = next(
        (
            prior
            for prior in task.prior_attempts
            if prior.edit_digest == digest
            and not (declares and prior.failure_kind is FailureKind.UNDECLARED_CAPABILITY)
        ),
        None,
    )
    if earlier is None:
        return None
    event = RepeatedPatchRejected(
        attempt=task.number,
        call=draft.call,
        edit_digest=digest,
        repeats_attempt=earlier.attempt,
    )
    problem = (
        f"These are the edits of attempt {earlier.attempt}, which failed its gates: make a different "
        "change."
    )
    return Invalid(event, (problem,), RefusalReason.REPEATED_PATCH)
