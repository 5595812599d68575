"""The proof gate: a test of the flaw itself, which fails at the base commit and passes with the patch.

The suite shows that nothing broke; only this shows that the vulnerability is gone. Proofs are given
from outside (a person, an evaluation), never by the patch: their files are laid over an export of the
patched index for the run only, so that no other gate, and no diff, ever sees them.
"""

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

from fallback_audit.frozen import Frozen
from fallback_audit.vocabulary import FailureKind, PromptShape, ProofLevel, Tier
from fallback_tier.advisory import Advisory
from fallback_tier.execution import ClientRunner, CommandResult, Sandbox
from fallback_tier.files import whole
from fallback_tier.files.entries import say_nothing
from fallback_tier.files.tree import FileTree
from fallback_tier.gate_ports import (
    GateContext,
    GateVerdict,
    TargetRun,
    Witnessed,
    failed,
    passed,
    skipped,
    undecided,
)
from fallback_tier.gates.builtin.proof_given import PROOF, Proof, ProofError
from fallback_tier.gates.failure_summary.diagnosis import MAX_TESTS, diagnose
from fallback_tier.gates.trees.worktrees import Worktrees
from fallback_tier.outcome import Applied
from fallback_tier.ports import EcosystemPlugin
from fallback_tier.repo import RepoContext

__all__ = ["Proof", "ProofError", "ProofGate", "check_proof", "fresh_files"]

#: Wall clock of installing what the base commit declares: as long as a gate may take.
INSTALL_TIMEOUT_S = 600.0

#: How many tests a runner says that it skipped.
_SKIPS = re.compile(r"(?:\bskipped[=:]? ?|# skip(?:ped)? )(\d+)|(?<!\d)(\d+) (?:skipped|pending)\b")

#: Tests of a proof, and reasons to doubt a run of it, that a sentence names.
_NAMED_TESTS = 3

#: How much of the log an error about the proof itself quotes.
_QUOTED_CHARS = 600


#: A script that the patch ends early ends as well as one that found nothing.
_UNSHOWN_END = (
    "nothing shows that it ran to its end: no test of it is counted, and no last line is named"
)

#: Changed with what a kept run at the base commit tells.
_FORMAT = "5"

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
    #: Tests that ran; None: not told.
    ran: int | None = None
    witnessed: Witnessed | None = None


