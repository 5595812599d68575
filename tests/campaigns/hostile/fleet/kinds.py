"""The kinds of faults that any machine can have: kills, stops, versions."""

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from fallback_tier.engines.temporal.connecting import EngineUnreachableError, connect
from fallback_tier.engines.temporal.dev import start_server
from tests.campaigns.hostile.fleet.judging import Row
from tests.campaigns.hostile.fleet.world import World, finish, fleet_of, pause, wait_for_events
from tests.engines.fleet import Fleet
from tests.waiting import PATIENCE_S, becomes

#: Events of one process of the long story: a kill at a later one never comes.
_EVENTS = 18

#: A round has so many while its fixes go on.
_SERVER_KILLS = 5
_BACKEND_KILLS = 6

#: A process that stood still puts what it has on record within so long (seconds).
_SAY_S = 20.0


def add(fleet: Fleet, *stories: str) -> list[str]:
    """Fixes of these stories."""
    return [fleet.scenario.add(story) for story in stories]


def _plan_kills(world: World, fleet: Fleet, name: str, kills: int, *, worker: bool) -> None:
    """The first process of a fix at any event, those that follow soon after they have gone on."""
    for number in range(1, kills + 1):
        event = world.chance.randint(1, _EVENTS if number == 1 else 8)
        before = world.chance.random() < 0.5
        fleet.scenario.kill_at(name, number, event, before=before, worker=worker)


def _kills_done(fleet: Fleet, name: str, planned: int) -> int:
    return planned - len(list((fleet.scenario.root / "kills" / name).glob("*")))


def _process_kills(world: World, row: Row, *, worker: bool, database: bool) -> None:
    with fleet_of(world, database=database) as fleet:
        names = add(fleet, "short", "long", "long")
        planned = 3 if worker else 6
        for name in names:
            _plan_kills(world, fleet, name, planned, worker=worker)
        fleet.worker()
        fleet.start(*names)
        finish(world, row, fleet, names)
        row.faults += sum(_kills_done(fleet, name, planned) for name in names)


def fix_processes(world: World, row: Row) -> None:
    """kill -9 of a fix's process, before or after any event (SQLite)"""
    _process_kills(world, row, worker=False, database=False)


def fix_processes_postgres(world: World, row: Row) -> None:
    """kill -9 of a fix's process, before or after any event (PostgreSQL)"""
    _process_kills(world, row, worker=False, database=True)


def workers(world: World, row: Row) -> None:
    """kill -9 of a worker, before or after any event of a fix that it has open (SQLite)"""
    _process_kills(world, row, worker=True, database=False)


def workers_postgres(world: World, row: Row) -> None:
    """kill -9 of a worker, before or after any event of a fix that it has open (PostgreSQL)"""
    _process_kills(world, row, worker=True, database=True)


def servers(world: World, row: Row) -> None:
    """kill -9 of the Temporal server, at any moment; started again on its file"""
    with fleet_of(world, database=False) as fleet:
        names = add(fleet, "short", "long", "long")
        fleet.worker()
        fleet.start(*names)
        for _ in range(_SERVER_KILLS):
            if not goes_on(fleet, names):
                break
            pause(world, 0.2, 6.0)
            world.restart_server()
            row.faults += 1
        finish(world, row, fleet, names)


def backends(world: World, row: Row) -> None:
    """kill -9 of a PostgreSQL backend; the server then ends all others, and recovers"""
    with fleet_of(world, database=True) as fleet:
        names = add(fleet, "short", "long", "long")
        fleet.worker()
        fleet.start(*names)
        wait_for_events(fleet, names[0], "FixStarted")
        for _ in range(_BACKEND_KILLS):
            if not goes_on(fleet, names):
                break
            pause(world, 0.0, 2.0)
            row.faults += _kill_backend(world)
        finish(world, row, fleet, names)


def databases(world: World, row: Row) -> None:
    """kill -9 of PostgreSQL, all its processes at once; started again after up to half a minute"""
    with fleet_of(world, database=True) as fleet:
        names = add(fleet, "short", "long", "long")
        fleet.worker()
        fleet.start(*names)
        wait_for_events(fleet, names[0], "FixStarted")
        for _ in range(_SERVER_KILLS):
            if not goes_on(fleet, names):
                break
            pause(world, 0.2, 6.0)
            world.postgres.kill()
            try:
                pause(world, 0.0, 30.0 if world.chance.random() < 0.3 else 3.0)
            finally:
                world.postgres.start()
            row.faults += 1
        finish(world, row, fleet, names)


