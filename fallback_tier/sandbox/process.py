"""Starting of a program: a separate process group, bounded output, a wall-clock limit for the process tree.

Both runners (clients outside the sandbox, target commands inside it) use ``run_bounded``, so that each
limit holds for both.
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

#: How long a killed command's leader may take to reap its children, and its pipe to drain. Measured at 1-2
#: ms; the limit is for a leader that is stuck, or a daemon that still holds the pipe.
_GRACE_S = 1.0

#: One read of a pipe: Linux pipes hold 64 KiB by default.
_READ_BYTES = 65_536

#: The part (one fourth) of a bounded output that is kept from its beginning. Failures are reported at the
#: end.
_HEAD_SHARE = 4


#: The longest command that is shown while it runs (characters).
_MAX_SHOWN_COMMAND = 60


_SHELLS = frozenset({"sh", "bash", "/bin/sh", "/bin/bash"})

#: The end of a shell's line that replaces the shell by the command after it.
_BECOMES = 'exec "$@"'

#: The prefix of our files in a target's tree while its tests run.
_OURS = ".fallback-tier-"


class RunningProgram(NamedTuple):
    """A program that was started and has not ended: its command, cut, its start (monotonic), and its limit
    in seconds."""

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
    """Return the words by which a person knows a command: without a shell that is only replaced by it,
    program text, our files, and the folders of paths."""
    words = [*command]
    if words[:2] == ["sh", "-c"] and words[2:] and words[2].endswith(_BECOMES):
        words = words[4 + words[2].count("shift") :]
    while (
        words[:2] == ["sh", "-c"] and words[4:] and "\n" in words[2]
    ):  # our script around a command
        words = [word for word in words[4:] if word != words[4] or not word.startswith("/")]
    if len(words) == 3 and words[0] in _SHELLS and words[1] == "-c":
        # The project's own command.
        return next(iter(words[2].strip().splitlines()), "").split()
    names = [Path(word).name if word.startswith("/") else word for word in words]
    shown_words = [
        word
        for word in names
        if "\n" not in word and len(word) <= _MAX_SHOWN_COMMAND and not word.startswith(_OURS)
    ]
    return [word for word in shown_words if word != "-c" or len(shown_words) == len(names)]


class BoundedOutput:
    """Keeps the head (a quarter) and the tail of a byte stream, never more than ``limit`` bytes."""

    def __init__(self, limit: int) -> None:
        self._head_limit = limit // _HEAD_SHARE
        self._tail_limit = limit - self._head_limit
        self._head = bytearray()
        self._tail = bytearray()
        self._dropped = 0

    def add(self, chunk: bytes) -> None:
        """Add the next bytes of the stream."""
        space = self._head_limit - len(self._head)
        self._head += chunk[:space]
        self._tail += chunk[space:]
        # Trimmed in large steps: deleting from the front of a bytearray moves the rest.
        if len(self._tail) > 2 * self._tail_limit:
            self._trim()

    def text(self) -> str:
        """Return the kept bytes, as UTF-8 with replacements; a marker line replaces what was dropped."""
        self._trim()
        if not self._dropped:
            return (self._head + self._tail).decode("utf-8", "replace")
        head, tail = (part.decode("utf-8", "replace") for part in (self._head, self._tail))
        return f"{head}\n[... {self._dropped} bytes left out ...]\n{tail}"

    @property
    def truncated(self) -> bool:
        """Whether any bytes were dropped."""
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
    """Run ``argv`` to its end or to its wall-clock limit, and leave no process of it behind.

    stdin is empty; stdout and stderr are joined. ``silent_s``: the program is also ended if it prints
    nothing for so long, and no test is reported. ``exit_code`` is None if a limit ended it.
    ``leader_reaps``: the program only waits for its children (bubblewrap's monitor), and may reap them
    before it is killed itself. ``shown``: the command for ``running_programs``, if it differs. Raises
    OSError if the program can't be started.
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
        # A pidfd reports the end without reaping: until the group is killed, its number stays ours.
        pidfd = os.pidfd_open(process.pid)
        try:
            assert process.stdout is not None  # noqa: S101 (stdout=PIPE)
            pipe = process.stdout.fileno()
            deadline = started + timeout_s
            has_ended = _collect(pipe, pidfd, output.add, until=deadline, silent_s=silent_s)
        finally:
            kill_tree(process.pid, pidfd if leader_reaps else None)
            os.close(pidfd)
        _collect(pipe, None, output.add, until=time.monotonic() + _GRACE_S)
    return CommandResult(
        argv=tuple(argv),
        exit_code=process.returncode if has_ended else None,
        output=output.text(),
        duration_ms=int((time.monotonic() - started) * 1000),
        truncated=output.truncated,
    )


def kill_tree(pid: int, reaper: int | None) -> None:
    """SIGKILL every descendant of an unreaped child, then its whole process group.

    Descendants are stopped before they are killed, so that none can fork meanwhile. ``reaper`` is the
    child's pidfd if it gets time to reap them, so that no zombie remains. A daemon whose parents have ended
    already can't be found here; a PID namespace ends those too.
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
    """Read until the process ends (without a pidfd: until the pipe is closed). Return False at a limit."""
    last_output, tests = time.monotonic(), 0
    with selectors.DefaultSelector() as selector:
        selector.register(pipe, selectors.EVENT_READ)
        if pidfd is not None:
            selector.register(pidfd, selectors.EVENT_READ)
        while selector.get_map():
            now = time.monotonic()
            remaining_s = until - now
            if (
                silent_s is not None
                and now >= last_output + silent_s
                and (count := tests_so_far()) > tests
            ):
                last_output, tests = now, count
            if silent_s is not None:
                remaining_s = min(remaining_s, last_output + silent_s - now)
            if remaining_s <= 0:
                return False
            ready = {key.fd for key, _ in selector.select(remaining_s)}
            if pipe in ready:
                chunk = os.read(pipe, _READ_BYTES)
                last_output = time.monotonic()
                add(chunk)
                if not chunk:
                    selector.unregister(pipe)
            elif pidfd in ready:
                return True
    return True


def _descendants(pid: int) -> set[int]:
    descendants: set[int] = set()
    queue = [pid]
    while queue:
        for child in _children(queue.pop()):
            if child not in descendants:
                descendants.add(child)
                queue.append(child)
    return descendants


def _children(pid: int) -> list[int]:
    try:
        child_lists = [task.joinpath("children") for task in Path(f"/proc/{pid}/task").iterdir()]
        return [
            int(child)
            for child_list in child_lists
            for child in child_list.read_text("ascii").split()
        ]
    except OSError:  # it ended in the meantime
        return []


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return
