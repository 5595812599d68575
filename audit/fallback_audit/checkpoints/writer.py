"""Making checkpoints, from the last signed one to the end of the chain, and when to make them.

Before anything is signed, the store's history must agree with the last checkpoint: not fewer events, at the
its size the leaf that it names (a leaf depends on all before it), and from there an unbroken chain.

``CheckpointedStore`` makes a checkpoint once N events are uncovered, at most T seconds after the first
uncovered one, at the end of each attempt and of each fix, and at close. Events that another process wrote
are signed as found. Events are durable before that: if a checkpoint can't be written, no event is lost, and
the next checkpoint covers them. But once N events are uncovered, the store tries first and refuses to
append if it fails (fail closed). A store that contradicts its last checkpoint is refused at once.
"""

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from fallback_audit.canonical import GENESIS, leaf_digest
from fallback_audit.checkpoints.checkpoint import (
    Checkpoint,
    Previous,
    SignedCheckpoint,
    Span,
    Written,
    others,
    sign_checkpoint,
)
from fallback_audit.checkpoints.keyring import KeyFolder, Keyring, forget, generate, remember
from fallback_audit.checkpoints.log import CheckpointLog, ahead_because, gone_because
from fallback_audit.checkpoints.merkle import Frontier
from fallback_audit.errors import (
    AuditError,
    CheckpointError,
    HistoryError,
    KeyringError,
    RequestError,
)
from fallback_audit.event_types import StartedOn
from fallback_audit.events import (
    CLOSING_KINDS,
    AttemptFailed,
    AttemptRefused,
    AuditEvent,
    Digest,
    RecipeCandidateFailed,
)
from fallback_audit.ports import AuditStore, HeaderReader, HeaderRow, Record, Scope, StoredEvent
from fallback_audit.statements import Start

Notify = Callable[[str], None]
_Segments = Callable[[], Sequence[bytes]]

#: Most ``found`` lines in a checkpoint.
_MAX_SPANS = 16

_LOGGER = logging.getLogger("fallback_audit")

_VERIFY = (
    "Stop what writes to the store, keep a copy of both, and run `fallback-tier audit verify`. Only if "
    "that says the same, restore the store that was signed."
)

#: Kinds that end a fix, an attempt, or a recipe's candidate: its events are covered then.
_COVERED_AT = CLOSING_KINDS | {
    kind.__name__ for kind in (AttemptFailed, AttemptRefused, RecipeCandidateFailed)
}


def to_log(message: str) -> None:
    """Log a warning. It goes to standard error unless a host program configures logging."""
    _LOGGER.warning("fallback-tier: %s", message)


