"""Who asks, and may they: an API key in a header, or a browser's session; limits for both."""

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

#: Browsers keep ``__Host-`` ones from every other host and path; they take them with TLS alone.
COOKIE, COOKIE_TLS = "fallback_tier_session", "__Host-fallback_tier_session"

#: Bytes of randomness in what a session's own forms carry: nobody can guess it (128 bits).
_FORM_BYTES = 16

#: Where in the session it stands; authlib keeps the state of a sign-in beside it.
_SIGNED_IN = "signed_in"


class _Kept(Frozen):
    """What the cookie says. ``key_sha256``: of the key that was given; ``stamp``: of the password of this
    machine that was (``People.stamp``), or of how the issuer was configured (``OidcSettings.stamp``);
    ``issuer``: whose word the name is, where it is one's. ``until``: seconds since the epoch;
    ``generation``: ``People``'s."""

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
        """Names the session without saying what its forms carry."""
        return hashlib.sha256(self.form_token.encode()).hexdigest()


_adapter = TypeAdapter(_Kept)


@dataclass(frozen=True)
class SignedIn:
    """Who has signed in with this browser. ``form_token``: what each form of its pages carries."""

    caller: Caller
    form_token: str

    def may_send(self, form_token: str) -> bool:
        """Did a page of this session make the form?"""
        return hmac.compare_digest(self.form_token.encode(), form_token.encode())


class Sessions:
    """Sessions of browsers: a signed cookie says who signed in, how, and until when (ADR-0081, ADR-0084).

    It can't be made without the service's key, and no script reads it. The owner of a key, and a person of
    this machine, are looked up at each request, so that a revoked key, a removed person or a new password
    ends sessions at once. A person of an issuer has the roles that it gave, until the session ends, or
    another issuer, or other roles for its groups, are configured. Signing out ends the session in every
    process of the service: the database remembers it until it would have ended, so that a copy of the
    cookie opens nothing.
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
        """None: the key is not valid, and no session begins."""
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
        """None: nobody has this name and password, or nobody signs in so here; no session begins."""
        caller = self._people.signed_in(name, password) if self._settings.local else None
        if caller is not None:
            stamp = self._people.stamp(name)
            self._open(request, name, caller.roles, self._settings.session_s, stamp=stamp)
        return caller

    def open_by_issuer(
        self, request: Request, name: str, roles: frozenset[Role], issuer: str
    ) -> None:
        """Whom the issuer has named."""
        oidc = self._settings.oidc
        lasts_s, stamp = (0.0, None) if oidc is None else (oidc.session_s, oidc.stamp)
        self._open(request, name, roles, lasts_s, issuer=issuer, stamp=stamp)

    def _open(
        self,
        request: Request,
        name: str,
        roles: frozenset[Role],
        lasts_s: float,
        **how: str | None,
    ) -> None:
        """What was open in this browser is over: nobody goes on in another's."""
        kept = _Kept(
            name=name,
            roles=tuple(sorted(roles)),
            until=self._clock() + lasts_s,
            form_token=secrets.token_urlsafe(_FORM_BYTES),
            generation=self._people.generation(),
            **how,
        )
        self.close(request)
        request.session[_SIGNED_IN] = kept.model_dump(mode="json")

    def signed_in(self, request: Request) -> SignedIn | None:
        """Whose session it is; None: nobody's, or not any more."""
        kept = _kept(request)
        if kept is None or kept.until <= self._clock():
            return None
        if not self._people.is_open(kept.generation, kept.sha256):
            return None
        caller = self._now(kept)
        return None if caller is None else SignedIn(caller, kept.form_token)

    def caller(self, request: Request) -> Caller | None:
        """As the service's door asks."""
        found = self.signed_in(request)
        return None if found is None else found.caller

    def _now(self, kept: _Kept) -> Caller | None:
        if kept.key_sha256 is not None:
            return self._keys.caller_of(kept.key_sha256)
        if kept.issuer is not None:
            oidc = self._settings.oidc
            is_same = oidc is not None and kept.stamp == oidc.stamp
            return person_caller(kept.name, kept.roles, kept.issuer) if is_same else None
        is_same = self._settings.local and kept.stamp == self._people.stamp(kept.name)
        return self._people.caller(kept.name) if is_same else None

    def close(self, request: Request) -> None:
        """Nobody has signed in any more, with this cookie or a copy of it."""
        kept = _kept(request)
        try:
            if kept is not None and kept.until > (now := self._clock()):
                self._people.end_session(kept.sha256, kept.until, now)
        finally:
            request.session.clear()  # also where the store can't be written: this browser, at least


