"""The gates that all ecosystems share: they judge the applied patch, before any of it runs.

They do not trust the diff's text: they read the patched tree to see what really changed.
"""

import json
import posixpath
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path
from tempfile import TemporaryDirectory

from fallback_audit.vocabulary import FailureKind
from fallback_tier.errors import PatchError, RepositoryError, ToolMissingError
from fallback_tier.execution import CommandResult
from fallback_tier.files.tree import ABSENT, RawChange
from fallback_tier.gate_ports import APPLIES, Gate, GateContext, GateVerdict, failed, passed
from fallback_tier.gates.capability import Project, compare
from fallback_tier.gates.trees.isolation import (
    GIT_TIMEOUT_S,
    USERS_CONFIGURATION,
    check_git_reads,
    git_failed,
    in_short,
)
from fallback_tier.gates.trees.worktrees import RunnerWorktree
from fallback_tier.limits import MAX_FILE_BYTES
from fallback_tier.outcome import Applied, FileChange
from fallback_tier.patch.admission import path_problems, text_problems
from fallback_tier.patch.creation import creation_reason, text_reason
from fallback_tier.patch.parse import parse_patch
from fallback_tier.patch.parsers_agree import javascript_disagreement
from fallback_tier.patch.policy import changes_versions_only, check_policy
from fallback_tier.ports import EcosystemPlugin
from fallback_tier.repo import RepoContext
from fallback_tier.syntax import grammar_of_text

_REGULAR, _EXECUTABLE = "100644", "100755"


def judge_application(application: Applied, worktree: RunnerWorktree) -> GateVerdict:
    """Judge ``applies``, the first gate: apply the patch to the base commit. A patch that is not strictly
    of our kind never reaches git."""
    try:
        parse_patch(application.diff)
        worktree.apply(application.diff)
    except PatchError as error:
        return failed(APPLIES, FailureKind.PATCH_DOES_NOT_APPLY, error.problem, str(error))
    return passed(APPLIES, "git applied the patch to the base commit")


def common_gates(plugin: EcosystemPlugin) -> tuple[Gate, ...]:
    """Return the gates that come before an ecosystem's own, in order."""
    return (DeclaredSetGate(), PolicyGate(plugin), CapabilityGate())


@dataclass(frozen=True)
class DeclaredSetGate:
    """Requires that the tree has exactly the declared change: those files, regular, without new modes."""

    name: str = "declared_set"

    def judge(self, context: GateContext) -> GateVerdict:
        """Compare the changes of the tree with ``Applied.files``. Raises ToolError."""
        changes = context.worktree.changed()
        changed, declared = {change.path for change in changes}, set(context.application.files)
        problems = [f"{path!r} changed, undeclared" for path in sorted(changed - declared)]
        problems += [f"{path!r} is declared, unchanged" for path in sorted(declared - changed)]
        problems += [problem for change in changes if (problem := _mode_problem(change))]
        return _verdict(
            self.name,
            problems,
            FailureKind.UNDECLARED_CHANGE,
            f"{len(changes)} file(s) changed, as declared",
        )


