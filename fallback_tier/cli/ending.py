"""The end of a failed or interrupted command: the error that is printed, and the exit code."""

import os
import sys
from contextlib import suppress

from fallback_audit.disk_errors import failure_of
from fallback_audit.errors import AuditIntegrityError, DiskError, RequestError
from fallback_tier.cli.exit_codes import (
    BAD_INPUT,
    ENVIRONMENT,
    INTERRUPTED,
    OK,
    TERMINATED,
    TERMINATION,
    TRAIL_BROKEN,
)
from fallback_tier.cli.output import notes_of, print_error, print_error_json
from fallback_tier.cli.suggesting import completed
from fallback_tier.errors import FallbackError, InputError, SettingMissingError, place_of

#: Environment variable: if it is set, a defect is shown as Python shows it.
TRACEBACK = "FALLBACK_TIER_TRACEBACK"

#: Most characters of a defect's own message.
_QUOTED = 300


def ended(error: BaseException, *, as_json: bool, resumes: bool = False) -> int:
    """Print the error, and return the exit code. Raises it again if it is neither an interruption nor an
    Exception.

    ``resumes``: the command was to continue a fix on record. A missing setting is then the environment's:
    the fix stays as it is, and can be resumed.
    """
    if isinstance(error, BrokenPipeError):
        _let_go_of_output()  # the reader (head, less) has gone: stop quietly
        return OK
    if isinstance(error, KeyboardInterrupt):
        code = code_of(error)
        what = "terminated" if code == TERMINATED else "interrupted"
        sys.stderr.write(f"\n{what}; the repository is as it was\n")
        sys.stderr.writelines(f"  next: {completed(note)}\n" for note in notes_of(error))
        return code
    if not isinstance(error, Exception):
        raise error
    known_error = explained(error)
    _tell(known_error, as_json=as_json)
    if isinstance(known_error, AuditIntegrityError):
        return TRAIL_BROKEN
    if resumes and isinstance(known_error, SettingMissingError):
        return ENVIRONMENT
    return BAD_INPUT if isinstance(known_error, InputError | RequestError) else ENVIRONMENT


def code_of(interrupt: KeyboardInterrupt) -> int:
    """Return the exit code of a command that a signal ended."""
    return TERMINATED if interrupt.args == (TERMINATION,) else INTERRUPTED


def _tell(error: FallbackError, *, as_json: bool) -> None:
    """Print an error on standard error. If that or standard output fails, only the exit code reports it."""
    try:
        sys.stdout.flush()
        if as_json:
            print_error_json(error)
            sys.stdout.flush()
    except OSError:
        _let_go_of_output()
    with suppress(OSError):
        print_error(error)


def _let_go_of_output() -> None:
    """Keep Python from complaining, at exit, of output that no reader takes, or no disk."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def explained(error: Exception) -> FallbackError:
    """Return the error, an unexpected one as a FallbackError: the system's, or a defect. Raises the defect
    itself if ``TRACEBACK`` is set."""
    if isinstance(error, FallbackError):
        return error
    is_the_systems = isinstance(error, OSError) or failure_of(error) is not None
    if not is_the_systems and os.environ.get(TRACEBACK):
        raise error
    known_error = _system_error(error) if is_the_systems else _defect(error)
    for note in notes_of(error):
        known_error.add_note(note)
    return known_error


def _system_error(error: Exception) -> FallbackError:
    """Return the error of a full disk or a missing permission: the system's message, and the path."""
    path = getattr(error, "filename", None)
    where = f"{path}: " if path else ""
    failure = failure_of(error)
    if failure is not None:
        next_step = f"The repository is as it was. {failure.next_step}"
        return DiskError(f"{where}{failure.meaning}.", next_step=next_step)
    return FallbackError(
        f"{where}{getattr(error, 'strerror', None) or error}.",
        next_step="The repository is as it was. Fix the path or its permission, then try again.",
    )


def _defect(error: Exception) -> FallbackError:
    first_line = str(error).partition("\n")[0][:_QUOTED]
    return FallbackError(
        f"A defect of fallback-tier itself: {place_of(error)}: {first_line}.",
        next_step=f"Report it, please, with the command; {TRACEBACK}=1 in the environment shows all of it.",
    )
