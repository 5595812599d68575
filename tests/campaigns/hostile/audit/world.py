"""Many writers, wrong clocks, a full disk, a locked database, overwritten pages: errors of ours or none."""

import os
import resource
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from random import Random

from fallback_audit.errors import AuditStoreError, FallbackError
from fallback_audit.stores.sqlite import SqliteAuditStore
from tests.campaigns.hostile.audit.campaign import Ask, Skipped, Tally
from tests.campaigns.hostile.audit.children import Child
from tests.campaigns.hostile.audit.mutations_files import FILE_MUTATIONS
from tests.campaigns.hostile.audit.promises import Promises
from tests.campaigns.hostile.audit.tamper import tables
from tests.campaigns.hostile.audit.trail_folder import TrailFolder, records
from tests.campaigns.hostile.audit.workloads import Say, append_some


def saying(out: int) -> Say:
    def say(line: str) -> None:
        os.write(out, f"{line}\n".encode())

    return say


#: One case of a sort: what it was, in words. Raises AssertionError, or an error that is not ours.
Sort = Callable[[TrailFolder, Random], str]


def many_writers(trail: TrailFolder, chance: Random) -> str:
    """Processes that append at once, each as fast as it can: one chain."""
    each, writers = 12, chance.choice((2, 4, 8))

    def write(name: str, out: int) -> None:
        events = records(name)
        with closing(trail.store()) as store:
            for _ in range(each):
                stored = store.append(*next(events))
                os.write(out, f"event {stored.seq} {stored.leaf}\n".encode())

    children = [Child(lambda out, n=n: write(f"w{n}", out)) for n in range(writers)]  # type: ignore[misc]
    promises = Promises()
    for child in children:
        promises.take(child.lines())
    assert sorted(promises.events) == list(range(1, each * writers + 1))
    _holds(promises, trail)
    return f"{writers} writers at once"


def wrong_clock(trail: TrailFolder, chance: Random) -> str:
    """Back and forth by years between two events: order is that of the chain, not of the clock."""
    trail.state.mkdir(parents=True)
    now = datetime(2026, 1, 1, tzinfo=UTC)

    def clock() -> datetime:
        nonlocal now
        now += timedelta(days=chance.choice((-3650, -400, -1, 0, 1, 400, 3650)), seconds=1)
        now = now.replace(year=min(max(now.year, 1971), 9000))
        return now

    events, promises = records("clock"), Promises()
    with closing(SqliteAuditStore(trail.database, clock=clock)) as store:
        for _ in range(20):
            stored = store.append(*next(events))
            promises.events[stored.seq] = stored.leaf
        since = chance.choice([event.recorded_at for event in store.events()])
        found = {event.seq for event in store.events(since=since)}
        later = {event.seq for event in store.events() if event.recorded_at >= since}
        first = min(found, default=0)
        assert found == set(range(first, 21)), "a stretch to the end"
        assert found & later, "not one of those that were asked for"
    _holds(promises, trail)
    return "the clock goes back and forth by years"


def full_disk(trail: TrailFolder, chance: Random) -> str:
    """No file may grow over a limit: what fails says so, what was acknowledged stays."""
    limit = chance.randrange(0, 160) * 1024

    def write(out: int) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
        append_some(trail, saying(out))

    return _after(trail, Child(write).lines(), "a limit of file size")


def small_file_system(trail: TrailFolder, chance: Random) -> str:
    """A real file system that is full. Raises Skipped where none may be mounted."""
    trail.place.mkdir(parents=True)
    size = chance.randrange(8, 300)
    if os.geteuid() != 0 or sys.platform != "linux":
        raise Skipped("a small file system needs root to be mounted")
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}k", "tmpfs", str(trail.place)]
    if subprocess.run(command, capture_output=True).returncode:
        raise Skipped("no file system may be mounted here")
    try:
        messages = Child(lambda out: append_some(trail, saying(out))).lines()
        grown = ["mount", "-o", "remount,size=64m", str(trail.place)]
        subprocess.run(grown, check=True, capture_output=True)
        return _after(trail, messages, "a full file system")
    finally:
        subprocess.run(["umount", str(trail.place)], check=True, capture_output=True)


def _after(trail: TrailFolder, messages: list[str], what: str) -> str:
    promises = Promises()
    promises.take(messages)
    promises.goes_on(trail)
    _holds(promises, trail)
    refused = any(line.startswith("refused") for line in messages)
    return f"{what}: {'refused, then goes on' if refused else 'large enough'}"


def locked(trail: TrailFolder, chance: Random) -> str:
    """Another process holds the write lock, or all of it: an error, nothing recorded, then it goes on."""
    with closing(trail.store()) as store:
        store.append(*next(records("before")))
    kind = chance.choice(("IMMEDIATE", "EXCLUSIVE"))
    with closing(sqlite3.connect(trail.database, isolation_level=None)) as other:
        other.execute(f"BEGIN {kind}")
        try:
            with closing(SqliteAuditStore(trail.database, busy_timeout_s=0.02)) as store:
                store.append(*next(records("locked")))
        except AuditStoreError as error:
            if "locked" not in error.problem:
                raise AssertionError(error.problem) from error
        else:
            raise AssertionError("it was appended through the lock")
        other.execute("ROLLBACK")
    promises = Promises()
    promises.goes_on(trail)
    assert list(promises.events) == [2]
    _holds(promises, trail)
    return f"locked by another process ({kind.lower()})"


def bad_pages(trail: TrailFolder, chance: Random) -> str:
    """Whoever appends to a damaged file is told, or verification tells; nothing crashes."""
    promises = Promises()
    for _ in range(3):
        promises.goes_on(trail)
    before = tables(trail.database)
    FILE_MUTATIONS["a page overwritten"](trail, chance)

    def write(out: int) -> None:
        append_some(trail, saying(out))
        try:
            with trail.reader() as reader:
                list(reader.events())
        except FallbackError as error:
            os.write(out, f"refused {error.code}\n".encode())

    messages = Child(write).lines()
    try:
        clean = trail.verify().ok
    except FallbackError:
        clean = False
    if not clean:
        return "a page overwritten: caught"
    now = tables(trail.database)
    for table, rows in before.items():
        assert now[table][: len(rows)] == rows, (
            f"{table} is another one, and it verifies: {messages[:3]}"
        )
    return "a page overwritten: void, nothing of the record is different"


def _holds(promises: Promises, trail: TrailFolder) -> None:
    problem = promises.problem(trail)
    assert problem is None, problem


SORTS: tuple[Sort, ...] = (
    many_writers,
    wrong_clock,
    full_disk,
    small_file_system,
    locked,
    bad_pages,
)


def world(ask: Ask) -> Tally:
    """Each sort in turn."""
    tally = Tally()
    for case in ask.cases:
        place = ask.place / "trail"
        sort = SORTS[case % len(SORTS)]
        try:
            tally.counts[sort(TrailFolder(place), ask.chance(case))] += 1
            tally.cases += 1
        except Skipped as reason:
            if str(reason) not in tally.notes:
                tally.notes.append(str(reason))
        except Exception as error:
            name = f"{sort.__name__}: {type(error).__name__}"
            raise ask.broken(case, f"{name}: {error}") from error
        shutil.rmtree(place, ignore_errors=True)
        ask.told(tally.cases, ask.count)
    return tally
