"""The LLM tier: ask for a plan until one is valid, new and supported, within the call ceiling.

Two checks with two consequences (ADR-0022). *Validity* is checked by rules: after an invalid or repeated
plan the model is asked again (ADR-0014), and the plan is never passed on. *Support* is a judge's decision:
an unsupported plan is generated once more under the strict instruction, and if that doesn't help, passed on
with a flag.
"""

from collections.abc import Generator, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import TYPE_CHECKING, Any

from fallback_audit.events import (
    MAX_EXCERPT_CHARS,
    BudgetReached,
    GroundingNotEvaluated,
    LowConfidenceFlagged,
    MoreCodeShown,
    PlanRejected,
    RepeatedPatchRejected,
)
from fallback_audit.ports import EvidenceStore
from fallback_audit.vocabulary import (
    CallType,
    FailureKind,
    ModelFailureKind,
    ProofLevel,
    RefusalReason,
    Tier,
)
from fallback_tier.answers.block_grammar import grammar_of_blocks
from fallback_tier.answers.blocks import plan_schema, read_plan
from fallback_tier.attempt.task import (
    AttemptTask,
    Draft,
    DraftDiscarded,
    Grounding,
    Proposal,
    Recorder,
    Refusal,
    TierEvent,
)
from fallback_tier.budget.audited import AuditMeter
from fallback_tier.budget.journal import AuditJournal
from fallback_tier.budget.meter import OverBudget
from fallback_tier.budget.tally import CallCeiling
from fallback_tier.errors import (
    EditError,
    ModelError,
    RecipeError,
    RepositoryError,
    ToolError,
    ToolMissingError,
)
from fallback_tier.grounding.support import Judgement
from fallback_tier.grounding.validity import barred_reason, check_plan
from fallback_tier.llm.calling import Caller, CallRequest, ModelAttempt
from fallback_tier.llm.judging import PlanJudge
from fallback_tier.outcome import (
    CallUsage,
    DependencyBump,
    LowConfidence,
    Override,
    Refuse,
    SourceEdit,
)
from fallback_tier.patch.admission import check_recipe
from fallback_tier.patch.edits import merge_edits
from fallback_tier.patch.judging import Judging
from fallback_tier.patch.normalise import edit_digest
from fallback_tier.ports import LanguageModel, ModelRequest
from fallback_tier.prompt.builder import Prompt, PromptBuilder
from fallback_tier.prompt.context import Snippet
from fallback_tier.prompt.redact import excerpt
from fallback_tier.prompt.turns import Conversation
from fallback_tier.repo import AnswerForm, Strategy
from fallback_tier.retrieval import FewShot

if TYPE_CHECKING:
    from fallback_tier.llm.selfrag import SelfRag


#: The recorded reason why grounding was not evaluated.
NO_JUDGE = "no judge is configured"


@dataclass(frozen=True)
class Invalid:
    """A draft that can't be passed on: its event, and the problems for the model."""

    event: PlanRejected | RepeatedPatchRejected
    problems: tuple[str, ...]
    reason: RefusalReason

    def content(self, draft: Draft) -> str:
        """Return a text that is equal for equal rejected answers: the digest of the changes, the plan
        without its reasons, or the words."""
        if isinstance(self.event, RepeatedPatchRejected):
            return self.event.edit_digest
        if draft.plan is not None:
            return draft.plan.model_dump_json(exclude={"rationale"})
        return " ".join(draft.text.split())


def check(draft: Draft, prompt: Prompt, task: AttemptTask) -> Proposal | Invalid:
    """Return a proposal, or why the model must be asked again. Raises Refusal if the model declines, or a
    needed client is missing."""
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
    """Return the refusal for a model that declines, which ends the attempt."""
    return Refusal(RefusalReason.MODEL_REFUSED, f"The model declined: {plan.reason}")


def _turned_into_changes(
    plan: DependencyBump | Override | SourceEdit, draft: Draft, task: AttemptTask
) -> Proposal:
    """Return the changes of a plan. The tool computes them; a model never writes a diff."""
    if isinstance(plan, SourceEdit):
        merged, recipe, level = merge_edits(task.repo, (), plan.edits), None, ProofLevel.SOURCE
    else:
        # A model's bump is applied by the recipe; its call-site edits come on top.
        select = task.plugin.override if isinstance(plan, Override) else task.plugin.bump
        selection = select(plan.package, plan.version)
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
    excerpts = tuple(excerpt(problem, MAX_EXCERPT_CHARS) for problem in problems)
    event = PlanRejected(attempt=task.number, call=draft.call, problems=excerpts)
    return Invalid(event, problems, RefusalReason.PLAN_INVALID)


