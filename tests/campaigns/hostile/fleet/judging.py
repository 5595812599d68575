"""What must be true of every fix after its faults, read from the record and the repository."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from fallback_audit.contract.trail import TERMINALS
from fallback_audit.events import GateJudged, PatchProposed
from tests.engines.scenario import EngineScenario
from tests.fakes.repository import git

#: Of these a fix that was disturbed has as many as one that nobody disturbs.
KEPT = ("ModelAnswered", "RecipeCandidateFailed", "AttemptFailed", "FixVerified", "PatchDelivered")

#: A story's own questions are answered once: the transition before it has an end as well.
_ENDS = {"short": 1, "long": 1, "asks": 2}


@dataclass
class Row:
    """One kind of fault. All but the first four are to be 0."""

    name: str
    faults: int = 0
    fixes: int = 0
    openings: int = 0
    events: int = 0
    lost: int = 0
    two_ends: int = 0
    doubled: int = 0
    paid_twice: int = 0
    delivered_twice: int = 0
    other: int = 0
    said: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not (
            self.lost
            or self.two_ends
            or self.doubled
            or self.paid_twice
            or self.delivered_twice
            or self.other
        )


def judge(row: Row, scenario: EngineScenario, fix_id: str, like: EngineScenario) -> None:
    """Add what is found of a fix that is said to have ended; ``like`` has the same story undisturbed."""
    story = fix_id.partition("-")[0]
    events = scenario.events(fix_id)
    kinds = Counter[str](event.kind for event in events)
    whole = Counter(like.kinds(story))
    row.fixes += 1
    row.events += len(events)
    row.openings += kinds["FixResumed"]
    ends = sum(isinstance(event, TERMINALS) for event in events)
    row.lost += ends < _ENDS[story] or kinds["FixVerified"] == 0
    row.two_ends += ends > _ENDS[story]
    row.delivered_twice += kinds["PatchDelivered"] != 1
    row.paid_twice += kinds["ModelAnswered"] != whole["ModelAnswered"]
    row.doubled += any(kinds[kind] != whole[kind] for kind in KEPT) or _judged_twice(events)
    row.other += git(scenario.repo(fix_id), "diff") != git(like.repo(story), "diff")
    if not row.ok:
        row.said.append(f"{fix_id}: {dict(kinds - whole)} {dict(whole - kinds)}")


def judge_record(row: Row, scenario: EngineScenario) -> None:
    """``audit verify`` and the trace contract over all of it."""
    try:
        scenario.check()
    except AssertionError as error:
        row.other += 1
        row.said.append(str(error)[:2_000])


def _judged_twice(events: Sequence[object]) -> bool:
    """A verdict on the same patch, in the same attempt, by the same gate; a person's request apart."""
    judged: Counter[tuple[object, ...]] = Counter()
    patch, transition = "", 0
    for event in events:
        if isinstance(event, TERMINALS):
            transition += 1
        if isinstance(event, PatchProposed):
            patch = event.patch_sha256
        if isinstance(event, GateJudged):
            judged[transition, event.attempt, patch, event.gate] += 1
    return any(times > 1 for times in judged.values())
