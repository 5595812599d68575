"""What the registry has of one package, asked through uv: its releases, files, hashes, metadata.

Only uv speaks to the registry. The listing of a release is uv's own scratch lock of that one package,
with static (empty) metadata in place of its requirements, so that nothing is resolved and nothing built.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from email.parser import HeaderParser
from functools import cached_property
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import unquote, urlsplit

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename

from fallback_audit.vocabulary import BlockerKind
from fallback_plugins.pypi.manifests.pyproject import parse_toml
from fallback_plugins.pypi.resolving.uv_client import (
    UvClient,
    UvRefusedError,
    Wanted,
    own_words,
    resolver_failed,
    run_uv,
)
from fallback_plugins.shared.ladder import refused_for
from fallback_plugins.shared.scratch import scratch_folder
from fallback_tier.execution import ClientRunner
from fallback_tier.outcome import Blocker

#: What stands where a package doesn't say which Pythons it supports.
OLDEST_PYTHON = "2.7"

#: The platforms whose wheels are looked into for metadata, by what their tags contain.
_PLATFORMS = (
    ("manylinux", "x86_64", "x86_64-manylinux_2_40"),
    ("manylinux", "aarch64", "aarch64-manylinux_2_40"),
    ("musllinux", "x86_64", "x86_64-unknown-linux-musl"),
    ("win_amd64", "", "x86_64-pc-windows-msvc"),
    ("macosx", "arm64", "aarch64-apple-darwin"),
    ("macosx", "x86_64", "x86_64-apple-darwin"),
)
#: How much of a question a message repeats.
_MAX_ASKED = 100

_ANY_PLATFORM = _PLATFORMS[0][2]


@dataclass(frozen=True)
class ReleaseFile:
    """A file of a release: its name, its hash (``sha256:…``), and where the registry has it."""

    name: str
    hash: str
    url: str = ""


@dataclass(frozen=True)
class Release:
    """One version as the registry has it. ``files`` as uv lists them for the Pythons asked about."""

    name: str
    version: str
    files: tuple[ReleaseFile, ...]


@dataclass(frozen=True)
class Metadata:
    """The core metadata of a wheel or a source archive, as its text."""

    text: str

    @cached_property
    def _headers(self) -> Any:
        return HeaderParser().parsestr(self.text)

    @property
    def summary(self) -> str:
        """The one-line description; empty where there is none."""
        value = self._headers.get("Summary", "")
        return "" if value == "UNKNOWN" else str(value)

    @property
    def requires_python(self) -> str:
        """As written; empty where the package doesn't say."""
        return str(self._headers.get("Requires-Python", ""))

    @property
    def lists_requirements(self) -> bool:
        """Return whether a source archive's metadata has all that a build would (PEP 643)."""
        version = str(self._headers.get("Metadata-Version", "")).partition(".")
        is_new = all(it.isdigit() for it in version[::2]) and (
            int(version[0]),
            int(version[2]),
        ) >= (2, 2)
        dynamic = {str(it).strip().lower() for it in self._headers.get_all("Dynamic", ())}
        return is_new and dynamic.isdisjoint({"requires-dist", "provides-extra"})

    @cached_property
    def requirements(self) -> tuple[Requirement, ...]:
        """What it requires, extras' requirements too, in its order. Raises RecipeError."""
        try:
            return tuple(Requirement(it) for it in self._headers.get_all("Requires-Dist", ()))
        except InvalidRequirement as error:
            raise resolver_failed(f"A requirement can't be read: {error}.") from error

    @property
    def extras(self) -> tuple[str, ...]:
        """Extras it provides, in its order."""
        return tuple(str(extra) for extra in self._headers.get_all("Provides-Extra", ()))


