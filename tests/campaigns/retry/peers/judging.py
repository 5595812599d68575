"""A case's repository and gates: how the proof fails, the patch that a peer's tree is, and its verdict."""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fallback_audit.frozen import Frozen
from fallback_audit.vocabulary import (
    TESTS_GATE,
    AffectedCode,
    GateStatus,
    PromptShape,
    ProofLevel,
    Tier,
)
from fallback_eval.retry.tasks import Task
from fallback_tier.attempt.task import Inputs
from fallback_tier.errors import PatchError, ToolFailedError
from fallback_tier.fix.parts import FixParts, fix_parts
from fallback_tier.gate_ports import Gate, GateContext
from fallback_tier.gates.builtin.proof import ProofGate, check_proof
from fallback_tier.gates.builtin.proof_given import PROOF
from fallback_tier.gates.failure_summary.proof_failure import proof_failure
from fallback_tier.gates.trees.worktrees import Worktrees
from fallback_tier.outcome import Applied
from fallback_tier.repo import Settings
from fallback_tier.wiring import Configuration, Services, open_services

FIXED: Final = "fixed"
NO_CHANGE: Final = "no_change"
NOT_APPLIED: Final = "does_not_apply"

#: Folders of checks: what a peer does there is not part of its patch.
CHECKS: Final = frozenset({"tests", "test", "proof", "hidden", "__pycache__", "node_modules"})

#: A larger file is not a source file of these tasks, whose modules have at most 400 bytes.
_MAX_FILE_BYTES: Final = 100_000
_MAX_FILES: Final = 50
_GIT_TIMEOUT_S: Final = 60.0


class Verdict(Frozen):
    """``outcome``: ``fixed``, or which gate said what (``tests_failed``). ``stricter``: whether the hidden
    checks pass too; None unless fixed."""

    outcome: str
    stricter: bool | None = None


@dataclass(frozen=True)
class Workplace:
    """A task's repository with the product's services, in a folder that is removed afterwards."""

    task: Task
    root: Path
    services: Services
    inputs: Inputs
    parts: FixParts

    def proof_output(self) -> str:
        """Return how the proof fails at base, as the product's prompt shows it. Raises ProofError,
        SandboxError, ToolError."""
        gate = self._gate(PROOF)
        if not isinstance(gate, ProofGate):
            raise AssertionError("a proof is configured")
        output = check_proof(
            gate,
            self.inputs.advisory,
            self.inputs.repo_ctx,
            clients=self.parts.clients,
            sandbox=self.parts.sandbox,
            workspace=self.parts.workspace,
        )
        return proof_failure(output, gate.proof.files, self.inputs.repo_ctx.tracked_files).text

    def copy(self) -> Path:
        """Return a new repository of the task for a peer, with the proof's files in it, which git ignores.
        The folder around it is the peer's alone. Raises OSError, ToolError."""
        place = self.root / "peer" / "repo"
        self.task.commit_to(place, self.services.clients)
        for path, content in self.task.proof_of(self.task.proof, "proof").files.items():
            (place / path).parent.mkdir(parents=True, exist_ok=True)
            (place / path).write_bytes(content)
        with (place / ".git" / "info" / "exclude").open("a", encoding="utf-8") as exclude:
            exclude.write("proof/\n.aider*\n__pycache__/\n")
        return place

    def patch_of(self, tree: Path) -> str:
        """Return a peer's tree as a patch of the base commit, empty without a change. Git never runs in
        that tree. Raises OSError, ToolError."""
        place = self.root / "patch"
        self.task.commit_to(place, self.services.clients)
        found = dict(_source_files(tree))
        for path in self.task.files():
            if _is_source(path) and path not in found:
                (place / path).unlink()
        for path, content in found.items():
            (place / path).parent.mkdir(parents=True, exist_ok=True)
            (place / path).write_bytes(content)
        self._git(place, "add", "--all")
        return self._git(place, "diff", "--cached", "--no-renames", "--no-color", "--no-ext-diff")

    def judge(self, patch: str) -> Verdict:
        """Judge a patch: proof and base tests, as the product does, then the hidden checks. Raises
        SandboxError, ToolError."""
        if not patch:
            return Verdict(outcome=NO_CHANGE)
        repo = self.inputs.repo_ctx
        worktrees = Worktrees(self.parts.workspace, self.parts.clients, self.parts.sandbox)
        plugin = self.services.plugin_for(self.inputs.advisory)
        hidden = ProofGate(self.task.proof_of(self.task.hidden, "hidden"), plugin, "hidden")
        with worktrees.open(repo) as worktree:
            try:
                worktree.apply(patch)
            except PatchError:
                return Verdict(outcome=NOT_APPLIED)
            context = GateContext(
                advisory=self.inputs.advisory,
                repo=repo,
                application=_applied(patch, [change.path for change in worktree.changed()]),
                worktree=worktree,
                cache=self.parts.workspace / "cache",
                sandbox=self.parts.sandbox,
                clients=self.parts.clients,
                timeout_s=self.parts.timeout_s,
            )
            for gate in (self._gate(PROOF), self._gate(TESTS_GATE)):
                worktree.restore()
                status = gate.judge(context).status
                if status is not GateStatus.PASSED:
                    return Verdict(outcome=f"{gate.name}_{status.value}")
            worktree.restore()
            passes = hidden.judge(context).status is GateStatus.PASSED
        return Verdict(outcome=FIXED, stricter=passes)

    def _gate(self, name: str) -> Gate:
        return next(gate for gate in self.parts.gates if gate.name == name)

    def _git(self, place: Path, *words: str) -> str:
        clients = self.services.clients
        result = clients.run("git", list(words), cwd=place, timeout_s=_GIT_TIMEOUT_S)
        if not result.ok or result.truncated:
            raise ToolFailedError(
                f"git {words[0]} failed in a copy of a task: {result.output.strip()}",
                next_step="Run the case again.",
                kind="git_failed",
            )
        return result.output


