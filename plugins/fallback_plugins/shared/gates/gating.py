"""Functions that the gates of all ecosystems share: verdicts, patched files, running commands.

A plugin may import neither ``fallback_tier.gates`` nor another plugin.
"""

import json
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path, PurePosixPath

from fallback_audit.event_types import JudgedTests
from fallback_audit.vocabulary import FailureKind, GateStatus, ProofLevel, TestsLevel
from fallback_plugins.shared.installation import Installed, Level
from fallback_tier.affected import Affected
from fallback_tier.errors import RecipeError, RepositoryError, ToolFailedError
from fallback_tier.execution import CommandResult
from fallback_tier.files.folders import remove_tree
from fallback_tier.gate_ports import GateContext, GateVerdict, SuiteTime
from fallback_tier.gate_ports import failed as failed
from fallback_tier.gate_ports import passed as passed
from fallback_tier.gate_ports import skipped as skipped
from fallback_tier.gate_ports import undecided as undecided
from fallback_tier.hosts import allow_step
from fallback_tier.repo import RepoContext
from fallback_tier.verdict_logs import joined

#: Characters of a client's output that a verdict's sentence quotes.
_QUOTED_CHARS = 300

#: Packages that a question about a registry names, at most: a lock can have thousands.
_ASKED = 30

#: Places that a verdict's sentence names.
_NAMED = 5

#: Messages of npm, yarn, pnpm and uv if the registry, not the patch, is the cause. Codes are matched with
#: their case: a package may be called e512.
_UNREACHABLE = re.compile(
    r"\b(?:ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ECONNRESET|ETIMEDOUT|ERR_SOCKET_TIMEOUT|E5\d\d)\b"
    r"|ERR_PNPM_FETCH_5\d\d|(?i:Request failed \"5\d\d|Response Code: 5\d\d"
    r"|error sending request|dns error|tcp connect error|operation timed out)",
)

#: Characters that end a path in a log, seen from the path's end. A path with spaces is found only if
#: absolute.
_NOT_IN_A_PATH = " \t\r\n\0\"'`()[]{}<>,:;=|"

_HOST = re.compile(r"https?://(?:[^/\s@]*@)?([\w.\-]+(?::\d+)?)")


def unread(gate: str, reason: str) -> GateVerdict:
    """Return a skipped verdict with which no pass proves a tree, as something that counts could not be
    read."""
    return skipped(gate, reason).model_copy(update={"proof_level": ProofLevel.PINS})


def unjudged(verdict: GateVerdict, folder: str) -> GateVerdict:
    """Return the verdict on a project's tests as not judged, with its detail as the reason."""
    tests = JudgedTests(project=folder, tests_level=TestsLevel.NOT_JUDGED, reason=verdict.detail)
    return verdict.model_copy(update={"tests_level": tests.tests_level, "tests": (tests,)})


def untested(gate: str, reason: str) -> GateVerdict:
    """Return the verdict on a project without tests; it is ignored if another project has some
    (``combined``)."""
    verdict = skipped(gate, reason, kinds=["no_tests"])
    return verdict.model_copy(update={"tests_level": TestsLevel.NOT_JUDGED})


def without_dependencies(gate: str, project: str) -> GateVerdict:
    """Return the verdict of a gate on dependencies if a project declares none."""
    return skipped(gate, f"{project} declares no dependencies", kinds=["no_dependencies"])


def own_names(affected: Affected | None, packages: Sequence[str]) -> tuple[str, ...]:
    """Return the advisory's packages that are the repository's own. If a person stated that it is own code
    and no manifest names a package, all of them."""
    if affected is None or not affected.is_own:
        return ()
    names = {package.name for package in affected.own}
    return tuple(package for package in packages if not names or package in names)


def of_versions(gate: str, verdicts: Sequence[GateVerdict]) -> GateVerdict:
    """Return one verdict over the packages of an advisory. It is a pass only if every package was read."""
    unread = [
        verdict
        for verdict in verdicts
        if verdict.status is GateStatus.SKIPPED and verdict.proof_level
    ]
    if unread and not any(verdict.status is GateStatus.FAILED for verdict in verdicts):
        return skipped(
            gate, "; ".join(verdict.detail for verdict in verdicts), kinds=_kinds_of(verdicts)
        )
    return combined(gate, verdicts)


