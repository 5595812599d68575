"""A Unix socket before the server's, which loses the connection around a COMMIT."""

import select
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from enum import Enum, auto
from pathlib import Path

_NAME = ".s.PGSQL.5432"
_COMMIT = b"COMMIT\0"


class Lose(Enum):
    """What goes lost, once."""

    NOTHING = auto()
    COMMIT = auto()  # it never reaches the server
    ANSWER = auto()  # the server commits, and its word does not come back
    SERVER = auto()  # and after that there is no server any more


class Proxy:
    """Listens in ``folder``; set ``lose`` to lose something at the next COMMIT."""

    def __init__(self, folder: Path, server: Path) -> None:
        self.lose = Lose.NOTHING
        self._server = server
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(folder / _NAME))
        self._listener.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        server = socket.socket(socket.AF_UNIX)
        with client, server, suppress(OSError):  # either side may be gone
            server.connect(str(self._server / _NAME))
            while self._pass_on(client, server):
                pass

    def _pass_on(self, client: socket.socket, server: socket.socket) -> bool:
        """One piece of what either side says. False: the connection is over."""
        ready, _, _ = select.select([client, server], [], [])
        source, target = (client, server) if client in ready else (server, client)
        data = source.recv(65536)
        losing = self.lose
        if source is server or not data.endswith(_COMMIT) or losing is Lose.NOTHING:
            target.sendall(data)
            return bool(data)
        self.lose = Lose.NOTHING
        if losing is Lose.SERVER:
            self.close()
        if losing is not Lose.COMMIT:
            server.sendall(data)
            server.recv(65536)  # its word: it has committed
        return False


@contextmanager
def proxied(folder: Path, server: Path) -> Iterator[Proxy]:
    """A proxy in ``folder`` for the server whose socket is in ``server``."""
    proxy = Proxy(folder, server)
    try:
        yield proxy
    finally:
        proxy.close()
