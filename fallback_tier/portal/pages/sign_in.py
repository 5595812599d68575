"""Sign-in by each method of the service (a password, an issuer, a key), and sign-out."""

from typing import Annotated

from fastapi import APIRouter, Form, Query, Request
from fastapi.responses import RedirectResponse, Response

from fallback_tier.portal.routing import (
    PREFIX,
    SIGN_IN,
    FormToken,
    PageRoute,
    check_form,
    page,
    sessions_of,
    way_back,
)
from fallback_tier.service.http.oidc import Oidc
from fallback_tier.service.http.security import AccessControl, address_of, check_same_origin
from fallback_tier.service.people import MAX_NAME_CHARS, MAX_PASSWORD

router = APIRouter(prefix=PREFIX, route_class=PageRoute, include_in_schema=False)

#: Longest input: our keys have 47 characters.
_MAX_KEY = 200

_WRONG_KEY = "This key is not valid, or not any more."
_WRONG_PERSON = "This name and password don't match."


@router.get("/sign-in")
def form(request: Request, next: Annotated[str, Query()] = "") -> Response:  # noqa: A002
    """Return the form, or redirect a person who is signed in already."""
    if sessions_of(request).signed_in(request) is not None:
        return RedirectResponse(way_back(next), 303)
    return _page(request, next)


@router.post("/sign-in")
def sign_in(
    request: Request,
    name: Annotated[str, Form(max_length=MAX_NAME_CHARS)] = "",
    password: Annotated[str, Form(max_length=MAX_PASSWORD)] = "",
    key: Annotated[str, Form(max_length=_MAX_KEY)] = "",
    next: Annotated[str, Form()] = "",  # noqa: A002
) -> Response:
    """Begin a session for a name with its password, or for a key; wrong ones are limited."""
    check_same_origin(request)
    doorman: AccessControl = request.app.state.doorman
    sessions, name = sessions_of(request), name.strip()
    if key:
        # Rate-limit invalid keys only: a valid one can't be guessed.
        if (caller := sessions.open_by_key(request, key.strip())) is None:
            doorman.wrong_key(address_of(request))
    else:
        succeeded = doorman.begin_sign_in(request, name)
        if (caller := sessions.open_by_password(request, name, password)) is not None:
            succeeded()
    if caller is None:
        wrong = _WRONG_KEY if key else _WRONG_PERSON
        return _page(request, next, status=401, wrong=wrong, name=name, by_key=bool(key))
    return RedirectResponse(way_back(next), 303)


@router.post("/sign-out")
def sign_out(request: Request, form_token: FormToken = "") -> Response:
    """End this session, whatever role the person has, and regardless of rate limits."""
    check_same_origin(request)
    sessions = sessions_of(request)
    if (signed_in := sessions.signed_in(request)) is not None:
        check_form(signed_in, form_token)
        sessions.close(request)
    return RedirectResponse(SIGN_IN, 303)


def _page(
    request: Request,
    after: str,
    *,
    status: int = 200,
    wrong: str = "",
    name: str = "",
    by_key: bool = False,
) -> Response:
    oidc: Oidc | None = request.app.state.oidc
    return page(
        "sign_in.html",
        request,
        None,
        status=status,
        next=after,
        after=way_back(after),
        wrong=wrong,
        name=name,
        by_key=by_key,
        is_local=request.app.state.people is not None,
        issuer=None if oidc is None else oidc.host,
    )
