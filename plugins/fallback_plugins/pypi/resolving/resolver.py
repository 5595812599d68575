"""The real uv, in scratch folders that hold manifests and locks and no more.

Nothing is ever built: neither a project nor a source distribution runs code out here.
"""

import re
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from fallback_audit.vocabulary import RefusalReason
from fallback_plugins.pypi.locks.uv_lock import STUBS
from fallback_plugins.pypi.manifests import hosts
from fallback_plugins.pypi.manifests.metadata import asked_python
from fallback_plugins.pypi.manifests.pyproject import NO_BACKEND
from fallback_plugins.pypi.manifests.pythons import fits, minor_of, suited_once
from fallback_plugins.pypi.manifests.uv_settings import index_variables
from fallback_plugins.pypi.uv_words import one_line, release_at, release_before
from fallback_plugins.shared.bumping import unsupported
from fallback_plugins.shared.scratch import scratch_folder
from fallback_tier.errors import RecipeError
from fallback_tier.execution import ClientRunner, CommandResult
from fallback_tier.hosts import allow_step

#: Seconds for one uv run: seconds in practice; the registry may be slow.
UV_TIMEOUT_S = 300.0

#: How much of uv's own words a refusal repeats.
_MAX_WORDS = 600

#: How much of a line that is no requirement a refusal repeats.
_MAX_LINE = 100

_ALWAYS = ("--no-python-downloads", "--no-progress", "--color=never")

_STUB_WHEEL = "Wheel-Version: 1.0\nGenerator: stub\nRoot-Is-Purelib: true\nTag: py3-none-any\n"

_YANKED = re.compile(r"warning: `(?P<name>[^`=\[]+)(?:\[[^`]*\])?==(?P<version>[^`]+)` is yanked")
_NO_SOLUTION = "No solution found"
_DEPENDS = re.compile(r" depends? on ")
#: What a message calls the project itself, whose own declaration is no parent's.
_PROJECT_ITSELF = frozenset({"project", "workspace"})


@dataclass(frozen=True)
class Locked:
    """A lock that uv made, and the releases in it that are yanked (canonical name, version)."""

    text: str
    yanked: frozenset[tuple[str, str]] = frozenset()


class UvRefusedError(RecipeError):
    """uv could not resolve. ``output``: all that it said; ``refused_hosts``: those that it may not ask;
    ``passed_over``: as ``uv_client.Scratch``."""

    def __init__(
        self,
        problem: str,
        output: str,
        refused_hosts: Sequence[str] = (),
        passed_over: frozenset[str] = frozenset(),
    ) -> None:
        next_step = allow_step(refused_hosts) if refused_hosts else _BY_HAND
        super().__init__(RefusalReason.RESOLVER_FAILED, problem, next_step=next_step)
        self.output = output
        self.passed_over = passed_over

    @property
    def found_no_solution(self) -> bool:
        """Whether the registry answered and the requirements are at fault. Otherwise nothing is known."""
        return _NO_SOLUTION in self.output


_BY_HAND = "Resolve it by hand with uv, or check that the registry is reachable."


def uv_lock(
    clients: ClientRunner,
    files: Mapping[str, str],
    lock: str,
    options: Sequence[str] = (),
    *,
    stubs: Mapping[str, str] | None = None,
) -> Locked:
    """What ``uv lock`` makes of these files (by path in the repository); ``lock``: where uv.lock lies.

    ``stubs``: metadata of releases (``name-version``) that have no wheel; only a build could tell it.
    Raises RecipeError (UvRefusedError with uv's own words), ToolMissingError.
    """
    with scratch_folder("uv") as folder:
        root = laid_out(folder, files)
        place = root / lock
        place.parent.mkdir(parents=True, exist_ok=True)
        options = [*options, *write_stubs(place.parent, stubs or {})]
        options += _interpreter(clients, files)
        result = run_uv(
            clients, place.parent, ["lock", "--no-build", *options], index_variables(files)
        )
        if NO_BACKEND in result.output:
            raise unsupported(
                "uv would have to build the project to know its metadata (`dynamic` in"
                " pyproject.toml), which would run its code outside the sandbox."
            )
        if not result.ok:
            ending = f"no answer in {UV_TIMEOUT_S:.0f} s" if result.timed_out else "it said"
            message = own_words(result.output, folder)
            problem = f"uv could not resolve it; {ending}: {message}."
            raise UvRefusedError(problem, result.output, result.refused_hosts)
        return Locked(place.read_bytes().decode(), yanked_in(result.output))


