"""Errors as problem+json (RFC 9457): what is wrong, why, and the next step."""

from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from typing import Any

import anyio.to_thread
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from fallback_audit.errors import (
    AuditIntegrityError,
    AuditStoreError,
    ContractError,
    EvidenceError,
    RequestError,
)
from fallback_tier.errors import (
    FallbackError,
    InputError,
    RepositoryError,
    SandboxError,
    StateFolderError,
    ToolError,
)
from fallback_tier.fleet.errors import FleetStoreError
from fallback_tier.service.refusals import NotSignedInError, RequestRefusedError, TooManyError

MEDIA_TYPE = "application/problem+json"

#: A browser accepts this when it opens an address; a page's script does not.
_HTML = "text/html"

_REPORT = "Report it, please: the service's log has the traceback."

#: Maximum number of a request's faults in a response.
_MAX_FAULTS = 10

#: Status by type of error; the first match counts. Any other error is a defect: 500.
_STATUS: tuple[tuple[type[Exception], int], ...] = (
    (RequestError, HTTPStatus.NOT_FOUND),
    (RepositoryError, HTTPStatus.UNPROCESSABLE_ENTITY),
    (InputError, HTTPStatus.UNPROCESSABLE_ENTITY),
    (ContractError, HTTPStatus.CONFLICT),
    (EvidenceError, HTTPStatus.GONE),
    (AuditIntegrityError, HTTPStatus.INTERNAL_SERVER_ERROR),
    (AuditStoreError, HTTPStatus.SERVICE_UNAVAILABLE),
    (FleetStoreError, HTTPStatus.SERVICE_UNAVAILABLE),
    (StateFolderError, HTTPStatus.SERVICE_UNAVAILABLE),
    (SandboxError, HTTPStatus.SERVICE_UNAVAILABLE),
    (ToolError, HTTPStatus.SERVICE_UNAVAILABLE),
)

#: Code and next step of HTTP's own errors.
_CODES = {
    400: ("bad_request", "Send JSON as /v1/openapi.json describes it."),
    404: ("not_found", "/v1/openapi.json lists what there is."),
    405: ("method", "/v1/openapi.json lists the methods of each path."),
    413: ("too_large", "Send less: limits.body_bytes of the service's configuration is the limit."),
    415: ("content_type", "Send JSON with the header `Content-Type: application/json`."),
    504: ("time_limit", "Try again; limits.request_s of the service's configuration is the limit."),
}


def status_of(error: FallbackError) -> int:
    """Return the HTTP status of an error."""
    if isinstance(error, RequestRefusedError):
        return error.status
    return int(
        next((status for kind, status in _STATUS if isinstance(error, kind)), HTTPStatus(500))
    )


def document(
    status: int, code: str, detail: str, next_step: str, **more: object
) -> dict[str, object]:
    """Return the body of an error."""
    return {
        "type": f"urn:fallback-tier:problem:{code}",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
        "code": code,
        "next_step": next_step,
        **more,
    }


def response(error: FallbackError) -> JSONResponse:
    """Return the response for one of our errors."""
    status = status_of(error)
    body = document(status, error.code, _text(error.problem), _text(error.next_step))
    headers: dict[str, str] = {}
    if isinstance(error, NotSignedInError):
        headers["WWW-Authenticate"] = 'ApiKey realm="fallback-tier"'
    if isinstance(error, TooManyError):
        headers["Retry-After"] = str(error.retry_after_s)
    return JSONResponse(body, status, headers, media_type=MEDIA_TYPE)


def plain(
    status: int, detail: str | None = None, headers: dict[str, str] | None = None
) -> JSONResponse:
    """Return the response for an error of HTTP itself."""
    code, next_step = _CODES.get(status, ("http", "/v1/openapi.json describes every request."))
    text = detail or HTTPStatus(status).phrase
    return JSONResponse(
        document(status, code, text, next_step), status, headers, media_type=MEDIA_TYPE
    )


def defect(error: Exception) -> JSONResponse:
    """Return the response for an unexpected error, without its message, which could reveal secrets."""
    body = document(500, "defect", _defect_of(error), _REPORT)
    # This response passes no middleware, so the header is set here.
    return JSONResponse(body, 500, {"Cache-Control": "no-store"}, media_type=MEDIA_TYPE)


def _defect_of(error: Exception) -> str:
    return f"A defect of fallback-tier itself: {type(error).__name__}."


def install(app: FastAPI, page: Callable[[Request, FallbackError], Response] | None = None) -> None:
    """Return every error of a route in this form; as a ``page`` to a person whom a link or an issuer
    led here.
    """

    @app.exception_handler(FallbackError)
    async def ours(request: Request, error: FallbackError) -> Response:
        if page is not None and _HTML in request.headers.get("accept", ""):
            return await anyio.to_thread.run_sync(page, request, error)
        return response(error)

    @app.exception_handler(HTTPException)
    async def https(_: Request, error: HTTPException) -> JSONResponse:
        return plain(error.status_code, str(error.detail), dict(error.headers or {}))

    @app.exception_handler(RequestValidationError)
    async def malformed(_: Request, error: RequestValidationError) -> JSONResponse:
        return _malformed(error)

    @app.exception_handler(Exception)
    async def ours_to_fix(request: Request, error: Exception) -> Response:
        if page is not None and _HTML in request.headers.get("accept", ""):
            with suppress(Exception):  # the page itself may be what is broken
                problem = FallbackError(_defect_of(error), next_step=_REPORT)
                return await anyio.to_thread.run_sync(page, request, problem)
        return defect(error)


def _malformed(error: RequestValidationError) -> JSONResponse:
    faults = [
        {"where": ".".join(map(str, fault["loc"])), "what": str(fault["msg"])}
        for fault in error.errors()[:_MAX_FAULTS]
    ]
    first: dict[str, Any] = faults[0] if faults else {"where": "the request", "what": "not valid"}
    body = document(
        422,
        "invalid",
        _text(f"{first['where']}: {first['what']}."),
        "Correct what `faults` lists; /v1/openapi.json describes every request.",
        faults=[{name: _text(text) for name, text in fault.items()} for fault in faults],
    )
    return JSONResponse(body, 422, media_type=MEDIA_TYPE)


def _text(text: str) -> str:
    """Return a text that UTF-8 can encode: a request may contain half of a surrogate pair."""
    return text.encode("utf-8", "backslashreplace").decode()
