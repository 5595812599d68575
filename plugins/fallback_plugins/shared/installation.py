"""Which of a project's dependencies could be installed, why the others could not (ADR-0039), and the
versions of the programs that install and run it."""

import json
import platform
import sys
import sysconfig
from collections.abc import Collection
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from enum import StrEnum
from functools import lru_cache
from pathlib import Path

from fallback_tier.errors import ToolFailedError, ToolMissingError
from fallback_tier.execution import ClientRunner

#: What was installed is told beside what was installed.
RECORD = "fallback-tier-installed.json"

#: Reasons that a verdict repeats; the log has all of them.
_MAX_REPORTED = 3

#: How a reason begins that names what a step does not even try, and what is between two names.
LEFT_OUT = "left out: "
_BETWEEN = ", "

#: Names that a verdict repeats of such a reason.
_NAMED = 5


def left_out_reason(names: Collection[str]) -> str:
    """Return why a step leaves packages out on purpose. Every name: two trees are compared by it."""
    return LEFT_OUT + _BETWEEN.join(sorted(names))


def _shortened(reason: str) -> str:
    """Return the reason for a sentence: of what is left out, the first names."""
    names = reason.split(_BETWEEN)
    if not reason.startswith(LEFT_OUT) or len(names) <= _NAMED:
        return reason
    return f"{_BETWEEN.join(names[:_NAMED])} and {len(names) - _NAMED} more"


@dataclass(frozen=True)
class NotInstalled:
    """Nothing could be installed, so nothing ran. ``why``: the client's output, in a sentence."""

    why: str

    @property
    def sentence(self) -> str:
        """The reason for which a check of the project is skipped."""
        return f"the project's dependencies could not be installed: {self.why}"


class Level(StrEnum):
    """How much of what a project declares is there."""

    EVERYTHING = "everything"
    IN_PART = "in part"
    METADATA = "its metadata alone"


@dataclass(frozen=True)
class Installed:
    """What is installed. ``declined``: steps, files and lines that failed to install, and the client's
    output; ``how``: unusual ways (``on Python 3.10``); ``step``: the step of the ladder that served,
    with its flags (``npm ci --legacy-peer-deps``); ``built``: what was built from source, by name and
    version; ``unbuilt``: what failed to build, and why: its dependents are declined too, so this only
    explains; ``by_lock``: the client had the project's lock; ``beside``: what nothing declares and its code
    imports all the same, by name and version."""

    level: Level
    declined: tuple[tuple[str, str], ...] = ()
    how: tuple[str, ...] = ()
    step: str = ""
    built: tuple[str, ...] = ()
    unbuilt: tuple[tuple[str, str], ...] = ()
    by_lock: bool = False
    beside: tuple[str, ...] = ()

    @property
    def unusual(self) -> tuple[str, ...]:
        """How it was installed, as far as not in the usual way, in clauses."""
        built = f"built from source: {', '.join(self.built)}"
        return (*self.how, *([built] if self.built else []))

    @property
    def in_words(self) -> str:
        """One clause of a verdict: ``in part; not: coverage==5.0.4 (no wheel …)``."""
        level = ", ".join((self.level, *self.unusual))
        missing = (*self.unbuilt, *self.declined)
        if not missing:
            return level
        message = "; ".join(f"{what} ({_shortened(why)})" for what, why in missing[:_MAX_REPORTED])
        more = len(missing) - _MAX_REPORTED
        return f"{level}; not: {message}{f'; and {more} more' if more > 0 else ''}"

    @property
    def compared(self) -> str:
        """What two runs must share to be comparable: in full, where a sentence is shortened. What was built
        is not part of it (``otherwise_than``)."""
        return json.dumps((self.level, self.how, self.step, sorted(self.declined)))

    @property
    def absent(self) -> NotInstalled | None:
        """Why nothing can be run with it; None if something is installed."""
        return NotInstalled(self.in_words) if self.level is Level.METADATA else None

    @property
    def is_as_declared(self) -> bool:
        """Whether all of it is installed, in the usual way, so that there is nothing to report."""
        return not self.declined and not self.unbuilt and not self.unusual

    @property
    def in_full(self) -> str:
        """Each build, step, file or line that failed, and why, one per line."""
        return "\n".join(f"{what}: {why}" for what, why in (*self.unbuilt, *self.declined))

    def lacks_beside(self, base: "Installed") -> bool:
        """Return whether less is installed than of the base commit, by lines and by level."""
        order = list(Level)
        if order.index(self.level) != order.index(base.level):
            return order.index(self.level) > order.index(base.level)
        return bool({what for what, _ in self.declined} - {what for what, _ in base.declined})

    def otherwise_than(self, base: "Installed") -> str:
        """Return how this was installed, and how the base commit was, if that differs in anything but the
        texts; otherwise empty. Runs in the two can't be compared: the setting may be the cause.

        What was built is not a setting: one source gives both trees one wheel, and another release is made
        by the patch.
        """
        if (self.how, self.level, self.step) == (base.how, base.level, base.step):
            return ""
        reported = (
            ", ".join(filter(None, (one.level, one.step, *one.how))) for one in (self, base)
        )
        return "here {}; at the base commit {}".format(*reported)

    def keep(self, environment: Path) -> None:
        """Write the record next to what was installed."""
        text = json.dumps(asdict(self))
        (environment / RECORD).write_text(text, encoding="utf-8")

    @classmethod
    def kept(cls, environment: Path) -> "Installed":
        """Read the record there. A name may not be valid UTF-8: half of a surrogate pair.

        Raises OSError; ToolFailedError if it can't be read.
        """
        path = environment / RECORD
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
            declined = tuple((what, why) for what, why in found["declined"])
            unbuilt = tuple((what, why) for what, why in found.get("unbuilt", ()))
            how, step = tuple(found.get("how", ())), found.get("step", "")
            built = tuple(found.get("built", ()))
            by_lock = bool(found.get("by_lock", False))
            beside = tuple(found.get("beside", ()))
            return cls(Level(found["level"]), declined, how, step, built, unbuilt, by_lock, beside)
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise ToolFailedError(
                f"{path} does not tell what was installed ({type(error).__name__}).",
                next_step="Remove the entry's folder: what it held is installed again.",
                kind="bad_record",
            ) from error


#: Wall clock of a program that only says its version.
_TIMEOUT_S = 60.0


def today() -> str:
    """Return the day: unpinned packages are installed in the releases of the day."""
    return datetime.now(UTC).date().isoformat()


@lru_cache
def version_of(tool: str, clients: ClientRunner) -> str:
    """Return the tool's own version output, asked once per run. Raises ToolMissingError."""
    return clients.run(tool, ["--version"], cwd=Path("/"), timeout_s=_TIMEOUT_S).output.strip()


def this_python() -> tuple[str, ...]:
    """Return our interpreter, which environments are made with, and the machine that wheels must be for."""
    return sys.version, sysconfig.get_platform(), *platform.libc_ver()


def interpreters(clients: ClientRunner) -> str:
    """Return what every command in a sandbox finds in addition to what is installed: our Python, and node
    if there is one.

    A Python project's tests may run node, and a proof of an npm package's vulnerability Python.
    """
    try:
        node = version_of("node", clients)
    except ToolMissingError:
        node = "none"
    return f"Python {sys.version}, node {node}"
