"""Common parts of the routes: parameters, pages, JSON bodies, and examples for the OpenAPI document."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Coroutine
from email.message import Message
from typing import Annotated, Any

from fastapi import Depends, Header, Path, Query, Request, Response
from fastapi.routing import APIRoute
from pydantic import AfterValidator, Field
from starlette.exceptions import HTTPException

from fallback_audit.frozen import Frozen
from fallback_tier.files.inputs import DuplicateKeyError, parse_json
from fallback_tier.service.opening import Service

ADVISORY: dict[str, Any] = {
    "id": "GHSA-jjg7-2v4v-x38h",
    "modified": "2024-04-12T00:00:00Z",
    "summary": "A crafted argument to idna.encode() takes quadratic time",
    "affected": [
        {
            "package": {"ecosystem": "PyPI", "name": "idna"},
            "ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "3.7"}]}],
        }
    ],
}

SUBMISSION = {"repository": "app", "advisory": ADVISORY}

ATTEMPT = {"repository": "app", "advisory": ADVISORY, "prior_attempts": []}

DECISION = {"verdict": "reject", "because": "the package goes away next week"}

BECAUSE = {"because": "the provider is needed elsewhere until Monday"}


class ProblemDocument(Frozen):
    """RFC 9457. ``code`` and ``next_step`` are ours."""

    type: str = Field(examples=["urn:fallback-tier:problem:not_found"])
    title: str
    status: int
    detail: str
    code: str
    next_step: str
    faults: list[dict[str, str]] = Field(default_factory=list)


_WORDS = {
    400: "the body is not JSON, or an object of it has a key twice",
    401: "nobody has signed in",
    403: "the caller does not have the role",
    404: "there is no such thing",
    409: "it stands against what is there",
    410: "evidence that is named is gone",
    413: "the body is too large",
    415: "the body is not application/json",
    422: "the request is not valid, or not served",
    429: "more requests than this caller may make",
    503: "nothing can be taken now",
    504: "no answer in time",
}


def may_answer(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the errors that a route may respond with: ``statuses``, and those of every route."""
    all_statuses = {400, 401, 403, 413, 415, 422, 429, 503, 504, *statuses}
    return {
        status: {
            "description": _WORDS[status],
            "content": {"application/problem+json": {"schema": _SCHEMA}},
        }
        for status in sorted(all_statuses)
    }


_SCHEMA = ProblemDocument.model_json_schema()


#: Upper bound; numbers of rows and events are far below it.
_MAX = 2**53


def cursor_of(number: int) -> str:
    """Return the cursor of the page after this row."""
    return urlsafe_b64encode(f"n{number}".encode()).decode().rstrip("=")


def _number(cursor: str) -> str:
    number_in(cursor)
    return cursor


def number_in(cursor: str | None) -> int | None:
    """Return the row after which a page begins. Raises ValueError."""
    if cursor is None:
        return None
    try:
        text = urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode("ascii")
    except ValueError as error:
        raise ValueError("this is no cursor of ours") from error
    if text[:1] != "n" or not text[1:].isdecimal() or int(text[1:]) >= _MAX:
        raise ValueError("this is no cursor of ours")
    return int(text[1:])


Cursor = Annotated[
    str | None,
    AfterValidator(lambda text: text if text is None else _number(text)),
    Query(max_length=40, description="`next` of the page before"),
]


async def _service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


TheService = Annotated[Service, Depends(_service)]

#: Our identifiers are ``fix-`` and 16 digits; fixes of other orchestrators are on record under their own.
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
    """A request whose body is unambiguous JSON."""

    async def body(self) -> bytes:
        """Return the body. Raises HTTPException (415) for another content type."""
        content = await super().body()
        if content and not _is_json(content_type := self.headers.get("content-type", "")):
            description = f"is {content_type!r}" if content_type else "has no content type"
            raise HTTPException(415, f"The body {description}; this route takes application/json.")
        return content

    async def json(self) -> Any:
        """Return the parsed body. Raises ValueError; HTTPException (400) if an object has a key twice."""
        try:
            return parse_json(await self.body())
        except DuplicateKeyError as error:
            raise HTTPException(400, f"The body is ambiguous: {error}.") from error


def _is_json(content_type: str) -> bool:
    header = Message()
    header["content-type"] = content_type
    subtype = header.get_content_subtype()
    is_json = subtype == "json" or subtype.endswith("+json")
    return header.get_content_maintype() == "application" and is_json


class JsonRoute(APIRoute):
    """A route that accepts only JSON."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return fastapi's handler for a ``_JsonRequest``."""
        handler = super().get_route_handler()

        async def handle(request: Request) -> Response:
            return await handler(_JsonRequest(request.scope, request.receive))

        return handle
