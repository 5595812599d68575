"""One gate transition's events, indexed for the rules; and the links between the gate transitions of a fix.

Events are compared by exact type: no kind has a subclass, and ``isinstance`` with another pydantic model
takes ten times as long. A verification does this some hundred times per trail.
"""

from bisect import bisect
from collections import defaultdict
from collections.abc import Iterable
from copy import copy
from itertools import chain, pairwise
from operator import itemgetter
from typing import Any, Generic, NamedTuple, TypeVar

from fallback_audit.event_types import Role
from fallback_audit.events import (
    KINDS,
    AnswerReused,
    AttemptFailed,
    AttemptRefused,
    AttemptStarted,
    AuditEvent,
    BudgetRaised,
    Digest,
    FixAbandoned,
    FixEscalated,
    FixPatched,
    FixRefused,
    FixStarted,
    FixVerified,
    ModelCalled,
    PatchProposed,
    RagSkippedOnRetry,
    RecipeCandidateFailed,
    TransitionReopened,
)
from fallback_audit.ports import MAINTENANCE, Scope
from fallback_audit.vocabulary import CallType, EscalationReason, RefusalReason

EventT = TypeVar("EventT")

_SEQ = itemgetter(0)

#: The number of the event at which a rule of the trace contract is broken, and how.
Finding = tuple[int, str]


def _of_role(role: Role) -> tuple[type[Any], ...]:
    return tuple(kind for kind in KINDS if kind.role is role)


#: Kinds by their role in a gate transition: see ``Role``.
TERMINALS: tuple[type[FixVerified | FixPatched | FixRefused | FixEscalated], ...] = _of_role(
    Role.END
)
AFTER_THE_END = _of_role(Role.AFTER_THE_END)
RESUMING = _of_role(Role.RESUMING)
NOTES = _of_role(Role.NOTE)
ABANDONING: tuple[type[FixAbandoned], ...] = _of_role(Role.ABANDONING)

_ENDING = frozenset({*TERMINALS, BudgetRaised})
_NOTES, _RESUMING = frozenset(NOTES), frozenset(RESUMING)
#: Kinds that are not among the entries of a trail.
_APART = frozenset({*NOTES, *ABANDONING})


class Entry(NamedTuple, Generic[EventT]):
    """An event and its number in the chain."""

    seq: int
    event: EventT


AnyEntry = Entry[AuditEvent]

#: A request to a model: sent, or answered with an answer paid for before an interruption.
Asked = ModelCalled | AnswerReused


class EventSequence:
    """Consecutive entries of one gate transition. It grows only at its end."""

    def __init__(self, entries: Iterable[AnyEntry]) -> None:
        self.entries = list(entries)
        self._by_type: defaultdict[type[Any], list[Any]] = defaultdict(list)
        for entry in self.entries:
            self._by_type[type(entry.event)].append(entry)
        #: The first terminal event; None while the fix is open or reopened.
        self.terminal: AnyEntry | None = self._end()

    def append(self, entry: AnyEntry) -> None:
        """Append an event."""
        self.entries.append(entry)
        self._by_type[type(entry.event)].append(entry)
        if type(entry.event) in _ENDING:
            self.terminal = self._end()

    def _end(self) -> AnyEntry | None:
        ends = self.any_of(*TERMINALS)
        if ends and self.of(BudgetRaised):  # the fix that stopped at this budget continues
            raised = {
                entry.seq
                for entry, following in pairwise(self.entries)
                if isinstance(following.event, BudgetRaised)
            }
            ends = [end for end in ends if not (is_budget_stop(end.event) and end.seq in raised)]
        return ends[0] if ends else None

    def of(self, kind: type[EventT]) -> list[Entry[EventT]]:
        """Return the entries of this type, in chain order."""
        return self._by_type.get(kind, [])

    def any_of(self, *kinds: type[Any]) -> list[AnyEntry]:
        """Return the entries of these types, in chain order."""
        lists = [self._by_type[kind] for kind in kinds if kind in self._by_type]
        if len(lists) < 2:
            return lists[0] if lists else []
        return sorted(chain.from_iterable(lists), key=_SEQ)

    def next_of(self, seq: int, *kinds: type[Any]) -> AnyEntry | None:
        """Return the first entry of these types after ``seq``, or None."""
        by_type = self._by_type
        later = [entry for kind in kinds for entry in by_type.get(kind, ()) if entry.seq > seq]
        return min(later, key=_SEQ) if later else None


