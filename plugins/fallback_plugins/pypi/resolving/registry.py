"""The registry's releases of a package: files, hashes and metadata, and the version to raise it to.

The listing of a release is uv's own scratch lock of that one package, with static (empty) metadata in
place of its requirements, so that nothing is resolved and nothing built.

A release without a wheel is found on the registry's page, and its archive is read for what it requires;
nothing in it is run. setuptools writes what setup.py computed into ``requires.txt`` when the archive is
made; others write it into the metadata. distutils writes nothing: its setup.py is read, if it computes
nothing.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.parser import HeaderParser
from functools import cached_property
from html.parser import HTMLParser
from typing import Any
from urllib.parse import urljoin, urlsplit

from packaging.markers import InvalidMarker, Marker
from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    canonicalize_name,
    parse_sdist_filename,
    parse_wheel_filename,
)

from fallback_audit.vocabulary import BlockerKind, RefusalReason
from fallback_plugins.pypi.archives import (
    MemberTooLargeError,
    fetched,
    file_name,
    member_text,
    page,
)
from fallback_plugins.pypi.manifests.metadata import REQUIRES, setup_call
from fallback_plugins.pypi.manifests.pyproject import parse_toml, tables, texts
from fallback_plugins.pypi.manifests.requirements import at_least, requirement_in
from fallback_plugins.pypi.resolving.uv_client import (
    UvClient,
    UvRefusedError,
    Wanted,
    own_words,
    resolver_failed,
    run_uv,
)
from fallback_plugins.pypi.surveying.survey import ECOSYSTEM, highest_named
from fallback_plugins.shared.ages import Ages
from fallback_plugins.shared.bumping import Terms, unsupported
from fallback_plugins.shared.ladder import refused_for
from fallback_plugins.shared.scratch import scratch_folder
from fallback_tier.advisory import Advisory, compare_versions, fixed_versions, is_affected
from fallback_tier.advisory.versions import is_orderable, is_prerelease
from fallback_tier.errors import RecipeError, ToolError
from fallback_tier.execution import ClientRunner
from fallback_tier.outcome import Blocker
from fallback_tier.repo import RepoContext

#: The lowest Python of a package that doesn't say which it supports.
OLDEST_PYTHON = "2.7"

#: The platforms whose wheels are read for metadata: a part of their tags, the machine in it, uv's name.
_PLATFORMS = (
    ("manylinux", "x86_64", "x86_64-manylinux_2_40"),
    ("manylinux", "aarch64", "aarch64-manylinux_2_40"),
    ("musllinux", "x86_64", "x86_64-unknown-linux-musl"),
    ("win_amd64", "", "x86_64-pc-windows-msvc"),
    ("macosx", "arm64", "aarch64-apple-darwin"),
    ("macosx", "x86_64", "x86_64-apple-darwin"),
)
#: The most characters of a requirement that a message repeats.
_MAX_ASKED = 100

_ANY_PLATFORM = _PLATFORMS[0][2]


@dataclass(frozen=True)
class ReleaseFile:
    """A file of a release: its name, its hash (``sha256:…``), and its URL or path in the registry."""

    name: str
    hash: str
    url: str = ""


@dataclass(frozen=True)
class Release:
    """One version in the registry. ``files`` as uv lists them for the requested Pythons."""

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
        """Return the one-line description; empty if there is none."""
        value = self._headers.get("Summary", "")
        return "" if value == "UNKNOWN" else str(value)

    @property
    def requires_python(self) -> str:
        """Return the specifier as written; empty if the package states none."""
        return str(self._headers.get("Requires-Python", ""))

    @property
    def lists_requirements(self) -> bool:
        """Return whether a source archive's metadata has all that a build would (PEP 643)."""
        major, _, minor = str(self._headers.get("Metadata-Version", "")).partition(".")
        numbers = (int(major), int(minor)) if major.isdigit() and minor.isdigit() else (0, 0)
        dynamic = {
            str(field_name).strip().lower() for field_name in self._headers.get_all("Dynamic", ())
        }
        return numbers >= (2, 2) and dynamic.isdisjoint({"requires-dist", "provides-extra"})

    @cached_property
    def requirements(self) -> tuple[Requirement, ...]:
        """Return the requirements, with those of extras, in the metadata's order. Raises RecipeError."""
        try:
            return tuple(Requirement(line) for line in self._headers.get_all("Requires-Dist", ()))
        except InvalidRequirement as error:
            raise resolver_failed(f"A requirement can't be read: {error}.") from error

    @property
    def extras(self) -> tuple[str, ...]:
        """Return the extras that the package provides, in the metadata's order."""
        return tuple(str(extra) for extra in self._headers.get_all("Provides-Extra", ()))


