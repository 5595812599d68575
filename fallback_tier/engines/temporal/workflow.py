"""One workflow per fix: it requests steps until the audit trail has an end, and waits for people for free.

It does not know what a step does, and its state is not authoritative: the audit trail is. If a worker is
lost, the fix is opened again, on any worker with room, from where the audit trail says that it is.
"""

import asyncio
from dataclasses import replace
from datetime import timedelta

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import (
    ActivityError,
    ApplicationError,
    TimeoutType,
    is_cancelled_exception,
)
from temporalio.exceptions import TimeoutError as TimedOutError

with workflow.unsafe.imports_passed_through():
    from fallback_tier.engines.temporal.messages import (
        CLOSE,
        DELIVER,
        ESCALATED,
        HINT,
        LOOK,
        LOOKS,
        OPEN,
        RENEWED,
        SESSION_OVER,
        STEP,
        TIME_LIMIT,
        WORKFLOW,
        DecisionResult,
        FixRun,
        Session,
        Standing,
        StepOrder,
        Terms,
    )
    from fallback_tier.workers.problem import PASSING

#: The workflow itself retries: the server's retry of an activity would go to a worker that does not have
#: the fix open. Without a maximum the server would retry for ever.
_ONCE = RetryPolicy(maximum_attempts=1)

#: A look is retried while the audit trail can't be reached; after that, the next hint looks.
_LOOKS = RetryPolicy(
    initial_interval=timedelta(seconds=1),
    maximum_interval=timedelta(seconds=60),
    maximum_attempts=20,
)
_LOOK_S = timedelta(seconds=60)

#: A fix that has ended on record is delivered, however late (this is its least time limit), and its process
#: ended.
_DELIVER_S = 600.0
_CLOSE_S = 60.0

#: The longest pause between two openings (seconds).
_MAX_BACKOFF_S = 60.0

#: The longest pause after an opening that failed for a temporary reason (seconds), which is not counted: an
#: outage may take days, and each try adds a dozen events to the history.
_MAX_PASSING_S = 300.0

#: Maximum number of doublings of a pause: enough to exceed either limit, without overflow.
_MAX_DOUBLINGS = 16


def _stop_if_cancelled() -> None:
    """Raise if the workflow was cancelled: an activity that ends at the same moment returns its own
    result, and the cancellation is not raised.
    """
    if workflow.cancellation_reason() is not None:
        raise asyncio.CancelledError


