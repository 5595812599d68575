"""Common parts of the pages: rendering, authentication, authorisation, and errors as pages.

All shown values are treated as data: escaped and neutralised, whoever wrote them.
"""

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Annotated, Any
from urllib.parse import quote, urlsplit

import anyio.to_thread
from fastapi import Depends, Form, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from fastapi.routing import APIRoute
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from pydantic import BeforeValidator
from starlette.exceptions import HTTPException

from fallback_audit.errors import AuditError
from fallback_audit.showing.describe import visible
from fallback_tier.errors import FallbackError
from fallback_tier.portal.board import Board, Read
from fallback_tier.portal.views.spending import usd
from fallback_tier.service.http.given import TheService
from fallback_tier.service.http.problems import status_of
from fallback_tier.service.http.security import AccessControl, Sessions, SignedIn
from fallback_tier.service.refusals import NotAllowedError, NotSignedInError
from fallback_tier.service.roles import Role

#: Address of all pages.
PREFIX = "/portal"

#: Permissions of a page: load our style, scripts and pictures from this server, send forms to it. No script
#: or style in the page itself, no frame, no other site; and scripts insert HTML only through one named
#: policy (static/portal.js).
CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types portal",
    )
)

#: Characters of a link's address that are shown.
_MAX_ADDRESS_CHARS = 60

#: Headers of every page. The referrer stays within the site: without any, a form's Origin would be "null".
HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-store",
}


def page(
    template: str,
    request: Request,
    signed_in: SignedIn | None,
    *,
    status: int = 200,
    **facts: Any,
) -> HTMLResponse:
    """Return a page, or a part of one. If ``facts`` has a ``read``, the page says how far the audit
    trail was read, and listens to later events.
    """
    read: Read | None = facts.get("read")
    content = render(
        template,
        who=None if signed_in is None else signed_in.caller,
        form_token="" if signed_in is None else signed_in.form_token,
        here=request.url.path,
        read_to=None if read is None else read.to,
        **facts,
    )
    return HTMLResponse(content, status, HEADERS)


def render(template: str, **facts: Any) -> str:
    """Return the text of a template."""
    return _environment().get_template(template).render(prefix=PREFIX, **facts)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("fallback_tier.portal"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_safe,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "day": day,
        "clock": clock,
        "usd": usd,
        "words": words,
        "count": lambda number: f"{number:,}",
        "part": lambda text: quote(str(text), safe=""),
        "plural": plural,
        "address": address,
        "code": code,
    }
    return environment


def _safe(value: object) -> object:
    """Return text with control, bidi and zero-width characters spelled out; our own markup is not
    changed.
    """
    if value is None:
        return ""
    if isinstance(value, Markup) or not isinstance(value, str):
        return value
    return value if value.isprintable() else visible(value, lines=True)


def day(text: str) -> str:
    """Return a time of the audit trail, to the minute: ``2026-11-25 19:40 UTC``."""
    return _time(text, "%Y-%m-%d %H:%M UTC")


def clock(text: str) -> str:
    """Return a time of the audit trail, to the second, without its day."""
    return _time(text, "%H:%M:%S")


def _time(text: str, form: str) -> str:
    try:
        return datetime.fromisoformat(text).strftime(form)
    except ValueError:
        return text


def words(code: str) -> str:
    """Return a code of the vocabulary for reading: ``tests_failed`` → ``tests failed``."""
    return str(code).replace("_", " ")


def code(text: str) -> Markup:
    """Return text whose parts between backticks, commands or names, are marked as code; all of it is
    data.
    """
    parts = [Markup.escape(_safe(part)) for part in text.split("`")]
    if len(parts) % 2 == 0:  # a backtick is unmatched
        return Markup.escape(_safe(text))
    form = Markup("<code>{}</code>")
    return Markup().join(form.format(p) if at % 2 else p for at, p in enumerate(parts))


def address(url: str) -> str:
    """Return an http(s) address for reading: its host first, bounded."""
    text = url.partition("://")[2]
    return text if len(text) <= _MAX_ADDRESS_CHARS else f"{text[:_MAX_ADDRESS_CHARS]}…"


def plural(number: int, one: str, many: str = "") -> str:
    """Return a number with its noun: ``1 attempt``, ``4 attempts``."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


SIGN_IN = f"{PREFIX}/sign-in"

#: Longest address that a sign-in leads back to, which is one of ours.
_MAX_NEXT = 500

Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class PageRoute(APIRoute):
    """A route whose errors are pages with the problem and the next step."""

    def get_route_handler(self) -> Handler:
        """Return fastapi's handler with errors as pages."""
        handler: Handler = super().get_route_handler()

        async def handle(request: Request) -> Response:
            try:
                return await handler(request)
            except NotSignedInError:
                return to_sign_in(request)
            except (FallbackError, AuditError) as error:
                arguments = (status_of(error), error.problem, error.next_step)
                return await anyio.to_thread.run_sync(problem_page, request, *arguments)
            except RequestValidationError as error:
                first = error.errors()[0]
                where = str(first["loc"][-1])
                message = f"{where.capitalize()}: {first['msg']}."
                arguments = (422, message, "Go back and correct it.")
                return await anyio.to_thread.run_sync(problem_page, request, *arguments)
            except HTTPException as error:
                arguments = (error.status_code, str(error.detail), "Go back.")
                return await anyio.to_thread.run_sync(problem_page, request, *arguments)

        return handle