class Checkpointer:
    """Signer of checkpoints of ``reader`` into ``log``, with the keys in ``keys``. Threads may share it.

    ``segments``: the statements of the sealed segments, in order. ``called``: the options that name this
    audit trail on a command line, for the command in an error's text.
    """

    def __init__(
        self,
        reader: HeaderReader,
        log: CheckpointLog,
        keys: Path,
        *,
        segments: _Segments = tuple,
        notify: Notify = to_log,
        called: str = "",
    ) -> None:
        self._called = called
        self._reader = reader
        self._log = log
        self._keys = keys
        self._folder = KeyFolder(keys)
        self._segments = segments
        self._notify = notify
        self._frontier = Frontier()

    def check(self) -> int:
        """Check the history, the key and the folder, and return the number of covered events.

        Raises HistoryError, CheckpointError, KeyringError, AuditIntegrityError.
        """
        with self._log.locked():  # fail early: without the lock no checkpoint can be written
            latest = self._latest(self._keyring())
        if latest is None:
            return 0
        self._check_history(latest.checkpoint)
        return latest.checkpoint.size

    def checkpoint(self, wrote: Sequence[Span] = ()) -> SignedCheckpoint | None:
        """Return a checkpoint that covers all events: the latest, or a new one. None without events.

        ``wrote``: the events that the caller wrote itself, ascending; other new events are signed as found.
        Raises HistoryError, CheckpointError, KeyringError, AuditIntegrityError; then nothing is signed.
        """
        if not (self._reader.tip()[0] or self._log.latest_size()):
            self._check_known(self._folder.load())
            return None
        with self._log.locked():
            keyring = self._keyring()
            latest = self._latest(keyring)
            size, tip = self._reader.tip()
            before = latest.checkpoint if latest is not None else None
            if before is not None:
                self._check_history(before)
            if size == (before.size if before is not None else 0):
                return self._signed_by_all(latest, keyring)
            frontier = self._extended(latest, keyring, size, tip)
            previous = latest.named if latest is not None else None
            covered = before.size if before is not None else 0
            found_spans = _few(others(wrote, after=covered, upto=size))
            new = Checkpoint(keyring.origin, size, frontier.root(), tip, previous, found_spans)
            signed = sign_checkpoint(new, keyring.signers())
            self._log.add(signed)
            self._log.remember(frontier)
            remember(self._keys, self._log.folder, signed.named, self._log.first() or signed.named)
            self._frontier = frontier
            return signed

    def begin_again(self, announce: Callable[[Previous], None]) -> None:
        """Forget the last signed checkpoint, which is missing: its audit trail was removed on purpose.

        ``announce`` records that durably before it is forgotten. Raises RequestError if none is missing,
        HistoryError if the store contradicts a checkpoint that exists.
        """
        with self._log.locked():
            keyring = self._folder.load()
            gone = gone_from(self._log, keyring)
            if (latest := self._log.latest(keyring)) is not None:
                self._check_history(latest.checkpoint)
            announce(gone)
            forget(self._keys, self._log.folder, gone, self._log.first())

    def _signed_by_all(
        self, latest: SignedCheckpoint | None, keyring: Keyring
    ) -> SignedCheckpoint | None:
        """Return ``latest``, with the missing signatures if a rotation added a key."""
        if latest is None:
            return None
        signers = keyring.signers()
        if {signer.verifier for signer in signers} <= set(latest.signed_by):
            return latest
        signed = sign_checkpoint(latest.checkpoint, signers)
        self._log.add(signed)
        return signed

    def _keyring(self) -> Keyring:
        """Return the keys, making the first one if nothing was ever signed. Raises KeyringError."""
        keyring = self._folder.load()
        if keyring.signing is not None:
            return keyring
        if self._log.latest_size():
            raise KeyringError(
                f"There are checkpoints in {self._log.folder}, but no signing key in {self._keys}.",
                next_step="Name the folder of their key with --keys, or restore it from its backup. "
                "Only if it is lost: move the checkpoints away, run `fallback-tier audit keygen`.",
                kind="checkpoints_without_key",
            )
        if keyring.verifiers():
            keyring.signers()  # raises: the folder is for verifying only
        self._check_known(keyring)
        keyring = generate(self._keys)
        vkey = keyring.signers()[0].verifier.vkey
        self._notify(f"made a key to sign checkpoints with, in {self._keys}: back it up ({vkey})")
        return keyring

    def _latest(self, keyring: Keyring) -> SignedCheckpoint | None:
        latest = self._log.latest(keyring)
        self._check_known(keyring, latest)
        return latest

    def _check_known(self, keyring: Keyring, latest: SignedCheckpoint | None = None) -> None:
        """Check that the last checkpoint signed for this log is in it. Raises HistoryError."""
        gone = self._log.gone(keyring, latest)
        if gone is not None:
            raise HistoryError(
                f"The record can't be continued: {gone_because(gone, self._log.folder)}.",
                next_step="Put back, or mount, the checkpoints and the store that were there. Only if they "
                f"were removed on purpose, confirm it, on record: `{self._ending}`.",
                kind="known_checkpoint_missing",
            )
        ahead = self._log.ahead(keyring, latest)
        if ahead is not None:
            raise HistoryError(
                f"The audit trail can't be continued: {ahead_because(ahead, self._log.folder)}.",
                next_step="Continue the audit trail in the folder that has them. Only if those events were "
                f"given up on purpose, confirm it, on record: `{self._ending}`.",
            )

    @property
    def _ending(self) -> str:
        """Return the command with which a person confirms that the audit trail was removed on purpose."""
        return f"fallback-tier audit begin-again{self._called} --by NAME --because TEXT"

    def _check_history(self, before: Checkpoint) -> None:
        size, _ = self._reader.tip()
        if size < before.size:
            raise HistoryError(
                f"The store has {size} events, but its checkpoint in {self._log.folder} says "
                f"{before.size}: it was rolled back, or it is another one.",
                next_step=f"{_VERIFY} Only if the store was removed on purpose: move that folder away, and "
                f"confirm it, on record: `{self._ending}`.",
                kind="rolled_back",
            )
        leaf = self._leaf(before.size)
        if leaf != before.tip:
            raise HistoryError(
                f"Event {before.size} of the store is {leaf or 'missing'}, but its checkpoint in "
                f"{self._log.folder} says {before.tip}: history was rewritten, or it is another store.",
                next_step=_VERIFY,
                kind="rewritten",
            )

    def _leaf(self, seq: int) -> str | None:
        row = next(iter(self._reader.headers(after=seq - 1, upto=seq)), None)
        if row is not None:
            return row.leaf if leaf_digest(row.header) == row.leaf else None
        start = Start.of(self._segments(), self._folder.load().verifiers())
        return start.tip if start.seq == seq else None

    def _extended(
        self, latest: SignedCheckpoint | None, keyring: Keyring, size: int, tip: str
    ) -> Frontier:
        """Return the tree of ``size`` entries, extended from the last signed one if it is known."""
        frontier, leaf = self._signed(latest), (latest.checkpoint.tip or "") if latest else GENESIS
        if frontier is None:
            frontier, leaf = Start.of(self._segments(), keyring.verifiers())
        last_checkpoint = latest.checkpoint if latest is not None else None
        for row in self._reader.headers(after=frontier.size, upto=size):
            _check_link(row, frontier.size + 1, leaf)
            frontier.append(row.header)
            leaf = row.leaf
            if last_checkpoint is not None and frontier.size == last_checkpoint.size:
                self._check_root(frontier, last_checkpoint)
        if (frontier.size, leaf) != (size, tip):
            raise HistoryError(
                f"The store says it has {size} events, but the chain ends at {frontier.size}.",
                next_step=_VERIFY,
            )
        return frontier

    def _signed(self, latest: SignedCheckpoint | None) -> Frontier | None:
        """Return the last checkpoint's frontier from memory or the cache, or None."""
        if latest is None:
            return None
        signed = latest.checkpoint
        if (self._frontier.size, self._frontier.root()) == (signed.size, signed.root):
            return self._frontier.copy()
        return self._log.frontier(latest)

    def _check_root(self, frontier: Frontier, signed: Checkpoint) -> None:
        if frontier.root() != signed.root:
            raise HistoryError(
                f"The first {signed.size} events of the store don't have the root that their "
                f"checkpoint in {self._log.folder} says: history was rewritten.",
                next_step=_VERIFY,
            )


