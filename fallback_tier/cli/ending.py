"""How a command ends that did not come to its end: what is said, and with which exit code."""

import os
import sys
from contextlib import suppress

from fallback_audit.errors import AuditIntegrityError, RequestError
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
from fallback_tier.cli.unexplained import explained
from fallback_tier.errors import FallbackError, InputError, SettingMissingError


def ended(error: BaseException, *, as_json: bool, resumes: bool = False) -> int:
    """Print the error, and return the exit code. Raises it again if it is none of ours and no exception.

    ``resumes``: the command was to continue a fix on record. A missing setting is then the environment's:
    the fix stays as it is, and can be resumed.
    """
    if isinstance(error, BrokenPipeError):
        _let_go_of_output()  # the reader (head, less) has gone: stop quietly
        return OK
    if isinstance(error, KeyboardInterrupt):
        is_terminated = error.args == (TERMINATION,)
        what = "terminated" if is_terminated else "interrupted"
        sys.stderr.write(f"\n{what}; the repository is as it was\n")
        sys.stderr.writelines(f"  next: {completed(note)}\n" for note in notes_of(error))
        return TERMINATED if is_terminated else INTERRUPTED
    if not isinstance(error, Exception):
        raise error
    reported = error if isinstance(error, FallbackError) else explained(error)
    _tell(reported, as_json=as_json)
    if isinstance(reported, AuditIntegrityError):
        return TRAIL_BROKEN
    if resumes and isinstance(reported, SettingMissingError):
        return ENVIRONMENT
    return BAD_INPUT if isinstance(reported, InputError | RequestError) else ENVIRONMENT


def _tell(error: FallbackError, *, as_json: bool) -> None:
    """On standard error; it, or standard output, may be what fails: the exit code is left to say it."""
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
    """Keep Python from complaining at exit of what nobody reads, or no disk takes."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
