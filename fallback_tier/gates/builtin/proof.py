"""The proof gate: a test of the vulnerability, which fails at the base commit and passes with the patch.

The suite shows that nothing broke; only a proof shows that the vulnerability is gone. Proofs come from
outside (a person, an evaluation), never from the patch: their files are added to an export of the patched
index for this run only, so no other gate, and no diff, sees them.
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

#: Wall-clock limit for installing what the base commit declares: that of a gate.
INSTALL_TIMEOUT_S = 600.0

#: The number of skipped tests in a runner's output.
_SKIPS = re.compile(r"(?:\bskipped[=:]? ?|# skip(?:ped)? )(\d+)|(?<!\d)(\d+) (?:skipped|pending)\b")

#: How many tests of a proof, or reasons to doubt its run, a message names.
_NAMED_TESTS = 3

#: How many characters of the log an error about the proof itself quotes.
_QUOTED_CHARS = 600


#: A script that the patch stops early exits as one that found nothing.
_UNSHOWN_END = (
    "nothing shows that it ran to its end: no test of it is counted, and no last line is named"
)

#: The version of the format of stored runs at the base commit.
_FORMAT = "5"

#: The patch if there is none yet: the base commit as it is.
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
    """The proof's output at the base commit, where it failed, and the dependencies that it ran on."""

    output: str
    installed: str
    compared: str = ""
    #: Tests that ran; None: not reported.
    ran: int | None = None
    witnessed: Witnessed | None = None


