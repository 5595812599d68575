"""One case: a task, a policy and a seed, through the product's own loop of attempts and gates."""

import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from fallback_audit.events import AttemptFailed, Digest, PatchProposed
from fallback_audit.frozen import Frozen
from fallback_audit.ports import StoredEvent
from fallback_audit.vocabulary import AffectedCode, EscalationReason, FailureKind, GateStatus
from fallback_eval.fixes.runs import facts_of
from fallback_eval.retrieval.results import EvaluationError
from fallback_eval.retry.calls import CachedModel, Calls, Sampling, Server
from fallback_eval.retry.policies import (
    FIRST_ATTEMPTS,
    FailedLogs,
    OneExample,
    Policy,
    tier_for,
)
from fallback_eval.retry.tasks import Task
from fallback_plugins.solved_examples.search.retriever import SolvedExampleIndex
from fallback_plugins.solved_examples.search.settings import RetrievalSettings
from fallback_plugins.solved_examples.store.example_store import ExampleStore
from fallback_tier.fix.open_fix import run_fix
from fallback_tier.fix.parts import check_proof_fails, fix_parts
from fallback_tier.fix_result import Escalated
from fallback_tier.gate_ports import Gate, GateContext, GateVerdict, skipped
from fallback_tier.gates.builtin.proof import ProofGate
from fallback_tier.ports import NonceSource, SolvedExampleRetriever
from fallback_tier.repo import AnswerForm, Settings
from fallback_tier.wiring import Configuration, RecordSettings, Services, open_services
from fallback_tier.wiring.trail import OnViolation

#: Longest answer. A whole function with its block and rationale has some 250 tokens; a model that repeats
#: itself would write on for minutes.
MAX_OUTPUT_TOKENS: Final = 320

#: Code in a prompt, so that a prompt of a first attempt has at most 1,500 tokens with its example.
CODE_BYTES: Final = 1_400

#: Words of hexadecimal letters. A nonce stands in a prompt some ten times, and one made of these has half
#: the tokens of a random one.
_WORDS: Final = ("beef", "bead", "cafe", "dead", "deed", "face", "fade", "feed")
_NONCE_WORDS: Final = 8

#: Ends that say something of this machine, and nothing of a policy.
_OUTAGES: Final = frozenset(
    {EscalationReason.MODEL_UNAVAILABLE, EscalationReason.GATE_INFRASTRUCTURE}
)


@dataclass(frozen=True)
class RetryCase:
    """A task, a policy and a seed. ``others``: tasks whose true fixes are the memory of the policy that
    retrieves from one."""

    task: Task
    policy: Policy
    seed: int
    others: tuple[Task, ...] = ()

    @property
    def name(self) -> str:
        """Return ``TASK.POLICY.SEED``."""
        return f"{self.task.name}.{self.policy.value}.{self.seed}"


class Attempt(Frozen):
    """One attempt. ``edits``: digest of its edits, None without a patch; ``signature``: of its failure,
    None if it passed; ``rejected``: answers that were no valid or no new plan."""

    failure_kind: FailureKind | None = None
    failing_gates: tuple[str, ...] = ()
    edits: Digest | None = None
    signature: Digest | None = None
    rejected: int = 0
    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0


class Row(Frozen):
    """What became of a case. ``stricter``: the hidden checks of a patch that passed its gates; None:
    there is none. ``model_seconds``: what the server took, also where the answers were kept already;
    ``seconds``: of this run."""

    task: str
    policy: Policy
    seed: int
    task_sha256: Digest
    model: str
    outcome: str
    reason: str = ""
    stricter: bool | None = None
    attempts: tuple[Attempt, ...] = ()
    calls: tuple[Digest, ...] = ()
    model_seconds: float
    seconds: float

    @property
    def name(self) -> str:
        """Return its case's name."""
        return f"{self.task}.{self.policy.value}.{self.seed}"

    @property
    def fixed_at(self) -> int | None:
        """Return the number of the attempt that passed its gates."""
        return len(self.attempts) if self.outcome == "verified" else None

    @property
    def is_first_try(self) -> bool:
        """Return whether the first attempt passed."""
        return self.fixed_at == 1


@dataclass
class HiddenChecks:
    """A gate that decides nothing: it notes whether the hidden checks pass, last in line, where every other
    gate has passed."""

    checks: ProofGate
    name: str = "hidden"
    passes: bool | None = field(default=None)

    def judge(self, context: GateContext) -> GateVerdict:
        """Skipped, always. Raises SandboxError, ToolError."""
        verdict = self.checks.judge(context)
        self.passes = verdict.status is GateStatus.PASSED
        return skipped(self.name, "these checks decide nothing")


@dataclass(frozen=True)
class Setup:
    """What all cases share. ``server`` None: kept answers alone."""

    model: str
    calls: Calls
    server: Server | None = None
    sampling: Sampling = field(default_factory=Sampling)


