"""Authentication and authorisation: an API key in a header, or a browser's session; rate limits."""

import hashlib
import hmac
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request, Security
from fastapi.security import APIKeyHeader
from limits import RateLimitItem, parse
from limits.storage import MemoryStorage
from limits.strategies import FixedWindowRateLimiter
from pydantic import TypeAdapter, ValidationError

from fallback_audit.frozen import Frozen
from fallback_tier.errors import ConfigurationError
from fallback_tier.service.keys import KeyStore, digest_of
from fallback_tier.service.people import People, person_caller
from fallback_tier.service.refusals import NotAllowedError, NotSignedInError, TooManyError
from fallback_tier.service.roles import Caller, Role
from fallback_tier.service.settings import Limits, PeopleSettings

#: Browsers send ``__Host-`` cookies to this host only, and accept them only over TLS.
COOKIE, COOKIE_TLS = "fallback_tier_session", "__Host-fallback_tier_session"

#: Random bytes of a session's form token: too many to guess (128 bits).
_FORM_BYTES = 16

#: Key of the sign-in in the session; authlib stores the state of a sign-in next to it.
_SIGNED_IN = "signed_in"


class _Kept(Frozen):
    """The content of the cookie.

    ``key_sha256``: of the key that was given; ``stamp``: of the password of this machine that was given
    (``People.stamp``), or of the issuer's configuration (``OidcSettings.stamp``); ``issuer``: that vouches
    for the name, if one does. ``until``: seconds since the epoch; ``generation``: of ``People``.
    """

    name: str
    roles: tuple[Role, ...]
    until: float
    form_token: str
    generation: str
    key_sha256: str | None = None
    stamp: str | None = None
    issuer: str | None = None

    @property
    def sha256(self) -> str:
        """Return an identifier of the session that does not reveal its form token."""
        return hashlib.sha256(self.form_token.encode()).hexdigest()


_adapter = TypeAdapter(_Kept)


@dataclass(frozen=True)
class SignedIn:
    """A caller who is signed in with this browser. ``form_token``: the token in each form of its pages."""

    caller: Caller
    form_token: str

    def may_send(self, form_token: str) -> bool:
        """Return whether a page of this session made the form."""
        return hmac.compare_digest(self.form_token.encode(), form_token.encode())


