"""What is kept of a case: facts of its runs, and nothing of the code that they ran on."""

import re

from pydantic import Field

from fallback_audit.frozen import Frozen
from fallback_eval.campaign import Half
from tests.campaigns.own_code.ends import End, Gate, Stop, Stopped
from tests.campaigns.own_code.shown import Shown
from tests.campaigns.own_code.wrong import Kind

#: What a skipped tests gate says where the suite ran. That "the tests fail at the base commit too" may
#: be said of a runner that did not start, so it is not counted.
_SOME_PASS = re.compile(r"[1-9]\d* test\(s\) pass")

#: What a failed one says where it did not.
_NONE_RAN = "failed before any test"

#: How the gate fails where the suite ran: a limit that ended it is one.
_TESTS_KINDS = frozenset({"tests_failed", "tests_missing", "gate_timeout"})


class Plan(Frozen):
    """The fix as a plan: its size, and what of upstream's fix it leaves out."""

    edits: int
    bytes: int
    files: tuple[str, ...]
    left_out: tuple[str, ...]
    unsayable: str = ""
    exact: bool | None = None


class DidRun(Frozen):
    """Did a gate's command run? ``detail``: what the gate said where it didn't."""

    ran: bool
    detail: str = ""


class WrongEnd(Frozen):
    """What became of a wrong plan.

    ``outcome``: the run's where the plan ended it, ``failed`` where the next attempt followed, ``invalid``
    where it was not taken for a plan, ``never asked``. ``proof_passes``: the proof as the harness ran it,
    where the tool called the plan fixed; None: not run, or it could not be.
    """

    kind: Kind
    with_proof: bool
    outcome: str
    code: int | None = None
    stopped_by: str = ""
    said: str = ""
    proof_passes: bool | None = None

    @property
    def says_fixed(self) -> bool:
        return self.code == 0

    @property
    def is_false(self) -> bool:
        """Without a proof nothing shows the flaw gone, whatever the plan."""
        return self.says_fixed and not (self.with_proof and self.proof_passes)


class Result(Frozen):
    """One case with one tool. ``label``: which tool; (label, name) is the row's key."""

    label: str
    name: str
    case_sha256: str
    ecosystem: str
    installs_by: str
    half: Half
    record: str
    repo: str
    plan: Plan
    #: Files that the clone did not hold, so that the tree was measured without them.
    absent: tuple[str, ...] = ()
    #: The perfect answer with its proof and without; None: no plan can say the fix.
    perfect: End | None
    plain: End | None
    stopped: Stopped | None
    tests: DidRun
    proof: DidRun
    #: Of the first prompt; None: none was sent.
    first: Shown | None
    #: Its size in UTF-8; None: none was sent, or an older version made the row.
    first_bytes: int | None = Field(default=None, exclude_if=lambda size: size is None)
    retries: tuple[Shown, ...] = ()
    wrong: tuple[WrongEnd, ...] = ()
    #: This run gave the true fix alone.
    wrong_skipped: bool = False
    #: Runs of the case that had a row, this one among them: of the half set aside only the first is blind.
    looks: int = 1
    #: Where it was skipped the day of the run that ``wrong`` and ``retries`` are of; empty: there was none.
    wrong_of: str = ""
    seconds: float = 0.0
    made: str = ""
    tool: str = ""
    tools: dict[str, str] = {}  # noqa: RUF012 (frozen)

    def beside(self, former: "Result | None") -> "Result":
        """As the row behind an earlier one of the same case. Where this run gave the true fix alone it has
        that one's wrong answers, and the retry prompts, which are mostly theirs."""
        if former is None or self.case_sha256 != former.case_sha256:
            return self
        again = self.model_copy(update={"looks": former.looks + 1})
        day = former.wrong_of if former.wrong_skipped else former.made
        if not (self.wrong_skipped and day):
            return again
        kept = {"wrong": former.wrong, "retries": former.retries, "wrong_of": day}
        return again.model_copy(update=kept)

    @property
    def proved(self) -> bool:
        """(a)"""
        return self.stopped is None and self.perfect is not None

    @property
    def plain_says_fixed(self) -> bool:
        return self.plain is not None and self.plain.says_fixed

    @property
    def false_fixed(self) -> int:
        """(d): ends that say fixed where nothing shows the flaw gone."""
        return sum(one.is_false for one in self.wrong) + self.plain_says_fixed


def suite_ran(ends: list[End]) -> DidRun:
    """Did the base commit's suite run in any of these?"""
    verdicts = _verdicts(ends, "tests")
    if any(_tests_really_ran(gate) for gate in verdicts):
        return DidRun(ran=True)
    failures = [failed for end in ends for failed in end.failed if "tests" in failed.gates]
    if any(_failed_on_tests(failed.kind, failed.said) for failed in failures):
        return DidRun(ran=True)
    message = next((gate.detail for gate in verdicts), "")
    return DidRun(ran=False, detail=message or _instead(ends))


def proof_ran(ends: list[End]) -> DidRun:
    """Did the proof run, to an end of its own, in any of these? ``ends``: of runs with the proof."""
    verdicts = _verdicts(ends, "proof")
    if any(gate.status in {"passed", "failed"} for gate in verdicts):
        return DidRun(ran=True)
    if any("proof" in failed.gates for end in ends for failed in end.failed):
        return DidRun(ran=True)
    if any(end.reason == "proof" and "passes already" in end.said for end in ends):
        return DidRun(ran=True)
    message = next((gate.detail for gate in verdicts), "")
    return DidRun(ran=False, detail=message or _instead(ends))


def _verdicts(ends: list[End], name: str) -> list[Gate]:
    return [gate for end in ends for gate in (*end.gates, *end.judged) if gate.name == name]


def _tests_really_ran(gate: Gate) -> bool:
    if gate.status == "skipped":
        return _SOME_PASS.search(gate.detail) is not None
    return gate.status == "passed" or _failed_on_tests(gate.kind, gate.detail)


def _failed_on_tests(kind: str, message: str) -> bool:
    return kind in _TESTS_KINDS and _NONE_RAN not in message


def _instead(ends: list[End]) -> str:
    """What was said in place of a verdict."""
    for end in ends:
        for failed in end.failed:
            if failed.gates:
                return f"{failed.gates[0]} failed first"
        if end.said:
            return end.said
    return "no run came so far"


def as_stopped(plan: Plan) -> Stopped:
    """A fix that no plan can say."""
    return Stopped(stop=Stop.NO_PLAN, what=plan.unsayable)
