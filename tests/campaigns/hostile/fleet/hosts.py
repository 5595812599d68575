"""Hosts as network namespaces, on bridges of the campaign's own: their cables are pulled, and put back.

A pulled cable passes no bytes in either direction, and closes no connection: each side waits for the other.
What is made here is named after this process, and removed at the end. Linux, and root.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

#: For measurements between networks (RFC 2544): nobody's own addresses.
_NET = "198.18"
_NETS = 250

#: A command of ``ip`` takes milliseconds.
_PATIENCE_S = 30.0


def missing() -> str | None:
    """Why no network namespaces can be had here; None where they can."""
    if not sys.platform.startswith("linux"):
        return "no network namespaces: this is not Linux"
    if os.geteuid() != 0:
        return "no network namespaces: this is not root"
    if shutil.which("ip") is None:
        return "no network namespaces: `ip` (iproute2) is not installed"
    try:
        with _namespace(_name("probe")), _bridge(_name("b"), 0):
            return None
    except subprocess.CalledProcessError as error:
        return f"no network namespaces: {' '.join(error.cmd)}: {error.stderr.strip()}"


@dataclass(frozen=True)
class Cable:
    """From a host to a network."""

    port: str

    def pull(self) -> None:
        """Idempotent."""
        _ip("link", "set", self.port, "down")

    def plug(self) -> None:
        """Idempotent."""
        _ip("link", "set", self.port, "up")


@dataclass(frozen=True)
class Network:
    """``address``: this machine's in it, where servers listen."""

    bridge: str
    number: int

    @property
    def address(self) -> str:
        return self.of(1)

    def of(self, host: int) -> str:
        """The address of the host that has this number."""
        return f"{_NET}.{self.number}.{host}"

    @property
    def range(self) -> str:
        return f"{_NET}.{self.number}.0/24"


@dataclass(frozen=True)
class Host:
    """``cables``: one to each network that it was made with, in their order."""

    namespace: str
    cables: tuple[Cable, ...]

    @property
    def inside(self) -> Sequence[str]:
        """Before a command: it runs on this host, as the process that was started."""
        return ("ip", "netns", "exec", self.namespace)


@contextmanager
def network(letter: str) -> Iterator[Network]:
    """One of its own for each letter."""
    number = (os.getpid() * 2 + ord(letter)) % _NETS + 1
    with _bridge(_name(letter), number) as made:
        yield made


@contextmanager
def host(name: str, number: int, networks: Sequence[Network]) -> Iterator[Host]:
    """``number``: of 2 to 254, its own among the hosts."""
    with ExitStack() as stack:
        namespace = stack.enter_context(_namespace(_name(name)))
        _ip("-n", namespace, "link", "set", "lo", "up")
        cables = []
        for place, net in enumerate(networks):
            port, end = f"{net.bridge}{number}", f"eth{place}"
            _ip("link", "add", port, "type", "veth", "peer", "name", end, "netns", namespace)
            _ip("link", "set", port, "master", net.bridge, "up")
            _ip("-n", namespace, "addr", "add", f"{net.of(number)}/24", "dev", end)
            _ip("-n", namespace, "link", "set", end, "up")
            cables.append(Cable(port))
        yield Host(namespace, tuple(cables))


@contextmanager
def _namespace(name: str) -> Iterator[str]:
    _ip("netns", "add", name)
    try:
        yield name
    finally:
        _ip("netns", "delete", name)  # and the cables that end in it


@contextmanager
def _bridge(name: str, number: int) -> Iterator[Network]:
    _ip("link", "add", name, "type", "bridge")
    try:
        made = Network(name, number)
        _ip("addr", "add", f"{made.address}/24", "dev", name)
        _ip("link", "set", name, "up")
        yield made
    finally:
        _ip("link", "delete", name)


def _name(what: str) -> str:
    """Of this process; an interface's has 15 characters at most, three of them a host's number."""
    return f"ff{os.getpid()}{what}"


def _ip(*words: str) -> None:
    subprocess.run(("ip", *words), check=True, capture_output=True, text=True, timeout=_PATIENCE_S)
