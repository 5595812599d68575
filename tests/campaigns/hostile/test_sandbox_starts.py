"""Sandboxes by the thousand, ended in every way there is: nothing is left of any.

In CI a sample; ``python -m tests.campaigns.hostile.test_sandbox_starts [STARTS]`` runs the campaign.
"""

import os
import signal
import statistics
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fallback_tier.sandbox.cgroups import find_hierarchies
from fallback_tier.sandbox.launching import MAX_OUTPUT_BYTES
from fallback_tier.sandbox.runners import BubblewrapSandbox
from tests.campaigns.hostile.audit.apart import shared
from tests.campaigns.hostile.audit.campaign import Ask, Tally
from tests.integration.by_the_clock import ended_by_the_clock
from tests.integration.gate_setup import needs_sandbox
from tests.waiting import PATIENCE_S, exit_code

pytestmark = pytest.mark.sandbox

STARTS = 42
CAMPAIGN = 10_000
BATCH = 250

#: Processes of the campaign. A start is a wait more than work: a seventh of them are ended by the clock.
AT_ONCE = 6

#: The kernel empties a killed namespace by itself, a moment after we are told of its end.
SETTLING_S = 30.0
_LONG_S = 60.0


class Campaign:
    """Starts in a folder; every process of theirs carries ``mark`` in its command line."""

    def __init__(self, folder: Path) -> None:
        self.tree = folder / "tree"
        self.tree.mkdir()
        self.mark = (
            f"7{uuid.uuid4().int % 10**9:09d}"  # a number of seconds that nobody else sleeps
        )
        self.sandbox = BubblewrapSandbox()
        self.sandbox.probe()
        self.times: list[float] = []

    def run(self, number: int) -> str:
        """One start, of the kind whose turn it is. Fails where it does not end as it should."""
        kind = KINDS[number % len(KINDS)]
        kind(self)
        return kind.__name__

    def left(self) -> dict[str, set[str]]:
        """What there is of ours on the machine: processes, mounts, folders, descriptors, cgroups."""
        return {
            "processes": set(self._processes()),
            "children": set(_children()),
            "mounts": set(Path("/proc/self/mountinfo").read_text().splitlines()),
            "folders": {place.name for place in Path(tempfile.gettempdir()).iterdir()},
            "descriptors": {place.name for place in Path("/proc/self/fd").iterdir()},
            "cgroups": set(_cgroups()),
        }

    def _processes(self) -> Iterator[str]:
        for place in Path("/proc").glob("[0-9]*"):
            try:
                if self.mark in (place / "cmdline").read_text(errors="replace"):
                    yield place.name
            except OSError:
                continue


def _children() -> Iterator[str]:
    for task in Path("/proc/self/task").iterdir():
        yield from (task / "children").read_text().split()


def _cgroups() -> Iterator[str]:
    """Those of our own, and of launchers that are gone."""
    folders = [hierarchy.folder for hierarchy in find_hierarchies()]
    for place in (place for folder in folders for place in folder.glob("fallback-tier-*")):
        launcher = place.name.split("-")[2]
        if launcher == str(os.getpid()) or not Path("/proc", launcher).exists():
            yield place.name


def normal(campaign: Campaign) -> None:
    """A command that ends by itself."""
    started = time.perf_counter()
    result = campaign.sandbox.run(["true"], worktree=campaign.tree, timeout_s=_LONG_S)
    campaign.times.append(time.perf_counter() - started)
    assert result.ok, result


def by_the_clock(campaign: Campaign) -> None:
    """A tree that would run for years."""
    script = f"sleep {campaign.mark} & setsid sleep {campaign.mark} & sleep {campaign.mark}"
    command = ["sh", "-c", f"echo begun; {script}"]
    result = ended_by_the_clock(campaign.sandbox, command, campaign.tree)
    assert result.timed_out, result


def by_a_signal(campaign: Campaign) -> None:
    """A command that kills itself, its children still running."""
    command = ["sh", "-c", f"sleep {campaign.mark} & kill -9 $$"]
    result = campaign.sandbox.run(command, worktree=campaign.tree, timeout_s=_LONG_S)
    assert result.exit_code == 128 + signal.SIGKILL, result


def daemon(campaign: Campaign) -> None:
    """Twice forked, in a session of its own."""
    daemon = f"setsid sh -c 'touch up; exec sleep {campaign.mark}' >/dev/null 2>&1"
    wait = "until [ -e up ]; do sleep 0.01; done; rm up; echo done"
    command = ["sh", "-c", f"({daemon} &); {wait}"]
    result = campaign.sandbox.run(command, worktree=campaign.tree, timeout_s=_LONG_S)
    assert result.output == "done\n", result