#: Headings of error pages by status; other statuses have the first.
_HEADINGS = {
    400: "That did not work",
    403: "Not allowed",
    404: "Not found",
    409: "Not possible any more",
    410: "Not kept any more",
    429: "Too many requests",
    500: "Something is wrong here",
    503: "Not now",
}


def problem_page(request: Request, status: int, problem: str, next_step: str) -> Response:
    """Return an error as a page. Only a signed-in person reads the location of the audit trail."""
    signed_in = sessions_of(request).signed_in(request)
    record = request.app.state.service.record
    return page(
        "problem.html",
        request,
        signed_in,
        status=status,
        heading=_HEADINGS.get(status, _HEADINGS[400]),
        problem=problem,
        next_step=next_step if signed_in is None else record.completed(next_step),
    )


def to_sign_in(request: Request) -> Response:
    """Redirect to the sign-in page, and from there back to this one if it can be requested again."""
    if request.headers.get("hx-request"):  # a part of a page can't be redirected: the whole page is
        return Response(status_code=204, headers={"HX-Refresh": "true"})
    back = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    query = f"?next={quote(back, safe='/')}" if request.method == "GET" else ""
    return RedirectResponse(SIGN_IN + query, 303)


def way_back(text: str) -> str:
    """Return ``text`` if it is the address of one of our pages, otherwise that of the first page."""
    parts = urlsplit(text)
    is_ours = not parts.scheme and not parts.netloc and parts.path.startswith(PREFIX + "/")
    is_plain = text.isascii() and text.isprintable() and not {" ", "\\"} & {*text}
    is_plain = is_plain and len(text) <= _MAX_NEXT
    return text if is_ours and is_plain else f"{PREFIX}/"


def sessions_of(request: Request) -> Sessions:
    """Return the sessions of the service that answers."""
    sessions: Sessions = request.app.state.sessions
    return sessions


def may(role: Role) -> Callable[..., SignedIn]:
    """Return a dependency, run in a thread: the signed-in caller, who has this role. Raises
    NotSignedInError, NotAllowedError, TooManyError.
    """

    def check(request: Request) -> SignedIn:
        doorman: AccessControl = request.app.state.doorman
        caller = doorman.caller(request, None)
        signed_in = sessions_of(request).signed_in(request)
        if signed_in is None:
            raise NotSignedInError("Nobody has signed in.", next_step=f"Sign in at {SIGN_IN}.")
        if not caller.may(role):
            raise NotAllowedError(
                f"{caller.name} does not have the role {role}.",
                next_step=f"It has {', '.join(sorted(caller.roles))}; sign in as somebody who has it.",
            )
        return signed_in

    return check


def check_form(signed_in: SignedIn, form_token: str) -> None:
    """Raise NotAllowedError unless a page of this session made the form."""
    if not signed_in.may_send(form_token):
        raise NotAllowedError(
            "This form was not made by a page of your session.",
            next_step="Open the page again, and send the form from there.",
        )


FormToken = Annotated[str, Form(max_length=100)]


def _bare_line_ends(text: object) -> object:
    """Replace CR LF by LF: a browser counts a line end as one character, and sends two."""
    return text.replace("\r\n", "\n") if isinstance(text, str) else text


#: A person's reason, as long as its field permits.
Because = Annotated[str, BeforeValidator(_bare_line_ends), Form(max_length=2_000)]

Reader = Annotated[SignedIn, Depends(may(Role.READ))]


async def _sending_reader(signed_in: Reader, form_token: FormToken = "") -> SignedIn:
    check_form(signed_in, form_token)
    return signed_in


async def _sending_decider(
    signed_in: Annotated[SignedIn, Depends(may(Role.DECIDE))], form_token: FormToken = ""
) -> SignedIn:
    check_form(signed_in, form_token)
    return signed_in


#: The sender of one of our forms. ``AccessControl`` has checked the form's origin, too.
SendingReader = Annotated[SignedIn, Depends(_sending_reader)]
SendingDecider = Annotated[SignedIn, Depends(_sending_decider)]


def _read(request: Request) -> Read:
    board: Board = request.app.state.board
    return Read(board, board.catch_up())


#: The board, up to date.
TheBoard = Annotated[Read, Depends(_read)]


@dataclass(frozen=True)
class Visit:
    """A request by a person who may read, for a page about the audit trail."""

    request: Request
    service: TheService
    read: TheBoard
    who: Reader

    @property
    def may_decide(self) -> bool:
        """Return whether the page has the forms for decisions."""
        return self.who.caller.may(Role.DECIDE)

    def page(self, template: str, *, status: int = 200, **facts: Any) -> Response:
        """Return a page, as the function ``page`` does."""
        return page(template, self.request, self.who, status=status, **facts)


@dataclass(frozen=True)
class DecidersVisit(Visit):
    """A form sent by a person who may decide."""

    who: SendingDecider


ReadersVisit = Annotated[Visit, Depends()]
SentByDecider = Annotated[DecidersVisit, Depends()]