def _repeated(proposal: Proposal, draft: Draft, task: AttemptTask) -> Invalid | None:
    """Return an Invalid if an earlier attempt had the same edits: a fresh context is no use then
    (ADR-0011). They are allowed if the plan now declares the capabilities that were missing."""
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


@dataclass(frozen=True)
class LlmLeaf:
    """Asks the author, checks the answer, and turns the plan into file changes. ``judge`` None: grounding
    is recorded as not evaluated; ``held_author``: its server enforces a grammar."""

    author: LanguageModel
    prompts: PromptBuilder
    _: KW_ONLY
    evidence: EvidenceStore
    judge: PlanJudge | None = None
    meter: AuditMeter | None = None
    journal: AuditJournal | None = None
    self_rag: "SelfRag | None" = None
    keep_prompts: bool = False
    held_author: bool = False

    def write(
        self, task: AttemptTask, examples: Sequence[FewShot], record: Recorder
    ) -> Generator[TierEvent, None, Proposal]:
        """Make one attempt of at most MAX_AUTHOR_CALLS answers.

        Raises Refusal at the ceiling, for a repeated rejected answer, if the model declines, at a cap of
        the budget, and if there is no answer (the SDK has retried).
        """
        caller = Caller(
            task,
            record,
            self.evidence,
            meter=self.meter,
            journal=self.journal,
            keep_prompts=self.keep_prompts,
        )
        try:
            attempt = ModelAttempt(task, self._prompt(task, examples), record, caller)
            proposal = yield from self._generate(attempt, examples)
        except (OverBudget, ModelError, Refusal) as error:
            if isinstance(error, OverBudget):
                yield record(
                    BudgetReached(
                        attempt=task.number,
                        limit=error.limit,
                        cap=error.cap,
                        used=error.used,
                        wanted=error.wanted,
                    )
                )
            raise _refused(error, caller.usage) from error
        return replace(proposal, usage=caller.usage)

    def _generate(
        self, attempt: ModelAttempt, examples: Sequence[FewShot]
    ) -> Generator[TierEvent, None, Proposal]:
        conversation: Conversation | None = None
        ceiling = CallCeiling()
        invalid: Invalid | None = None
        doubted: _Doubted | None = None
        declined: Refuse | None = None
        rejected: set[str] = set()
        while ceiling.take() is not None:
            strict = doubted is not None
            if conversation is None:
                attempt, draft = yield from self._open(attempt, examples, ceiling)
            else:
                asking = self._ask(attempt, conversation, strict=strict)
                draft = yield from (
                    asking if declined is None else _unless_too_much(asking, declined)
                )
            declined = None
            task, prompt, record = attempt.task, attempt.prompt, attempt.record
            if isinstance(draft.plan, Refuse) and not strict and ceiling.left:
                more = yield from self._more_code(draft, draft.plan, attempt)
                if more is not None:
                    attempt = replace(attempt, prompt=more)
                    conversation, declined = more.opening, draft.plan
                    continue
            verdict = check(draft, prompt, task)
            # 1. Validity: ask again, never pass on.
            if isinstance(verdict, Invalid):
                invalid = verdict
                yield record(verdict.event)
                yield _discarded(draft, task, verdict.problems)
                if (content := verdict.content(draft)) in rejected:
                    break  # Although it was given the problems, the model repeated the answer.
                rejected.add(content)
                conversation = self.prompts.repair(
                    prompt, draft.text, verdict.problems, strict=strict
                )
                continue
            # 2. Support: generate once more, then pass on with a flag.
            judgement = yield from self._judged(draft, verdict, attempt)
            if (
                judgement is None
                and doubted is not None
                and edit_digest(verdict.changes) == edit_digest(doubted.proposal.changes)
            ):
                break  # Not judged again: the doubt about these same edits remains.
            if judgement is None or judgement.supported:
                return replace(verdict, grounding=_grounding(judgement))
            doubted = _Doubted(verdict, judgement, doubted.attempts + 1 if doubted else 1)
            if strict or not ceiling.left:
                break
            yield _discarded(draft, task, judgement.unsupported)
            conversation = self.prompts.regenerate(prompt, draft.text, judgement.unsupported)
        if doubted is not None:
            return (yield from _flagged(doubted, attempt.task, attempt.record))
        raise _out_of_calls(invalid, ceiling.taken)

    def _prompt(self, task: AttemptTask, examples: Sequence[FewShot]) -> Prompt:
        return self.prompts.build(
            task.advisory,
            task.repo,
            task.plugin,
            examples=examples,
            prior_attempts=task.prior_attempts,
            own_code=task.is_own_code,
        )

    def _open(
        self, attempt: ModelAttempt, examples: Sequence[FewShot], ceiling: CallCeiling
    ) -> Generator[TierEvent, None, tuple[ModelAttempt, Draft]]:
        """Return the first draft. If prompt and answer exceed the model's window or a cap, try once more
        with less of the package's own code, and a shorter answer."""
        try:
            return attempt, (yield from self._draft(attempt, examples))
        except (OverBudget, ModelError) as error:
            less = attempt.task.with_less
            if less is None or not _is_too_much(error):
                raise
            smaller_attempt = replace(attempt, task=less, prompt=self._prompt(less, examples))
            if smaller_attempt.prompt.byte_count >= attempt.prompt.byte_count and not (
                less.repo.settings.max_output_tokens < attempt.task.repo.settings.max_output_tokens
            ):
                raise
            if isinstance(error, ModelError):  # it was sent; a call that a cap withholds was not
                ceiling.take()
        return smaller_attempt, (yield from self._draft(smaller_attempt, examples))

    def _more_code(
        self, draft: Draft, plan: Refuse, attempt: ModelAttempt
    ) -> Generator[TierEvent, None, Prompt | None]:
        """Return the prompt with the code that a declining model names, or None; once an attempt
        (ADR-0044)."""
        task, prompt = attempt.task, attempt.prompt
        more = self.prompts.with_more_code(
            prompt, plan.reason, task.repo, own_code=task.is_own_code
        )
        if more is not None:
            yield attempt.record(
                _more_code_shown(draft, more.snippets[len(prompt.snippets) :], task)
            )
            yield _discarded(draft, task, ["It declined for want of code."])
        return more

    def _draft(
        self, attempt: ModelAttempt, examples: Sequence[FewShot]
    ) -> Generator[TierEvent, None, Draft]:
        """Return a draft by one answer, or by self-RAG's beam; later steps are the same for every
        strategy."""
        strategy = attempt.task.repo.settings.strategy
        if self.self_rag is not None and strategy is Strategy.SELF_RAG:
            return (yield from self.self_rag.draft(attempt, examples))
        return (yield from self._ask(attempt, attempt.prompt.opening, strict=False))

    def _ask(
        self, attempt: ModelAttempt, conversation: Conversation, *, strict: bool
    ) -> Generator[TierEvent, None, Draft]:
        prompt, settings = attempt.prompt, attempt.task.repo.settings
        request = ModelRequest(
            call_type=CallType.AUTHOR,
            system=prompt.system,
            messages=conversation.messages,
            max_output_tokens=settings.max_output_tokens,
            answer_schema=_schema(attempt.task),
            answer_grammar=_grammar(attempt) if self.held_author else None,
            nonces=conversation.nonces,
            effort=settings.effort,
        )
        call_request = CallRequest(request, example_ids=prompt.example_ids, strict=strict)
        answered = yield from attempt.caller.ask(self.author, call_request)
        plan, problems = read_plan(answered.answer, prompt.answer_form)
        return Draft(
            call=answered.call,
            text=answered.answer.text,
            plan=plan,
            problems=problems,
            example_ids=prompt.example_ids,
            example_texts=prompt.examples,
        )

    def _judged(
        self, draft: Draft, proposal: Proposal, attempt: ModelAttempt
    ) -> Generator[TierEvent, None, Judgement | None]:
        """Return the judge's recorded judgement, or None after recording why there is none."""
        if self.judge is None:
            number = attempt.task.number
            yield attempt.record(
                GroundingNotEvaluated(attempt=number, call=draft.call, reason=NO_JUDGE)
            )
            return None
        assert proposal.plan is not None  # noqa: S101 (a model's proposal has its plan)
        return (yield from self.judge.judge(proposal.plan, draft, attempt))