class PackageIndex:
    """Queries the registry for a package. Every method raises RecipeError, ToolMissingError."""

    def __init__(self, clients: ClientRunner, ages: Sequence[str] = ()) -> None:
        """Prepare queries through ``clients``. ``ages``: age rules, as options of uv."""
        self._clients = clients
        self._ages = ages

    def lowest(self, package: str, specifier: str, python: str) -> Release:
        """Return the lowest release that the specifier admits. A yanked one counts only if ``==`` pins
        it.

        ``python``: the lowest Python (``3.9``) that it must support.
        """
        return self._release(package, specifier, python, "--resolution=lowest-direct")

    def highest(self, package: str, specifier: str, python: str) -> Release:
        """Return the highest release that the specifier admits, otherwise as ``lowest``."""
        return self._release(package, specifier, python, "--resolution=highest")

    def _release(self, package: str, specifier: str, python: str, option: str) -> Release:
        wanted = Wanted((package + specifier,))
        for table in self._resolve(wanted, python, alone=[package], options=[option]):
            if table["name"] == canonicalize_name(package):
                return Release(table["name"], table["version"], tuple(_files(table)))
        raise resolver_failed(f"uv locked no {package}{specifier}.")

    def lowest_with(self, wanted: str, constraint: str, python: str) -> dict[str, str]:
        """Return the version of each resolved package, with ``wanted`` as low as ``constraint`` admits."""
        tables = self._resolve(Wanted((wanted,), (constraint,)), python)
        versions = {table["name"]: table["version"] for table in tables}
        if canonicalize_name(Requirement(wanted).name) not in versions:
            raise resolver_failed(
                f"uv locked no {wanted[:_MAX_ASKED]} for any Python of the project."
            )
        return versions

    def lowest_parent(
        self, parent: str, current: str | None, child: str, python: str, refusal: RecipeError
    ) -> str:
        """Return the lowest version of a parent, from its current one up, that admits a child's pin.
        ``refusal``: raised if there is none, or if the parent may not move (``current`` is None)."""
        if current is None:
            raise refusal
        try:
            return self.lowest_with(f"{parent}>={at_least(current)}", child, python)[parent]
        except RecipeError as error:
            raise refusal from error

    def joined(
        self,
        requirements: Sequence[str],
        constraints: Sequence[str],
        python: str,
        *,
        without: Sequence[str] = (),
    ) -> dict[str, str]:
        """Return the versions of requirements as a client chooses: the highest, one for all platforms.

        A package that needs several versions is left out. ``without``: packages that are not resolved,
        whatever requires them.
        """
        excluded = tuple(f"{name}; python_version < '0'" for name in without)
        wanted = Wanted(tuple(requirements), tuple(constraints), excluded)
        highest = ("--resolution=highest", "--fork-strategy=fewest")
        tables = self._resolve(wanted, python, options=highest)
        names = [table["name"] for table in tables]
        return {
            table["name"]: table["version"] for table in tables if names.count(table["name"]) == 1
        }

    def resolved(self, requirements: Sequence[str], python: str) -> dict[str, str]:
        """Return the version of each package that the requirements bring in, for every platform."""
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
        """Return the packages of a scratch lock. ``alone``: packages that are locked without what they
        require."""
        client = UvClient(self._clients, python)
        try:
            text = client.lock(wanted, *options, *self._ages, alone=alone).text
        except UvRefusedError as error:
            if not (self._ages and error.found_no_solution):
                raise
            # The locked version itself may be too new.
            text = client.lock(wanted, *options, alone=alone).text
        packages: Sequence[Mapping[str, Any]] = parse_toml("uv.lock", text).get("package", ())
        return packages

    def release(self, package: str, version: str, python: str) -> tuple[Release, Metadata]:
        """Return a release with every file that supports a Python which the package itself supports.

        ``python``: the lowest Python of the project. Raises RecipeError if there is no wheel to read the
        metadata from: it would take a build.
        """
        pin = f"=={version}"
        found_release = self.lowest(package, pin, python)
        metadata = self.metadata(found_release, python)
        lowest = lowest_python(metadata.requires_python)
        if lowest != python:
            found_release = self.lowest(package, pin, lowest)
        return found_release, metadata

    def metadata(self, release: Release, python: str) -> Metadata:
        """Return a release's own metadata, from a wheel that is unpacked in a scratch folder (never
        run)."""
        chosen, label = _python_and_platform(release, python), f"{release.name} {release.version}"
        if chosen is None:
            raise refused_for(Blocker(kind=BlockerKind.NOT_BUILT, package=label))
        python, platform = chosen
        with scratch_folder("uv") as folder:
            options = ["--no-deps", "--no-build", "--no-compile-bytecode"]
            options += ["--target", str(folder / "wheel")]
            options += [f"--python-version={python}", f"--python-platform={platform}"]
            pin = f"{release.name}=={release.version}"
            result = run_uv(self._clients, folder, ["pip", "install", *options, pin])
            metadata_files = [
                path for path in folder.glob("wheel/*.dist-info/METADATA") if path.is_file()
            ]
            if not result.ok or len(metadata_files) != 1:
                words = own_words(result.output, folder)
                head, hosts = f"uv could not fetch {label}", result.refused_hosts
                raise UvRefusedError(head, result.output, hosts, words=words)
            return Metadata(metadata_files[0].read_text(encoding="utf-8", errors="replace"))


