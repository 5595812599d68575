"""Health checks: their results, and how they run.

Each check runs in its own thread with a time limit: one that hangs is a finding, too.
"""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from enum import StrEnum
from typing import NamedTuple

from pydantic import Field

from fallback_audit.frozen import Frozen
from fallback_tier.errors import FallbackError

#: A healthy check takes milliseconds; a model's server in another country a second.
CHECK_TIMEOUT_S = 5.0

#: How long a finding is reused (seconds): probes come every few seconds, from several sides.
FRESH_S = 2.0

#: The same for checks that start a process or call another machine.
DEAR_FRESH_S = 30.0

#: Maximum number of characters of a defect's own message.
_QUOTED = 300


class CheckState(StrEnum):
    """``degraded``: fixes go on, with less than was configured. ``failed``: none should be begun."""

    OK = "ok"
    DEGRADED = "degraded"
    FAILED = "failed"


class Finding(NamedTuple):
    """The result of a check. ``next_step``: empty only if all is well. ``kind``: does not change with
    the text, as an error's.
    """

    state: CheckState
    reason: str
    next_step: str = ""
    kind: str = ""


class CheckResult(Frozen):
    """A finding with its check's name, and what it took. ``duration_ms`` None: it has not ended."""

    check: str
    state: CheckState
    reason: str
    next_step: str = ""
    duration_ms: int | None = None
    #: The kind of the finding, which is in no document.
    kind: str = Field(default="", exclude=True)


class Health(Frozen):
    """All checks, in their order. Ready: none has failed."""

    ready: bool
    checks: tuple[CheckResult, ...]

    @classmethod
    def of(cls, checks: tuple[CheckResult, ...]) -> "Health":
        """Return the health with these results."""
        return cls(
            ready=not any(check.state is CheckState.FAILED for check in checks), checks=checks
        )


def ok(reason: str, *, kind: str = "") -> Finding:
    """Return a finding that all is well."""
    return Finding(CheckState.OK, reason, kind=kind)


def degraded(reason: str, next_step: str, *, kind: str = "") -> Finding:
    """Return a finding that fixes continue with less than was configured."""
    return Finding(CheckState.DEGRADED, reason, next_step, kind)


def failed(reason: str, next_step: str, *, kind: str = "") -> Finding:
    """Return a finding that no fix should begin."""
    return Finding(CheckState.FAILED, reason, next_step, kind)


def as_failed(error: FallbackError) -> Finding:
    """Return one of our errors as a finding."""
    return failed(error.problem, error.next_step, kind=error.kind)


@dataclass(frozen=True)
class Check:
    """A check. ``look`` returns its finding; it may raise FallbackError, and block."""

    name: str
    look: Callable[[], Finding]
    fresh_s: float = FRESH_S


@dataclass
class _Look:
    """One run of a check."""

    began: float
    thread: threading.Thread | None = None
    result: CheckResult | None = None
    ended: float = 0.0
    done: threading.Event = field(default_factory=threading.Event)


@dataclass(eq=False)
class Checks:
    """Runs checks on request, at most one run of each at a time. Thread-safe.

    ``timeout_s``: time limit for all of them together. A check that has not returned by then has failed; it
    continues in its thread, and no second run starts meanwhile.
    """

    checks: tuple[Check, ...]
    _: KW_ONLY
    timeout_s: float = CHECK_TIMEOUT_S
    clock: Callable[[], float] = time.monotonic
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)
    _looks: dict[str, _Look] = field(default_factory=dict, init=False)

    def run(self) -> Health:
        """Return the results of all checks, at most ``fresh_s`` old."""
        looks = {check.name: self._begin(check) for check in self.checks}
        until = time.monotonic() + self.timeout_s
        for look in looks.values():
            look.done.wait(max(0.0, until - time.monotonic()))
        return Health.of(tuple(self._results(looks)))

    def _begin(self, check: Check) -> _Look:
        with self._lock:
            look = self._looks.get(check.name)
            is_running = look is not None and look.result is None
            if look is not None and (is_running or self.clock() - look.ended < check.fresh_s):
                return look
            look = self._looks[check.name] = _Look(self.clock())
            look.thread = threading.Thread(target=self._look, args=(check, look), daemon=True)
            look.thread.start()
            return look

    def _look(self, check: Check, look: _Look) -> None:
        try:
            finding = check.look()
        except FallbackError as error:
            finding = as_failed(error)
        except Exception as error:  # noqa: BLE001 (a check that breaks is a finding)
            finding = _broke(error)
        duration_s = self.clock() - look.began
        look.ended = self.clock()
        look.result = CheckResult(
            check=check.name, duration_ms=round(duration_s * 1000), **finding._asdict()
        )
        look.done.set()

    def _results(self, looks: Mapping[str, _Look]) -> list[CheckResult]:
        return [look.result or self._late(name, look) for name, look in looks.items()]

    def _late(self, name: str, look: _Look) -> CheckResult:
        waited_s = self.clock() - look.began
        finding = failed(
            f"It has not answered for {waited_s:.1f} s; {self.timeout_s:g} s are waited for.",
            "Look for a disk, a server or a lock that hangs; the check goes on by itself.",
            kind="late",
        )
        return CheckResult(check=name, **finding._asdict())


def _broke(error: Exception) -> Finding:
    first_line = str(error).partition("\n")[0][:_QUOTED]
    if isinstance(error, OSError):
        return failed(
            f"{error.filename or 'The system'}: {error.strerror or first_line}.",
            "Check owner and mode of what it names, and its disk.",
        )
    return failed(
        f"A defect of the check itself: {type(error).__name__}: {first_line}.", "Report it, please."
    )
