"""The proof gate: a test of the flaw itself, which fails at the base commit and passes with the patch.

The suite shows that nothing broke; only this shows that the vulnerability is gone. Proofs are given
from outside (a person, an evaluation), never by the patch: their files are laid over an export of the
patched index for the run only, so that no other gate, and no diff, ever sees them.
"""

import hashlib
import json
import secrets
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from fallback_audit.vocabulary import FailureKind, GateStatus
from fallback_tier.errors import InputError, ToolFailedError
from fallback_tier.gates.isolation import GIT_TIMEOUT_S, Worktree, make_removable
from fallback_tier.ports import ClientRunner, CommandResult, GateContext, GateVerdict, Sandbox
from fallback_tier.repo import RepoContext

#: Wall clock of one run of a proof, where nothing else is said: a few tests, some with a limit of their
#: own because the flaw is a hang.
PROOF_TIMEOUT_S = 120.0

#: How much of the log an error about the proof itself quotes.
_QUOTED_CHARS = 600


class ProofError(InputError):
    """The proof given can't prove anything: it passes already, never ends, or can't be put in place."""

    code = "proof"


@dataclass(frozen=True)
class Proof:
    """A command that exits with 0 exactly where the flaw is gone, and the files that it needs.

    ``command`` is an argument list, run in the repository's root inside the sandbox, without network.
    ``files``: POSIX-relative path → content; none of them may be a file of the repository. ``timeout_s``:
    wall clock of one run. Raises ProofError for an empty command and for a path that leads out of the
    repository.
    """

    command: tuple[str, ...]
    files: Mapping[str, bytes] = field(default_factory=dict)
    timeout_s: float = PROOF_TIMEOUT_S

    def __post_init__(self) -> None:
        if not self.command:
            raise ProofError("The proof has no command.", next_step="Name a program to run.")
        for path in self.files:
            pure = PurePosixPath(path)
            if pure.is_absolute() or not pure.parts or {"..", ".git"} & set(pure.parts):
                raise ProofError(
                    f"The proof's file {path!r} is not at a place inside the repository.",
                    next_step="Name it relative to the repository's root, without '..' and '.git'.",
                )

    @property
    def digest(self) -> str:
        """SHA-256 of command and files."""
        files = {path: hashlib.sha256(self.files[path]).hexdigest() for path in self.files}
        told = json.dumps([self.command, files], sort_keys=True)
        return hashlib.sha256(told.encode()).hexdigest()


@dataclass(frozen=True)
class ProofGate:
    """Runs the proof on the patched files; the last gate, since it is the dearest."""

    proof: Proof
    name: str = "proof"

    def judge(self, context: GateContext) -> GateVerdict:
        """Failed where the proof fails; skipped where it passes at the base commit too.

        Raises SandboxError, ToolError; ProofError where ``check_proof`` would have raised it.
        """
        if self._passes_at_base(context):
            return GateVerdict(
                gate=self.name,
                status=GateStatus.SKIPPED,
                detail="the proof passes at the base commit too, so it shows nothing",
            )
        try:
            result = self._run(context)
        except ProofError as error:  # at the base commit the place was free
            return self._failed(FailureKind.POLICY_VIOLATION, error.problem)
        if result.timed_out:
            said = f"the proof did not end within {self.proof.timeout_s:.0f} s"
            return self._failed(FailureKind.GATE_TIMEOUT, said, result.output)
        if not result.ok:
            said = "the proof fails: the vulnerability is still there, or what it needs is gone"
            return self._failed(FailureKind.PROOF_FAILED, said, result.output)
        return GateVerdict(
            gate=self.name,
            status=GateStatus.PASSED,
            detail="the proof fails at the base commit and passes with the patch",
            log=result.output,
        )

    def _failed(self, kind: FailureKind, detail: str, log: str = "") -> GateVerdict:
        status = GateStatus.FAILED
        return GateVerdict(gate=self.name, status=status, failure_kind=kind, detail=detail, log=log)

    def _passes_at_base(self, context: GateContext) -> bool:
        """Asked once for a commit and a proof: what outlives attempts keeps the answer."""
        commit = context.repo.base_commit
        place = context.cache / "proofs" / f"{commit}-{self.proof.digest}"
        if not place.exists():
            base = self._run(context, commit)
            place.parent.mkdir(parents=True, exist_ok=True)
            partial = place.with_suffix(f".{secrets.token_hex(4)}")
            partial.write_text("passes" if base.ok else "fails", encoding="ascii")
            partial.replace(place)
        return place.read_text(encoding="ascii") == "passes"

    def _run(self, context: GateContext, commit: str | None = None) -> CommandResult:
        tree = _Source(context.worktree, context.clients, commit)
        return _run(self.proof, tree, context.sandbox, context.cache)


