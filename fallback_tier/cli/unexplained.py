"""Errors that nobody explained on their way: the system's own, and defects of ours."""

import os

from fallback_audit.disk_errors import failure_of
from fallback_audit.errors import DiskError, FallbackError
from fallback_tier.cli.output import notes_of
from fallback_tier.errors import place_of

#: In the environment: a defect is shown as Python shows it.
TRACEBACK = "FALLBACK_TIER_TRACEBACK"

#: Of a defect's own words (characters).
_QUOTED = 300


def explained(error: Exception) -> FallbackError:
    """What to tell of it. Raises the error itself where it is a defect and somebody looks for those."""
    is_the_systems = isinstance(error, OSError) or failure_of(error) is not None
    if not is_the_systems and os.environ.get(TRACEBACK):
        raise error
    reported = _system_error(error) if is_the_systems else _defect(error)
    for note in notes_of(error):
        reported.add_note(note)
    return reported


def _system_error(error: Exception) -> FallbackError:
    """A full disk, a missing permission: what the system said, about which path."""
    named = getattr(error, "filename", None)
    where = f"{named}: " if named else ""
    failure = failure_of(error)
    if failure is not None:
        next_step = f"The repository is as it was. {failure.next_step}"
        return DiskError(f"{where}{failure.meaning}.", next_step=next_step)
    return FallbackError(
        f"{where}{getattr(error, 'strerror', None) or error}.",
        next_step="The repository is as it was. Fix the path or its permission, then try again.",
    )


def _defect(error: Exception) -> FallbackError:
    """Said plainly, with its place."""
    first = str(error).partition("\n")[0][:_QUOTED]
    return FallbackError(
        f"A defect of fallback-tier itself: {place_of(error)}: {first}.",
        next_step=f"Report it, please, with the command; {TRACEBACK}=1 in the environment shows all of it.",
    )
