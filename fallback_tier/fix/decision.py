"""The decision after an attempt's verdicts: pass, retry from a fresh context, refuse, or ask a person.

Pure: the runner records a decision and carries it out.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from fallback_audit.events import Digest
from fallback_audit.vocabulary import (
    PROOF_GATE,
    SHOWING_GATES,
    TESTS_GATE,
    AffectedCode,
    EscalationReason,
    FailureKind,
    GateStatus,
    RefusalReason,
    Tier,
)
from fallback_tier.budget.meter import how_to_go_on, reached_in_words
from fallback_tier.fix.steps import FixProgress
from fallback_tier.gates.failure_summary.distill import distill, failure_signature, what_failed
from fallback_tier.limits import MAX_RETRIES
from fallback_tier.outcome import (
    TRIED_HEADING,
    Applied,
    AttemptSummary,
    Refused,
    StepDeclined,
    UnreadItem,
)
from fallback_tier.prompt.redact import redact_secrets

#: Three identical failure signatures: a fourth attempt would learn nothing new (ADR-0014).
SAME_FAILURE_LIMIT = 3


#: How many tests may contradict a correct fix. Of 44 published fixes four did, with one or two tests each
#: (docs/evaluation/own-code/report.md); a patch that breaks more has broken what they test.
_FEW_TESTS = 3

#: An error of a test which shows that the patch has a mistake, whatever the test asserts.
_MISTAKE = re.compile(
    r"\b(?:Name|UnboundLocal|Attribute|Type|Import|ModuleNotFound|Syntax|Indentation|Reference|Recursion)"
    r"Error\b"
)

#: How many characters of a failure's summary a question quotes: the gate, the first assertions and the
#: patch's lines fit.
_MAX_LAST_WORDS = 700

#: How many tests a question names; the record has all of them.
_NAMED_TESTS = 20


@dataclass(frozen=True)
class EndVerified:
    """The end if every gate that ran passed, and one of them saw that the vulnerability is gone."""

    application: Applied
    gates_passed: tuple[str, ...]
    gates_skipped: tuple[str, ...]


@dataclass(frozen=True)
class EndPatched:
    """The end if every gate that ran passed, including the base commit's tests, but none shows that the
    vulnerability is gone."""

    application: Applied
    gates_passed: tuple[str, ...]
    gates_skipped: tuple[str, ...]


@dataclass(frozen=True)
class EndRefused:
    """The end if no patch is possible. ``unread``: the sources that were not read, if the reason is
    UNKNOWN; ``declined``: the recipe's steps that did not work."""

    reason: RefusalReason
    sentence: str
    unread: tuple[UnreadItem, ...] = ()
    declined: tuple[StepDeclined, ...] = ()


@dataclass(frozen=True)
class EndEscalated:
    """The end if a person must decide."""

    reason: EscalationReason
    question: str


@dataclass(frozen=True)
class Failure:
    """A failed attempt. ``then`` is None for a retry, otherwise the end that replaces it."""

    summary: AttemptSummary
    signature: Digest
    then: EndEscalated | EndRefused | None


#: The next step if several fixes are not proved in one patch.
IN_PARTS = "They are to be proved in smaller parts."

EndDecision = EndVerified | EndPatched | EndRefused | EndEscalated
Decision = EndDecision | Failure


def decide(
    state: FixProgress,
    fix_id: str,
    code: AffectedCode = AffectedCode.DEPENDENCY,
    *,
    recalls: bool = False,
    divisible: bool = False,
) -> Decision:
    """Decide by a strict AND of objective signals. The state must have an application with its verdicts.

    ``fix_id``: the identifier in commands that a question suggests; ``code``: whose code is affected;
    ``recalls``: a failure's summary has a line for each attempt before it; ``divisible``: a patch that
    gates refuse is proved in smaller parts (ADR-0051), without a retry or a question.
    """
    match _decide(state, fix_id, code, recalls=recalls):
        case Failure() as failure if divisible:
            return replace(failure, then=_apart(f"failed: {_cut(what_failed(failure.summary))}"))
        case EndEscalated(reason=EscalationReason.NOTHING_PROVED) if divisible:
            return _apart("could not be proved by any gate: each was skipped.")
        case EndEscalated(reason=EscalationReason.GATES_UNDECIDED) if divisible:
            return _apart(f"could not be decided about by {_cut(_undecided(state))}.")
        case EndEscalated() as escalation:
            return with_command(escalation, fix_id)
        case Failure(then=EndEscalated() as escalation) as failure:
            return replace(failure, then=with_command(escalation, fix_id))
        case decision:
            return decision


def _apart(ending: str) -> EndRefused:
    """Return the refusal of several fixes in one patch, which are then proved in smaller parts."""
    sentence = f"In one patch these fixes {ending} {IN_PARTS}"
    return EndRefused(RefusalReason.FAILS_TOGETHER, sentence)