@workflow.defn(name=WORKFLOW)
class FixWorkflow:
    """The workflow of a fix, whose identifier it has."""

    @workflow.init
    def __init__(self, run: FixRun) -> None:
        self._ticket = run.ticket
        self._limits = run.limits
        self._session = run.session
        self._heard = run.heard
        self._looked = 0
        self._openings = run.openings
        self._passing = run.passing
        self._spent_s = run.spent_s

    @workflow.signal(name=HINT)
    def decided(self) -> None:
        """Count a hint that a person may have decided. Hints may be frequent or premature: the audit
        trail is read.
        """
        self._heard += 1

    @workflow.signal(name=RENEWED)
    def renewed(self, terms: Terms) -> None:
        """Use these terms from the next step on: the campaign's settings may have changed."""
        self._ticket = replace(self._ticket, order_sha256=terms.order_sha256)
        self._limits = replace(self._limits, fix_s=terms.fix_s)

    @workflow.run
    async def run(self, _run: FixRun) -> Standing:
        """Run to the fix's end, including a person's decision."""
        try:
            while True:
                standing = await self._to_an_end()
                if standing.outcome != ESCALATED or not await self._person_lets_go_on():
                    return standing
                self._spent_s = 0.0
        except (asyncio.CancelledError, ActivityError) as error:
            if is_cancelled_exception(error):
                await self._close()
            raise

    async def _to_an_end(self) -> Standing:
        """Return the end, delivered. Raises ApplicationError if the fix can't continue, or its time is
        over.
        """
        while True:
            _stop_if_cancelled()
            try:
                if self._session is None:
                    self._session = await self._opened()
                    _stop_if_cancelled()
                if self._is_by_another_order(self._session):
                    await self._let_go()
                    continue
                standing = await self._one_more(self._session)
            except ActivityError as error:
                if is_cancelled_exception(error):
                    raise
                _stop_if_cancelled()
                await self._end_late()
                self._session = None
                pause_s = self._pause_after(_problem_of(error))
                await workflow.sleep(timedelta(seconds=pause_s))
            else:
                self._openings = self._passing = 0
                if standing.delivered:
                    await self._close()
                    return standing
                self._session = replace(self._session, standing=standing)
            self._continue_as_new_if_long()

    def _is_by_another_order(self, session: Session) -> bool:
        """Return whether the session has another order than now, so that it may spend and request
        something else. The session of an older history does not have its order.
        """
        return session.order_sha256 not in {"", self._ticket.order_sha256}

    def _pause_after(self, problem: ApplicationError) -> float:
        """Return the seconds until the fix is opened again. Raises ApplicationError if that would be
        useless.
        """
        if problem.type in PASSING:
            self._passing += 1
            return _doubled(self._limits.backoff_s, self._passing, _MAX_PASSING_S)
        if problem.non_retryable:
            raise problem
        self._openings += 1
        if self._openings >= self._limits.max_openings:
            raise ApplicationError(
                f"The fix was opened {self._openings} times in a row without one more step: {problem}",
                type="gave-up",
                non_retryable=True,
            ) from problem
        return _doubled(self._limits.backoff_s, self._openings, _MAX_BACKOFF_S)

    async def _opened(self) -> Session:
        limits = self._limits
        await self._end_late()
        ticket, limit_s = self._ticket, min(limits.open_s, self._left_s)
        opening: workflow.ActivityHandle[Session] = workflow.start_activity(
            OPEN,
            ticket,
            result_type=Session,
            schedule_to_start_timeout=timedelta(seconds=limits.room_s),
            start_to_close_timeout=timedelta(seconds=limit_s),
            heartbeat_timeout=timedelta(seconds=limits.heartbeat_s),
            cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
            retry_policy=_ONCE,
        )
        try:
            opened = await _even_if_cancelled(opening)
        except ActivityError as error:
            if _took_its_time(error):
                self._spent_s += limit_s
            raise
        self._spent_s += opened.opening_s
        return replace(opened, order_sha256=ticket.order_sha256)

    async def _one_more(self, session: Session) -> Standing:
        following = session.standing.next
        order = StepOrder(self._ticket, session.name, following)
        if following is None:
            return await self._ask(DELIVER, order, session.queue, max(self._left_s, _DELIVER_S))
        await self._end_late()
        began = workflow.time()
        try:
            return await self._ask(STEP, order, session.queue, self._left_s)
        finally:
            self._spent_s += workflow.time() - began

    @property
    def _left_s(self) -> float:
        return self._limits.fix_s - self._spent_s

    async def _end_late(self) -> None:
        """Raise ApplicationError if the fix has used up its time; its session is closed then."""
        if self._left_s > 0:
            return
        await self._close()
        raise ApplicationError(
            f"The fix took longer than {self._limits.fix_s:,.0f} seconds (limits.fix_s).",
            type=TIME_LIMIT,
            non_retryable=True,
        )

    async def _ask(
        self, activity_name: str, order: StepOrder, queue: str, limit_s: float
    ) -> Standing:
        limits = self._limits
        standing: Standing = await workflow.execute_activity(
            activity_name,
            order,
            result_type=Standing,
            task_queue=queue,
            summary=order.step.name if order.step else activity_name,
            schedule_to_start_timeout=timedelta(seconds=limits.pickup_s),
            start_to_close_timeout=timedelta(seconds=limit_s),
            heartbeat_timeout=timedelta(seconds=limits.heartbeat_s),
            cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
            retry_policy=_ONCE,
        )
        return standing

    async def _close(self) -> None:
        """End its process now, instead of when the worker notices that it has no requests."""
        try:
            await self._let_go()
        except ActivityError:
            workflow.logger.info("nobody has it open any more")

    async def _let_go(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            order = StepOrder(self._ticket, session.name)
            await self._ask(CLOSE, order, session.queue, _CLOSE_S)

    async def _person_lets_go_on(self) -> bool:
        """Wait for a hint, then read the audit trail. Return False if the decision is final."""
        workflow.upsert_memo({"phase": "waiting"})
        while True:
            _stop_if_cancelled()
            await workflow.wait_condition(lambda: self._heard > self._looked)
            self._continue_as_new_if_long()
            self._looked = self._heard
            decision = await self._look()
            if decision.is_over:
                return False
            if decision.goes_on:
                workflow.upsert_memo({"phase": "active"})
                return True

    async def _look(self) -> DecisionResult:
        try:
            decision: DecisionResult = await workflow.execute_activity(
                LOOK,
                self._ticket,
                result_type=DecisionResult,
                task_queue=f"{workflow.info().task_queue}{LOOKS}",
                start_to_close_timeout=_LOOK_S,
                retry_policy=_LOOKS,
            )
        except ActivityError as error:
            if is_cancelled_exception(error):
                raise
            return DecisionResult()  # the hint is sent again
        return decision

    def _continue_as_new_if_long(self) -> None:
        info = workflow.info()
        is_long = info.get_current_history_length() >= self._limits.history
        if not (is_long or info.is_continue_as_new_suggested()):
            return
        unseen = self._heard - self._looked
        workflow.continue_as_new(
            FixRun(
                ticket=self._ticket,
                limits=self._limits,
                session=self._session,
                heard=unseen,
                openings=self._openings,
                passing=self._passing,
                spent_s=self._spent_s,
            )
        )


async def _even_if_cancelled(opening: workflow.ActivityHandle[Session]) -> Session:
    """Return the session, also if the workflow is cancelled at the moment when the opening completes.

    The SDK drops the result of an activity that completes together with a cancellation, and that session
    would stay open until its worker finds it unused. So the handle is shielded, and it is cancelled only if
    it has not completed after one turn of the event loop. Raises ActivityError.
    """
    try:
        return await asyncio.shield(opening)
    except asyncio.CancelledError:
        await asyncio.sleep(0)
        if not opening.done():
            opening.cancel()
        return await opening


def _doubled(first_s: float, times: int, most_s: float) -> float:
    return min(first_s * 2.0 ** min(times, _MAX_DOUBLINGS), most_s)


def _took_its_time(error: ActivityError) -> bool:
    cause = error.cause
    return isinstance(cause, TimedOutError) and cause.type is TimeoutType.START_TO_CLOSE


def _problem_of(error: ActivityError) -> ApplicationError:
    """Return why the activity failed. The loss of a worker is retryable: the fix is opened again."""
    cause = error.cause
    if isinstance(cause, ApplicationError):
        return cause
    kind = cause.type.name if isinstance(cause, TimedOutError) and cause.type else "lost"
    return ApplicationError(f"No word from the worker ({kind}).", type=SESSION_OVER)
