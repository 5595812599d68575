"""Commands that messages suggest, completed with the locations of this process: they work when pasted.

A message below the command line names a command alone, as `` `fallback-tier resume FIX` ``: it is recorded
too, and the audit trail must not depend on the machine. The code that prints the message knows the
locations.
"""

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from fallback_tier.errors import StateFolderError
from fallback_tier.files.folders import users_folder
from fallback_tier.wiring.trail import RecordSettings, location_options

_STATE = ("--state-dir",)
_RECORD = ("--state-dir", "--audit-store", "--checkpoints", "--keys")
_FLEET = ("--state-dir", "--audit-store", "--fleet-store")

#: Location options by command; the longest beginning counts. A test compares them with the parsers.
TAKES: Mapping[str, tuple[str, ...]] = {
    "fix": _RECORD,
    "resume": _RECORD,
    "abandon": _RECORD,
    "plan": _STATE,
    "scan": _RECORD,
    "attempt": _RECORD,
    "audit": _RECORD,
    "review": _RECORD,
    "health": _RECORD,
    "doctor": _RECORD,
    "serve": _RECORD,
    "mcp": _RECORD,
    "cache": _STATE,
    "keys": _STATE,
    "fleet": _FLEET,
    "fleet run": (*_RECORD, "--fleet-store"),
    "fleet dev": _STATE,
    "fleet example": (),
    "worker": (*_RECORD, "--fleet-store"),
    "examples": ("--store",),
    "examples harvest": (*_RECORD, "--store"),
    "examples influenced": (*_RECORD, "--store"),
}

#: Named alone, these are the subject of a sentence, not a command to run.
_NOT_ALONE = frozenset(
    {"fix", "plan", "resume", "abandon", "attempt", "audit", "review", "fleet", "keys", "examples"}
)

_PROGRAM = "fallback-tier"
_SUGGESTED = re.compile(rf"`({_PROGRAM} [^`\n]+)`")


def locations(state_dir: Path, record: RecordSettings) -> dict[str, str]:
    """Return the location options of a process that are not the default: option and quoted value."""
    options = location_options(state_dir, record)
    try:
        is_default = state_dir == users_folder("state")
    except StateFolderError:
        is_default = False
    if is_default:
        del options["--state-dir"]
    return options


def command(suggestion: str, options: Mapping[str, str]) -> str:
    """Return a suggested command with those of the options that it takes and does not have."""
    arguments = suggestion.split()[1:]
    if (
        not arguments
        or "--help" in arguments
        or (len(arguments) == 1 and arguments[0] in _NOT_ALONE)
    ):
        return suggestion
    takes = TAKES.get(" ".join(arguments[:2]), TAKES.get(arguments[0], ()))
    more = [
        f"{name} {options[name]}" for name in takes if name in options and name not in arguments
    ]
    return " ".join([suggestion, *more])


def completed(
    text: str, options: Mapping[str, str], escape: Callable[[str], str] = lambda text: text
) -> str:
    """Return a text with each command between backticks completed. ``escape``: applied to what is added."""
    escaped = {name: escape(value) for name, value in options.items()}
    return _SUGGESTED.sub(lambda match: f"`{command(match[1], escaped)}`", text)
