"""What the gates of every ecosystem share: verdicts, the patched files, the base, running commands.

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

#: How much of a client's own words a verdict's one sentence repeats.
_QUOTED_CHARS = 300

#: Packages that a question about a registry names: a lock can have thousands.
_ASKED = 30

#: Places that a verdict's one sentence names.
_NAMED = 5

#: What npm, yarn, pnpm and uv say where the registry, not the patch, is the trouble. Codes as they are
#: written: a package may be called e512.
_UNREACHABLE = re.compile(
    r"\b(?:ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ECONNRESET|ETIMEDOUT|ERR_SOCKET_TIMEOUT|E5\d\d)\b"
    r"|ERR_PNPM_FETCH_5\d\d|(?i:Request failed \"5\d\d|Response Code: 5\d\d"
    r"|error sending request|dns error|tcp connect error|operation timed out)",
)

#: What ends a path in a log, seen from its end. One with spaces is known from the root alone.
_NOT_IN_A_PATH = " \t\r\n\0\"'`()[]{}<>,:;=|"

_HOST = re.compile(r"https?://(?:[^/\s@]*@)?([\w.\-]+(?::\d+)?)")


def unread(gate: str, reason: str) -> GateVerdict:
    """Return a skipped verdict with which no pass proves a tree: something that counts could not be
    read."""
    return skipped(gate, reason).model_copy(update={"proof_level": ProofLevel.PINS})


def unjudged(verdict: GateVerdict, folder: str) -> GateVerdict:
    """Return the verdict on a project's tests that were not judged, for the reason that it gives."""
    tests = JudgedTests(project=folder, tests_level=TestsLevel.NOT_JUDGED, reason=verdict.detail)
    return verdict.model_copy(update={"tests_level": tests.tests_level, "tests": (tests,)})


def untested(gate: str, reason: str) -> GateVerdict:
    """Return the verdict on a project without tests: with one that has some, it is ignored
    (``combined``)."""
    verdict = skipped(gate, reason, kinds=["no_tests"])
    return verdict.model_copy(update={"tests_level": TestsLevel.NOT_JUDGED})


def without_dependencies(gate: str, project: str) -> GateVerdict:
    """Return the verdict of a gate on dependencies on a project that declares none."""
    return skipped(gate, f"{project} declares no dependencies", kinds=["no_dependencies"])


def own_names(affected: Affected | None, packages: Sequence[str]) -> tuple[str, ...]:
    """Return the advisory's packages that are the repository's own; all, if a person stated so and no
    manifest names one."""
    if affected is None or not affected.is_own:
        return ()
    own = {one.name for one in affected.own}
    return tuple(package for package in packages if not own or package in own)


def of_versions(gate: str, verdicts: Sequence[GateVerdict]) -> GateVerdict:
    """Return one verdict over the packages of an advisory: a pass means that every one of them was read."""
    unread = [one for one in verdicts if one.status is GateStatus.SKIPPED and one.proof_level]
    if unread and not any(one.status is GateStatus.FAILED for one in verdicts):
        return skipped(gate, "; ".join(one.detail for one in verdicts), kinds=_kinds_of(verdicts))
    return combined(gate, verdicts)


def of_own_code(
    gate: str,
    affected: Affected,
    copies: Callable[[], Mapping[str, str]],
    others: Sequence[GateVerdict],
) -> GateVerdict:
    """Return the verdict on the repository's own code, which no version shows; copies are only reported.

    ``copies``: place → version of what the base commit has of its own packages from a registry. ``others``:
    verdicts on further packages of the advisory, which are dependencies: one that is affected still fails.
    """
    if bad := [one for one in others if one.status is GateStatus.FAILED]:
        return combined(gate, bad)
    names = ", ".join(package.name for package in affected.own) or "the affected package"
    what = f"{names} is this repository's own code, and no version shows whether a patch is in it"
    try:
        held = copies()
    except (RecipeError, RepositoryError) as error:
        return skipped(gate, f"{what}; which copies of it are here is unknown: {error.problem}")
    if held:
        places = [f"{place} ({version})" for place, version in held.items()]
        what += f"; not a part of it, and not changed: {some_of(places, _NAMED)}"
    return skipped(gate, what)