def _few(spans: tuple[Span, ...]) -> tuple[Span, ...]:
    """Merge spans if there are too many (several writers): the one then also has events not found."""
    return spans if len(spans) <= _MAX_SPANS else (Span(spans[0].first, spans[-1].last),)


def gone_from(log: CheckpointLog, keyring: Keyring) -> Previous:
    """Return the last signed checkpoint of this log, which is missing. Raises RequestError if none is."""
    gone = log.gone(keyring) or log.ahead(keyring)
    if gone is None:
        raise RequestError(
            f"No checkpoint that was signed for {log.folder} is gone: there is nothing to end.",
            next_step="Check the paths; `fallback-tier audit verify` says how the record stands.",
            kind="nothing_gone",
        )
    return gone


def _check_link(row: HeaderRow, seq: int, previous_leaf: str) -> None:
    """Raise HistoryError if a header is not the next link: it must not be signed."""
    linked = b'"previous_leaf":"%b"' % previous_leaf.encode() in row.header
    if row.seq != seq or not linked or leaf_digest(row.header) != row.leaf:
        raise HistoryError(
            f"Event {row.seq} of the store is altered, or does not follow event {seq - 1}.",
            next_step=_VERIFY,
            kind="event_altered",
        )


class CheckpointedStore:
    """An ``AuditStore`` around ``store``. Threads may share it; processes may share the store and the log.

    ``written``: the events that the store's guard noted as written here. ``events``, ``seconds``: the N and
    T above. If several processes write, each counts only the events that it knows of, so more than N may be
    uncovered. ``from_first``: if nothing is covered yet, make a checkpoint with the first append, so that a
    log with events and no checkpoint must have lost it. ``started_on``: this machine, for the events with
    which a process begins its part of a fix.
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
        timer: Callable[[float, Callable[[], None]], threading.Timer] = threading.Timer,
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
        self._timer: threading.Timer | None = None
        self._covered: int | None = None
        self._size = 0
        self._failure: AuditError | None = None
        self._closed = False

    def append(self, scope: Scope, event: AuditEvent) -> StoredEvent:
        """Make one event durable. Raises as ``append_all`` does."""
        return self.append_all((Record(scope, event),))[0]

    def append_all(self, records: Sequence[Record]) -> tuple[StoredEvent, ...]:
        """Make events durable, then cover them if a checkpoint is due.

        Raises AuditStoreError as the store does; CheckpointError if too many are uncovered and no
        checkpoint can be made; HistoryError, KeyringError, AuditIntegrityError if the signed history can't
        be continued. Then nothing was recorded.
        """
        with self._lock:
            self._admit()
            appended = self.store.append_all([self._located(record) for record in records])
            if appended:
                self._size = appended[-1].seq
                ended = any(event.kind in _COVERED_AT for event in appended)
                first = self._from_first and not self._covered
                if first or ended or self._uncovered() >= self._limit:
                    self._try_to_cover()
                self._set_timer()
        return appended

    def checkpoint(self) -> SignedCheckpoint | None:
        """Cover all events now. Return None if there is no event. Raises CheckpointError, KeyringError."""
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
        """Yield the store's events."""
        return self.store.events(fix_id, kinds=kinds, since=since, after=after)

    def tip(self) -> tuple[int, Digest]:
        """Return the store's tip."""
        return self.store.tip()

    def headers(self, *, after: int = 0, upto: int | None = None) -> Iterator[HeaderRow]:
        """Yield the store's headers."""
        return self.store.headers(after=after, upto=upto)

    def close(self) -> None:
        """Cover uncovered events, release the store. Idempotent. A failed checkpoint is only reported."""
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
        """Raise if nothing may be appended. The first call compares the store with its checkpoints."""
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
        """Make a checkpoint; report a failure once. The next checkpoint that is due tries again."""
        try:
            self._cover()
        except AuditError as error:
            if type(error) is not type(self._failure):
                self._notify(f"no checkpoint could be made: {error}")
            self._failure = error

    def _set_timer(self) -> None:
        """Start the timer if events are uncovered and none runs.

        It is not stopped when they are covered: it may fire early for later events, but a fix need not
        start a new thread.
        """
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
            finally:  # a defect ends this thread: the next timer tries again
                self._set_timer()