def lowest_python(specifier: str) -> str:
    """Return the lowest Python (``3.9``) that a PEP 440 specifier names; OLDEST_PYTHON if it names none."""
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


def _files(table: Any) -> Iterator[ReleaseFile]:
    for entry in (*table.get("wheels", ()), *filter(None, [table.get("sdist")])):
        address = entry.get("url") or entry.get("path") or ""
        yield ReleaseFile(file_name(address), entry.get("hash", ""), address)


def _python_and_platform(release: Release, python: str) -> tuple[str, str] | None:
    """Return a Python and a platform for which the release has a wheel, so that uv chooses it; otherwise
    None."""
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
            python_version = _installable(python, tag.interpreter, exact=tag.abi != "abi3")
            for part, machine, platform in _PLATFORMS:
                if part in tag.platform and machine in tag.platform and best is None:
                    best = (python_version, platform)
    return best


def _installable(python: str, interpreter: str, *, exact: bool = False) -> str:
    """Return the Python to request: the project's lowest, or the one that the wheel is for."""
    number = interpreter[2:]
    tagged = f"{number[0]}.{number[1:]}" if len(number) > 1 else f"{number or 3}.0"
    if exact:
        return tagged
    # uv supports no Python below this.
    candidates = [python, tagged, "3.6"]
    return max(candidates, key=lambda python_version: tuple(map(int, python_version.split("."))))


#: Returns whether a version may be taken.
Fits = Callable[[str], bool]

#: The most releases that are checked before the next is taken unchecked: several in a row are hardly ever
#: yanked.
MAX_ASKED = 5

_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")

#: A cutoff that excludes nothing.
_ANY_DAY = datetime(2999, 1, 1, tzinfo=UTC)

#: From this many releases on, one query for all is cheaper than one each.
_WORTH_ASKING_TOGETHER = 2


def lowest_safe(
    advisory: Advisory, package: str, current: str, fits: Fits = lambda _version: True
) -> str:
    """Return the lowest version above ``current`` that is named as fixed and not affected.

    No registry is queried. Raises RecipeError (NO_FIXED_VERSION).
    """
    above = [
        version
        for version in fixed_versions(advisory, ECOSYSTEM, package)
        if is_orderable(ECOSYSTEM, current) and compare_versions(ECOSYSTEM, version, current) > 0
    ]
    for version in above:
        if not is_affected(advisory, ECOSYSTEM, package, version) and fits(version):
            return version
    above_current = f" above {current}" if fixed_versions(advisory, ECOSYSTEM, package) else ""
    ids = " and ".join(advisory.ids_affecting(ECOSYSTEM, package, current)) or advisory.id
    raise RecipeError(
        RefusalReason.NO_FIXED_VERSION,
        f"{ids} names no fixed version{above_current} of {package}.",
        next_step="Replace the dependency, or take the advisory's workaround.",
    )


