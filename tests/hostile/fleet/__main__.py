"""Faults against a fleet: ``python -m tests.hostile.fleet [--minutes N] [--only KIND] [--report]``.

Real workers, a process a fix, the real Temporal server, SQLite and PostgreSQL. Every round starts fixes of
all stories, disturbs them in one way, waits until all have ended, and reads the record: no fix lost, none
run to two ends, no event lost or doubled, no finished call paid twice, no delivery twice. Kinds of faults
take turns until the time is over. ``--report`` keeps the table in docs/evaluation/fleet-faults.md.
"""

import argparse
import os
import random
import signal
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from fallback_tier.engines.temporal.dev import DevServer, free_port, start_server
from tests.engines.fleet import Fleet, fleet_on
from tests.engines.scenario import EngineScenario
from tests.hostile.fleet.judging import Row, judge, judge_record
from tests.postgres.server import Server, running
from tests.waiting import PATIENCE_S, becomes

REPORT = Path(__file__).parents[3] / "docs" / "evaluation" / "fleet-faults.md"

_PAGE = """# Faults against a fleet

Made by `make hostile-fleet`. It disturbs fixes in real workers on a real Temporal server, then reads the
record of each: `audit verify` with the trace contract, the events that a fix has a known number of, and the
working tree that was delivered to. Processes, stores and servers are real, the ecosystem is small, and the
model is scripted.

{faults} faults, {fixes} fixes, seed {seed}.

| Kind | faults | fixes | resumed | events | lost | two ends | doubled | twice paid | redelivered | else |
| --- | --: | --: | --: | --: | --: | --: | --: | --: | --: | --: |
{table}

*resumed*: how often somebody went on with a fix from the record. *twice paid*: the record has more answers
of the model than an undisturbed fix has. A call that was cut off before its answer may have been billed; it
is booked at its pre-charge. *else*: the record does not verify, or the delivered patch is another one.
"""

#: A fix that is killed six times on a busy machine takes minutes.
_PATIENCE_S = 1_200.0

#: Events of one process of the long story: a kill at a later one never comes.
_EVENTS = 18


@dataclass
class World:
    """What all rounds share."""

    place: Path
    server: DevServer
    postgres: Server
    chance: random.Random
    like: EngineScenario

    def restart_server(self) -> None:
        """kill -9, then the same file on the same port."""
        self.server.kill()
        folder = self.place / "temporal"
        self.server = start_server(folder, self.server.port)


def _fleet(world: World, opened: ExitStack, *, database: bool) -> Fleet:
    queue = f"round-{uuid.uuid4().hex[:12]}"
    url = f"{world.postgres.url()}&schema={queue.replace('-', '_')}" if database else None
    fleet = opened.enter_context(
        fleet_on(world.server.address, world.place / queue, queue, database=url)
    )
    fleet.patience_s = _PATIENCE_S
    return fleet


def _add(fleet: Fleet, *stories: str) -> list[str]:
    return [fleet.scenario.add(story) for story in stories]


def _plan_kills(world: World, fleet: Fleet, name: str, kills: int, *, worker: bool) -> None:
    """The first process of a fix at any event, those that follow soon after they have gone on."""
    for number in range(1, kills + 1):
        event = world.chance.randint(1, _EVENTS if number == 1 else 8)
        before = world.chance.random() < 0.5
        fleet.scenario.kill_at(name, number, event, before=before, worker=worker)


def _kills_done(fleet: Fleet, name: str, planned: int) -> int:
    return planned - len(list((fleet.scenario.root / "kills" / name).glob("*")))


def _finish(world: World, row: Row, fleet: Fleet, names: list[str]) -> None:
    fleet.reach("ended", names)
    for name in names:
        judge(row, fleet.scenario, name, world.like)
    judge_record(row, fleet.scenario)


def _process_kills(world: World, row: Row, *, worker: bool, database: bool) -> None:
    with ExitStack() as opened:
        fleet = _fleet(world, opened, database=database)
        names = _add(fleet, "short", "long", "long")
        planned = 3 if worker else 6
        for name in names:
            _plan_kills(world, fleet, name, planned, worker=worker)
        fleet.worker()
        fleet.start(*names)
        _finish(world, row, fleet, names)
        row.faults += sum(_kills_done(fleet, name, planned) for name in names)


def fix_processes(world: World, row: Row) -> None:
    """kill -9 of a fix's process, before or after any event (SQLite)"""
    _process_kills(world, row, worker=False, database=False)


def fix_processes_postgres(world: World, row: Row) -> None:
    """kill -9 of a fix's process, before or after any event (PostgreSQL)"""
    _process_kills(world, row, worker=False, database=True)


def workers(world: World, row: Row) -> None:
    """kill -9 of a worker, before or after any event of a fix that it has open"""
    _process_kills(world, row, worker=True, database=False)


def servers(world: World, row: Row) -> None:
    """kill -9 of the Temporal server, at any moment; started again on its file"""
    with ExitStack() as opened:
        fleet = _fleet(world, opened, database=False)
        names = _add(fleet, "short", "long")
        fleet.worker()
        fleet.start(*names)
        for _ in range(2):
            time.sleep(world.chance.uniform(0.2, 6.0))
            world.restart_server()
            row.faults += 1
        _finish(world, row, fleet, names)


def databases(world: World, row: Row) -> None:
    """kill -9 of PostgreSQL's backends, which crashes and recovers the whole server"""
    with ExitStack() as opened:
        fleet = _fleet(world, opened, database=True)
        names = _add(fleet, "short", "long")
        fleet.worker()
        fleet.start(*names)
        becomes(lambda: fleet.scenario.kinds_so_far(names[0]), "there is a record")
        for _ in range(3):
            time.sleep(world.chance.uniform(0.2, 4.0))
            row.faults += _kill_backend(world.postgres)
        _finish(world, row, fleet, names)


