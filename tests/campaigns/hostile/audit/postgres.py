"""A PostgreSQL server of our own that is killed as a whole, or one of its processes, and started again."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from tests.campaigns.hostile.audit.campaign import Skipped
from tests.postgres import server as servers
from tests.waiting import PATIENCE_S, becomes


class Killable:
    """A running server; each record has a schema of its own in it."""

    def __init__(self, server: servers.Server) -> None:
        self._server = server
        self._keepers: list[
            subprocess.Popen[bytes]
        ] = []  # each removes the server's folder when it is closed
        self._doomed: list[int] = []

    def url(self, schema: str) -> str:
        return f"{self._server.url()}&schema={schema}"

    def forget(self, schema: str) -> None:
        with psycopg.connect(self._server.url(), autocommit=True) as connection:
            connection.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE".encode())

    def kill_a_backend(self) -> None:
        """kill -9 of one process that serves a client: the server ends all of its own, and recovers."""
        backends = self._children(lambda title: "postgres: postgres" in title)
        if backends:
            # The server answers on until it has noticed, and then ends what it has just begun.
            self._doomed = self._children(lambda title: True)
            _kill(backends[0])

    def kill_server(self) -> None:
        """kill -9 of the postmaster and of every process of its."""
        postmaster = self._postmaster()
        os.kill(
            postmaster, signal.SIGSTOP
        )  # a child begun from here on would be missed, and live on
        becomes(lambda: _state(postmaster) == "T", "the server is stopped")
        children = self._children(lambda title: True)
        for pid in (postmaster, *children):
            _kill(pid)
        for pid in (postmaster, *children):
            _wait_for_end(pid)

    def start_again(self) -> None:
        # Its shell has not reaped it, so to the next one it looks alive.
        (self._server.place / "data" / "postmaster.pid").unlink(missing_ok=True)
        keeper = servers._start(self._server, servers._OPTIONS)
        self._keepers.append(keeper)
        servers._wait(self._server, keeper)

    def close(self) -> None:
        for keeper in self._keepers:
            keeper.communicate(timeout=PATIENCE_S)

    def wait_until_it_answers(self) -> None:
        """Until it answers again, after ``kill_a_backend``."""
        for pid in self._doomed:
            _wait_for_end(pid)
        self._doomed = []
        until = time.monotonic() + servers.START_TIMEOUT_S
        while True:
            try:
                psycopg.connect(self._server.url()).close()
            except psycopg.OperationalError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.02)
            else:
                return

    def _postmaster(self) -> int:
        return int((self._server.place / "data" / "postmaster.pid").read_text().split()[0])

    def _children(self, wanted: Callable[[str], bool]) -> list[int]:
        postmaster, found = self._postmaster(), []
        for place in Path("/proc").glob("[0-9]*"):
            try:
                parent = int((place / "stat").read_text().rpartition(")")[2].split()[1])
                title = (place / "cmdline").read_bytes().decode(errors="replace")
            except OSError:
                continue
            if parent == postmaster and wanted(title):
                found.append(int(place.name))
        return found


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _wait_for_end(pid: int) -> None:
    """The shell that started it reaps it; a zombie holds no lock."""
    becomes(lambda: _state(pid) in (None, "Z"), f"process {pid} has ended")


def _state(pid: int) -> str | None:
    """The letter by which the system knows it; None where it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return None


@contextmanager
def killable() -> Iterator[Killable]:
    """Raises Skipped where there is no PostgreSQL."""
    if reason := servers.missing():
        raise Skipped(reason)
    with servers.running() as server:
        made = Killable(server)
        try:
            yield made
        finally:
            made.close()
