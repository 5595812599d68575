"""The retry policies, as tiers: a fix with each differs in what its second and later attempts are shown.

Gates, failure summaries, fences, plans and caps are the product's, and the same for all; so is the study's
instruction. First attempts are the same too: with the example that the memory has, which here is a decoy.
Only the policies of ``FIRST_ATTEMPTS`` differ in the first attempt, and have no other.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from typing import cast

from fallback_audit.vocabulary import GateStatus, PromptShape, RefusalReason
from fallback_eval.retry.calls import CachedModel
from fallback_eval.retry.instruction import StudyInstruction
from fallback_tier.advisory import Advisory
from fallback_tier.attempt import chain, rag
from fallback_tier.attempt.task import AttemptTask, Recorder, Refusal, TierEvent
from fallback_tier.gate_ports import Gate, GateContext, GateVerdict
from fallback_tier.gates.failure_summary.diagnosis import clean
from fallback_tier.outcome import AttemptSummary, RecipeApplication
from fallback_tier.ports import EcosystemPlugin, Message, NonceSource, SolvedExampleRetriever
from fallback_tier.prompt.builder import Prompt, PromptBuilder, retry_advice
from fallback_tier.prompt.fence import SourceKind, fence
from fallback_tier.prompt.turns import ONE, Conversation
from fallback_tier.repo import RepoContext
from fallback_tier.retrieval import FewShot, RagHit, RagMiss, Retrieval
from fallback_tier.tier import FallbackTier

_FAILED = """\
Your change was made, and it failed its gates. The fence code of this message is {nonce}. Here is the \
failure summary of attempt {attempt} ({kind}):
{summary}

{advice}

Answer my first message again: {one}, nothing else.
"""


#: In place of a failure's summary, if a policy has none.
NO_SUMMARY_TEXT = "It failed its gates."

#: Characters of a summary's first line, in a line per earlier attempt.
_LINE_CHARS = 160

#: Characters of a gate's log, in place of a summary. A distilled summary has some 500 to 1,100 here.
LOG_CHARS = 1_500


class Policy(StrEnum):
    """What follows a failed attempt. The first four are ADR-0011's options, in its order."""

    FULL_CHAIN = "full-chain"
    EXCLUDE_PRIOR_HIT = "exclude-prior-hit"
    CONVERSATION = "conversation"
    FRESH_CONTEXT = "fresh-context"
    RESAMPLE = "resample"
    EVERY_FAILURE = "every-failure"
    BEST_CANDIDATE = "best-candidate"
    NO_SUMMARY = "no-summary"
    LOG_TAIL = "log-tail"
    FIRST_WITHOUT = "first-without"
    FIRST_RETRIEVED = "first-retrieved"
    FIRST_JSON = "first-json"

    @property
    def meaning(self) -> str:
        """Return it in a sentence."""
        return _MEANINGS[self]


_MEANINGS = {
    Policy.FULL_CHAIN: "the same example again, and the last failure's summary",
    Policy.EXCLUDE_PRIOR_HIT: "another example than before, and the last failure's summary",
    Policy.CONVERSATION: "the same conversation, continued with each failure's summary",
    Policy.FRESH_CONTEXT: "no example, and the last failure's summary (the product's)",
    Policy.RESAMPLE: "the first prompt again: nothing of the failure",
    Policy.EVERY_FAILURE: "as fresh-context, and a line per earlier attempt",
    Policy.BEST_CANDIDATE: "as fresh-context, and the answer that failed the fewest gates",
    Policy.NO_SUMMARY: "as fresh-context, with the kind of the failure in place of its summary",
    Policy.LOG_TAIL: "as fresh-context, with the end of the gate's log in place of its summary",
    Policy.FIRST_WITHOUT: "one attempt, without an example",
    Policy.FIRST_RETRIEVED: "one attempt, with the nearest true fix of another task",
    Policy.FIRST_JSON: "one attempt, with the decoy, its answer in JSON",
}

#: The main comparison. With a memory of one example, option 2 asks what option 4 asks.
COMPARED = (Policy.FRESH_CONTEXT, Policy.FULL_CHAIN, Policy.CONVERSATION)

#: Run after that on one seed: what of the failure a retry has to be shown. Exploratory, without tests.
EXPLORED = (
    Policy.LOG_TAIL,
    Policy.NO_SUMMARY,
    Policy.RESAMPLE,
    Policy.EVERY_FAILURE,
    Policy.BEST_CANDIDATE,
)

#: What a first attempt is shown, and the form of its answer. Exploratory too.
FIRST_ATTEMPTS = (Policy.FIRST_WITHOUT, Policy.FIRST_RETRIEVED, Policy.FIRST_JSON)


@dataclass(frozen=True)
class OneExample:
    """A memory with one example, which is always found."""

    example: FewShot

    def query(
        self, advisory: Advisory, repo_ctx: RepoContext, *, beyond: frozenset[str] = frozenset()
    ) -> Retrieval:
        """Return it, unless it was seen before."""
        del advisory, repo_ctx  # whatever is asked
        if self.example.example.example_id in beyond:
            return RagMiss(evidence="the only example was seen before")
        return RagHit(examples=(self.example,), evidence="the only example of this task's memory")