def of_own_code(
    gate: str,
    affected: Affected,
    copies: Callable[[], Mapping[str, str]],
    others: Sequence[GateVerdict],
) -> GateVerdict:
    """Return the verdict on the repository's own code, which no version shows. Copies are only reported.

    ``copies``: returns the copies of its own packages that the base commit has from a registry, place →
    version. ``others``: verdicts on further packages of the advisory, which are dependencies: an affected
    one still fails.
    """
    if failures := [verdict for verdict in others if verdict.status is GateStatus.FAILED]:
        return combined(gate, failures)
    names = ", ".join(package.name for package in affected.own) or "the affected package"
    what = f"{names} is this repository's own code, and no version shows whether a patch is in it"
    try:
        version_by_place = copies()
    except (RecipeError, RepositoryError) as error:
        return skipped(gate, f"{what}; which copies of it are here is unknown: {error.problem}")
    if version_by_place:
        places = [f"{place} ({version})" for place, version in version_by_place.items()]
        what += f"; not a part of it, and not changed: {some_of(places, _NAMED)}"
    return skipped(gate, what)


def of_installed(
    gate: str, client: str, installed: Installed, lacks: Callable[[], bool]
) -> GateVerdict | None:
    """Return failed if less can be installed than of the base commit, skipped if nothing can, None if some
    of it is installed. ``lacks``: whether it is less; called only if something could not be installed."""
    if installed.declined and lacks():
        what = f"{client} can't install what it can at the base commit: {installed.in_words}"
        return failed(gate, FailureKind.RESOLUTION_FAILED, what, installed.in_full)
    if installed.level is Level.METADATA:
        why = f"{client} can't install the base commit either, so this shows nothing: {installed.in_words}"
        return skipped(gate, why, installed.in_full, kinds=["base_not_installable"])
    return None


def beside_base(verdict: GateVerdict, installed: Installed, base: Installed) -> GateVerdict:
    """Add a note if the base commit can't be installed, or only a part of it: then nothing is compared with
    it, or something else than it declares."""
    if base.absent is not None:
        note = (
            f"the base commit can't be installed, so nothing is compared with it: {base.in_words}"
        )
    elif base.level is Level.IN_PART and installed.level is Level.EVERYTHING:
        note = f"what is compared with the base commit has only a part of its packages: {base.in_words}"
    else:
        return verdict
    return verdict.model_copy(update={"notes": (*verdict.notes, note)})


def depends_on_setting(verdict: GateVerdict) -> bool:
    """Return whether a verdict would be undecided if the two trees were not installed alike. That is so for
    a failure, whose cause may be the setting, and for a pass with tests that fail in both trees: they may
    fail there for lack of a package and here for the patch. Any other pass was seen with what users get."""
    return verdict.status is GateStatus.FAILED or bool(verdict.failing_before)


def beside_another_setting(verdict: GateVerdict, otherwise: str) -> GateVerdict:
    """Return undecided for a verdict that depends on the setting, if the two trees are not installed alike.
    ``otherwise``: how they differ (``Installed.otherwise_than``), empty if they don't."""
    if not otherwise or not depends_on_setting(verdict):
        return verdict
    what = f"{verdict.detail}; and it is not installed as the base commit was: {otherwise}"
    kinds = verdict.kinds | {"another_setting"}
    undecided_verdict = undecided(verdict.gate, what, verdict.log, kinds=kinds)
    return undecided_verdict.model_copy(
        update={"tests_level": verdict.tests_level, "tests": verdict.tests}
    )


def timed_out(gate: str, result: CommandResult, context: GateContext) -> GateVerdict:
    """Return the verdict on a command of the target that the time limit ended."""
    what = f"{' '.join(result.argv[:3])} did not end within {context.timeout_s:.0f} s"
    return failed(
        gate, FailureKind.GATE_TIMEOUT, what, relative_log(result, context.worktree.tree.root)
    )


