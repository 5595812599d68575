"""One ``FallbackTier.run`` over HTTP, with warm parts: an attempt by recipe costs only its own work.

Each thread has its own parts. The response to a request with an Idempotency-Key is stored, and returned
again unchanged.
"""

import json
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, Any

from pydantic import ConfigDict, Field, TypeAdapter

from fallback_audit.frozen import Frozen
from fallback_tier.advisory import Advisory, parse_advisory
from fallback_tier.attempt.task import Finished, TierEvent
from fallback_tier.outcome import AttemptSummary, RecipeApplication
from fallback_tier.service.database import Database
from fallback_tier.service.operations.fixes import Fixes
from fallback_tier.service.queue import (
    Token,
    answered,
    forget,
    forget_unanswered,
    known,
    remember,
)
from fallback_tier.service.refusals import BusyError, ConflictError, NotFoundError
from fallback_tier.service.roles import Caller
from fallback_tier.wiring import Services
from fallback_tier.workers.checkouts import Checkouts
from fallback_tier.workers.tables import RepositoryName, RepositorySettings

#: Attempts that may wait for a thread: more would wait longer than their callers do.
MAX_WAITING = 32

#: An orchestrator's own identifiers of a fix and a gate transition.
_Id = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]

#: Upper bound of the list; the tier itself refuses more than three retries (ADR-0014).
_MAX_PRIOR = 16

_application: TypeAdapter[RecipeApplication] = TypeAdapter(RecipeApplication)


class AttemptOrder(Frozen):
    """What ``fallback-tier attempt`` reads; the repository by its configured name."""

    # Built at once: FastAPI silences pydantic's warnings about its fields only while it reads a route.
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=False)

    advisory: dict[str, Any]
    repository: RepositoryName
    prior_attempts: Annotated[tuple[AttemptSummary, ...], Field(max_length=_MAX_PRIOR)] = ()
    fix_id: _Id | None = None
    gate_transition_id: _Id | None = None


class AttemptAnswer(Frozen):
    """What ``run`` returned. ``cached``: it is the answer that this very request had before."""

    application: RecipeApplication
    cached: bool = False


class Attempts:
    """Runs attempts, several at once. ``open_parts`` opens a thread's own parts."""

    def __init__(
        self,
        fixes: Fixes,
        database: Database,
        open_parts: Callable[[], Services],
        checkouts: Checkouts,
        threads: int,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._fixes = fixes
        self._database = database
        self._open = open_parts
        self._checkouts = checkouts
        self._clock = clock
        self._own = threading.local()
        self._parts: list[Services] = []
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="attempt")
        #: Maximum number of requests that run or wait.
        self.most_at_once = threads + MAX_WAITING
        self._room = threading.BoundedSemaphore(self.most_at_once)
        # The callers lost their connections when the last service ended.
        with database.writing() as db:
            forget_unanswered(db)

    def run(
        self,
        caller: Caller,
        order: AttemptOrder,
        token: Token | None = None,
        on_event: Callable[[TierEvent], None] = lambda _: None,
    ) -> AttemptAnswer:
        """Run an attempt, or return the stored response to the same request.

        ``on_event`` is called with each event of ``stream``, in another thread; with none for a stored
        response.

        Raises NotServedError, AdvisoryError, AttemptHistoryError, RepositoryError; ConflictError if the
        token came with another body, or its first request is not answered yet; BusyError.
        """
        repository = self._fixes.repository(order.repository)
        advisory = parse_advisory(json.dumps(order.advisory).encode(), "advisory")
        if token is not None and (stored_answer := self._begun(caller, token)) is not None:
            return AttemptAnswer(application=_application.validate_json(stored_answer), cached=True)
        try:
            if order.fix_id is not None:
                self._claim(caller, order.fix_id)
            application = self._in_pool(
                lambda: self._attempt(order, advisory, repository, on_event)
            )
        except BaseException:
            self._forget(caller, token)
            raise
        if token is not None:
            self._keep(caller, token, application)
        return AttemptAnswer(application=application)

    def _in_pool(self, work: Callable[[], RecipeApplication]) -> RecipeApplication:
        if not self._room.acquire(blocking=False):
            raise BusyError(
                f"{MAX_WAITING} attempts wait already, and no more are taken.",
                next_step="Try again later.",
                kind="queue_full",
            )
        try:
            return self._pool.submit(work).result()
        finally:
            self._room.release()

    def _attempt(
        self,
        order: AttemptOrder,
        advisory: Advisory,
        repository: RepositorySettings,
        on_event: Callable[[TierEvent], None],
    ) -> RecipeApplication:
        services: Services | None = getattr(self._own, "services", None)
        if services is None:
            services = self._own.services = self._open()
            self._parts.append(services)
        path = repository.path or self._checkouts.standing(order.repository, repository)
        inputs = services.inputs(
            advisory,
            Path(path),
            fix_id=order.fix_id,
            gate_transition_id=order.gate_transition_id,
        )
        # Does what ``FallbackTier.run`` does, which drains ``stream``.
        for event in services.tier.stream(
            inputs.advisory,
            inputs.repo_ctx,
            inputs.recipe_selection,
            prior_attempts=order.prior_attempts,
        ):
            if isinstance(event, Finished):
                return event.application
            on_event(event)
        raise AssertionError("a stream ends with Finished")

    def _claim(self, caller: Caller, fix_id: str) -> None:
        """Reserve a fix's attempts for this caller, from the first one on. Raises ConflictError if the
        queue, a terminal or another caller began it: nothing else may write to its audit trail.
        """
        owner = self._owner(fix_id)
        if owner is None and not self._is_begun(fix_id):
            with self._database.writing() as db:
                db.execute("INSERT OR IGNORE INTO claims VALUES (?,?)", (fix_id, caller.name))
            owner = self._owner(fix_id)
        if owner != caller.name:
            raise ConflictError(
                f"Fix {fix_id} was begun by somebody else, who makes its attempts.",
                next_step="Give an attempt of your own a fix_id of its own, or none.",
                kind="anothers",
            )

    def _owner(self, fix_id: str) -> str | None:
        with self._database.reading() as db:
            row = db.execute("SELECT owner FROM claims WHERE fix_id = ?", (fix_id,)).fetchone()
        return None if row is None else str(row["owner"])

    def _is_begun(self, fix_id: str) -> bool:
        try:
            self._fixes.queue.get(fix_id)
        except NotFoundError:
            return bool(self._fixes.record.events(fix_id))
        return True

    # --- Stored responses ----------------------------------------------------------------------------

    def _begun(self, caller: Caller, token: Token) -> str | None:
        """Return the stored response; None if the request is new, and mark it as being processed."""
        with self._database.writing() as db:
            request = known(db, caller.name, token, self._clock())
            if request is None:
                remember(db, caller.name, token, self._clock())
                return None
        if request.answer is None:
            raise ConflictError(
                "This request is being answered just now.",
                next_step="Send it again with the same Idempotency-Key when it is done.",
                kind="being_answered",
            )
        return request.answer

    def _keep(self, caller: Caller, token: Token, application: RecipeApplication) -> None:
        with self._database.writing() as db:
            answered(db, caller.name, token, application.model_dump_json())

    def _forget(self, caller: Caller, token: Token | None) -> None:
        """Forget a request that failed, so that it can be retried."""
        if token is not None:
            with self._database.writing() as db:
                forget(db, caller.name, token)

    def close(self) -> None:
        """Wait for running attempts. Idempotent."""
        self._pool.shutdown(wait=True, cancel_futures=True)
        while self._parts:
            self._parts.pop().close()
