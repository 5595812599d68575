"""One way to start a program: own process group, bounded output, a wall clock for the tree.

Both runners (clients outside the sandbox, target commands inside it) are built on ``run_bounded``,
so that a limit that holds for one holds for the other.
"""

import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from fallback_tier.execution import CommandResult, tests_so_far

#: How long a killed command's leader may take to reap its children, and its pipe to drain. Measured
#: at 1-2 ms; the bound is for a leader that is stuck, or a daemon that still holds the pipe.
_GRACE_S = 1.0

#: One read of a pipe: Linux pipes hold 64 KiB by default.
_READ_BYTES = 65_536

#: Of a bounded output, the part kept from its beginning. Failures are told at the end.
_HEAD_SHARE = 4


#: Longest command that is shown while it runs (characters).
_MAX_SHOWN_COMMAND = 60


_SHELLS = frozenset({"sh", "bash", "/bin/sh", "/bin/bash"})

#: How a shell's line ends that becomes the command behind it.
_BECOMES = 'exec "$@"'

#: How files of ours are called that a target's tree has while its tests run.
_OURS = ".fallback-tier-"


class RunningProgram(NamedTuple):
    """A program that was started and has not ended: its command, cut, since when (monotonic), and the
    seconds that it may take."""

    command: str
    since: float
    limit_s: float


_RUNNING: dict[object, RunningProgram] = {}


def running_programs() -> tuple[RunningProgram, ...]:
    """Return the programs that this process waits for, the oldest first. Safe in any thread."""
    return tuple(_RUNNING.copy().values())


@contextmanager
def _listed(command: Sequence[str], limit_s: float) -> Iterator[None]:
    text = " ".join(_own_words(command))
    cut = text if len(text) <= _MAX_SHOWN_COMMAND else f"{text[:_MAX_SHOWN_COMMAND]}…"
    key = object()
    _RUNNING[key] = RunningProgram(cut, time.monotonic(), limit_s)
    try:
        yield
    finally:
        del _RUNNING[key]


def _own_words(command: Sequence[str]) -> list[str]:
    """Return the words by which a person knows a command: without a shell that only becomes it, program
    text, files of ours, and the folders of what it names."""
    words = [*command]
    if words[:2] == ["sh", "-c"] and words[2:] and words[2].endswith(_BECOMES):
        words = words[4 + words[2].count("shift") :]
    while (
        words[:2] == ["sh", "-c"] and words[4:] and "\n" in words[2]
    ):  # a script of ours around what it is given
        words = [word for word in words[4:] if word != words[4] or not word.startswith("/")]
    if len(words) == 3 and words[0] in _SHELLS and words[1] == "-c":
        # A command of the project's own.
        return next(iter(words[2].strip().splitlines()), "").split()
    short = [Path(word).name if word.startswith("/") else word for word in words]
    kept = [
        word
        for word in short
        if "\n" not in word and len(word) <= _MAX_SHOWN_COMMAND and not word.startswith(_OURS)
    ]
    return [word for word in kept if word != "-c" or len(kept) == len(short)]


class BoundedOutput:
    """Keeps the head (a quarter) and the tail of a byte stream, never more than ``limit`` bytes."""

    def __init__(self, limit: int) -> None:
        self._head_limit = limit // _HEAD_SHARE
        self._tail_limit = limit - self._head_limit
        self._head = bytearray()
        self._tail = bytearray()
        self._dropped = 0

    def add(self, chunk: bytes) -> None:
        """Take the next bytes of the stream."""
        space = self._head_limit - len(self._head)
        self._head += chunk[:space]
        self._tail += chunk[space:]
        # Trimmed in large steps: deleting from the front of a bytearray moves what is left.
        if len(self._tail) > 2 * self._tail_limit:
            self._trim()

    def text(self) -> str:
        """What was kept, as UTF-8 with replacements; a marker line stands for what was not."""
        self._trim()
        if not self._dropped:
            return (self._head + self._tail).decode("utf-8", "replace")
        head, tail = (part.decode("utf-8", "replace") for part in (self._head, self._tail))
        return f"{head}\n[... {self._dropped} bytes left out ...]\n{tail}"

    @property
    def truncated(self) -> bool:
        """Was anything left out?"""
        return self._dropped > 0 or len(self._tail) > self._tail_limit

    def _trim(self) -> None:
        excess = max(0, len(self._tail) - self._tail_limit)
        del self._tail[:excess]
        self._dropped += excess


