"""Routes for people to sign in and out. A program sends its key with each request, and needs no session."""

from typing import Annotated

import anyio.to_thread
from fastapi import APIRouter, Depends, Query, Request, Response, Security
from fastapi.responses import RedirectResponse
from pydantic import ConfigDict, Field

from fallback_audit.frozen import Frozen
from fallback_tier.service.http.given import JsonRoute, may_answer
from fallback_tier.service.http.oidc import CALLBACK, Oidc
from fallback_tier.service.http.security import AccessControl, Sessions, api_key, check_same_origin
from fallback_tier.service.people import MAX_NAME_CHARS, MAX_PASSWORD, People
from fallback_tier.service.refusals import NotServedError, NotSignedInError
from fallback_tier.service.roles import Role

router = APIRouter(prefix="/v1/session", tags=["session"], route_class=JsonRoute)

#: Default target of a browser after sign-in.
_AFTER = "/v1/session"

#: A path of this service: no second slash at its start, and no backslash, which browsers read as a slash.
_Local = Annotated[str, Query(pattern=r"^/([!-.0-\[\]-~][!-\[\]-~]{0,500})?$", alias="next")]


class SignIn(Frozen):
    """A name and a password of this machine."""

    # Built at once: FastAPI silences pydantic's warnings about its fields only while it reads a route.
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=False)

    name: Annotated[str, Field(min_length=1, max_length=MAX_NAME_CHARS, examples=["Ada"])]
    password: Annotated[str, Field(min_length=1, max_length=MAX_PASSWORD, examples=["four words"])]


class Who(Frozen):
    """Who asks, and what they may do."""

    name: str
    roles: tuple[Role, ...]
    is_person: bool


@router.get("", responses=may_answer())
def who(request: Request, key: Annotated[str | None, Security(api_key)]) -> Who:
    """Who asks."""
    doorman: AccessControl = request.app.state.doorman
    caller = doorman.caller(request, key)
    return Who(name=caller.name, roles=tuple(sorted(caller.roles)), is_person=caller.is_person)


@router.post("", responses=may_answer())
def sign_in(request: Request, given: SignIn) -> Who:
    """Sign in with a password of this machine; the session is a cookie."""
    people: People | None = request.app.state.people
    if people is None:
        raise NotServedError(
            "Nobody signs in by a password here.",
            next_step="Set people.local in the service's configuration; or use a key.",
        )
    check_same_origin(request, unknown=True)
    doorman: AccessControl = request.app.state.doorman
    succeeded = doorman.begin_sign_in(request, given.name)
    sessions: Sessions = request.app.state.sessions
    caller = sessions.open_by_password(request, given.name, given.password)
    if caller is None:
        raise NotSignedInError("This name and password don't match.", next_step="Try again.")
    succeeded()
    return Who(name=caller.name, roles=tuple(sorted(caller.roles)), is_person=True)


@router.delete("", status_code=204, responses=may_answer())
def sign_out(request: Request) -> Response:
    """End the session. One that nobody has is no error."""
    sessions: Sessions = request.app.state.sessions
    if sessions.caller(request) is not None:
        check_same_origin(request)
        sessions.close(request)
    return Response(status_code=204)


async def _oidc(request: Request) -> Oidc:
    oidc: Oidc | None = request.app.state.oidc
    if oidc is None:
        raise NotServedError(
            "Nobody signs in at an issuer here.",
            next_step="Set people.oidc in the service's configuration; or use a key.",
        )
    doorman: AccessControl = request.app.state.doorman
    doorman.check_address(request)
    return oidc


TheIssuer = Annotated[Oidc, Depends(_oidc)]


@router.get(
    "/oidc",
    response_class=Response,
    status_code=302,
    responses={302: {"description": "to the issuer"}, **may_answer()},
)
async def to_issuer(request: Request, oidc: TheIssuer, after: _Local = _AFTER) -> Response:
    """To the issuer, for people."""
    request.session["after"] = after
    return await oidc.begin(request)


@router.get(
    CALLBACK.removeprefix("/v1/session"),
    response_class=Response,
    status_code=303,
    responses={303: {"description": "signed in"}, **may_answer()},
)
async def from_issuer(request: Request, oidc: TheIssuer) -> Response:
    """Back from it."""
    name, roles = await oidc.end(request)
    after = str(request.session.get("after", _AFTER))
    sessions: Sessions = request.app.state.sessions
    await anyio.to_thread.run_sync(sessions.open_by_issuer, request, name, roles, oidc.issuer)
    return RedirectResponse(after, status_code=303)
