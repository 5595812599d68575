"""The only way to a model: on record before it is sent, ended in order, never paid twice."""

from collections.abc import Generator, Sequence

import pytest

from fallback_audit.errors import AuditStoreError
from fallback_audit.events import (
    MAX_EXCERPT_CHARS,
    AnswerReused,
    ModelAnswered,
    ModelCalled,
    ModelFailed,
)
from fallback_audit.vocabulary import CallType, ModelFailureKind
from fallback_tier.attempt.task import DraftDiscarded, DraftText
from fallback_tier.budget.audited import AuditMeter
from fallback_tier.budget.journal import AuditJournal
from fallback_tier.budget.meter import BudgetLimits, OverBudget
from fallback_tier.budget.prices import Prices, read_price
from fallback_tier.errors import ModelError
from fallback_tier.llm.calling import Answered, CallRequest
from fallback_tier.ports import ModelAnswer, ModelRequest
from tests.fakes.audit import MemoryAudit, MemoryEvidence
from tests.fakes.talking import TalkingModel, answer, ask, drain, kinds, request, start

WORDS = ["a", "b", "c", "d", "e"]
MANY: Sequence[CallRequest] = [ask(word, CallType.CRITIQUE) for word in WORDS]


def echo(asked: ModelRequest) -> ModelAnswer:
    return answer(f"re: {asked.messages[0].content}", input_tokens=7, output_tokens=3)


def no_answer(asked: ModelRequest) -> ModelAnswer:
    raise ModelError("No.", next_step="Wait.", failure=ModelFailureKind.OVERLOADED)


#: Of a form that is always taken out.
SECRET = "ghp_" + "a1B2" * 9


class BrokenModel(TalkingModel):
    """Says something, or nothing, and then no more."""

    def __init__(self, words: str) -> None:
        super().__init__()
        self._words = words

    def ask(self, request: ModelRequest) -> Generator[str, None, ModelAnswer]:
        if self._words:
            yield self._words
        raise ModelError(
            f"The server closed {SECRET}.",
            next_step="Wait.",
            failure=ModelFailureKind.BROKEN_STREAM,
        )


def meter(audit: MemoryAudit, tokens: int) -> AuditMeter:
    prices = Prices(read_price("1:10"))
    return AuditMeter(audit, BudgetLimits(tokens_per_fix=tokens), prices)


@pytest.fixture
def audit() -> MemoryAudit:
    return MemoryAudit()


@pytest.fixture
def evidence() -> MemoryEvidence:
    return MemoryEvidence()


