"""One wheel of one archive of source, built in the sandbox of the gates (ADR-0090).

Outside of the sandbox the archive is bytes: held against its hash, and read for its ``pyproject.toml``.
What its build needs comes from wheels alone. It is unpacked and run inside, without a network; what it
leaves is untrusted: one regular file is taken, with the name of the wheel that was asked for, or nothing.
"""

import json
import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from time import monotonic
from typing import Any

from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import Version

from fallback_plugins.pypi.archives import MemberTooLargeError, fetched, member_text
from fallback_plugins.pypi.installing.client import NOT_COMPILED, run_uv
from fallback_plugins.pypi.installing.install import reason
from fallback_plugins.pypi.manifests import pythons
from fallback_plugins.pypi.manifests.groups import table_of, texts
from fallback_plugins.pypi.manifests.pyproject import parse_toml
from fallback_plugins.pypi.manifests.requirements_files import clean
from fallback_plugins.pypi.probes.build_probe import NEEDS
from fallback_plugins.pypi.probes.observed import source_of
from fallback_plugins.shared.gates import gating
from fallback_plugins.shared.installed import Installed, Level
from fallback_tier.errors import RecipeError, ToolFailedError
from fallback_tier.execution import CommandResult
from fallback_tier.gate_ports import GateContext

#: Wall clock of one build, both its runs together. What compiles for longer, a fix does not wait for.
BUILD_TIMEOUT_S = 180.0

#: … that is left for its second run where the first took nearly all of it.
_LEAST_S = 1.0

#: Of a wheel that was built: a compiled one with its debugging symbols is some 10 MB.
MAX_WHEEL_BYTES = 100 * 1024**2

#: Of what an archive says of its build, and of the list of what a build needs more.
MAX_SAYING_BYTES = 100_000

#: Of a backend's name and the folders that it lies in, written as JSON (characters). They are part of a
#: command, which no system starts with a word of more than 128 KiB.
MAX_BACKEND_CHARS = 1_000

#: Requirements of one build; those of the largest ones are about ten.
MAX_BUILD_REQUIREMENTS = 50

#: Without a word of its own, a source is built so (PEP 517, PEP 518).
_USUAL_BACKEND, _USUAL_NEEDS = "setuptools.build_meta:__legacy__", ("setuptools>=40.8.0", "wheel")

_BACKEND = re.compile(r"[A-Za-z_][\w.]*(?::[A-Za-z_][\w.]*)?", re.ASCII)
_FILE_NAME = re.compile(r"[\w.+!-]+\.whl", re.ASCII)
_ARCHIVES = (".tar.gz", ".zip")

#: 1980, the first year that a zip file can name: one source gives one wheel.
_SOURCE_DATE_EPOCH = "315532800"

_PATH = "/usr/local/bin:/usr/bin:/bin"


class NotBuiltError(ToolFailedError):
    """No wheel came of an archive; ``problem`` says why, in a few words."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem, next_step="Ask for a release that has a wheel.")


class NotHadError(NotBuiltError):
    """The registry gives no archive that is as its listing says, or not to us: the next time it will be
    the same, until the registry is another."""


@dataclass(frozen=True)
class SourceArchive:
    """A release's archive of source as the registry lists it. ``hash``: ``sha256:…``; ``registry``: the
    address of the one whose listing it is."""

    name: str
    version: str
    file: str
    hash: str
    url: str
    registry: str = ""

    @property
    def ending(self) -> str:
        """Of its file's name, by which it is unpacked; empty: it is no archive of source (PEP 625)."""
        return next((end for end in _ARCHIVES if self.file.endswith(end)), "")


@dataclass(frozen=True)
class BuildSystem:
    """How a source is built: what its build needs, who builds it, and where that lies in the source."""

    needs: tuple[str, ...] = _USUAL_NEEDS
    backend: str = _USUAL_BACKEND
    path: tuple[str, ...] = ()


