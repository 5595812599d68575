"""The application: routes over a service, what is mounted with them, and bounds around every request.

All validators and serialisers are built before the first request. Models build theirs when they are first
used, so that a short command pays for few; pydantic does not promise that this is
safe from several threads.
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

#: What reads the whole record, or waits for a model, gets this long.
LONG_S = 900.0

#: … and these do so.
_LONG = ("/v1/attempts", "/v1/audit/verify", "/v1/audit/export")

#: What is answered below this depends on who asks.
_ROUTES = "/v1/"


@dataclass(frozen=True)
class NoStore:
    """Middleware that lets no cache keep an answer of the routes, an error included."""

    app: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As ASGI has it."""

        async def unkept(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)["Cache-Control"] = "no-store"
            await send(message)

        is_route = scope["type"] == "http" and scope["path"].startswith(_ROUTES)
        await self.app(scope, receive, unkept if is_route else send)


class DeclaredSize:
    """A body that says it is too large is refused before any of it is read. One that does not say so is
    counted by starlette's middleware, further inside."""

    def __init__(self, app: ASGIApp, max_bytes: int) -> None:
        self._app = app
        self._max = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As ASGI has it."""
        if scope["type"] == "http":
            message = Headers(scope=scope).get("content-length", "0")
            if message.isdecimal() and int(message) > self._max:
                refused = problems.plain(
                    413, f"More than {self._max:,} bytes.", {"Connection": "close"}
                )
                await refused(scope, receive, send)
                return
        await self._app(scope, receive, send)


@dataclass(frozen=True)
class TimeLimit:
    """An answer that has not begun in time is given up. ``observe`` is told of each request that ended:
    method, route, status, seconds."""

    app: ASGIApp
    seconds: float
    observe: Callable[[str, str, int, float], None] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As ASGI has it."""
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

                async def begun(message: Message) -> None:
                    if message["type"] == "http.response.start":
                        limit.reschedule(None)
                        status.append(message["status"])
                    await send(message)

                await self.app(scope, receive, begun)
        except TimeoutError:
            if status:
                raise
            status.append(504)
            late = problems.plain(504, f"No answer within {seconds:,.0f} seconds.")
            await late(scope, receive, send)


def route_of(scope: Scope) -> str:
    """The path as it is declared, so that metrics have a row a route, not one a fix."""
    route = scope.get("route")
    return str(getattr(route, "path", "unknown"))


OPENAPI = "/v1/openapi.json"

DESCRIPTION = (
    "Submit an advisory and a repository's name, follow the fix, take its proved patch. "
    "Errors are problem+json (RFC 9457)."
)


class Pages(Protocol):
    """What people open with a browser, beside the routes."""

    def problem(self, request: Request, error: FallbackError) -> Response:
        """An error of a route that a browser was led to, as it is told to a person."""
        ...

    def mount(self, app: FastAPI) -> None:
        """Add its own routes."""
        ...


class Observer(Protocol):
    """Who is told what the service does: metrics, logs."""

    def start(self) -> None:
        """Observe from now on; who closes it is its maker."""
        ...

    def request_ended(self, method: str, route: str, status: int, seconds: float) -> None:
        """``route`` is the path as declared; ``status`` 499: the client went away before an answer."""
        ...


def create_app(
    service: Service,
    *,
    observer: Observer | None = None,
    routers: Sequence[APIRouter] = (),
    pages: Pages | None = None,
) -> FastAPI:
    """The application. ``routers``: what is mounted besides (health, metrics)."""
    limits = service.settings.limits
    reported: Callable[[str, str, int, float], None] | None = None
    if observer is not None:
        reported = observer.request_ended
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
            Middleware(TimeLimit, seconds=limits.request_s, observe=reported),
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
    """``lax`` where there is an issuer: the way back from it is a link from another site."""
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
    """Workers live no longer than what answers for them."""
    service: Service = app.state.service
    # A request that waits for its attempt holds a thread, and takes none from the others.
    anyio.to_thread.current_default_thread_limiter().total_tokens += service.attempts.most_at_once
    service.dispatcher.start()
    try:
        yield
    finally:
        service.feed.close()
        service.dispatcher.stop()


def build_routes(app: FastAPI) -> None:
    """FastAPI looks into the routers that it has been given when a request first comes past them, and makes
    their adapters then: one that nothing is for comes past all of them now."""
    nowhere = {"type": "http", "method": "GET", "path": "/nowhere", "root_path": "", "headers": []}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnsupportedFieldAttributeWarning)
        for route in app.router.routes:
            route.matches({**nowhere, "app": app})


def build_models() -> None:
    """Every model that is imported, and every adapter that there is: FastAPI's, one a route, and ours."""
    for model in set(_below(BaseModel)):
        if not model.__pydantic_complete__:
            model.model_rebuild(raise_errors=False)
    with warnings.catch_warnings():
        # FastAPI makes an adapter of each field that it describes: "exclude" means nothing there.
        warnings.simplefilter("ignore", UnsupportedFieldAttributeWarning)
        for adapter in unbuilt_adapters():
            adapter.rebuild(raise_errors=False)


def unbuilt_adapters() -> list[TypeAdapter[object]]:
    """Nobody keeps a list of them but the garbage collector."""
    every = [one for one in gc.get_objects() if isinstance(one, TypeAdapter)]
    return [adapter for adapter in every if not adapter.pydantic_complete]


def _below(model: type[BaseModel]) -> Iterator[type[BaseModel]]:
    for one in model.__subclasses__():
        yield one
        yield from _below(one)
