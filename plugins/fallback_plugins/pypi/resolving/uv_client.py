"""The real uv, run in scratch folders that contain only the manifests, locks and lines written there.

Nothing is built, so neither a project nor a source distribution runs code outside the sandbox. No option
from the repository reaches the command line.
"""

import json
import re
import sys
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from fallback_audit.vocabulary import BlockerKind, RefusalReason
from fallback_plugins.pypi.locks.uv_lock import STUBS, package_tables
from fallback_plugins.pypi.manifests import indexes
from fallback_plugins.pypi.manifests.indexes import index_variables
from fallback_plugins.pypi.manifests.metadata import asked_python
from fallback_plugins.pypi.manifests.pyproject import NO_BACKEND, table_of, tables
from fallback_plugins.pypi.manifests.pythons import fits, minor_of, ours, suited_once
from fallback_plugins.pypi.uv_words import blamed, blockers_in
from fallback_plugins.shared.ages import moment_in
from fallback_plugins.shared.bumping import unsupported
from fallback_plugins.shared.ladder import blocked, client_refused, refused_for
from fallback_plugins.shared.scratch import scratch_folder
from fallback_plugins.shared.tree import DependencyTree
from fallback_tier.errors import RecipeError
from fallback_tier.execution import ClientRunner, CommandResult
from fallback_tier.lazy_patterns import lazy_pattern
from fallback_tier.outcome import Blocker

#: Timeout of one uv run. It takes a few seconds in practice, but the registry may be slow.
UV_TIMEOUT_S = 300.0

#: The most characters of uv's message that a refusal quotes.
_MAX_WORDS = 600

_ALWAYS = ("--no-python-downloads", "--no-progress", "--color=never")

_STUB_WHEEL = "Wheel-Version: 1.0\nGenerator: stub\nRoot-Is-Purelib: true\nTag: py3-none-any\n"

_YANKED_WARNING = lazy_pattern(
    r"warning: `(?P<name>[^`=\[]+)(?:\[[^`]*\])?==(?P<version>[^`]+)` is yanked"
)
_NO_SOLUTION = "No solution found"


@dataclass(frozen=True)
class Locked:
    """A lock that uv made. ``yanked``: its yanked releases (canonical name, version) that uv warned about.

    ``passed_over`` (only of a scratch lock): the packages of which uv considered a release and did not take
    it, for example because it has no wheel. Nothing is built here, but an installer would take it.
    """

    text: str
    yanked: frozenset[tuple[str, str]] = frozenset()
    passed_over: frozenset[str] = frozenset()


class UvRefusedError(RecipeError):
    """uv could not resolve. ``output``: all that it printed; ``refused_hosts``: hosts that it may not
    reach; ``passed_over``: as in ``Locked``; ``words``: its message, which is quoted if it names no known
    cause."""

    def __init__(
        self,
        head: str,
        output: str,
        refused_hosts: Sequence[str] = (),
        passed_over: frozenset[str] = frozenset(),
        words: str = "",
    ) -> None:
        refusal = client_refused(head, words or output, blockers_in(output), refused_hosts)
        super().__init__(
            RefusalReason.RESOLVER_FAILED,
            refusal.problem,
            next_step=refusal.next_step,
            blockers=refusal.blockers,
            kind=refusal.kind,
        )
        self.output = output
        self._is_host_refused = bool(refused_hosts)
        self.passed_over = passed_over

    @property
    def found_no_solution(self) -> bool:
        """Return whether the registry answered and the requirements conflict. If not, the cause is
        unknown."""
        return _NO_SOLUTION in self.output

    def placed(
        self,
        project: str,
        tree: DependencyTree,
        file_of: Callable[[str], str],
        targets: Mapping[str, str],
    ) -> RecipeError:
        """Return the refusal to move packages of a project to ``targets`` (versions by package). It names
        the files that declare what blocks (by ``file_of``), and the versions in the tree."""
        blockers = [
            blocker.model_copy(
                update={
                    "package": next(
                        (node.label for node in tree.of(blocker.package)), blocker.package
                    )
                }
            )
            for blocker in blockers_in(self.output, file_of, targets)
        ]
        if self._is_host_refused or not blockers:
            return self
        name, _, spec = blockers[0].constraint.partition(" ")
        if blockers[0].kind is BlockerKind.CONFLICT and targets.get(name):
            parent, file = blockers[0].package, blockers[0].file
            return blocked(name, targets[name], parent=parent, spec=spec, where=file)
        return refused_for(*blockers, head=f"uv could not resolve {project}")


