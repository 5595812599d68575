"""What routes are given: the service, a fix's name, an idempotency key, a body of JSON."""

from collections.abc import Callable, Coroutine
from email.message import Message
from typing import Annotated, Any

from fastapi import Depends, Header, Path, Request, Response
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException

from fallback_tier.files.inputs import DuplicateKeyError, parse_json
from fallback_tier.service.opening import Service


async def _service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


TheService = Annotated[Service, Depends(_service)]

#: Ours are ``fix-`` and 16 digits; other orchestrators' fixes are on record under names of theirs.
FixId = Annotated[
    str,
    Path(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$",
        description="identifier of a fix",
        examples=["fix-0123456789abcdef"],
    ),
]

DigestPath = Annotated[str, Path(pattern=r"^[0-9a-f]{64}$", description="SHA-256, in hex")]

CampaignPath = Annotated[
    str,
    Path(
        pattern=r"^[a-z0-9][a-z0-9._-]{0,63}$",
        description="name of a campaign",
        examples=["spring"],
    ),
]

IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=200,
        description="the same request with the same key is done once, and answered the same (48 h)",
    ),
]


class _JsonRequest(Request):
    """A request whose body is JSON, and says the same to every reader."""

    async def body(self) -> bytes:
        """The body. Raises HTTPException (415) for one of another type."""
        content = await super().body()
        if content and not _is_json(given := self.headers.get("content-type", "")):
            named = f"is {given!r}" if given else "has no content type"
            raise HTTPException(415, f"The body {named}; this route takes application/json.")
        return content

    async def json(self) -> Any:
        """The body, read. Raises ValueError; HTTPException (400) for a key that an object has twice."""
        try:
            return parse_json(await self.body())
        except DuplicateKeyError as error:
            raise HTTPException(400, f"The body is ambiguous: {error}.") from error


def _is_json(content_type: str) -> bool:
    message = Message()
    message["content-type"] = content_type
    subtype = message.get_content_subtype()
    is_json = subtype == "json" or subtype.endswith("+json")
    return message.get_content_maintype() == "application" and is_json


class JsonRoute(APIRoute):
    """A route that takes JSON alone."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """As fastapi has it."""
        inner = super().get_route_handler()

        async def handle(request: Request) -> Response:
            return await inner(_JsonRequest(request.scope, request.receive))

        return handle
