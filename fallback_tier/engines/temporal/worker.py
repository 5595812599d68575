"""A worker: its name, its room, and its work: it opens fixes if it has room, and takes their steps.

Its own queue is named after it. Two workers with one queue would get one another's steps, and neither would
have the fix open.
"""

import asyncio
import contextlib
import re
import socket
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import BinaryIO

from temporalio.api.workflowservice.v1 import SetWorkerDeploymentCurrentVersionRequest
from temporalio.client import Client
from temporalio.common import VersioningBehavior, WorkerDeploymentVersion
from temporalio.service import RPCError
from temporalio.worker import (
    CustomSlotSupplier,
    FixedSizeSlotSupplier,
    SlotMarkUsedContext,
    SlotPermit,
    SlotReleaseContext,
    SlotReserveContext,
    Worker,
    WorkerDeploymentConfig,
    WorkerTuner,
)

from fallback_audit.frozen import Frozen
from fallback_tier.engines.temporal.activities import FixActivities, Launch
from fallback_tier.engines.temporal.connecting import Cluster, connect
from fallback_tier.engines.temporal.messages import LOOKS
from fallback_tier.engines.temporal.reconciling import OpenRecord, Reconciler, looking
from fallback_tier.engines.temporal.workflow import FixWorkflow
from fallback_tier.errors import ConfigurationError
from fallback_tier.files.folders import writing_below
from fallback_tier.files.locks import try_hold

#: Between two checks for room (seconds): a fix takes minutes.
_ROOM_LOOK_S = 0.1


class RoomForFixes(CustomSlotSupplier):
    """Slots for opening fixes: as many as ``opened()`` and pending openings leave room.

    A fix keeps its room between activities, so the worker's own count of activities does not suffice. While
    not ``can_open()`` there is no slot: a worker that can open no fix would fail with each at once, and
    take the next before other workers do.
    """

    def __init__(
        self, fixes: int, opened: Callable[[], int], can_open: Callable[[], bool] = lambda: True
    ) -> None:
        self._fixes = fixes
        self._opened = opened
        self._can_open = can_open
        self._reserved = 0

    async def reserve_slot(self, ctx: SlotReserveContext) -> SlotPermit:
        """Wait for a slot."""
        while (permit := self.try_reserve_slot(ctx)) is None:
            await asyncio.sleep(_ROOM_LOOK_S)
        return permit

    def try_reserve_slot(self, ctx: SlotReserveContext) -> SlotPermit | None:  # noqa: ARG002
        """Return a slot if one is free now, or None."""
        if not self._can_open() or self._opened() + self._reserved >= self._fixes:
            return None
        self._reserved += 1
        return SlotPermit()

    def mark_slot_used(self, ctx: SlotMarkUsedContext) -> None:
        """Do nothing: the slot is used to open a fix."""

    def release_slot(self, ctx: SlotReleaseContext) -> None:  # noqa: ARG002
        """Release a slot: the fix is open, or could not be opened, or the slot was not needed."""
        self._reserved -= 1


#: Suffix of a worker's name, generated once per state folder of a host. Eight digits are enough for one
#: host.
_SUFFIX = re.compile(r"[0-9a-f]{8}")

#: Characters that a file's name must not have.
_UNPLAIN = re.compile(r"[^A-Za-z0-9.-]")


@contextmanager
def worker_name(state_dir: Path, chosen: str = "") -> Iterator[str]:
    """Hold and yield the worker's name: the one that a person has ``chosen``, who must keep it distinct
    from other machines' names; otherwise the host's name and this state folder's suffix.

    Raises ConfigurationError if a worker of this state folder has the name, StateFolderError.
    """
    path = state_dir / "fleet" / f"worker{chosen and '-' + _UNPLAIN.sub('-', chosen)}.lock"
    with writing_below(state_dir):
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = try_hold(path)
        if lock is None:
            raise ConfigurationError(
                f"Another worker of the state folder {state_dir} has this name.",
                next_step="Give it more --fixes, or this one a --host NAME or a --state-dir of its own.",
                kind="name_taken",
            )
    with lock:
        with writing_below(state_dir):
            name = chosen or f"{_hostname()}-{_suffix(path, lock)}"
        yield name


def _suffix(path: Path, lock: BinaryIO) -> str:
    """Return the suffix, which is in the lock's own file: the holder of the lock may write there."""
    if match := _SUFFIX.fullmatch(path.read_text(errors="replace")):
        return match.group()
    suffix = uuid.uuid4().hex[:8]
    lock.truncate(0)
    lock.write(suffix.encode())
    lock.flush()
    return suffix


def _hostname() -> str:
    return _UNPLAIN.sub("-", socket.gethostname()) or "host"


#: A session without a request for so long is ended (seconds).
IDLE_S = 300.0
_LOOK_S = 5.0

#: Running steps get no time to finish: another worker continues from the audit trail.
_GRACE = timedelta(0)

#: Workflows that a worker caches, and their concurrent tasks. They only request steps.
_CACHED = 1_000
_TASKS = 20
_LOOKS = 4

#: Tries to make a new version the current one, and the pause between two: the server must know it first.
_VERSION_TRIES = 40
_VERSION_S = 0.25


