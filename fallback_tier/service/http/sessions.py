"""A browser's session: a signed cookie that says who signed in, how, and until when (ADR-0081, ADR-0084).

Nobody can make one without the service's key, and nobody's script can read it. Whoever gave a key, or a
password of this machine, is looked up at each request, so that a revoked key, a removed person or a new
password ends its sessions at once; somebody of an issuer's has the roles that it gave, until the session
ends, or another issuer, or other roles for its groups, are configured. Who signs out ends the session, and
not in this browser alone: the service's database remembers it until it would have ended by itself, for
every process of the service, so that a copy of the cookie opens nothing.
"""

import hashlib
import hmac
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass

from fastapi import Request
from pydantic import TypeAdapter, ValidationError

from fallback_audit.frozen import Frozen
from fallback_tier.service.keys import KeyStore, digest_of
from fallback_tier.service.people import People, person_caller
from fallback_tier.service.roles import Caller, Role
from fallback_tier.service.settings import PeopleSettings

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
    """Opens, reads and ends them."""

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
