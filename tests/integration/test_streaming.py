"""The tier's stream is live: a real SSE server, the real SDK, and nothing that waits for a clock.

The server holds back until the test lets it go, so "before" is an order of events, never a duration.
"""

import json
import threading
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from fallback_audit.events import (
    AttemptRefused,
    ConsumerLeft,
    GroundingJudged,
    ModelAnswered,
    ModelCalled,
    ModelFailed,
    PatchProposed,
)
from fallback_audit.vocabulary import CallType, ModelFailureKind, RefusalReason
from fallback_plugins.messages_api.model import ClaudeModel
from fallback_tier.advisory import parse_advisory
from fallback_tier.attempt.task import DraftDiscarded, DraftText, Finished, TierEvent
from fallback_tier.budget.audited import AuditMeter
from fallback_tier.budget.tally import spent
from fallback_tier.llm.judging import PlanJudge
from fallback_tier.llm.leaf import LlmLeaf
from fallback_tier.outcome import Applied, Refused
from fallback_tier.prompt.builder import PromptBuilder
from fallback_tier.tier import FallbackTier
from tests.fakes.audit import MemoryAudit, MemoryEvidence
from tests.fakes.ecosystem import FakeEcosystem
from tests.fakes.messages_server import (
    BREAK,
    HANG,
    PATIENCE_S,
    Hold,
    Server,
    answer,
    block,
    block_end,
    error_event,
    messages_server,
    piece,
    start,
    stop,
)
from tests.fakes.repository import context
from tests.fixtures.fallback_tier_callable import (
    ADVISORY,
    FILES,
    NO_RECIPE,
    OTHER_PLAN,
    PLAN,
    counting_nonces,
)

FIRST, SECOND = json.dumps(PLAN)[:30], json.dumps(PLAN)[30:]


class Tiers:
    """A tier whose author, and judge where ``judging``, are servers on loopback."""

    def __init__(self, root: Path, author: Server, judge: Server) -> None:
        self.audit, self.evidence = MemoryAudit(), MemoryEvidence()
        self.author, self.judge = author, judge
        self._root = root

    def stream(self, *, judging: bool = False) -> Generator[TierEvent, None, None]:
        nonces = counting_nonces()
        judge = ClaudeModel("judge", base_url=self.judge.url, max_retries=0)
        leaf = LlmLeaf(
            ClaudeModel("author", base_url=self.author.url, max_retries=0),
            PromptBuilder(nonces, frozenset()),
            evidence=self.evidence,
            judge=PlanJudge(judge, nonces, self.evidence) if judging else None,
            meter=AuditMeter(self.audit),
        )
        tier = FallbackTier(
            plugins={"PyPI": FakeEcosystem()},
            retriever=None,
            leaf=leaf,
            audit=self.audit,
            evidence=self.evidence,
        )
        return tier.stream(
            parse_advisory(ADVISORY, "test"), context(self._root, dict(FILES)), NO_RECIPE
        )


@pytest.fixture
def tiers(tmp_path: Path) -> Iterator[Tiers]:
    with messages_server() as author, messages_server() as judge:
        yield Tiers(tmp_path, author, judge)


def until(events: Iterator[TierEvent], kind: type[TierEvent]) -> list[TierEvent]:
    """The events up to the next of a kind."""
    seen: list[TierEvent] = []
    for event in events:
        seen.append(event)
        if isinstance(event, kind):
            return seen
    raise AssertionError(f"no {kind.__name__} in {[event.kind for event in seen]}")


def of(seen: list[TierEvent], *kinds: type[TierEvent]) -> list[TierEvent]:
    return [event for event in seen if isinstance(event, kinds)]


def finished(seen: list[TierEvent]) -> Applied | Refused:
    assert isinstance(seen[-1], Finished)
    return seen[-1].application


def verdicts(supported: bool) -> str:
    """A judge's answer about the two claims of PLAN: its sentence and its edit."""
    claims = [{"id": f"C{n}", "reason": "so", "supported": supported} for n in (1, 2)]
    return json.dumps({"claims": claims})


# --- What is seen, and when -------------------------------------------------------------------------


def test_the_call_is_on_record_before_the_server_hears_of_it(tiers: Tiers) -> None:
    tiers.author.streams(answer(FIRST, SECOND))
    events = tiers.stream()
    until(events, ModelCalled)
    assert tiers.audit.kinds[-1] == "ModelCalled"
    assert not tiers.author.seen
    events.close()


def test_a_draft_is_seen_while_the_server_holds_back_the_rest(tiers: Tiers) -> None:
    rest, end = Hold(), Hold()
    tiers.author.streams(
        start() + block() + piece(FIRST), rest, piece(SECOND) + block_end(), end, stop()
    )
    events = tiers.stream()
    seen = until(events, DraftText)
    assert of(seen, DraftText) == [DraftText(attempt=1, call=1, text=FIRST)]
    assert rest.reached.wait(PATIENCE_S)
    rest.let_go()
    # The whole plan is here, and is none before the server has said that it is whole.
    seen += until(events, DraftText)
    assert end.reached.wait(PATIENCE_S)
    assert not of(seen, PatchProposed, Finished)
    assert not {"PatchProposed", "ModelAnswered"} & set(tiers.audit.kinds)
    end.let_go()
    seen += list(events)
    assert "".join(event.text for event in seen if isinstance(event, DraftText)) == FIRST + SECOND
    assert isinstance(finished(seen), Applied)
    assert of(seen, PatchProposed)