class FullChainTier(FallbackTier):
    """Takes the whole chain on a retry too: option 1 of ADR-0011."""

    def _attempt(
        self, task: AttemptTask, record: Recorder
    ) -> Generator[TierEvent, None, RecipeApplication]:
        parts = self.parts
        chain.check_cap(task)
        yield record(chain.started(task))
        proposal, declined = yield from chain.apply_recipe(task, record)
        if proposal is None:
            examples = yield from rag.retrieve(
                parts.retriever, task, parts.evidence, record, beyond=self._seen(task)
            )
            proposal = yield from rag.replay(examples, task, record)
        if proposal is None:
            proposal = yield from parts.ask_model(task, examples, declined, record)
        return (yield from chain.seal(proposal, task, parts.evidence, record))

    def _seen(self, task: AttemptTask) -> frozenset[str]:
        """Return the ids of examples that are not to be retrieved again."""
        del task  # the whole memory, at every attempt
        return frozenset()


class OneAttemptTier(FallbackTier):
    """Makes no retry."""

    def _attempt(
        self, task: AttemptTask, record: Recorder
    ) -> Generator[TierEvent, None, RecipeApplication]:
        if task.is_retry:
            raise Refusal(RefusalReason.RETRY_CAP_REACHED, "This policy has one attempt.")
        return (yield from super()._attempt(task, record))


class OtherExamplesTier(FullChainTier):
    """Takes the whole chain on a retry, without the examples used before: option 2 of ADR-0011."""

    def _seen(self, task: AttemptTask) -> frozenset[str]:
        return frozenset(used for prior in task.prior_attempts for used in prior.used_few_shot_ref)


class ContinuedConversation(PromptBuilder):
    """Continues the conversation on a retry: what was asked and answered last, then how it failed.

    Unlike the product's repair turn, which quotes a rejected answer, it keeps the model's own turns.
    """

    def __init__(self, nonces: NonceSource, model: CachedModel) -> None:
        super().__init__(nonces)
        self._next_nonce = nonces
        self._model = model
        self._first: Prompt | None = None

    def build(
        self,
        advisory: Advisory,
        repo: RepoContext,
        plugin: EcosystemPlugin,
        *,
        examples: Sequence[FewShot] = (),
        prior_attempts: Sequence[AttemptSummary] = (),
        own_code: bool = False,
    ) -> Prompt:
        """As PromptBuilder for a first attempt; then the first prompt with the turns that follow it."""
        first, asked = self._first, self._model.last_request
        if not prior_attempts or first is None or asked is None:
            self._first = super().build(
                advisory,
                repo,
                plugin,
                examples=examples,
                prior_attempts=prior_attempts,
                own_code=own_code,
            )
            return self._first
        last, nonce = prior_attempts[-1], self._next_nonce()
        summary = partial(fence, source_kind=SourceKind.PRIOR_ATTEMPT_SUMMARY, nonce=nonce)
        turn = _FAILED.format(
            nonce=nonce,
            attempt=last.attempt,
            kind=last.failure_kind.value,
            summary=summary(last.prior_failure_summary).text,
            advice=retry_advice(last.failure_kind),
            one=ONE[first.answer_form],
        )
        turns = (
            *asked.messages,
            Message(role="assistant", content=self._model.used[-1].text),
            Message(role="user", content=turn),
        )
        continued = Conversation(messages=turns, nonces=(*asked.nonces, nonce))
        return first.model_copy(update={"more": continued, "shape": PromptShape.RETRY})


#: Returns the history that a retry's prompt is rendered with; empty: the first prompt again.
History = Callable[[Sequence[AttemptSummary]], Sequence[AttemptSummary]]


class OtherHistory(PromptBuilder):
    """Renders a retry's prompt with a history that may be another one, and with examples, which the
    product's builder refuses (ADR-0011)."""

    def __init__(self, nonces: NonceSource, history: History) -> None:
        super().__init__(nonces)
        self._history = history

    def build(
        self,
        advisory: Advisory,
        repo: RepoContext,
        plugin: EcosystemPlugin,
        *,
        examples: Sequence[FewShot] = (),
        prior_attempts: Sequence[AttemptSummary] = (),
        own_code: bool = False,
    ) -> Prompt:
        """As PromptBuilder, with that history and without that check."""
        return self._rendered(
            advisory,
            repo,
            plugin,
            examples=examples,
            prior_attempts=self._history(prior_attempts) if prior_attempts else (),
            own_code=own_code,
        )


def same_history(prior: Sequence[AttemptSummary]) -> Sequence[AttemptSummary]:
    """Return the history as it is."""
    return prior


def _with_summary(prior: Sequence[AttemptSummary], text: str) -> tuple[AttemptSummary, ...]:
    return (*prior[:-1], prior[-1].model_copy(update={"prior_failure_summary": text}))


def without_summary(prior: Sequence[AttemptSummary]) -> tuple[AttemptSummary, ...]:
    """Return the history with nothing but the kind of the last failure."""
    return _with_summary(prior, NO_SUMMARY_TEXT)


