"""The gates that every ecosystem shares: they judge the applied patch, before any of it runs.

Nothing here trusts the diff's text: the patched tree is asked what really changed.
"""

import posixpath
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fallback_audit.vocabulary import FailureKind
from fallback_tier.errors import RepositoryError
from fallback_tier.files.tree import ABSENT, RawChange
from fallback_tier.gate_ports import Gate, GateContext, GateVerdict, failed, passed
from fallback_tier.gates.builtin.capability import CapabilityGate
from fallback_tier.gates.builtin.javascript import disagreement_with_node
from fallback_tier.gates.builtin.patched_file import patched_text
from fallback_tier.gates.trees.isolation import (
    GIT_TIMEOUT_S,
    USERS_CONFIGURATION,
    check_git_reads,
    git_failed,
    in_short,
)
from fallback_tier.limits import MAX_FILE_BYTES
from fallback_tier.patch.admission import path_problems, text_problems
from fallback_tier.patch.creation import creation_reason, text_reason
from fallback_tier.patch.policy import changes_versions_only, check_policy
from fallback_tier.ports import EcosystemPlugin
from fallback_tier.syntax import grammar_of_text

_REGULAR, _EXECUTABLE = "100644", "100755"


def common_gates(plugin: EcosystemPlugin) -> tuple[Gate, ...]:
    """The gates that come before an ecosystem's own, in order."""
    return (DeclaredSetGate(), PolicyGate(plugin), CapabilityGate())


@dataclass(frozen=True)
class DeclaredSetGate:
    """The tree has exactly the declared change: those files, as regular files, no new modes."""

    name: str = "declared_set"

    def judge(self, context: GateContext) -> GateVerdict:
        """Compare what became of the tree with ``Applied.files``. Raises ToolError."""
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
    """No change to what judges the fix; of manifests only the keys that the ecosystem names; no text that
    looks different from what is executed."""

    plugin: EcosystemPlugin
    name: str = "policy"

    def judge(self, context: GateContext) -> GateVerdict:
        """Path policy over the changed files, then the content of each. Raises ToolError."""
        changes = context.worktree.changed()
        pins = [it.path for it in changes if _changes_versions_only(it, context)]
        problems = path_problems([it.path for it in changes], pins, self.plugin, context.repo)
        made = [change.path for change in changes if change.status == "A"]
        for change in changes:
            problems += self._content_problems(change, made, context)
        return _verdict(
            self.name,
            problems,
            FailureKind.POLICY_VIOLATION,
            f"{len(changes)} file(s) changed, all of a kind that a fix may change",
        )

    def _content_problems(
        self, change: RawChange, made: Sequence[str], context: GateContext
    ) -> Iterator[str]:
        path, keys = change.path, self.plugin.editable_keys(change.path)
        if keys is not None and change.status != "M":
            yield f"{path!r} is a manifest; a fix neither adds nor removes one."
            return
        if change.new_mode == ABSENT:
            return
        after = patched_text(context, path)
        if after is None:
            yield f"{path!r} is not UTF-8 text of at most {MAX_FILE_BYTES:,} bytes."
            return
        before = None
        if change.status == "A" and not check_policy([path]):
            yield from _creation_problems(path, after, made, context)
        elif change.status != "A":
            try:
                before = context.repo.read_text(path)
            except RepositoryError as error:  # then all its lines are the patch's
                if keys is not None:
                    yield error.problem
        problems = [*text_problems(path, before, after, self.plugin, context.repo)]
        yield from problems
        is_new = not problems and before != after
        if is_new and grammar_of_text(path, after, before or "") == "javascript":
            why = disagreement_with_node(context, before or "", after)
            if why is not None:
                yield f"{path!r} does not read as it runs: {why}."


def _changes_versions_only(change: RawChange, context: GateContext) -> bool:
    """Return whether only versions that follow a comparison changed in a file. Raises ToolError."""
    if change.status != "M" or (after := patched_text(context, change.path)) is None:
        return False
    try:
        return changes_versions_only(context.repo.read_text(change.path), after)
    except RepositoryError:
        return False


def _creation_problems(
    path: str, text: str, made: Sequence[str], context: GateContext
) -> Iterator[str]:
    """What else is against a new file: far more than against an edit (``patch.creation``).

    One that git ignores would be left out when a person commits the fix, so that half of it were there.
    """
    reason = creation_reason(path, context.repo, made) or text_reason(text)
    if reason is None and _is_ignored(path, context):
        reason = "git ignores files of that name here, so that a commit would leave it out"
    if reason is not None:
        yield f"{path!r} may not be made: {reason}."


def _is_ignored(path: str, context: GateContext) -> bool:
    """By the user's own rules too: who commits the fix goes by them. Raises ToolFailedError."""
    ask = ["check-ignore", "--quiet", "--no-index", "--", f"./{path}"]
    root, env = context.repo.root, {**USERS_CONFIGURATION, "GIT_LITERAL_PATHSPECS": ""}
    check_git_reads(root, [posixpath.dirname(path)])
    reported = context.clients.run("git", ask, cwd=root, timeout_s=GIT_TIMEOUT_S, env=env)
    if reported.exit_code not in {0, 1}:
        raise git_failed(f"git check-ignore in {root}", in_short(reported.output))
    return reported.exit_code == 0


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


def _verdict(gate: str, problems: list[str], kind: FailureKind, otherwise: str) -> GateVerdict:
    if not problems:
        return passed(gate, otherwise)
    message = problems[0] if len(problems) == 1 else f"{len(problems)} problems: {problems[0]}"
    return failed(gate, kind, message, "\n".join(problems))
