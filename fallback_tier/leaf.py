"""The LLM tier: ask for a plan until one is valid and new, within the call ceiling (ADR-0014)."""

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from fallback_audit.events import (
    MAX_EXCERPT_CHARS,
    ModelAnswered,
    ModelCalled,
    ModelFailed,
    PlanRejected,
    RepeatedPatchRejected,
)
from fallback_audit.vocabulary import CallType, ProofLevel, RefusalReason, Tier
from fallback_tier.attempt import Proposal, Recorder, Refusal, Task, TierEvent
from fallback_tier.budget.calls import CallCeiling, UsageLedger
from fallback_tier.budget.prices import estimate_cost
from fallback_tier.errors import (
    EditError,
    ModelError,
    RecipeError,
    RepositoryError,
    ToolError,
    ToolMissingError,
)
from fallback_tier.grounding.validity import check_plan
from fallback_tier.outcome import FileChange, RecipeResult, Refuse, SourceEdit
from fallback_tier.patch.diff import patch_digest
from fallback_tier.patch.edits import apply_edits, merge_edits
from fallback_tier.patch.normalise import edit_digest
from fallback_tier.ports import Message, PlanAnswer, PlanAuthor, PlanRequest
from fallback_tier.prompt.builder import Prompt, PromptBuilder
from fallback_tier.prompt.redact import excerpt
from fallback_tier.retrieval import FewShot


@dataclass(frozen=True)
class _Invalid:
    """An answer that can't be handed on: the event that says so, and what to tell the model."""

    event: PlanRejected | RepeatedPatchRejected
    problems: tuple[str, ...]
    reason: RefusalReason


class LlmLeaf:
    """Asks the author, checks the answer, and turns the plan into file changes."""

    def __init__(self, author: PlanAuthor, prompts: PromptBuilder) -> None:
        self._author = author
        self._prompts = prompts

    def write(
        self, task: Task, examples: Sequence[FewShot], record: Recorder
    ) -> Generator[TierEvent, None, Proposal]:
        """One prompt, at most MAX_AUTHOR_CALLS answers. Every verdict on an answer acts.

        An invalid plan (PlanRejected) or a repeated one (RepeatedPatchRejected) is asked again, with
        what was wrong, and never handed on. Raises Refusal when the ceiling is reached, when the
        model declines, and at once when no answer came (the SDK has already retried).
        """
        prompt = self._prompts.build(
            task.advisory,
            task.repo,
            task.plugin,
            examples=examples,
            prior_attempts=task.prior_attempts,
            own_code=task.is_own_code,
        )
        ceiling, ledger = CallCeiling(), UsageLedger()
        messages: tuple[Message, ...] = (Message(role="user", content=prompt.user),)
        verdict: Proposal | _Invalid | None = None
        while (call := ceiling.take()) is not None:
            yield record(self._called(task, prompt, messages, call))
            try:
                answer = self._author.draft(self._request(task, prompt, messages))
            except ModelError as error:
                yield record(_failed(task, call, error))
                raise Refusal(
                    RefusalReason.MODEL_UNAVAILABLE, str(error), ledger.totals()
                ) from error
            ledger.record(CallType.AUTHOR, answer.usage, self._author.model)
            yield record(self._answered(task, answer, call))

            verdict = self._judge(task, prompt, answer, call, ledger)
            if isinstance(verdict, Proposal):
                return verdict
            yield record(verdict.event)
            messages = self._prompts.repair(prompt, answer.text, verdict.problems)
        assert isinstance(verdict, _Invalid)  # noqa: S101 (the ceiling is at least one call)
        raise Refusal(
            verdict.reason,
            f"The model gave no usable plan in {ceiling.limit} calls: {' '.join(verdict.problems)}",
            ledger.totals(),
        )

    def _judge(
        self, task: Task, prompt: Prompt, answer: PlanAnswer, call: int, ledger: UsageLedger
    ) -> Proposal | _Invalid:
        """Validity, then novelty. Raises Refusal where the model itself declines."""
        if isinstance(answer.plan, Refuse):
            raise Refusal(
                RefusalReason.MODEL_REFUSED,
                f"The model declined: {answer.plan.reason}",
                ledger.totals(),
            )
        outcome = _turn_into_changes(task, prompt, answer)
        if not isinstance(outcome, _Changes):
            event = PlanRejected(
                attempt=task.number,
                call=call,
                problems=tuple(excerpt(problem, MAX_EXCERPT_CHARS) for problem in outcome),
            )
            return _Invalid(event, outcome, RefusalReason.PLAN_INVALID)
        digest = edit_digest(outcome.changes)
        for earlier in task.prior_attempts:
            if earlier.edit_digest == digest:
                repeated = RepeatedPatchRejected(
                    attempt=task.number,
                    call=call,
                    edit_digest=digest,
                    repeats_attempt=earlier.attempt,
                )
                problem = (
                    f"These are the edits of attempt {earlier.attempt}, which failed its gates: "
                    "make a different change."
                )
                return _Invalid(repeated, (problem,), RefusalReason.REPEATED_PATCH)
        return Proposal(
            Tier.LLM,
            outcome.changes,
            outcome.proof_level,
            plan=answer.plan,
            recipe=outcome.recipe,
            usage=ledger.totals(),
            example_ids=prompt.example_ids,
        )

    def _request(self, task: Task, prompt: Prompt, messages: tuple[Message, ...]) -> PlanRequest:
        return PlanRequest(
            call_type=CallType.AUTHOR,
            system=prompt.system,
            messages=messages,
            max_output_tokens=task.repo.settings.max_output_tokens,
        )

    def _called(
        self, task: Task, prompt: Prompt, messages: tuple[Message, ...], call: int
    ) -> ModelCalled:
        text = prompt.system + "".join(message.content for message in messages)
        return ModelCalled(
            attempt=task.number,
            call=call,
            call_type=CallType.AUTHOR,
            model=self._author.model,
            provenance=self._author.provenance,
            prompt_shape=task.shape,
            prompt_sha256=patch_digest(text),
            prompt_bytes=len(text.encode()),
            example_ids=prompt.example_ids,
        )

    def _answered(self, task: Task, answer: PlanAnswer, call: int) -> ModelAnswered:
        cost = estimate_cost(self._author.model, answer.usage)
        return ModelAnswered(
            attempt=task.number,
            call=call,
            call_type=CallType.AUTHOR,
            input_tokens=answer.usage.input_tokens,
            output_tokens=answer.usage.output_tokens,
            cache_read_tokens=answer.usage.cache_read_tokens,
            cache_write_tokens=answer.usage.cache_write_tokens,
            cost_usd_estimate=None if cost is None else str(cost),
            stop_reason=answer.stop_reason,
            answer_sha256=patch_digest(answer.text),
        )