@dataclass(frozen=True)
class ProofGate:
    """Runs the proof on the patched files, dependencies installed, before the base commit's tests: those
    that fail after a passed proof may contradict the fix."""

    proof: Proof
    plugin: EcosystemPlugin
    name: str = PROOF

    def judge(self, context: GateContext) -> GateVerdict:
        """Fail if the proof fails; skip if its failure at the base commit shows nothing. Raises
        SandboxError, ToolError."""
        try:
            base = self.at_base(context)
        except ProofError as error:  # ``check_proof`` would have said so before anything was spent
            return skipped(self.name, error.problem, kinds=[error.kind])
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
            message += self._with_patch(base, ran, result)
            return failed(self.name, FailureKind.PROOF_FAILED, message, result.output)
        if (unproved := self._judge_tests(base, ran, result)) is not None:
            return unproved
        message = "the proof fails at the base commit and passes with the patch"
        # At midnight, say, it may have become another that nobody has run the proof on.
        is_same = self._place(context).exists()
        if not is_same or (ran.compared or ran.installed) != (base.compared or base.installed):
            here, there = ran.installed or "everything", base.installed or "everything"
            what = f"{there}; with the patch: {here if here != there else 'others of them'}"
            detail = f"{message}, but not on the same dependencies, which may be why: {what}"
            return skipped(self.name, detail, result.output, kinds=["other_dependencies"])
        detail = f"{message}; installed: {ran.installed}" if ran.installed else message
        return passed(self.name, detail, result.output, proof_level=ProofLevel.PROOF_TEST)

    def _judge_tests(
        self, base: "_AtBase", ran: TargetRun, result: CommandResult
    ) -> GateVerdict | None:
        """Return a verdict unless the proof's own tests brought about its exit code 0. Patched code runs in
        their process: it can exit with 0, print what a runner prints, and change the runner."""
        output = result.output
        there, here = base.witnessed or Witnessed(), ran.witnessed or Witnessed()
        before, now = base.ran, self._ran(output, ran.witnessed) or 0
        if there.ran is not None and here.ran is None:
            now = 0  # its runner did not come to report them, whatever is printed
        if before is not None and now < before:
            message = f"the proof ran {before} test(s) at the base commit, {now} with the patch"
            return failed(self.name, FailureKind.PROOF_FAILED, message, output)
        lost = here.failed or tuple(one for one in there.passed if not here.passes(one))
        if lost:
            message = f"the proof exits with 0, but these tests of it do not pass: {_some(lost)}"
            return failed(self.name, FailureKind.PROOF_FAILED, message, output)
        if here.failures and not here.passed:
            message = (
                f"the proof exits with 0, but its output counts {here.failures} failed test(s)"
            )
            return failed(self.name, FailureKind.PROOF_FAILED, message, output)
        if self.proof.end and not self.proof.ended(output):
            message = "the proof exited with 0 without its end line: it may have stopped early"
            return failed(self.name, FailureKind.PROOF_FAILED, message, output)
        if not before and not self.proof.end:
            message = f"the proof fails at the base commit and ends well with the patch, but {_UNSHOWN_END}"
            return skipped(self.name, message, output, kinds=["end_not_shown"])
        if doubts := [*self._doubts(there, here)]:
            message = f"the proof exits with 0, but it can't be relied on: {_some(doubts, '; ')}"
            return undecided(self.name, message, output)
        return None

    def _doubts(self, there: Witnessed, here: Witnessed) -> Iterator[str]:
        yield from here.doubts
        if here.failures:
            yield f"a summary in its output counts {here.failures} failed test(s)"
        ended = {*here.ended_by} - {*there.ended_by, *self.proof.files}
        yield from (f"{path} ends a process, and not at the base commit" for path in sorted(ended))
        changed = sorted({*here.changed} - {*there.changed})
        yield from (f"{name} is changed while it runs" for name in changed)
        if here.passed:
            other = [test for test in there.failed if not here.passes(test)]
            yield from (f"{test!r} failed at the base commit and is not run" for test in other)

    def _ran(self, output: str, witnessed: Witnessed | None) -> int | None:
        """Return how many tests ran, by the output and by the runners themselves: the lesser."""
        reported = None if witnessed is None else witnessed.ran
        counts = (self.plugin.tests_ran(output), reported)
        return min((count for count in counts if count is not None), default=None)

    def at_base(self, context: GateContext) -> "_AtBase":
        """Return the failing run at the base commit, made once per commit, proof and environment. Raises
        ProofError if that failure shows nothing; SandboxError, ToolError."""
        if (content := whole.kept(self._place(context))) is None:
            ran, place = self._run_at_base(context)
            output = _checked(self.proof, ran).output.encode(errors="replace").decode()
            base = _AtBase(
                output=output,
                installed=ran.installed,
                compared=ran.compared,
                ran=self._ran(output, ran.witnessed),
                witnessed=ran.witnessed,
            )
            whole.keep(place, base.model_dump_json().encode())
            return base
        return _AtBase.model_validate_json(content)

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
        if first.result is None or first.result.ok or not _may_start_elsewhere(fault(first.result)):
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

    def _with_patch(self, base: "_AtBase", run: TargetRun, result: CommandResult) -> str:
        """Name the proof's tests that fail at the base commit and pass now, if no fewer ran: the patch is
        on its way."""
        there, here = base.output, result.output
        ran, runs = base.ran, self._ran(here, run.witnessed)
        if not ran or not runs or runs < ran or _SKIPS.findall(here) != _SKIPS.findall(there):
            return ""
        failed, failing = diagnose(there).tests, diagnose(here).tests
        fixed = [test for test in failed if test not in failing]
        # None that fails is named, or not every one: nothing is told apart.
        if not failing or MAX_TESTS in {len(failed), len(failing)} or not fixed:
            return ""
        return f"; of its tests these pass now: {_some(fixed)}"

    def _run(self, context: GateContext, *, patched: bool) -> TargetRun:
        with fresh_files(context, patched=patched) as files:
            for path, content in self.proof.files.items():
                _put(files.tree, path, content)
            watched = replace(context, is_proof=True)
            return self.plugin.run(watched, files, self.proof.command, self.proof.timeout_s)


