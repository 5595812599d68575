"""The durable, bounded queue of submitted fixes, with its idempotency keys (ADR-0080).

A submission is durable before it is acknowledged. Each change of state is one transaction that names the
state it comes from: a late caller changes nothing, and is told so. The same idempotency key with another
request is a conflict; with the same request it is answered as before, by the fix that it submitted or with
the answer that it had. What is being answered has neither yet.
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
        """No worker has it, and none is to have it."""
        return self not in (OrderState.QUEUED, OrderState.RUNNING)


class Submission(Frozen):
    """What a caller wants fixed: one advisory in one configured repository.

    ``advisory``: an OSV record. ``ref``: which commit (default: as the repository is configured).
    ``whose_code`` and ``offline``: as ``fallback-tier fix`` has them.
    """

    # Built at once: FastAPI hushes what pydantic says of its own fields only while it reads a route.
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
    """The whole. ``ended``: the document that ``fallback-tier fix --json`` prints, its patch in it."""

    submission: Submission
    ended: dict[str, JsonValue] | None = None


class NewOrder(Frozen):
    """A new submission, before the queue has it."""

    fix_id: str
    submission: Submission
    advisory_id: str
    by: str


#: A token is good for as long as a client may reasonably try again (48 h).
TOKEN_SECONDS = 48 * 3_600.0


class Token(NamedTuple):
    """An ``Idempotency-Key``, and the digest of what came with it."""

    text: str
    body_sha256: str

    @classmethod
    def of(cls, text: str, what: str, body: BaseModel) -> "Token":
        """Two requests are the same where they ask the same (``what``) with the same values, however
        they are spelled."""
        message = json.dumps([what, body.model_dump(mode="json")], sort_keys=True)
        return cls(text, hashlib.sha256(message.encode()).hexdigest())


class Known(NamedTuple):
    """What a token has led to: a submitted fix, an answer, or neither yet."""

    fix_id: str | None
    answer: str | None


def known(db: Connection, owner: str, token: Token, now: float) -> Known | None:
    """What this request has led to; None: it is new. ``now``: seconds since the epoch.

    Raises ConflictError: the token came with another request.
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
    """From here on the request is known. Without ``fix_id`` it is being answered."""
    facts = (owner, token.text, token.body_sha256, fix_id, now + TOKEN_SECONDS)
    db.execute(
        "INSERT INTO requests (owner, token, body_sha256, fix_id, kept_until) VALUES (?,?,?,?,?)",
        facts,
    )


def answered(db: Connection, owner: str, token: Token, answer: str) -> None:
    """``answer``: JSON, given again from here on."""
    db.execute(
        "UPDATE requests SET answer = ? WHERE owner = ? AND token = ?", (answer, owner, token.text)
    )


def forget(db: Connection, owner: str, token: Token) -> None:
    """It came to nothing, and may be tried again; what has an answer keeps it."""
    db.execute(
        "DELETE FROM requests WHERE owner = ? AND token = ? AND fix_id IS NULL AND answer IS NULL",
        (owner, token.text),
    )


def forget_unanswered(db: Connection) -> None:
    """Whoever asked these was cut off with the service that answered them."""
    db.execute("DELETE FROM requests WHERE fix_id IS NULL AND answer IS NULL")


#: Fixes that may wait: with two workers and a minute each, eight hours of work.
MAX_QUEUED = 1_000


#: The columns that hold JSON, and those of a line.
_JSON = {"submission", "ended", "problem"}
_LINE = ", ".join(OrderLine.model_fields)


class Taken(NamedTuple):
    """``cached``: this very request was taken before."""

    order: Order
    cached: bool


