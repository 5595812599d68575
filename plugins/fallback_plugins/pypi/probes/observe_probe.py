"""Reports in a file what this process does beyond itself: an audit hook (PEP 578), which can't be removed.

Runs before any of the target's code, in the process of the test runner and in every Python of the same
environment that it starts. Each act is reported once per process, before it is done, as a line
``'KIND WHAT'``; ``observed.py`` reads them. Only built-in modules are imported: no file can replace those.
"""

from __future__ import annotations

import errno
import posix
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing is a file, which could be the target's
    from collections.abc import Callable
    from typing import Any

#: Most acts that one process reports, and most characters of each: a suite of thousands of tests does some
#: dozens of kinds. More of them are a flood, and reported as one.
MAX_ACTS = 4000
MAX_CHARS = 1000

#: Variables that affect what a program loads or runs before its own first line.
STEERING = (
    "LD_PRELOAD", "LD_LIBRARY_PATH", "LD_AUDIT", "PYTHONSTARTUP", "PYTHONHOME", "NODE_OPTIONS",
    "BASH_ENV",
)  # fmt: skip

#: Attribute of ``sys`` that shows that the hook is active in this process.
MARK = "_fallback_tier_observes"

#: Flags with which an opened file may be written.
WRITING = posix.O_WRONLY | posix.O_RDWR | posix.O_CREAT | posix.O_TRUNC | posix.O_APPEND

#: Functions of ``os`` that remove, rename, link or change a file.
TAKING = ("remove", "rename", "link", "symlink", "truncate", "chmod")


#: Errors of writing a line if a limit is used up, or set to nothing: then the act is not done either.
USED_UP = frozenset(
    {errno.EMFILE, errno.ENFILE, errno.EFBIG, errno.ENOSPC, errno.EDQUOT, errno.ENOMEM}
)


class GuardedError(PermissionError):
    """The program tried to change the report."""


class UnreportedError(OSError):
    """An act can't be reported because a limit is used up."""


class Report:
    """The report file, which exists already and is never created. Each line is written in one call."""

    def __init__(self, path: str) -> None:
        flags = posix.O_WRONLY | posix.O_APPEND | posix.O_CLOEXEC
        # Bound now: a fake file system, or a hostile test, changes the module but not these.
        opened, write, close = posix.open, posix.write, posix.close
        #: A unique object: its identity shows that this class opens the file.
        self.path = "".join([*path])
        self.name = path.rpartition("/")[2]

        def put(line: str) -> None:
            try:
                file = opened(self.path, flags)
                try:
                    write(file, (ascii(line) + "\n").encode())
                finally:
                    close(file)
            except OSError as error:  # otherwise the file is missing, which its reader sees
                if error.errno in USED_UP:
                    raise UnreportedError(error.errno, error.strerror) from None

        self.put = put
        self._told: set[str] = set()

    def write_act(self, kind: str, what: str) -> None:
        """Report an act, unless it is already reported."""
        line = f"{kind} {what}"[:MAX_CHARS]
        if line in self._told or len(self._told) > MAX_ACTS:
            return
        self.put(line if len(self._told) < MAX_ACTS else "flood")
        self._told.add(line)

    def guard(self, *values: object) -> None:
        """Raise GuardedError if a path of the target's is this file, and report it first."""
        for value in values:
            if isinstance(value, (str, bytes)) and text(value).rpartition("/")[2] == self.name:
                self.put("tamper")
                raise GuardedError("this file is not the program's")


def text(value: Any, fspath: Callable[[Any], str | bytes] = posix.fspath) -> str:
    """Return a path, argument or host as text."""
    if isinstance(value, (int, type(None))):
        return str(value)
    path = fspath(value)
    return path.decode("utf-8", "replace") if isinstance(path, bytes) else path


def processes(report: Report) -> dict[str, Callable[..., None]]:
    """Return the handlers for started programs and loaded libraries, by event."""

    def start(program: Any, argv: Any) -> None:
        report.write_act("start", "\0".join([text(program), *map(text, [*(argv or ())][1:])]))

    def popen(program: Any, argv: Any, *_: Any) -> None:
        argv = [argv] if isinstance(argv, (str, bytes)) else [*argv]
        start(argv[0] if program is None else program, argv)

    def symbol(_: Any, name: Any) -> None:
        if isinstance(name, str):
            report.write_act("load", f"symbol {name}")

    return {
        "subprocess.Popen": popen,
        "os.exec": lambda path, argv, *_: start(path, argv),
        "os.posix_spawn": lambda path, argv, *_: start(path, argv),
        "os.system": lambda command: start("/bin/sh", ("sh", "-c", command)),
        "os.fork": lambda *_: report.write_act("start", "fork"),
        "os.forkpty": lambda *_: report.write_act("start", "fork"),
        "ctypes.dlopen": lambda library, *_: report.write_act("load", text(library)),
        "ctypes.dlsym": symbol,
        "sqlite3.load_extension": lambda _, path, *__: report.write_act("load", text(path)),
    }


def connections(report: Report) -> dict[str, Callable[..., None]]:
    """Return the handlers for connections and name resolution, by event."""

    def address(kind: str) -> Callable[..., None]:
        def on(_: Any, target: Any = None, *__: Any) -> None:
            if isinstance(target, tuple):
                report.write_act(kind, " ".join(map(text, target[:2])))
            elif target is not None:
                report.write_act(kind, f"unix {text(target)}")

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


def files(report: Report, cwd: Callable[[], str] = posix.getcwd) -> dict[str, Callable[..., None]]:
    """Return the handlers for files that are opened for writing, by event; they guard the report."""

    def writes(path: Any, _: Any, flags: Any) -> None:
        if path is report.path or isinstance(path, int) or not (flags or 0) & WRITING:
            return
        file = text(path)
        report.guard(file)
        if file[:1] != "/":
            file = f"{cwd()}/{file}"
        if "__pycache__" not in file:
            report.write_act("write", file)

    def steer(key: Any, *_: Any) -> None:
        if text(key) in STEERING:
            report.write_act("steer", text(key))

    return {"open": writes, "os.putenv": steer, **{f"os.{name}": report.guard for name in TAKING}}


def observe(path: str) -> Callable[[str], None] | None:
    """Install the hook, if this Python supports it (3.8). ``path``: the report. Return a function that
    writes a line to it; None if there is no hook, or one is installed already.

    Only once: a path file is read twice if ``lib64`` is ``lib``, and each hook would guard its report from
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
        except Exception:  # noqa: BLE001 (unexpected values: report at least that it was done)
            report.write_act("call", event)

    sys.addaudithook(hook)
    report.put("here")
    return report.put
