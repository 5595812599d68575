"""The proof gate: a test of the flaw itself, which fails at the base commit and passes with the patch.

The suite shows that nothing broke; only this shows that the vulnerability is gone. Proofs are given
from outside (a person, an evaluation), never by the patch: their files are laid over an export of the
patched index for the run only, so that no other gate, and no diff, ever sees them.
"""

import hashlib
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from fallback_audit.frozen import Frozen
from fallback_audit.vocabulary import FailureKind, PromptShape, ProofLevel, Tier
from fallback_tier.advisory import Advisory
from fallback_tier.execution import ClientRunner, CommandResult, Sandbox
from fallback_tier.files.entries import say_nothing
from fallback_tier.files.tree import FileTree
from fallback_tier.files.whole import write_whole
from fallback_tier.gate_ports import GateContext, GateVerdict, TargetRun, failed, passed, skipped
from fallback_tier.gates.builtin.proof_faults import fault, may_start_elsewhere
from fallback_tier.gates.builtin.proof_given import PROOF, Proof, ProofError
from fallback_tier.gates.distilling.diagnosis import MAX_TESTS, diagnose
from fallback_tier.gates.trees.worktrees import Worktrees
from fallback_tier.outcome import Applied
from fallback_tier.ports import EcosystemPlugin
from fallback_tier.repo import RepoContext

__all__ = ["Proof", "ProofError", "ProofGate", "check_proof", "fresh_files"]

#: Wall clock of installing what the base commit declares: as long as a gate may take.
INSTALL_TIMEOUT_S = 600.0

#: How many tests a runner says that it skipped.
_SKIPS = re.compile(r"(?:\bskipped[=:]? ?|# skip(?:ped)? )(\d+)|(?<!\d)(\d+) (?:skipped|pending)\b")

#: Tests of a proof that pass now and are named.
_NAMED_TESTS = 3

#: How much of the log an error about the proof itself quotes.
_QUOTED_CHARS = 600


#: A script that the patch ends early ends as well as one that found nothing.
_UNSHOWN_END = (
    "nothing shows that it ran to its end: no test of it is counted, and no last line is named"
)

#: Changed with what a kept run at the base commit tells.
_FORMAT = "4"

#: What stands for the patch where there is none yet: the base commit as it is.
_NO_DIGEST = hashlib.sha256(b"").hexdigest()
_NOTHING = Applied(
    attempt=1,
    prompt_shape=PromptShape.NONE,
    tier=Tier.RECIPE,
    diff="",
    patch_sha256=_NO_DIGEST,
    edit_digest=_NO_DIGEST,
    files=(),
    proof_level=ProofLevel.SOURCE,
)


class _AtBase(Frozen):
    """What the proof printed as it failed at the base commit, and on what it ran."""

    output: str
    installed: str
    compared: str = ""


