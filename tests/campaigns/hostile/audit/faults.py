"""Every system call that writes fails once, or from then on: typed errors, nothing acknowledged is lost."""

import errno
import os
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

from tests.campaigns.hostile.audit.campaign import Ask, Tally
from tests.campaigns.hostile.audit.children import Child
from tests.campaigns.hostile.audit.commands import COMMANDS, HANDING_OUT, VERIFYING
from tests.campaigns.hostile.audit.disk import HALF, KILL, NAMES, WRITING, Disk, on_that_disk
from tests.campaigns.hostile.audit.promises import Promises
from tests.campaigns.hostile.audit.trail_folder import TrailFolder
from tests.campaigns.hostile.audit.workloads import WORKLOADS, Workload

#: The error, and whether the disk stays broken.
MODES = (
    (errno.EIO, False),
    (errno.EIO, True),
    (errno.ENOSPC, False),
    (errno.ENOSPC, True),
    (HALF, False),
    (KILL, False),
)

#: By the library, and by the command line.
EVERY = (*WORKLOADS, COMMANDS)

#: More than any workload makes.
NEVER = 1_000_000

#: A failing read must be an error too, never an empty record.
READING = "read"


class Fault(NamedTuple):
    """The ``nth`` call of a workload fails."""

    workload: Workload
    calls: str
    nth: int
    error: int
    again: bool

    def __str__(self) -> str:
        what = "reading" if self.calls == READING else "writing"
        more = " and all later ones" if self.again else ""
        return f"{self.workload.name}, {what} call {self.nth}{more}: {NAMES[self.error]}"


class Bench:
    """Workloads on a disk that fails."""

    def __init__(self, place: Path, workloads: Sequence[Workload]) -> None:
        self._disk = Disk()
        self._place = place
        self._workloads = workloads
        for workload in workloads:
            workload.ready(TrailFolder(place / workload.name))
            self._try_out(workload)

    def _try_out(self, workload: Workload) -> None:
        """Once in this process: what a workload imports, the forks that do it again have already."""
        place = shutil.copytree(self._place / workload.name, self._place / "tried")
        workload.work(TrailFolder(place), lambda line: None)
        shutil.rmtree(place)

    def run(self, fault: Fault) -> tuple[TrailFolder, list[str], int]:
        """The record afterwards, what its process said, and how many calls it made."""
        place = self._place / "run"
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(self._place / fault.workload.name, place)
        trail = TrailFolder(place)

        def work(out: int) -> None:
            self._disk.fail(place, fault.nth, fault.error, again=fault.again, calls=fault.calls)
            fault.workload.work(trail, lambda line: _write(out, line))
            seen = self._disk.seen()
            self._disk.fail(place, 0, 0)
            _write(out, f"calls {seen}")

        messages = Child(work).lines()
        calls = [int(line.split()[1]) for line in messages if line.startswith("calls ")]
        return trail, messages, calls[0] if calls else 0

    def every(self) -> list[Fault]:
        """One for each call that a workload makes untouched, in each mode."""
        found = []
        for workload in self._workloads:
            for calls in (WRITING, READING):
                _, _, total = self.run(Fault(workload, calls, NEVER, errno.EIO, again=False))
                modes = MODES if calls == WRITING else MODES[:2]
                found += [
                    Fault(workload, calls, nth, error, again)
                    for nth in range(1, total + 1)
                    for error, again in modes
                ]
        return found


def _write(out: int, line: str) -> None:
    os.write(out, f"{line}\n".encode())


@on_that_disk
def faults(ask: Ask) -> Tally:
    """All of them where ``count`` and the time allow, else a sample: their order is drawn."""
    return _faults(ask, EVERY)


@on_that_disk
def faults_shortly(ask: Ask) -> Tally:
    """Of two workloads: to count their calls takes little time."""
    return _faults(ask, (WORKLOADS[1], COMMANDS))


@on_that_disk
def failing_reads(ask: Ask) -> Tally:
    """``audit verify``, each of its reads once: what SQLite itself then takes for damage, too."""
    return _one_by_one(ask, VERIFYING, READING, errno.EIO)


@on_that_disk
def failing_files(ask: Ask) -> Tally:
    """Files that the user named, each call that writes them, or makes room for them to be read."""
    return _one_by_one(ask, HANDING_OUT, WRITING, errno.ENOSPC)


def _one_by_one(ask: Ask, workload: Workload, calls: str, error: int) -> Tally:
    bench, tally = Bench(ask.place, (workload,)), Tally()
    _, _, tally.possible = bench.run(Fault(workload, calls, NEVER, error, again=False))
    for case in range(1, 1 + min(ask.count, tally.possible)):
        if not ask.mine(case):
            continue
        try:
            _, messages, _ = bench.run(Fault(workload, calls, case, error, again=False))
        except AssertionError as broken:
            raise ask.broken(case, str(broken)) from broken
        tally.cases += 1
        tally.counts["refused"] += any(line.startswith("refused by audit") for line in messages)
    return tally


def _faults(ask: Ask, workloads: Sequence[Workload]) -> Tally:
    bench, tally = Bench(ask.place, workloads), Tally()
    every = bench.every()
    tally.possible = len(every)
    drawn = sorted(every, key=lambda fault: ask.chance(str(fault)).random())
    total = len(drawn[ask.first : ask.first + ask.count])
    for case, fault in enumerate(drawn[ask.first : ask.first + ask.count], ask.first):
        if time.monotonic() > ask.until:
            break
        # By its name: two processes may have counted calls that differ by one.
        if not ask.mine(crc32(str(fault).encode())):
            continue
        try:
            trail, messages, _ = bench.run(fault)
            promises = Promises()
            promises.take(messages)
            promises.goes_on(trail)
            problem = promises.problem(trail)
        except Exception as error:
            raise ask.broken(case, f"{fault}: {error}") from error
        if problem is not None:
            raise ask.broken(case, f"{fault}: {problem}")
        tally.cases += 1
        tally.counts[f"{fault.workload.name}: {NAMES[fault.error]}"] += 1
        tally.counts["refusals, all typed"] += sum(line.startswith("refused") for line in messages)
        for line in messages:
            if line.startswith("refused by audit"):
                tally.counts[f"by command: {line.rpartition(', ')[2]}"] += 1
        tally.counts["acknowledged events, none lost"] += len(promises.events)
        ask.told(tally.cases, total)
    return tally