@dataclass(frozen=True)
class ProofGate:
    """The gate that runs the proof on the patched files, with dependencies installed. It runs before the
    base commit's tests, because tests that fail after a passed proof may contradict the fix."""

    proof: Proof
    plugin: EcosystemPlugin
    name: str = PROOF

    def judge(self, context: GateContext) -> GateVerdict:
        """Fail if the proof fails; skip if its failure at the base commit shows nothing. Raises
        SandboxError, ToolError."""
        try:
            base = self.at_base(context)
        except ProofError as error:  # ``check_proof`` reports it before anything is spent
            return skipped(self.name, error.problem, kinds=[error.kind])
        try:
            ran = self._run(context, patched=True)
        except ProofError as error:  # at the base commit the path was free
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
        # The dependencies may have changed meanwhile, at midnight for example: the proof did not run on the
        # new ones.
        is_same = self._place(context).exists()
        if not is_same or (ran.compared or ran.installed) != (base.compared or base.installed):
            patched, unpatched = ran.installed or "everything", base.installed or "everything"
            what = f"{unpatched}; with the patch: {patched if patched != unpatched else 'others of them'}"
            detail = f"{message}, but not on the same dependencies, which may be why: {what}"
            return skipped(self.name, detail, result.output, kinds=["other_dependencies"])
        detail = f"{message}; installed: {ran.installed}" if ran.installed else message
        return passed(self.name, detail, result.output, proof_level=ProofLevel.PROOF_TEST)

    def _judge_tests(
        self, base: "_AtBase", ran: TargetRun, result: CommandResult
    ) -> GateVerdict | None:
        """Return a verdict unless exit code 0 is the result of the proof's own tests.

        Patched code runs in their process: it can exit with 0, imitate a runner's output, and change the
        runner.
        """
        output = result.output
        at_base, patched = base.witnessed or Witnessed(), ran.witnessed or Witnessed()
        base_count, count = base.ran, self._ran(output, ran.witnessed) or 0
        if at_base.ran is not None and patched.ran is None:
            count = 0  # its runner reported none, whatever the output says
        if base_count is not None and count < base_count:
            message = (
                f"the proof ran {base_count} test(s) at the base commit, {count} with the patch"
            )
            return failed(self.name, FailureKind.PROOF_FAILED, message, output)
        not_passing = patched.failed or tuple(
            test for test in at_base.passed if not patched.passes(test)
        )
        if not_passing:
            message = (
                f"the proof exits with 0, but these tests of it do not pass: {_some(not_passing)}"
            )
            return failed(self.name, FailureKind.PROOF_FAILED, message, output)
        if patched.failures and not patched.passed:
            message = (
                f"the proof exits with 0, but its output counts {patched.failures} failed test(s)"
            )
            return failed(self.name, FailureKind.PROOF_FAILED, message, output)
        if self.proof.end and not self.proof.ended(output):
            message = "the proof exited with 0 without its end line: it may have stopped early"
            return failed(self.name, FailureKind.PROOF_FAILED, message, output)
        if not base_count and not self.proof.end:
            message = f"the proof fails at the base commit and ends well with the patch, but {_UNSHOWN_END}"
            return skipped(self.name, message, output, kinds=["end_not_shown"])
        if doubts := [*self._doubts(at_base, patched)]:
            message = f"the proof exits with 0, but it can't be relied on: {_some(doubts, '; ')}"
            return undecided(self.name, message, output)
        return None

    def _doubts(self, at_base: Witnessed, patched: Witnessed) -> Iterator[str]:
        yield from patched.doubts
        if patched.failures:
            yield f"a summary in its output counts {patched.failures} failed test(s)"
        ended = {*patched.ended_by} - {*at_base.ended_by, *self.proof.files}
        yield from (f"{path} ends a process, and not at the base commit" for path in sorted(ended))
        changed = sorted({*patched.changed} - {*at_base.changed})
        yield from (f"{name} is changed while it runs" for name in changed)
        if patched.passed:
            not_run = [test for test in at_base.failed if not patched.passes(test)]
            yield from (f"{test!r} failed at the base commit and is not run" for test in not_run)

    def _ran(self, output: str, witnessed: Witnessed | None) -> int | None:
        """Return how many tests ran: the lesser of the output's and the runners' own counts, or None."""
        by_runners = None if witnessed is None else witnessed.ran
        counts = (self.plugin.tests_ran(output), by_runners)
        return min((count for count in counts if count is not None), default=None)

    def at_base(self, context: GateContext) -> "_AtBase":
        """Return the failing run at the base commit, made once per commit, proof and environment.

        Raises ProofError if that failure shows nothing; SandboxError, ToolError.
        """
        if (content := whole.kept(self._place(context))) is None:
            ran, path = self._run_at_base(context)
            output = _checked(self.proof, ran).output.encode(errors="replace").decode()
            base = _AtBase(
                output=output,
                installed=ran.installed,
                compared=ran.compared,
                ran=self._ran(output, ran.witnessed),
                witnessed=ran.witnessed,
            )
            whole.keep(path, base.model_dump_json().encode())
            return base
        return _AtBase.model_validate_json(content)

    def _place(self, context: GateContext) -> Path:
        environment = self.plugin.runs_on(context, context.repo, self.proof.command)
        # The sandbox is part of the key: a failure for lack of a network shows no vulnerability outside a
        # sandbox.
        facts = [
            _FORMAT,
            self.plugin.name,
            environment,
            type(context.sandbox).__qualname__,
            self.proof.digest,
        ]
        digest = hashlib.sha256("\0".join(facts).encode()).hexdigest()[:32]
        return context.cache / "proofs" / f"{context.repo.base_commit}-{digest}"

    def _run_at_base(self, context: GateContext) -> tuple[TargetRun, Path]:
        """Return the run at the base commit and the path that it is stored at.

        If the proof can't start on the first interpreter, others are tried (ADR-0085). If it fails on none
        of them as a proof must, the first run is returned.
        """
        self._moved(context, 0)
        first_path, first = self._place(context), self._run(context, patched=False)
        if first.result is None or first.result.ok or not _may_start_elsewhere(fault(first.result)):
            return first, first_path
        for number in count(1):
            if not self._moved(context, number):
                break
            context.report(
                "The proof can't start at the base commit; another interpreter is tried."
            )
            with suppress(ProofError):
                other_path, ran = self._place(context), self._run(context, patched=False)
                _checked(self.proof, ran)
                return ran, other_path
        self._moved(context, 0)
        return first, first_path

    def _moved(self, context: GateContext, number: int) -> bool:
        return self.plugin.run_on_another(context, context.repo, self.proof.command, number)

    def _with_patch(self, base: "_AtBase", run: TargetRun, result: CommandResult) -> str:
        """Name the proof's tests that fail at the base commit and pass now, if no fewer ran: the patch is a
        partial success."""
        base_output, patched_output = base.output, result.output
        base_count, patched_count = base.ran, self._ran(patched_output, run.witnessed)
        if (
            not base_count
            or not patched_count
            or patched_count < base_count
            or _SKIPS.findall(patched_output) != _SKIPS.findall(base_output)
        ):
            return ""
        failed, failing = diagnose(base_output).tests, diagnose(patched_output).tests
        fixed = [test for test in failed if test not in failing]
        # If no failing test is named, or not every one, the tests can't be compared.
        if not failing or MAX_TESTS in {len(failed), len(failing)} or not fixed:
            return ""
        return f"; of its tests these pass now: {_some(fixed)}"

    def _run(self, context: GateContext, *, patched: bool) -> TargetRun:
        with fresh_files(context, patched=patched) as files:
            for path, content in self.proof.files.items():
                _put(files.tree, path, content)
            proof_context = replace(context, is_proof=True)
            return self.plugin.run(proof_context, files, self.proof.command, self.proof.timeout_s)


def _some(names: Sequence[str], separator: str = ", ") -> str:
    more = f" and {len(names) - _NAMED_TESTS} more" if len(names) > _NAMED_TESTS else ""
    return separator.join(names[:_NAMED_TESTS]) + more