class TestOneCall:
    def test_words_arrive_as_drafts_between_the_call_and_its_end(
        self, audit: MemoryAudit, evidence: MemoryEvidence
    ) -> None:
        reported, answer = drain(start(audit, evidence).ask(TalkingModel(echo), ask("hello")))
        assert kinds(reported) == ["ModelCalled", "DraftText", "DraftText", "ModelAnswered"]
        words = [event.text for event in reported if isinstance(event, DraftText)]
        assert "".join(words) == answer.answer.text == "re: hello"
        assert audit.kinds == ["AttemptStarted", "ModelCalled", "ModelAnswered"]
        assert answer.call == 1

    @pytest.mark.parametrize("kind", [CallType.JUDGE, CallType.CRITIQUE, CallType.REWRITE])
    def test_only_an_author_drafts(
        self, audit: MemoryAudit, evidence: MemoryEvidence, kind: CallType
    ) -> None:
        reported, _ = drain(start(audit, evidence).ask(TalkingModel(echo), ask("hello", kind)))
        assert kinds(reported) == ["ModelCalled", "ModelAnswered"]

    def test_it_is_on_record_before_it_is_sent(self, evidence: MemoryEvidence) -> None:
        """The durable record comes first: where it can't be had, nothing is sent."""
        audit, model = MemoryAudit(fail_on="ModelCalled"), TalkingModel(echo)
        with pytest.raises(AuditStoreError):
            drain(start(audit, evidence).ask(model, ask()))
        assert model.asked == []

    def test_an_answer_with_a_secret_is_used_and_not_kept(
        self, audit: MemoryAudit, evidence: MemoryEvidence
    ) -> None:
        caller = start(audit, evidence)
        secret = f"TOKEN = '{'ghp_' + 'a1B2' * 9}'"
        _, given = drain(caller.ask(TalkingModel(lambda _: answer(secret)), ask("hello")))
        assert isinstance(given, Answered)
        assert given.answer.text == secret
        (answered,) = (it for it in audit.payloads if isinstance(it, ModelAnswered))
        assert answered.answer_evidence is None
        assert evidence.contents == {}

    def test_the_record_says_what_was_reserved_used_and_kept(
        self, audit: MemoryAudit, evidence: MemoryEvidence
    ) -> None:
        caller = start(audit, evidence, meter=meter(audit, 10**6))
        drain(caller.ask(TalkingModel(echo), ask("hello")))
        called, answered = audit.payloads[1:]
        assert isinstance(called, ModelCalled)
        assert isinstance(answered, ModelAnswered)
        assert called.reserved is not None
        assert called.reserved.tokens > 10
        assert answered.cost_usd_estimate == "0.000037"
        assert answered.answer_evidence is not None
        kept = ModelAnswer.model_validate_json(evidence.get(answered.answer_evidence))
        assert kept == echo(request("hello"))
        (used,) = caller.usage
        assert (used.calls, used.input_tokens, used.cost_usd_estimate) == (1, 7, "0.000037")

    def test_no_answer_is_on_record_and_raised(
        self, audit: MemoryAudit, evidence: MemoryEvidence
    ) -> None:
        caller = start(audit, evidence)
        with pytest.raises(ModelError):
            drain(caller.ask(TalkingModel(no_answer), ask()))
        failed = audit.payloads[-1]
        assert isinstance(failed, ModelFailed)
        assert failed.failure is ModelFailureKind.OVERLOADED
        assert caller.usage == ()

    def test_a_draft_that_broke_off_is_void_and_says_no_secret(
        self, audit: MemoryAudit, evidence: MemoryEvidence
    ) -> None:
        reported, end = drain(start(audit, evidence).ask_all(BrokenModel("half"), [ask()]))
        assert kinds(reported) == ["ModelCalled", "DraftText", "ModelFailed", "DraftDiscarded"]
        assert isinstance(end[0], ModelError)
        void = reported[-1]
        assert isinstance(void, DraftDiscarded)
        assert void.call == 1
        assert "The call broke off" in void.reason
        assert SECRET not in void.reason

    @pytest.mark.parametrize(
        ("model", "kind"),
        [("", CallType.AUTHOR), ("half", CallType.JUDGE)],
        ids=["silent", "judge"],
    )
    def test_where_nothing_was_drafted_nothing_is_void(
        self, audit: MemoryAudit, evidence: MemoryEvidence, model: str, kind: CallType
    ) -> None:
        reported, _ = drain(start(audit, evidence).ask_all(BrokenModel(model), [ask("x", kind)]))
        assert kinds(reported) == ["ModelCalled", "ModelFailed"]

    def test_a_servers_stop_reason_is_its_own_words(
        self, audit: MemoryAudit, evidence: MemoryEvidence
    ) -> None:
        reported = answer().model_copy(update={"stop_reason": f"\x1b[2J{SECRET}{'x' * 10_000}"})
        drain(start(audit, evidence).ask(TalkingModel(lambda _: reported), ask()))
        event = audit.payloads[-1]
        assert isinstance(event, ModelAnswered)
        assert len(event.stop_reason) <= MAX_EXCERPT_CHARS
        assert "\x1b" not in event.stop_reason
        assert SECRET not in event.stop_reason

    def test_calls_are_numbered_by_type(self, audit: MemoryAudit, evidence: MemoryEvidence) -> None:
        caller, model = start(audit, evidence), TalkingModel(echo)
        numbers = [
            drain(caller.ask(model, ask("x", kind)))[1].call
            for kind in (CallType.AUTHOR, CallType.JUDGE, CallType.AUTHOR)
        ]
        assert numbers == [1, 1, 2]


class TestSeveralCalls:
    def test_all_are_announced_before_any_and_end_in_order(
        self, audit: MemoryAudit, evidence: MemoryEvidence
    ) -> None:
        seen: list[int] = []

        def reply(asked: ModelRequest) -> ModelAnswer:
            seen.append(audit.kinds.count("ModelCalled"))
            return echo(asked)

        _, ends = drain(start(audit, evidence).ask_all(TalkingModel(reply), MANY))
        assert seen == [len(MANY)] * len(MANY)
        calls = [e.call for e in audit.payloads if isinstance(e, ModelCalled)]
        ended = [e.call for e in audit.payloads if isinstance(e, ModelAnswered)]
        assert calls == ended == [1, 2, 3, 4, 5]
        texts = [end.answer.text for end in ends if isinstance(end, Answered)]
        assert texts == [f"re: {word}" for word in WORDS]

    def test_one_without_an_answer_leaves_the_others_theirs(
        self, audit: MemoryAudit, evidence: MemoryEvidence
    ) -> None:
        def reply(asked: ModelRequest) -> ModelAnswer:
            return no_answer(asked) if asked.messages[0].content == "b" else echo(asked)

        caller = start(audit, evidence)
        _, ends = drain(caller.ask_all(TalkingModel(reply), MANY))
        assert [isinstance(end, ModelError) for end in ends] == [False, True, False, False, False]
        assert caller.usage[0].calls == 4

    def test_where_not_all_fit_none_is_sent(
        self, audit: MemoryAudit, evidence: MemoryEvidence
    ) -> None:
        size = AuditMeter(audit).charge("test-model", MANY[0].request).tokens
        caps, model = meter(audit, 3 * size), TalkingModel(echo)
        caller = start(audit, evidence, meter=caps)
        with pytest.raises(OverBudget):
            drain(caller.ask_all(model, MANY))
        assert model.asked == []
        withheld = [e for e in audit.payloads if isinstance(e, ModelFailed)]
        assert [(e.call, e.failure) for e in withheld] == [
            (n, ModelFailureKind.WITHHELD) for n in (1, 2, 3)
        ]
        # Nothing of it stays booked: three fit.
        drain(caller.ask_all(model, MANY[:3]))
        assert sorted(model.asked) == ["a", "b", "c"]

    def test_nothing_to_ask_is_no_call(self, audit: MemoryAudit, evidence: MemoryEvidence) -> None:
        assert drain(start(audit, evidence).ask_all(TalkingModel(), [])) == ([], [])


