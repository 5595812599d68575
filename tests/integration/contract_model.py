"""A small model of the protocol, independent of the rules: what may stand on record next, step by step.

The rules of the contract look at a trail as a whole; this is an automaton over it. Both are written from
the design, so that a mistake in one is seen by the other.
"""

from dataclasses import dataclass, field

from fallback_audit.events import (
    AnswerReused,
    AttemptFailed,
    AttemptRefused,
    AttemptStarted,
    AuditEvent,
    FixEscalated,
    GateJudged,
    GroundingJudged,
    ModelAnswered,
    ModelCalled,
    ModelFailed,
    PatchProposed,
    RagSkippedOnRetry,
    RecipeEvaluated,
    TransitionReopened,
)
from fallback_audit.vocabulary import CallType, GateStatus

#: A process stops anywhere, and another one resumes the fix.
_RESUMED = {"FixResumed", "SandboxDisabled"}
_DRAFTED = {
    "PatchProposed",
    "ModelCalled",
    "AnswerReused",
    "LowConfidenceFlagged",
    "AttemptRefused",
}
_ASK = {"ModelCalled", "AnswerReused", "AttemptRefused"}
_ANSWERED = {
    *("PlanRejected", "RepeatedPatchRejected", "GroundingNotEvaluated", "MoreCodeShown"),
    *_ASK,
}

#: What may follow what, within a fix that nobody interrupts; refined by ``Protocol.expected``.
FOLLOWS: dict[str, set[str]] = {
    "FixStarted": {"AttemptStarted", "SandboxDisabled"},
    "AttemptStarted": {"RecipeEvaluated", "RagSkippedOnRetry"},
    "RecipeEvaluated": {"RetrievalQueried", "PatchProposed", "AttemptRefused"},
    "RetrievalQueried": {"ExampleReplayed", *_ASK},
    "ExampleReplayed": {"PatchProposed"},
    "RagSkippedOnRetry": _ASK,
    "ModelCalled": {"ModelAnswered", "ModelFailed"},
    "ModelAnswered": _ANSWERED,
    "AnswerReused": _ANSWERED,
    "ModelFailed": {"GroundingNotEvaluated", "LowConfidenceFlagged", *_ASK},
    "MoreCodeShown": _ASK,
    "PlanRejected": {"LowConfidenceFlagged", *_ASK},
    "RepeatedPatchRejected": {"LowConfidenceFlagged", *_ASK},
    "GroundingJudged": _DRAFTED,
    "GroundingNotEvaluated": {"PatchProposed", "LowConfidenceFlagged"},
    "LowConfidenceFlagged": {"PatchProposed"},
    "PatchProposed": {"GateJudged", "FixEscalated"},
    "GateJudged": {"GateJudged", "AttemptFailed", "FixVerified", "FixEscalated"},
    "AttemptRefused": {"AttemptFailed", "FixRefused", "FixEscalated"},
    "AttemptFailed": {"AttemptStarted", "FixEscalated"},
    "FixVerified": {"PatchDelivered"},
    "FixRefused": set(),
    "FixEscalated": {"ReviewDecided", "TransitionReopened"},
    "ReviewDecided": {"PatchDelivered"},
    "PatchDelivered": set(),
    "TransitionReopened": set(),
}

#: While an attempt is under way its consumer may leave, or its process die: it begins again.
UNDER_WAY = frozenset(FOLLOWS) - {
    *("FixStarted", "PatchProposed", "GateJudged", "AttemptRefused", "AttemptFailed"),
    *("FixVerified", "FixRefused", "FixEscalated", "ReviewDecided", "PatchDelivered"),
    "TransitionReopened",
}

MAX_RETRIES, MAX_AUTHOR_CALLS = 3, 3


