"""What every page has in common: rendering, who asks, what they may, and errors as pages.

Everything that is shown is data, escaped and neutralised, whoever wrote it.
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

#: Where all pages are.
PREFIX = "/portal"

#: What a page may do: load our style, scripts and pictures from this server, send forms to it. No script
#: or style in the page itself, no frame, no other site; and what a script writes into a page goes through
#: one named policy (static/portal.js).
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

#: What is shown of a link's address.
_MAX_ADDRESS_CHARS = 60

#: Of every page. The referrer stays within the site: without any, a form's Origin would be "null".
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
    """A page, or a part of one. Where ``facts`` has what was ``read`` of the record, the page says so, and
    listens to what comes behind it."""
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
    """The text of a template."""
    return _environment().get_template(template).render(prefix=PREFIX, **facts)


@cache
def _environment() -> Environment:
    found = Environment(
        loader=PackageLoader("fallback_tier.portal"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_safe,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters |= {
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
    return found


def _safe(value: object) -> object:
    """Control, bidi and zero-width characters are spelled out; what we made ourselves stays."""
    if value is None:
        return ""
    if isinstance(value, Markup) or not isinstance(value, str):
        return value
    return value if value.isprintable() else visible(value, lines=True)


def day(text: str) -> str:
    """A time of the record, to the minute: ``2026-11-25 19:40 UTC``."""
    return _time(text, "%Y-%m-%d %H:%M UTC")


def clock(text: str) -> str:
    """… to the second, without its day."""
    return _time(text, "%H:%M:%S")


def _time(text: str, form: str) -> str:
    try:
        return datetime.fromisoformat(text).strftime(form)
    except ValueError:
        return text


def words(code: str) -> str:
    """A code of the vocabulary as it is read: ``tests_failed`` → ``tests failed``."""
    return str(code).replace("_", " ")


def code(text: str) -> Markup:
    """Return text with what is between backticks, a command or a name, as code; all of it is data."""
    parts = [Markup.escape(_safe(part)) for part in text.split("`")]
    if len(parts) % 2 == 0:  # one of them has no other
        return Markup.escape(_safe(text))
    form = Markup("<code>{}</code>")
    return Markup().join(form.format(p) if at % 2 else p for at, p in enumerate(parts))


def address(url: str) -> str:
    """An http(s) address as a person reads it: its host first, bounded."""
    text = url.partition("://")[2]
    return text if len(text) <= _MAX_ADDRESS_CHARS else f"{text[:_MAX_ADDRESS_CHARS]}…"


def plural(number: int, one: str, many: str = "") -> str:
    """``1 attempt``, ``4 attempts``."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


SIGN_IN = f"{PREFIX}/sign-in"

#: An address that a sign-in leads back to is one of ours, and this long at most.
_MAX_NEXT = 500

Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class PageRoute(APIRoute):
    """A route whose errors are pages: what is wrong, and the next step."""

    def get_route_handler(self) -> Handler:
        """As fastapi has it."""
        inner: Handler = super().get_route_handler()

        async def handle(request: Request) -> Response:
            try:
                return await inner(request)
            except NotSignedInError:
                return to_sign_in(request)
            except (FallbackError, AuditError) as error:
                reported = (status_of(error), error.problem, error.next_step)
                return await anyio.to_thread.run_sync(problem_page, request, *reported)
            except RequestValidationError as error:
                first = error.errors()[0]
                where = str(first["loc"][-1])
                message = f"{where.capitalize()}: {first['msg']}."
                reported = (422, message, "Go back and correct it.")
                return await anyio.to_thread.run_sync(problem_page, request, *reported)
            except HTTPException as error:
                reported = (error.status_code, str(error.detail), "Go back.")
                return await anyio.to_thread.run_sync(problem_page, request, *reported)

        return handle


#: What a page of an error is headed with; every other status is the first.
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
    found = sessions_of(request).signed_in(request)
    record = request.app.state.service.record
    return page(
        "problem.html",
        request,
        found,
        status=status,
        heading=_HEADINGS.get(status, _HEADINGS[400]),
        problem=problem,
        next_step=next_step if found is None else record.completed(next_step),
    )


def to_sign_in(request: Request) -> Response:
    """Lead to the sign-in page, and from there back to this one if it can be requested again."""
    if request.headers.get("hx-request"):  # a part of a page can't be led anywhere: the whole is
        return Response(status_code=204, headers={"HX-Refresh": "true"})
    back = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    asked = f"?next={quote(back, safe='/')}" if request.method == "GET" else ""
    return RedirectResponse(SIGN_IN + asked, 303)


def way_back(text: str) -> str:
    """Return ``text`` if it is the address of a page of ours, else that of the first page."""
    parts = urlsplit(text)
    ours = not parts.scheme and not parts.netloc and parts.path.startswith(PREFIX + "/")
    plain = text.isascii() and text.isprintable() and not {" ", "\\"} & {*text}
    plain = plain and len(text) <= _MAX_NEXT
    return text if ours and plain else f"{PREFIX}/"


def sessions_of(request: Request) -> Sessions:
    """Those of the service that answers."""
    found: Sessions = request.app.state.sessions
    return found


def may(role: Role) -> Callable[..., SignedIn]:
    """A dependency, run in a thread: who has signed in and has this role. Raises NotSignedInError,
    NotAllowedError, TooManyError."""

    def check(request: Request) -> SignedIn:
        doorman: AccessControl = request.app.state.doorman
        caller = doorman.caller(request, None)
        found = sessions_of(request).signed_in(request)
        if found is None:
            raise NotSignedInError("Nobody has signed in.", next_step=f"Sign in at {SIGN_IN}.")
        if not caller.may(role):
            raise NotAllowedError(
                f"{caller.name} does not have the role {role}.",
                next_step=f"It has {', '.join(sorted(caller.roles))}; sign in as somebody who has it.",
            )
        return found

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
    """A browser counts a line end as one character, and sends two."""
    return text.replace("\r\n", "\n") if isinstance(text, str) else text


#: A person's reason, as long as its field takes.
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


#: The sender of a form of ours. ``AccessControl`` has checked the form's origin, too.
SendingReader = Annotated[SignedIn, Depends(_sending_reader)]
SendingDecider = Annotated[SignedIn, Depends(_sending_decider)]


def _read(request: Request) -> Read:
    board: Board = request.app.state.board
    return Read(board, board.catch_up())


#: The board, read up to now.
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
        """Are the forms there, too?"""
        return self.who.caller.may(Role.DECIDE)

    def page(self, template: str, *, status: int = 200, **facts: Any) -> Response:
        """As the function ``page``."""
        return page(template, self.request, self.who, status=status, **facts)


@dataclass(frozen=True)
class DecidersVisit(Visit):
    """A form sent by a person who may decide."""

    who: SendingDecider


ReadersVisit = Annotated[Visit, Depends()]
SentByDecider = Annotated[DecidersVisit, Depends()]