def _schema(task: AttemptTask) -> dict[str, Any] | None:
    if task.repo.settings.answer_form is not AnswerForm.JSON:
        return None
    return plan_schema(declaring=_may_declare(task))


def _grammar(attempt: ModelAttempt) -> str | None:
    task, prompt = attempt.task, attempt.prompt
    if task.repo.settings.answer_form is not AnswerForm.BLOCKS:
        return None
    judging = Judging.of(task.repo)
    editable = [
        snippet
        for snippet in prompt.snippets
        if barred_reason(snippet.path, task.repo, task.plugin, judging) is None
    ]
    citable = [snippet.id for snippet in prompt.snippets] + sorted(prompt.example_citations)
    citable += [task.advisory.id, *task.advisory.aliases]
    return grammar_of_blocks(
        [run for snippet in editable for run in snippet.quotable],
        citable,
        may_bump=not task.is_own_code,
        may_declare=_may_declare(task),
    )


def _may_declare(task: AttemptTask) -> bool:
    """Return whether an attempt of this transition was told to declare its edits' capabilities."""
    kinds = {attempt.failure_kind for attempt in task.prior_attempts}
    return FailureKind.UNDECLARED_CAPABILITY in kinds


def _discarded(draft: Draft, task: AttemptTask, reasons: Sequence[str]) -> DraftDiscarded:
    return DraftDiscarded.because(" ".join(reasons), attempt=task.number, call=draft.call)


