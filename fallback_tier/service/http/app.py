"""The application: routes of a service, what is mounted with them, and limits on every request.

All validators and serialisers are built before the first request. Models build theirs at first use, so that
a short command builds few; pydantic does not promise that this is thread-safe.
"""

import asyncio
import gc
import warnings
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib.metadata import version
from typing import Protocol

import anyio.to_thread
from fastapi import APIRouter, FastAPI, Request, Response
from pydantic import BaseModel, TypeAdapter
from pydantic.warnings import UnsupportedFieldAttributeWarning
from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware import Middleware
from starlette.middleware.body_limit import RequestBodyLimitMiddleware
from starlette.middleware.sessions import SessionMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fallback_tier.errors import FallbackError
from fallback_tier.service.http import (
    problems,
    routes_attempts,
    routes_audit,
    routes_campaigns,
    routes_fixes,
    routes_reviews,
    routes_session,
)
from fallback_tier.service.http.oidc import Oidc
from fallback_tier.service.http.security import COOKIE, COOKIE_TLS, AccessControl, Sessions
from fallback_tier.service.opening import Service
from fallback_tier.service.people import session_key

#: Time limit of requests that read the whole audit trail, or wait for a model (seconds).
LONG_S = 900.0

#: Paths with that time limit.
_LONG = ("/v1/attempts", "/v1/audit/verify", "/v1/audit/export")

#: Prefix of responses that depend on the caller.
_ROUTES = "/v1/"


@dataclass(frozen=True)
class NoStore:
    """Middleware that forbids caches to store responses of the routes, errors included."""

    app: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle an ASGI call."""

        async def send_uncached(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)["Cache-Control"] = "no-store"
            await send(message)

        is_route = scope["type"] == "http" and scope["path"].startswith(_ROUTES)
        await self.app(scope, receive, send_uncached if is_route else send)


class DeclaredSize:
    """Middleware that refuses a body before any of it is read if its declared size is too large.

    Starlette's middleware, further inside, counts a body without a declared size.
    """

    def __init__(self, app: ASGIApp, max_bytes: int) -> None:
        self._app = app
        self._max = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle an ASGI call."""
        if scope["type"] == "http":
            length = Headers(scope=scope).get("content-length", "0")
            if length.isdecimal() and int(length) > self._max:
                response = problems.plain(
                    413, f"More than {self._max:,} bytes.", {"Connection": "close"}
                )
                await response(scope, receive, send)
                return
        await self._app(scope, receive, send)


@dataclass(frozen=True)
class TimeLimit:
    """Middleware that gives up a response that has not begun in time.

    ``observe`` is called for each request that ended: method, route, status, seconds.
    """

    app: ASGIApp
    seconds: float
    observe: Callable[[str, str, int, float], None] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle an ASGI call."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began = asyncio.get_running_loop().time()
        status: list[int] = []
        try:
            await self._within(scope, receive, send, status)
        finally:
            if self.observe is not None:
                seconds = asyncio.get_running_loop().time() - began
                self.observe(scope["method"], route_of(scope), (status or [499])[0], seconds)

    async def _within(self, scope: Scope, receive: Receive, send: Send, status: list[int]) -> None:
        is_long = scope["path"].startswith(_LONG)
        seconds = max(self.seconds, LONG_S) if is_long else self.seconds
        try:
            async with asyncio.timeout(seconds) as limit:

                async def send_noting_status(message: Message) -> None:
                    if message["type"] == "http.response.start":
                        limit.reschedule(None)
                        status.append(message["status"])
                    await send(message)

                await self.app(scope, receive, send_noting_status)
        except TimeoutError:
            if status:
                raise
            status.append(504)
            response = problems.plain(504, f"No answer within {seconds:,.0f} seconds.")
            await response(scope, receive, send)


def route_of(scope: Scope) -> str:
    """Return the path as declared, so that metrics have one row per route, not one per fix."""
    route = scope.get("route")
    return str(getattr(route, "path", "unknown"))


OPENAPI = "/v1/openapi.json"

DESCRIPTION = (
    "Submit an advisory and a repository's name, follow the fix, take its proved patch. "
    "Errors are problem+json (RFC 9457)."
)


class Pages(Protocol):
    """The portal's pages for browsers, served with the routes."""

    def problem(self, request: Request, error: FallbackError) -> Response:
        """Return the page for an error of a route to which a browser was led."""
        ...

    def mount(self, app: FastAPI) -> None:
        """Add the pages' routes."""
        ...