class _Changes(NamedTuple):
    changes: tuple[FileChange, ...]
    proof_level: ProofLevel
    recipe: RecipeResult | None = None


def _turn_into_changes(
    task: Task, prompt: Prompt, answer: PlanAnswer
) -> _Changes | tuple[str, ...]:
    """The changes we compute from a valid plan, or the problems to ask the model about."""
    plan = answer.plan
    if plan is None or isinstance(plan, Refuse):
        return answer.problems
    problems = check_plan(
        plan,
        advisory=task.advisory,
        repo=task.repo,
        plugin=task.plugin,
        snippet_ids=frozenset(snippet.id for snippet in prompt.snippets),
        example_ids=frozenset(prompt.example_ids),
    )
    if problems:
        return problems
    try:
        if isinstance(plan, SourceEdit):
            return _Changes(apply_edits(task.repo, plan.edits), ProofLevel.SOURCE)
        # A model's bump takes the recipe's own road; its call-site edits come on top.
        bump = task.plugin.bump(plan.package, plan.version)
        result = task.plugin.apply(bump, task.advisory, task.repo)
        changes = merge_edits(task.repo, result.changes, plan.edits)
        return _Changes(changes, result.proof_level, result)
    except ToolMissingError as error:
        raise Refusal(RefusalReason.TOOL_MISSING, str(error)) from error
    except (EditError, RecipeError, RepositoryError, ToolError) as error:
        return (str(error),)


def _failed(task: Task, call: int, error: ModelError) -> ModelFailed:
    return ModelFailed(
        attempt=task.number,
        call=call,
        call_type=CallType.AUTHOR,
        reason=excerpt(str(error), MAX_EXCERPT_CHARS),
    )