def test_no_patch_is_seen_before_its_verdict(tiers: Tiers) -> None:
    """A consumer in a thread of its own: what it has seen by the time that the judge was asked."""
    verdict = Hold()
    tiers.author.streams(answer(FIRST, SECOND))
    tiers.judge.streams(verdict, answer(verdicts(True)))
    seen: list[TierEvent] = []

    def consume() -> None:
        for event in tiers.stream(judging=True):
            seen.append(event)  # looked at meanwhile, so no extend

    consumer = threading.Thread(target=consume)
    consumer.start()
    try:
        assert verdict.reached.wait(PATIENCE_S)
        assert of(seen, DraftText)
        assert not of(seen, PatchProposed, GroundingJudged, Finished)
    finally:
        verdict.let_go()
        consumer.join(PATIENCE_S)
    kinds = [event.kind for event in seen]
    assert kinds.index("GroundingJudged") < kinds.index("PatchProposed") < kinds.index("Finished")
    application = finished(seen)
    assert isinstance(application, Applied)
    assert application.grounded is True


def test_an_unsupported_draft_is_discarded_before_the_next_one_is_seen(tiers: Tiers) -> None:
    other = json.dumps(OTHER_PLAN)
    tiers.author.streams(answer(FIRST, SECOND))
    tiers.author.streams(answer(other))
    tiers.judge.streams(answer(verdicts(False)))
    tiers.judge.streams(answer(verdicts(True)))
    seen = list(tiers.stream(judging=True))
    shown = of(seen, DraftText, DraftDiscarded, GroundingJudged, PatchProposed)
    assert [event.kind for event in shown] == [
        "DraftText",
        "DraftText",
        "GroundingJudged",
        "DraftDiscarded",
        "DraftText",
        "GroundingJudged",
        "PatchProposed",
    ]
    assert [event.text for event in seen if isinstance(event, DraftText)][-1] == other
    [_, strict] = [
        event for event in tiers.audit.of(ModelCalled) if event.call_type is CallType.AUTHOR
    ]
    assert strict.strict


def test_a_judges_words_are_no_draft(tiers: Tiers) -> None:
    tiers.author.streams(answer(FIRST, SECOND))
    tiers.judge.streams(answer(verdicts(True)))
    texts = [e.text for e in tiers.stream(judging=True) if isinstance(e, DraftText)]
    assert texts == [FIRST, SECOND]


# --- What breaks ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("end", "kind", "reason"),
    [
        (BREAK, ModelFailureKind.BROKEN_STREAM, RefusalReason.MODEL_UNAVAILABLE),
        (b"", ModelFailureKind.BROKEN_STREAM, RefusalReason.MODEL_UNAVAILABLE),
        (
            # In the middle of an answer it may have been billed, as any stream that broke.
            error_event("overloaded_error"),
            ModelFailureKind.BROKEN_STREAM,
            RefusalReason.MODEL_UNAVAILABLE,
        ),
        (
            error_event("invalid_request_error", "prompt is too long: 9 > 8"),
            ModelFailureKind.CONTEXT_TOO_LONG,
            RefusalReason.CONTEXT_TOO_LONG,
        ),
    ],
)
def test_a_whole_plan_in_an_answer_that_broke_off_is_no_patch(
    tiers: Tiers, end: bytes, kind: ModelFailureKind, reason: RefusalReason
) -> None:
    tiers.author.streams(start() + block() + piece(FIRST + SECOND) + block_end(), end)
    seen = list(tiers.stream())
    assert of(seen, DraftText)
    [failed] = tiers.audit.of(ModelFailed)
    assert failed.failure is kind
    [refused] = tiers.audit.of(AttemptRefused)
    assert refused.reason is reason
    assert not of(seen, PatchProposed)
    assert isinstance(finished(seen), Refused)


def test_a_consumer_that_leaves_in_mid_answer_ends_the_connection(tiers: Tiers) -> None:
    """On record: who left. The call has no end, so it stays booked at what it may cost."""
    tiers.author.streams(start() + block() + piece(FIRST), HANG)
    events = tiers.stream()
    until(events, DraftText)
    assert not tiers.author.left.is_set()
    events.close()
    assert tiers.author.left.wait(PATIENCE_S)
    assert tiers.audit.kinds[-1] == "ConsumerLeft"
    assert tiers.audit.of(ConsumerLeft)[0].attempt == 1
    assert not tiers.audit.of(ModelAnswered)
    assert not tiers.audit.of(ModelFailed)
    [called] = tiers.audit.of(ModelCalled)
    assert called.reserved is not None
    scope = tiers.audit.stored[0].scope
    assert spent(tiers.audit, scope)[1] == called.reserved
