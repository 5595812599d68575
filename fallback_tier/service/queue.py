"""The durable, bounded queue of submitted fixes, with its idempotency keys (ADR-0080).

A submission is durable before it is acknowledged. Each change of state is one transaction that names the
state it comes from: a late caller changes nothing, and gets False. The same idempotency key with another
request is a conflict. With the same request it returns the fix that it submitted, or the response that it
had; while a request is being processed, it has neither.
"""

import hashlib
import json
import time
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from datetime import UTC, datetime
from enum import StrEnum
from sqlite3 import Connection, Row
from typing import Annotated, Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from fallback_audit.frozen import Frozen
from fallback_audit.vocabulary import AffectedCode
from fallback_tier.service.database import Database
from fallback_tier.service.refusals import BusyError, ConflictError, NotFoundError
from fallback_tier.workers.problem import Problem
from fallback_tier.workers.tables import GitRef, RepositoryName


class OrderState(StrEnum):
    """Where a submitted fix stands. ``ended`` says nothing about how: that is its ``outcome``."""

    QUEUED = "queued"
    RUNNING = "running"
    ENDED = "ended"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_over(self) -> bool:
        """Return whether no worker has it or will have it."""
        return self not in (OrderState.QUEUED, OrderState.RUNNING)


class Submission(Frozen):
    """What a caller wants fixed: one advisory in one configured repository.

    ``advisory``: an OSV record. ``ref``: which commit (default: as the repository is configured).
    ``whose_code`` and ``offline``: as ``fallback-tier fix`` has them.
    """

    # Built at once: FastAPI silences pydantic's warnings about its fields only while it reads a route.
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=False)

    repository: RepositoryName
    advisory: dict[str, Any]
    ref: GitRef | None = None
    whose_code: AffectedCode | None = None
    offline: bool = False


class OrderLine(Frozen):
    """A submitted fix as it stands, without what is large. ``outcome``: verified, patched, refused, unknown
    or escalated, where it has ended; ``cancelling``: its worker is to be ended; ``takes``: how
    many workers have had it; who last cancelled or resumed it, and when."""

    number: Annotated[int, Field(ge=1)]
    fix_id: str
    state: OrderState
    repository: str
    advisory_id: str
    submitted_by: str
    submitted_at: str
    started_at: str | None = None
    ended_at: str | None = None
    base_commit: str | None = None
    cancelling: bool = False
    takes: int = 0
    cancelled_by: str | None = None
    cancelled_at: str | None = None
    resumed_by: str | None = None
    resumed_at: str | None = None
    outcome: str | None = None
    problem: Problem | None = None


class Order(OrderLine):
    """A submitted fix with its submission. ``ended``: the document that ``fallback-tier fix --json``
    prints, including its patch.
    """

    submission: Submission
    ended: dict[str, JsonValue] | None = None


class NewOrder(Frozen):
    """A new submission, before it is in the queue."""

    fix_id: str
    submission: Submission
    advisory_id: str
    by: str


#: Lifetime of a token: as long as a client may reasonably retry (48 h).
TOKEN_SECONDS = 48 * 3_600.0


class Token(NamedTuple):
    """An ``Idempotency-Key``, and the digest of the request that it came with."""

    text: str
    body_sha256: str

    @classmethod
    def of(cls, text: str, what: str, body: BaseModel) -> "Token":
        """Return the token of a request. Two requests are the same if they request the same operation
        (``what``) with the same values, in any JSON spelling.
        """
        request = json.dumps([what, body.model_dump(mode="json")], sort_keys=True)
        return cls(text, hashlib.sha256(request.encode()).hexdigest())


class Known(NamedTuple):
    """The result of a token's request: a submitted fix, a response, or neither yet."""

    fix_id: str | None
    answer: str | None


