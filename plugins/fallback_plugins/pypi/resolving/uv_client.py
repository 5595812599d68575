"""The real uv, in scratch folders that hold manifests, locks and requirement lines of ours, and no more.

Nothing is built, so that neither a project nor a source distribution runs code outside the sandbox. No
option of the repository reaches the command line.
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

#: Seconds for one uv run: seconds in practice; the registry may be slow.
UV_TIMEOUT_S = 300.0

#: How much of uv's own words is read for a refusal.
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
    ``passed_over``: of a scratch lock, the packages of which uv looked at a release and did not take it, as
    for lack of a wheel: nothing is built, and an installer would take it."""

    text: str
    yanked: frozenset[tuple[str, str]] = frozenset()
    passed_over: frozenset[str] = frozenset()


class UvRefusedError(RecipeError):
    """uv could not resolve. ``output``: all that it printed; ``refused_hosts``: those that it may not ask;
    ``passed_over``: as ``Locked``. ``words``: its message, which is quoted if it names no known cause."""

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
        """Whether the registry answered and the requirements are at fault. Otherwise nothing is known."""
        return _NO_SOLUTION in self.output

    def placed(
        self,
        project: str,
        tree: DependencyTree,
        place: Callable[[str], str],
        targets: Mapping[str, str],
    ) -> RecipeError:
        """Return the refusal of a project to have the targets (versions by package): with the files that
        declare what blocks (``place``), and with the versions that the tree has."""
        blockers = [
            it.model_copy(
                update={"package": next((n.label for n in tree.of(it.package)), it.package)}
            )
            for it in blockers_in(self.output, place, targets)
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

    ``stubs``: metadata of releases (``name-version``) that have no wheel; only a build could tell it.
    Raises RecipeError (UvRefusedError with uv's own output), ToolMissingError.
    """
    with scratch_folder("uv") as folder:
        root = _laid_out(folder, files)
        place = root / lock
        place.parent.mkdir(parents=True, exist_ok=True)
        options = [*options, *_write_stubs(place.parent, stubs or {})]
        options += _interpreter(clients, files)
        result = run_uv(
            clients, place.parent, ["lock", "--no-build", *options], index_variables(files)
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
        return Locked(place.read_bytes().decode(), yanked_in(result.output))


def _interpreter(clients: ClientRunner, files: Mapping[str, str]) -> list[str]:
    """The option that names a Python of this machine which the project and its members support, if there is
    one. uv itself searches the path alone, where pyenv has scripts of which only some start a Python."""
    manifests = (text for path, text in files.items() if path.endswith("pyproject.toml"))
    asked = ",".join(filter(None, (asked_python({"pyproject.toml": text}) for text in manifests)))
    python = suited_once(clients, asked)[0]
    return ["--python", str(python)] if not asked or fits(asked, minor_of(python)) else []


def run_uv(
    clients: ClientRunner,
    cwd: Path,
    arguments: Sequence[str],
    env: Mapping[str, str] | None = None,
) -> CommandResult:
    """Run one uv command, without downloads of interpreters, without colours. Raises ToolMissingError."""
    # uv takes no --no-compile-bytecode beside this variable.
    reported = {"UV_COMPILE_BYTECODE": "", **(env or {})}
    return indexes.run_uv(
        clients, [*arguments, *_ALWAYS], cwd=cwd, timeout_s=UV_TIMEOUT_S, env=reported
    )


def _requirement_line(text: str) -> str:
    """Return a requirement, parsed and written again, for uv to read outside the sandbox.

    Parts of it come out of the target's files: none may become an address, an option or a separate line.
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
    """Write the files below the folder, and return it. Bytes: text mode would change line ends."""
    for path, text in files.items():
        place = folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(text.encode())
    return folder


def _write_stubs(root: Path, stubs: Mapping[str, str]) -> list[str]:
    """Write wheels without content, whose metadata uv reads, and return the options that show them to it.
    No process installs them."""
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
    """Return the refusal of what uv could not, or should not, resolve."""
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
    """Return uv's message on one line, shortened, without its progress and our scratch folder's name."""
    _, found, errors = output.partition("error:")
    message = " ".join((errors if found else output).replace(str(scratch), ".").split())
    return message[:_MAX_WORDS].rstrip(" ;.") or "nothing"


#: For a question about one release: a fix by text is not to wait for a registry. By default uv tries a
#: refused connection again for 6 s (measured), and waits 30 s for an answer.
_QUICK = {"UV_HTTP_RETRIES": "0", "UV_HTTP_TIMEOUT": "5"}

#: Our own names for the scratch files; the command's option of each.
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

#: The Python that installs, if a project does not say which it supports.
THIS_PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"

#: How much of a question a message repeats.
_MAX_ASKED = 100

#: Scratch locks that are kept: a plan asks for those of the base commit again with each of its rounds.
_LOCKS = 64

#: Has uv report what its resolver does; how it then says that it looks for a version, that it takes one,
#: and that a version is only for other Pythons.
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
    """What is to be resolved: PEP 508 lines."""

    requirements: tuple[str, ...]
    constraints: tuple[str, ...] = ()
    overrides: tuple[str, ...] = ()


@dataclass(frozen=True)
class UvClient:
    """The real uv. Methods raise RecipeError (RESOLVER_FAILED, in uv's own words), ToolMissingError."""

    clients: ClientRunner
    #: The lowest Python that a set is resolved for.
    python: str = THIS_PYTHON

    def fault_of(self, package: str, version: str) -> str | None:
        """Return why this release is not to be chosen ("is yanked …", "was never published"); None: it may
        be.

        A release without a wheel for this Python can't be judged, and passes.
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
        """Return those of many releases (each of another package) that are yanked, in one question.

        Raises RecipeError if one of them isn't available; UvRefusedError tells no more than that.
        """
        lines = tuple(f"{package}=={version}" for package, version in releases)
        output = self._compile(Wanted(lines), "--no-deps", quick=True)
        found = {
            (canonicalize_name(match["name"]), match["version"]): _yanked(match)
            for match in _YANKED.finditer(output)
        }
        return {release: found[release] for release in releases if release in found}

    def published_at(self, package: str, version: str) -> datetime | None:
        """Return the moment of the first of a release's files (``ages.PublishedAt``). Raises
        UvRefusedError."""
        text = self.lock(Wanted((f"{package}=={version}",)), alone=[package]).text
        moments = [
            moment_in(str(file.get("upload-time", "")))
            for table in package_tables("uv.lock", text)
            if table.get("name") == canonicalize_name(package)
            for file in tables([*table.get("wheels", ()), table.get("sdist")])
        ]
        return min((it for it in moments if it is not None), default=None)

    def next_release(self, package: str, version: str, until: datetime | None = None) -> str:
        """Return the lowest release above a version that is not yanked. ``until``: not published later."""
        options = ["--no-deps", "--resolution=lowest"]
        if until is not None:
            options.append(f"--exclude-newer={until.isoformat(timespec='seconds')}")
        wanted = Wanted((f"{package}>{version}",))
        found, *_ = _LINE.finditer(self._compile(wanted, *options, quick=True, needs=_LINE))
        return found["version"]

    def hashes(self, package: str, version: str) -> tuple[str, ...]:
        """Return the hashes of every file of one release."""
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
        """Return the scratch uv.lock of a set of requirements; the same question is asked once a run.

        ``alone``: lock these packages only, without what they require. ``stubs``: as ``uv_lock``.
        """
        requirements = [_requirement_line(it) for it in wanted.requirements]
        constraints = [_requirement_line(it) for it in wanted.constraints]
        overrides = [_requirement_line(it) for it in wanted.overrides]
        if not _PYTHON.fullmatch(self.python):
            raise resolver_failed(
                f"{self.python[:_MAX_ASKED]!r} is no version of Python.", kind="not_a_python"
            )
        # uv starts an interpreter that the project supports, and this one may be too old for it.
        lowest = min(self.python, THIS_PYTHON, key=lambda it: [*map(int, it.split("."))])
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
        # Nothing is left for a build to tell; --no-build would hide the source distribution.
        manifest += "".join(
            f"[[tool.uv.dependency-metadata]]\nname = {json.dumps(name)}\nrequires-dist = []\n"
            for name in alone
        )
        made_of = tuple(sorted((stubs or {}).items()))
        result, words, text = _locked(self.clients, manifest, tuple(options), made_of)
        passed_over, taken = _steps(result.output)
        if text is None:
            asked = ", ".join((*requirements, *constraints))
            words = "no answer in time" if result.timed_out else words
            head = f"uv finds no usable {asked[:_MAX_ASKED]}"
            said = _LOG_LINE.sub("", result.output)
            raise UvRefusedError(head, said, result.refused_hosts, passed_over, words)
        packages = package_tables("uv.lock", text)
        held = frozenset(str(it["name"]) for it in packages if "registry" in table_of(it, "source"))
        # All packages of the lock, if this uv logs its steps in other words.
        return Locked(text, passed_over=passed_over if held <= taken else held)

    def _compile(
        self,
        wanted: Wanted,
        *options: str,
        quick: bool = False,
        needs: re.Pattern[str] = _ANYTHING,
    ) -> str:
        """Return uv's output. Raises UvRefusedError if it fails, or has nothing that it ``needs``."""
        lines = (wanted.requirements, wanted.constraints, wanted.overrides)
        texts = tuple(
            (name, "".join(f"{_requirement_line(it)}\n" for it in held))
            for name, held in zip(_FILES, lines, strict=True)
        )
        result, words = _compiled(self.clients, texts, options, quick=quick)
        if result.ok and needs.search(result.output):
            return result.output
        message = "no answer in time" if result.timed_out else words
        asked = ", ".join((*wanted.requirements, *wanted.constraints))[:_MAX_ASKED]
        raise UvRefusedError(f"uv finds no usable {asked}", result.output, words=message)


def _yanked(match: re.Match[str]) -> str:
    return f"is yanked ({match['reason']})" if match["reason"] else "is yanked"


def _steps(log: str) -> tuple[frozenset[str], set[str]]:
    """Return the packages of which uv looked at a version that it did not take, and those of which it took
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
    """Return uv's result, and its message on one line: each project asks about the same releases."""
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
    """Return uv's result, its message on one line, and its lock; None: it made none."""
    with scratch_folder("uv") as folder:
        root = _laid_out(folder, {"pyproject.toml": manifest})
        links = _write_stubs(root, dict(stubs))
        # The settings are in the manifest, which is ours: it has to be read.
        env = {"UV_NO_CONFIG": "", **_LOGGED}
        command = ["lock", *options, *links, "--python", str(ours())]
        result = run_uv(clients, root, command, env)
        text = (root / "uv.lock").read_bytes().decode() if result.ok else None
        return result, own_words(_LOG_LINE.sub("", result.output), folder), text