class PackageIndex:
    """Asks the registry what a package has. Every method raises RecipeError, ToolMissingError."""

    def __init__(self, clients: ClientRunner, ages: Sequence[str] = ()) -> None:
        """``ages``: rules on the age of releases, as options of uv."""
        self._clients = clients
        self._ages = ages

    def lowest(self, package: str, specifier: str, python: str) -> Release:
        """The lowest release that the specifier admits; not yanked, unless it is pinned by ``==``.

        ``python``: the lowest Python (``3.9``) that it must support.
        """
        return self._release(package, specifier, python, "--resolution=lowest-direct")

    def highest(self, package: str, specifier: str, python: str) -> Release:
        """As ``lowest``, the highest."""
        return self._release(package, specifier, python, "--resolution=highest")

    def _release(self, package: str, specifier: str, python: str, option: str) -> Release:
        wanted = Wanted((package + specifier,))
        for table in self._resolve(wanted, python, alone=[package], options=[option]):
            if table["name"] == canonicalize_name(package):
                return Release(table["name"], table["version"], tuple(_files(table)))
        raise resolver_failed(f"uv locked no {package}{specifier}.")

    def lowest_with(self, wanted: str, constraint: str, python: str) -> dict[str, str]:
        """The versions that uv takes where ``wanted`` is as low as ``constraint`` lets it be."""
        tables = self._resolve(Wanted((wanted,), (constraint,)), python)
        found = {table["name"]: table["version"] for table in tables}
        if canonicalize_name(Requirement(wanted).name) not in found:
            raise resolver_failed(
                f"uv locked no {wanted[:_MAX_ASKED]} for any Python of the project."
            )
        return found

    def joined(
        self,
        requirements: Sequence[str],
        constraints: Sequence[str],
        python: str,
        *,
        without: Sequence[str] = (),
    ) -> dict[str, str]:
        """The versions that a set becomes as its clients choose: the highest, one for every platform.

        A package that has to be there in several versions is left out. ``without``: packages that are not
        looked at, whoever asks for them.
        """
        nowhere = tuple(f"{name}; python_version < '0'" for name in without)
        wanted = Wanted(tuple(requirements), tuple(constraints), nowhere)
        highest = ("--resolution=highest", "--fork-strategy=fewest")
        tables = self._resolve(wanted, python, options=highest)
        names = [table["name"] for table in tables]
        return {it["name"]: it["version"] for it in tables if names.count(it["name"]) == 1}

    def resolved(self, requirements: Sequence[str], python: str) -> dict[str, str]:
        """The versions that a set of requirements becomes, for every platform."""
        tables = self._resolve(Wanted(tuple(requirements)), python)
        return {table["name"]: table["version"] for table in tables}

    def _resolve(
        self,
        wanted: Wanted,
        python: str,
        *,
        alone: Sequence[str] = (),
        options: Sequence[str] = ("--resolution=lowest-direct",),
    ) -> Sequence[Mapping[str, Any]]:
        """The packages of a scratch lock. ``alone``: the one package, without what it requires."""
        client = UvClient(self._clients, python)
        try:
            text = client.lock(wanted, *options, *self._ages, alone=alone).text
        except UvRefusedError as error:
            if not (self._ages and error.found_no_solution):
                raise
            # What is locked already may be too new itself.
            text = client.lock(wanted, *options, alone=alone).text
        lock = parse_toml("uv.lock", text)
        packages: Sequence[Mapping[str, Any]] = lock.get("package", ())
        return packages

    def release(self, package: str, version: str, python: str) -> tuple[Release, Metadata]:
        """A release with every file that supports a Python which the package itself supports.

        ``python``: the lowest Python of the project. Raises RecipeError where there is no wheel to read
        the metadata from: only a build could tell it.
        """
        pin = f"=={version}"
        found = self.lowest(package, pin, python)
        metadata = self.metadata(found, python)
        lowest = lowest_python(metadata.requires_python)
        if lowest != python:
            found = self.lowest(package, pin, lowest)
        return found, metadata

    def metadata(self, release: Release, python: str) -> Metadata:
        """A release's own metadata, from a wheel that is unpacked in a scratch folder (never run)."""
        chosen = _python_and_platform(release, python)
        if chosen is None:
            label = f"{release.name} {release.version}"
            raise refused_for(Blocker(kind=BlockerKind.NOT_BUILT, package=label))
        python, platform = chosen
        with scratch_folder("uv") as folder:
            options = ["--no-deps", "--no-build", "--no-compile-bytecode"]
            options += ["--target", str(folder / "wheel")]
            options += [f"--python-version={python}", f"--python-platform={platform}"]
            pin = f"{release.name}=={release.version}"
            result = run_uv(self._clients, folder, ["pip", "install", *options, pin])
            texts = [path for path in folder.glob("wheel/*.dist-info/METADATA") if path.is_file()]
            if not result.ok or len(texts) != 1:
                head = f"uv could not fetch {release.name} {release.version}"
                words = own_words(result.output, folder)
                raise UvRefusedError(head, result.output, result.refused_hosts, words=words)
            return Metadata(texts[0].read_text(encoding="utf-8", errors="replace"))


def lowest_python(specifier: str) -> str:
    """The lowest Python (``3.9``) that a PEP 440 specifier names; OLDEST_PYTHON where it names none."""
    try:
        clauses = SpecifierSet(specifier)
    except InvalidSpecifier:
        return OLDEST_PYTHON
    floors = [
        clause.version.removesuffix(".*")
        for clause in clauses
        if clause.operator in {">=", ">", "~=", "=="}
    ]
    numbers = [
        tuple(map(int, floor.split("."))) for floor in floors if floor.replace(".", "").isdigit()
    ]
    return ".".join(map(str, max(numbers))) if numbers else OLDEST_PYTHON


def file_name(url: str) -> str:
    """The file's name in its address."""
    return unquote(PurePosixPath(urlsplit(url).path).name)


def _files(table: Any) -> Iterator[ReleaseFile]:
    for entry in (*table.get("wheels", ()), *filter(None, [table.get("sdist")])):
        address = entry.get("url") or entry.get("path") or ""
        yield ReleaseFile(file_name(address), entry.get("hash", ""), address)


def _python_and_platform(release: Release, python: str) -> tuple[str, str] | None:
    """For which Python and platform uv is to choose a wheel: one that the release has."""
    best: tuple[str, str] | None = None
    for file in release.files:
        try:
            tags = parse_wheel_filename(file.name)[3]
        except InvalidWheelFilename:
            continue
        for tag in tags:
            if tag.platform == "any" and tag.interpreter.startswith("py"):
                return _installable(python, tag.interpreter), _ANY_PLATFORM
            if not tag.interpreter.startswith("cp"):
                continue
            asked = _installable(python, tag.interpreter, exact=tag.abi != "abi3")
            for part, machine, platform in _PLATFORMS:
                if part in tag.platform and machine in tag.platform and best is None:
                    best = (asked, platform)
    return best


def _installable(python: str, interpreter: str, *, exact: bool = False) -> str:
    """The Python to ask for: the project's lowest, or the one that the wheel is for."""
    number = interpreter[2:]
    tagged = f"{number[0]}.{number[1:]}" if len(number) > 1 else f"{number or 3}.0"
    if exact:
        return tagged
    # uv supports no Python below this.
    candidates = [python, tagged, "3.6"]
    return max(candidates, key=lambda it: tuple(map(int, it.split("."))))