def flood(campaign: Campaign) -> None:
    """More output than is kept."""
    command = ["sh", "-c", f"yes | head -c {2 * MAX_OUTPUT_BYTES}"]
    result = campaign.sandbox.run(command, worktree=campaign.tree, timeout_s=_LONG_S)
    assert result.ok, result.exit_code
    assert result.truncated


def no_command(campaign: Campaign) -> None:
    """Nothing to start."""
    result = campaign.sandbox.run(["no-such"], worktree=campaign.tree, timeout_s=_LONG_S)
    assert result.exit_code == 127, result


def launcher_killed(campaign: Campaign) -> None:
    """kill -9 of the process that started it, in the midst of its run."""
    up = campaign.tree / "up"
    launcher = os.fork()
    if launcher == 0:
        command = ["sh", "-c", f"touch up; sleep {campaign.mark}"]
        try:
            campaign.sandbox.run(command, worktree=campaign.tree, timeout_s=_LONG_S)
        finally:
            os._exit(0)  # whatever happens: it must not go on as a second test run
    until = time.monotonic() + _LONG_S
    while not up.exists() and time.monotonic() < until:
        time.sleep(0.005)
    os.kill(launcher, signal.SIGKILL)
    exit_code(launcher)
    up.unlink()


KINDS: tuple[Callable[[Campaign], None], ...] = (
    normal,
    by_the_clock,
    by_a_signal,
    daemon,
    flood,
    no_command,
    launcher_killed,
)


def starts(
    count: int, folder: Path, reported: Callable[[int], object]
) -> tuple[Counter[str], float]:
    """That many; of each kind, how many, and the median of a normal one in milliseconds.

    Fails where anything is left that was not there before; looks after each BATCH.
    """
    campaign = Campaign(folder)
    before = campaign.left()
    kinds: Counter[str] = Counter()
    for first in range(0, count, BATCH):
        kinds.update(campaign.run(number) for number in range(first, min(first + BATCH, count)))
        _nothing_new(campaign, before)
        reported(kinds.total())
    return kinds, statistics.median(campaign.times) * 1000


def _nothing_new(campaign: Campaign, before: dict[str, set[str]]) -> None:
    until = time.monotonic() + SETTLING_S
    while True:
        BubblewrapSandbox().probe()  # removes the cgroups of launchers that were killed
        after = campaign.left()
        new = {what: after[what] - before[what] for what in before}
        if not any(new.values()):
            return
        assert time.monotonic() < until, new
        time.sleep(0.1)


def test_nothing_is_left_of_any(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needs_sandbox()
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    kinds, _ = starts(STARTS, tmp_path, print)
    assert len(kinds) == len(KINDS)


def test_what_is_left_would_be_seen(tmp_path: Path) -> None:
    needs_sandbox()
    campaign = Campaign(tmp_path)
    before = campaign.left()
    place = Path(tempfile.mkdtemp())
    child = os.posix_spawnp("sleep", ["sleep", campaign.mark], os.environ)
    descriptor = os.open(place, os.O_RDONLY)
    try:
        # A spawned process is there a little before its command line is (execve(2) in two steps).
        until = time.monotonic() + PATIENCE_S
        while not Path(f"/proc/{child}/cmdline").read_bytes():
            assert time.monotonic() < until, "it was not started"
            time.sleep(0.01)
        after = campaign.left()
        seen = {what for what in before if after[what] - before[what]}
        assert seen >= {"processes", "children", "folders", "descriptors"}
    finally:
        os.close(descriptor)
        os.kill(child, signal.SIGKILL)
        exit_code(child)
        place.rmdir()


def campaign(ask: Ask) -> Tally:
    """A share of the starts, in a folder and with a mark of its own."""
    (ask.place / "tmp").mkdir()
    tempfile.tempdir = str(ask.place / "tmp")
    mine = sum(1 for _ in ask.cases)
    kinds, median_ms = starts(mine, ask.place, lambda done: ask.told(done, ask.count))
    return Tally(mine, kinds, [f"a normal one took {median_ms:.1f} ms"])


def _tell(done: int, total: int) -> None:
    print(f"{done:,} of {total:,} starts: nothing left", flush=True)


if __name__ == "__main__":
    total = int(sys.argv[1]) if len(sys.argv) > 1 else CAMPAIGN
    with tempfile.TemporaryDirectory() as outer:
        ask = Ask(total, Path(outer), told=_tell)
        tally = shared(campaign, ask, AT_ONCE)
    counts = ", ".join(f"{name} {number:,}" for name, number in tally.counts.items())
    print(f"{tally.cases:,} starts ({counts}): nothing left of any; {tally.notes}")