def _grounding(judgement: Judgement | None) -> Grounding:
    if judgement is None:
        return Grounding()
    return Grounding(judgement.supported, judgement.faithfulness_score)


# The events of the LLM tier, and the end of its work on an attempt without a supported plan.


@dataclass(frozen=True)
class _Doubted:
    """A valid plan that the judge found unsupported, and the number of such plans so far."""

    proposal: Proposal
    judgement: Judgement
    attempts: int


def _flagged(
    doubted: _Doubted, task: AttemptTask, record: Recorder
) -> Generator[TierEvent, None, Proposal]:
    """Return the proposal with a flag and what to double-check: the gates prove behaviour, not reasons."""
    judgement = doubted.judgement
    reason = (
        f"{len(judgement.unsupported)} of {len(judgement.claims)} claims of this plan are not supported "
        "by the advisory and the code that the model was shown"
    )
    yield record(
        LowConfidenceFlagged(
            attempt=task.number,
            reason=excerpt(reason, MAX_EXCERPT_CHARS),
            attempts=doubted.attempts,
        )
    )
    flag = LowConfidence(
        reason=reason,
        attempts=doubted.attempts,
        double_check=tuple(excerpt(claim, MAX_EXCERPT_CHARS) for claim in judgement.unsupported),
    )
    return replace(
        doubted.proposal,
        grounding=Grounding(False, judgement.faithfulness_score, flag),
    )


def _out_of_calls(invalid: Invalid | None, calls: int) -> Refusal:
    assert invalid is not None  # noqa: S101 (the ceiling is at least one call)
    return Refusal(
        invalid.reason,
        f"The model gave no usable plan in {calls} calls: {' '.join(invalid.problems)}",
    )


def _more_code_shown(draft: Draft, snippets: Sequence[Snippet], task: AttemptTask) -> MoreCodeShown:
    files = dict.fromkeys(snippet.path for snippet in snippets)
    return MoreCodeShown(
        attempt=task.number,
        call=draft.call,
        files=tuple(excerpt(path, MAX_EXCERPT_CHARS) for path in files),
        byte_count=sum(len(snippet.text.encode()) for snippet in snippets),
    )


def _unless_too_much(
    asking: Generator[TierEvent, None, Draft], declined: Refuse
) -> Generator[TierEvent, None, Draft]:
    """Return the answer of a model that was shown more code. If its window has no room for that, the model
    has declined.

    Raises Refusal; OverBudget if a cap has no room, because a person may raise a cap.
    """
    try:
        return (yield from asking)
    except ModelError as error:
        if not _is_too_much(error):
            raise
        raise declining(declined) from error


def _is_too_much(error: OverBudget | ModelError) -> bool:
    """Return whether a shorter prompt may help."""
    if isinstance(error, OverBudget):
        return bool(error.wanted)
    return error.failure is ModelFailureKind.CONTEXT_TOO_LONG


def _refused(error: OverBudget | ModelError | Refusal, usage: tuple[CallUsage, ...]) -> Refusal:
    if isinstance(error, Refusal):
        return Refusal(error.reason, error.sentence, usage)
    if isinstance(error, OverBudget):
        return Refusal(RefusalReason.BUDGET_EXHAUSTED, str(error), usage)
    too_long = error.failure is ModelFailureKind.CONTEXT_TOO_LONG
    reason = RefusalReason.CONTEXT_TOO_LONG if too_long else RefusalReason.MODEL_UNAVAILABLE
    return Refusal(reason, str(error), usage)
