"""Input and verdicts of gates, as protocols and models. Plugins implement gates."""

from collections.abc import Callable, Iterable, MutableMapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from pydantic import Field

from fallback_audit.event_types import Digest, JudgedTests, ProvedProject
from fallback_audit.frozen import Frozen
from fallback_audit.vocabulary import FailureKind, GateStatus, ProofLevel, TestsLevel
from fallback_tier.advisory import Advisory
from fallback_tier.execution import ClientRunner, CommandResult, Sandbox
from fallback_tier.files.entries import say_nothing
from fallback_tier.files.tree import FileTree, RawChange
from fallback_tier.outcome import Applied
from fallback_tier.repo import RepoContext

#: The step that puts the patch on the worktree is itself a gate, always the first.
APPLIES = "applies"


class Worktree(Protocol):
    """The base commit's files with the patch applied, and with what earlier gates installed."""

    @property
    def tree(self) -> FileTree:
        """The files' location, for a sandbox and for reading."""
        ...

    def changed(self) -> tuple[RawChange, ...]:
        """Return how the patch makes the tree differ from the base commit, by path: judged from the
        resulting files, not from the diff's text. Raises ToolError."""
        ...

    def fresh(self, *, patched: bool) -> AbstractContextManager[FileTree]:
        """Yield the patched files, or the base commit's, exactly as git has them, without what gates
        installed. Their ``.git`` is separate: HEAD is these files, with the base commit's history and tags
        (ADR-0117). Removed at the end. Raises ToolError."""
        ...


@dataclass(frozen=True)
class SuiteTime:
    """Limits in seconds of one run of a project's tests: ``limit_s`` in all, and ``silent_s`` without
    output or a reported test; None: it may be silent."""

    limit_s: float
    silent_s: float | None = None


@dataclass(frozen=True)
class GateContext:
    """Input of a gate. ``cache`` outlives attempts; ``report``: tells a waiting user what takes time.

    ``is_proof``: a command's tests decide, so that they are witnessed (``TargetRun.witnessed``).
    ``resolutions``: what an ecosystem resolved for this fix, by its own keys. Each is recorded as evidence
    with the verdict that follows, and is available again when the fix is resumed (ADR-0102).
    ``suite_time``: limits of a run of the project's tests; None: ``timeout_s``, as for any command.
    """

    advisory: Advisory
    repo: RepoContext
    application: Applied
    worktree: Worktree
    cache: Path
    sandbox: Sandbox
    clients: ClientRunner
    timeout_s: float
    report: Callable[[str], None] = say_nothing
    is_proof: bool = False
    resolutions: MutableMapping[str, str] = field(default_factory=dict)
    suite_time: SuiteTime | None = None


class Witnessed(Frozen):
    """How a command's tests ended, as reported from inside its processes; and reasons not to believe its
    exit code and its output.

    ``passed``, ``failed``: tests by name, none if no test runner reported. A skipped test, and one that is
    expected to fail, is in neither. ``failures``: tests that summaries in the output count as failed.
    ``changed``: what a process changed that test runners rely on; ``ended_by``: files whose code ended a
    process. Code of the base commit may do both, so only what is new with the patch counts. ``doubts``:
    what no sound run does.
    """

    passed: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    failures: int = 0
    changed: tuple[str, ...] = ()
    ended_by: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()

    @property
    def ran(self) -> int | None:
        """Tests that ran; None if no test runner reported."""
        return len(self.passed) + len(self.failed) or None

    def passes(self, test: str) -> bool:
        """Return whether a test passed. For a subtest, which reports only failures, its test must have
        passed."""
        return test not in self.failed and any(
            test == passed_test or test.startswith((f"{passed_test} (", f"{passed_test} ["))
            for passed_test in self.passed
        )


