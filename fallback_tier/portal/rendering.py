"""Templates to pages: everything that is shown is data, escaped and neutralised, whoever wrote it."""

from datetime import datetime
from functools import cache
from typing import Any
from urllib.parse import quote

from fastapi import Request
from fastapi.responses import HTMLResponse
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from fallback_audit.showing.describe import visible
from fallback_tier.portal.board import Read
from fallback_tier.portal.views.spending import usd
from fallback_tier.service.http.sessions import SignedIn

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