class Run(EventSequence):
    """The entries from one AttemptStarted to the next: what the tier did, and the outcome."""

    def __init__(self, entries: Iterable[AnyEntry]) -> None:
        super().__init__(entries)
        self.start = self.of(AttemptStarted)[0]
        #: The attempt's number.
        self.attempt: int = self.start.event.attempt
        #: Retry as fresh context follows from the prior attempts alone (ADR-0011).
        self.is_retry: bool = self.start.event.prior_attempt_count > 0
        self.successor: Run | None = None
        #: The requests to models, with new or reused answers; and those to the author alone.
        self.asked: list[Entry[Asked]] = [*self.any_of(ModelCalled, AnswerReused)]  # type: ignore[list-item]
        self.author_asked: list[Entry[Asked]] = [
            entry for entry in self.asked if entry.event.call_type is CallType.AUTHOR
        ]

    def append(self, entry: AnyEntry) -> None:
        """Append an event of this attempt."""
        super().append(entry)
        if isinstance(entry.event, Asked):
            request = Entry(entry.seq, entry.event)
            self.asked.append(request)
            if entry.event.call_type is CallType.AUTHOR:
                self.author_asked.append(request)

    @property
    def interrupted(self) -> bool:
        """Return whether it has no final outcome: consumer left, process died, or budget used up.

        Only such an attempt is resumed under its own number.
        """
        return not self.of(PatchProposed) and all(
            is_budget_stop(refusal.event) for refusal in self.of(AttemptRefused)
        )

    @property
    def handed_on(self) -> bool:
        """Return whether its patch was refused, and the recipe's next candidate has the same number."""
        return bool(self.of(RecipeCandidateFailed))

    @property
    def keeps_its_number(self) -> bool:
        """Return whether the next run may have the same attempt number and prior attempts."""
        return self.interrupted or self.handed_on

    @property
    def went_on(self) -> bool:
        """Return whether the fix went on after this run. If not, an action may still come."""
        return self.successor is not None or self.terminal is not None

    @property
    def resumed(self) -> bool:
        """Return whether the next run resumes this attempt, under the same number."""
        return self.successor is not None and self.successor.attempt == self.attempt


class Trail(EventSequence):
    """All events of one gate transition of one fix, in chain order.

    ``notes`` and ``abandonments`` are separate from ``entries``, and in ``everything`` with them.
    ``base``: number of the last sealed event of the store that this trail was read from.
    """

    def __init__(self, scope: Scope, entries: Iterable[AnyEntry], *, base: int = 0) -> None:
        self.everything = list(entries)
        self.notes = [entry for entry in self.everything if type(entry.event) in _NOTES]
        #: Events by which a person ended the fix: at most one, in a trail that breaks no rule.
        self.abandonments = [entry for entry in self.everything if type(entry.event) in ABANDONING]
        super().__init__(
            [entry for entry in self.everything if type(entry.event) not in _APART]
            if self.notes or self.abandonments
            else self.everything
        )
        self.scope = scope
        #: Not about the audit trail as a whole. Stored, since nearly every rule reads it.
        self.of_a_fix = scope != MAINTENANCE
        self.base = base
        self.preamble, self.runs = _split(self.entries)

    def append(self, entry: AnyEntry) -> None:
        """Append an event of this gate transition."""
        self.everything.append(entry)
        if type(entry.event) in _NOTES:
            self.notes.append(entry)
            return
        if type(entry.event) in ABANDONING:
            self.abandonments.append(entry)
            return
        super().append(entry)
        if isinstance(entry.event, AttemptStarted):
            run = Run([entry])
            if self.runs:
                self.runs[-1].successor = run
            self.runs.append(run)
        elif _of_an_attempt(entry.event):
            (self.runs[-1] if self.runs else self.preamble).append(entry)

    @property
    def acts(self) -> list[AnyEntry]:
        """Return the entries without RESUMING, for rules about what follows what."""
        return [entry for entry in self.entries if type(entry.event) not in _RESUMING]

    def act_after(self, seq: int) -> AnyEntry | None:
        """Return the first of ``acts`` after ``seq``, or None."""
        later = self.entries[bisect(self.entries, seq, key=_SEQ) :]
        return next((entry for entry in later if type(entry.event) not in _RESUMING), None)

    @property
    def managed(self) -> bool:
        """Return whether our gate runner kept it. Another orchestrator's verdicts are not in the trail."""
        return bool(self.of(FixStarted))

    @property
    def judges_again(self) -> Digest | None:
        """Return the recorded patch whose gates alone are run again here, or None if this is a fix."""
        starts = self.of(FixStarted)
        return starts[0].event.judges_again if starts else None

    @property
    def not_made(self) -> bool:
        """Return whether the model was unavailable for its attempt, and no patch precedes the end."""
        end = self.terminal
        return end is not None and attempt_was_not_made(
            end.event, has_patch=any(patch.seq < end.seq for patch in self.of(PatchProposed))
        )

    @property
    def is_open(self) -> bool:
        """Return whether it is a fix that has not ended: running, or interrupted and not abandoned."""
        return self.of_a_fix and self.terminal is None and not self.abandonments

    def latest(self) -> "Trail":
        """Return the trail with only its last two runs, for rules that look at each run separately."""
        if len(self.runs) < 3:
            return self
        view = copy(self)
        view.runs = self.runs[-2:]
        return view

    @property
    def begins(self) -> bool:
        """Return whether it begins as a fix: with FixStarted, or (other orchestrators) a first attempt."""
        first = self.entries[0].event if self.entries else None
        return isinstance(first, FixStarted) or (
            isinstance(first, AttemptStarted) and first.prior_attempt_count == 0
        )

    @property
    def is_cut(self) -> bool:
        """Return whether its beginning may be in a sealed segment: then a missing event proves nothing."""
        return self.base > 0 and self.of_a_fix and not self.begins