@dataclass(frozen=True)
class TargetRun:
    """A command that was run in a tree with its dependencies, and what it ran on.

    ``result`` None: nothing could be installed, so it did not run. ``installed``: what failed to install,
    in the client's own output; empty if everything is there. ``compared``: everything that must be equal in
    two runs for their ends to be compared, of which ``installed`` may have only the beginning.
    ``witnessed``: set if the context says that it is a proof; None: this ecosystem has no witness, so that
    the output alone tells.
    """

    result: CommandResult | None
    installed: str = ""
    compared: str = ""
    witnessed: Witnessed | None = None


class GateVerdict(Frozen):
    """A gate's typed verdict. ``failure_kind`` exactly where it failed; ``log`` becomes evidence."""

    gate: str
    status: GateStatus
    detail: str
    failure_kind: FailureKind | None = None
    #: How much a passed verdict on versions proves; None: the gate says nothing about versions.
    proof_level: ProofLevel | None = None
    #: How far it judged the project's tests; None: it is not a gate on them.
    tests_level: TestsLevel | None = None
    #: How far, project by project, and by which command: the lowest of their levels is ``tests_level``.
    tests: tuple[JudgedTests, ...] = ()
    #: Tests that failed here and that fail now and then at the base commit too.
    flaky: tuple[str, ...] = ()
    #: Tests of the base commit that pass there and failed here, if the runner names them.
    broken: tuple[str, ...] = ()
    #: Tests that fail here as they always do at the base commit: not because of the patch, and one of them
    #: may be the test that shows the vulnerability.
    failing_before: tuple[str, ...] = ()
    #: What each project has of the advisory's packages, with a pass on versions: the lowest level counts.
    projects: tuple[ProvedProject, ...] = ()
    #: What a reader should know with the verdict, in sentences.
    notes: tuple[str, ...] = ()
    #: Short names of what ``detail`` states, which stay if its wording changes (ADR-0130); one verdict over
    #: several projects or runs has those of all. For programs in this process: they are not on record.
    kinds: frozenset[str] = Field(default=frozenset(), exclude=True)
    log: str = ""
    #: The log's name in the evidence store; None: not on record yet, or there is no log.
    evidence_sha256: Digest | None = None
    duration_ms: int = 0


def passed(
    gate: str,
    detail: str,
    log: str = "",
    *,
    proof_level: ProofLevel | None = None,
    kinds: Iterable[str] = (),
) -> GateVerdict:
    """Return a pass: the gate's condition holds. ``proof_level``: how much that shows, if the gate says."""
    return GateVerdict(
        gate=gate,
        status=GateStatus.PASSED,
        detail=detail,
        log=log,
        proof_level=proof_level,
        kinds=frozenset(kinds),
    )


def failed(gate: str, kind: FailureKind, detail: str, log: str = "") -> GateVerdict:
    """Return a failure: the gate's condition does not hold."""
    return GateVerdict(
        gate=gate, status=GateStatus.FAILED, failure_kind=kind, detail=detail, log=log
    )


def skipped(gate: str, reason: str, log: str = "", *, kinds: Iterable[str] = ()) -> GateVerdict:
    """Return that the gate had nothing to judge, and why; never a pass. If it should have judged and could
    not, that is ``undecided``."""
    return GateVerdict(
        gate=gate, status=GateStatus.SKIPPED, detail=reason, log=log, kinds=frozenset(kinds)
    )


def undecided(gate: str, reason: str, log: str = "", *, kinds: Iterable[str] = ()) -> GateVerdict:
    """Return that the base commit is known to do what is checked, and the patch can't be compared with it.

    Neither a pass nor the patch's failure: unless another gate fails it, a person is asked (ADR-0077).
    """
    return GateVerdict(
        gate=gate, status=GateStatus.UNDECIDED, detail=reason, log=log, kinds=frozenset(kinds)
    )


class Gate(Protocol):
    """One objective check of a patched worktree."""

    @property
    def name(self) -> str:
        """Stable name: part of step keys, events and summaries."""
        ...

    def judge(self, context: GateContext) -> GateVerdict:
        """Judge the worktree. A bad patch is a verdict, no error. Raises SandboxError or ToolError."""
        ...