def ages_of(
    repo: RepoContext,
    clients: ClientRunner,
    path: str,
    *,
    may_ask: bool = True,
    by_lock: bool = True,
) -> Ages:
    """Return the age rules for the project at ``path``. ``may_ask``: a registry may be queried for the
    dates of releases; ``by_lock``: as in ``Ages``."""
    uv = UvClient(clients) if may_ask and not repo.settings.offline else None

    def published_at(package: str, version: str) -> datetime | None:
        return uv.published_at(package, version) if uv is not None else None

    return Ages.of(repo, ECOSYSTEM, path, published_at, by_lock=by_lock)


def as_options(ages: Ages, *, excepting: bool = False, own: bool = False) -> tuple[str, ...]:
    """Return the age rules in the project's files as options of uv. ``excepting``: with a person's age
    exceptions; ``own``: with ``--release-age``."""
    files = [rule for rule in ages.rules if rule.line or own]
    cutoffs = {name: rule.until for rule in files for name in rule.only}
    general = min(
        (rule for rule in files if not rule.only), key=lambda rule: rule.until, default=None
    )
    if general is not None:
        exempt = (name for name in general.exempt if _NAME.fullmatch(name))
        cutoffs = {**dict.fromkeys(exempt, _ANY_DAY), **cutoffs}
    if files and excepting:
        cutoffs |= dict.fromkeys(ages.exceptions, _ANY_DAY)
    packages = (
        f"--exclude-newer-package={name}={until.isoformat()}" for name, until in cutoffs.items()
    )
    until = () if general is None else (f"--exclude-newer={general.until.isoformat()}",)
    return (*until, *packages)


