"""``CheckpointedStore``: an audit store whose events get covered by checkpoints, or that stops taking any.

A checkpoint is made once N events are uncovered, at most T seconds after the first uncovered one, at
the end of each attempt and of each fix, and at close. What this process did not write
is signed as found, not as its own. Events are durable before that: a checkpoint that can't be written
undoes nothing, and is tried again at the next one. But once N events are uncovered the store refuses,
before it appends (fail closed). A store that contradicts its last checkpoint refuses at once.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from fallback_audit.checkpoints.checkpoint import SignedCheckpoint
from fallback_audit.checkpoints.writer import Checkpointer, Notify, to_log
from fallback_audit.checkpoints.written import Written
from fallback_audit.errors import AuditError, CheckpointError, HistoryError
from fallback_audit.event_types import StartedOn
from fallback_audit.events import (
    CLOSING_KINDS,
    AttemptFailed,
    AttemptRefused,
    AuditEvent,
    Digest,
    RecipeCandidateFailed,
)
from fallback_audit.ports import AuditStore, HeaderRow, Record, Scope, StoredEvent

#: What ends a fix, an attempt, or a recipe's candidate: what was recorded of it is covered then.
COVERED_AT = CLOSING_KINDS | {
    kind.__name__ for kind in (AttemptFailed, AttemptRefused, RecipeCandidateFailed)
}


class Timer(Protocol):
    """What is used of ``threading.Timer``."""

    daemon: bool

    def start(self) -> None:
        """Begin to wait."""
        ...

    def cancel(self) -> None:
        """Don't call, unless the call has begun."""
        ...

    def join(self, timeout: float | None = None) -> None:
        """Wait for the end of the thread."""
        ...


TimerFactory = Callable[[float, Callable[[], None]], Timer]


class CheckpointedStore:
    """An ``AuditStore`` around ``store``. Threads may share it, and processes its parts.

    ``written``: what the store's guard noted as written here.
    ``events``, ``seconds``: the N and T above. Where several processes write, each counts what it knows
    of, so at most that many more events than N can be uncovered. ``from_first``: where nothing is covered
    yet, that is made good at once: then a log without any checkpoint was robbed of it.
    ``started_on``: this machine, for the events with which a process begins its part of a fix.
    """

    def __init__(
        self,
        store: AuditStore,
        checkpointer: Checkpointer,
        written: Written,
        *,
        events: int,
        seconds: float,
        from_first: bool = False,
        started_on: StartedOn | None = None,
        timer: TimerFactory = threading.Timer,
        notify: Notify = to_log,
    ) -> None:
        self.store = store
        self._checkpointer = checkpointer
        self._written = written
        self._limit = events
        self._seconds = seconds
        self._from_first = from_first
        self._started_on = started_on.model_dump() if started_on is not None else {}
        self._new_timer = timer
        self._notify = notify
        self._lock = threading.RLock()
        self._timer: Timer | None = None
        self._covered: int | None = None
        self._size = 0
        self._failure: AuditError | None = None
        self._closed = False

    def append(self, scope: Scope, event: AuditEvent) -> StoredEvent:
        """Make one event durable. Raises as ``append_all`` does."""
        return self.append_all((Record(scope, event),))[0]

    def append_all(self, records: Sequence[Record]) -> tuple[StoredEvent, ...]:
        """Make events durable, then cover them where it is time.

        Raises AuditStoreError as the store does; CheckpointError where too many are uncovered and no
        checkpoint can be made; HistoryError, KeyringError, AuditIntegrityError where what was signed
        before can't be gone on with. Nothing was recorded then.
        """
        with self._lock:
            self._admit()
            appended = self.store.append_all([self._located(record) for record in records])
            if appended:
                self._size = appended[-1].seq
                ended = any(event.kind in COVERED_AT for event in appended)
                first = self._from_first and not self._covered
                if first or ended or self._uncovered() >= self._limit:
                    self._try_to_cover()
                self._set_timer()
        return appended

    def checkpoint(self) -> SignedCheckpoint | None:
        """Cover every event now. None: there is no event. Raises CheckpointError, KeyringError."""
        with self._lock:
            return self._cover()

    def events(
        self,
        fix_id: str | None = None,
        *,
        kinds: frozenset[str] | None = None,
        since: str | None = None,
        after: int = 0,
    ) -> Iterator[StoredEvent]:
        """As the store's."""
        return self.store.events(fix_id, kinds=kinds, since=since, after=after)

    def tip(self) -> tuple[int, Digest]:
        """As the store's."""
        return self.store.tip()

    def headers(self, *, after: int = 0, upto: int | None = None) -> Iterator[HeaderRow]:
        """As the store's."""
        return self.store.headers(after=after, upto=upto)

    def close(self) -> None:
        """Cover what is uncovered, release the store. Idempotent. A failed checkpoint is only said."""
        with self._lock:
            timer, self._timer = self._timer, None
            if self._closed:
                return
            self._closed = True
            if timer is not None:
                timer.cancel()
            try:
                if self._covered is not None and self._uncovered():
                    self._try_to_cover()
            finally:
                self.store.close()
        if timer is not None:
            timer.join()

    def _located(self, record: Record) -> Record:
        if not (self._started_on and isinstance(record.event, StartedOn)):
            return record
        return record._replace(event=record.event.model_copy(update=self._started_on))

    def _uncovered(self) -> int:
        return self._size - (self._covered or 0)

    def _admit(self) -> None:
        """May anything be appended? The first time, this compares the store with its checkpoints."""
        if self._covered is None:
            covered = self._checkpointer.check()
            self._size, self._covered = self.store.tip()[0], covered
        if isinstance(self._failure, HistoryError):
            self._cover()
        if self._uncovered() < self._limit:
            return
        try:
            self._cover()
        except HistoryError:
            raise
        except AuditError as error:
            raise CheckpointError(
                f"{self._uncovered()} events have no checkpoint, so no more are recorded: "
                f"{error.problem}",
                next_step=error.next_step,
                kind="too_many_uncovered",
            ) from error

    def _cover(self) -> SignedCheckpoint | None:
        signed = self._checkpointer.checkpoint(self._written.spans())
        self._failure = None
        if signed is not None:
            self._covered = signed.checkpoint.size
            self._written.forget(self._covered)
            self._size = max(self._size, self._covered)
        return signed

    def _try_to_cover(self) -> None:
        """A failure is said once; the next checkpoint that is due tries again."""
        try:
            self._cover()
        except AuditError as error:
            if type(error) is not type(self._failure):
                self._notify(f"no checkpoint could be made: {error}")
            self._failure = error

    def _set_timer(self) -> None:
        """Runs while events are uncovered, and goes on when they are covered before it is up: so it may
        be up early for later ones, but no fix has to start a thread of its own."""
        if self._timer is None and self._uncovered() and not self._closed:
            self._timer = self._new_timer(self._seconds, self._time_is_up)
            self._timer.daemon = True
            self._timer.start()

    def _time_is_up(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._timer = None
            try:
                if self._uncovered():
                    self._try_to_cover()
            finally:  # a defect ends this thread: the next one tries again
                self._set_timer()