def _some(names: Sequence[str], between: str = ", ") -> str:
    more = f" and {len(names) - _NAMED_TESTS} more" if len(names) > _NAMED_TESTS else ""
    return between.join(names[:_NAMED_TESTS]) + more


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
    """Run the proof at the base commit, before anything is spent, and return its output. ``report`` is told
    if its passing would prove nothing. Raises ProofError if it passes, times out, can't start or install,
    or its files exist; SandboxError, RepositoryError, ToolError."""
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
        base = gate.at_base(context)
    if not gate.proof.end and not base.ran:
        report(f"The proof will prove nothing: {_UNSHOWN_END} (--proof-end, or use a test runner).")
    return base.output


def _checked(proof: Proof, ran: TargetRun) -> CommandResult:
    """The run at the base commit, where it ended as a proof must. Raises ProofError."""
    if (result := ran.result) is None:
        raise ProofError(
            "The proof can't be run: the dependencies of the base commit can't be installed here: "
            f"{ran.installed}",
            next_step="Make them installable (`npm ci`, `uv pip install`), or prove it by hand.",
            kind="not_installable",
        )
    message = " ".join(result.output[-_QUOTED_CHARS:].split()) or "it printed nothing"
    message += f" (installed: {ran.installed})" if ran.installed else ""
    if result.ok:
        raise ProofError(
            "The proof passes already at the base commit, so it can't show that a patch fixes "
            f"anything: {message}",
            next_step="Give a test that fails while the vulnerability is there.",
            kind="passes_at_base",
        )
    if result.timed_out:
        raise ProofError(
            f"The proof did not end within {proof.timeout_s:.0f} s at the base commit: {message}",
            next_step="Let it end by itself, with a limit of its own where the flaw is a hang.",
            kind="timed_out",
        )
    if proof.ended(result.output):
        raise ProofError(
            f"The proof prints its last line at the base commit, where it fails: {message}",
            next_step="Let it print that line where it has found no flaw, and nowhere else.",
            kind="end_line_at_base",
        )
    if why := fault(result):
        raise ProofError(
            f"The proof fails at the base commit, but not because of the flaw: {why}: {message}",
            next_step="Run it by hand at the base commit until it fails in its own words.",
            kind="another_cause",
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
            kind="file_in_the_way",
        ) from error


# Why a proof that fails may show nothing: it never came to look at the flaw.
#
# A missing program, a test that can't be collected or an import that fails ends with a failure too, at
# the base commit and perhaps not with the patch. Such a failure must not pass for the vulnerability. The
# patterns are output of the interpreters and the common test runners; a proof whose *subject* is one of
# these messages catches it and fails with its own text.

#: POSIX.1-2017, XCU 2.8.2: found but not executable; not found.
_NOT_EXECUTABLE, _NOT_FOUND = 126, 127

#: Where node parses and links modules; a SyntaxError of JSON.parse or of `new RegExp` comes from elsewhere.
_NODE_LOADERS = r"(?:wrapSafe|internalCompileFunction|compileSourceTextModule|ModuleJob\b)"