@dataclass
class Releases:
    """The choice of versions by the advisory, checked with the registry through ``uv`` (None: no registry).

    ``notes`` has what could not be checked, each once; it never stops a fix. A fault that the registry
    reports does, if no later release serves. ``only``: the version that was chosen already; no other is
    returned. ``ages``: the project's age rules; a release that they exclude is not chosen.
    """

    advisory: Advisory
    uv: UvClient | None
    only: str | None = None
    ages: Ages = field(default_factory=lambda: Ages(ECOSYSTEM))
    notes: list[str] = field(default_factory=list)
    _faults: dict[tuple[str, str], str | None] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        advisory: Advisory,
        terms: Terms,
        clients: ClientRunner,
        ages: Ages,
        *,
        may_ask: bool,
    ) -> "Releases":
        """Return the choice of versions for a resolution. ``may_ask``: the registry may be queried."""
        only = terms.choice.version if terms.choice else None
        return cls(advisory, UvClient(clients) if may_ask else None, only, ages)

    def look_up(self, releases: Sequence[tuple[str, str]]) -> None:
        """Check many releases at once, each of another package, before they are chosen one by one.

        If one of them isn't available, each half is checked by itself, so most releases need no separate
        query.
        """
        if self.uv is None or len(releases) < _WORTH_ASKING_TOGETHER:
            return
        try:
            yanked = self.uv.yanked_of(releases)
        except UvRefusedError as error:
            if error.found_no_solution:
                half = len(releases) // 2
                self.look_up(releases[:half])
                self.look_up(releases[half:])
        except (RecipeError, ToolError):
            return
        else:
            self._faults |= {release: yanked.get(release) for release in releases}

    def named(self, package: str, current: str, fits: Fits = lambda _version: True) -> str:
        """Return the lowest safe version above ``current`` that the advisory names. Raises RecipeError."""
        if self.only is None:
            return lowest_safe(
                self.advisory,
                package,
                current,
                lambda version: fits(version) and self.ages.admits(package, version),
            )
        higher = compare_versions(ECOSYSTEM, self.only, current) > 0
        if higher and fits(self.only):
            return self.only
        raise RecipeError(
            RefusalReason.NO_FIXED_VERSION,
            f"{package} {self.only}, which was chosen, can't replace {current}.",
            next_step="Choose another version.",
        )

    def lowest_safe(self, package: str, current: str, fits: Fits = lambda _version: True) -> str:
        """Return the ``named`` version, or the next release above it if that one is yanked, unpublished, or
        a pre-release in place of a final one. A local build (``2.5+cpu``) is replaced by the same build, if
        it is published. Raises RecipeError."""
        version, label = self._offered(package, current, fits), current.partition("+")[2]
        if not label or "+" in version or self.only is not None:
            return version
        build = f"{version}+{label}"
        fault = self._fault(package, build)
        if fault is None and fits(build):
            return build
        self._note(
            f"{package} {build} {fault or 'does not fit'}: {version} has no local label {label}, and may be"
            " another build."
        )
        return version

    def _offered(self, package: str, current: str, fits: Fits) -> str:
        first = version = self._first(package, current, fits)
        if self.only is not None:
            fault = self._fault(package, first)
            if fault is not None:
                raise unsupported(f"{package} {first}, which was chosen, {fault}.")
            return first
        for _ in range(MAX_ASKED):
            fault = self._fault(package, version)
            if is_prerelease(ECOSYSTEM, version) and not is_prerelease(ECOSYSTEM, current):
                fault = "is a pre-release"
            if fault is None:
                break
            following = self._next(package, version)
            if following is None:
                problem = f"{package} {version} {fault}, and no later release could be found."
                if not is_prerelease(ECOSYSTEM, version):
                    raise RecipeError(
                        RefusalReason.NO_FIXED_VERSION,
                        problem,
                        next_step="Replace the dependency, or take the advisory's workaround.",
                    )
                self._note(problem)
                return first
            self._note(f"{package} {version} {fault}: {following} is looked at in its place.")
            version = following
        unfit = is_affected(self.advisory, ECOSYSTEM, package, version) or not fits(version)
        if unfit or not self.ages.admits(package, version):
            return self._offered(package, version, fits)
        return version

    def _first(self, package: str, current: str, fits: Fits) -> str:
        """Return the lowest safe version that the advisory names; if it names none (``last_affected``), the
        lowest that the registry has."""
        try:
            return self.named(package, current, fits)
        except RecipeError:
            if self.only is not None:
                raise
            version = highest_named(self.advisory, package, lambda _: True) or current
            for _ in range(MAX_ASKED):
                following = self._next(package, version)
                if following is None:
                    break
                version = following
                affected = is_affected(self.advisory, ECOSYSTEM, package, version)
                if not affected and fits(version) and self.ages.admits(package, version):
                    return version
            raise

    def _fault(self, package: str, version: str) -> str | None:
        key = (package, version)
        if key not in self._faults:
            self._faults[key] = self._ask(lambda uv: uv.fault_of(package, version))
        return self._faults[key]

    def _next(self, package: str, version: str) -> str | None:
        until = self.ages.until(package)
        return self._ask(lambda uv: uv.next_release(package, version, until))

    def _ask(self, question: Callable[[UvClient], str | None]) -> str | None:
        if self.uv is None:
            return None
        try:
            return question(self.uv)
        except (RecipeError, ToolError) as error:
            self._note(f"The registry could not be asked about yanked releases. {error.problem}")
            if isinstance(error, ToolError):
                self.uv = None
            return None

    def _note(self, message: str) -> None:
        if message not in self.notes:
            self.notes.append(message)


#: The most bytes of an archive's file on its requirements; as a rule it has a few lines.
MAX_REQUIRES_BYTES = 1_000_000

#: Signs that a setup.py runs setuptools' own setup(), and that it may require more than it lists.
_SETUP = re.compile(r"^[ \t]*(?:from|import) (?:setuptools|distutils)\b", re.MULTILINE)
_COMPUTES = re.compile(
    r"\b(?:pbr|exec|eval|setdefault)\b|\.(?:install_requires|extras_require)\b"
    r"|\][ \t]*(?:\.(?:append|extend|insert|update)\b|\+=)|\[:\][ \t]*="
)

_ARCHIVE = re.compile(r"(?P<release>.+)\.(?:tar\.(?:gz|bz2|xz|Z)|tgz|zip)", re.IGNORECASE)
_INTERPRETER = re.compile(r"(?P<kind>[a-z]+)3(?P<minor>\d*)")