@contextmanager
def workplace(task: Task, root: Path) -> Iterator[Workplace]:
    """Open a task's repository and gates in ``root``. Raises RepositoryError, SandboxError, ToolError."""
    configuration = Configuration(
        state_dir=root / "state",
        proof=task.proof_of(task.proof, "proof"),
        settings=Settings(whose_code=AffectedCode.OWN),
    )
    with open_services(configuration) as services:
        place = root / task.package
        task.commit_to(place, services.clients)
        inputs = services.inputs(task.as_advisory(), place)
        parts = fix_parts(services, inputs.advisory, lambda _event: None, repo=inputs.repo_ctx)
        yield Workplace(task, root, services, inputs, parts)


def _applied(patch: str, files: list[str]) -> Applied:
    digest = "0" * 64  # no gate that is used here reads it
    return Applied(
        attempt=1,
        prompt_shape=PromptShape.NONE,
        tier=Tier.LLM,
        diff=patch,
        patch_sha256=digest,
        edit_digest=digest,
        files=tuple(files),
        proof_level=ProofLevel.SOURCE,
    )


def _is_source(path: str) -> bool:
    parts = Path(path).parts
    return parts[0] not in CHECKS and not any(part.startswith(".") for part in parts)


def _source_files(tree: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the tree's small regular UTF-8 files outside folders of checks; links are not followed."""
    count = 0
    for folder, folders, names in os.walk(tree):
        folders[:] = sorted(
            name for name in folders if not name.startswith(".") and name not in CHECKS
        )
        for name in sorted(names):
            place = Path(folder) / name
            path = place.relative_to(tree).as_posix()
            facts = place.lstat()
            is_small = stat.S_ISREG(facts.st_mode) and facts.st_size <= _MAX_FILE_BYTES
            if not _is_source(path) or not is_small or count >= _MAX_FILES:
                continue
            content = place.read_bytes()
            try:
                content.decode()
            except UnicodeDecodeError:
                continue
            count += 1
            yield path, content
