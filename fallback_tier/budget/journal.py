"""Answers that were paid for before an attempt was interrupted, found again by their request."""

import threading
from collections import OrderedDict, deque
from typing import NamedTuple

from pydantic import ValidationError

from fallback_audit.errors import EncryptedEvidenceError, EvidenceError
from fallback_audit.events import AttemptStarted, ModelAnswered, ModelCalled
from fallback_audit.ports import AuditStore, EvidenceStore, Scope, StoredEvent
from fallback_audit.vocabulary import CallType
from fallback_tier.ports import ModelAnswer

_KINDS = frozenset({"AttemptStarted", "ModelCalled", "ModelAnswered"})

#: How many gate transitions' answers are kept in memory; a dropped one is read again.
MAX_SCOPES_HELD = 64


class Found(NamedTuple):
    """An answer, and the event that booked it."""

    event: ModelAnswered
    answer: ModelAnswer


class AuditJournal:
    """Finds earlier answers in the audit trail and its evidence; thread-safe.

    If an answer's evidence is missing, altered or in another format, the model is asked (and paid) again.
    An answer that an earlier release encrypted raises EncryptedEvidenceError: that release can still use
    it.
    """

    def __init__(self, audit: AuditStore, evidence: EvidenceStore) -> None:
        self._audit = audit
        self._evidence = evidence
        self._lock = threading.Lock()
        self._transitions: OrderedDict[Scope, _Answers] = OrderedDict()

    def take(self, scope: Scope, attempt: int, key: str) -> Found | None:
        """Return an answer to this request from an earlier run of this attempt, once per run; or None."""
        with self._lock:
            answers = self._transitions.pop(scope, None) or _Answers()
            self._transitions[scope] = answers
            if len(self._transitions) > MAX_SCOPES_HELD:
                self._transitions.popitem(last=False)
            for stored_event in self._audit.events(scope.fix_id, kinds=_KINDS, after=answers.read):
                if stored_event.scope == scope:
                    answers.fold(stored_event)
                answers.read = stored_event.seq
            while (event := answers.take(attempt, key)) is not None:
                answer = self._kept(event)
                if answer is not None:
                    return Found(event, answer)
        return None

    def _kept(self, event: ModelAnswered) -> ModelAnswer | None:
        if event.answer_evidence is None:
            return None
        try:
            return ModelAnswer.model_validate_json(self._evidence.get(event.answer_evidence))
        except EncryptedEvidenceError:
            raise
        except (EvidenceError, ValidationError):
            return None


class _Answers:
    """The current attempt's answers: those of its earlier runs, and those that this run may still reuse."""

    def __init__(self) -> None:
        self.read = 0
        self._attempt = 0
        self._asked: dict[tuple[CallType, int], str | None] = {}
        self._answered: list[tuple[str, ModelAnswered]] = []
        self._offered: dict[str, deque[ModelAnswered]] = {}

    def fold(self, stored_event: StoredEvent) -> None:
        match stored_event.payload:
            case AttemptStarted(attempt=attempt):
                if attempt != self._attempt:
                    self._attempt, self._answered = attempt, []
                self._asked = {}
                self._offered = {}
                for request_key, event in self._answered:
                    self._offered.setdefault(request_key, deque()).append(event)
            case ModelCalled() as called:
                self._asked[called.call_type, called.call] = called.request_key
            case ModelAnswered() as answered:
                key = self._asked.get((answered.call_type, answered.call))
                if key is not None:
                    self._answered.append((key, answered))

    def take(self, attempt: int, key: str) -> ModelAnswered | None:
        """Return the next answer and remove it, or None."""
        waiting = self._offered.get(key) if attempt == self._attempt else None
        return waiting.popleft() if waiting else None
