"""What the gates of every ecosystem need, over ports alone: verdicts, the patched files, the base.

A plugin may not see ``fallback_tier.gates``; plugins may not see each other. This module belongs to
none of them.
"""

import json
import re
import secrets
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path, PurePosixPath

from fallback_audit.vocabulary import FailureKind, GateStatus, ProofLevel
from fallback_tier.errors import ToolFailedError
from fallback_tier.ports import CommandResult, GateContext, GateVerdict
from fallback_tier.repo import RepoContext

#: How much of a client's own words a verdict's one sentence repeats.
_QUOTED_CHARS = 300

#: Reading a commit into an index and writing its files.
_GIT_TIMEOUT_S = 300.0

#: What npm and uv say where the registry, not the patch, is the trouble.
_UNREACHABLE = re.compile(
    r"\b(?:ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ECONNRESET|ETIMEDOUT|ERR_SOCKET_TIMEOUT|E5\d\d)\b"
    r"|error sending request|dns error|tcp connect error|operation timed out",
    re.IGNORECASE,
)


def passed(
    gate: str, detail: str, log: str = "", *, proof_level: ProofLevel | None = None
) -> GateVerdict:
    """The gate's condition holds; ``proof_level`` where it says which versions are there."""
    return GateVerdict(
        gate=gate, status=GateStatus.PASSED, detail=detail, log=log, proof_level=proof_level
    )


def skipped(gate: str, reason: str, log: str = "") -> GateVerdict:
    """The gate could say nothing, and why; never a pass."""
    return GateVerdict(gate=gate, status=GateStatus.SKIPPED, detail=reason, log=log)


def failed(gate: str, kind: FailureKind, detail: str, log: str = "") -> GateVerdict:
    """The gate's condition does not hold."""
    return GateVerdict(
        gate=gate, status=GateStatus.FAILED, failure_kind=kind, detail=detail, log=log
    )


def timed_out(gate: str, result: CommandResult, context: GateContext) -> GateVerdict:
    """The wall clock ended a command of the target."""
    what = f"{' '.join(result.argv[:3])} did not end within {context.timeout_s:.0f} s"
    return failed(gate, FailureKind.GATE_TIMEOUT, what, relative_log(result, context.worktree))


def combined(gate: str, verdicts: Sequence[GateVerdict]) -> GateVerdict:
    """One verdict over several project folders: a failure decides, then a pass."""
    for status in (GateStatus.FAILED, GateStatus.PASSED):
        chosen = [verdict for verdict in verdicts if verdict.status is status]
        if chosen:
            return chosen[0] if len(chosen) == 1 else _joined(chosen)
    return verdicts[0] if verdicts else skipped(gate, "no project of this ecosystem is here")


def patched(context: GateContext) -> RepoContext:
    """The repository's tracked files as the patch left them: same bounds, links never followed."""
    return context.repo.model_copy(update={"root": context.worktree})


def project_folders(context: GateContext, is_project: Callable[[str], bool]) -> tuple[str, ...]:
    """For each changed file the nearest project folder at or above it; "." is the root."""
    found: dict[str, None] = {}
    for path in context.application.files:
        parents = (str(parent) for parent in PurePosixPath(path).parents)
        nearest = next((folder for folder in parents if is_project(folder)), None)
        if nearest is not None:
            found[nearest] = None
    return tuple(found)


def in_folder(folder: str, name: str) -> str:
    """The repository path of a file in a folder."""
    return name if folder == "." else f"{folder}/{name}"


def command_in(folder: str, argv: Sequence[str]) -> tuple[str, ...]:
    """The command, run in a folder of the worktree (a sandbox starts in its root)."""
    return tuple(argv) if folder == "." else ("env", "-C", folder, *argv)


def relative_log(result: CommandResult, tree: Path) -> str:
    """A command's output with the repository's paths relative: the same on every machine."""
    text = result.output.replace(f"file://{tree}/", "").replace(f"{tree}/", "")
    return text.replace(str(tree), ".")


def in_short(output: str) -> str:
    """The last of a client's own words, on one line."""
    return " ".join(output.split())[-_QUOTED_CHARS:]


def content_key(*parts: object) -> str:
    """A file name for what these parts decide."""
    return sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()[:32]