def uv_lock(
    clients: ClientRunner,
    files: Mapping[str, str],
    lock: str,
    options: Sequence[str] = (),
    *,
    stubs: Mapping[str, str] | None = None,
) -> Locked:
    """Return uv's lock of these files (by path in the repository); ``lock``: the path of uv.lock.

    ``stubs``: metadata of releases without a wheel, by ``name-version``: otherwise uv would have to build.
    Raises RecipeError (UvRefusedError with uv's own output), ToolMissingError.
    """
    with scratch_folder("uv") as folder:
        root = _laid_out(folder, files)
        lock_path = root / lock
        lock_path.parent.mkdir(parents=True, exist_ok=True)
        options = [*options, *_write_stubs(lock_path.parent, stubs or {})]
        options += _interpreter(clients, files)
        result = run_uv(
            clients, lock_path.parent, ["lock", "--no-build", *options], index_variables(files)
        )
        if NO_BACKEND in result.output:
            raise unsupported(
                "uv would have to build the project to know its metadata (`dynamic` in"
                " pyproject.toml), which would run its code outside the sandbox.",
                kind="dynamic",
            )
        if not result.ok:
            words = own_words(result.output, folder)
            if result.timed_out:
                words = f"no answer in {UV_TIMEOUT_S:.0f} s"
            head = f"uv could not resolve {lock}"
            raise UvRefusedError(head, result.output, result.refused_hosts, words=words)
        return Locked(lock_path.read_bytes().decode(), yanked_in(result.output))


def _interpreter(clients: ClientRunner, files: Mapping[str, str]) -> list[str]:
    """Return the option that names a Python of this machine which the project and its members support;
    empty if there is none. uv itself only searches PATH, on which some of pyenv's scripts start no
    Python."""
    manifests = (text for path, text in files.items() if path.endswith("pyproject.toml"))
    specifier = ",".join(
        filter(None, (asked_python({"pyproject.toml": text}) for text in manifests))
    )
    python = suited_once(clients, specifier)[0]
    return ["--python", str(python)] if not specifier or fits(specifier, minor_of(python)) else []


def run_uv(
    clients: ClientRunner,
    cwd: Path,
    arguments: Sequence[str],
    env: Mapping[str, str] | None = None,
) -> CommandResult:
    """Run one uv command, without downloads of interpreters, without colours. Raises ToolMissingError."""
    # uv rejects --no-compile-bytecode if this variable is set.
    variables = {"UV_COMPILE_BYTECODE": "", **(env or {})}
    return indexes.run_uv(
        clients, [*arguments, *_ALWAYS], cwd=cwd, timeout_s=UV_TIMEOUT_S, env=variables
    )


def _requirement_line(text: str) -> str:
    """Return a requirement, parsed and written again, for uv to read outside the sandbox.

    Parts of it come from the target's files: none may become an address, an option or a separate line.
    Raises RecipeError.
    """
    shown = f"{text[:_MAX_ASKED]!r}"
    try:
        requirement = Requirement(text)
    except InvalidRequirement as error:
        raise resolver_failed(f"{shown} is no requirement.", kind="not_a_requirement") from error
    if requirement.url is not None:
        problem = f"{shown} names an address, and addresses are not fetched."
        raise resolver_failed(problem, kind="address")
    return str(requirement)


def _laid_out(folder: Path, files: Mapping[str, str]) -> Path:
    """Write the files below the folder, and return it. They are written as bytes: text mode would change
    line ends."""
    for path, text in files.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(text.encode())
    return folder


