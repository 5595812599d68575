"""The application: routes over a service, whatever is mounted besides, bounds around all of it."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Protocol

import anyio.to_thread
from fastapi import APIRouter, FastAPI, Request, Response
from starlette.middleware import Middleware
from starlette.middleware.body_limit import RequestBodyLimitMiddleware
from starlette.middleware.sessions import SessionMiddleware

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
from fallback_tier.service.http.bounds import DeclaredSize, NoStore, TimeLimit
from fallback_tier.service.http.building import build_models, build_routes
from fallback_tier.service.http.oidc import Oidc
from fallback_tier.service.http.security import AccessControl
from fallback_tier.service.http.sessions import COOKIE, COOKIE_TLS, Sessions
from fallback_tier.service.opening import Service
from fallback_tier.service.people import session_key

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