def known(db: Connection, owner: str, token: Token, now: float) -> Known | None:
    """Return the result of this request, or None if it is new. ``now``: seconds since the epoch.

    Raises ConflictError if the token came with another request.
    """
    db.execute("DELETE FROM requests WHERE kept_until < ?", (now,))
    row = db.execute(
        "SELECT * FROM requests WHERE owner = ? AND token = ?", (owner, token.text)
    ).fetchone()
    if row is None:
        return None
    if row["body_sha256"] != token.body_sha256:
        was = "" if row["fix_id"] is None else f": that was fix {row['fix_id']}"
        raise ConflictError(
            f"This Idempotency-Key came with another body before{was}.",
            next_step="Use a new key for a new request; send the same body to ask again.",
            kind="another_body",
        )
    return Known(row["fix_id"], row["answer"])


def remember(
    db: Connection, owner: str, token: Token, now: float, fix_id: str | None = None
) -> None:
    """Store a request. Without ``fix_id`` it is being processed."""
    values = (owner, token.text, token.body_sha256, fix_id, now + TOKEN_SECONDS)
    db.execute(
        "INSERT INTO requests (owner, token, body_sha256, fix_id, kept_until) VALUES (?,?,?,?,?)",
        values,
    )


def answered(db: Connection, owner: str, token: Token, answer: str) -> None:
    """Store a request's response (JSON), which is returned again from now on."""
    db.execute(
        "UPDATE requests SET answer = ? WHERE owner = ? AND token = ?", (answer, owner, token.text)
    )


def forget(db: Connection, owner: str, token: Token) -> None:
    """Forget a request that failed, so that it can be retried; one with a fix or a response is kept."""
    db.execute(
        "DELETE FROM requests WHERE owner = ? AND token = ? AND fix_id IS NULL AND answer IS NULL",
        (owner, token.text),
    )


def forget_unanswered(db: Connection) -> None:
    """Forget the requests that were being processed when the service ended."""
    db.execute("DELETE FROM requests WHERE fix_id IS NULL AND answer IS NULL")


#: Upper bound of waiting fixes: with two workers and a minute each, eight hours of work.
MAX_QUEUED = 1_000


#: The columns that hold JSON, and the columns of a line.
_JSON = {"submission", "ended", "problem"}
_LINE = ", ".join(OrderLine.model_fields)


class Taken(NamedTuple):
    """A submission that was accepted. ``cached``: the same request was accepted before."""

    order: Order
    cached: bool