def of_installed(
    gate: str, client: str, found: Installed, lacks: Callable[[], bool]
) -> GateVerdict | None:
    """Return failed if less can be installed than of the base commit, skipped if nothing can; None: some of
    it is installed. ``lacks``: is it less? Called only if something could not be installed."""
    if found.declined and lacks():
        message = f"{client} can't install what it can at the base commit: {found.in_words}"
        return failed(gate, FailureKind.RESOLUTION_FAILED, message, found.in_full)
    if found.level is Level.METADATA:
        why = f"{client} can't install the base commit either, so this shows nothing: {found.in_words}"
        return skipped(gate, why, found.in_full, kinds=["base_not_installable"])
    return None


def beside_base(verdict: GateVerdict, found: Installed, base: Installed) -> GateVerdict:
    """Note if the base commit can't be installed, or only a part of it: nothing is compared with it then,
    or something else than it declares."""
    if base.absent is not None:
        note = (
            f"the base commit can't be installed, so nothing is compared with it: {base.in_words}"
        )
    elif base.level is Level.IN_PART and found.level is Level.EVERYTHING:
        note = f"what is compared with the base commit has only a part of its packages: {base.in_words}"
    else:
        return verdict
    return verdict.model_copy(update={"notes": (*verdict.notes, note)})


def depends_on_setting(verdict: GateVerdict) -> bool:
    """Return whether a verdict would be undecided if the two trees are not installed alike: a failure,
    which may be caused by the setting; and a pass with tests that fail in both trees: for lack of something
    there, they may fail for the patch here. Any other pass stays one: it was seen with what users get."""
    return verdict.status is GateStatus.FAILED or bool(verdict.failing_before)


def beside_another_setting(verdict: GateVerdict, otherwise: str) -> GateVerdict:
    """Return undecided for a verdict that depends on the setting, if the two trees are not installed alike
    (``Installed.otherwise_than``)."""
    if not otherwise or not depends_on_setting(verdict):
        return verdict
    what = f"{verdict.detail}; and it is not installed as the base commit was: {otherwise}"
    kinds = verdict.kinds | {"another_setting"}
    found = undecided(verdict.gate, what, verdict.log, kinds=kinds)
    return found.model_copy(update={"tests_level": verdict.tests_level, "tests": verdict.tests})


def timed_out(gate: str, result: CommandResult, context: GateContext) -> GateVerdict:
    """Return the verdict on a command of the target that the wall clock ended."""
    what = f"{' '.join(result.argv[:3])} did not end within {context.timeout_s:.0f} s"
    return failed(
        gate, FailureKind.GATE_TIMEOUT, what, relative_log(result, context.worktree.tree.root)
    )


def combined(gate: str, verdicts: Sequence[GateVerdict]) -> GateVerdict:
    """Return one verdict over several project folders: a failure decides, then what is undecided, then a
    pass. The weakest level of tests counts, whichever verdict has it; of those that are about tests, if
    there are any (``untested``)."""
    found = verdicts[0] if verdicts else skipped(gate, "no project of this ecosystem is here")
    for status in (GateStatus.FAILED, GateStatus.UNDECIDED, GateStatus.PASSED):
        chosen = [verdict for verdict in verdicts if verdict.status is status]
        if status is GateStatus.PASSED and chosen:
            left = (v for v in verdicts if v.status is GateStatus.SKIPPED and v.proof_level)
            chosen += [verdict.model_copy(update={"status": status}) for verdict in left]
        if chosen:
            found = chosen[0] if len(chosen) == 1 else _joined(chosen)
            break
    levels = [it.tests_level for it in verdicts if it.tests] or [it.tests_level for it in verdicts]
    if not any(levels):
        return found
    level = TestsLevel.weakest(one or TestsLevel.NOT_JUDGED for one in levels)
    tests = tuple(one for verdict in verdicts for one in verdict.tests)
    return found.model_copy(update={"tests_level": level, "tests": tests})


