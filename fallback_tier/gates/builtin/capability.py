"""The capability gate: a fix starts processes, opens connections or runs made-up code only as declared.

A patch by a model that was shown hostile text may do what nobody asked for; tests rarely notice. So the
syntax of the changed files is compared with the base commit's: what is used more often than before must
have been declared by the plan, in which a reviewer reads it. What only moved, got other arguments, or
stands in the place of another call of its kind (``execFile`` for ``exec``) is not new. Bringing in a
listed module counts as a use, because what is then done with it can be hidden from a reader of one file,
and that it was brought in can't.

What is neither listed nor known to be harmless, nor the project's own, is *unknown*: it must be declared
too (ADR-0057). What a list forgot costs a question, and no hole.
"""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass

from fallback_tier.errors import RepositoryError
from fallback_tier.files.tree import RawChange
from fallback_tier.gate_ports import GateContext, GateVerdict
from fallback_tier.gates.builtin.patched_file import patched_text
from fallback_tier.gates.capability import Project, compare
from fallback_tier.outcome import FileChange
from fallback_tier.repo import RepoContext


@dataclass(frozen=True)
class CapabilityGate:
    """No new capability use of the changed files is undeclared."""

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
    """The base commit's files; what can't be read answers nothing."""

    def texts(paths: Iterable[str]) -> Iterator[tuple[str, str]]:
        for path in paths:
            with suppress(RepositoryError):
                yield path, repo.read_text(path)

    return Project(repo.tracked_files, texts)


def _texts(change: RawChange, context: GateContext) -> FileChange:
    """None also where it is no text of a size that is read: the policy gate says so, and of the base
    commit's then nothing counts as having been there."""
    before = None
    if change.status != "A":
        with suppress(RepositoryError):
            before = context.repo.read_text(change.path)
    after = None if change.status == "D" else patched_text(context, change.path)
    return FileChange(path=change.path, before=before, after=after)