def run_case(case: RetryCase, setup: Setup) -> Row:
    """Run one case. Raises EvaluationError where model or gates could not be reached (no result: run it
    again), SandboxError, ProofError, ToolError."""
    began = time.monotonic()
    model = CachedModel(setup.model, setup.calls, setup.server, setup.sampling, case.seed)
    with TemporaryDirectory(prefix="fallback-tier-retry-", ignore_cleanup_errors=True) as name:
        root = Path(name).resolve()
        configuration = Configuration(
            state_dir=root / "state",
            # Other policies break the trace contract, which says that a retry retrieves nothing.
            record=RecordSettings(on_violation=OnViolation.FLAG),
            proof=case.task.proof_of(case.task.proof, "proof"),
            settings=Settings(
                max_output_tokens=MAX_OUTPUT_TOKENS,
                own_code_budget_bytes=CODE_BYTES,
                answer_form=_answer_form(case.policy),
                # Known beforehand: the manifest need not name the package, and takes no room in a prompt.
                whose_code=AffectedCode.OWN,
            ),
        )
        with open_services(configuration, nonces=_nonces(case), author=model) as services:
            row = _run(case, services, model, root / case.task.package)
    spent = round(sum(call.seconds for call in model.used), 1)
    return row.model_copy(
        update={"model_seconds": spent, "seconds": round(time.monotonic() - began, 1)}
    )


def _run(case: RetryCase, services: Services, model: CachedModel, place: Path) -> Row:
    task = case.task
    task.commit_to(place, services.clients)
    inputs = services.inputs(task.as_advisory(), place)
    parts = fix_parts(services, inputs.advisory, lambda _event: None, repo=inputs.repo_ctx)
    hidden = HiddenChecks(
        ProofGate(
            task.proof_of(task.hidden, "hidden"), services.plugin_for(inputs.advisory), "hidden"
        )
    )
    logs = FailedLogs()
    gates: Sequence[Gate] = (*map(logs.watched, parts.gates), hidden)
    memory = _memory(case, place.parent / "memory.db")
    tier = tier_for(
        case.policy, services.tier, services.plugins, model, _nonces(case), memory, logs
    )
    failure = check_proof_fails(replace(parts, tier=tier), inputs, lambda _: None)
    repo = inputs.repo_ctx.model_copy(update={"proof_failure": failure})
    parts = replace(parts, gates=gates, tier=tier)
    result = run_fix(parts, inputs.advisory, repo, inputs.recipe_selection)
    if isinstance(result, Escalated) and result.reason in _OUTAGES:
        raise EvaluationError(
            f"{case.name} could not be run to its end: {result.question}",
            next_step="Repair this and run it again: what is done already is not done twice.",
        )
    return _row(case, tuple(services.audit.events(result.fix_id)), model, hidden.passes)


def _row(
    case: RetryCase, trail: Sequence[StoredEvent], model: CachedModel, stricter: bool | None
) -> Row:
    events = [stored.payload for stored in trail]
    facts = facts_of(events)
    edits = {one.attempt: one.edit_digest for one in events if isinstance(one, PatchProposed)}
    failed = {one.attempt: one for one in events if isinstance(one, AttemptFailed)}
    attempts = []
    # A retry that the policy refuses is on record as an attempt.
    for one in facts.attempts[: 1 if case.policy in FIRST_ATTEMPTS else None]:
        calls = [call for call in facts.calls if call.attempt == one.attempt]
        attempts.append(
            Attempt(
                failure_kind=one.failure_kind,
                failing_gates=one.failing_gates,
                edits=edits.get(one.attempt),
                signature=failed[one.attempt].failure_signature if one.attempt in failed else None,
                rejected=len(one.rejected),
                calls=len(calls),
                input_tokens=sum(call.input_tokens for call in calls),
                output_tokens=sum(call.output_tokens for call in calls),
            )
        )
    return Row(
        task=case.task.name,
        policy=case.policy,
        seed=case.seed,
        task_sha256=case.task.digest,
        model=model.model,
        outcome=facts.outcome,
        reason=facts.reason,
        stricter=stricter if facts.outcome == "verified" else None,
        attempts=tuple(attempts),
        calls=tuple(call.key for call in model.used),
        model_seconds=0,
        seconds=0,
    )


def _answer_form(policy: Policy) -> AnswerForm:
    return AnswerForm.JSON if policy is Policy.FIRST_JSON else AnswerForm.BLOCKS


def _memory(case: RetryCase, path: Path) -> SolvedExampleRetriever | None:
    """The memory of a case: its decoy, none, or the true fixes of other tasks, searched by words (vectors
    would need a second model) for one example, as many as a decoy is."""
    if case.policy is Policy.FIRST_WITHOUT:
        return None
    if case.policy is not Policy.FIRST_RETRIEVED:
        return OneExample(case.task.example())
    store = ExampleStore(path)
    store.ingest(one.solved() for one in case.others if one.name != case.task.name)
    return SolvedExampleIndex(store, embedder=None, settings=RetrievalSettings(k=1))


def _nonces(case: RetryCase) -> NonceSource:
    """The fences' nonce of a case. It depends on task and seed alone: policies share first prompts. It
    stays the same in all attempts, so that a server knows a retry's beginning.
    """
    drawn = hashlib.sha256(f"{case.task.name} {case.seed}".encode()).digest()
    nonce = "".join(_WORDS[byte % len(_WORDS)] for byte in drawn[:_NONCE_WORDS])
    return lambda: nonce
