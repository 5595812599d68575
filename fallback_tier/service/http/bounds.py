"""Bounds around every request, as plain ASGI: its size, the time until its answer begins, no caching."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fallback_tier.service.http import problems

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