#: Lines that say that the proof's own code was never reached.
_FAULTS = tuple(
    (re.compile(pattern, re.MULTILINE), why)
    for pattern, why in (
        # python -m NAME, python FILE
        (r"^\S*python[\d.]*: (?:No module named|can't (?:open|find)|Error while finding)", "start"),
        # node: below an uncaught error of require or import, and from its loaders; `#`: as TAP
        (r"^(?:# )? +code: '(?:ERR_)?MODULE_NOT_FOUND'", "import"),
        (rf"^(?:# )?SyntaxError: .*\n(?:# )? +at {_NODE_LOADERS}", "import"),
        # pytest: errors while collecting; exit codes 4 and 5 in words
        (
            r"^_+ ERROR collecting |^ERROR .*- (?:\w+\.)*(?:Import|ModuleNotFound|Syntax)Error",
            "import",
        ),
        (r"^ImportError while loading conftest '", "import"),
        (r"^INTERNALERROR> ", "start"),
        (r"^!+ Interrupted: \d+ errors? during collection", "import"),
        (r"^ERROR: (?:file or directory )?not found: ", "start"),
        (r"^=*[^\S\n]*no tests ran in |^NO TESTS RAN", "no test"),
        # unittest
        (r"^ImportError: Failed to import test module: ", "import"),
        (r"^Ran 0 tests in ", "no test"),
        # jest, vitest, mocha
        (r"^[^\S\n]*(?:.{1,2} )?Test suite failed to run\b", "import"),
        (r"^No tests? (?:files? )?found\b|^Error: No test files found", "no test"),
    )
)

#: The last line of a Python traceback that nobody caught.
_UNCAUGHT = re.compile(
    r"^(?:ModuleNotFoundError|ImportError|SyntaxError|IndentationError)(?::.*)?\Z", re.MULTILINE
)

#: What each failing test ends with: in pytest's short summary; above unittest's rules.
_ENDINGS = re.compile(r"^FAILED .*? - (\S+)|^([\w.]+): .*\n\n(?:-{70}|={70})$", re.MULTILINE)
_CANNOT_IMPORT = re.compile(r"(?:ModuleNotFound|Import)Error:?")

#: What unittest tells of each test that failed: its heading, and the outermost frame of its traceback.
_UNITTEST = re.compile(
    r"^={70}\n((?:ERROR|FAIL): .*)\n(?:.*\n)?-{70}\n(?:Traceback .*\n(.*))?", re.MULTILINE
)
_SET_UP_HEADING = re.compile(r"ERROR: setUp(?:Class|Module)\b")
_SET_UP_FRAME = re.compile(r'  File ".*", line \d+, in (?:asyncS|s)etUp$')

#: pytest's: a fixture that failed, by more than an assertion; and the tests that were reached.
_SET_UP = re.compile(r"^_+ ERROR at setup of ", re.MULTILINE)
_REACHED = re.compile(r"^E +(?:assert |AssertionError)|\b\d+ failed\b", re.MULTILINE)

_SENTENCES = {
    "start": "it can't be started",
    "import": "it, or something that it needs, can't be imported",
    "no test": "it has no test that runs",
    "set-up": "none of its tests got past its set-up",
}


#: What may be otherwise on another interpreter.
_RUNTIME = frozenset({_SENTENCES["import"], _SENTENCES["set-up"]})


def _may_start_elsewhere(why: str | None) -> bool:
    """Could a proof with this fault start on another interpreter?"""
    return why in _RUNTIME


def fault(result: CommandResult) -> str | None:
    """Why this failure says nothing of the flaw, as a clause; None where it may well be the flaw's."""
    if result.exit_code == _NOT_FOUND:
        return f"there is no program {result.argv[0]!r} in the sandbox, or the proof could not find one"
    if result.exit_code == _NOT_EXECUTABLE:
        return f"{result.argv[0]!r} can't be executed"
    what = next(_without_noise(result.output), None)
    return None if what is None else _SENTENCES[what]


def _without_noise(output: str) -> Iterator[str]:
    for pattern, what in _FAULTS:
        if pattern.search(output):
            yield what
    ends = [pytest or unittest for pytest, unittest in _ENDINGS.findall(output)]
    nothing_else = ends and all(map(_CANNOT_IMPORT.fullmatch, ends))
    if nothing_else or _UNCAUGHT.search(output.rstrip()):
        yield "import"
    if _only_sets_up(output):
        yield "set-up"


def _only_sets_up(output: str) -> bool:
    """Did every test that failed do so before it began, and not by an assertion?"""
    if found := _UNITTEST.findall(output):
        return all(
            _SET_UP_HEADING.match(heading)
            or (heading.startswith("ERROR") and _SET_UP_FRAME.match(frame))
            for heading, frame in found
        )
    return bool(_SET_UP.search(output)) and not _REACHED.search(output)
