"""The queue: durable before a submission is acknowledged, bounded, its idempotency tokens beside it.

Server and workers share it as one file. Each change of state is one transaction that names the state it
comes from: whoever is late changes nothing, and is told so.
"""

import json
import time
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from datetime import UTC, datetime
from sqlite3 import Connection, Row
from typing import NamedTuple

from fallback_tier.service.database import Database
from fallback_tier.service.queue.orders import NewOrder, Order, OrderLine, OrderState
from fallback_tier.service.queue.tokens import Token, known, remember
from fallback_tier.service.refusals import BusyError, ConflictError, NotFoundError
from fallback_tier.workers.problem import Problem

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
