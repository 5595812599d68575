"""What verdicts end in: shown, only tested, or a question about tests that stand against a patch."""

from dataclasses import replace

import pytest

from fallback_audit.vocabulary import (
    AffectedCode,
    EscalationReason,
    FailureKind,
    GateStatus,
    PromptShape,
    ProofLevel,
    RefusalReason,
    Tier,
)
from fallback_tier.fix.decision import (
    Decision,
    EndEscalated,
    EndPatched,
    EndRefused,
    EndVerified,
    Failure,
    decide,
)
from fallback_tier.fix.steps import FixProgress
from fallback_tier.gate_ports import GateVerdict, undecided
from fallback_tier.outcome import Applied, AttemptSummary, Refused

DIGEST = "a" * 64
PATCH = Applied(
    attempt=1,
    prompt_shape=PromptShape.INITIAL,
    tier=Tier.LLM,
    diff="+x",
    patch_sha256=DIGEST,
    edit_digest=DIGEST,
    files=("lib.py",),
    proof_level=ProofLevel.SOURCE,
)
UNDECIDED = undecided("tests", "on another Python than at the base commit")
OWN, DEPENDENCY = AffectedCode.OWN, AffectedCode.DEPENDENCY


def verdict(
    gate: str, *, broken: tuple[str, ...] = (), passed: bool = True, log: str = ""
) -> GateVerdict:
    if broken:
        kind, status = FailureKind.TESTS_FAILED, GateStatus.FAILED
        return GateVerdict(
            gate=gate, status=status, failure_kind=kind, detail="", broken=broken, log=log
        )
    status = GateStatus.PASSED if passed else GateStatus.SKIPPED
    return GateVerdict(gate=gate, status=status, detail="")


def failed(attempt: int, *tests: str) -> AttemptSummary:
    return AttemptSummary(
        attempt=attempt,
        tier=Tier.LLM,
        failing_gates=("tests",),
        failure_kind=FailureKind.TESTS_FAILED,
        prior_failure_summary="",
        contradicting_tests=tests,
    )


def decided(
    *verdicts: GateVerdict, code: AffectedCode = OWN, prior: tuple[AttemptSummary, ...] = ()
) -> Decision:
    number = prior[-1].attempt + 1 if prior else 1
    patch = PATCH.model_copy(update={"attempt": number})
    signatures = tuple(f"{one.attempt:x}" * 64 for one in prior)
    state = FixProgress(
        prior_attempts=prior, signatures=signatures, application=patch, verdicts=verdicts
    )
    return decide(state, "fix-1", code)


@pytest.mark.parametrize("code", AffectedCode)
def test_passing_tests_alone_are_no_proof(code: AffectedCode) -> None:
    assert isinstance(decided(verdict("applies"), verdict("tests"), code=code), EndPatched)


def test_a_proof_shows_the_flaw_gone_in_whosever_code() -> None:
    for code in (OWN, DEPENDENCY):
        end = decided(verdict("proof"), verdict("tests"), code=code)
        assert isinstance(end, EndVerified)
        assert end.gates_passed == ("proof", "tests")


def test_versions_show_something_of_a_dependency_alone() -> None:
    assert isinstance(decided(verdict("not_vulnerable"), code=DEPENDENCY), EndVerified)
    assert isinstance(decided(verdict("not_vulnerable"), verdict("tests"), code=OWN), EndPatched)


def test_without_any_word_on_it_a_person_is_asked() -> None:
    end = decided(verdict("applies"), verdict("tests", passed=False))
    assert isinstance(end, EndEscalated)
    assert end.reason is EscalationReason.NOTHING_PROVED


@pytest.mark.parametrize("code", AffectedCode)
def test_what_a_gate_could_not_decide_is_a_persons_question_whatever_else_passed(
    code: AffectedCode,
) -> None:
    end = decided(verdict("not_vulnerable"), verdict("proof"), UNDECIDED, code=code)
    assert isinstance(end, EndEscalated)
    assert end.reason is EscalationReason.GATES_UNDECIDED
    assert "gate tests: on another Python" in end.question
    assert "fallback-tier review show fix-1" in end.question


def test_what_a_gate_failed_fails_whatever_another_could_not_decide() -> None:
    end = decided(UNDECIDED, verdict("tests", broken=("t.py::a",)))
    assert isinstance(end, Failure)
    assert end.then is None


def test_undecided_in_one_patch_several_fixes_are_proved_apart() -> None:
    state = FixProgress(application=PATCH, verdicts=(verdict("not_vulnerable"), UNDECIDED))
    end = decide(state, "fix-1", DEPENDENCY, divisible=True)
    assert isinstance(end, EndRefused)
    assert end.reason is RefusalReason.FAILS_TOGETHER


def test_a_proved_patch_that_only_a_few_tests_object_to_is_a_question_at_once() -> None:
    log = "FAILED t.py::a[1] - AssertionError: assert 1 == 2\n"
    broken = ("t.py::a[1]", "t.py::a[2]", "t.py::b", "t.py::c")
    end = decided(verdict("proof"), verdict("tests", broken=broken, log=log))
    assert isinstance(end, Failure)
    assert end.then is not None
    assert end.then.reason is EscalationReason.TESTS_CONTRADICT_PATCH
    assert "attempt 1" in end.then.question
    assert end.summary.contradicting_tests == broken