@dataclass(frozen=True)
class OrderQueue:
    """All fixes that were ever submitted."""

    database: Database
    _: KW_ONLY
    max_queued: int = MAX_QUEUED
    clock: Callable[[], float] = time.time

    def submit(self, order: NewOrder, token: Token | None = None) -> Taken:
        """Add a submission; it is durable when this returns.

        Raises ConflictError if the token came with another body, BusyError if the queue is full.
        """
        with self.database.writing() as db:
            now = self.clock()
            if token is not None and (known_request := known(db, order.by, token, now)) is not None:
                assert known_request.fix_id is not None  # noqa: S101 (the token's digest is of a submission)
                return Taken(_one(db, known_request.fix_id), cached=True)
            (waiting,) = db.execute(
                "SELECT count(*) FROM orders WHERE state = ?", (OrderState.QUEUED,)
            ).fetchone()
            if waiting >= self.max_queued:
                raise BusyError(
                    f"{waiting:,} fixes wait already, and no more are taken.",
                    next_step="Submit it again later, with the same Idempotency-Key.",
                    kind="queue_full",
                )
            db.execute(
                "INSERT INTO orders (fix_id, state, repository, advisory_id, submission, submitted_by,"
                " submitted_at) VALUES (?,?,?,?,?,?,?)",
                (
                    order.fix_id,
                    OrderState.QUEUED,
                    order.submission.repository,
                    order.advisory_id,
                    order.submission.model_dump_json(),
                    order.by,
                    self._now(),
                ),
            )
            if token is not None:
                remember(db, order.by, token, now, order.fix_id)
            return Taken(_one(db, order.fix_id), cached=False)

    def get(self, fix_id: str) -> Order:
        """Return a fix. Raises NotFoundError."""
        with self.database.reading() as db:
            return _one(db, fix_id)

    def page(
        self,
        *,
        before: int | None = None,
        limit: int,
        state: OrderState | None = None,
        repository: str | None = None,
    ) -> tuple[OrderLine, ...]:
        """Return submitted fixes, the newest first, before number ``before``."""
        filters = {"number < ?": before, "state = ?": state, "repository = ?": repository}
        values_by_condition = {text: value for text, value in filters.items() if value is not None}
        where = " AND ".join(values_by_condition) or "1"
        with self.database.reading() as db:
            rows = db.execute(
                f"SELECT {_LINE} FROM orders WHERE {where} ORDER BY number DESC LIMIT ?",  # noqa: S608 (ours)
                (*values_by_condition.values(), limit),
            ).fetchall()
        return tuple(_line(row) for row in rows)

    def counts(self) -> dict[OrderState, int]:
        """Return the number of fixes by state."""
        with self.database.reading() as db:
            rows = db.execute("SELECT state, count(*) FROM orders GROUP BY state").fetchall()
        return dict.fromkeys(OrderState, 0) | {OrderState(state): count for state, count in rows}

    def running(self) -> tuple[OrderLine, ...]:
        """Return the fixes that a worker has, or had when the service died."""
        with self.database.reading() as db:
            rows = db.execute(
                f"SELECT {_LINE} FROM orders WHERE state = ? ORDER BY number",  # noqa: S608 (ours)
                (OrderState.RUNNING,),
            ).fetchall()
        return tuple(_line(row) for row in rows)

    def is_running(self, fix_id: str) -> bool:
        """Return whether a worker has this fix, or had it when the service died."""
        with self.database.reading() as db:
            row = db.execute("SELECT state FROM orders WHERE fix_id = ?", (fix_id,)).fetchone()
        return row is not None and row["state"] == OrderState.RUNNING

    def take_next(self) -> Order | None:
        """Mark the oldest waiting fix as running and return it, or None if no fix waits."""
        with self.database.writing() as db:
            row = db.execute(
                "UPDATE orders SET state = ?, started_at = ?, takes = takes + 1 WHERE number ="
                " (SELECT min(number) FROM orders WHERE state = ?) RETURNING *",
                (OrderState.RUNNING, self._now(), OrderState.QUEUED),
            ).fetchone()
        return None if row is None else _order(row)

    def begin_at(self, fix_id: str, base_commit: str) -> None:
        """Set the base commit, which is decided once, so that a resumed fix has the same one."""
        self._changed(
            "base_commit = ? WHERE fix_id = ? AND base_commit IS NULL", base_commit, fix_id
        )

    def end(self, fix_id: str, outcome: str, document: str) -> bool:
        """Record the end of a fix. ``document``: JSON. Return False if it does not run any more."""
        return self._over(fix_id, OrderState.ENDED, outcome, document, None)

    def fail(self, fix_id: str, problem: Problem) -> bool:
        """Record that a worker gave up, or died. Return False if the fix does not run any more."""
        return self._over(fix_id, OrderState.FAILED, None, None, problem.model_dump_json())

    def _over(self, fix_id: str, state: OrderState, *results: str | None) -> bool:
        """Record an end. ``results``: outcome, document and problem."""
        return self._changed(
            "state = ?, ended_at = ?, outcome = ?, ended = ?, problem = ?, cancelling = 0"
            " WHERE fix_id = ? AND state = ?",
            *(state, self._now, *results, fix_id, OrderState.RUNNING),
        )

    def cancel(self, fix_id: str, by: str) -> Order:
        """Cancel a fix that waits, or mark one that runs as to be cancelled (``cancelling``).

        Raises NotFoundError; ConflictError if it is over.
        """
        with self.database.writing() as db:
            order = _one(db, fix_id)
            if order.state.is_over:
                raise ConflictError(
                    f"Fix {fix_id} is over ({order.state}): there is nothing to cancel.",
                    next_step=f"GET /v1/fixes/{fix_id} shows how it ended.",
                    kind="is_over",
                )
            db.execute(
                "UPDATE orders SET cancelled_by = ?, cancelled_at = ? WHERE fix_id = ?",
                (by, self._now(), fix_id),
            )
            if order.state is OrderState.RUNNING:
                db.execute("UPDATE orders SET cancelling = 1 WHERE fix_id = ?", (fix_id,))
            else:
                db.execute(
                    "UPDATE orders SET state = ?, ended_at = ? WHERE fix_id = ?",
                    (OrderState.CANCELLED, self._now(), fix_id),
                )
            return _one(db, fix_id)

    def cancelled_if_wanted(self, fix_id: str) -> bool:
        """Mark a fix whose worker is gone as cancelled if that was requested. Return whether it was."""
        return self._changed(
            "state = ?, ended_at = ?, cancelling = 0 WHERE fix_id = ? AND state = ? AND cancelling",
            *(OrderState.CANCELLED, self._now, fix_id, OrderState.RUNNING),
        )

    def resume(self, fix_id: str, by: str) -> Order:
        """Queue a fix again that is over; it continues from the audit trail.

        Raises NotFoundError; ConflictError if it waits or runs, or has ended with nothing left to do.
        """
        with self.database.writing() as db:
            order = _one(db, fix_id)
            can_resume = order.state in (OrderState.FAILED, OrderState.CANCELLED) or (
                order.state is OrderState.ENDED and order.outcome == "escalated"
            )
            if not can_resume:
                outcome = order.outcome or order.state
                raise ConflictError(
                    f"Fix {fix_id} can't be resumed: it is {outcome}.",
                    next_step="Only what failed, was cancelled or was escalated goes on.",
                    kind="wrong_state",
                )
            db.execute(
                "UPDATE orders SET state = ?, cancelling = 0, outcome = NULL, ended = NULL,"
                " problem = NULL, ended_at = NULL, takes = 0, resumed_by = ?, resumed_at = ?"
                " WHERE fix_id = ?",
                (OrderState.QUEUED, by, self._now(), fix_id),
            )
            return _one(db, fix_id)

    def queue_again(self, fix_id: str, takes: int) -> bool:
        """Queue a fix again whose worker is gone. ``takes``: how many workers have had it, as far as
        they count. Return False if it does not run any more.
        """
        return self._changed(
            "state = ?, takes = ? WHERE fix_id = ? AND state = ?",
            *(OrderState.QUEUED, takes, fix_id, OrderState.RUNNING),
        )

    def not_taken(self, fix_id: str) -> bool:
        """Don't count this take: no worker could be started, since another process holds the fix's
        lock. Return False if it does not run any more.
        """
        return self._changed(
            "takes = max(0, takes - 1) WHERE fix_id = ? AND state = ?", fix_id, OrderState.RUNNING
        )

    def _changed(self, change: str, *values: str | int | Callable[[], str] | None) -> bool:
        """Change a fix in one transaction. Return False if there is no such fix, or it is in another state.

        A value that is a function is called inside the transaction, so that times are those of the change.
        """
        with self.database.writing() as db:
            parameters = [value() if callable(value) else value for value in values]
            return db.execute(f"UPDATE orders SET {change}", parameters).rowcount == 1  # noqa: S608 (ours)

    def _now(self) -> str:
        return datetime.fromtimestamp(self.clock(), UTC).isoformat(timespec="milliseconds")


def _one(db: Connection, fix_id: str) -> Order:
    row = db.execute("SELECT * FROM orders WHERE fix_id = ?", (fix_id,)).fetchone()
    if row is None:
        raise NotFoundError(
            f"There is no fix {fix_id[:100]!r}.",
            next_step="GET /v1/fixes lists those submitted here.",
            kind="no_such_fix",
        )
    return _order(row)


def _order(row: Row) -> Order:
    return Order.model_validate(_read(row))


def _line(row: Row) -> OrderLine:
    return OrderLine.model_validate(_read(row))


def _read(row: Row) -> dict[str, object]:
    facts = dict(row)
    for name in _JSON & facts.keys():
        if facts[name] is not None:
            facts[name] = json.loads(facts[name])
    return facts