def patched(context: GateContext) -> RepoContext:
    """Return the repository's tracked files with the patch: same bounds, links never followed."""
    return context.repo.laid_out(context.worktree.tree)


def project_folders(context: GateContext, *kinds: Callable[[str], bool]) -> tuple[str, ...]:
    """Return for each changed file the nearest project folder at or above it; "." is the root.

    ``kinds``: what makes a folder one, the best first: another counts if a file has none of those before.
    """
    found: dict[str, None] = {}
    for path in context.application.files:
        parents = [str(parent) for parent in PurePosixPath(path).parents]
        nearest = next((folder for kind in kinds for folder in parents if kind(folder)), None)
        if nearest is not None:
            found[nearest] = None
    return tuple(found)


def in_folder(folder: str, name: str) -> str:
    """Return the repository path of a file in a folder."""
    return name if folder == "." else f"{folder}/{name}"


def command_in(folder: str, argv: Sequence[str]) -> tuple[str, ...]:
    """Return the command, run in a folder of the worktree (a sandbox starts in its root)."""
    return tuple(argv) if folder == "." else ("env", "-C", folder, *argv)


def relative_log(result: CommandResult, tree: Path) -> str:
    """Return a command's output with the repository's paths relative: the same on every machine."""
    text = result.output.replace(f"file://{tree}/", "").replace(f"{tree}/", "")
    return text.replace(str(tree), ".")


def placeless(output: str, place: Path, stands_for_it: str) -> str:
    """Return an output with one placeholder for a folder of the store, however its path is written: from
    the root, or from where the command ran. What is compared is at two paths."""
    name = f"{place.parent.name}/{place.name}"
    *pieces, rest = output.replace(str(place), stands_for_it).split(name)
    ends = (max(piece.rfind(one) for one in _NOT_IN_A_PATH) + 1 for piece in pieces)
    before = [piece[:end] + stands_for_it for piece, end in zip(pieces, ends, strict=True)]
    return "".join([*before, rest])


def in_short(output: str) -> str:
    """Return the end of a client's output, on one line."""
    return " ".join(output.split())[-_QUOTED_CHARS:]


def some_of(names: Sequence[str], most: int) -> str:
    """Return so many names, and how many more there are."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def content_key(*parts: object) -> str:
    """Return a file name for what these parts decide."""
    return sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()[:32]


@contextmanager
def scratch(context: GateContext) -> Iterator[Path]:
    """Yield a separate folder in the cache, removed at the end, whatever a target's command left in it."""
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
    """Raise ToolFailedError if the registry did not answer, or may not be asked: that shows nothing about a
    patch.

    ``asked``: all that it is asked for. Clients name one package, and not the same each time: which of them
    only that registry has is for a person to see.
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
        where = ", ".join(sorted(unreached(result.output)))
        names = [*dict.fromkeys(asked())]
        what = f" {where}" if where else ""
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
    # Failing tests come before what else failed: the next attempt, and a person, read of them.
    first = next((verdict for verdict in verdicts if verdict.broken), verdicts[0])
    each = {
        field: tuple(dict.fromkeys(it for verdict in verdicts for it in getattr(verdict, field)))
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


#: Puts a folder first on the path that the sandbox gives, then becomes the command. The exit code is 127
#: where there is no such command, 126 where it can't be executed (POSIX.1-2017, XCU 2.8.2).
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
    """Run it in a folder of the tree, its output's paths relative. ``programs``: looked through first;
    ``servers``: as for ``Sandbox.run``; ``suite_time``: it is a run of the project's tests, with this time.
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
    reported = {"argv": tuple(argv), "output": relative_log(result, tree.root)}
    return result.model_copy(update=reported)
