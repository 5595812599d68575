"""Why the service does not do what was asked of it. Each has the HTTP status that says so."""

from typing import ClassVar

from fallback_tier.errors import InputError


class RequestRefusedError(InputError):
    """Not done, with the reason. ``status``: of RFC 9110."""

    code = "refused"
    status: ClassVar[int] = 400


class NotSignedInError(RequestRefusedError):
    """Nobody knows who asks: no key, or none that is valid now."""

    code = "not_signed_in"
    status = 401


class NotAllowedError(RequestRefusedError):
    """Who asks is known, and may not do this."""

    code = "not_allowed"
    status = 403


class NotFoundError(RequestRefusedError):
    """There is nothing of this name, or nothing that the caller may know of."""

    code = "not_found"
    status = 404


class ConflictError(RequestRefusedError):
    """It stands against what is there already."""

    code = "conflict"
    status = 409


class NotServedError(RequestRefusedError):
    """Well formed, and nothing that this service does."""

    code = "not_served"
    status = 422


class TooManyError(RequestRefusedError):
    """More requests than this caller may make. ``retry_after_s``: when the next one is taken."""

    code = "too_many"
    status = 429

    def __init__(self, problem: str, *, next_step: str, retry_after_s: int = 1) -> None:
        super().__init__(problem, next_step=next_step)
        self.retry_after_s = retry_after_s


class BusyError(RequestRefusedError):
    """Nothing can be taken now: the queue is full, the disk is, or the service is ending."""

    code = "busy"
    status = 503