def how_to_answer(fix_id: str) -> str:
    """Return the sentence with the command that answers a question."""
    return f"`fallback-tier review show {fix_id}` shows what was tried, and how to answer."


def with_command(escalation: EndEscalated, fix_id: str) -> EndEscalated:
    """Return the question with the command that answers it; one about the budget has its own."""
    if escalation.reason is EscalationReason.BUDGET_EXHAUSTED:
        return escalation
    return replace(escalation, question=f"{escalation.question} {how_to_answer(fix_id)}")


def _decide(state: FixProgress, fix_id: str, code: AffectedCode, *, recalls: bool) -> Decision:
    application = state.application
    if application is None:
        raise AssertionError("a decision follows an attempt")
    if isinstance(application, Refused):
        if application.reason.is_attempt_failure:
            return _failure(state, application, code, recalls=recalls)
        return _refusal(state, application, fix_id)
    if state.gates_with(GateStatus.FAILED):
        return _failure(state, application, code, recalls=recalls)
    if state.gates_with(GateStatus.UNDECIDED):
        return EndEscalated(
            EscalationReason.GATES_UNDECIDED,
            f"No gate failed this patch, but it is not known to be right: by {_cut(_undecided(state))}. "
            "Is it right? Approve it, or repair what prevents the comparison and have the gates run again.",
        )
    passed, skipped = state.gates_with(GateStatus.PASSED), state.gates_with(GateStatus.SKIPPED)
    if not SHOWING_GATES[code].isdisjoint(passed):
        return EndVerified(application, passed, skipped)
    if TESTS_GATE in passed:
        return EndPatched(application, passed, skipped)
    return EndEscalated(
        EscalationReason.NOTHING_PROVED,
        "The patch applies, but no gate could prove it: each was skipped. Review it by hand, or "
        "give the repository a test that shows the vulnerability.",
    )


def _undecided(state: FixProgress) -> str:
    """Return the undecided gates, each with its reason, as text."""
    verdicts = (verdict for verdict in state.verdicts if verdict.status is GateStatus.UNDECIDED)
    return "; ".join(f"gate {verdict.gate}: {verdict.detail}" for verdict in verdicts)


def _refusal(state: FixProgress, refused: Refused, fix_id: str) -> Decision:
    if refused.reason is RefusalReason.MODEL_UNAVAILABLE:
        return EndEscalated(EscalationReason.MODEL_UNAVAILABLE, refused.sentence)
    if refused.reason is RefusalReason.BUDGET_EXHAUSTED:
        question = refused.sentence
        if state.reached is not None:
            question = f"{reached_in_words(state.reached)} {how_to_go_on(state.reached, fix_id)}"
        return EndEscalated(EscalationReason.BUDGET_EXHAUSTED, question)
    if state.prior_attempts:
        return _contradiction(_own_attempts(state)) or EndEscalated(
            EscalationReason.RETRY_REFUSED,
            f"{len(state.prior_attempts)} attempt(s) failed, and the next gave no patch: "
            f"{refused.sentence} {_last_words(state.prior_attempts[-1])}",
        )
    return EndRefused(refused.reason, refused.sentence, refused.unread, refused.declined)


def _failure(
    state: FixProgress, application: Applied | Refused, code: AffectedCode, *, recalls: bool
) -> Failure:
    if state.failed is not None:  # recorded by an interrupted run: the same decision follows
        return Failure(*state.failed, _instead_of_a_retry(state, *state.failed, code))
    distilled = distill(
        state.verdicts,
        application=application,
        attempt=application.attempt,
        earlier=state.prior_attempts if recalls else (),
    )
    # Redacted before it is signed, stored or passed on: a target's log may contain secrets.
    text, _ = redact_secrets(distilled.prior_failure_summary)
    # If no proof passed, failing tests show a mistake in the patch.
    is_proved = PROOF_GATE in state.gates_with(GateStatus.PASSED)
    contradicting = _broken_tests(state) if is_proved else ()
    summary = distilled.model_copy(
        update={"prior_failure_summary": text, "contradicting_tests": contradicting}
    )
    signature = failure_signature(summary)
    return Failure(summary, signature, _instead_of_a_retry(state, summary, signature, code))


