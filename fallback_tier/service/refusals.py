"""Errors for requests that the service refuses, each with its HTTP status."""

from typing import ClassVar

from fallback_tier.errors import InputError


class RequestRefusedError(InputError):
    """A request that is refused, with the reason. ``status``: of RFC 9110."""

    code = "refused"
    status: ClassVar[int] = 400


class NotSignedInError(RequestRefusedError):
    """The caller is unknown: no key or session, or none that is valid now."""

    code = "not_signed_in"
    status = 401


class NotAllowedError(RequestRefusedError):
    """The caller is known, and may not do this."""

    code = "not_allowed"
    status = 403


class NotFoundError(RequestRefusedError):
    """There is nothing of this name, or nothing that the caller may see."""

    code = "not_found"
    status = 404


class ConflictError(RequestRefusedError):
    """The request conflicts with the current state."""

    code = "conflict"
    status = 409


class NotServedError(RequestRefusedError):
    """The request is well-formed, but this service does not support it."""

    code = "not_served"
    status = 422


class TooManyError(RequestRefusedError):
    """The caller makes too many requests. ``retry_after_s``: when the next one is accepted."""

    code = "too_many"
    status = 429

    def __init__(self, problem: str, *, next_step: str, retry_after_s: int = 1) -> None:
        super().__init__(problem, next_step=next_step)
        self.retry_after_s = retry_after_s


class BusyError(RequestRefusedError):
    """No work can be accepted now: the queue or the disk is full, or the service is ending."""

    code = "busy"
    status = 503
