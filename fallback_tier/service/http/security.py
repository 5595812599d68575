"""Who asks, and may they: an API key in a header, or a person's session; limits for both."""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Annotated

from fastapi import Depends, Request, Security
from fastapi.security import APIKeyHeader
from limits import RateLimitItem, parse
from limits.storage import MemoryStorage
from limits.strategies import FixedWindowRateLimiter

from fallback_tier.errors import ConfigurationError
from fallback_tier.service.keys import KeyStore
from fallback_tier.service.refusals import NotAllowedError, NotSignedInError, TooManyError
from fallback_tier.service.roles import Caller, Role
from fallback_tier.service.settings import Limits

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