def is_budget_stop(event: object) -> bool:
    """Return whether the event stops an attempt or fix at a budget: raising it continues the fix."""
    return (type(event) is AttemptRefused and event.reason is RefusalReason.BUDGET_EXHAUSTED) or (
        type(event) is FixEscalated and event.reason is EscalationReason.BUDGET_EXHAUSTED
    )


def attempt_was_not_made(end: object, *, has_patch: bool) -> bool:
    """Return whether a fix ended because the model was unavailable, before it proposed any patch."""
    return (
        type(end) is FixEscalated
        and end.reason is EscalationReason.MODEL_UNAVAILABLE
        and not has_patch
    )


def refused_by_cap(event: AuditEvent) -> bool:
    """Return whether the retry cap refused a call: before it became an attempt, so it belongs to none."""
    return type(event) is AttemptRefused and event.reason is RefusalReason.RETRY_CAP_REACHED


_OF_NO_ATTEMPT = frozenset({*RESUMING, *AFTER_THE_END})


def _of_an_attempt(event: AuditEvent) -> bool:
    kind = type(event)
    return kind not in _OF_NO_ATTEMPT and (kind is not AttemptRefused or not refused_by_cap(event))


def _split(entries: Iterable[AnyEntry]) -> tuple[list[AnyEntry], list[Run]]:
    preamble: list[AnyEntry] = []
    pieces: list[list[AnyEntry]] = []
    piece = preamble
    for entry in entries:
        if type(entry.event) is AttemptStarted:
            piece = [entry]
            pieces.append(piece)
        elif _of_an_attempt(entry.event):
            piece.append(entry)
    runs = list(map(Run, pieces))
    for run, successor in pairwise(runs):
        run.successor = successor
    return preamble, runs


class Link(NamedTuple):
    """The facts of one gate transition that rules on its fix need.

    ``carried``: digest of the failure summary that it began with; ``last``: digest of the one to continue
    with, as far as this gate transition shows. ``not_made``: the model was unavailable for its first
    attempt. ``abandoned``: number of the event by which a person ended the fix here.
    """

    transition: str
    seq: int
    started: FixStarted | None
    prior_attempts: int | None
    carried: Digest | None
    last: Digest | None
    not_made: bool
    opened: tuple[Entry[TransitionReopened], ...]
    proposed: tuple[Entry[PatchProposed], ...]
    abandoned: int | None = None

    @property
    def linked(self) -> str | None:
        """Return the gate transition that it names as its opener, or None."""
        return self.started.linked_transition if self.started else None

    @property
    def judges_again(self) -> Digest | None:
        """Return the patch whose gates alone are run again here, or None."""
        return self.started.judges_again if self.started else None


def link_of(trail: Trail) -> Link:
    """Return the facts of one gate transition, which has at least one event."""
    starts, failures = trail.of(FixStarted), trail.of(AttemptFailed)
    first = trail.runs[0] if trail.runs else None
    skips = first.of(RagSkippedOnRetry) if first else []
    carried = skips[0].event.summary_sha256 if skips else None
    return Link(
        transition=trail.scope.gate_transition_id,
        seq=trail.everything[0].seq,
        started=starts[0].event if starts else None,
        prior_attempts=first.start.event.prior_attempt_count if first else None,
        carried=carried,
        last=failures[-1].event.summary_sha256 if failures else carried,
        not_made=trail.not_made,
        opened=tuple(trail.of(TransitionReopened)),
        proposed=tuple(trail.of(PatchProposed)),
        abandoned=trail.abandonments[0].seq if trail.abandonments else None,
    )


class FixLinks:
    """The links of one fix's gate transitions. Not ``whole``: one of them can't be read, or is cut."""

    def __init__(self, fix_id: str) -> None:
        self.fix_id = fix_id
        self.links: list[Link] = []
        self.whole = True