def stopped_workers(world: World, row: Row) -> None:
    """A machine that stands still (SIGSTOP), is taken for lost, and comes back while another goes on"""
    with fleet_of(world, database=True) as fleet:
        (name,) = add(fleet, world.chance.choice(("short", "long")))
        asks = world.chance.random() < 0.5  # it stands still while the model works, or anywhere
        if asks:
            fleet.scenario.hold_model(name)
        fleet.worker("apart-one")
        fleet.start(name)
        wait_for_events(fleet, name, "ModelCalled" if asks else "FixStarted")
        if not asks:
            pause(world, 0.0, 2.0)
        one = fleet.workers.pop("apart-one")
        fixes = children(one.pid)
        try:
            for pid in (one.pid, *fixes):
                os.kill(pid, signal.SIGSTOP)
            row.faults += 1
            fleet.worker("apart-two")
            becomes(
                lambda: _taken_over(fleet, name), "another goes on", patience_s=fleet.patience_s
            )
            for pid in fixes:  # before its worker can end it: it has its say first
                os.kill(pid, signal.SIGCONT)
            if asks:
                fleet.scenario.let_model_answer(name)
            wait_until_silent(fixes)
            os.kill(one.pid, signal.SIGCONT)
            finish(world, row, fleet, [name])
        finally:
            _end(one)


def decisions(world: World, row: Row) -> None:
    """A person decides while the Temporal server, or every worker, is down"""
    with fleet_of(world, database=world.chance.random() < 0.5) as fleet:
        (name,) = add(fleet, "asks")
        worker = fleet.worker()
        fleet.start(name)
        fleet.reach("waiting", [name])
        if world.chance.random() < 0.5:
            worker.kill()
            worker.wait(PATIENCE_S)
            fleet.scenario.decide(name)
        else:
            world.server.kill()
            fleet.scenario.decide(name)
            time.sleep(1.5)
            world.server = start_server(world.place / "temporal", world.server.port)
        row.faults += 1
        finish(world, row, fleet, [name])


def versions(world: World, row: Row) -> None:
    """Two versions at once, PINNED, the old one's worker killed or not: its own alone go on"""
    with fleet_of(world, database=False) as fleet:
        old, new = add(fleet, "short", "short")
        builds = [f"{fleet.cluster.queue}-{number}" for number in (1, 2)]
        fleet.scenario.hold_model(old)
        worker = fleet.worker("old", build=builds[0])
        by_old = {worker.pid}
        fleet.start(old)
        wait_for_events(fleet, old, "ModelCalled")
        fleet.worker("new", build=builds[1])
        fleet.start(new)
        row.faults += 1
        if world.chance.random() < 0.5:
            worker.kill()
            row.faults += 1
            becomes(lambda: fleet.keep_working("old"), "the old one's worker is started again")
            by_old.add(fleet.workers["old"].pid)
        fleet.reach("ended", [new])
        fleet.scenario.let_model_answer(old)
        finish(world, row, fleet, [old, new])
        took = asyncio.run(_taken_by(fleet, old)), asyncio.run(_taken_by(fleet, new))
        if not took[0] <= by_old or took[1] & by_old:
            row.other += 1
            row.said.append(f"taken by {took}, where {by_old} are of the old version")


#: In turn.
KILLS = (
    decisions,
    fix_processes,
    servers,
    workers,
    databases,
    backends,
    stopped_workers,
    versions,
    fix_processes_postgres,
    workers_postgres,
)


def goes_on(fleet: Fleet, names: Sequence[str]) -> bool:
    """A fix has not ended: a fault may hit it."""
    try:
        return any(fleet.phase(name) != "ended" for name in names)
    except EngineUnreachableError:
        return True


def children(pid: int) -> Sequence[int]:
    """Processes that a worker started itself; none where it has ended."""
    try:
        words = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []
    return [int(word) for word in words]


def _taken_over(fleet: Fleet, name: str) -> bool:
    return fleet.phase(name) == "ended" or "FixResumed" in fleet.scenario.kinds_so_far(name)


def wait_until_silent(pids: Sequence[int]) -> None:
    """Until these processes have ended, or waited for their stopped worker for long enough."""
    until = time.monotonic() + _SAY_S
    while time.monotonic() < until and any(map(_lives, pids)):
        time.sleep(0.1)


def _lives(pid: int) -> bool:
    """A process that has ended stays a zombie while its parent is stopped."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _end(worker: "subprocess.Popen[str]") -> None:
    for pid in (worker.pid, *children(worker.pid)):
        os.kill(pid, signal.SIGCONT)  # where the round broke off before
    worker.terminate()
    try:
        worker.wait(PATIENCE_S)
    finally:
        worker.kill()
        if worker.stdout:
            worker.stdout.close()


def _kill_backend(world: World) -> int:
    """One that serves a client; the postmaster then ends all others and recovers from its log."""
    found: list[int] = []

    def is_there() -> bool:
        found[:] = [pid for pid in world.postgres.processes() if _serves(pid)]
        return bool(found)

    becomes(is_there, "a backend serves a fix or a worker")
    try:
        os.kill(world.chance.choice(found), signal.SIGKILL)
    except ProcessLookupError:
        return 0
    return 1


def _serves(pid: int) -> bool:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
    return words.startswith(b"postgres: ") and b"[local]" in words


async def _taken_by(fleet: Fleet, name: str) -> set[int]:
    """Processes of the workers that opened it, or took a step of it."""
    handle = (await connect(fleet.cluster)).get_workflow_handle(name)
    identities = [
        event.activity_task_started_event_attributes.identity
        async for event in handle.fetch_history_events()
        if event.HasField("activity_task_started_event_attributes")
    ]
    return {int(identity.partition("@")[0]) for identity in identities}