class Observer(Protocol):
    """Receives what the service does, for metrics and logs."""

    def start(self) -> None:
        """Observe from now on; its creator closes it."""
        ...

    def request_ended(self, method: str, route: str, status: int, seconds: float) -> None:
        """Record an ended request.

        ``route``: the path as declared; ``status`` 499: the client disconnected before a response.
        """
        ...


def create_app(
    service: Service,
    *,
    observer: Observer | None = None,
    routers: Sequence[APIRouter] = (),
    pages: Pages | None = None,
) -> FastAPI:
    """Return the application. ``routers``: further ones to mount (health, metrics)."""
    limits = service.settings.limits
    observe: Callable[[str, str, int, float], None] | None = None
    if observer is not None:
        observe = observer.request_ended
    people = service.settings.people
    app = FastAPI(
        title="fallback-tier",
        version=version("fallback-tier"),
        description=DESCRIPTION,
        openapi_url=OPENAPI,
        docs_url=None,
        redoc_url=None,
        lifespan=_lifespan,
        middleware=[
            Middleware(NoStore),
            Middleware(TimeLimit, seconds=limits.request_s, observe=observe),
            Middleware(DeclaredSize, max_bytes=limits.body_bytes),
            Middleware(RequestBodyLimitMiddleware, max_body_size=limits.body_bytes),
            _session_middleware(service),
        ],
    )
    app.state.service = service
    app.state.sessions = Sessions(service.keys, service.people, people)
    app.state.people = service.people if people.local else None
    app.state.oidc = None if people.oidc is None else Oidc(people.oidc, service.secrets.oidc)
    app.state.doorman = AccessControl(service.keys, limits, app.state.sessions.caller)
    problems.install(app, None if pages is None else pages.problem)
    for router in (
        routes_fixes.router,
        routes_reviews.router,
        routes_attempts.router,
        routes_audit.router,
        routes_campaigns.router,
        routes_session.router,
        *routers,
    ):
        app.include_router(router)
    if pages is not None:
        pages.mount(app)
    build_routes(app)
    build_models()
    return app


def _session_middleware(service: Service) -> Middleware:
    """Return the session middleware. Its cookie is ``lax`` if there is an issuer: the redirect back
    from it is a link from another site.
    """
    listening, people = service.settings.listen, service.settings.people
    is_tls = bool(listening.tls_cert or listening.trusted_proxies)
    return Middleware(
        SessionMiddleware,
        secret_key=session_key(service.state_dir),
        session_cookie=COOKIE_TLS if is_tls else COOKIE,
        max_age=int(max(people.session_s, people.oidc.session_s if people.oidc else 0.0)),
        same_site="strict" if people.oidc is None else "lax",
        https_only=is_tls,
    )


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Run the dispatcher as long as the application, so that workers don't outlive it."""
    service: Service = app.state.service
    # A request that waits for its attempt blocks a thread: add as many, so that others lose none.
    anyio.to_thread.current_default_thread_limiter().total_tokens += service.attempts.most_at_once
    service.dispatcher.start()
    try:
        yield
    finally:
        service.feed.close()
        service.dispatcher.stop()


def build_routes(app: FastAPI) -> None:
    """Build the adapters of all routes. FastAPI builds a router's when a first request passes it, so a
    request that matches no route passes all of them now.
    """
    unmatched = {
        "type": "http",
        "method": "GET",
        "path": "/nowhere",
        "root_path": "",
        "headers": [],
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnsupportedFieldAttributeWarning)
        for route in app.router.routes:
            route.matches({**unmatched, "app": app})


def build_models() -> None:
    """Build every imported model, and every existing adapter: FastAPI's (one per route) and ours."""
    for model in set(_below(BaseModel)):
        if not model.__pydantic_complete__:
            model.model_rebuild(raise_errors=False)
    with warnings.catch_warnings():
        # FastAPI makes an adapter of each field that it describes, for which "exclude" has no meaning.
        warnings.simplefilter("ignore", UnsupportedFieldAttributeWarning)
        for adapter in unbuilt_adapters():
            adapter.rebuild(raise_errors=False)


def unbuilt_adapters() -> list[TypeAdapter[object]]:
    """Return all adapters that are not built yet. Only the garbage collector has a list of them."""
    adapters = [item for item in gc.get_objects() if isinstance(item, TypeAdapter)]
    return [adapter for adapter in adapters if not adapter.pydantic_complete]


def _below(model: type[BaseModel]) -> Iterator[type[BaseModel]]:
    for subclass in model.__subclasses__():
        yield subclass
        yield from _below(subclass)