@dataclass(frozen=True)
class ProofGate:
    """Runs the proof on the patched files, their dependencies installed.

    Before the base commit's tests: those that fail behind a proof that passed may contradict the fix.
    """

    proof: Proof
    plugin: EcosystemPlugin
    name: str = PROOF

    def judge(self, context: GateContext) -> GateVerdict:
        """Failed where the proof fails; skipped where its failure at the base commit shows nothing.

        Raises SandboxError, ToolError.
        """
        try:
            base = self._base(context)
        except ProofError as error:  # ``check_proof`` would have said so before anything was spent
            return skipped(self.name, error.problem)
        try:
            ran = self._run(context, patched=True)
        except ProofError as error:  # at the base commit the place was free
            return failed(self.name, FailureKind.POLICY_VIOLATION, error.problem)
        if (result := ran.result) is None:
            message = (
                f"with the patch nothing can be installed, so the proof can't run: {ran.installed}"
            )
            return failed(self.name, FailureKind.RESOLUTION_FAILED, message)
        if result.timed_out:
            message = f"the proof did not end within {self.proof.timeout_s:.0f} s"
            return failed(self.name, FailureKind.GATE_TIMEOUT, message, result.output)
        if not result.ok:
            message = "the proof fails: the vulnerability is still there, or what it needs is gone"
            message += self._with_patch(base.output, result.output)
            return failed(self.name, FailureKind.PROOF_FAILED, message, result.output)
        # A patched module that ends the process ends the proof too, and well.
        before, now = self.plugin.tests_ran(base.output), self.plugin.tests_ran(result.output) or 0
        if before is not None and now < before:
            message = f"the proof ran {before} test(s) at the base commit, {now} with the patch"
            return failed(self.name, FailureKind.PROOF_FAILED, message, result.output)
        if self.proof.end and not self.proof.ended(result.output):
            message = "the proof ends well, and before its end: it did not print its last line"
            return failed(self.name, FailureKind.PROOF_FAILED, message, result.output)
        if not before and not self.proof.end:
            message = f"the proof fails at the base commit and ends well with the patch, but {_UNSHOWN_END}"
            return skipped(self.name, message, result.output)
        message = "the proof fails at the base commit and passes with the patch"
        # At midnight, say, it may have become another that nobody has run the proof on.
        is_same = self._place(context).exists()
        if not is_same or (ran.compared or ran.installed) != (base.compared or base.installed):
            here, there = ran.installed or "everything", base.installed or "everything"
            what = f"{there}; with the patch: {here if here != there else 'others of them'}"
            detail = f"{message}, but not on the same dependencies, which may be why: {what}"
            return skipped(self.name, detail, result.output)
        detail = f"{message}; installed: {ran.installed}" if ran.installed else message
        return passed(self.name, detail, result.output, proof_level=ProofLevel.PROOF_TEST)

    def fails_at_base(self, context: GateContext) -> str:
        """The proof's output at the base commit, where it fails as it should.

        Raises ProofError where that failure shows nothing; SandboxError, ToolError.
        """
        return self._base(context).output

    def _base(self, context: GateContext) -> "_AtBase":
        """Asked once for a commit, a proof and what it runs on: what outlives attempts keeps the answer."""
        if not (place := self._place(context)).exists():
            ran, place = self._run_at_base(context)
            output = _checked(self.proof, ran).output.encode(errors="replace").decode()
            base = _AtBase(output=output, installed=ran.installed, compared=ran.compared)
            place.parent.mkdir(parents=True, exist_ok=True)
            write_whole(place, base.model_dump_json().encode())
        return _AtBase.model_validate_json(place.read_bytes())

    def _place(self, context: GateContext) -> Path:
        on = self.plugin.runs_on(context, context.repo, self.proof.command)
        # A failure for want of a network is no flaw outside.
        facts = [
            _FORMAT,
            self.plugin.name,
            on,
            type(context.sandbox).__qualname__,
            self.proof.digest,
        ]
        digest = hashlib.sha256("\0".join(facts).encode()).hexdigest()[:32]
        return context.cache / "proofs" / f"{context.repo.base_commit}-{digest}"

    def _run_at_base(self, context: GateContext) -> tuple[TargetRun, Path]:
        """With where it is kept. On another interpreter where it can't start on the first (ADR-0085). Where
        it fails on none as a proof must, it is as it was on the first."""
        self._moved(context, 0)
        place, first = self._place(context), self._run(context, patched=False)
        if first.result is None or first.result.ok or not may_start_elsewhere(fault(first.result)):
            return first, place
        for number in count(1):
            if not self._moved(context, number):
                break
            context.report(
                "The proof can't start at the base commit; another interpreter is tried."
            )
            with suppress(ProofError):
                elsewhere, ran = self._place(context), self._run(context, patched=False)
                _checked(self.proof, ran)
                return ran, elsewhere
        self._moved(context, 0)
        return first, place

    def _moved(self, context: GateContext, number: int) -> bool:
        return self.plugin.run_on_another(context, context.repo, self.proof.command, number)

    def _with_patch(self, base: str, now: str) -> str:
        """Tests of the proof that fail at the base commit and pass now: the patch is on its way.

        Known by their names alone, where no fewer ran than before.
        """
        ran, runs = self.plugin.tests_ran(base), self.plugin.tests_ran(now)
        if not ran or not runs or runs < ran or _SKIPS.findall(now) != _SKIPS.findall(base):
            return ""
        failed, failing = diagnose(base).tests, diagnose(now).tests
        fixed = [test for test in failed if test not in failing]
        # None that fails is named, or not every one: nothing is told apart.
        if not failing or MAX_TESTS in {len(failed), len(failing)} or not fixed:
            return ""
        more = f" and {len(fixed) - _NAMED_TESTS} more" if len(fixed) > _NAMED_TESTS else ""
        return f"; of its tests these pass now: {', '.join(fixed[:_NAMED_TESTS])}{more}"

    def _run(self, context: GateContext, *, patched: bool) -> TargetRun:
        """Over fresh files, the proof's own laid over them."""
        with fresh_files(context, patched=patched) as files:
            for path, content in self.proof.files.items():
                _put(files.tree, path, content)
            ran = self.plugin.run(context, files, self.proof.command, self.proof.timeout_s)
            return ran.beside_base()