def _instead_of_a_retry(
    state: FixProgress, summary: AttemptSummary, signature: Digest, code: AffectedCode
) -> EndEscalated | None:
    """Return the question that ends the fix, or None if it is retried."""
    earlier_attempts = _own_attempts(state)
    attempts = (*earlier_attempts, summary)
    contradicted = _contradicted(earlier_attempts)
    # A person who reopened the fix has seen these tests, and has asked for another patch.
    is_answered = bool(_contradicted(state.prior_attempts) & {*summary.contradicting_tests})
    is_new = code is AffectedCode.OWN and _only_contradicts(summary) and not is_answered
    if is_new or not contradicted.isdisjoint(summary.contradicting_tests):
        # The vulnerability is gone and only tests object: a patch that satisfies them may bring it back.
        return _contradiction((summary,))
    signatures = (*state.signatures, signature)
    how = ", ".join(summary.failing_gates) or summary.failure_kind.value
    if broken := _broken_tests(state):
        how += f": {_some(broken)}"
    if state.recorded is not None:
        return _contradiction(attempts) or EndEscalated(
            EscalationReason.GATES_FAILED_AGAIN,
            f"The gates were run again on the patch of attempt {summary.attempt}, and it failed at {how}. "
            "Is the patch wrong, or still the gate?",
        )
    if len(state.prior_attempts) + 1 > MAX_RETRIES:
        return _contradiction(attempts) or EndEscalated(
            EscalationReason.RETRY_CAP_REACHED,
            f"{len(state.prior_attempts) + 1} attempts failed, the last one at {how}. Fix it by hand, "
            "or reopen it, to start again with what is known now?",
        )
    if len(signatures) >= SAME_FAILURE_LIMIT and len(set(signatures[-SAME_FAILURE_LIMIT:])) == 1:
        return _contradiction(attempts) or EndEscalated(
            EscalationReason.SAME_FAILURE_REPEATED,
            f"{SAME_FAILURE_LIMIT} attempts failed in the same way ({how}). What is missing?",
        )
    is_same_answer = signatures[-2:] == (signature, signature)
    if summary.failure_kind is FailureKind.REPEATED_PATCH or (
        summary.failure_kind is FailureKind.PLAN_INVALID and is_same_answer
    ):
        return _contradiction(attempts) or EndEscalated(
            EscalationReason.RETRY_REFUSED,
            f"The model repeats itself, so it is not asked again. {_last_words(summary)}",
        )
    return None


def _only_contradicts(summary: AttemptSummary) -> bool:
    """Return whether a model's patch passes the proof and only a few tests fail, by what they assert. A
    retrieved patch was written for other code (ADR-0011)."""
    tests = {name.partition("[")[0] for name in summary.contradicting_tests}
    failure = summary.prior_failure_summary.partition(f"\n{TRIED_HEADING}")[0]
    return (
        summary.tier is Tier.LLM
        and 0 < len(tests) <= _FEW_TESTS
        and summary.failing_gates == (TESTS_GATE,)
        and _MISTAKE.search(failure) is None
    )


def _contradicted(attempts: Sequence[AttemptSummary]) -> set[str]:
    return {name for attempt in attempts for name in attempt.contradicting_tests}


def _broken_tests(state: FixProgress) -> tuple[str, ...]:
    """Return the tests that pass at the base commit and fail with the current patch."""
    failures = (verdict for verdict in state.verdicts if verdict.status is GateStatus.FAILED)
    return tuple(
        name for verdict in failures if verdict.gate == TESTS_GATE for name in verdict.broken
    )


def _own_attempts(state: FixProgress) -> tuple[AttemptSummary, ...]:
    """Return the attempts without the one that a reopened transition began with (its question is
    answered)."""
    count = len(state.signatures)
    return state.prior_attempts[len(state.prior_attempts) - count :]


def _contradiction(attempts: Sequence[AttemptSummary]) -> EndEscalated | None:
    """Return the question about the last attempt that only tests contradict, or None. A fix may have to
    change a test that asserts the vulnerability, but no patch may: a person decides."""
    attempt = next(
        (candidate for candidate in reversed(attempts) if candidate.contradicting_tests), None
    )
    if attempt is None:
        return None
    return EndEscalated(
        EscalationReason.TESTS_CONTRADICT_PATCH,
        f"The proof passes with the patch of attempt {attempt.attempt}, but tests that pass at the base "
        f"commit fail with it: {_some(attempt.contradicting_tests)}. If they assert what the advisory "
        "calls "
        "the flaw, the patch is right and the tests must change with it; else it broke what they test.",
    )


def _last_words(attempt: AttemptSummary) -> str:
    """Return an attempt's failure and what it tried, on one line, for the person who is asked."""
    return _cut(" ".join(attempt.prior_failure_summary.split()))


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_LAST_WORDS else f"{text[:_MAX_LAST_WORDS]} …"


def _some(names: Sequence[str]) -> str:
    """Return as many names as a question has room for."""
    more = f" and {len(names) - _NAMED_TESTS} more" if len(names) > _NAMED_TESTS else ""
    return f"{', '.join(names[:_NAMED_TESTS])}{more}"
