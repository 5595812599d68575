"""The listening server: started by settings, ended in good order."""

import ipaddress
import signal
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

import uvicorn
from fastapi import APIRouter
from uvicorn.config import LOGGING_CONFIG
from uvicorn.server import HANDLED_SIGNALS

from fallback_tier.errors import ConfigurationError, StateFolderError
from fallback_tier.service.http.app import Observer, Pages, create_app
from fallback_tier.service.http.connections import Door, room_for, timed_protocol
from fallback_tier.service.keys import NewKey
from fallback_tier.service.opening import Service
from fallback_tier.service.roles import Role
from fallback_tier.service.settings import Listening

#: Connections that the system queues while the service is busy.
BACKLOG = 512

#: An idle connection is closed after this (seconds).
KEEP_ALIVE_S = 30


def check_listening(listening: Listening) -> None:
    """Check that keys don't go over a network unencrypted. Raises ConfigurationError."""
    if is_loopback(listening.host) or listening.tls_cert or listening.trusted_proxies:
        for name in ("tls_cert", "tls_key"):
            path = getattr(listening, name)
            if path is not None and not path.is_file():
                raise ConfigurationError(
                    f"listen.{name} {path}: there is no such file.",
                    next_step="Check the path.",
                    kind="no_such_file",
                )
        return
    raise ConfigurationError(
        f"Listening on {listening.host} without TLS would send keys and patches in the clear.",
        next_step="Give --tls-cert and --tls-key; or name the proxy that ends TLS in "
        "listen.trusted_proxies; or listen on 127.0.0.1.",
        kind="no_tls",
    )


def is_loopback(host: str) -> bool:
    """Return whether the host can be reached from this machine only."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def first_key(service: Service) -> NewKey | None:
    """Create an admin's key if there is no valid one, or return None. The caller shows it once."""
    keys = service.keys.all()
    if any(Role.ADMIN in key.roles and key.revoked_at is None for key in keys):
        return None
    used = {key.name for key in keys}
    names = ("first-admin", *(f"first-admin-{number}" for number in range(2, len(used) + 3)))
    return service.keys.new(next(name for name in names if name not in used), [Role.ADMIN])


def serve(
    service: Service,
    announce: Callable[[str], None],
    *,
    observer: Observer | None = None,
    routers: Sequence[APIRouter] = (),
    pages: Pages | None = None,
) -> None:
    """Listen until SIGTERM or SIGINT.

    ``announce`` is called with the address once it accepts connections; ``observer``, ``routers`` and
    ``pages``: as in ``create_app``. The observer starts after the app is built: the search for validators
    holds references to what another thread makes, which would end that thread's work.

    Raises ConfigurationError; StateFolderError if the address is not available.
    """
    listening, limits = service.settings.listen, service.settings.limits
    check_listening(listening)
    room = room_for(limits, listening.trusted_proxies)
    app = create_app(service, observer=observer, routers=routers, pages=pages)
    if observer is not None:
        observer.start()
    config = uvicorn.Config(
        app,
        loop="asyncio",  # the loop that accepts connections through our socket
        http=timed_protocol(limits),
        # An observer configures Python's logging in one format; uvicorn's would be another.
        log_config=None if observer is not None else LOGGING_CONFIG,
        log_level="warning",
        access_log=False,
        server_header=False,
        ws="none",
        lifespan="on",
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=int(limits.shutdown_s),
        proxy_headers=bool(listening.trusted_proxies),
        forwarded_allow_ips=list(listening.trusted_proxies),
        ssl_certfile=listening.tls_cert,
        ssl_keyfile=listening.tls_key,
    )
    with bound(listening) as listener:
        listener.room = room
        host, port = listener.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        scheme = "https" if listening.tls_cert else "http"
        _Server(config, service, lambda: announce(f"{scheme}://{shown}:{port}")).run([listener])


class _Server(uvicorn.Server):
    """A uvicorn server that ends event streams as soon as it is asked to end."""

    def __init__(
        self, config: uvicorn.Config, service: Service, started: Callable[[], None]
    ) -> None:
        super().__init__(config)
        self._service = service
        self._started = started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._started()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle the signals as uvicorn does, but don't raise them again at the end: that would leave
        open what the service has yet to close.
        """
        handlers = {sig: signal.signal(sig, self.handle_exit) for sig in HANDLED_SIGNALS}
        try:
            yield
        finally:
            for sig, handler in handlers.items():
                signal.signal(sig, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """End streams now; requests in progress are answered first."""
        self._service.feed.close()
        super().handle_exit(sig, frame)


def bound(listening: Listening) -> Door:
    """Return a socket at this address, not listening yet; the caller sets its ``room``.

    Raises StateFolderError if the address is not available.
    """
    family = socket.AF_INET6 if ":" in listening.host else socket.AF_INET
    # Without the protocol's number asyncio sets no TCP_NODELAY, and each answer waits 40 ms for an ACK.
    listener = Door(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((listening.host, listening.port))
    except OSError as error:
        listener.close()
        raise StateFolderError(
            f"{listening.host}:{listening.port} can't be listened on: {error.strerror}.",
            next_step="End what listens there, or choose another --port.",
            kind="not_listening",
        ) from error
    return listener