@dataclass(frozen=True)
class PolicyGate:
    """Forbids changes to what judges the fix, changes of manifests except at the keys that the ecosystem
    names, and text that looks different from what is executed."""

    plugin: EcosystemPlugin
    name: str = "policy"

    def judge(self, context: GateContext) -> GateVerdict:
        """Judge the paths of the changed files, then the content of each. Raises ToolError."""
        changes = context.worktree.changed()
        pins = [change.path for change in changes if _changes_versions_only(change, context)]
        problems = path_problems(
            [change.path for change in changes], pins, self.plugin, context.repo
        )
        added_paths = [change.path for change in changes if change.status == "A"]
        for change in changes:
            problems += self._content_problems(change, added_paths, context)
        return _verdict(
            self.name,
            problems,
            FailureKind.POLICY_VIOLATION,
            f"{len(changes)} file(s) changed, all of a kind that a fix may change",
        )

    def _content_problems(
        self, change: RawChange, added_paths: Sequence[str], context: GateContext
    ) -> Iterator[str]:
        path, keys = change.path, self.plugin.editable_keys(change.path)
        if keys is not None and change.status != "M":
            yield f"{path!r} is a manifest; a fix neither adds nor removes one."
            return
        if change.new_mode == ABSENT:
            return
        after = _patched_text(context, path)
        if after is None:
            yield f"{path!r} is not UTF-8 text of at most {MAX_FILE_BYTES:,} bytes."
            return
        before = None
        if change.status == "A" and not check_policy([path]):
            yield from _creation_problems(path, after, added_paths, context)
        elif change.status != "A":
            try:
                before = context.repo.read_text(path)
            except RepositoryError as error:  # then all its lines count as the patch's
                if keys is not None:
                    yield error.problem
        problems = [*text_problems(path, before, after, self.plugin, context.repo)]
        yield from problems
        is_new = not problems and before != after
        if is_new and grammar_of_text(path, after, before or "") == "javascript":
            reason = disagreement_with_node(context, before or "", after)
            if reason is not None:
                yield f"{path!r} does not read as it runs: {reason}."


def _changes_versions_only(change: RawChange, context: GateContext) -> bool:
    """Return whether only versions that follow a comparison changed in a file. Raises ToolError."""
    if change.status != "M" or (after := _patched_text(context, change.path)) is None:
        return False
    try:
        return changes_versions_only(context.repo.read_text(change.path), after)
    except RepositoryError:
        return False


def _creation_problems(
    path: str, text: str, added_paths: Sequence[str], context: GateContext
) -> Iterator[str]:
    """Yield the problems of a new file (``patch.creation``), also that git ignores it: a person's commit
    would omit it."""
    reason = creation_reason(path, context.repo, added_paths) or text_reason(text)
    if reason is None and _is_ignored(path, context):
        reason = "git ignores files of that name here, so that a commit would leave it out"
    if reason is not None:
        yield f"{path!r} may not be made: {reason}."


def _is_ignored(path: str, context: GateContext) -> bool:
    """Return whether git ignores the path, also by the user's own rules: they apply to the person who
    commits the fix. Raises ToolFailedError."""
    args = ["check-ignore", "--quiet", "--no-index", "--", f"./{path}"]
    root, env = context.repo.root, {**USERS_CONFIGURATION, "GIT_LITERAL_PATHSPECS": ""}
    check_git_reads(root, [posixpath.dirname(path)])
    result = context.clients.run("git", args, cwd=root, timeout_s=GIT_TIMEOUT_S, env=env)
    if result.exit_code not in {0, 1}:
        raise git_failed(f"git check-ignore in {root}", in_short(result.output))
    return result.exit_code == 0


def _mode_problem(change: RawChange) -> str | None:
    modes = (change.old_mode, change.new_mode)
    if any(mode not in {ABSENT, _REGULAR, _EXECUTABLE} for mode in modes):
        return f"{change.path!r} is, or was, no regular file (modes {modes[0]} and {modes[1]})"
    if change.new_mode == ABSENT:
        return None
    expected = _REGULAR if change.old_mode == ABSENT else change.old_mode
    if change.new_mode != expected:
        return f"{change.path!r} has mode {change.new_mode}, not {expected}"
    return None


def _verdict(gate: str, problems: list[str], kind: FailureKind, passed_detail: str) -> GateVerdict:
    if not problems:
        return passed(gate, passed_detail)
    message = problems[0] if len(problems) == 1 else f"{len(problems)} problems: {problems[0]}"
    return failed(gate, kind, message, "\n".join(problems))


