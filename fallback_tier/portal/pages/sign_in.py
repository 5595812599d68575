"""Sign in with an API key, sign out."""

from typing import Annotated

from fastapi import APIRouter, Form, Query, Request
from fastapi.responses import RedirectResponse, Response

from fallback_tier.portal.rendering import PREFIX, page
from fallback_tier.portal.routing import SIGN_IN, PageRoute, SendingReader, sessions_of, way_back
from fallback_tier.portal.sessions import clear_cookie, set_cookie
from fallback_tier.service.http.security import AccessControl, address_of, check_same_origin

router = APIRouter(prefix=PREFIX, route_class=PageRoute, include_in_schema=False)

#: A key has 47 characters; what is longer was not made by us.
_MAX_KEY = 200


@router.get("/sign-in")
def form(request: Request, next: Annotated[str, Query()] = "") -> Response:  # noqa: A002
    """The form; who has signed in is led on."""
    if sessions_of(request).signed_in(request) is not None:
        return RedirectResponse(way_back(next), 303)
    return page("sign_in.html", request, None, next=next, wrong=False)


@router.post("/sign-in")
def sign_in(
    request: Request,
    key: Annotated[str, Form(max_length=_MAX_KEY)] = "",
    next: Annotated[str, Form()] = "",  # noqa: A002
) -> Response:
    """Exchange a key for a session. Wrong ones are counted by address, as the routes count them."""
    check_same_origin(request)
    doorman: AccessControl = request.app.state.doorman
    address = address_of(request)
    number = sessions_of(request).begin(key.strip())
    if number is None:
        doorman.check_failures(address)
        doorman.failed(address)
        return page("sign_in.html", request, None, status=401, next=next, wrong=True)
    answer = RedirectResponse(way_back(next), 303)
    set_cookie(request, answer, number)
    return answer


@router.post("/sign-out")
def sign_out(request: Request, _: SendingReader) -> Response:
    """End this session."""
    sessions_of(request).end(request)
    answer = RedirectResponse(SIGN_IN, 303)
    clear_cookie(request, answer)
    return answer
