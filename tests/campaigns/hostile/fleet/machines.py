"""The kinds of faults that need the machine's leave: a network that is cut, a disk that all but stops."""

import os
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psycopg

from fallback_tier.engines.temporal.dev import PORT, server_binary, start_server
from tests.campaigns.hostile.fleet import hosts, slow_disk
from tests.campaigns.hostile.fleet.judging import Row
from tests.campaigns.hostile.fleet.kinds import add, children, goes_on
from tests.campaigns.hostile.fleet.world import At, Skipped, World, finish, fleet_of, pause
from tests.engines.fleet import Fleet
from tests.ports import free_port
from tests.postgres.server import restartable
from tests.waiting import becomes

#: Temporal's host in its network; those of workers are numbered from 2 on.
_SERVER = 100

#: What a round has: so many cuts, or stalls, where fixes are open for so long.
_CUTS = 6
_STALLS = 5

#: Of a cut (seconds): a worker is given up after 10, a connection of PostgreSQL after 20.
_CUT_S = (1.0, 45.0)
_STALL_S = (3.0, 25.0)

#: A commit of SQLite or PostgreSQL is some three of them.
_WRITES_A_SECOND = (1, 2, 4)


def partitions(world: World, row: Row) -> None:
    """A host is cut off from Temporal, from PostgreSQL or from both (network namespaces)"""
    if reason := hosts.missing():
        raise Skipped(reason)
    with ExitStack() as stack:
        nets = [stack.enter_context(hosts.network(letter)) for letter in "tp"]
        at = stack.enter_context(_servers_on(world, *nets))
        machines = {
            f"apart-{name}": stack.enter_context(hosts.host(name, number, nets))
            for number, name in enumerate(("one", "two"), 2)
        }
        fleet = stack.enter_context(fleet_of(world, database=True, at=at))
        names = add(fleet, "short", "long", "long", "long")
        for name, machine in machines.items():
            fleet.worker(name, inside=machine.inside)
        fleet.start(*names)
        for _ in range(_CUTS):
            cut = _host_with_a_fix(world, fleet, names)
            if cut is None:
                break
            pause(world, 0.0, 3.0)
            cables = machines[cut].cables
            for cable in (chosen := world.chance.choice((cables, cables[:1], cables[1:]))):
                cable.pull()
            row.faults += 1
            pause(world, *_CUT_S)
            for cable in chosen:
                cable.plug()
        finish(world, row, fleet, names)


def disks(world: World, row: Row) -> None:
    """A disk that all but stops, below the record and Temporal (cgroup limit on a loop device)"""
    if reason := slow_disk.missing():
        raise Skipped(reason)
    with ExitStack() as stack:
        folder = world.place / f"disk-{world.chance.getrandbits(40):x}"
        disk = stack.enter_context(slow_disk.slow_disk(folder))
        server = start_server(disk.place / "temporal", free_port())
        stack.callback(server.stop)
        database = None
        if world.chance.random() < 0.5:
            disk.place.chmod(0o755)
            made = stack.enter_context(restartable(below=disk.place))
            database = f"{made.server.url()}&"
        at = At(server.address, database, disk.place)
        fleet = stack.enter_context(fleet_of(world, database=database is not None, at=at))
        names = add(fleet, "short", "long", "long")
        fleet.worker("one")
        fleet.start(*names)
        for _ in range(_STALLS):
            if _host_with_a_fix(world, fleet, names) is None:
                break
            pause(world, 0.0, 3.0)
            disk.allow(world.chance.choice(_WRITES_A_SECOND))
            row.faults += 1
            pause(world, *_STALL_S)
            disk.allow(0)
        finish(world, row, fleet, names)


#: In turn.
MACHINES: tuple[Callable[[World, Row], None], ...] = (partitions, disks)


def _host_with_a_fix(world: World, fleet: Fleet, names: list[str]) -> str | None:
    """A worker that has a fix open, as soon as there is one; None: all fixes have ended."""
    found: list[str] = []

    def is_there() -> bool:
        for host in fleet.workers:
            fleet.keep_working(host)
        found[:] = [host for host, worker in fleet.workers.items() if children(worker.pid)]
        return bool(found) or not goes_on(fleet, names)

    becomes(is_there, "a fix is open", patience_s=fleet.patience_s)
    return world.chance.choice(found) if found else None


@contextmanager
def _servers_on(world: World, temporal: hosts.Network, postgres: hosts.Network) -> Iterator[At]:
    """Servers of their own, each in one of the networks."""
    with ExitStack() as stack:
        folder = world.place / f"apart-{world.chance.getrandbits(40):x}"
        folder.mkdir()
        machine = stack.enter_context(hosts.host("temporal", _SERVER, [temporal]))
        stack.enter_context(_temporal_on(machine, folder, temporal.of(_SERVER)))
        made = stack.enter_context(restartable(listen_addresses=postgres.address))
        with (made.server.place / "data" / "pg_hba.conf").open("a") as file:
            file.write(f"host all all {postgres.range} trust\n")
        with psycopg.connect(made.server.url(), autocommit=True) as connection:
            connection.execute("SELECT pg_reload_conf()")
        url = f"postgresql://postgres@{postgres.address}/postgres?"
        yield At(f"{temporal.of(_SERVER)}:{PORT}", url)


@contextmanager
def _temporal_on(machine: hosts.Host, folder: Path, address: str) -> Iterator[None]:
    """On a host of its own: its services find one another on loopback alone, so it listens everywhere."""
    with (
        (folder / "temporal.log").open("ab") as log,
        subprocess.Popen(
            [
                *(*machine.inside, str(server_binary()), "server", "start-dev", "--headless"),
                *("--ip", "0.0.0.0", "--port", str(PORT), "--log-level", "warn"),
                *("--db-filename", str(folder / "temporal.db")),
            ],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={"PATH": os.environ.get("PATH", ""), "HOME": str(folder)},
        ) as process,
    ):
        try:
            becomes(lambda: _takes_connections(address, PORT), "Temporal takes connections")
            yield
        finally:
            process.kill()


def _takes_connections(address: str, port: int) -> bool:
    try:
        socket.create_connection((address, port), timeout=1.0).close()
    except OSError:
        return False
    return True
