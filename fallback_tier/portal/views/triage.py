"""The screen for one decision: what a person needs for an escalated fix, in the order of need."""

from collections import defaultdict
from dataclasses import dataclass
from decimal import Decimal
from itertools import takewhile
from typing import NamedTuple

from fallback_audit.contract.trail import is_budget_stop
from fallback_audit.events import (
    AttemptFailed,
    GateJudged,
    ModelAnswered,
    PatchProposed,
)
from fallback_audit.vocabulary import SHOWING_GATES, TESTS_GATE, BudgetLimit, GateStatus
from fallback_tier.fix.journal.history import History, Transition
from fallback_tier.fix.journal.questions import Review
from fallback_tier.fix.journal.review import asked_about, can_be_tried_again, carries_failure
from fallback_tier.portal.views.diffs import Diff, read_diff
from fallback_tier.portal.views.spending import Spent, Use, by_cost, total, usd
from fallback_tier.service.operations.reviews import Verdict

#: Order of gates: failed, undecided, skipped, passed.
_ORDER = {
    GateStatus.FAILED: 0,
    GateStatus.UNDECIDED: 1,
    GateStatus.SKIPPED: 2,
    GateStatus.PASSED: 3,
}

#: Text for what a failed or missing gate leaves open.
_OPEN = {
    "applies": "that the patch applies",
    "declared_set": "that it changes only what it says",
    "policy": "that it touches only what a patch may",
    "resolves": "that the dependencies install",
    "not_vulnerable": "that no affected version is left",
    "typecheck": "that the types hold",
    "build": "that it builds",
    "checks": "that the checks of its test script pass",
    "tests": "that the tests pass",
    "capability": "that it reaches for nothing undeclared",
    "proof": "that the flaw is gone",
}


class GateLine(NamedTuple):
    """One verdict. ``first``: the failure in one line; ``tests``: failed ones; ``asserted``: their
    assertions.
    """

    gate: str
    status: GateStatus
    detail: str
    first: str
    tests: tuple[str, ...]
    milliseconds: int
    evidence: str | None
    asserted: tuple[str, ...] = ()


class Choice(NamedTuple):
    """A possible decision: its key, its button, and its effect."""

    verdict: Verdict
    key: str
    label: str
    comes: str


class Cap(NamedTuple):
    """The cap that was reached, and the one that is offered instead. ``field``: of the form."""

    limit: BudgetLimit
    cap: str
    used: str
    wanted: str
    field: str | None
    offered: str

    @property
    def says(self) -> str:
        """Return how far the cap is used up."""
        per = self.limit.value.rpartition("_")[2]
        used, cap, wanted = map(self._shown, (self.used, self.cap, self.wanted))
        return f"{used} of {cap} a {per} used; the next call may take {wanted}"

    def _shown(self, amount: str) -> str:
        if self.limit in (BudgetLimit.USD_PER_FIX, BudgetLimit.USD_PER_DAY):
            return usd(amount)
        return f"{Decimal(amount):,f} tokens"


@dataclass(frozen=True)
class Triage:
    """The whole screen. ``judged_attempt``: the attempt whose gates are shown, which the question is
    about.
    """

    review: Review
    open_points: str
    judged_attempt: int | None
    gates: tuple[GateLine, ...]
    diff: Diff | None
    spent: tuple[Spent, ...]
    choices: tuple[Choice, ...]
    cap: Cap | None
    last_seq: int

    @property
    def usd(self) -> Decimal | None:
        """Return the cost of all calls."""
        return total(self.spent)


def triage(review: Review, history: History) -> Triage:
    """Return the screen for a question and its fix's history."""
    current = history.current
    patch_sha256 = asked_about(current)
    attempt = _attempt_of(current, patch_sha256)
    gates = gate_lines(current, attempt, _assertions(review, attempt))
    code = current.start.affected_code if current.start else None
    return Triage(
        review=review,
        open_points=not_proved(
            {line.gate: line.status for line in gates},
            shows=SHOWING_GATES.get(code, frozenset({"proof"})) if code else frozenset({"proof"}),
            has_patch=patch_sha256 is not None,
        ),
        judged_attempt=attempt,
        gates=gates,
        diff=read_diff(review.patch) if review.patch is not None else None,
        spent=_spent(history),
        choices=choices(history) if review.question.answer is None else (),
        cap=_cap(current),
        last_seq=current.events[-1].seq,
    )


def choices(history: History) -> tuple[Choice, ...]:
    """Return the decisions that are possible now; recording refuses any other."""
    current = history.current
    reject = Choice(Verdict.REJECT, "r", "Reject", "None of its patches is taken. Final.")
    if is_budget_stop(current.end):
        effect_of_raise = "The attempt that was stopped continues under the new cap."
        return (
            Choice(Verdict.RAISE_BUDGET, "b", "Try again with more budget", effect_of_raise),
            reject,
        )
    offered = []
    if current.of(PatchProposed):
        effect = "The patch is taken as it is: approved by you, not proved."
        offered.append(Choice(Verdict.APPROVE, "a", "Approve", effect))
    offered.append(reject)
    if carries_failure(history, current):
        effect = (
            "New gate transition: three attempts at most, from the last failure; without examples."
        )
        offered.append(Choice(Verdict.REOPEN, "o", "Try again", effect))
    elif can_be_tried_again(history, current):
        effect = "New gate transition: a first attempt, and three retries at most."
        offered.append(Choice(Verdict.REOPEN, "o", "Try again", effect))
    if history.patches:
        effect = "The patch stays as it is; all of its gates judge it again."
        offered.append(Choice(Verdict.GATES_AGAIN, "g", "Run the gates again", effect))
    return tuple(offered)