def _write_stubs(root: Path, stubs: Mapping[str, str]) -> list[str]:
    """Write wheels without content, whose metadata uv reads, and return the option by which it finds them.
    They are never installed."""
    if not stubs:
        return []
    (root / STUBS).mkdir()
    for stem, metadata in stubs.items():
        with zipfile.ZipFile(root / STUBS / f"{stem}-py3-none-any.whl", "w") as wheel:
            wheel.writestr(f"{stem}.dist-info/METADATA", metadata)
            wheel.writestr(f"{stem}.dist-info/WHEEL", _STUB_WHEEL)
            wheel.writestr(f"{stem}.dist-info/RECORD", "")
    return [f"--find-links={STUBS}"]


def resolver_failed(problem: str, *, kind: str = "") -> RecipeError:
    """Return a refusal: uv could not, or must not, resolve something."""
    blocker = Blocker(kind=BlockerKind.RESULT, constraint=problem.rstrip("."))
    return refused_for(blocker, kind=kind)


def yanked_in(output: str) -> frozenset[tuple[str, str]]:
    """Return the yanked releases that uv warned about."""
    return frozenset(
        (canonicalize_name(match["name"]), match["version"])
        for match in _YANKED_WARNING.finditer(output)
    )


def blocker_of(error: RecipeError, package: str) -> tuple[str, str] | None:
    """Return the parent and the constraint that uv's output blames for a package; None: it names none."""
    return blamed(error.output, package) if isinstance(error, UvRefusedError) else None


def own_words(output: str, scratch: Path) -> str:
    """Return uv's message on one line, shortened, without its progress and the scratch folder's name."""
    _, has_error, errors = output.partition("error:")
    text = " ".join((errors if has_error else output).replace(str(scratch), ".").split())
    return text[:_MAX_WORDS].rstrip(" ;.") or "nothing"


#: For queries about releases, so that a fix by text doesn't wait for a registry. By default uv retries a
#: refused connection for 6 s (measured), and waits 30 s for an answer.
_QUICK = {"UV_HTTP_RETRIES": "0", "UV_HTTP_TIMEOUT": "5"}

#: The names of the scratch files, with uv's option for each.
_FILES = {
    "requirements.in": (),
    "constraints.txt": ("--constraint",),
    "overrides.txt": ("--override",),
}

_LINE = lazy_pattern(
    r"^(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)(?:\[[^\]]*\])?==(?P<version>[^\s;#]+)"
    r"[^#\n]*?(?:#[ \t]*via[ \t]+(?P<via>.*))?$",
    re.MULTILINE,
)
_HASH = lazy_pattern(r"--hash=(\S+)")
_YANKED = lazy_pattern(
    r"`(?P<name>[^`=\[]+)==(?P<version>[^`]+)` is yanked(?: \(reason: \"(?P<reason>.*)\"\))?"
)
_ANYTHING = lazy_pattern("")
_PYTHON = lazy_pattern(r"\d+(?:\.\d+)*")

#: This process's Python: it installs if a project does not say which it supports.
THIS_PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"

#: The most characters of a requirement that a message repeats.
_MAX_ASKED = 100

#: The most scratch locks that are cached: a plan needs those of the base commit again in each round.
_LOCKS = 64

#: Makes uv log what its resolver does. ``_STEP`` matches its lines on a search for a version, on a version
#: that it takes, and on one that is only for other Pythons.
_LOGGED = {"RUST_LOG": "uv_resolver::resolver=debug"}
_LOG_LINE = lazy_pattern(r"^(?:DEBUG|INFO|TRACE) .*\n?", re.MULTILINE)
_STEP = lazy_pattern(
    r"^DEBUG (?:Searching for a compatible version of (?P<sought>[A-Za-z0-9._-]+)[\[{ ](?!@)"
    r"|Selecting: (?P<taken>[A-Za-z0-9._-]+)=="
    r"|Forking Python requirement |No compatible version found for: Python$)",
    re.MULTILINE,
)

_UNPUBLISHED = lazy_pattern(r"there (?:is|are) no versions? of")


@dataclass(frozen=True)
class Wanted:
    """The lines (PEP 508) that uv is to resolve."""

    requirements: tuple[str, ...]
    constraints: tuple[str, ...] = ()
    overrides: tuple[str, ...] = ()