MISTAKE = "FAILED t.py::a - NameError: name 'clean' is not defined\n"
FOUR = ("t.py::a", "t.py::b", "t.py::c", "t.py::d")


@pytest.mark.parametrize(
    ("verdicts", "code"),
    [
        pytest.param((verdict("proof"), verdict("tests", broken=FOUR)), OWN, id="many tests"),
        pytest.param(
            (verdict("proof"), verdict("tests", broken=("t.py::a",), log=MISTAKE)),
            OWN,
            id="a mistake in the patch",
        ),
        pytest.param(
            (
                verdict("proof"),
                verdict("tests", broken=("t.py::a",)),
                verdict("own", broken=("t.py::z",)),
            ),
            OWN,
            id="another gate fails too",
        ),
        pytest.param((verdict("tests", broken=("t.py::a",)),), OWN, id="no proof"),
        pytest.param(
            (verdict("proof"), verdict("tests", broken=("t.py::a",))),
            DEPENDENCY,
            id="callers of a new version are to be edited",
        ),
    ],
)
def test_a_first_patch_that_may_have_broken_something_is_tried_again(
    verdicts: tuple[GateVerdict, ...], code: AffectedCode
) -> None:
    end = decided(*verdicts, code=code)
    assert isinstance(end, Failure)
    assert end.then is None


def test_tests_that_a_person_has_seen_are_no_question_at_once() -> None:
    patch = PATCH.model_copy(update={"attempt": 2})
    verdicts = (verdict("proof"), verdict("tests", broken=("t.py::a",)))
    reopened = FixProgress(
        prior_attempts=(failed(1, "t.py::a"),), application=patch, verdicts=verdicts
    )
    end = decide(reopened, "fix-1", OWN)
    assert isinstance(end, Failure)
    assert end.then is None


def test_a_second_patch_without_the_flaw_against_the_same_test_is_a_question() -> None:
    prior = (failed(1, "t.py::a", "t.py::b"),)
    end = decided(verdict("proof"), verdict("tests", broken=("t.py::b",)), prior=prior)
    assert isinstance(end, Failure)
    assert end.then is not None
    assert end.then.reason is EscalationReason.TESTS_CONTRADICT_PATCH
    assert "attempt 2" in end.then.question
    assert "t.py::b" in end.then.question
    assert "t.py::a" not in end.then.question


def test_a_retrieved_patch_that_breaks_a_test_is_tried_again() -> None:
    """It was written for other code: a fresh attempt may do better (ADR-0011)."""
    retrieved = PATCH.model_copy(update={"tier": Tier.RAG})
    verdicts = (verdict("proof"), verdict("tests", broken=("t.py::a",)))
    end = decide(FixProgress(application=retrieved, verdicts=verdicts), "fix-1", OWN)
    assert isinstance(end, Failure)
    assert end.then is None


def test_without_a_proof_the_same_test_may_have_found_the_same_mistake_twice() -> None:
    end = decided(verdict("tests", broken=("t.py::b",)), prior=(failed(1, "t.py::b"),))
    assert isinstance(end, Failure)
    assert end.then is None


def test_other_tests_are_another_failure() -> None:
    end = decided(
        verdict("proof"),
        verdict("tests", broken=("t.py::b",)),
        prior=(failed(1, "t.py::a"),),
        code=DEPENDENCY,
    )
    assert isinstance(end, Failure)
    assert end.then is None


def test_at_the_cap_the_question_names_the_tests() -> None:
    prior = (failed(1, "t.py::a"), failed(2), failed(3))
    end = decided(verdict("proof"), verdict("tests", broken=("t.py::z",)), prior=prior)
    assert isinstance(end, Failure)
    assert end.then is not None
    assert end.then.reason is EscalationReason.TESTS_CONTRADICT_PATCH
    assert "t.py::z" in end.then.question


def test_without_a_proof_the_cap_is_the_reason_and_the_tests_are_named() -> None:
    prior = (failed(1), failed(2), failed(3))
    end = decided(verdict("applies"), verdict("tests", broken=("t.py::z",)), prior=prior)
    assert isinstance(end, Failure)
    assert end.summary.contradicting_tests == ()
    assert end.then is not None
    assert end.then.reason is EscalationReason.RETRY_CAP_REACHED
    assert "t.py::z" in end.then.question


def test_a_model_that_gives_up_leaves_the_question_behind() -> None:
    refused = Refused(
        attempt=2,
        prompt_shape=PromptShape.RETRY,
        reason=RefusalReason.MODEL_REFUSED,
        sentence="No.",
    )
    one = ("1" * 64,)
    own = FixProgress(prior_attempts=(failed(1, "t.py::a"),), signatures=one, application=refused)
    end = decide(own, "fix-1", OWN)
    assert isinstance(end, EndEscalated)
    assert end.reason is EscalationReason.TESTS_CONTRADICT_PATCH
    assert "attempt 1" in end.question
    inherited = FixProgress(prior_attempts=(failed(1, "t.py::a"),), application=refused)
    reopened = decide(inherited, "fix-1", OWN)
    assert isinstance(reopened, EndEscalated)
    assert reopened.reason is EscalationReason.RETRY_REFUSED, "that question was answered"
    plain = decide(replace(own, prior_attempts=(failed(1),)), "fix-1", OWN)
    assert isinstance(plain, EndEscalated)
    assert plain.reason is EscalationReason.RETRY_REFUSED