@dataclass(frozen=True)
class WheelBuild:
    """``until``: the day of the releases that its build needs; empty: any."""

    context: GateContext
    archive: SourceArchive
    python: Path
    until: str

    def into(self, made: Path) -> Installed:
        """The wheel, put into a folder of ours.

        Raises NotBuiltError; NotHadError, which is one, where the registry gives no archive that is as
        listed; any other ToolFailedError where it does not answer; ToolMissingError, SandboxError.
        """
        content = fetched(self.archive.url, self.archive.hash) if self.archive.ending else None
        if content is None:
            raise NotHadError(
                "the registry gives no archive that is as its listing says (asked for over TLS,"
                " without credentials)"
            )
        system = build_system(content)
        with gating.scratch(self.context) as scratch:
            # What lies above has no say in what uv does here.
            (scratch / "uv.toml").write_text("", encoding="utf-8")
            name, wheel = self._built(content, system, scratch)
        (made / name).write_bytes(wheel)
        return Installed(Level.EVERYTHING)

    def _built(self, content: bytes, system: BuildSystem, scratch: Path) -> tuple[str, bytes]:
        self._uv(["venv", "--no-project", "--python", str(self.python), "environment"], scratch)
        self._install(system.needs, scratch, "its pyproject.toml")
        begun = monotonic()
        name, left = self._run(content, system, scratch, ask=True)
        spent = monotonic() - begun
        if name == NEEDS:  # by its own word it needs more than it declares (PEP 517)
            self._install(_needs_in(left), scratch, "its backend's own list")
            name, left = self._run(content, system, scratch, ask=False, spent_s=spent)
        check_name(name, self.archive)
        return name, left

    def _install(self, needs: Sequence[str], scratch: Path, where: str) -> None:
        """What a build needs, from wheels alone: nothing is built for a build. ``where``: what names it."""
        if len(needs) > MAX_BUILD_REQUIREMENTS:
            raise NotBuiltError(f"its build needs more than {MAX_BUILD_REQUIREMENTS} packages")
        try:
            lines = [clean(where, one) for one in needs]
        except RecipeError as error:
            raise NotBuiltError(f"what its build needs: {error.problem}") from error
        if lines:
            (scratch / "needs.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
            words = ["pip", "install", "--no-build", NOT_COMPILED, "-r", "needs.txt"]
            self._uv([*words, "--python", "environment/bin/python"], scratch)

    def _uv(self, arguments: Sequence[str], scratch: Path) -> None:
        done = run_uv(self.context, arguments, scratch, self.until)
        gating.check_reachable("uv", done)
        if not done.ok:
            raise NotBuiltError(f"what its build needs: {reason(done.output)}")

    def _run(
        self,
        content: bytes,
        system: BuildSystem,
        scratch: Path,
        *,
        ask: bool,
        spent_s: float = 0.0,
    ) -> tuple[str, bytes]:
        """The one file that a run of it left, in the sandbox."""
        work = scratch / ("asking" if ask else "building")
        (work / "made").mkdir(parents=True)
        archive = f"archive{self.archive.ending}"
        (work / archive).write_bytes(content)
        asked = {"archive": archive, "backend": system.backend, "path": system.path, "ask": ask}
        programs = scratch / "environment" / "bin"
        done = self.context.sandbox.run(
            [str(programs / "python"), "-I", "-c", source_of("build_probe"), json.dumps(asked)],
            worktree=work,
            timeout_s=max(min(self.context.timeout_s, BUILD_TIMEOUT_S) - spent_s, _LEAST_S),
            env={"PATH": f"{programs}:{_PATH}", "SOURCE_DATE_EPOCH": _SOURCE_DATE_EPOCH},
            readable=[
                programs.parent,
                *pythons.readable(programs.parent),
                *pythons.headers(programs.parent),
            ],
        )
        if not done.ok:
            raise NotBuiltError(_failure(done, work))
        return only_file(work / "made", MAX_WHEEL_BYTES)


def build_system(content: bytes) -> BuildSystem:
    """What the archive's own pyproject.toml says of its build. Raises NotBuiltError."""
    try:
        text = member_text(content, _is_its_own, MAX_SAYING_BYTES)
    except MemberTooLargeError as error:
        raise NotBuiltError("its pyproject.toml is too large") from error
    if text is None:
        return BuildSystem()
    try:
        table: Mapping[str, Any] = table_of(parse_toml("pyproject.toml", text), "build-system")
    except RecipeError as error:
        raise NotBuiltError("its pyproject.toml can't be read") from error
    if "requires" not in table:
        return BuildSystem()
    backend = str(table.get("build-backend", _USUAL_BACKEND))
    if _BACKEND.fullmatch(backend) is None:
        raise NotBuiltError("its build backend has no name that Python knows")
    needs, path = tuple(texts(table["requires"])), tuple(texts(table.get("backend-path")))
    if len(json.dumps((backend, path))) > MAX_BACKEND_CHARS:
        raise NotBuiltError(
            f"its build backend and where that lies have more than {MAX_BACKEND_CHARS:,} characters"
        )
    return BuildSystem(needs, backend, path)


def _is_its_own(name: str) -> bool:
    return re.fullmatch(r"[^/]+/pyproject\.toml", name) is not None


def only_file(folder: Path, most: int) -> tuple[str, bytes]:
    """Name and content of the one file that a run left there. Nothing is followed, and of anything but
    one regular file of at most ``most`` bytes nothing is read. Raises NotBuiltError."""
    try:
        with _opened(folder) as place:
            with os.scandir(place) as entries:
                names = [entry.name for entry in islice(entries, 2)]
            if len(names) != 1:
                raise NotBuiltError("its build left no single wheel")
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            with os.fdopen(os.open(names[0], flags, dir_fd=place), "rb") as file:
                found = os.fstat(file.fileno())
                if not stat.S_ISREG(found.st_mode):
                    raise NotBuiltError("its build left something that is no file")
                if found.st_size > most:
                    raise NotBuiltError(f"its wheel has more than {most:,} bytes")
                return names[0], file.read(most)
    except OSError as error:
        raise NotBuiltError(f"its build left no readable file ({error.strerror})") from error


@contextmanager
def _opened(folder: Path) -> Iterator[int]:
    place = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        yield place
    finally:
        os.close(place)


def check_name(file: str, archive: SourceArchive) -> None:
    """Is it a wheel of that release, by its name? Raises NotBuiltError."""
    try:
        name, version, _, _ = parse_wheel_filename(file)
    except InvalidWheelFilename:
        name, version = canonicalize_name(""), Version("0")
    is_it = name == canonicalize_name(archive.name) and version == Version(archive.version)
    if not is_it or _FILE_NAME.fullmatch(file) is None:
        raise NotBuiltError(f"its build left another file than its wheel: {file[:80]!a}")


def _failure(done: CommandResult, work: Path) -> str:
    if done.timed_out:
        return "its build did not end in time"
    log = gating.relative_log(done, work)
    # What a compiler misses stands above the command that it is called by.
    first = next((line for line in log.splitlines() if " error: " in f" {line}"), log)
    return f"its build failed: {gating.in_short(first)}"


def _needs_in(left: bytes) -> list[str]:
    with suppress(ValueError, RecursionError):
        found = json.loads(left) if len(left) <= MAX_SAYING_BYTES else None
        if isinstance(found, list) and all(isinstance(one, str) for one in found):
            return found
    raise NotBuiltError("it does not say what its build needs")
