"""The real uv, in scratch folders that hold manifests and locks and no more.

Nothing is ever built: neither a project nor a source distribution runs code out here.
"""

import re
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from fallback_audit.vocabulary import BlockerKind, RefusalReason
from fallback_plugins.pypi.locks.uv_lock import STUBS
from fallback_plugins.pypi.manifests import hosts
from fallback_plugins.pypi.manifests.metadata import asked_python
from fallback_plugins.pypi.manifests.pyproject import NO_BACKEND
from fallback_plugins.pypi.manifests.pythons import fits, minor_of, suited_once
from fallback_plugins.pypi.manifests.uv_settings import index_variables
from fallback_plugins.pypi.uv_words import blamed, blockers_in
from fallback_plugins.shared.bumping import unsupported
from fallback_plugins.shared.ladder import blocked, client_refused, refused_for
from fallback_plugins.shared.scratch import scratch_folder
from fallback_plugins.shared.tree import DependencyTree
from fallback_tier.errors import RecipeError
from fallback_tier.execution import ClientRunner, CommandResult
from fallback_tier.outcome import Blocker

#: Seconds for one uv run: seconds in practice; the registry may be slow.
UV_TIMEOUT_S = 300.0

#: How much of uv's own words is read for a refusal.
_MAX_WORDS = 600

#: How much of a line that is no requirement a refusal repeats.
_MAX_LINE = 100

_ALWAYS = ("--no-python-downloads", "--no-progress", "--color=never")

_STUB_WHEEL = "Wheel-Version: 1.0\nGenerator: stub\nRoot-Is-Purelib: true\nTag: py3-none-any\n"

_YANKED = re.compile(r"warning: `(?P<name>[^`=\[]+)(?:\[[^`]*\])?==(?P<version>[^`]+)` is yanked")
_NO_SOLUTION = "No solution found"


@dataclass(frozen=True)
class Locked:
    """A lock that uv made, and the releases in it that are yanked (canonical name, version)."""

    text: str
    yanked: frozenset[tuple[str, str]] = frozenset()


class UvRefusedError(RecipeError):
    """uv could not resolve. ``output``: all that it printed; ``refused_hosts``: those that it may not ask;
    ``passed_over``: as ``uv_client.Scratch``. ``words``: its message, which is quoted if it names no known
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
        raise resolver_failed(
            f"{text[:_MAX_LINE]!r} is no requirement.", kind="not_a_requirement"
        ) from error
    if requirement.url is not None:
        raise resolver_failed(
            f"{text[:_MAX_LINE]!r} names an address, and addresses are not fetched.", kind="address"
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


def resolver_failed(problem: str, blocker: Blocker | None = None, *, kind: str = "") -> RecipeError:
    """The typed refusal for what uv could not, or should not, resolve."""
    known = blocker or Blocker(kind=BlockerKind.RESULT, constraint=problem.rstrip("."))
    return refused_for(known, kind=kind)


def yanked_in(output: str) -> frozenset[tuple[str, str]]:
    """Yanked releases that uv warned about."""
    return frozenset(
        (canonicalize_name(match["name"]), match["version"]) for match in _YANKED.finditer(output)
    )


def blocker_of(error: RecipeError, package: str) -> tuple[str, str] | None:
    """Which parent, by which constraint, uv's own words blame for a package; None: they don't say."""
    return blamed(error.output, package) if isinstance(error, UvRefusedError) else None


def own_words(output: str, scratch: Path) -> str:
    """uv's message on one line, bounded, without its progress and our scratch folder's name."""
    _, found, errors = output.partition("error:")
    message = " ".join((errors if found else output).replace(str(scratch), ".").split())
    return message[:_MAX_WORDS].rstrip(" ;.") or "nothing"
