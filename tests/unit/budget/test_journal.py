"""Answers found again: of the same attempt, of earlier runs, each once, only while they are kept."""

from functools import partial

import pytest

from fallback_audit.errors import EncryptedEvidenceError
from fallback_audit.events import AttemptStarted
from fallback_audit.vocabulary import PromptShape
from fallback_tier.attempt.task import Recorder
from fallback_tier.budget.journal import AuditJournal
from fallback_tier.llm.calling import CallRequest
from fallback_tier.ports import ModelAnswer, ModelRequest
from tests.fakes.audit import MemoryAudit, MemoryEvidence
from tests.fakes.talking import TalkingModel, answer, ask, drain, request, start, task


def _say(reported: ModelAnswer, _asked: ModelRequest) -> ModelAnswer:
    return reported


class Runs:
    """One fix's runs, and the journal over them."""

    def __init__(self) -> None:
        self.audit, self.evidence = MemoryAudit(), MemoryEvidence()
        self.journal = AuditJournal(self.audit, self.evidence)

    def run(self, *questions: str, fix_id: str = "fix-1") -> None:
        """A run of attempt 1 that is interrupted after these answers."""
        caller = start(self.audit, self.evidence, fix_id=fix_id)
        for number, question in enumerate(questions):
            reported = answer(f"{question}/{number}")
            drain(caller.ask(TalkingModel(partial(_say, reported)), ask(question)))

    def begin(self, attempt: int = 1) -> None:
        Recorder(self.audit, task().repo)(
            AttemptStarted(
                attempt=attempt,
                advisory_id="TEST",
                prior_attempt_count=attempt - 1,
                prompt_shape=PromptShape.INITIAL if attempt == 1 else PromptShape.RETRY,
            )
        )

    def take(
        self, question: str | ModelRequest, attempt: int = 1, fix_id: str = "fix-1"
    ) -> str | None:
        asked = request(question) if isinstance(question, str) else question
        scope = Recorder(self.audit, task(fix_id=fix_id).repo).scope
        found = self.journal.take(scope, attempt, asked.key("test-model"))
        return None if found is None else found.answer.text


@pytest.fixture
def runs() -> Runs:
    return Runs()


def test_an_earlier_run_of_the_attempt_answers(runs: Runs) -> None:
    runs.run("a", "b")
    runs.begin()
    assert [runs.take(word) for word in "bac"] == ["b/1", "a/0", None]


def test_the_present_run_does_not_answer_itself(runs: Runs) -> None:
    runs.run("a")
    assert runs.take("a") is None


def test_each_is_given_once_in_a_run_and_again_in_the_next(runs: Runs) -> None:
    runs.run("a", "a")
    for _ in range(2):
        runs.begin()
        assert [runs.take("a") for _ in range(3)] == ["a/0", "a/1", None]


def test_what_several_runs_were_answered_adds_up(runs: Runs) -> None:
    runs.run("a")
    runs.run("b")
    runs.begin()
    assert [runs.take(word) for word in "ab"] == ["a/0", "b/0"]


def test_another_attempt_and_another_fix_have_their_own(runs: Runs) -> None:
    runs.run("a")
    runs.run("a", fix_id="fix-2")
    runs.begin(attempt=2)
    assert runs.take("a", attempt=2) is None
    assert runs.take("a", attempt=1) is None
    assert runs.take("a", fix_id="fix-2") is None


def test_a_nonce_makes_no_other_question(runs: Runs) -> None:
    def fenced(nonce: str) -> ModelRequest:
        return request(f"<{nonce}> text </{nonce}>", nonces=(nonce,))

    caller = start(runs.audit, runs.evidence)
    drain(caller.ask(TalkingModel(lambda _: answer("said")), CallRequest(fenced("1" * 32))))
    runs.begin()
    assert runs.take(fenced("2" * 32)) == "said"


@pytest.mark.parametrize("content", [None, b"{}", b"not json"])
def test_an_answer_that_is_gone_or_unreadable_is_not_offered(
    runs: Runs, content: bytes | None
) -> None:
    runs.run("a", "a")
    first = next(iter(runs.evidence.contents))
    if content is None:
        del runs.evidence.contents[first]
    else:
        runs.evidence.contents[first] = content
    runs.begin()
    assert [runs.take("a"), runs.take("a")] == ["a/1", None]


def test_an_answer_that_an_earlier_release_encrypted_is_not_paid_again(runs: Runs) -> None:
    """Neither is it offered, nor is the model asked: whoever has that release can still read it."""

    class Encrypted(MemoryEvidence):
        def get(self, digest: str) -> bytes:
            raise EncryptedEvidenceError(f"{digest} is encrypted.", next_step="Use that release.")

    runs.run("a")
    runs.begin()
    runs.journal = AuditJournal(runs.audit, Encrypted())
    with pytest.raises(EncryptedEvidenceError):
        runs.take("a")


def test_a_call_without_an_answer_gives_none(runs: Runs) -> None:
    runs.run("a")
    del runs.audit.stored[-1]
    runs.begin()
    assert runs.take("a") is None