@dataclass(frozen=True)
class UvClient:
    """The real uv. Its methods raise RecipeError (RESOLVER_FAILED, with uv's message), ToolMissingError."""

    clients: ClientRunner
    #: The lowest Python to resolve for.
    python: str = THIS_PYTHON

    def fault_of(self, package: str, version: str) -> str | None:
        """Return why this release must not be chosen ("is yanked …", "was never published"), or None.

        For a release without a wheel for this Python the answer is None, as uv can't tell.
        """
        refusal: UvRefusedError | None = None
        try:
            output = self._compile(Wanted((f"{package}=={version}",)), "--no-deps", quick=True)
        except UvRefusedError as error:
            refusal, output = error, error.output
        yanked = _YANKED.search(output)
        if yanked:
            return _yanked(yanked)
        if refusal is None or "no usable wheels" in output:
            return None
        if _UNPUBLISHED.search(output):
            return "was never published"
        raise refusal

    def yanked_of(self, releases: Sequence[tuple[str, str]]) -> dict[tuple[str, str], str]:
        """Return which of many releases (each of another package) are yanked, and why, by one query.

        Raises RecipeError if one of them isn't available; the UvRefusedError does not say which.
        """
        lines = tuple(f"{package}=={version}" for package, version in releases)
        output = self._compile(Wanted(lines), "--no-deps", quick=True)
        yanked = {
            (canonicalize_name(match["name"]), match["version"]): _yanked(match)
            for match in _YANKED.finditer(output)
        }
        return {release: yanked[release] for release in releases if release in yanked}

    def published_at(self, package: str, version: str) -> datetime | None:
        """Return when the first of a release's files was published, or None if unknown
        (``ages.PublishedAt``). Raises UvRefusedError."""
        text = self.lock(Wanted((f"{package}=={version}",)), alone=[package]).text
        moments = [
            moment_in(str(file.get("upload-time", "")))
            for table in package_tables("uv.lock", text)
            if table.get("name") == canonicalize_name(package)
            for file in tables([*table.get("wheels", ()), table.get("sdist")])
        ]
        return min((moment for moment in moments if moment is not None), default=None)

    def next_release(self, package: str, version: str, until: datetime | None = None) -> str:
        """Return the lowest unyanked release above a version. ``until``: it must not be published later."""
        options = ["--no-deps", "--resolution=lowest"]
        if until is not None:
            options.append(f"--exclude-newer={until.isoformat(timespec='seconds')}")
        wanted = Wanted((f"{package}>{version}",))
        match, *_ = _LINE.finditer(self._compile(wanted, *options, quick=True, needs=_LINE))
        return match["version"]

    def hashes(self, package: str, version: str) -> tuple[str, ...]:
        """Return the hashes of all files of one release."""
        wanted = Wanted((f"{package}=={version}",))
        output = self._compile(wanted, "--no-deps", "--generate-hashes", needs=_HASH)
        return tuple(_HASH.findall(output))

    def lock(
        self,
        wanted: Wanted,
        *options: str,
        alone: Sequence[str] = (),
        stubs: Mapping[str, str] | None = None,
    ) -> Locked:
        """Return the scratch uv.lock of these lines. Results are cached.

        ``alone``: packages that are locked without what they require. ``stubs``: as in ``uv_lock``.
        """
        requirements = [_requirement_line(line) for line in wanted.requirements]
        constraints = [_requirement_line(line) for line in wanted.constraints]
        overrides = [_requirement_line(line) for line in wanted.overrides]
        if not _PYTHON.fullmatch(self.python):
            raise resolver_failed(
                f"{self.python[:_MAX_ASKED]!r} is no version of Python.", kind="not_a_python"
            )
        # uv runs an interpreter that the project supports, and this process's may be too old for it.
        lowest = min(self.python, THIS_PYTHON, key=lambda python: [*map(int, python.split("."))])
        supported = [f"python_full_version >= '{self.python}'"] if lowest != self.python else []
        manifest = (
            "[project]\n"
            'name = "fallback-tier-scratch"\nversion = "0"\n'
            f'requires-python = ">={lowest}"\n'
            f"dependencies = {json.dumps(requirements)}\n"
            f"[tool.uv]\nenvironments = {json.dumps(supported)}\n"
            f"constraint-dependencies = {json.dumps(constraints)}\n"
            f"override-dependencies = {json.dumps(overrides)}\n"
        )
        if not alone:
            options = (*options, "--no-build")
        # With this metadata no build is needed, and --no-build would hide source distributions.
        manifest += "".join(
            f"[[tool.uv.dependency-metadata]]\nname = {json.dumps(name)}\nrequires-dist = []\n"
            for name in alone
        )
        stub_items = tuple(sorted((stubs or {}).items()))
        result, words, text = _locked(self.clients, manifest, tuple(options), stub_items)
        passed_over, taken = _steps(result.output)
        if text is None:
            wanted_lines = ", ".join((*requirements, *constraints))
            words = "no answer in time" if result.timed_out else words
            head = f"uv finds no usable {wanted_lines[:_MAX_ASKED]}"
            output = _LOG_LINE.sub("", result.output)
            raise UvRefusedError(head, output, result.refused_hosts, passed_over, words)
        packages = package_tables("uv.lock", text)
        locked = frozenset(
            str(package["name"])
            for package in packages
            if "registry" in table_of(package, "source")
        )
        # All packages of the lock, if this version of uv logs its steps in another format.
        return Locked(text, passed_over=passed_over if locked <= taken else locked)

    def _compile(
        self,
        wanted: Wanted,
        *options: str,
        quick: bool = False,
        needs: re.Pattern[str] = _ANYTHING,
    ) -> str:
        """Return uv's output. Raises UvRefusedError if uv fails, or the output does not match ``needs``."""
        lines = (wanted.requirements, wanted.constraints, wanted.overrides)
        inputs = tuple(
            (name, "".join(f"{_requirement_line(line)}\n" for line in file_lines))
            for name, file_lines in zip(_FILES, lines, strict=True)
        )
        result, words = _compiled(self.clients, inputs, options, quick=quick)
        if result.ok and needs.search(result.output):
            return result.output
        message = "no answer in time" if result.timed_out else words
        wanted_lines = ", ".join((*wanted.requirements, *wanted.constraints))[:_MAX_ASKED]
        raise UvRefusedError(f"uv finds no usable {wanted_lines}", result.output, words=message)