@contextmanager
def fresh_files(context: GateContext, *, patched: bool) -> Iterator[RepoContext]:
    """Yield the patched files, or the base commit's, untouched by commands; they are removed at the end."""
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
    """Run the proof at the base commit, before anything is spent, and return its output.

    ``report`` is called if a pass would prove nothing. Raises ProofError if the proof passes, times out,
    can't start or install, or its files exist; SandboxError, RepositoryError, ToolError.
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
        base = gate.at_base(context)
    if not gate.proof.end and not base.ran:
        report(f"The proof will prove nothing: {_UNSHOWN_END} (--proof-end, or use a test runner).")
    return base.output


def _checked(proof: Proof, ran: TargetRun) -> CommandResult:
    """Return the result of the run at the base commit if it failed as a proof must. Raises ProofError."""
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
    """Add a new file; a link of the repository can't redirect it. Raises ProofError if the path exists."""
    try:
        tree.add(path, content)
    except FileExistsError as error:
        raise ProofError(
            f"The proof's file {path!r} is in the way of a file of the repository.",
            next_step="Give it a name that the repository does not use.",
            kind="file_in_the_way",
        ) from error


# Why a failing proof may show nothing: it never got to test the vulnerability.
#
# A missing program, a test that can't be collected or a failed import is a failure too, at the base commit
# and perhaps not with the patch. Such a failure must not count as the vulnerability. The patterns match
# output of the interpreters and the common test runners; a proof whose *subject* is one of these messages
# catches it and fails with its own text.

#: POSIX.1-2017, XCU 2.8.2: found but not executable; not found.
_NOT_EXECUTABLE, _NOT_FOUND = 126, 127

#: Functions in which node parses and links modules; a SyntaxError of JSON.parse or of `new RegExp` comes
#: from elsewhere.
_NODE_LOADERS = r"(?:wrapSafe|internalCompileFunction|compileSourceTextModule|ModuleJob\b)"

#: Lines of output which show that the proof's own code was never reached.
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

#: The last line of the traceback of an uncaught exception.
_UNCAUGHT = re.compile(
    r"^(?:ModuleNotFoundError|ImportError|SyntaxError|IndentationError)(?::.*)?\Z", re.MULTILINE
)

#: The end of each failing test's output: in pytest's short summary; above unittest's rules.
_ENDINGS = re.compile(r"^FAILED .*? - (\S+)|^([\w.]+): .*\n\n(?:-{70}|={70})$", re.MULTILINE)
_CANNOT_IMPORT = re.compile(r"(?:ModuleNotFound|Import)Error:?")

#: unittest's report of a failed test: its heading, and the outermost frame of its traceback.
_UNITTEST = re.compile(
    r"^={70}\n((?:ERROR|FAIL): .*)\n(?:.*\n)?-{70}\n(?:Traceback .*\n(.*))?", re.MULTILINE
)
_SET_UP_HEADING = re.compile(r"ERROR: setUp(?:Class|Module)\b")
_SET_UP_FRAME = re.compile(r'  File ".*", line \d+, in (?:asyncS|s)etUp$')

#: pytest's report: a fixture that failed, by more than an assertion; and tests that were reached.
_SET_UP = re.compile(r"^_+ ERROR at setup of ", re.MULTILINE)
_REACHED = re.compile(r"^E +(?:assert |AssertionError)|\b\d+ failed\b", re.MULTILINE)

_SENTENCES = {
    "start": "it can't be started",
    "import": "it, or something that it needs, can't be imported",
    "no test": "it has no test that runs",
    "set-up": "none of its tests got past its set-up",
}


#: Faults that may not occur on another interpreter.
_RUNTIME = frozenset({_SENTENCES["import"], _SENTENCES["set-up"]})


def _may_start_elsewhere(why: str | None) -> bool:
    """Return whether a proof with this fault could start on another interpreter."""
    return why in _RUNTIME


def fault(result: CommandResult) -> str | None:
    """Return why this failure says nothing about the vulnerability, as a clause; None: it may show it."""
    if result.exit_code == _NOT_FOUND:
        return f"there is no program {result.argv[0]!r} in the sandbox, or the proof could not find one"
    if result.exit_code == _NOT_EXECUTABLE:
        return f"{result.argv[0]!r} can't be executed"
    kind = next(_without_noise(result.output), None)
    return None if kind is None else _SENTENCES[kind]


def _without_noise(output: str) -> Iterator[str]:
    for pattern, kind in _FAULTS:
        if pattern.search(output):
            yield kind
    errors = [pytest or unittest for pytest, unittest in _ENDINGS.findall(output)]
    nothing_else = errors and all(map(_CANNOT_IMPORT.fullmatch, errors))
    if nothing_else or _UNCAUGHT.search(output.rstrip()):
        yield "import"
    if _only_sets_up(output):
        yield "set-up"


def _only_sets_up(output: str) -> bool:
    """Return whether every failed test failed before it began, and not by an assertion."""
    if failures := _UNITTEST.findall(output):
        return all(
            _SET_UP_HEADING.match(heading)
            or (heading.startswith("ERROR") and _SET_UP_FRAME.match(frame))
            for heading, frame in failures
        )
    return bool(_SET_UP.search(output)) and not _REACHED.search(output)