class WorkerSettings(Frozen):
    """Settings of a worker.

    ``host``: names this worker's own queue, so no two workers may have the same (``naming``). ``fixes``:
    how many it has open at once. ``build``: PINNED worker versioning under this build's name: a fix that
    began under one build is only taken by workers of that build.
    """

    host: str
    cluster: Cluster = Cluster()
    fixes: int = 2
    build: str | None = None

    @property
    def own_queue(self) -> str:
        """Return the queue of this worker's open fixes."""
        return f"{self.cluster.queue}@{self.host}"


async def run_worker(
    settings: WorkerSettings,
    launch: Launch,
    record: OpenRecord,
    until: asyncio.Event,
    ready: Callable[[], None] = lambda: None,
    may_go_on: Callable[[str], bool] = lambda _: True,
    notify: Callable[[str], None] = lambda _: None,
) -> None:
    """Work until ``until`` is set; then end every open fix in good order, so that other workers continue
    it.

    ``may_go_on``: called with the identifier of a fix that a person has decided; returns whether it may run
    now. ``notify``: called with a line when the server becomes unreachable, and when it is reachable again.

    Raises EngineUnreachableError, ConfigurationError.
    """
    look = looking(record, may_go_on)
    client = await connect(settings.cluster)
    activities = FixActivities(launch, settings.own_queue, look)
    reconciler = Reconciler(client, record, look)
    room = RoomForFixes(
        settings.fixes, lambda: activities.opened, lambda: reconciler.reaches_record
    )
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(activities.end_all)
        for worker in _workers(client, settings, activities, room):
            await stack.enter_async_context(worker)
        if settings.build is not None:
            await _make_current(client, _version(settings.build))
        reaching = _reaching(client, settings.cluster, notify)
        for coroutine in (reconciler.run(), _end_unused(activities), reaching):
            task = asyncio.create_task(coroutine)
            stack.callback(task.cancel)
        ready()
        await until.wait()


def _workers(
    client: Client, settings: WorkerSettings, activities: FixActivities, room: RoomForFixes
) -> list[Worker]:
    """Return three workers: for open fixes of this worker, for looks at the audit trail, and for the
    shared queue.
    """
    deployment = None
    if settings.build is not None:
        deployment = WorkerDeploymentConfig(
            version=_version(settings.build),
            use_worker_versioning=True,
            default_versioning_behavior=VersioningBehavior.PINNED,
        )
    shared_worker = Worker(
        client,
        task_queue=settings.cluster.queue,
        workflows=[FixWorkflow],
        activities=[activities.open],
        tuner=WorkerTuner.create_composite(
            workflow_supplier=FixedSizeSlotSupplier(_TASKS),
            activity_supplier=room,
            local_activity_supplier=FixedSizeSlotSupplier(1),
            nexus_supplier=FixedSizeSlotSupplier(1),
        ),
        max_cached_workflows=_CACHED,
        max_concurrent_activity_task_polls=1,
        disable_eager_activity_execution=True,
        graceful_shutdown_timeout=_GRACE,
        deployment_config=deployment,
    )
    own_worker = Worker(
        client,
        task_queue=settings.own_queue,
        activities=[activities.step, activities.deliver, activities.close],
        max_concurrent_activities=max(2 * settings.fixes, 2),
        graceful_shutdown_timeout=_GRACE,
        deployment_config=deployment,
    )
    looks_worker = Worker(
        client,
        task_queue=f"{settings.cluster.queue}{LOOKS}",
        activities=[activities.look],
        max_concurrent_activities=_LOOKS,
        deployment_config=deployment,
    )
    return [own_worker, looks_worker, shared_worker]


def _version(build: str) -> WorkerDeploymentVersion:
    return WorkerDeploymentVersion(deployment_name="fallback-tier", build_id=build)


async def _make_current(client: Client, version: WorkerDeploymentVersion) -> None:
    """Let new fixes begin under this version; those that began under another stay with it."""
    request = SetWorkerDeploymentCurrentVersionRequest(
        namespace=client.namespace,
        deployment_name=version.deployment_name,
        build_id=version.build_id,
        ignore_missing_task_queues=True,
    )
    for tries in range(_VERSION_TRIES):
        try:
            await client.workflow_service.set_worker_deployment_current_version(request)
        except RPCError:  # the server does not know this worker yet
            if tries == _VERSION_TRIES - 1:
                raise
            await asyncio.sleep(_VERSION_S)
        else:
            return


async def _reaching(client: Client, cluster: Cluster, notify: Callable[[str], None]) -> None:
    """Report when the server stops answering, and when it answers again. The SDK reconnects by itself."""
    was_healthy = True
    while True:
        await asyncio.sleep(_LOOK_S)
        try:
            is_healthy = await client.service_client.check_health(
                timeout=timedelta(seconds=_LOOK_S)
            )
        except RPCError:
            is_healthy = False
        if is_healthy != was_healthy:
            state = "answers again" if is_healthy else "does not answer: waiting for it"
            notify(f"Temporal at {cluster.address} {state}")
        was_healthy = is_healthy


async def _end_unused(activities: FixActivities) -> None:
    while True:
        await asyncio.sleep(_LOOK_S)
        await activities.end_unused(IDLE_S)