def _kept(request: Request) -> _Kept | None:
    try:
        return _adapter.validate_python(request.session.get(_SIGNED_IN))
    except ValidationError:
        return None


HEADER = "X-API-Key"

api_key = APIKeyHeader(name=HEADER, auto_error=False, description="an API key")

#: What changes nothing needs no proof of where it comes from.
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})

#: Pairs of a name and an address from which it signed in: the last ones, some 3 MB.
_MAX_KNOWN = 10_000


class AccessControl:
    """Tells who asks. ``session``: the person that a session is of, where people can sign in."""

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
        """Raises NotSignedInError, TooManyError."""
        address = address_of(request)
        found = self._session(request) if key is None else self._keys.caller(key)
        # Who has a right to come in is counted apart: others at the same address can't shut the door.
        self._count(self._per_address, "address" if found else "unknown", address)
        if found is None:
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
        self._count(self._per_caller, "caller", found.name)
        return found

    def still(self, request: Request, role: Role) -> bool:
        """Who was let in with this request, for long, may still come in with this role."""
        key = request.headers.get(HEADER)
        found = self._session(request) if key is None else self._keys.caller(key)
        return found is not None and found.may(role)

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
        """Count an attempt before its password is hashed, and return what takes the count back on success.

        Counts by address and by name, so that neither attempts at the same time nor many addresses pass
        the limit. An address from which this name has signed in is not limited by the name: the failures of
        others can't lock a person out there (docs/service.md). Raises TooManyError; what is refused is not
        counted.
        """
        address = self.check_address(request)
        counted = [("failed", address)]
        if (name, address) not in self._known:
            counted.append(("failed name", name))
        self._count_failure(*counted)

        def succeeded() -> None:
            with self._sign_ins:
                for identifiers in counted:
                    self._storage.decr(self._failed.key_for(*identifiers))
                self._known[name, address] = None
                self._known.move_to_end((name, address))
                if len(self._known) > _MAX_KNOWN:
                    self._known.popitem(last=False)

        return succeeded

    def _count_failure(self, *counted: tuple[str, str]) -> None:
        """Count all of them or, if one is at its limit, none."""
        with self._sign_ins:
            for kind, whose in counted:
                if not self._limiter.test(self._failed, kind, whose):
                    raise self._too_many(self._failed, kind, whose)
            for kind, whose in counted:
                self._limiter.hit(self._failed, kind, whose)

    def _count(self, item: RateLimitItem, kind: str, whose: str) -> None:
        if not self._limiter.hit(item, kind, whose):
            raise self._too_many(item, kind, whose)

    def _too_many(self, item: RateLimitItem, kind: str, whose: str) -> TooManyError:
        window = self._limiter.get_window_stats(item, kind, whose)
        wait = max(1, int(window.reset_time - time.time()) + 1)
        counted = {"caller": "from this caller", "failed name": "with this name"}
        return TooManyError(
            f"More than {item} {counted.get(kind, 'from this address')}.",
            next_step=f"Wait {wait} seconds.",
            retry_after_s=wait,
        )


def address_of(request: Request) -> str:
    """The client's, as a trusted proxy says it, else as it connects."""
    return request.client.host if request.client else "unknown"


def needs(role: Role) -> Callable[..., Caller]:
    """A dependency: the caller, who has this role. Raises NotSignedInError, NotAllowedError,
    TooManyError. It runs in a thread, since keys and sessions are looked up in a file that a writer may
    hold."""

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
    """A browser sends a session's cookie along for any page: what changes something must come from ours.
    ``unknown``: what says nothing of where it comes from, as no browser does, may pass: there is no session
    yet. Raises NotAllowedError."""
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