def _interpreter(clients: ClientRunner, files: Mapping[str, str]) -> list[str]:
    """The option that names a Python of this machine which the project and its members support, if there is
    one. uv itself searches the path alone, where pyenv has scripts of which only some start a Python."""
    manifests = (text for path, text in files.items() if path.endswith("pyproject.toml"))
    asked = ",".join(filter(None, (asked_python({"pyproject.toml": text}) for text in manifests)))
    python = suited_once(clients, asked)[0]
    return ["--python", str(python)] if not asked or fits(asked, minor_of(python)) else []


def uv_accepts(
    clients: ClientRunner, files: Mapping[str, str], lock: str, options: Sequence[str] = ()
) -> str | None:
    """None where uv finds the lock up to date with the manifests as it is; else its words.

    No registry is asked, nothing is built: the lock says all.
    """
    try:
        uv_lock(clients, files, lock, ["--check", "--offline", *options])
    except RecipeError as error:
        return error.problem
    return None


def run_uv(
    clients: ClientRunner,
    cwd: Path,
    arguments: Sequence[str],
    env: Mapping[str, str] | None = None,
) -> CommandResult:
    """One uv command, without downloads of interpreters, without colours. Raises ToolMissingError."""
    # uv takes no --no-compile-bytecode beside this variable.
    reported = {"UV_COMPILE_BYTECODE": "", **(env or {})}
    return hosts.run_uv(
        clients, [*arguments, *_ALWAYS], cwd=cwd, timeout_s=UV_TIMEOUT_S, env=reported
    )


def requirement_line(text: str) -> str:
    """A requirement, parsed and written anew, for uv to read outside the sandbox.

    Parts of it come out of the target's files: none may become an address, an option or a line of its
    own. Raises RecipeError.
    """
    try:
        requirement = Requirement(text)
    except InvalidRequirement as error:
        raise resolver_failed(f"{text[:_MAX_LINE]!r} is no requirement.") from error
    if requirement.url is not None:
        raise resolver_failed(
            f"{text[:_MAX_LINE]!r} names an address, and addresses are not fetched."
        )
    return str(requirement)


def laid_out(folder: Path, files: Mapping[str, str]) -> Path:
    """The files written below the folder. Bytes: text mode would change line ends."""
    for path, text in files.items():
        place = folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(text.encode())
    return folder


def write_stubs(root: Path, stubs: Mapping[str, str]) -> list[str]:
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


def resolver_failed(problem: str) -> RecipeError:
    """The typed refusal for what uv could not, or should not, resolve."""
    return RecipeError(RefusalReason.RESOLVER_FAILED, problem, next_step=_BY_HAND)


def yanked_in(output: str) -> frozenset[tuple[str, str]]:
    """Yanked releases that uv warned about."""
    return frozenset(
        (canonicalize_name(match["name"]), match["version"]) for match in _YANKED.finditer(output)
    )


def blocker_of(error: RecipeError, package: str) -> tuple[str, str] | None:
    """Which parent, by which constraint, uv's own words blame for a package; None: they don't say."""
    if not isinstance(error, UvRefusedError):
        return None
    line = one_line(error.output)
    for between in _DEPENDS.finditer(line):
        parent, child = release_before(line, between.start()), release_at(line, between.end())
        if parent is None or parent[0] in _PROJECT_ITSELF or child is None:
            continue
        name, spec = child
        if spec and canonicalize_name(name) == package:
            return canonicalize_name(parent[0]), spec
    return None


def own_words(output: str, scratch: Path) -> str:
    """uv's message on one line, bounded, without its progress and our scratch folder's name."""
    _, found, errors = output.partition("error:")
    message = " ".join((errors if found else output).replace(str(scratch), ".").split())
    return message[:_MAX_WORDS].rstrip(" ;.") or "nothing"
