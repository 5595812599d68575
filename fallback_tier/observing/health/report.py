"""What checks say: a state, its reason, and what to do about it."""

from enum import StrEnum
from typing import NamedTuple

from fallback_audit.frozen import Frozen
from fallback_tier.errors import FallbackError


class CheckState(StrEnum):
    """``degraded``: fixes go on, with less than was configured. ``failed``: none should be begun."""

    OK = "ok"
    DEGRADED = "degraded"
    FAILED = "failed"


class Finding(NamedTuple):
    """What a check found. ``next_step``: empty only where all is well."""

    state: CheckState
    reason: str
    next_step: str = ""


class CheckResult(Frozen):
    """A finding with its check's name, and what it took. ``duration_ms`` None: it has not ended."""

    check: str
    state: CheckState
    reason: str
    next_step: str = ""
    duration_ms: int | None = None


class Health(Frozen):
    """All checks, in their order. Ready: none has failed."""

    ready: bool
    checks: tuple[CheckResult, ...]

    @classmethod
    def of(cls, checks: tuple[CheckResult, ...]) -> "Health":
        """From the checks alone."""
        return cls(ready=not any(one.state is CheckState.FAILED for one in checks), checks=checks)


def ok(reason: str) -> Finding:
    """All is well."""
    return Finding(CheckState.OK, reason)


def degraded(reason: str, next_step: str) -> Finding:
    """Fixes go on, with less."""
    return Finding(CheckState.DEGRADED, reason, next_step)


def failed(reason: str, next_step: str) -> Finding:
    """No fix should be begun."""
    return Finding(CheckState.FAILED, reason, next_step)


def as_failed(error: FallbackError) -> Finding:
    """An error of ours as the finding that it is."""
    return failed(error.problem, error.next_step)
