"""Why a worker gave up, for whoever asks about its fix later."""

import signal
from pathlib import Path

from fallback_audit.errors import AuditStoreError, DiskError, OvertakenError
from fallback_audit.frozen import Frozen
from fallback_tier.errors import FallbackError, HeldError, StateFolderError

#: The code of a fix that took too long.
TIME_LIMIT = "time_limit"

#: Codes of what passes by itself or by an administrator's hand, and is not the fix's fault: a store or a
#: disk that is away or full, another process that has the fix or took it over. Such a fix is tried again,
#: without an end.
PASSING = frozenset(
    {
        AuditStoreError.code,
        DiskError.code,
        "fleet_store",
        HeldError.code,
        OvertakenError.code,
        StateFolderError.code,
    }
)

#: A defect's own words in a problem (characters).
_QUOTED = 300


class Problem(Frozen):
    """Why a worker gave up: an error's code, its sentence, and what can be done."""

    code: str
    problem: str
    next_step: str


#: A fix whose worker died this often is not started again by itself: it may be what kills it.
MAX_TAKES = 5

#: The longest that a fix may take by default: gates have time limits of their own, and there are many.
FIX_SECONDS = 4 * 3_600.0

#: What a campaign may raise that to.
MAX_FIX_S = 7 * 86_400.0


def took_too_long(limit_s: float, resume: str) -> Problem:
    """Why a fix was ended. ``resume``: how it continues, as a clause."""
    return Problem(
        code=TIME_LIMIT,
        problem=f"The fix took longer than {limit_s:,.0f} seconds (limits.fix_s).",
        next_step=f"Raise the limit, then {resume}: what is on record is not run again.",
    )


def not_started(error: OSError, resume: str) -> Problem:
    """Why a fix has no worker."""
    return Problem(
        code="worker",
        problem=f"No worker could be started: {error.strerror}.",
        next_step=f"See the system's limits on processes and memory, then {resume}.",
    )


def without_a_word(code: int, log: Path, resume: str) -> Problem:
    """How a worker ended that has not said so. ``code``: as ``subprocess`` has it."""
    how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
    return Problem(
        code="worker",
        problem=f"The worker ended without a word ({how}).",
        next_step=f"See what it wrote in {log}, then {resume}.",
    )


def problem_of(error: FallbackError) -> Problem:
    """An error of ours as it is told."""
    return Problem(code=error.code, problem=error.problem, next_step=error.next_step)


def defect(error: BaseException) -> Problem:
    """What nobody explained, said plainly."""
    first = str(error).partition("\n")[0][:_QUOTED]
    return Problem(
        code="defect",
        problem=f"The worker broke: {type(error).__name__}: {first}",
        next_step="Its log in the state folder has the traceback; it can be resumed.",
    )