class TestWhoLeaves:
    """A consumer may go away at every event; what was not sent is not booked, what was paid is kept."""

    @pytest.mark.parametrize("heard", range(1, 2 * len(MANY)))
    def test_at_every_event(self, audit: MemoryAudit, evidence: MemoryEvidence, heard: int) -> None:
        model = TalkingModel(echo)
        events = start(audit, evidence, meter=meter(audit, 10**6)).ask_all(model, MANY)
        for _ in range(heard):
            next(events)
        events.close()
        ends = [e for e in audit.payloads if isinstance(e, ModelAnswered | ModelFailed)]
        if heard <= len(MANY):
            assert model.asked == []
            assert len(ends) == heard
            assert {getattr(e, "failure", None) for e in ends} == {ModelFailureKind.WITHHELD}
        else:
            assert len(ends) == len(MANY)
            assert all(isinstance(e, ModelAnswered) for e in ends)

    def test_where_some_are_found_again_the_others_were_not_sent(
        self, audit: MemoryAudit, evidence: MemoryEvidence
    ) -> None:
        """Else what nobody asked for would stay booked for good."""
        journal, model = AuditJournal(audit, evidence), TalkingModel(echo)
        drain(start(audit, evidence, journal=journal).ask(model, MANY[0]))
        events = start(audit, evidence, journal=journal).ask_all(model, MANY)
        reported = [next(events) for _ in MANY]
        assert kinds(reported) == [*["ModelCalled"] * 4, "AnswerReused"]
        events.close()
        ends = [e for e in audit.payloads if isinstance(e, ModelFailed)]
        assert [e.failure for e in ends] == [ModelFailureKind.WITHHELD] * 4
        assert model.asked == ["a"]

    def test_in_the_middle_of_an_answer_it_stays_booked(
        self, audit: MemoryAudit, evidence: MemoryEvidence
    ) -> None:
        events = start(audit, evidence).ask(TalkingModel(echo), ask())
        assert [next(events).kind for _ in range(2)] == ["ModelCalled", "DraftText"]
        events.close()
        assert audit.kinds[-1] == "ModelCalled"


class TestTakenUpAgain:
    def test_an_answer_is_found_again_and_not_paid_twice(
        self, audit: MemoryAudit, evidence: MemoryEvidence
    ) -> None:
        journal, model = AuditJournal(audit, evidence), TalkingModel(echo)
        drain(start(audit, evidence, journal=journal).ask(model, ask("first")))
        caller = start(audit, evidence, journal=journal)
        reported, answer = drain(caller.ask(model, ask("first")))
        assert kinds(reported) == ["AnswerReused"]
        assert answer == Answered(echo(request("first")), 1)
        assert model.asked == ["first"]
        assert caller.usage[0].calls == 1
        reported, answer = drain(caller.ask(model, ask("second")))
        assert kinds(reported)[0] == "ModelCalled"
        assert answer.call == 2

    def test_found_ones_are_used_once_the_others_may_be_sent_and_all_come_back_in_order(
        self, audit: MemoryAudit, evidence: MemoryEvidence
    ) -> None:
        journal, model = AuditJournal(audit, evidence), TalkingModel(echo)
        drain(start(audit, evidence, journal=journal).ask_all(model, MANY[1::2]))
        reported, ends = drain(start(audit, evidence, journal=journal).ask_all(model, MANY))
        assert kinds(reported) == ["ModelCalled"] * 3 + ["AnswerReused"] * 2 + ["ModelAnswered"] * 3
        assert [end.call for end in ends if isinstance(end, Answered)] == [1, 2, 3, 4, 5]
        assert [e.call for e in reported if isinstance(e, AnswerReused)] == [2, 4]
        assert sorted(model.asked) == WORDS

    def test_who_asks_for_fewer_after_the_budget_stopped_pays_for_none_again(
        self, audit: MemoryAudit, evidence: MemoryEvidence
    ) -> None:
        journal, model = AuditJournal(audit, evidence), TalkingModel(echo)
        drain(start(audit, evidence, journal=journal).ask(model, MANY[0]))
        caller = start(audit, evidence, journal=journal, meter=meter(audit, 10))
        with pytest.raises(OverBudget):
            drain(caller.ask_all(model, MANY))
        drain(caller.ask(model, MANY[0]))
        assert model.asked == ["a"]
