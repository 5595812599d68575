"""Records of which dependencies of a project could be installed and why others could not (ADR-0039), and
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

#: File with the record of what was installed, next to it.
RECORD = "fallback-tier-installed.json"

#: Reasons that a verdict repeats; the log has all of them.
_MAX_REPORTED = 3

#: Prefix of a reason that lists what a step leaves out, and the separator of its names.
LEFT_OUT = "left out: "
_BETWEEN = ", "

#: Names that a verdict repeats of such a list.
_NAMED = 5


def left_out_reason(names: Collection[str]) -> str:
    """Return the reason of a step that leaves packages out on purpose. It has every name, as two trees are
    compared by it."""
    return LEFT_OUT + _BETWEEN.join(sorted(names))


def _shortened(reason: str) -> str:
    """Return a reason for a sentence: of what is left out, only the first names."""
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
    """How much of what a project declares is installed."""

    EVERYTHING = "everything"
    IN_PART = "in part"
    METADATA = "its metadata alone"


@dataclass(frozen=True)
class Installed:
    """What is installed. ``declined``: steps, files and lines that failed to install, and the client's
    output; ``how``: unusual ways (``on Python 3.10``); ``step``: the step of the ladder that served,
    with its flags (``npm ci --legacy-peer-deps``); ``built``: what was built from source, by name and
    version; ``unbuilt``: what failed to build, and why: its dependents are declined too, so this only
    explains; ``by_lock``: the client had the project's lock; ``beside``: packages that no file declares and
    the code imports anyway, by name and version."""

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
        """How it was installed, if not in the usual way, in clauses."""
        built = f"built from source: {', '.join(self.built)}"
        return (*self.how, *([built] if self.built else []))

    @property
    def in_words(self) -> str:
        """One clause of a verdict: ``in part; not: coverage==5.0.4 (no wheel …)``."""
        level = ", ".join((self.level, *self.unusual))
        missing = (*self.unbuilt, *self.declined)
        if not missing:
            return level
        reasons = "; ".join(f"{what} ({_shortened(why)})" for what, why in missing[:_MAX_REPORTED])
        more = len(missing) - _MAX_REPORTED
        return f"{level}; not: {reasons}{f'; and {more} more' if more > 0 else ''}"

    @property
    def compared(self) -> str:
        """A text that two runs must share to be comparable. It has all reasons in full, unlike a sentence.
        What was built is not part of it (``otherwise_than``)."""
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
        """Return how this was installed, and how the base commit was, if the ways, the level or the step
        differ; otherwise empty. Runs in the two can't be compared then: the setting may be the cause.

        What was built is not a setting: one source gives both trees one wheel, and another release is
        caused by the patch.
        """
        if (self.how, self.level, self.step) == (base.how, base.level, base.step):
            return ""
        settings = (
            ", ".join(filter(None, (installed.level, installed.step, *installed.how)))
            for installed in (self, base)
        )
        return "here {}; at the base commit {}".format(*settings)

    def keep(self, environment: Path) -> None:
        """Write the record next to what was installed."""
        text = json.dumps(asdict(self))
        (environment / RECORD).write_text(text, encoding="utf-8")

    @classmethod
    def kept(cls, environment: Path) -> "Installed":
        """Return the record in an environment. A name may not be valid UTF-8: half of a surrogate pair.

        Raises OSError; ToolFailedError if it can't be read.
        """
        path = environment / RECORD
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
            declined = tuple((what, why) for what, why in record["declined"])
            unbuilt = tuple((what, why) for what, why in record.get("unbuilt", ()))
            how, step = tuple(record.get("how", ())), record.get("step", "")
            built = tuple(record.get("built", ()))
            by_lock = bool(record.get("by_lock", False))
            beside = tuple(record.get("beside", ()))
            return cls(Level(record["level"]), declined, how, step, built, unbuilt, by_lock, beside)
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise ToolFailedError(
                f"{path} does not tell what was installed ({type(error).__name__}).",
                next_step="Remove the entry's folder: what it held is installed again.",
                kind="bad_record",
            ) from error


#: Time limit of a program that only prints its version.
_TIMEOUT_S = 60.0


def today() -> str:
    """Return the day (UTC): unpinned packages are installed in the releases of the day."""
    return datetime.now(UTC).date().isoformat()


@lru_cache
def version_of(tool: str, clients: ClientRunner) -> str:
    """Return the tool's version output, read once per run. Raises ToolMissingError."""
    return clients.run(tool, ["--version"], cwd=Path("/"), timeout_s=_TIMEOUT_S).output.strip()


def this_python() -> tuple[str, ...]:
    """Return our interpreter, with which environments are created, and the platform that wheels must
    fit."""
    return sys.version, sysconfig.get_platform(), *platform.libc_ver()


def interpreters(clients: ClientRunner) -> str:
    """Return the programs that every command in a sandbox finds in addition to what is installed: our
    Python, and node if there is one.

    A Python project's tests may run node, and a proof of an npm package's vulnerability Python.
    """
    try:
        node = version_of("node", clients)
    except ToolMissingError:
        node = "none"
    return f"Python {sys.version}, node {node}"