class Sessions:
    """Sessions of browsers: a signed cookie says who signed in, how, and until when (ADR-0081, ADR-0084).

    The cookie can't be forged without the service's key, and no script can read it. The owner of a key, and
    a person of this machine, are looked up at each request, so that a revoked key, a removed person or a
    new password ends sessions at once. A person of an issuer has the roles that it gave until the session
    ends, or until the issuer or its groups' roles are configured differently. Signing out ends the session
    in every process of the service: the database stores that until the session would have expired, so that
    a copy of the cookie is worthless.
    """

    def __init__(
        self,
        keys: KeyStore,
        people: People,
        settings: PeopleSettings,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._keys = keys
        self._people = people
        self._settings = settings
        self._clock = clock

    def open_by_key(self, request: Request, key: str) -> Caller | None:
        """Begin a session and return its caller; return None if the key is not valid."""
        caller = self._keys.caller(key)
        if caller is not None:
            self._open(
                request,
                caller.name,
                caller.roles,
                self._settings.session_s,
                key_sha256=digest_of(key),
            )
        return caller

    def open_by_password(self, request: Request, name: str, password: str) -> Caller | None:
        """Begin a session and return its caller.

        Return None if name and password don't match, or if people can't sign in by password.
        """
        caller = self._people.signed_in(name, password) if self._settings.local else None
        if caller is not None:
            stamp = self._people.stamp(name)
            self._open(request, name, caller.roles, self._settings.session_s, stamp=stamp)
        return caller

    def open_by_issuer(
        self, request: Request, name: str, roles: frozenset[Role], issuer: str
    ) -> None:
        """Begin the session of a person whom the issuer has named."""
        oidc = self._settings.oidc
        session_s, stamp = (0.0, None) if oidc is None else (oidc.session_s, oidc.stamp)
        self._open(request, name, roles, session_s, issuer=issuer, stamp=stamp)

    def _open(
        self,
        request: Request,
        name: str,
        roles: frozenset[Role],
        session_s: float,
        **how: str | None,
    ) -> None:
        """Begin a session. It replaces this browser's previous one, which may be another person's."""
        session = _Kept(
            name=name,
            roles=tuple(sorted(roles)),
            until=self._clock() + session_s,
            form_token=secrets.token_urlsafe(_FORM_BYTES),
            generation=self._people.generation(),
            **how,
        )
        self.close(request)
        request.session[_SIGNED_IN] = session.model_dump(mode="json")

    def signed_in(self, request: Request) -> SignedIn | None:
        """Return the session's caller and form token, or None if no session is valid."""
        session = _kept(request)
        if session is None or session.until <= self._clock():
            return None
        if not self._people.is_open(session.generation, session.sha256):
            return None
        caller = self._now(session)
        return None if caller is None else SignedIn(caller, session.form_token)

    def caller(self, request: Request) -> Caller | None:
        """Return the session's caller, or None, for ``AccessControl``."""
        signed_in = self.signed_in(request)
        return None if signed_in is None else signed_in.caller

    def _now(self, session: _Kept) -> Caller | None:
        if session.key_sha256 is not None:
            return self._keys.caller_of(session.key_sha256)
        if session.issuer is not None:
            oidc = self._settings.oidc
            is_same = oidc is not None and session.stamp == oidc.stamp
            return person_caller(session.name, session.roles, session.issuer) if is_same else None
        is_same = self._settings.local and session.stamp == self._people.stamp(session.name)
        return self._people.caller(session.name) if is_same else None

    def close(self, request: Request) -> None:
        """End the session, for this cookie and any copy of it."""
        session = _kept(request)
        try:
            if session is not None and session.until > (now := self._clock()):
                self._people.end_session(session.sha256, session.until, now)
        finally:
            request.session.clear()  # sign out this browser even if the store can't be written


def _kept(request: Request) -> _Kept | None:
    try:
        return _adapter.validate_python(request.session.get(_SIGNED_IN))
    except ValidationError:
        return None


HEADER = "X-API-Key"

api_key = APIKeyHeader(name=HEADER, auto_error=False, description="an API key")

#: Methods that change nothing need no check of their origin.
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})

#: Remembered pairs of a name and an address from which it signed in: the latest ones, some 3 MB.
_MAX_KNOWN = 10_000


