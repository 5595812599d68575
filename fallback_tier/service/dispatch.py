"""The scheduler of the service: one thread, which watches the queue and the workers of running fixes.

The queue is authoritative; what is in memory may be lost with the process. Workers are the engine's
(``fleet.local``), the same as a campaign's: a worker's lock shows whether it is alive, and its status how
it ended, so that the next service can record that.
"""

import contextlib
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

from fallback_tier.errors import FallbackError
from fallback_tier.fleet.engine_interface import Becomes, EngineState, Phase, settle
from fallback_tier.fleet.fix_order import FixOrder, FleetSecrets, Place
from fallback_tier.fleet.local.engine import LocalEngine
from fallback_tier.observing.health.running import Finding, failed, ok
from fallback_tier.service.database import service_dir
from fallback_tier.service.queue import Order, OrderLine, OrderQueue
from fallback_tier.service.refusals import NotFoundError
from fallback_tier.service.settings import Secrets, ServiceSettings, configuration, record_settings
from fallback_tier.workers.problem import problem_of

#: Time between two looks at queue and workers. A submission wakes the thread at once.
_TICK_S = 0.25


class Dispatcher:
    """Starts queued fixes as the limits allow. ``start`` it, and ``stop`` it at the end."""

    def __init__(
        self,
        queue: OrderQueue,
        settings: ServiceSettings,
        state_dir: Path,
        secrets: Secrets,
        *,
        free_bytes: Callable[[Path], int] = lambda path: shutil.disk_usage(path).free,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        self._queue = queue
        self._settings = settings
        self._state_dir = state_dir
        self._secrets = secrets
        self._place = worker_place(settings, state_dir, secrets)
        keys = FleetSecrets(
            api_key=secrets.api_key,
            judge_api_key=secrets.judge_api_key,
            database=secrets.database,
        )
        self._engine = LocalEngine(self._place, keys, at_once=settings.limits.concurrent_fixes)
        self._free_bytes = free_bytes
        self._on_change = on_change
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="dispatcher", daemon=True)
        self.failure: Exception | None = None

    def start(self) -> None:
        """Settle what the last service left, then begin."""
        self._engine.forget_unless(self._queue.is_running)
        self._take_up()
        self._thread.start()

    def wake(self) -> None:
        """Look at the queue now: a fix was submitted, or is to be cancelled."""
        self._wake.set()

    def found(self) -> Finding:
        """Return for readiness whether it works."""
        if self.failure is not None:
            reason = self.failure.problem if isinstance(self.failure, FallbackError) else "a defect"
            return failed(
                f"Fixes wait: the queue can't be worked on ({type(self.failure).__name__}: {reason}).",
                "It is tried again by itself; repair what is named, or start the service again.",
                kind="queue_failed",
            )
        if self._thread.ident is not None and not self._thread.is_alive():
            return failed(
                "Fixes wait: nothing looks at the queue.",
                "Start the service again.",
                kind="not_dispatching",
            )
        return ok("The queue is looked at.")

    def has_room_on_disk(self) -> bool:
        """Return whether as much disk space is free as a fix needs."""
        return self._free_bytes(self._state_dir) >= self._settings.limits.min_free_bytes

    def stop(self) -> None:
        """End all workers in good order; their fixes wait for the next start. Idempotent."""
        self._stopping.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._look()
                self.failure = None
            except Exception as error:  # noqa: BLE001 (a full disk is temporary; readiness reports it)
                self.failure = error
            self._wake.wait(_TICK_S)
            self._wake.clear()
        self._end_all()

    def _look(self) -> None:
        self._take_up()
        space = self._settings.limits.concurrent_fixes - len(self._queue.running())
        while space > 0 and not self._stopping.is_set() and self.has_room_on_disk():
            order = self._queue.take_next()
            if order is None:
                break
            space -= self._start(order)

    def _start(self, order: Order) -> bool:
        """Return whether the fix runs. A process that is about to end may still hold its lock: then
        this take does not count.
        """
        try:
            if self._engine.state(order.fix_id).phase is Phase.ACTIVE:
                return self._queue.not_taken(order.fix_id)
            self._engine.submit(self._ordered(order))
        except NotFoundError as error:
            return not self._queue.fail(order.fix_id, problem_of(error))
        except FallbackError:  # usually a full disk: not the fix's fault
            self._queue.queue_again(order.fix_id, order.takes - 1)
            raise
        finally:
            self._on_change()
        return True

    def _ordered(self, order: Order) -> FixOrder:
        """Return the engine's order, by the current settings of repository and service. Raises
        NotFoundError.
        """
        repository = self._settings.repositories.get(order.repository)
        if repository is None:
            raise NotFoundError(
                f"Repository {order.repository!r} is not configured any more.",
                next_step="Configure it as before, then resume the fix.",
                kind="no_such_repository",
            )
        submission = order.submission
        configured = configuration(
            self._settings, self._state_dir, self._secrets, repository, submission
        )
        return FixOrder(
            fix_id=order.fix_id,
            repository=order.repository,
            source=repository.model_copy(update={"ref": submission.ref or repository.ref}),
            base_commit=order.base_commit,
            advisory_id=order.advisory_id,
            advisory=submission.advisory,
            configuration=configured.without_keys(),
        )

    # --- Ending -----------------------------------------------------------------------------------

    def _take_up(self) -> None:
        """Look at all running fixes, whichever process started their workers: cancel them or record
        their ends.
        """
        for line in self._queue.running():
            self._look_at(line)

    def _look_at(self, line: OrderLine) -> None:
        """Record the status of a worker that is gone; if it died without one, its fix may get another
        worker.
        """
        fix_id, queue = line.fix_id, self._queue
        state = self._engine.state(fix_id)
        # Read second: a worker that is gone writes nothing more.
        status = self._engine.status(fix_id)
        if line.base_commit is None and status.base_commit is not None:
            queue.begin_at(fix_id, status.base_commit)
            self._on_change()
        if state.phase is Phase.ACTIVE:
            if line.cancelling:
                self._engine.cancel(fix_id)
            return
        document = self._engine.document(fix_id) if state.phase is Phase.ENDED else None
        if document is not None and status.outcome is not None:
            queue.end(fix_id, status.outcome, document)
        else:
            self._settle(line, state)
        self._engine.forget(fix_id)
        self._on_change()

    def _settle(self, line: OrderLine, state: EngineState) -> None:
        becomes, takes, problem = settle(
            state,
            line.takes,
            cancelling=line.cancelling,
            leaving=self._stopping.is_set(),
            retries=False,
            resume=self._place.resume,
        )
        if becomes is Becomes.FAILED and problem is not None:
            self._queue.fail(line.fix_id, problem)
        elif not self._queue.cancelled_if_wanted(line.fix_id):  # requested after the line was read?
            self._queue.queue_again(line.fix_id, takes)

    def _end_all(self) -> None:
        """End own workers in good order; their fixes have ended, or wait for the next service.

        If a full disk prevents recording that, the next service finds it by their locks and statuses.
        """
        own_fixes = self._engine.own
        with contextlib.suppress(FallbackError):
            self._engine.close()
            for line in self._queue.running():
                if line.fix_id in own_fixes:
                    self._look_at(line)


def worker_place(settings: ServiceSettings, state_dir: Path, secrets: Secrets) -> Place:
    """Return the place of the service's workers."""
    return Place(
        state_dir=state_dir,
        record=record_settings(settings, secrets),
        fix_s=settings.limits.fix_s,
        folder=service_dir(state_dir).name,
        resume="resume the fix",
        keeps_documents=True,
        own_checkouts=True,
    )