def _assertions(review: Review, attempt: int | None) -> tuple[str, ...]:
    """Return the assertions that the failure's summary lists (gates.failure_summary writes it)."""
    text = (
        next((entry.failure for entry in review.attempts if entry.attempt == attempt), None) or ""
    )
    following = text.partition("\nAssertions:\n")[2].splitlines()
    return tuple(line[2:] for line in takewhile(lambda line: line.startswith("- "), following))


def gate_lines(
    transition: Transition, attempt: int | None, asserted: tuple[str, ...] = ()
) -> tuple[GateLine, ...]:
    """Return each gate's last verdict on this attempt, failures first."""
    last: dict[str, GateJudged] = {}
    for judged in transition.of(GateJudged):
        if judged.attempt == attempt:
            last[judged.gate] = judged
    planned = transition.start.gates if transition.start else ()
    lines = [_line(judged) for judged in last.values()]
    lines = [
        line._replace(asserted=asserted) if line.gate == TESTS_GATE and line.first else line
        for line in lines
    ]
    stopped = any(line.status is GateStatus.FAILED for line in lines)
    if lines:
        reason = "a gate before it failed" if stopped else "it was not reached"
        lines += [_unreached(gate, reason) for gate in planned if gate not in last]
    return tuple(sorted(lines, key=lambda line: _ORDER[line.status]))


def _line(judged: GateJudged) -> GateLine:
    first, _, rest = judged.detail.partition("\n")
    return GateLine(
        judged.gate,
        judged.status,
        rest if judged.status is GateStatus.FAILED else judged.detail,
        first if judged.status is GateStatus.FAILED else "",
        judged.broken,
        judged.duration_ms,
        judged.evidence_sha256,
    )


def _unreached(gate: str, reason: str) -> GateLine:
    return GateLine(gate, GateStatus.SKIPPED, reason, "", (), 0, None)


def _attempt_of(transition: Transition, patch_sha256: str | None) -> int | None:
    """Return the attempt that proposed the patch asked about; otherwise the last one that failed."""
    for patch in reversed(transition.of(PatchProposed)):
        if patch.patch_sha256 == patch_sha256:
            return patch.attempt
    failed = transition.last_of(AttemptFailed)
    return failed.attempt if failed else None


def _spent(history: History) -> tuple[Spent, ...]:
    uses: dict[str, Use] = defaultdict(Use)
    for transition in history.transitions:
        for answer in transition.of(ModelAnswered):
            uses[answer.call_type.value].add(answer)
    return by_cost(uses)


def _cap(current: Transition) -> Cap | None:
    """Return the reached cap, with an offer of twice the cap, and at least what the next call needs."""
    reached = current.stopped
    if reached is None or not is_budget_stop(current.end):
        return None
    fields = {
        BudgetLimit.USD_PER_FIX: "usd_per_fix",
        BudgetLimit.TOKENS_PER_FIX: "tokens_per_fix",
    }
    cap, needs = Decimal(reached.cap), Decimal(reached.used) + Decimal(reached.wanted)
    offered = max(2 * cap, needs)
    if reached.limit is BudgetLimit.TOKENS_PER_FIX:
        shown = str(int(offered))
    else:
        shown = f"{offered.quantize(Decimal('0.01')) + (offered % Decimal('0.01') > 0) * Decimal('0.01'):f}"
    return Cap(
        reached.limit, reached.cap, reached.used, reached.wanted, fields.get(reached.limit), shown
    )


def not_proved(verdicts: dict[str, GateStatus], *, shows: frozenset[str], has_patch: bool) -> str:
    """Return what nothing has shown, and what was not checked, by the gates' last verdicts.

    ``shows``: gates whose pass shows that the vulnerability is gone.
    """
    if not has_patch:
        return "There is no patch, so nothing is proved."
    passed = {gate for gate, status in verdicts.items() if status is GateStatus.PASSED}
    skipped = [gate for gate, status in verdicts.items() if status is GateStatus.SKIPPED]
    open_points = [] if passed & shows else ["that the flaw is gone"]
    for gate, status in verdicts.items():
        if status in (GateStatus.FAILED, GateStatus.UNDECIDED):
            open_points.append(_OPEN.get(gate, f"what gate {gate} looks at"))
    skipped_note = f" Gates skipped: {', '.join(skipped)}." if skipped else ""
    if not open_points:
        return f"What ran passed on the patch asked about; something else is asked.{skipped_note}"
    return f"Not proved: {_listed(list(dict.fromkeys(open_points)))}.{skipped_note}"


def _listed(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
