"""A person's session: a signed cookie that says who signed in, how, and until when.

Nobody can make one without the service's key, and nobody's script can read it. Somebody of this machine is
looked up at each request, so that one who was removed, or has a new password, is out at once; somebody of
an issuer's has the roles that it gave, until the session ends.
"""

import time
from collections.abc import Callable

from fastapi import Request
from pydantic import TypeAdapter, ValidationError

from fallback_audit.frozen import Frozen
from fallback_tier.service.people import People, person_caller
from fallback_tier.service.roles import Caller, Role

COOKIE = "fallback_tier_session"

#: Where in the session it stands; authlib keeps the state of a sign-in beside it.
_SIGNED_IN = "signed_in"


class SignedIn(Frozen):
    """``stamp``: of the password of this machine that was given (``People.stamp``); ``issuer``: whose word
    the name is; one of the two. ``until``: seconds since the epoch; ``generation``: ``People``'s."""

    name: str
    stamp: str | None
    issuer: str | None
    roles: tuple[Role, ...]
    until: float
    generation: str


_adapter = TypeAdapter(SignedIn)


class Sessions:
    """Opens, reads and ends them."""

    def __init__(
        self,
        people: People,
        lasts_s: float,
        issued_s: float = 0.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """How long sessions last: ``lasts_s`` those of people of this machine, ``issued_s`` an issuer's."""
        self._people = people
        self._lasts_s = lasts_s
        self._issued_s = issued_s
        self._clock = clock

    def open(
        self, request: Request, name: str, roles: frozenset[Role], issuer: str | None = None
    ) -> None:
        """Whatever stood in the session is gone: nobody goes on in another's. ``issuer`` None: somebody of
        this machine."""
        lasts_s = self._lasts_s if issuer is None else self._issued_s
        reported = SignedIn(
            name=name,
            stamp=self._people.stamp(name) if issuer is None else None,
            issuer=issuer,
            roles=tuple(sorted(roles)),
            until=self._clock() + lasts_s,
            generation=self._people.generation(),
        )
        request.session.clear()
        request.session[_SIGNED_IN] = reported.model_dump(mode="json")

    def caller(self, request: Request) -> Caller | None:
        """Whose session it is; None: nobody's, or not any more."""
        if "session" not in request.scope:
            return None
        try:
            reported = _adapter.validate_python(request.session.get(_SIGNED_IN))
        except ValidationError:
            return None
        if reported.until <= self._clock() or reported.generation != self._people.generation():
            return None
        if reported.issuer is not None:
            return person_caller(reported.name, reported.roles, reported.issuer)
        is_same = reported.stamp == self._people.stamp(reported.name)
        return self._people.caller(reported.name) if is_same else None

    def close(self, request: Request) -> None:
        """Nobody has signed in any more."""
        request.session.clear()
