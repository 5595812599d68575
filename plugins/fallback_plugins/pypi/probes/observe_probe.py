"""Tells in a file what this process does beyond itself: an audit hook (PEP 578), which nothing removes.

Run before anything of the target's, in the process of the test runner and in every Python of the same
environment that it starts. Each act is told once a process, before it is done, as a line: ``'KIND WHAT'``;
``observed.py`` reads them. Only built-in modules are imported: no file can stand in for those.
"""

from __future__ import annotations

import errno
import posix
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing is a file, which could be the target's
    from collections.abc import Callable
    from typing import Any

#: Acts of one process that are told, and characters of each: a suite of thousands of tests does some dozens
#: of kinds; more is a flood, and is said to be one.
MAX_ACTS = 4000
MAX_CHARS = 1000

#: Variables that decide what a program loads or runs before its own first line.
STEERING = (
    "LD_PRELOAD", "LD_LIBRARY_PATH", "LD_AUDIT", "PYTHONSTARTUP", "PYTHONHOME", "NODE_OPTIONS",
    "BASH_ENV",
)  # fmt: skip

#: Says that the hook is at work in this process.
MARK = "_fallback_tier_observes"

#: Opened with one of these, a file may be written.
WRITING = posix.O_WRONLY | posix.O_RDWR | posix.O_CREAT | posix.O_TRUNC | posix.O_APPEND

#: What takes a file away, or makes another of it.
TAKING = ("remove", "rename", "link", "symlink", "truncate", "chmod")


#: How a line fails to be told where a limit was used up, or set to nothing: then it is not done either.
USED_UP = frozenset(
    {errno.EMFILE, errno.ENFILE, errno.EFBIG, errno.ENOSPC, errno.EDQUOT, errno.ENOMEM}
)


class GuardedError(PermissionError):
    """The report is not the program's to change."""


class UnreportedError(OSError):
    """An act can't be told for want of what a limit allows."""


class Report:
    """The file, which is there already and is never made anew. One line is one write."""

    def __init__(self, path: str) -> None:
        flags = posix.O_WRONLY | posix.O_APPEND | posix.O_CLOEXEC
        # Bound now: a fake file system, or a hostile test, changes the module and not these.
        opened, write, close = posix.open, posix.write, posix.close
        #: An object that nobody else has: by it our own opening is known.
        self.path = "".join([*path])
        self.name = path.rpartition("/")[2]

        def put(line: str) -> None:
            try:
                file = opened(self.path, flags)
                try:
                    write(file, (ascii(line) + "\n").encode())
                finally:
                    close(file)
            except OSError as error:  # else it is gone, which its reader sees
                if error.errno in USED_UP:
                    raise UnreportedError(error.errno, error.strerror) from None

        self.put = put
        self._told: set[str] = set()

    def write_act(self, kind: str, what: str) -> None:
        """Say it, if it is the first time."""
        line = f"{kind} {what}"[:MAX_CHARS]
        if line in self._told or len(self._told) > MAX_ACTS:
            return
        self.put(line if len(self._told) < MAX_ACTS else "flood")
        self._told.add(line)

    def guard(self, *values: object) -> None:
        """Raise GuardedError where somebody else means this file, and say so first."""
        for value in values:
            if isinstance(value, (str, bytes)) and text(value).rpartition("/")[2] == self.name:
                self.put("tamper")
                raise GuardedError("this file is not the program's")


def text(value: Any, fspath: Callable[[Any], str | bytes] = posix.fspath) -> str:
    """A path, a word, a host."""
    if isinstance(value, (int, type(None))):
        return str(value)
    found = fspath(value)
    return found.decode("utf-8", "replace") if isinstance(found, bytes) else found


def processes(report: Report) -> dict[str, Callable[..., None]]:
    """Programs that are started, and libraries."""

    def start(program: Any, words: Any) -> None:
        report.write_act("start", "\0".join([text(program), *map(text, [*(words or ())][1:])]))

    def popen(program: Any, words: Any, *_: Any) -> None:
        words = [words] if isinstance(words, (str, bytes)) else [*words]
        start(words[0] if program is None else program, words)

    def symbol(_: Any, found: Any) -> None:
        if isinstance(found, str):
            report.write_act("load", f"symbol {found}")

    return {
        "subprocess.Popen": popen,
        "os.exec": lambda path, words, *_: start(path, words),
        "os.posix_spawn": lambda path, words, *_: start(path, words),
        "os.system": lambda command: start("/bin/sh", ("sh", "-c", command)),
        "os.fork": lambda *_: report.write_act("start", "fork"),
        "os.forkpty": lambda *_: report.write_act("start", "fork"),
        "ctypes.dlopen": lambda library, *_: report.write_act("load", text(library)),
        "ctypes.dlsym": symbol,
        "sqlite3.load_extension": lambda _, path, *__: report.write_act("load", text(path)),
    }


def connections(report: Report) -> dict[str, Callable[..., None]]:
    """Who is talked to, and asked for."""

    def address(kind: str) -> Callable[..., None]:
        def on(_: Any, place: Any = None, *__: Any) -> None:
            if isinstance(place, tuple):
                report.write_act(kind, " ".join(map(text, place[:2])))
            elif place is not None:
                report.write_act(kind, f"unix {text(place)}")

        return on

    def resolve(host: Any, *_: Any) -> None:
        if host:
            report.write_act("resolve", text(host))

    return {
        "socket.connect": address("connect"),
        "socket.sendto": address("connect"),
        "socket.sendmsg": address("connect"),
        "socket.bind": address("listen"),
        "socket.getaddrinfo": resolve,
        "socket.gethostbyname": resolve,
        "socket.gethostbyaddr": resolve,
    }


def files(report: Report, here: Callable[[], str] = posix.getcwd) -> dict[str, Callable[..., None]]:
    """What is opened to be written; the report itself is kept from that."""

    def writes(path: Any, _: Any, how: Any) -> None:
        if path is report.path or isinstance(path, int) or not (how or 0) & WRITING:
            return
        place = text(path)
        report.guard(place)
        if place[:1] != "/":
            place = f"{here()}/{place}"
        if "__pycache__" not in place:
            report.write_act("write", place)

    def steer(key: Any, *_: Any) -> None:
        if text(key) in STEERING:
            report.write_act("steer", text(key))

    return {"open": writes, "os.putenv": steer, **{f"os.{how}": report.guard for how in TAKING}}


def observe(path: str) -> Callable[[str], None] | None:
    """Install the hook, where this Python has any (3.8). ``path``: the report. Return what writes a line to
    it; None if there is no hook, or one already.

    Once: a path file is read twice where ``lib64`` is ``lib``, and each hook would guard its report from
    the other.
    """
    if not hasattr(sys, "addaudithook") or hasattr(sys, MARK):
        return None
    setattr(sys, MARK, True)
    report = Report(path)
    find = {**processes(report), **connections(report), **files(report)}.get

    def hook(event: str, values: tuple[Any, ...]) -> None:
        act = find(event)
        if act is None:
            return
        try:
            act(*values)
        except (GuardedError, UnreportedError):
            raise
        except Exception:  # noqa: BLE001 (values that nobody foresaw: at least that it was done)
            report.write_act("call", event)

    sys.addaudithook(hook)
    report.put("here")
    return report.put
