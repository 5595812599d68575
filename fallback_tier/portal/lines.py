"""A fix as lists show it, and a day as charts do: what the board keeps of the record."""

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from decimal import Decimal

from fallback_audit.event_types import JudgedTests, UnreadItem
from fallback_audit.showing.describe import tests_lines
from fallback_audit.vocabulary import EscalationReason, RefusalReason, TestsLevel
from fallback_tier.gates.journal.questions import WhyAsked, why_asked
from fallback_tier.portal.views.spending import Spent, Use, by_cost

#: How a fix can stand.
OPEN, VERIFIED, PATCHED, REFUSED, ESCALATED = "open", "verified", "patched", "refused", "escalated"
#: A person ended it before it had come to its end.
ABANDONED = "abandoned"
#: Whether it is affected could not be found out: there is no question, and ``unread`` lists what to repair.
UNKNOWN = "unknown"


@dataclass
class FixLine:
    """A fix as its last gate transition has it. ``attempts``: each number, and its first event's.

    ``influences``: example → what became of it here. ``cause``: why the last attempt gave no patch, if it
    was refused. ``answer``: a person's, in words.
    """

    fix_id: str
    transition: str
    began_at: str
    advisory_id: str = ""
    advisory_ids: tuple[str, ...] = ()
    repository: str = ""
    ecosystem: str = ""
    inputs_sha256: str | None = None
    changed_at: str = ""
    last_seq: int = 0
    transitions: int = 1
    attempts: dict[int, int] = field(default_factory=dict)
    outcome: str = OPEN
    reason: str = ""
    cause: RefusalReason | None = None
    sentence: str = ""
    unread: tuple[UnreadItem, ...] = ()
    #: How far the tests of the last patch were judged; None: not told.
    tests_level: TestsLevel | None = None
    tests: tuple[JudgedTests, ...] = ()
    asked_seq: int = 0
    asked_at: str = ""
    answer: str | None = None
    tier: str = ""
    failure_kind: str = ""
    failing_gates: tuple[str, ...] = ()
    low_confidence: bool = False
    uses: dict[str, Use] = field(default_factory=lambda: defaultdict(Use))
    influences: dict[str, str] = field(default_factory=dict)

    @property
    def waits(self) -> bool:
        """A person is asked, and has not answered."""
        return self.outcome == ESCALATED and self.answer is None

    @property
    def untested(self) -> list[list[str]]:
        """What a person needs to judge tests of its patch that were not compared, project by project."""
        return [lines for lines in map(tests_lines, self.tests) if lines]

    @property
    def why(self) -> WhyAsked:
        """Why a person is asked, and what they can do. Of an escalated fix."""
        return why_asked(EscalationReason(self.reason), self.cause)

    @property
    def spent(self) -> tuple[Spent, ...]:
        """By call type, the dearest first."""
        return by_cost(self.uses)

    @property
    def fixed(self) -> bool:
        """It has ended with a patch that its gates took, proved or not."""
        return self.outcome in (VERIFIED, PATCHED)

    @property
    def standing(self) -> tuple[str, ...]:
        """What it counts as: names of its properties above that hold."""
        held = {"waits": self.waits, "fixed": self.fixed, "unfixed": self.unfixed}
        return tuple(name for name, holds in held.items() if holds)

    @property
    def unfixed(self) -> bool:
        """It has ended without a patch that gates or a person took."""
        if self.outcome in (REFUSED, UNKNOWN, ABANDONED):
            return True
        return self.outcome == ESCALATED and not (self.answer or "").startswith("approved")


@dataclass
class Day:
    """What was recorded on one day (UTC)."""

    ended: Counter[str] = field(default_factory=Counter)
    attempts: int = 0
    retries: int = 0
    rag_skipped: int = 0
    low_confidence: int = 0
    usd: dict[str, Decimal] = field(default_factory=lambda: defaultdict(Decimal))