@dataclass(frozen=True)
class Sdist:
    """A release without a wheel. ``file``: its archive, or None if that is unknown."""

    name: str
    version: str
    file: ReleaseFile | None
    requires_python: str = ""

    @property
    def stem(self) -> str:
        """Return the beginning of its wheel's file name."""
        return f"{self.name.replace('-', '_')}-{self.version}"

    def stub(self, requirement_lines: Sequence[str]) -> str:
        """Return the metadata for its stub wheel. ``requirement_lines``: from ``sdist_requirements``."""
        lines = [
            "Metadata-Version: 2.1",
            f"Name: {self.name}",
            f"Version: {self.version}",
            *requirement_lines,
        ]
        if self.requires_python:
            lines.append(f"Requires-Python: {self.requires_python}")
        return "\n".join([*lines, ""])


def sdists_of(index: str, name: str, python: str) -> tuple[Sdist, ...] | None:
    """Return the unyanked releases of a package in a simple index that have no wheel for this Python
    (``3.9``) or a later one; None if the index has no page of files for it.

    Raises ToolFailedError if the registry does not answer now.
    """
    address = f"{index.rstrip('/')}/{name}/"
    content = page(address)
    if content is None:
        return None
    sdists: dict[str, Sdist] = {}
    built_versions, is_listed = set(), False
    for attributes in _page_files(content):
        url = urljoin(address, attributes.get("href") or "")
        file, archive = file_name(url), _ARCHIVE.fullmatch(file_name(url))
        try:
            if archive is None:
                _, version, _, tags = parse_wheel_filename(file)
                is_listed = True
                if any(_serves(tag.interpreter, tag.abi, python) for tag in tags):
                    built_versions.add(str(version))
                continue
            name_in_file, version = parse_sdist_filename(f"{archive['release']}.tar.gz")
        except (InvalidWheelFilename, InvalidSdistFilename):
            continue
        is_listed = True
        if name_in_file == name and "data-yanked" not in attributes:
            parts, requires_python = urlsplit(url), ""
            digest = parts.fragment.replace("=", ":", 1)
            archive_file = ReleaseFile(file, digest, parts._replace(fragment="").geturl())
            with suppress(InvalidSpecifier):
                requires_python = str(SpecifierSet(attributes.get("data-requires-python") or ""))
            sdists.setdefault(
                str(version), Sdist(name, str(version), archive_file, requires_python)
            )
    if not is_listed:
        return None  # not a listing: a login page, or another format
    return tuple(sdist for version, sdist in sdists.items() if version not in built_versions)


def _page_files(content: bytes) -> Iterator[Mapping[str, str | None]]:
    """Yield the attributes of a page's links; for a page in JSON (PEP 691), as one in HTML would have
    them."""
    try:
        files = tables(json.loads(content).get("files"))
    except (ValueError, AttributeError, RecursionError):
        links = _Links()
        links.feed(content.decode("utf-8", "replace"))
        yield from links.found
        return
    for file in files:
        hashes = file.get("hashes")
        digest = str(hashes.get("sha256", "")) if isinstance(hashes, dict) else ""
        href = f"{file.get('url', '')}#sha256={digest}"
        link = {"href": href, "data-requires-python": str(file.get("requires-python") or "")}
        yield link | ({"data-yanked": ""} if file.get("yanked") else {})