@contextmanager
def fresh_files(context: GateContext, *, patched: bool) -> Iterator[RepoContext]:
    """The patched files, or the base commit's, as no command has touched them; gone at the end."""
    with context.worktree.fresh(patched=patched) as tree:
        yield context.repo.laid_out(tree)


def check_proof(
    gate: ProofGate,
    advisory: Advisory,
    repo: RepoContext,
    *,
    clients: ClientRunner,
    sandbox: Sandbox,
    workspace: Path,
    timeout_s: float = INSTALL_TIMEOUT_S,
    report: Callable[[str], None] = say_nothing,
) -> str:
    """Run the proof at the base commit, before anything is spent: what it prints as it fails there.

    Raises ProofError where it passes, does not end, can't start, where what it needs can't be installed,
    or where its files are the repository's own; SandboxError, RepositoryError, ToolError. ``report``
    hears where its passing would prove nothing.
    """
    worktrees = Worktrees(workspace, clients, sandbox, report=report)
    with worktrees.open(repo, f"{repo.fix_id}-proof") as worktree:
        context = GateContext(
            advisory=advisory,
            repo=repo,
            application=_NOTHING,
            worktree=worktree,
            cache=workspace / "cache",
            sandbox=sandbox,
            clients=clients,
            timeout_s=timeout_s,
            report=report,
        )
        output = gate.fails_at_base(context)
    if not gate.proof.end and not gate.plugin.tests_ran(output):
        report(f"The proof will prove nothing: {_UNSHOWN_END} (--proof-end, or use a test runner).")
    return output


def _checked(proof: Proof, ran: TargetRun) -> CommandResult:
    """The run at the base commit, where it ended as a proof must. Raises ProofError."""
    if (result := ran.result) is None:
        raise ProofError(
            "The proof can't be run: the dependencies of the base commit can't be installed here: "
            f"{ran.installed}",
            next_step="Make them installable (`npm ci`, `uv pip install`), or prove it by hand.",
        )
    message = " ".join(result.output[-_QUOTED_CHARS:].split()) or "it printed nothing"
    message += f" (installed: {ran.installed})" if ran.installed else ""
    if result.ok:
        raise ProofError(
            "The proof passes already at the base commit, so it can't show that a patch fixes "
            f"anything: {message}",
            next_step="Give a test that fails while the vulnerability is there.",
        )
    if result.timed_out:
        raise ProofError(
            f"The proof did not end within {proof.timeout_s:.0f} s at the base commit: {message}",
            next_step="Let it end by itself, with a limit of its own where the flaw is a hang.",
        )
    if proof.ended(result.output):
        raise ProofError(
            f"The proof prints its last line at the base commit, where it fails: {message}",
            next_step="Let it print that line where it has found no flaw, and nowhere else.",
        )
    if why := fault(result):
        raise ProofError(
            f"The proof fails at the base commit, but not because of the flaw: {why}: {message}",
            next_step="Run it by hand at the base commit until it fails in its own words.",
        )
    return result


def _put(tree: FileTree, path: str, content: bytes) -> None:
    """A new file; a link of the repository leads it nowhere."""
    try:
        tree.add(path, content)
    except FileExistsError as error:
        raise ProofError(
            f"The proof's file {path!r} is in the way of a file of the repository.",
            next_step="Give it a name that the repository does not use.",
        ) from error
