"""A fix that stopped at its budget goes on: a person raises the cap, the trail gives the state back.

Everything is read from the audit trail and its evidence; nothing else outlives a run. The attempt that
was stopped begins again under its own number, and finds the answers that were paid for
(``fallback_tier.budget.journal``).
"""

import fcntl
import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import TypeVar

from fallback_audit.events import (
    AnswerReused,
    AttemptFailed,
    AttemptStarted,
    BudgetRaised,
    BudgetReached,
    ExampleReplayed,
    FixStarted,
    ModelCalled,
    PatchProposed,
    SandboxDisabled,
)
from fallback_audit.ports import AuditStore, EvidenceStore, Scope, StoredEvent
from fallback_audit.trail import TERMINALS, is_budget_stop
from fallback_audit.vocabulary import BudgetLimit, CallType, Tier
from fallback_tier.advisory import Advisory
from fallback_tier.budget.meter import amount, is_of_a_day
from fallback_tier.errors import InputError, RepositoryError
from fallback_tier.gates.steps import FixState
from fallback_tier.outcome import AttemptSummary

EventT = TypeVar("EventT")

#: The option that raises each cap of a fix, the same in ``review raise-budget`` and ``fix``.
_OPTIONS = {
    BudgetLimit.USD_PER_FIX: "--max-usd",
    BudgetLimit.TOKENS_PER_FIX: "--max-tokens",
    BudgetLimit.USD_PER_DAY: "--max-usd-per-day",
    BudgetLimit.TOKENS_PER_DAY: "--max-tokens-per-day",
}


@dataclass(frozen=True)
class Reopened:
    """What a fix goes on with. ``raised``: everything that was raised for it, in order.

    ``unprotected``: that no sandbox was used is on record.
    """

    gate_transition_id: str
    state: FixState
    raised: tuple[BudgetRaised, ...]
    unprotected: bool


@dataclass(frozen=True)
class _History:
    """The events of a fix's last gate transition."""

    scope: Scope
    events: tuple[StoredEvent, ...]

    def of(self, kind: type[EventT]) -> list[EventT]:
        return [stored.payload for stored in self.events if isinstance(stored.payload, kind)]

    @property
    def last(self) -> object:
        return self.events[-1].payload

    @property
    def stopped(self) -> BudgetReached | None:
        """The cap at which the fix stands still, raised or not; None: it does not."""
        if is_budget_stop(self.last) or isinstance(self.last, BudgetRaised):
            return next(iter(reversed(self.of(BudgetReached))), None)
        return None


def how_to_go_on(reached: BudgetReached, fix_id: str) -> str:
    """The commands, for the person who is asked."""
    option, least = _OPTIONS[reached.limit], _least(reached)
    raising = f"fallback-tier review raise-budget {fix_id} --by NAME --because TEXT"
    resuming = f"fallback-tier fix REPO --advisory FILE --resume {fix_id}"
    if is_of_a_day(reached.limit):
        return (
            f"Go on tomorrow, or with {option} {least} or more? `{raising}`, then `{resuming}` with "
            "the options as before."
        )
    return f"Go on? `{raising} {option} {least}` (or more), then `{resuming}` with the options as before."


def raise_budget(audit: AuditStore, fix_id: str, raised: BudgetRaised) -> BudgetReached:
    """Record that a person raised a cap; returns what had been reached.

    Raises InputError, and records nothing: no such fix, one that did not stop at its budget, no name or
    reason, a cap that is not higher. After a cap per day no number is needed: that one is an option of
    ``fix``, and the record says who let the fix go on.
    """
    history = _history(audit, fix_id)
    reached = history.stopped
    if reached is None:
        raise InputError(
            f"Fix {fix_id} did not stop at its budget: its last event is {_kind(history)}.",
            next_step="Only a fix that was escalated with budget_exhausted can be given more.",
        )
    if not (raised.by.strip() and raised.reason.strip()):
        raise InputError(
            "A raised budget needs a name and a reason.",
            next_step="Give --by NAME and --because TEXT: both go on record.",
        )
    for limit, given in (
        (BudgetLimit.USD_PER_FIX, raised.usd_per_fix),
        (BudgetLimit.TOKENS_PER_FIX, raised.tokens_per_fix),
    ):
        _check_higher(history, reached, limit, None if given is None else str(given))
    audit.append(history.scope, raised)
    return reached


def reopen(
    audit: AuditStore,
    evidence: EvidenceStore,
    fix_id: str,
    *,
    advisory: Advisory,
    base_commit: str,
) -> Reopened:
    """The state in which a fix stopped at its budget, for ``GateRunner.resume``.

    Raises InputError: no such fix, it has ended, nobody raised its budget, it was about another
    advisory; RepositoryError: another commit; EvidenceError: the summary of a failed attempt is gone.
    """
    history = _history(audit, fix_id)
    _check_raised(history, fix_id)
    starts = history.of(FixStarted)
    if not starts:
        raise InputError(
            f"{fix_id} is no fix of this program's gate runner: another orchestrator keeps its state.",
            next_step="Call `fallback-tier attempt` again with the same fix_id, gate_transition_id "
            "and prior_attempts.",
        )
    _check_same(starts[0], advisory, base_commit, fix_id)
    failures = history.of(AttemptFailed)
    attempts = history.of(AttemptStarted)
    if attempts and attempts[-1].prior_attempt_count != len(failures):
        raise InputError(
            f"Fix {fix_id} began with failed attempts of another gate transition.",
            next_step="Start a new fix.",
        )
    return Reopened(
        gate_transition_id=history.scope.gate_transition_id,
        state=FixState(
            prior_attempts=tuple(_summary(history, failure, evidence) for failure in failures),
            signatures=tuple(failure.failure_signature for failure in failures),
        ),
        raised=tuple(history.of(BudgetRaised)),
        unprotected=bool(history.of(SandboxDisabled)),
    )


