"""One workflow a fix: it asks for steps until the record has an end, and waits for people at no cost.

It knows nothing of what a step does, and no word of it is the truth: that is the record. Where a worker is
lost the fix is opened again, on whatever worker has room, from where the record says that it stands.
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

#: Retries are the workflow's own: an activity that is tried again by the server alone would go to a worker
#: that has not got the fix. Without a maximum the server would try for ever.
_ONCE = RetryPolicy(maximum_attempts=1)

#: A look at the record is tried again while the record can't be reached; then the next hint looks.
_LOOKS = RetryPolicy(
    initial_interval=timedelta(seconds=1),
    maximum_interval=timedelta(seconds=60),
    maximum_attempts=20,
)
_LOOK_S = timedelta(seconds=60)

#: What is on record as ended is delivered, however late it is (at least so long), and its process ended.
_DELIVER_S = 600.0
_CLOSE_S = 60.0

#: The longest pause between two openings (seconds).
_MAX_BACKOFF_S = 60.0

#: The longest pause behind one that failed for a reason that passes (seconds), and is not counted: an
#: outage may take days, and each try is a dozen events of the history.
_MAX_PASSING_S = 300.0

#: A pause is doubled so often at most: far beyond either limit, and no number too large.
_MAX_DOUBLINGS = 16


def _stop_if_cancelled() -> None:
    """An activity that ends by itself beside a cancellation gives its own end, and that is not raised."""
    if workflow.cancellation_reason() is not None:
        raise asyncio.CancelledError


@workflow.defn(name=WORKFLOW)
class FixWorkflow:
    """Its identifier is the fix's."""

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
        """A person has decided, perhaps. It may come often, or too early: the record is asked."""
        self._heard += 1

    @workflow.signal(name=RENEWED)
    def renewed(self, terms: Terms) -> None:
        """Its campaign's settings may have changed: these hold from the next step on."""
        self._ticket = replace(self._ticket, order_sha256=terms.order_sha256)
        self._limits = replace(self._limits, fix_s=terms.fix_s)

    @workflow.run
    async def run(self, _run: FixRun) -> Standing:
        """To the fix's end, a person's word included."""
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
        """The end, delivered. Raises ApplicationError where nobody could go on with the fix, or its time is
        over."""
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
        """Then what it may spend and ask is another now. An older history's says nothing of it."""
        return session.order_sha256 not in {"", self._ticket.order_sha256}

    def _pause_after(self, problem: ApplicationError) -> float:
        """Seconds until the fix is opened again. Raises ApplicationError where that would be no use."""
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
        """Raises ApplicationError where the fix has taken as long as it may; then nobody has it open."""
        if self._left_s > 0:
            return
        await self._close()
        raise ApplicationError(
            f"The fix took longer than {self._limits.fix_s:,.0f} seconds (limits.fix_s).",
            type=TIME_LIMIT,
            non_retryable=True,
        )

    async def _ask(self, what: str, order: StepOrder, queue: str, limit_s: float) -> Standing:
        limits = self._limits
        standing: Standing = await workflow.execute_activity(
            what,
            order,
            result_type=Standing,
            task_queue=queue,
            summary=order.step.name if order.step else what,
            schedule_to_start_timeout=timedelta(seconds=limits.pickup_s),
            start_to_close_timeout=timedelta(seconds=limit_s),
            heartbeat_timeout=timedelta(seconds=limits.heartbeat_s),
            cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
            retry_policy=_ONCE,
        )
        return standing

    async def _close(self) -> None:
        """Its process ends now, and not when the worker notices that nobody asks it for anything."""
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
        """Waits for a hint, then asks the record. False: it was decided for good."""
        workflow.upsert_memo({"phase": "waiting"})
        while True:
            _stop_if_cancelled()
            await workflow.wait_condition(lambda: self._heard > self._looked)
            self._continue_as_new_if_long()
            self._looked = self._heard
            decided = await self._look()
            if decided.is_over:
                return False
            if decided.goes_on:
                workflow.upsert_memo({"phase": "active"})
                return True

    async def _look(self) -> DecisionResult:
        try:
            decided: DecisionResult = await workflow.execute_activity(
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
            return DecisionResult()  # the hint comes again
        return decided

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

    The SDK drops the result of an activity that completes together with a cancellation. Nobody would close
    that session until its worker finds it unused. So the handle is shielded, and it is cancelled only if it
    has not completed after one turn of the event loop. Raises ActivityError.
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