def combined(gate: str, verdicts: Sequence[GateVerdict]) -> GateVerdict:
    """Return one verdict over several project folders: a failure decides, then what is undecided, then a
    pass. Its level of tests is the weakest of all verdicts; if there are verdicts on tests, of those
    (``untested``)."""
    result = verdicts[0] if verdicts else skipped(gate, "no project of this ecosystem is here")
    for status in (GateStatus.FAILED, GateStatus.UNDECIDED, GateStatus.PASSED):
        chosen = [verdict for verdict in verdicts if verdict.status is status]
        if status is GateStatus.PASSED and chosen:
            unread_verdicts = (
                verdict
                for verdict in verdicts
                if verdict.status is GateStatus.SKIPPED and verdict.proof_level
            )
            chosen += [verdict.model_copy(update={"status": status}) for verdict in unread_verdicts]
        if chosen:
            result = chosen[0] if len(chosen) == 1 else _joined(chosen)
            break
    levels = [verdict.tests_level for verdict in verdicts if verdict.tests] or [
        verdict.tests_level for verdict in verdicts
    ]
    if not any(levels):
        return result
    level = TestsLevel.weakest(level or TestsLevel.NOT_JUDGED for level in levels)
    tests = tuple(account for verdict in verdicts for account in verdict.tests)
    return result.model_copy(update={"tests_level": level, "tests": tests})


def patched(context: GateContext) -> RepoContext:
    """Return the repository's tracked files with the patch, with the same limits; links are never
    followed."""
    return context.repo.laid_out(context.worktree.tree)


def project_folders(context: GateContext, *kinds: Callable[[str], bool]) -> tuple[str, ...]:
    """Return the nearest project folder at or above each changed file; "." is the root.

    ``kinds``: predicates of a project folder, the best first: a later one counts if none before holds.
    """
    folders: dict[str, None] = {}
    for path in context.application.files:
        parents = [str(parent) for parent in PurePosixPath(path).parents]
        nearest = next((folder for kind in kinds for folder in parents if kind(folder)), None)
        if nearest is not None:
            folders[nearest] = None
    return tuple(folders)


def in_folder(folder: str, name: str) -> str:
    """Return the repository path of a file in a folder."""
    return name if folder == "." else f"{folder}/{name}"


def command_in(folder: str, argv: Sequence[str]) -> tuple[str, ...]:
    """Return the command that runs in a folder of the worktree (a sandbox starts in its root)."""
    return tuple(argv) if folder == "." else ("env", "-C", folder, *argv)


def relative_log(result: CommandResult, tree: Path) -> str:
    """Return a command's output with the repository's paths relative: the same on every machine."""
    text = result.output.replace(f"file://{tree}/", "").replace(f"{tree}/", "")
    return text.replace(str(tree), ".")


def placeless(output: str, folder: Path, stands_for_it: str) -> str:
    """Return an output with a placeholder for a folder of the store, whether its path is absolute or
    relative to where the command ran: so outputs of two folders can be compared."""
    name = f"{folder.parent.name}/{folder.name}"
    *pieces, rest = output.replace(str(folder), stands_for_it).split(name)
    ends = (max(piece.rfind(sign) for sign in _NOT_IN_A_PATH) + 1 for piece in pieces)
    before = [piece[:end] + stands_for_it for piece, end in zip(pieces, ends, strict=True)]
    return "".join([*before, rest])


def in_short(output: str) -> str:
    """Return the end of a client's output, on one line."""
    return " ".join(output.split())[-_QUOTED_CHARS:]


