"""``fallback-tier serve``: a process on loopback, asked over HTTP."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2

from tests.forks import MAIN, Forked
from tests.waiting import PATIENCE_S

SCRIPT = Path(sys.prefix) / "bin" / "fallback-tier"

#: A service's.
Process = subprocess.Popen[str] | Forked


@dataclass
class Running:
    """A service that listens. ``key``: an admin's."""

    process: Process
    address: str
    key: str
    said: list[str] = field(default_factory=list)

    def client(self, key: str | None = None) -> httpx2.Client:
        """With a key: the admin's, unless another is given (empty: none).

        There is no TLS on loopback: reading the certificates that a client trusts takes 19 ms, and
        whoever waits for a fix asks twenty times a second.
        """
        chosen = self.key if key is None else key
        headers = {"X-API-Key": chosen} if chosen else {}
        return httpx2.Client(
            base_url=self.address, headers=headers, timeout=PATIENCE_S, verify=False
        )

    def get(self, path: str) -> Any:
        """JSON, which must come."""
        with self.client() as client:
            answer = client.get(path)
        assert answer.status_code == 200, (answer.status_code, answer.text, self.said)
        return answer.json()

    def post(self, path: str, body: object = None, **headers: str) -> httpx2.Response:
        with self.client() as client:
            return client.post(path, json=body, headers=headers)

    def until_over(self, fix_id: str) -> Any:
        """The fix when no worker has it any more."""
        return self.until(fix_id, lambda fix: fix["state"] not in ("queued", "running"))

    def until(self, fix_id: str, holds: Callable[[Any], bool]) -> Any:
        """The fix as soon as this holds of it."""
        return waited(lambda: self.get(f"/v1/fixes/{fix_id}"), holds)

    def kill(self) -> None:
        """kill -9."""
        self.process.kill()
        self.process.wait(PATIENCE_S)

    def end(self) -> int:
        """SIGTERM; its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE_S)


def waited(ask: Callable[[], Any], holds: Callable[[Any], bool]) -> Any:
    """What ``ask`` gives as soon as it holds. Raises TimeoutError."""
    until = time.monotonic() + PATIENCE_S
    while not holds(last := ask()):
        if time.monotonic() > until:
            raise TimeoutError(f"after {PATIENCE_S:.0f} s still {last}")
        time.sleep(0.2)  # a key may ask 600 times a minute
    return last


@contextmanager
def served(
    state: Path,
    config: str = "",
    *,
    options: tuple[str, ...] = (),
    env: Mapping[str, str] | None = None,
    key: str = "",
    open_files: int | None = None,
    as_command: bool = False,
) -> Iterator[Running]:
    """A service on this state folder, on any free port; ended at the end, if it still lives.

    ``key``: an admin's that is there already (a second start prints none). ``open_files``: so many that it
    may have, and no more. ``as_command``: by the console script, which imports all of it anew.
    """
    state.mkdir(parents=True, exist_ok=True)
    (place := state.parent / f"{state.name}.toml").write_text(config)
    words = ["serve", "--config", place, "--state-dir", state, "--port", "0", *options]
    environ = {**os.environ, **(env or {})}
    process: Process
    if as_command or open_files is not None:
        process = _command([str(SCRIPT), *map(str, words)], state.parent, environ, open_files)
    else:
        process = Forked(MAIN, list(map(str, words)), cwd=state.parent, env=environ)
    running = Running(process, "", key)
    reader = threading.Thread(target=_read, args=(process, running.said), daemon=True)
    reader.start()
    try:
        _wait(running, reader)
        yield running
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(60)
        reader.join(PATIENCE_S)
        assert process.stdout is not None
        process.stdout.close()


def _command(
    command: list[str], cwd: Path, env: dict[str, str], open_files: int | None
) -> "subprocess.Popen[str]":
    if open_files is not None:
        command = ["sh", "-c", f'ulimit -n {open_files}; exec "$@"', "sh", *command]
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=cwd,
        env=env,
    )


def _read(process: Process, messages: list[str]) -> None:
    """A thread of its own reads every line: none can sit unread in a buffer."""
    assert process.stdout is not None
    for line in process.stdout:
        messages.append(line.rstrip("\n"))


def _wait(running: Running, reader: threading.Thread) -> None:
    until = time.monotonic() + PATIENCE_S
    while not running.address:
        for line in list(running.said):
            if "shown this once: " in line:
                running.key = line.rpartition(" ")[2]
            if line.startswith("listening on "):
                running.address = line.removeprefix("listening on ")
        if not running.address and (not reader.is_alive() or time.monotonic() > until):
            raise RuntimeError(f"the service has not begun: {running.said}")
        time.sleep(0.02)


def events(lines: Iterator[str]) -> Iterator[dict[str, str]]:
    """Server-sent events of a stream: their fields; comments under ``comment``."""
    found: dict[str, str] = {}
    for line in lines:
        if not line:
            if found:
                yield found
            found = {}
        elif line.startswith(":"):
            yield {"comment": line[1:].strip()}
        else:
            name, _, value = line.partition(": ")
            found[name] = f"{found[name]}\n{value}" if name in found else value