@contextmanager
def resuming(workspace: Path, fix_id: str) -> Iterator[None]:
    """Hold a fix while it goes on: two at once would share a worktree, and write one trail.

    ``reopen`` belongs inside. The system lets go when the process ends, however it does. Raises
    InputError where another process holds it.
    """
    folder = workspace / "resuming"
    folder.mkdir(parents=True, exist_ok=True)
    # An identifier may be anybody's text: it names no path.
    name = hashlib.sha256(fix_id.encode()).hexdigest()
    with (folder / name).open("w") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise InputError(
                f"Fix {fix_id} is being resumed by another process.",
                next_step="Wait for it to end; `fallback-tier audit show` tells how it goes.",
            ) from error
        yield


def _history(audit: AuditStore, fix_id: str) -> _History:
    events = tuple(audit.events(fix_id))
    if not events:
        raise InputError(
            f"There is no fix {fix_id!r} in the audit trail.",
            next_step="`fallback-tier audit log` lists those on record.",
        )
    scope = events[-1].scope
    return _History(scope, tuple(stored for stored in events if stored.scope == scope))


def _check_raised(history: _History, fix_id: str) -> None:
    if isinstance(history.last, BudgetRaised):
        return
    if (reached := history.stopped) is not None:
        raise InputError(
            f"Fix {fix_id} stopped at its budget, and nobody has raised it.",
            next_step=how_to_go_on(reached, fix_id),
        )
    if isinstance(history.last, TERMINALS):
        raise InputError(
            f"Fix {fix_id} has ended: {_kind(history)}.",
            next_step=f"See `fallback-tier audit show {fix_id}`; start a new fix without --resume.",
        )
    raise InputError(
        f"Fix {fix_id} did not stop at its budget: it is running or was interrupted "
        f"({_kind(history)}).",
        next_step="Wait for it to end, or start a new fix without --resume.",
    )


def _check_same(start: FixStarted, advisory: Advisory, base_commit: str, fix_id: str) -> None:
    if start.base_commit != base_commit:
        raise RepositoryError(
            f"Fix {fix_id} began at commit {start.base_commit[:12]}, and this is {base_commit[:12]}.",
            next_step="Check out that commit to resume, or start a new fix without --resume.",
        )
    ecosystems = ", ".join(advisory.ecosystems)
    if (start.advisory_ids, start.ecosystem) != (advisory.ids, ecosystems):
        raise InputError(
            f"Fix {fix_id} is about {', '.join(start.advisory_ids)} ({start.ecosystem}), and "
            f"--advisory is {', '.join(advisory.ids)} ({ecosystems}).",
            next_step="Give the advisory that the fix began with.",
        )


def _check_higher(
    history: _History, reached: BudgetReached, limit: BudgetLimit, given: str | None
) -> None:
    """The cap that was reached must be raised; another one may be, and then truly so."""
    standing = [reached.cap] if reached.limit is limit else []
    for raised in history.of(BudgetRaised):
        earlier = getattr(raised, limit.value)
        standing += [] if earlier is None else [str(earlier)]
    cap = max(standing, key=Decimal, default=None)
    if given is None:
        # Raised before, and nothing was asked since: that one stands.
        needed = reached.limit is limit and cap == reached.cap
    else:
        needed = cap is not None and Decimal(given) <= Decimal(cap)
    if needed and cap is not None:
        said = "" if given is None else f", and {amount(limit, given)} is not more"
        raise InputError(
            f"The cap that stands is {amount(limit, cap)}{said}.",
            next_step=f"Give {_OPTIONS[limit]} {_least(reached) if reached.limit is limit else 'N'} "
            "or more.",
        )


def _least(reached: BudgetReached) -> str:
    """The lowest cap under which the next call fits."""
    if not reached.wanted:
        return "N"
    return f"{Decimal(reached.used) + Decimal(reached.wanted):f}"


def _summary(history: _History, failure: AttemptFailed, evidence: EvidenceStore) -> AttemptSummary:
    return AttemptSummary(
        attempt=failure.attempt,
        tier=failure.tier,
        edit_digest=failure.edit_digest,
        failing_gates=failure.failing_gates,
        failure_kind=failure.failure_kind,
        prior_failure_summary=evidence.get(failure.summary_sha256).decode(),
        used_few_shot_ref=_examples(history, failure.attempt),
    )


def _examples(history: _History, attempt: int) -> tuple[str, ...]:
    """The examples behind an attempt's patch: the replayed one, or those of its last prompt."""
    patch = next((p for p in history.of(PatchProposed) if p.attempt == attempt), None)
    if patch is None:
        return ()
    if patch.tier is Tier.RAG:
        return tuple(
            replay.example_id for replay in history.of(ExampleReplayed) if replay.attempt == attempt
        )
    prompts = [
        stored.payload.example_ids
        for stored in history.events
        if isinstance(stored.payload, ModelCalled | AnswerReused)
        and stored.payload.attempt == attempt
        and stored.payload.call_type is CallType.AUTHOR
    ]
    return prompts[-1] if prompts and patch.tier is Tier.LLM else ()


def _kind(history: _History) -> str:
    return history.events[-1].kind