@contextmanager
def scratch(context: GateContext) -> Iterator[Path]:
    """A folder of its own in the cache, removed at the end."""
    context.cache.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(dir=context.cache, prefix="scratch-")).resolve()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def check_reachable(tool: str, result: CommandResult) -> None:
    """Raise ToolFailedError where the registry did not answer: that says nothing about a patch."""
    if result.timed_out or _UNREACHABLE.search(result.output):
        raise ToolFailedError(
            f"{tool} could not reach its registry: {in_short(result.output) or 'no answer'}",
            next_step="Check the network, the proxy and the registry settings, and run it again.",
            output=result.output,
        )


@dataclass(frozen=True)
class TestRun:
    """One run of a test suite. ``count``: tests that ran (skipped ones did not); None: not told."""

    result: CommandResult
    count: int | None


def judge_tests(
    gate: str, context: GateContext, folder: str, run: Callable[[RepoContext], TestRun | None]
) -> GateVerdict:
    """Run the base commit's tests on the patched files: all pass, and none went missing.

    ``run`` gets the tree to run in; None means that its environment could not be had.
    """
    ours = run(patched(context))
    if ours is None:
        return skipped(gate, "the project's dependencies could not be installed, so no test ran")
    log = relative_log(ours.result, context.worktree)
    if ours.result.timed_out:
        return timed_out(gate, ours.result, context)
    if not ours.result.ok and ours.count != 0:
        ran = "" if ours.count is None else f" ({ours.count} ran)"
        return failed(gate, FailureKind.TESTS_FAILED, f"tests failed{ran}", log)
    if ours.count is None:
        return passed(gate, "tests pass; the runner does not tell how many ran", log)
    before = _base_count(gate, context, folder, run)
    if before is None and not ours.result.ok:
        return failed(gate, FailureKind.TESTS_FAILED, "the test run failed before any test", log)
    if before is not None and ours.count < before:
        what = f"{ours.count} test(s) ran, {before} at the base commit"
        return failed(gate, FailureKind.TESTS_MISSING, what, log)
    if ours.count == 0:
        return skipped(gate, "no test ran, here or at the base commit", log)
    return passed(gate, f"{ours.count} test(s) pass", log)


def _base_count(
    gate: str, context: GateContext, folder: str, run: Callable[[RepoContext], TestRun | None]
) -> int | None:
    """How many tests ran at the base commit, counted once a commit; None: it can't be told."""
    place = (
        context.cache
        / "counts"
        / content_key(context.repo.base_commit, folder, gate, run.__module__, sys.version)
    )
    if place.exists():
        return json.loads(place.read_text(encoding="utf-8"))  # type: ignore[no-any-return]
    with _base_tree(context) as tree:
        base = run(context.repo.model_copy(update={"root": tree}))
    count = None if base is None or base.result.timed_out else base.count
    if count is None:
        return None  # perhaps for a passing reason: asked again next time
    place.parent.mkdir(parents=True, exist_ok=True)
    partial = place.with_suffix(f".{secrets.token_hex(4)}")
    partial.write_text(json.dumps(count), encoding="utf-8")
    partial.replace(place)
    return count


@contextmanager
def _base_tree(context: GateContext) -> Iterator[Path]:
    """The base commit's files, without git's own: written from the worktree's objects."""
    with scratch(context) as folder:
        env = {"GIT_INDEX_FILE": str(folder / "index")}
        for args in (
            ["read-tree", context.repo.base_commit],
            ["checkout-index", "--all", "--force", f"--prefix={folder}/tree/"],
        ):
            done = context.clients.run(
                "git", args, cwd=context.worktree, timeout_s=_GIT_TIMEOUT_S, env=env
            )
            if not done.ok:
                raise ToolFailedError(
                    f"git {args[0]} of the base commit failed: {in_short(done.output)}",
                    next_step="Check the repository with `git fsck`.",
                    output=done.output,
                )
        yield folder / "tree"


def _joined(verdicts: Sequence[GateVerdict]) -> GateVerdict:
    details = "; ".join(verdict.detail for verdict in verdicts)
    logs = "\n".join(verdict.log for verdict in verdicts if verdict.log)
    levels = {verdict.proof_level for verdict in verdicts}
    # The weakest counts: a whole is proved no better than its parts.
    level = ProofLevel.PINS if ProofLevel.PINS in levels else verdicts[0].proof_level
    return verdicts[0].model_copy(update={"detail": details, "log": logs, "proof_level": level})