def run_bounded(
    argv: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    timeout_s: float,
    max_output_bytes: int,
    silent_s: float | None = None,
    pass_fds: Sequence[int] = (),
    leader_reaps: bool = False,
    shown: Sequence[str] = (),
) -> CommandResult:
    """Run ``argv`` to its end or to its wall-clock limit; nothing of it is left behind. ``silent_s``: it is
    ended too if it prints nothing for so long, and no test is reported.

    stdin is empty, stdout and stderr are joined. ``exit_code`` is None where the
    clock ended it. ``leader_reaps``: the program does nothing but wait for its children (bubblewrap's
    monitor), and may bury them before it is killed itself. ``shown``: the command as ``running_programs``
    has it, if that is another one. Raises OSError where the program can't be started.
    """
    started = time.monotonic()
    output = BoundedOutput(max_output_bytes)
    with (
        _listed(shown or argv, timeout_s),
        subprocess.Popen(
            argv,
            cwd=cwd,
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            pass_fds=tuple(pass_fds),
        ) as process,
    ):
        # A pidfd tells the end without reaping: until the group is killed, its number stays ours.
        pidfd = os.pidfd_open(process.pid)
        try:
            assert process.stdout is not None  # noqa: S101 (stdout=PIPE)
            pipe = process.stdout.fileno()
            until = started + timeout_s
            ended = _collect(pipe, pidfd, output.add, until=until, silent_s=silent_s)
        finally:
            kill_tree(process.pid, pidfd if leader_reaps else None)
            os.close(pidfd)
        _collect(pipe, None, output.add, until=time.monotonic() + _GRACE_S)
    return CommandResult(
        argv=tuple(argv),
        exit_code=process.returncode if ended else None,
        output=output.text(),
        duration_ms=int((time.monotonic() - started) * 1000),
        truncated=output.truncated,
    )


def kill_tree(pid: int, reaper: int | None) -> None:
    """SIGKILL every descendant of an unreaped child, then its whole process group.

    Descendants are stopped before they are killed, so that none forks away meanwhile. ``reaper`` is
    the child's pidfd where it is given the time to reap them, so that no zombie is left behind. A
    daemon whose parents are gone already is out of reach here; a PID namespace ends those too.
    """
    if reaper is None:
        _signal(pid, signal.SIGSTOP)
    victims: set[int] = set()
    while fresh := _descendants(pid) - victims:
        for victim in fresh:
            _signal(victim, signal.SIGSTOP)
        victims |= fresh
    for victim in victims:
        _signal(victim, signal.SIGKILL)
    if victims and reaper is not None:
        with selectors.DefaultSelector() as selector:
            selector.register(reaper, selectors.EVENT_READ)
            selector.select(_GRACE_S)
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _collect(
    pipe: int,
    pidfd: int | None,
    add: Callable[[bytes], None],
    *,
    until: float,
    silent_s: float | None = None,
) -> bool:
    """Read until the process ended (without a pidfd: until the pipe did); False at a limit."""
    heard, tests = time.monotonic(), 0
    with selectors.DefaultSelector() as selector:
        selector.register(pipe, selectors.EVENT_READ)
        if pidfd is not None:
            selector.register(pidfd, selectors.EVENT_READ)
        while selector.get_map():
            now = time.monotonic()
            left = until - now
            if (
                silent_s is not None
                and now >= heard + silent_s
                and (count := tests_so_far()) > tests
            ):
                heard, tests = now, count
            if silent_s is not None:
                left = min(left, heard + silent_s - now)
            if left <= 0:
                return False
            ready = {key.fd for key, _ in selector.select(left)}
            if pipe in ready:
                chunk = os.read(pipe, _READ_BYTES)
                heard = time.monotonic()
                add(chunk)
                if not chunk:
                    selector.unregister(pipe)
            elif pidfd in ready:
                return True
    return True


def _descendants(pid: int) -> set[int]:
    found: set[int] = set()
    queue = [pid]
    while queue:
        for child in _children(queue.pop()):
            if child not in found:
                found.add(child)
                queue.append(child)
    return found


def _children(pid: int) -> list[int]:
    try:
        lists = [task.joinpath("children") for task in Path(f"/proc/{pid}/task").iterdir()]
        return [int(child) for place in lists for child in place.read_text("ascii").split()]
    except OSError:  # it ended while we looked
        return []


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return