@dataclass
class Protocol:
    """One gate transition as it goes. ``inherited``: it was opened for another one, with its failure;
    ``again``: for the gates alone, on this patch."""

    gates: tuple[str, ...]
    inherited: str | None = None
    again: str | None = None
    last: str = ""
    attempt: int = 0
    priors: int = 0
    failures: list[str] = field(default_factory=list)
    author_calls: int = 0
    pending: list[str] = field(default_factory=list)
    failed_gates: set[str] = field(default_factory=set)
    judging: bool = False
    ended: bool = False
    resuming: bool = False

    @property
    def is_retry(self) -> bool:
        """Then nothing may touch the memory of solved examples."""
        return self.priors > 0

    def expected(self) -> set[str]:
        """The kinds of events that may come next."""
        if not self.last:
            return {"FixStarted"}
        kinds = set(FOLLOWS[self.last])
        if self.last == "AttemptStarted":
            kinds = {"RagSkippedOnRetry"} if self.is_retry else {"RecipeEvaluated"}
            kinds = {"PatchProposed"} if self.again else kinds
        if self.judging and self.last in {"ModelAnswered", "AnswerReused"}:
            kinds = {"GroundingJudged", "GroundingNotEvaluated"}
        if self.judging and self.last == "ModelFailed":
            kinds = {"GroundingNotEvaluated"}
        if self.last == "GateJudged" and self.failed_gates:
            kinds = {"AttemptFailed"}
        elif self.last == "GateJudged" and self.pending:
            kinds = {"GateJudged", "FixEscalated"}
        elif self.last == "GateJudged":
            kinds = {"FixVerified", "FixEscalated"}
        if self.last in UNDER_WAY:
            kinds |= {"ConsumerLeft", "AttemptStarted"} if self.resuming else {"ConsumerLeft"}
        if self.author_calls >= MAX_AUTHOR_CALLS and self.last in {
            "PlanRejected",
            "GroundingJudged",
        }:
            kinds -= {"ModelCalled", "AnswerReused"}
        tried = len(self.failures) + (self.inherited is not None and not self.again)
        if tried > (0 if self.again else MAX_RETRIES):
            kinds -= {"AttemptStarted"}
        return kinds if self.ended else kinds | _RESUMED

    def take(self, event: AuditEvent) -> None:
        """The next event. Raises AssertionError: the model does not allow it here."""
        assert event.kind in self.expected(), f"{event.kind} after {self.last}: {self.expected()}"
        if event.kind in _RESUMED:
            self.resuming = True
            return
        if event.kind == "ConsumerLeft":
            self.resuming = True
            return
        self._check(event)
        self.resuming = False
        self.last = event.kind
        self.ended = self.ended or event.kind in {"FixVerified", "FixRefused", "FixEscalated"}

    def _check(self, event: AuditEvent) -> None:
        attempt = getattr(event, "attempt", self.attempt)
        match event:
            case AttemptStarted():
                self.priors = len(self.failures) + (self.inherited is not None)
                self.priors = 0 if self.again else self.priors
                assert event.prior_attempt_count == self.priors
                new = not self.attempt or self.last == "AttemptFailed"
                assert event.attempt == self.attempt + 1 if new and self.attempt else True
                self.attempt, self.author_calls = event.attempt, 0
                return
            case RagSkippedOnRetry():
                assert event.attempt_count == self.priors
                carried = self.failures[-1] if self.failures else self.inherited
                assert event.summary_sha256 == carried
            case RecipeEvaluated():
                assert not self.is_retry
            case ModelCalled() | AnswerReused():
                assert not (self.is_retry and event.example_ids)
                self.judging = event.call_type is CallType.JUDGE
                self.author_calls += not self.judging
            case ModelAnswered() | ModelFailed() | GroundingJudged():
                pass
            case PatchProposed():
                assert (event.taken_from is None) is (self.again is None)
                assert self.again in {None, event.patch_sha256}
            case GateJudged():
                if self.last == "PatchProposed":
                    self.pending, self.failed_gates = list(self.gates), set()
                assert event.gate == self.pending.pop(0)
                if event.status is GateStatus.FAILED:
                    self.failed_gates.add(event.gate)
            case AttemptFailed():
                refused = self.last == "AttemptRefused"
                assert set(event.failing_gates) == (set() if refused else self.failed_gates)
                self.failures.append(event.summary_sha256)
            case FixEscalated() | AttemptRefused() | TransitionReopened():
                pass
            case _:
                pass
        assert attempt == self.attempt, f"{event.kind} of attempt {attempt}, in {self.attempt}"
