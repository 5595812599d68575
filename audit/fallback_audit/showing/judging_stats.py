"""Statistics on judges from the audit trail: how often they changed something, and the time it took."""

from collections import Counter
from collections.abc import Iterable, Iterator
from statistics import median

from fallback_audit.events import (
    AttemptStarted,
    AuditEvent,
    GroundingJudged,
    GroundingNotEvaluated,
    LowConfidenceFlagged,
    ModelAnswered,
    ModelCalled,
    PatchProposed,
)
from fallback_audit.frozen import Frozen
from fallback_audit.ports import StoredEvent
from fallback_audit.vocabulary import CallType, Tier

#: The kinds of events that these statistics read.
KINDS = frozenset(
    {
        "AttemptStarted",
        "GroundingJudged",
        "GroundingNotEvaluated",
        "LowConfidenceFlagged",
        "ModelAnswered",
        "ModelCalled",
        "PatchProposed",
    }
)


class JudgingStats(Frozen):
    """Counts over attempts that a model's plan came of. Times in milliseconds; None: no such call.

    ``regenerated``: attempts with a strict regeneration; ``regeneration_rate``: their share of the
    attempts that were judged. ``added_ms_p50``: the median of what judging and regenerating added to a
    judged attempt; ``regeneration_ms_p50`` of the regenerations alone. ``not_evaluated``: by reason.
    """

    proposed: int
    judged: int
    regenerated: int
    flagged: int
    regeneration_rate: float | None
    flag_rate: float | None
    added_ms_p50: float | None
    regeneration_ms_p50: float | None
    not_evaluated: dict[str, int]


def judging_stats(stored: Iterable[StoredEvent]) -> JudgingStats:
    """Return the statistics of a trail, or of any part of it with complete attempts."""
    runs = [_Run(events) for events in _attempts(stored)]
    judged = [run for run in runs if run.has(GroundingJudged)]
    regenerated = [run for run in judged if run.strict_ms]
    return JudgingStats(
        proposed=sum(run.proposed for run in runs),
        judged=len(judged),
        regenerated=len(regenerated),
        flagged=sum(run.has(LowConfidenceFlagged) for run in runs),
        regeneration_rate=len(regenerated) / len(judged) if judged else None,
        flag_rate=sum(run.has(LowConfidenceFlagged) for run in judged) / len(judged)
        if judged
        else None,
        added_ms_p50=median(sum(run.judge_ms + run.strict_ms) for run in judged)
        if judged
        else None,
        regeneration_ms_p50=median(sum(run.strict_ms) for run in regenerated)
        if regenerated
        else None,
        not_evaluated=dict(Counter(reason for run in runs for reason in run.gaps)),
    )


def _attempts(stored: Iterable[StoredEvent]) -> Iterator[list[AuditEvent]]:
    """Yield the events of each attempt. Events of several fixes may be interleaved."""
    running: dict[tuple[str, str], list[AuditEvent]] = {}
    for link in stored:
        key = (link.scope.fix_id, link.scope.gate_transition_id)
        if isinstance(link.payload, AttemptStarted) and key in running:
            yield running.pop(key)
        running.setdefault(key, []).append(link.payload)
    yield from running.values()


class _Run:
    """One attempt's calls, with the time that each took."""

    def __init__(self, events: list[AuditEvent]) -> None:
        self._events = events
        strict = {
            event.call
            for event in events
            if isinstance(event, ModelCalled)
            and event.call_type is CallType.AUTHOR
            and event.strict
        }
        answers = [event for event in events if isinstance(event, ModelAnswered)]
        self.judge_ms = [a.duration_ms for a in answers if a.call_type is CallType.JUDGE]
        self.strict_ms = [
            a.duration_ms for a in answers if a.call_type is CallType.AUTHOR and a.call in strict
        ]
        self.gaps = [e.reason for e in events if isinstance(e, GroundingNotEvaluated)]
        self.proposed = any(
            isinstance(event, PatchProposed)
            and event.tier is Tier.LLM
            and event.taken_from is None  # otherwise it is counted where it was made
            for event in events
        )

    def has(self, kind: type[AuditEvent]) -> bool:
        """Return whether one of the attempt's events has this type."""
        return any(isinstance(event, kind) for event in self._events)
