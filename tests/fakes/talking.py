"""A model whose answers a test decides, and an attempt's calls without the attempt."""

from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import TypeVar

from fallback_audit.events import AttemptStarted
from fallback_audit.ports import AuditStore, EvidenceStore
from fallback_audit.vocabulary import CallType, PromptShape, Provenance, RefusalReason
from fallback_tier.advisory import parse_advisory
from fallback_tier.attempt.task import AttemptTask, Recorder, TierEvent
from fallback_tier.budget.audited import AuditMeter
from fallback_tier.budget.journal import AuditJournal
from fallback_tier.llm.calling import Caller, CallRequest
from fallback_tier.outcome import NotApplicable
from fallback_tier.ports import Message, ModelAnswer, ModelRequest, Usage
from fallback_tier.repo import RepoContext
from tests.fakes.ecosystem import FakeEcosystem

ResultT = TypeVar("ResultT")

ADVISORY = b"""{"id": "TEST-2026-1", "modified": "2026-01-01T00:00:00Z", "summary": "s",
  "affected": [{"package": {"ecosystem": "PyPI", "name": "vulnerable"},
    "ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}]}]}]}"""


def request(
    text: str = "fix it",
    call_type: CallType = CallType.AUTHOR,
    *,
    output: int = 10,
    nonces: tuple[str, ...] = (),
) -> ModelRequest:
    return ModelRequest(
        call_type=call_type,
        system="You fix.",
        messages=(Message(role="user", content=text),),
        max_output_tokens=output,
        nonces=nonces,
    )


def ask(text: str = "fix it", call_type: CallType = CallType.AUTHOR) -> CallRequest:
    return CallRequest(request(text, call_type))


def answer(text: str = "done", **usage: int) -> ModelAnswer:
    return ModelAnswer(text=text, usage=Usage(**usage), stop_reason="end_turn")


class TalkingModel:
    """Implements LanguageModel. ``reply`` gives the answer in two pieces, or raises what it raises."""

    def __init__(self, reply: Callable[[ModelRequest], ModelAnswer] = lambda _: answer()) -> None:
        self.model = "test-model"
        self.provenance = Provenance.SCRIPTED
        self.asked: list[str] = []
        self._reply = reply

    def close(self) -> None:
        pass

    def ask(self, request: ModelRequest) -> Generator[str, None, ModelAnswer]:
        self.asked.append(request.messages[0].content)
        reported = self._reply(request)
        half = len(reported.text) // 2
        yield reported.text[:half]
        yield reported.text[half:]
        return reported


def task(root: Path = Path("/nowhere"), fix_id: str = "fix-1") -> AttemptTask:
    repo = RepoContext(
        root=root,
        base_commit="0" * 40,
        tracked_files=(),
        manifests=(),
        fix_id=fix_id,
        gate_transition_id=f"gate-of-{fix_id}",
    )
    selection = NotApplicable(reason=RefusalReason.OWN_CODE, sentence="It is the package itself.")
    return AttemptTask(parse_advisory(ADVISORY, "test"), repo, selection, (), FakeEcosystem())


def start(
    audit: AuditStore,
    evidence: EvidenceStore,
    *,
    fix_id: str = "fix-1",
    meter: AuditMeter | None = None,
    journal: AuditJournal | None = None,
) -> Caller:
    """A first attempt is on record as begun, and may call."""
    work = task(fix_id=fix_id)
    record = Recorder(audit, work.repo)
    record(
        AttemptStarted(
            attempt=1,
            advisory_id=work.advisory.id,
            prior_attempt_count=0,
            prompt_shape=PromptShape.INITIAL,
        )
    )
    return Caller(work, record, evidence, meter=meter, journal=journal)


def drain(events: Generator[TierEvent, None, ResultT]) -> tuple[list[TierEvent], ResultT]:
    """All that was told, and what came of it."""
    reported: list[TierEvent] = []
    while True:
        try:
            reported.append(next(events))
        except StopIteration as end:
            return reported, end.value


def kinds(events: Sequence[TierEvent]) -> list[str]:
    return [event.kind for event in events]