@dataclass(frozen=True)
class _Source:
    """Where the files come from: a worktree's index, or a commit that its repository holds."""

    worktree: Path
    clients: ClientRunner
    commit: str | None = None

    @contextmanager
    def exported(self, scratch: Path) -> Iterator[Path]:
        """Fresh files, without git's own: nothing that an earlier gate's command left is among them."""
        scratch.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(dir=scratch, prefix="proof-")).resolve()
        try:
            env = {}
            if self.commit is not None:
                env = {"GIT_INDEX_FILE": str(folder / "index")}
                self._git(["read-tree", self.commit], env)
            tree = folder / "tree"
            tree.mkdir()
            self._git(["checkout-index", "--all", "--force", f"--prefix={tree}/"], env)
            yield tree
        finally:
            make_removable(folder)
            shutil.rmtree(folder)

    def _git(self, args: Sequence[str], env: Mapping[str, str]) -> None:
        done = self.clients.run("git", args, cwd=self.worktree, timeout_s=GIT_TIMEOUT_S, env=env)
        if not done.ok:
            said = " ".join(done.output.split())[-_QUOTED_CHARS:]
            raise ToolFailedError(
                f"git {args[0]} for the proof failed: {said or 'it took too long'}",
                next_step="Check the repository with `git fsck`.",
                output=done.output,
            )


def check_proof(
    proof: Proof,
    repo: RepoContext,
    *,
    clients: ClientRunner,
    sandbox: Sandbox,
    workspace: Path,
) -> CommandResult:
    """Run the proof at the base commit, before anything is spent: how it fails there.

    Raises ProofError where it passes, does not end, or its files are the repository's own;
    SandboxError, RepositoryError, ToolError.
    """
    place = workspace / "worktrees" / f"{repo.fix_id}-proof"
    with Worktree.create(repo, clients, place) as worktree:
        result = _run(proof, _Source(worktree.path, clients), sandbox, place)
    said = " ".join(result.output[-_QUOTED_CHARS:].split())
    if result.ok:
        raise ProofError(
            "The proof passes already at the base commit, so it can't show that a patch mends "
            f"anything: {said or 'it printed nothing'}",
            next_step="Give a test that fails while the vulnerability is there.",
        )
    if result.timed_out:
        raise ProofError(
            f"The proof did not end within {proof.timeout_s:.0f} s at the base commit: {said}",
            next_step="Let it end by itself, with a limit of its own where the flaw is a hang.",
        )
    return result


def _run(proof: Proof, source: _Source, sandbox: Sandbox, scratch: Path) -> CommandResult:
    """The proof over fresh files; paths in its output are relative, the same on every machine."""
    with source.exported(scratch) as tree:
        for path, content in proof.files.items():
            _put(tree, PurePosixPath(path), content)
        result = sandbox.run(proof.command, worktree=tree, timeout_s=proof.timeout_s)
        output = result.output.replace(f"file://{tree}/", "").replace(f"{tree}/", "")
        return result.model_copy(update={"output": output.replace(str(tree), ".")})


def _put(tree: Path, path: PurePosixPath, content: bytes) -> None:
    """A new file; a link of the repository leads it nowhere."""
    folders = [tree / parent for parent in reversed(path.parents)]
    clear = not any(folder.is_symlink() for folder in folders)
    try:
        if clear:
            folders[-1].mkdir(parents=True, exist_ok=True)
            with (tree / path).open("xb") as file:
                file.write(content)
    except (FileExistsError, NotADirectoryError):
        clear = False
    if not clear:
        raise ProofError(
            f"The proof's file {str(path)!r} is in the way of a file of the repository.",
            next_step="Give it a name that the repository does not use.",
        )