class _Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[dict[str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "a":
            self.found.append(dict(attrs))


def _serves(interpreter: str, abi: str, python: str) -> bool:
    """Return whether a wheel with these tags is for this Python or a later one."""
    tag = _INTERPRETER.fullmatch(interpreter)
    if tag is None:
        return False
    lowest_minor = int(python.partition(".")[2].partition(".")[0] or 0)
    return (
        tag["kind"] == "py"
        or abi == "abi3"
        or not tag["minor"]
        or int(tag["minor"]) >= lowest_minor
    )


def sdist_requirements(file: ReleaseFile | None) -> tuple[str, ...] | None:
    """Return what an archive requires, as lines of metadata (``Requires-Dist``, ``Provides-Extra``) with
    their markers; None if it isn't available, or its requirements are not listed or can't be read.

    Raises ToolFailedError if the registry does not answer now.
    """
    content = fetched(file.url, file.hash) if file is not None else None
    if file is None or content is None:
        return None
    archive, name = _ARCHIVE.fullmatch(file.name), ""
    with suppress(InvalidSdistFilename):  # the archive's name does not show the package
        name = parse_sdist_filename(f"{archive['release']}.tar.gz")[0] if archive else ""
    try:
        return _said_in(content, name)
    except (MemberTooLargeError, InvalidMarker, RecipeError):
        return None


def _said_in(content: bytes, name: str) -> tuple[str, ...] | None:
    """Return an archive's requirements, or None: from its metadata if that is complete by its format, from
    the records of setuptools, from other metadata that lists any, or from a setup.py that computes none.
    Raises InvalidMarker, MemberTooLargeError, RecipeError."""
    metadata = Metadata(_top(content, "PKG-INFO"))
    if metadata.lists_requirements:
        return tuple(_listed(metadata))
    text = member_text(content, _record(name, "requires.txt"), MAX_REQUIRES_BYTES)
    if text is not None:
        return tuple(_parsed(text))
    if member_text(content, _record(name, "SOURCES.txt"), MAX_REQUIRES_BYTES) is not None:
        return ()  # setuptools always writes SOURCES.txt, and requires.txt only if something is required
    if metadata.requirements:
        return tuple(_listed(metadata))
    if _top(content, "pyproject.toml"):
        return None
    written = _from_script(_top(content, "setup.py"), _top(content, "setup.cfg"))
    return None if written is None else tuple(_parsed(written))


def _record(name: str, record: str) -> Callable[[str], bool]:
    """Return a test for the path of setuptools' record on the release itself: test data may have other
    packages' records."""

    def is_own(member: str) -> bool:
        *_, folder, file = ("", *member.split("/"))
        owner = canonicalize_name(folder.removesuffix(".egg-info"))
        return file == record and folder.endswith(".egg-info") and name in {"", owner}

    return is_own


def _top(content: bytes, wanted: str) -> str:
    """Return the text of a file in the archive's top folder; empty if there is none."""

    def is_top(member: str) -> bool:
        return member.count("/") == 1 and member.endswith(f"/{wanted}")

    return member_text(content, is_top, MAX_REQUIRES_BYTES) or ""


def _listed(metadata: Metadata) -> Iterator[str]:
    for extra in metadata.extras:
        yield f"Provides-Extra: {extra}"
    for requirement in metadata.requirements:
        if requirement.url is not None:
            raise InvalidMarker(str(requirement))
        yield f"Requires-Dist: {requirement}"


def _from_script(script: str, settings: str) -> str | None:
    """Return what a setup.py lists, as setuptools would record it in ``requires.txt``; None if it, or its
    setup.cfg (``settings``), may require more than it lists."""
    call = setup_call(script)
    if not (call.is_whole and "name" in call.keywords and _SETUP.search(script)):
        return None
    if _COMPUTES.search(script) or "require" in settings:
        return None
    lines: list[str] = []
    for word, value in zip(REQUIRES, call.required, strict=True):
        if value is None and word in script:
            return None
        for extra, requirements in (
            value if isinstance(value, dict) else {"": value or []}
        ).items():
            if not isinstance(requirements, list) or len(texts(requirements)) < len(requirements):
                return None
            lines += [*([f"[{extra}]"] if extra else ()), *requirements]
    return "\n".join(lines)


def _parsed(text: str) -> Iterator[str]:
    """Yield the requirements in a ``requires.txt`` as lines of metadata: those before the first section,
    and those of each ``[extra:marker]``. Raises InvalidMarker for a line that is neither, and for an
    address, which is not fetched."""
    conditions: list[str] = []
    for line in map(str.strip, text.splitlines()):
        if line.startswith("[") and line.endswith("]"):
            extra, _, marker = line[1:-1].partition(":")
            conditions = [str(Marker(marker))] if marker.strip() else []
            if extra.strip():
                name = canonicalize_name(extra.strip())
                conditions.append(f"extra == '{name}'")
                yield f"Provides-Extra: {name}"
        elif line:
            requirement = requirement_in(line)
            if requirement is None or requirement.url is not None:
                raise InvalidMarker(line)
            markers = [str(requirement.marker)] if requirement.marker else []
            requirement.marker = None
            marker = " and ".join(f"({part})" for part in (*markers, *conditions))
            yield f"Requires-Dist: {requirement}" + (f" ; {marker}" if marker else "")