@dataclass(frozen=True)
class CapabilityGate:
    """Requires that a fix starts processes, uses the network or runs dynamic code only as its plan
    declares.

    A patch by a model that was shown hostile text may do more than the fix; tests rarely notice. So the
    gate compares the syntax of the changed files with the base commit's: the plan must declare what is used
    more often than before, so that a reviewer reads it. A use that only moved, got other arguments, or
    replaces another call of its kind (``execFile`` for ``exec``) is not new. Importing a listed module
    counts as a use: what is then done with it can be hidden from a reader of one file, the import can't.

    A use that is neither listed, nor known to be harmless, nor the project's own, is *unknown* and must be
    declared too (ADR-0057): a gap in a list costs a question, not a hole.
    """

    name: str = "capability"

    def judge(self, context: GateContext) -> GateVerdict:
        """Compare the uses of all changed files with those of the base commit. Raises ToolError."""
        changes = context.worktree.changed()
        plan = context.application.plan
        return compare(
            (_texts(change, context) for change in changes),
            frozenset(plan.capabilities if plan else ()),
            gate=self.name,
            project=_project(context.repo),
        )


def _project(repo: RepoContext) -> Project:
    def texts(paths: Iterable[str]) -> Iterator[tuple[str, str]]:
        for path in paths:
            with suppress(RepositoryError):
                yield path, repo.read_text(path)

    return Project(repo.tracked_files, texts)


def _texts(change: RawChange, context: GateContext) -> FileChange:
    """Return a change with its texts. A text is None also if it is not valid text of a size that is read:
    the policy gate reports that, and such a base file has no earlier uses."""
    before = None
    if change.status != "A":
        with suppress(RepositoryError):
            before = context.repo.read_text(change.path)
    after = None if change.status == "D" else _patched_text(context, change.path)
    return FileChange(path=change.path, before=before, after=after)


# JavaScript as node's own parser reads it, compared with ours (``patch.parsers_agree``).

#: Parsing takes milliseconds, but node may start slowly on a busy machine.
_TIMEOUT_S = 60.0

_PARSING = "node, asked to parse what the patch changes,"

#: node includes a parser (acorn) for internal use only: this option lets a script load it.
_OWN_LIBRARY = "--expose-internals"

#: The probe's exit code on a node without that parser.
_NO_PARSER = 42


def disagreement_with_node(context: GateContext, before: str, after: str) -> str | None:
    """Return what node's parser and ours see differently only with the patch, as a clause; None if nothing,
    or if there is no node with that parser, so that nothing of the patch runs on it here.

    Runs none of the texts. Raises ToolFailedError if node does not finish.
    """
    with TemporaryDirectory() as folder, as_file(files(__package__) / "names_of.js") as probe:
        paths = []
        for name, text in (("before", before), ("after", after)):
            path = Path(folder) / name
            path.write_bytes(text.encode("utf-8", "replace"))
            paths.append(str(path))
        try:
            args = [_OWN_LIBRARY, str(probe), *paths]
            result = context.clients.run("node", args, cwd=Path(folder), timeout_s=_TIMEOUT_S)
        except ToolMissingError:
            return None
    if result.exit_code == _NO_PARSER:
        return None
    if not result.ok:
        raise git_failed(_PARSING, _why(result), kind="node_failed")
    try:
        names_before, names_after = (
            {way: Counter(dict(counts)) for way, counts in json.loads(line).items()}
            for line in result.output.split("\n")
            if line.startswith("{")  # node's own warnings are in the same output
        )
    except ValueError as error:
        raise git_failed(_PARSING, in_short(result.output), kind="node_answer_malformed") from error
    return javascript_disagreement(before, after, names_before, names_after)


def _why(result: CommandResult) -> str:
    text = (
        f"it did not end within {_TIMEOUT_S:.0f} s" if result.timed_out else in_short(result.output)
    )
    return text or f"it ended with {result.exit_code}"


def _patched_text(context: GateContext, path: str) -> str | None:
    """Return a changed file as the patch left it, with the line ends that git commits.

    None: a link, or not UTF-8 text of at most MAX_FILE_BYTES."""
    location = context.worktree.tree.find(path)
    if location is None or not location.is_file() or location.stat().st_size > MAX_FILE_BYTES:
        return None
    try:
        text = context.repo.as_committed(path, location.read_bytes()).decode("utf-8")
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else text