def with_every_failure(prior: Sequence[AttemptSummary]) -> tuple[AttemptSummary, ...]:
    """Return the history whose last summary begins with a line per attempt before that."""
    lines = [
        f"Attempt {one.attempt} ({one.failure_kind.value}): {_first_line(one)}"
        for one in prior[:-1]
    ]
    return _with_summary(prior, "\n".join([*lines, prior[-1].prior_failure_summary]))


def _first_line(one: AttemptSummary) -> str:
    return one.prior_failure_summary.strip().partition("\n")[0][:_LINE_CHARS]


@dataclass
class BestCandidate:
    """A history that shows the best answer so far, and how it failed.

    The best one failed the fewest gates; one without a patch, which no gate judged, is the worst; of
    equals the latest. ``answers``: of each attempt, the last one that ``model`` gave.
    """

    model: CachedModel
    answers: dict[int, str] = field(default_factory=dict)

    def __call__(self, prior: Sequence[AttemptSummary]) -> tuple[AttemptSummary, ...]:
        """Return the history, with answer and summary of the best attempt in place of the last summary."""
        self.answers[prior[-1].attempt] = self.model.used[-1].text

        def distance(one: AttemptSummary) -> tuple[bool, int, int]:
            return not one.failing_gates, len(one.failing_gates), -one.attempt

        best = min(prior, key=distance)
        answer = self.answers[best.attempt].strip()
        text = f"The best answer so far:\n{answer}\n\nIt failed:\n{best.prior_failure_summary}"
        return _with_summary(prior, text)


@dataclass
class FailedLogs:
    """Gates that are watched for the log of the one that failed last."""

    last: GateVerdict | None = None

    def watched(self, gate: Gate) -> Gate:
        """Return the gate, watched."""
        return _Watched(gate, self)

    def __call__(self, prior: Sequence[AttemptSummary]) -> Sequence[AttemptSummary]:
        """Return the history with the end of that log in place of the last summary. An attempt without a
        patch, which no gate judged, keeps its summary."""
        verdict, self.last = self.last, None
        if verdict is None or not prior[-1].failing_gates:
            return prior
        end = clean(verdict.log)[-LOG_CHARS:]
        return _with_summary(prior, f"Gate {verdict.gate} failed. The end of its log:\n{end}")


@dataclass(frozen=True)
class _Watched:
    gate: Gate
    logs: FailedLogs

    @property
    def name(self) -> str:
        """Return the gate's name."""
        return self.gate.name

    def judge(self, context: GateContext) -> GateVerdict:
        """As the gate; a failure is noted. Raises SandboxError, ToolError."""
        verdict = self.gate.judge(context)
        if verdict.status is GateStatus.FAILED:
            self.logs.last = verdict
        return verdict


def tier_for(
    policy: Policy,
    product: FallbackTier,
    plugins: Mapping[str, EcosystemPlugin],
    model: CachedModel,
    nonces: NonceSource,
    memory: SolvedExampleRetriever | None,
    logs: FailedLogs,
) -> FallbackTier:
    """Return the tier of a policy, made of the product's parts, with that memory. ``logs``: those of the
    gates that judge it."""
    leaf = product.parts.leaf
    if leaf is None:
        raise AssertionError("a model is configured")
    # Held to the form of an answer, as the product holds a server that it starts (ADR-0045).
    leaf = replace(leaf, held_author=True)
    kind: type[FallbackTier] = FallbackTier
    match policy:
        case Policy.FRESH_CONTEXT:
            pass
        case Policy.FULL_CHAIN:
            kind, leaf = FullChainTier, replace(leaf, prompts=OtherHistory(nonces, same_history))
        case Policy.EXCLUDE_PRIOR_HIT:
            kind, leaf = (
                OtherExamplesTier,
                replace(leaf, prompts=OtherHistory(nonces, same_history)),
            )
        case Policy.CONVERSATION:
            leaf = replace(leaf, prompts=ContinuedConversation(nonces, model))
        case Policy.RESAMPLE:
            first_again = OtherHistory(nonces, lambda _: ())
            kind, leaf = FullChainTier, replace(leaf, prompts=first_again)
        case Policy.NO_SUMMARY:
            leaf = replace(leaf, prompts=OtherHistory(nonces, without_summary))
        case Policy.EVERY_FAILURE:
            leaf = replace(leaf, prompts=OtherHistory(nonces, with_every_failure))
        case Policy.BEST_CANDIDATE:
            leaf = replace(leaf, prompts=OtherHistory(nonces, BestCandidate(model)))
        case Policy.LOG_TAIL:
            leaf = replace(leaf, prompts=OtherHistory(nonces, logs))
        case Policy.FIRST_WITHOUT | Policy.FIRST_RETRIEVED | Policy.FIRST_JSON:
            kind = OneAttemptTier
    parts = product.parts
    return kind(
        plugins={
            name: cast("EcosystemPlugin", StudyInstruction(plugin))
            for name, plugin in plugins.items()
        },
        retriever=memory,
        leaf=leaf,
        audit=parts.audit,
        evidence=parts.evidence,
    )
