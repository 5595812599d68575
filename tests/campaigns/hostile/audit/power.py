"""The power goes after any system call: whatever the disk then holds, nothing acknowledged is lost."""

import os
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from copy import deepcopy
from math import gcd
from pathlib import Path
from typing import NamedTuple

from fallback_audit.errors import FallbackError
from tests.campaigns.hostile.audit.campaign import Ask, Tally
from tests.campaigns.hostile.audit.children import Child
from tests.campaigns.hostile.audit.disk import Disk as LoadedDisk
from tests.campaigns.hostile.audit.disk import on_that_disk
from tests.campaigns.hostile.audit.lost_writes import KINDS, Call, Disk, read_calls
from tests.campaigns.hostile.audit.promises import Promises
from tests.campaigns.hostile.audit.trail_folder import TrailFolder, records
from tests.campaigns.hostile.audit.workloads import WORKLOADS, Say, Workload

#: SQLite copies its log into the database every 1,000 pages: about 170 events.
LONG_EVENTS = 400


def _long(trail: TrailFolder, say: Say) -> None:
    """Until the write-ahead log has been copied into the database, and begun again."""
    events = records("long")
    with closing(trail.store()) as store:
        for _ in range(LONG_EVENTS):
            stored = store.append(*next(events))
            say(f"event {stored.seq} {stored.leaf}")


RECORDED = (*WORKLOADS, Workload("the log is copied", WORKLOADS[0].ready, _long))

#: States of each workload in a round. Rounds share a run's time fairly, wherever it is stopped.
ROUND = 24


class Tape(NamedTuple):
    """The disk before a workload, and every change that it made."""

    workload: Workload
    disk: Disk
    calls: list[Call]


def record(workload: Workload, place: Path) -> Tape:
    """Do the work once."""
    trail = TrailFolder(place / workload.name)
    workload.ready(trail)
    disk, tape = Disk(trail.place), place / f"{workload.name}.tape"
    library = LoadedDisk()

    def work(out: int) -> None:
        library.record(trail.place, os.open(tape, os.O_WRONLY | os.O_CREAT | os.O_APPEND))
        workload.work(trail, library.mark)

    Child(work).lines()
    return Tape(workload, disk, list(read_calls(tape.read_bytes())))


class State(NamedTuple):
    """The power goes behind this many calls of a tape; ``kind`` is one of KINDS."""

    case: int
    point: int
    kind: str


def states(ask: Ask, tapes: list[Tape], cases: Sequence[int]) -> list[tuple[Tape, list[State]]]:
    """Case n is of tape n modulo their number; its point is one of all in an order that leaves no part
    of the tape for later, and each is met with each kind as the cases go on."""
    found: list[tuple[Tape, list[State]]] = [(tape, []) for tape in tapes]
    kinds = list(KINDS)
    for case in cases:
        tape, mine = found[case % len(tapes)]
        turn, every = case // len(tapes), len(tape.calls) + 1
        stride = next(n for n in range(int(every * 0.618) + 1, 2 * every + 2) if gcd(n, every) == 1)
        point = (turn + 1) * stride % every
        mine.append(State(case, point, kinds[(turn + turn // every) % len(kinds)]))
    return [(tape, sorted(mine, key=lambda state: state.point)) for tape, mine in found]


#: Judges one state: which it is, in words, what was promised by then, and what is on the disk.
Judge = Callable[[State, str, Promises, TrailFolder], None]


def losses(ask: Ask, workloads: Sequence[Workload], judged: Judge) -> None:
    """The states of ``ask``, round by round, each as a TrailFolder."""
    tapes = [record(workload, ask.place) for workload in workloads]
    every = range(ask.first, ask.first + ask.count)
    cases = [case for case in every if ask.mine(case // len(tapes))]  # each has all tapes
    for at in range(0, len(cases), ROUND * len(tapes)):
        for tape, mine in states(ask, tapes, cases[at : at + ROUND * len(tapes)]):
            _replayed(ask, tape, mine, judged)


def _replayed(ask: Ask, tape: Tape, mine: list[State], judged: Judge) -> None:
    disk, done, promises = deepcopy(tape.disk), 0, Promises()
    for state in mine:
        if time.monotonic() > ask.until:
            return
        for call in tape.calls[done : state.point]:
            if call.op == "M":
                promises.take([call.data.decode()])
            else:
                disk.take(call)
        done = state.point
        place = ask.place / "state"
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        disk.lose(state.kind, ask.chance(state.case), place)
        name = tape.workload.name
        what = f"{name}, behind call {state.point} of {len(tape.calls)}, {state.kind}"
        judged(state, what, promises.copy(), TrailFolder(place))


def _unsynced(trail: TrailFolder, say: Say) -> None:
    """As ``append_some``, by a store that does not wait for the disk."""
    with closing(trail.store()) as store:
        with store.store._connection.using() as db:  # type: ignore[attr-defined]
            db.execute("PRAGMA synchronous = OFF")
        events = records("unsynced")
        for _ in range(10):
            stored = store.append(*next(events))
            say(f"event {stored.seq} {stored.leaf}")


@on_that_disk
def unsynced(ask: Ask) -> Tally:
    """Does the campaign see what a store loses that does not sync? Each loss is counted."""
    tally = Tally()

    def judged(state: State, what: str, promises: Promises, trail: TrailFolder) -> None:
        try:
            promises.goes_on(trail)
            problem = promises.problem(trail)
        except FallbackError as error:
            problem = error.problem
        tally.cases += 1
        tally.counts["lost" if problem else "kept"] += 1

    losses(ask, [Workload("unsynced", WORKLOADS[0].ready, _unsynced)], judged)
    return tally


@on_that_disk
def power(ask: Ask) -> Tally:
    """Of everything, in turn."""
    return _power(ask, RECORDED)


@on_that_disk
def power_shortly(ask: Ask) -> Tally:
    """Of what takes little time to record."""
    return _power(ask, WORKLOADS[:3])


def _power(ask: Ask, workloads: Sequence[Workload]) -> Tally:
    tally = Tally()

    def judged(state: State, what: str, promises: Promises, trail: TrailFolder) -> None:
        try:
            promises.goes_on(trail)
            problem = promises.problem(trail)
        except Exception as error:
            raise ask.broken(state.case, f"{what}: {error}") from error
        if problem is not None:
            raise ask.broken(state.case, f"{what}: {problem}")
        tally.cases += 1
        tally.counts[f"states of “{what.split(',')[0]}”"] += 1
        tally.counts["acknowledged events, none lost"] += len(promises.events)
        ask.told(tally.cases, ask.count)

    losses(ask, workloads, judged)
    return tally