class AccessControl:
    """Identifies callers and limits their requests. ``session`` returns a session's caller, if people
    can sign in.
    """

    def __init__(
        self,
        keys: KeyStore,
        limits: Limits,
        session: Callable[[Request], Caller | None] = lambda _: None,
    ) -> None:
        self._keys = keys
        self._session = session
        self._storage = MemoryStorage()
        self._limiter = FixedWindowRateLimiter(self._storage)
        self._sign_ins = threading.Lock()
        self._known: OrderedDict[tuple[str, str], None] = OrderedDict()
        self._per_caller = _limit("requests_per_key", limits.requests_per_key)
        self._per_address = _limit("requests_per_address", limits.requests_per_address)
        self._failed = _limit("failed_sign_ins", limits.failed_sign_ins)

    def caller(self, request: Request, key: str | None) -> Caller:
        """Return the caller of a request. Raises NotSignedInError, TooManyError."""
        address = address_of(request)
        caller = self._session(request) if key is None else self._keys.caller(key)
        # Count valid callers separately: others at the same address can't use up their limit.
        self._count(self._per_address, "address" if caller else "unknown", address)
        if caller is None:
            if key is not None:
                self.wrong_key(address)
            raise NotSignedInError(
                "Nobody has signed in."
                if key is None
                else "This key is not valid, or not any more.",
                next_step=f"Send a valid key in {HEADER}; `fallback-tier keys new` makes one.",
            )
        if key is None:
            check_same_origin(request)
        self._count(self._per_caller, "caller", caller.name)
        return caller

    def still(self, request: Request, role: Role) -> bool:
        """Return whether the caller of a long-running request still has this role."""
        key = request.headers.get(HEADER)
        caller = self._session(request) if key is None else self._keys.caller(key)
        return caller is not None and caller.may(role)

    def check_address(self, request: Request) -> str:
        """Count a request to sign in, and return its address. Raises TooManyError."""
        address = address_of(request)
        self._count(self._per_address, "unknown", address)
        if not self._limiter.test(self._failed, "failed", address):
            raise self._too_many(self._failed, "failed", address)
        return address

    def wrong_key(self, address: str) -> None:
        """Count a wrong key. Raises TooManyError if the address has tried too many keys or passwords."""
        self._count_failure(("failed", address))

    def begin_sign_in(self, request: Request, name: str) -> Callable[[], None]:
        """Count an attempt before its password is hashed, and return a function that takes the count back
        on success.

        Counts by address and by name, so that neither attempts at the same time nor many addresses pass the
        limit. An address from which this name has signed in is not limited by the name: the failures of
        others can't lock a person out there (docs/service.md). Raises TooManyError; a refused attempt is
        not counted.
        """
        address = self.check_address(request)
        counters = [("failed", address)]
        if (name, address) not in self._known:
            counters.append(("failed name", name))
        self._count_failure(*counters)

        def succeeded() -> None:
            with self._sign_ins:
                for counter in counters:
                    self._storage.decr(self._failed.key_for(*counter))
                self._known[name, address] = None
                self._known.move_to_end((name, address))
                if len(self._known) > _MAX_KNOWN:
                    self._known.popitem(last=False)

        return succeeded

    def _count_failure(self, *counters: tuple[str, str]) -> None:
        """Count all of these or, if one is at its limit, none."""
        with self._sign_ins:
            for kind, identifier in counters:
                if not self._limiter.test(self._failed, kind, identifier):
                    raise self._too_many(self._failed, kind, identifier)
            for kind, identifier in counters:
                self._limiter.hit(self._failed, kind, identifier)

    def _count(self, item: RateLimitItem, kind: str, identifier: str) -> None:
        if not self._limiter.hit(item, kind, identifier):
            raise self._too_many(item, kind, identifier)

    def _too_many(self, item: RateLimitItem, kind: str, identifier: str) -> TooManyError:
        window = self._limiter.get_window_stats(item, kind, identifier)
        wait_s = max(1, int(window.reset_time - time.time()) + 1)
        text_by_kind = {"caller": "from this caller", "failed name": "with this name"}
        return TooManyError(
            f"More than {item} {text_by_kind.get(kind, 'from this address')}.",
            next_step=f"Wait {wait_s} seconds.",
            retry_after_s=wait_s,
        )


def address_of(request: Request) -> str:
    """Return the client's address as a trusted proxy reports it, otherwise as it connects."""
    return request.client.host if request.client else "unknown"


def needs(role: Role) -> Callable[..., Caller]:
    """Return a dependency: the caller, who has this role. Raises NotSignedInError, NotAllowedError,
    TooManyError.

    It runs in a thread, since keys and sessions are read from a file that a writer may lock.
    """

    def check(request: Request, key: Annotated[str | None, Security(api_key)]) -> Caller:
        doorman: AccessControl = request.app.state.doorman
        caller = doorman.caller(request, key)
        if not caller.may(role):
            raise NotAllowedError(
                f"{caller.name} does not have the role {role}.",
                next_step=f"It has {', '.join(sorted(caller.roles))}; an admin can make another key.",
            )
        return caller

    return check


Submitter = Annotated[Caller, Depends(needs(Role.SUBMIT))]
Reader = Annotated[Caller, Depends(needs(Role.READ))]
Decider = Annotated[Caller, Depends(needs(Role.DECIDE))]


def check_same_origin(request: Request, *, unknown: bool = False) -> None:
    """Check that a request that changes something comes from our own pages: browsers send a session's
    cookie along for any page.

    ``unknown``: a request without any origin, as no browser sends it, may pass, since there is no session
    yet. Raises NotAllowedError.
    """
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    if request.method in _SAFE or site == "same-origin":
        return
    if unknown and site is None and origin is None:
        return
    if origin is not None and origin == f"{request.url.scheme}://{request.headers.get('host')}":
        return
    raise NotAllowedError(
        "This request comes from another site's page.",
        next_step="Use this service's own pages, or an API key.",
    )


def _limit(name: str, text: str) -> RateLimitItem:
    try:
        return parse(text)
    except ValueError as error:
        raise ConfigurationError(
            f"limits.{name}: {text!r} is no limit.", next_step='Write it like "600/minute".'
        ) from error
