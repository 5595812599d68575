"""Reasons why a worker gave up, for later queries about its fix."""

import signal
from pathlib import Path

from fallback_audit.errors import AuditStoreError, DiskError, OvertakenError
from fallback_audit.frozen import Frozen
from fallback_tier.errors import FallbackError, HeldError, StateFolderError

#: Code of a fix that took too long.
TIME_LIMIT = "time_limit"

#: Codes of temporary problems that are not the fix's fault: a store or a disk that is unavailable or full,
#: another process that has the fix or took it over. They end by themselves, or an administrator ends them.
#: Such a fix is retried without a limit.
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

#: Characters of a defect's own message in a problem.
_QUOTED = 300


class Problem(Frozen):
    """Why a worker gave up: an error's code, its sentence, and what can be done."""

    code: str
    problem: str
    next_step: str


#: A fix whose worker died this often is not restarted automatically: the fix may be what kills it.
MAX_TAKES = 5

#: Default time limit of a fix (seconds): gates have their own time limits, and there are many.
FIX_SECONDS = 4 * 3_600.0

#: Largest time limit that a campaign may set (seconds).
MAX_FIX_S = 7 * 86_400.0


def took_too_long(limit_s: float, resume: str) -> Problem:
    """Return the problem of a fix that was ended by its time limit. ``resume``: how it is continued, as
    a clause.
    """
    return Problem(
        code=TIME_LIMIT,
        problem=f"The fix took longer than {limit_s:,.0f} seconds (limits.fix_s).",
        next_step=f"Raise the limit, then {resume}: what is on record is not run again.",
    )


def not_started(error: OSError, resume: str) -> Problem:
    """Return the problem of a fix whose worker could not be started."""
    return Problem(
        code="worker",
        problem=f"No worker could be started: {error.strerror}.",
        next_step=f"See the system's limits on processes and memory, then {resume}.",
    )


def without_a_word(code: int, log: Path, resume: str) -> Problem:
    """Return the problem of a worker that ended without a status. ``code``: as in ``subprocess``."""
    ending = signal.Signals(-code).name if code < 0 else f"exit code {code}"
    return Problem(
        code="worker",
        problem=f"The worker ended without a word ({ending}).",
        next_step=f"See what it wrote in {log}, then {resume}.",
    )


def problem_of(error: FallbackError) -> Problem:
    """Return the problem of one of our errors."""
    return Problem(code=error.code, problem=error.problem, next_step=error.next_step)


def defect(error: BaseException) -> Problem:
    """Return the problem of an unexpected error."""
    first_line = str(error).partition("\n")[0][:_QUOTED]
    return Problem(
        code="defect",
        problem=f"The worker broke: {type(error).__name__}: {first_line}",
        next_step="Its log in the state folder has the traceback; it can be resumed.",
    )