def _yanked(match: re.Match[str]) -> str:
    return f"is yanked ({match['reason']})" if match["reason"] else "is yanked"


def _steps(log: str) -> tuple[frozenset[str], set[str]]:
    """Return the packages of which uv considered a version and did not take it, and those of which it took
    one."""
    passed, taken, sought = set[str](), set[str](), ""
    for step in _STEP.finditer(log):
        if sought and step["sought"]:
            passed.add(sought)
        taken |= {step["taken"]} if step["taken"] else set()
        sought = step["sought"] or ""
    return frozenset(passed | {sought} - {""}), taken


@lru_cache(maxsize=_LOCKS)
def _compiled(
    clients: ClientRunner,
    texts: tuple[tuple[str, str], ...],
    options: tuple[str, ...],
    *,
    quick: bool,
) -> tuple[CommandResult, str]:
    """Return uv's result, and its message on one line. Cached, as each project queries the same
    releases."""
    with scratch_folder("uv") as folder:
        _laid_out(folder, dict(texts))
        files = [word for name, option in _FILES.items() for word in (*option, name)]
        command = ["pip", "compile", *files, *options, "--no-build", "--no-header"]
        command.append("--annotation-style=line")
        result = run_uv(clients, folder, command, _QUICK if quick else None)
        return result, own_words(result.output, folder)


@lru_cache(maxsize=_LOCKS)
def _locked(
    clients: ClientRunner,
    manifest: str,
    options: tuple[str, ...],
    stubs: tuple[tuple[str, str], ...],
) -> tuple[CommandResult, str, str | None]:
    """Return uv's result, its message on one line, and its lock, or None if it made none."""
    with scratch_folder("uv") as folder:
        root = _laid_out(folder, {"pyproject.toml": manifest})
        links = _write_stubs(root, dict(stubs))
        # uv must read its settings from the manifest, which is written here.
        env = {"UV_NO_CONFIG": "", **_LOGGED}
        command = ["lock", *options, *links, "--python", str(ours())]
        result = run_uv(clients, root, command, env)
        text = (root / "uv.lock").read_bytes().decode() if result.ok else None
        return result, own_words(_LOG_LINE.sub("", result.output), folder), text
