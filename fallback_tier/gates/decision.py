"""What follows from an attempt's verdicts: pass, retry from a fresh context, refuse, or ask a person.

Pure: the runner records and carries out what is decided here.
"""

from dataclasses import dataclass

from fallback_audit.events import Digest
from fallback_audit.vocabulary import EscalationReason, GateStatus, RefusalReason
from fallback_tier.budget.meter import reached_in_words
from fallback_tier.gates.distill import distill, failure_signature
from fallback_tier.gates.resume import how_to_go_on
from fallback_tier.gates.steps import FixState
from fallback_tier.limits import MAX_RETRIES
from fallback_tier.outcome import Applied, AttemptSummary, Refused
from fallback_tier.prompt.redact import redact_secrets

#: Three identical failure signatures: a fourth attempt would learn nothing new (DESIGN §7).
SAME_FAILURE_LIMIT = 3

#: Gates whose pass proves something about the fix; the others only say that the patch is well-formed.
PROVING_GATES = frozenset({"not_vulnerable", "tests", "proof"})


@dataclass(frozen=True)
class Pass:
    """Every gate that ran passed, at least one of them a proof."""

    application: Applied
    gates_passed: tuple[str, ...]
    gates_skipped: tuple[str, ...]


@dataclass(frozen=True)
class Refuse:
    """No patch can be had."""

    reason: RefusalReason
    sentence: str


@dataclass(frozen=True)
class Ask:
    """A person must decide."""

    reason: EscalationReason
    question: str


@dataclass(frozen=True)
class Failure:
    """The attempt failed. ``then`` is None for a retry, or why there is none."""

    summary: AttemptSummary
    signature: Digest
    then: Ask | None


Decision = Pass | Refuse | Ask | Failure


def decide(state: FixState, fix_id: str) -> Decision:
    """Strict AND of objective signals. The state must hold an application with its verdicts.

    ``fix_id`` is what a person is told to name who wants the fix to go on.
    """
    application = state.application
    if application is None:
        raise AssertionError("a decision follows an attempt")
    if isinstance(application, Refused):
        if application.reason.is_attempt_failure:
            return _failure(state, application)
        return _refusal(state, application, fix_id)
    if state.gates_with(GateStatus.FAILED):
        return _failure(state, application)
    passed = state.gates_with(GateStatus.PASSED)
    if PROVING_GATES.isdisjoint(passed):
        return Ask(
            EscalationReason.NOTHING_PROVED,
            "The patch applies, but no gate could prove it: each was skipped. Review it by hand, or "
            "give the repository a test that shows the vulnerability.",
        )
    return Pass(application, passed, state.gates_with(GateStatus.SKIPPED))


def _refusal(state: FixState, refused: Refused, fix_id: str) -> Decision:
    if refused.reason is RefusalReason.MODEL_UNAVAILABLE:
        return Ask(EscalationReason.MODEL_UNAVAILABLE, refused.sentence)
    if refused.reason is RefusalReason.BUDGET_EXHAUSTED:
        question = refused.sentence
        if state.reached is not None:
            question = f"{reached_in_words(state.reached)} {how_to_go_on(state.reached, fix_id)}"
        return Ask(EscalationReason.BUDGET_EXHAUSTED, question)
    if state.prior_attempts:
        return Ask(
            EscalationReason.RETRY_REFUSED,
            f"{len(state.prior_attempts)} attempt(s) failed, and the next gave no patch: "
            f"{refused.sentence}",
        )
    return Refuse(refused.reason, refused.sentence)


def _failure(state: FixState, application: Applied | Refused) -> Failure:
    distilled = distill(state.verdicts, application=application, attempt=application.attempt)
    # Before it is signed, stored or handed on: a target's log may print what nobody should keep.
    text, _ = redact_secrets(distilled.prior_failure_summary)
    summary = distilled.model_copy(update={"prior_failure_summary": text})
    signature = failure_signature(summary)
    signatures = (*state.signatures, signature)
    how = ", ".join(summary.failing_gates) or summary.failure_kind.value
    then = None
    if len(state.prior_attempts) + 1 > MAX_RETRIES:
        then = Ask(
            EscalationReason.RETRY_CAP_REACHED,
            f"{len(state.prior_attempts) + 1} attempts failed, the last one at {how}. Fix it by hand, "
            "or open a new gate transition with what is known now?",
        )
    elif len(signatures) >= SAME_FAILURE_LIMIT and len(set(signatures[-SAME_FAILURE_LIMIT:])) == 1:
        then = Ask(
            EscalationReason.SAME_FAILURE_REPEATED,
            f"{SAME_FAILURE_LIMIT} attempts failed in the same way ({how}). What is missing?",
        )
    return Failure(summary, signature, then)