def stopped_workers(world: World, row: Row) -> None:
    """A machine that is cut off (SIGSTOP), taken for lost, and comes back while another goes on"""
    with ExitStack() as opened:
        fleet = _fleet(world, opened, database=True)
        (name,) = _add(fleet, "short")
        fleet.scenario.hold_model(name)
        fleet.worker("apart-one")
        fleet.start(name)
        becomes(lambda: "ModelCalled" in fleet.scenario.kinds_so_far(name), "the model is asked")
        one = fleet.workers.pop("apart-one")
        children = [int(pid) for pid in _children(one.pid)]
        for pid in (one.pid, *children):
            os.kill(pid, signal.SIGSTOP)
        row.faults += 1
        fleet.worker("apart-two")
        becomes(lambda: "FixResumed" in fleet.scenario.kinds_so_far(name), "another goes on")
        for pid in (*children, one.pid):
            os.kill(pid, signal.SIGCONT)
        fleet.scenario.let_model_answer(name)
        _finish(world, row, fleet, [name])
        one.terminate()
        one.wait(60)
        if one.stdout:
            one.stdout.close()


def decisions(world: World, row: Row) -> None:
    """A person decides while the Temporal server, or every worker, is down"""
    with ExitStack() as opened:
        fleet = _fleet(world, opened, database=False)
        (name,) = _add(fleet, "asks")
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
        _finish(world, row, fleet, [name])


def versions(world: World, row: Row) -> None:
    """Two versions at once, PINNED: a fix that began under one is taken by that one alone"""
    with ExitStack() as opened:
        fleet = _fleet(world, opened, database=False)
        old, new = _add(fleet, "short", "short")
        fleet.scenario.hold_model(old)
        fleet.worker("old", build=f"{fleet.cluster.queue}-1")
        fleet.start(old)
        becomes(lambda: "ModelCalled" in fleet.scenario.kinds_so_far(old), "the old one has it")
        fleet.worker("new", build=f"{fleet.cluster.queue}-2")
        fleet.start(new)
        fleet.reach("ended", [new])
        row.faults += 1
        fleet.scenario.let_model_answer(old)
        _finish(world, row, fleet, [old, new])


KINDS: tuple[Callable[[World, Row], None], ...] = (
    decisions,
    fix_processes,
    servers,
    workers,
    databases,
    stopped_workers,
    versions,
    fix_processes_postgres,
)


def _children(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def _kill_backend(server: Server) -> int:
    """One that serves a client; the postmaster then ends all others and recovers from its log."""
    for place in Path("/proc").glob("[0-9]*"):
        try:
            words = (place / "cmdline").read_bytes()
            if words.startswith(b"postgres: ") and b"[local]" in words and _is_of(place, server):
                os.kill(int(place.name), signal.SIGKILL)
                return 1
        except OSError:
            continue
    return 0


def _is_of(place: Path, server: Server) -> bool:
    return (place / "cwd").resolve() == (server.place / "data").resolve()


def campaign(
    minutes: float, seed: int, only: str | None, keep: Callable[[list[Row]], None]
) -> list[Row]:
    """Rounds of each kind in turn, until the time is over; every kind is had once. ``keep`` is given the
    rows after each round: one that is cut off has its figures."""
    rows = {kind: Row((kind.__doc__ or "").strip()) for kind in KINDS}
    until = time.monotonic() + minutes * 60
    with ExitStack() as opened:
        place = Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="fleet-faults-")))
        place.chmod(0o755)
        postgres = opened.enter_context(running())
        like = EngineScenario(place / "undisturbed")
        for story in ("short", "long"):
            like.by_the_loop(like.add(story, story))
        like.by_the_loop(like.add("asks", "asks"))
        like.decide("asks")
        like.by_the_loop("asks")
        server = start_server(place / "temporal", free_port())
        world = World(place, server, postgres, random.Random(seed), like)
        try:
            kinds = [kind for kind in KINDS if only in (None, kind.__name__)]
            rounds = 0
            while rounds < len(kinds) or time.monotonic() < until:
                kind = kinds[rounds % len(kinds)]
                kind(world, rows[kind])
                rounds += 1
                _tell(rows[kind])
                keep(_had(rows.values()))
        finally:
            world.server.stop()
    return _had(rows.values())


def _had(rows: Iterable[Row]) -> list[Row]:
    return [row for row in rows if row.faults]


def _tell(row: Row) -> None:
    state = "ok" if row.ok else f"WRONG {row.said}"
    sys.stdout.write(f"{row.name}: {row.faults} faults, {row.fixes} fixes, {state}\n")
    sys.stdout.flush()


def report(rows: list[Row], seed: int) -> str:
    """As it stands in the documentation."""
    faults, fixes = sum(row.faults for row in rows), sum(row.fixes for row in rows)
    table = "\n".join(
        f"| {row.name} | {row.faults} | {row.fixes} | {row.openings} | {row.events} | {row.lost} "
        f"| {row.two_ends} | {row.doubled} | {row.paid_twice} | {row.delivered_twice} | {row.other} |"
        for row in rows
    )
    return _PAGE.format(faults=faults, fixes=fixes, seed=seed, table=table)


def main() -> None:
    """The campaign."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=[kind.__name__ for kind in KINDS])
    parser.add_argument("--report", action="store_true")
    given = parser.parse_args()

    def keep(rows: list[Row]) -> None:
        if given.report:
            REPORT.write_text(report(rows, given.seed))

    rows = campaign(given.minutes, given.seed, given.only, keep)
    if not all(row.ok for row in rows):
        sys.exit(1)


if __name__ == "__main__":
    main()