@dataclass(frozen=True)
class OrderQueue:
    """Submitted fixes, all that there were."""

    database: Database
    _: KW_ONLY
    max_queued: int = MAX_QUEUED
    clock: Callable[[], float] = time.time

    def submit(self, asked: NewOrder, token: Token | None = None) -> Taken:
        """Take a submission; when this returns it is durable.

        Raises ConflictError: this token came with another body; BusyError: the queue is full.
        """
        with self.database.writing() as db:
            now = self.clock()
            if token is not None and (before := known(db, asked.by, token, now)) is not None:
                assert before.fix_id is not None  # noqa: S101 (the token's digest is of a submission)
                return Taken(_one(db, before.fix_id), cached=True)
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
                    asked.fix_id,
                    OrderState.QUEUED,
                    asked.submission.repository,
                    asked.advisory_id,
                    asked.submission.model_dump_json(),
                    asked.by,
                    self._now(),
                ),
            )
            if token is not None:
                remember(db, asked.by, token, now, asked.fix_id)
            return Taken(_one(db, asked.fix_id), cached=False)

    def get(self, fix_id: str) -> Order:
        """Raises NotFoundError."""
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
        """The newest first, before number ``before``."""
        wanted = {"number < ?": before, "state = ?": state, "repository = ?": repository}
        given = {text: value for text, value in wanted.items() if value is not None}
        where = " AND ".join(given) or "1"
        with self.database.reading() as db:
            rows = db.execute(
                f"SELECT {_LINE} FROM orders WHERE {where} ORDER BY number DESC LIMIT ?",  # noqa: S608 (ours)
                (*given.values(), limit),
            ).fetchall()
        return tuple(_line(row) for row in rows)

    def counts(self) -> dict[OrderState, int]:
        """How many stand where."""
        with self.database.reading() as db:
            rows = db.execute("SELECT state, count(*) FROM orders GROUP BY state").fetchall()
        return dict.fromkeys(OrderState, 0) | {OrderState(state): count for state, count in rows}

    def running(self) -> tuple[OrderLine, ...]:
        """Those that a worker has, or had when the service died."""
        with self.database.reading() as db:
            rows = db.execute(
                f"SELECT {_LINE} FROM orders WHERE state = ? ORDER BY number",  # noqa: S608 (ours)
                (OrderState.RUNNING,),
            ).fetchall()
        return tuple(_line(row) for row in rows)

    def is_running(self, fix_id: str) -> bool:
        """Return whether a worker has it, or had it when the service died."""
        with self.database.reading() as db:
            found = db.execute("SELECT state FROM orders WHERE fix_id = ?", (fix_id,)).fetchone()
        return found is not None and found["state"] == OrderState.RUNNING

    def take_next(self) -> Order | None:
        """The oldest that waits becomes one that runs; None: none waits."""
        with self.database.writing() as db:
            row = db.execute(
                "UPDATE orders SET state = ?, started_at = ?, takes = takes + 1 WHERE number ="
                " (SELECT min(number) FROM orders WHERE state = ?) RETURNING *",
                (OrderState.RUNNING, self._now(), OrderState.QUEUED),
            ).fetchone()
        return None if row is None else _order(row)

    def begin_at(self, fix_id: str, base_commit: str) -> None:
        """Which commit it is about: decided once, so that it is resumed there."""
        self._changed(
            "base_commit = ? WHERE fix_id = ? AND base_commit IS NULL", base_commit, fix_id
        )

    def end(self, fix_id: str, outcome: str, document: str) -> bool:
        """A worker has come to the end. ``document``: JSON. False: it does not run any more."""
        return self._over(fix_id, OrderState.ENDED, outcome, document, None)

    def fail(self, fix_id: str, problem: Problem) -> bool:
        """A worker gave up, or died. False: it does not run any more."""
        return self._over(fix_id, OrderState.FAILED, None, None, problem.model_dump_json())

    def _over(self, fix_id: str, state: OrderState, *came: str | None) -> bool:
        """``came``: outcome, document and problem."""
        return self._changed(
            "state = ?, ended_at = ?, outcome = ?, ended = ?, problem = ?, cancelling = 0"
            " WHERE fix_id = ? AND state = ?",
            *(state, self._now, *came, fix_id, OrderState.RUNNING),
        )

    def cancel(self, fix_id: str, by: str) -> Order:
        """One that waits is cancelled; one that runs is to be (``cancelling``).

        Raises NotFoundError; ConflictError: it is over.
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
        """The worker of this one has gone. True: it was to be cancelled, and is now."""
        return self._changed(
            "state = ?, ended_at = ?, cancelling = 0 WHERE fix_id = ? AND state = ? AND cancelling",
            *(OrderState.CANCELLED, self._now, fix_id, OrderState.RUNNING),
        )

    def resume(self, fix_id: str, by: str) -> Order:
        """Queue again one that is over, to go on by what is on record.

        Raises NotFoundError; ConflictError: it waits or runs, or has ended with nothing left to do.
        """
        with self.database.writing() as db:
            order = _one(db, fix_id)
            goes_on = order.state in (OrderState.FAILED, OrderState.CANCELLED) or (
                order.state is OrderState.ENDED and order.outcome == "escalated"
            )
            if not goes_on:
                how = order.outcome or order.state
                raise ConflictError(
                    f"Fix {fix_id} can't be resumed: it is {how}.",
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
        """Its worker has gone, and it waits for another. ``takes``: how many it has had, as far as they
        count. Return False if it does not run any more."""
        return self._changed(
            "state = ?, takes = ? WHERE fix_id = ? AND state = ?",
            *(OrderState.QUEUED, takes, fix_id, OrderState.RUNNING),
        )

    def not_taken(self, fix_id: str) -> bool:
        """No worker could be started for it, since another process has its lock: this take does not count.
        Return False if it does not run any more."""
        return self._changed(
            "takes = max(0, takes - 1) WHERE fix_id = ? AND state = ?", fix_id, OrderState.RUNNING
        )

    def _changed(self, change: str, *values: str | int | Callable[[], str] | None) -> bool:
        """In one transaction; it asks for a value that is a function, so a time is when the change was
        made. False: there is no such fix, or it does not stand where it had to."""
        with self.database.writing() as db:
            given = [value() if callable(value) else value for value in values]
            return db.execute(f"UPDATE orders SET {change}", given).rowcount == 1  # noqa: S608 (ours)

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