def some_of(names: Sequence[str], most: int) -> str:
    """Return the first ``most`` names, and how many more there are."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def content_key(*parts: object) -> str:
    """Return a file name that is the same for equal parts."""
    return sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()[:32]


@contextmanager
def scratch(context: GateContext) -> Iterator[Path]:
    """Yield a separate folder in the cache, and remove it at the end with all that a command left in it."""
    context.cache.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(dir=context.cache, prefix="scratch-")).resolve()
    try:
        yield folder
    finally:
        with suppress(OSError):
            remove_tree(folder)


def check_reachable(
    tool: str, result: CommandResult, asked: Callable[[], Sequence[str]] = tuple
) -> None:
    """Raise ToolFailedError if the registry did not answer, or may not be used: that shows nothing about a
    patch.

    ``asked``: returns all packages that are requested. Clients name one of them, not the same each time;
    a person must find out which of them only that registry has.
    """
    if result.refused_hosts and not result.ok:
        names = [*dict.fromkeys(asked())]
        what = f", for {some_of(names, _ASKED)}" if names else ""
        raise ToolFailedError(
            f"{tool} was not run{what}: {in_short(result.output[:_QUOTED_CHARS])}",
            next_step=allow_step(result.refused_hosts),
            output=result.output,
        )
    if result.timed_out or _UNREACHABLE.search(result.output):
        host_names = ", ".join(sorted(unreached(result.output)))
        names = [*dict.fromkeys(asked())]
        what = f" {host_names}" if host_names else ""
        what += f", asked for {some_of(names, _ASKED)}" if names else ""
        raise ToolFailedError(
            f"{tool} could not reach its registry{what}: {in_short(result.output) or 'no answer'}",
            next_step="Check the network, the proxy and the registry settings, and run it again.",
            output=result.output,
            kind="registry_unreachable",
        )


def hosts(text: str) -> frozenset[str]:
    """Return the hosts of the addresses in a text, with their ports."""
    return frozenset(_HOST.findall(text))


def unreached(output: str) -> frozenset[str]:
    """Return the hosts that a client reports did not answer, if it names any."""
    return hosts("\n".join(line for line in output.splitlines() if _UNREACHABLE.search(line)))


def _joined(verdicts: Sequence[GateVerdict]) -> GateVerdict:
    details = "; ".join(verdict.detail for verdict in verdicts)
    logs = joined([verdict.log for verdict in verdicts if verdict.log])
    levels = {verdict.proof_level for verdict in verdicts}
    # The weakest counts: a whole is proved no better than its parts.
    level = ProofLevel.PINS if ProofLevel.PINS in levels else verdicts[0].proof_level
    # The next attempt and a person read the first log: failing tests come before other failures.
    first = next((verdict for verdict in verdicts if verdict.broken), verdicts[0])
    each = {
        field: tuple(
            dict.fromkeys(item for verdict in verdicts for item in getattr(verdict, field))
        )
        for field in ("flaky", "broken", "failing_before", "notes")
    }
    update: dict[str, object] = {
        "detail": details,
        "log": logs,
        "proof_level": level,
        "kinds": _kinds_of(verdicts),
        "projects": tuple(project for verdict in verdicts for project in verdict.projects),
    }
    return first.model_copy(update={**update, **each})


def _kinds_of(verdicts: Sequence[GateVerdict]) -> frozenset[str]:
    return frozenset[str]().union(*(verdict.kinds for verdict in verdicts))


#: Puts a folder first on the sandbox's path, then replaces itself by the command. The exit code is 127 if
#: there is no such command, 126 if it can't be executed (POSIX.1-2017, XCU 2.8.2).
_WITH_PROGRAMS = 'PATH="$1:$PATH"; export PATH; shift; exec "$@"'


def run_as_given(
    context: GateContext,
    tree: RepoContext,
    argv: Sequence[str],
    *,
    programs: Path,
    folder: str = ".",
    timeout_s: float | None = None,
    env: Mapping[str, str] | None = None,
    readable: Sequence[Path] = (),
    servers: Sequence[str] = (),
    suite_time: SuiteTime | None = None,
) -> CommandResult:
    """Run a command in a folder of the tree and return its result, with the tree's paths relative.
    ``programs``: a folder that is searched first; ``servers``: as for ``Sandbox.run``; ``suite_time``: the
    time limits, if it is a run of the project's tests.
    """
    time = suite_time or SuiteTime(context.timeout_s if timeout_s is None else timeout_s)
    result = context.sandbox.run(
        command_in(folder, ["sh", "-c", _WITH_PROGRAMS, "sh", str(programs), *argv]),
        worktree=tree.tree,
        timeout_s=time.limit_s,
        silent_s=time.silent_s,
        env=env,
        readable=readable,
        servers=servers,
    )
    update = {"argv": tuple(argv), "output": relative_log(result, tree.root)}
    return result.model_copy(update=update)
