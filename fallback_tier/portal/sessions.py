"""Who has signed in with a browser: an API key, given once, becomes a session that the server keeps.

A browser holds a random number and nothing else. The session ends with the server, with its key, or with
the day's work.
"""

import hmac
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from fastapi import Request, Response

from fallback_tier.service.keys import KeyStore, digest_of
from fallback_tier.service.roles import Caller

#: How long a session lasts: a working day.
SESSION_S = 12 * 3_600.0

#: Sessions at once; the oldest ends where there would be more. A person has one a browser.
MAX_SESSIONS = 1_000

#: Bytes of randomness in a session's number and in its form token: nobody can guess one (256 bits).
_BYTES = 32

#: The cookie's name; with TLS browsers keep ``__Host-`` ones from every other host and path.
_NAME, _NAME_TLS = "fallback-tier-session", "__Host-fallback-tier-session"


@dataclass(frozen=True)
class Session:
    """One browser that has signed in. ``form_token``: what each of its forms carries."""

    key_sha256: str
    form_token: str
    until: float
    generation: str = ""


@dataclass(frozen=True)
class SignedIn:
    """Who asks for a page, and their session."""

    caller: Caller
    session: Session

    def may_send(self, form_token: str) -> bool:
        """Did a page of this session make the form?"""
        return hmac.compare_digest(self.session.form_token.encode(), form_token.encode())


@dataclass(frozen=True)
class Sessions:
    """Those of one service, in its memory."""

    keys: KeyStore
    clock: Callable[[], float] = time.time
    #: Of the service's sessions: another one ends all that are open.
    generation: Callable[[], str] = lambda: ""
    _open: OrderedDict[str, Session] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def begin(self, key: str) -> str | None:
        """The number of a new session; None: the key is not valid."""
        if self.keys.caller(key) is None:
            return None
        number = secrets.token_urlsafe(_BYTES)
        made = Session(
            digest_of(key),
            secrets.token_urlsafe(_BYTES),
            until=self.clock() + SESSION_S,
            generation=self.generation(),
        )
        with self._lock:
            self._open[digest_of(number)] = made
            while len(self._open) > MAX_SESSIONS:
                self._open.popitem(last=False)
        return number

    def end(self, request: Request) -> None:
        """Idempotent."""
        with self._lock:
            self._open.pop(digest_of(_number(request)), None)

    def signed_in(self, request: Request) -> SignedIn | None:
        """None: no session, or it is over, or its key is not valid any more."""
        number = _number(request)
        if not number:
            return None
        with self._lock:
            session = self._open.get(digest_of(number))
        if session is None or session.until <= self.clock():
            return None
        if session.generation != self.generation():
            return None
        caller = self.keys.caller_of(session.key_sha256)
        return None if caller is None else SignedIn(caller, session)

    def caller(self, request: Request) -> Caller | None:
        """As the service's door asks."""
        found = self.signed_in(request)
        return None if found is None else found.caller


def set_cookie(request: Request, response: Response, number: str) -> None:
    """No script reads it, no other site's page sends it."""
    is_tls = request.url.scheme == "https"
    response.set_cookie(
        _NAME_TLS if is_tls else _NAME,
        number,
        max_age=int(SESSION_S),
        path="/",
        secure=is_tls,
        httponly=True,
        samesite="strict",
    )


def clear_cookie(request: Request, response: Response) -> None:
    """The browser forgets it."""
    is_tls = request.url.scheme == "https"
    response.delete_cookie(
        _NAME_TLS if is_tls else _NAME, path="/", secure=is_tls, httponly=True, samesite="strict"
    )


def _number(request: Request) -> str:
    name = _NAME_TLS if request.url.scheme == "https" else _NAME
    return request.cookies.get(name, "")
