"""A client that opens thousands of connections and trickles: others are answered, and fixes are made."""

import json
import resource
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx2
import pytest

from tests.e2e.command import osv, repository
from tests.service.running import Running, served, waited
from tests.waiting import PATIENCE_S, joined

pytestmark = [pytest.mark.registry("uv"), pytest.mark.sandbox]

#: Sockets of the crowd, and what the service may open: fewer.
CROWD, OPEN_FILES = 2_000, 1_200

BODY = {"repository": "app", "advisory": json.loads(osv("idna", fixed="3.7"))}


@contextmanager
def crowd(service: Running) -> Iterator[list[socket.socket]]:
    """Comes from 127.0.0.1; each of its sockets says a byte of a head now and then, for ever."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 2 * CROWD:
        pytest.skip(f"this process may open {hard} files, and the crowd has {CROWD:,} sockets")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2 * CROWD), hard))
    url = httpx2.URL(service.address)
    ends = [socket.create_connection((url.host, url.port or 0), PATIENCE_S) for _ in range(CROWD)]
    over = threading.Event()

    def trickle() -> None:
        while not over.wait(0.2):
            for end in ends:
                with suppress(OSError):
                    end.send(b"X")

    thread = threading.Thread(target=trickle, daemon=True)
    thread.start()
    try:
        yield ends
    finally:
        over.set()
        joined(thread)
        for end in ends:
            end.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def neighbour(service: Running, address: str) -> httpx2.Client:
    """An honest client at another address of this machine."""
    transport = httpx2.HTTPTransport(local_address=address)
    headers = {"X-API-Key": service.key}
    return httpx2.Client(
        base_url=service.address, headers=headers, transport=transport, timeout=PATIENCE_S
    )


def test_two_thousand_that_trickle_keep_nobody_out(tmp_path: Path) -> None:
    app = repository(tmp_path / "app", {"requirements.txt": "idna==3.6\n"})
    config = f'[limits]\nheaders_s = 60\n[repositories.app]\npath = "{app}"\n'
    with served(tmp_path / "state", config, open_files=OPEN_FILES) as service:
        with crowd(service), neighbour(service, "127.0.0.2") as honest:
            fix_id = honest.post("/v1/fixes", json=BODY).json()["fix_id"]
            path = f"/v1/fixes/{fix_id}"
            ended = waited(
                lambda: honest.get(path).json(),
                lambda fix: fix["state"] not in ("queued", "running"),
            )
            assert (ended["state"], ended["outcome"]) == ("ended", "verified"), ended
        assert service.get(path)["outcome"] == "verified"  # and the crowd's own address again
        assert "Too many open files" not in "".join(service.said)


def test_who_trickles_is_cut_off(tmp_path: Path) -> None:
    """So the crowd's own address is let in again while the crowd still tries."""
    config = "[limits]\nheaders_s = 2\nconnections = 100\n"
    with served(tmp_path / "state", config) as service, crowd(service) as ends:
        waited(lambda: _closed(ends), lambda count: count == CROWD)
        assert service.get("/v1/fixes")["fixes"] == []


def _closed(ends: list[socket.socket]) -> int:
    count = 0
    for end in ends:
        end.setblocking(False)
        try:
            count += end.recv(1) == b""
        except BlockingIOError:
            continue
        except OSError:
            count += 1
    return count
