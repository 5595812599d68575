"""What is submitted, and where it stands."""

from enum import StrEnum
from typing import Annotated, Any

from pydantic import ConfigDict, Field, JsonValue

from fallback_audit.frozen import Frozen
from fallback_audit.vocabulary import AffectedCode
from fallback_tier.workers.problem import Problem
from fallback_tier.workers.repositories import GitRef, RepositoryName


class OrderState(StrEnum):
    """Where a submitted fix stands. ``ended`` says nothing about how: that is its ``outcome``."""

    QUEUED = "queued"
    RUNNING = "running"
    ENDED = "ended"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_over(self) -> bool:
        """No worker has it, and none is to have it."""
        return self not in (OrderState.QUEUED, OrderState.RUNNING)


class Submission(Frozen):
    """What a caller wants fixed: one advisory in one configured repository.

    ``advisory``: an OSV record. ``ref``: which commit (default: as the repository is configured).
    ``whose_code`` and ``offline``: as ``fallback-tier fix`` has them.
    """

    # Built at once: FastAPI hushes what pydantic says of its own fields only while it reads a route.
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=False)

    repository: RepositoryName
    advisory: dict[str, Any]
    ref: GitRef | None = None
    whose_code: AffectedCode | None = None
    offline: bool = False


class OrderLine(Frozen):
    """A submitted fix as it stands, without what is large. ``outcome``: verified, patched, refused, unknown
    or escalated, where it has ended; ``cancelling``: its worker is to be ended; ``takes``: how
    many workers have had it; who last cancelled or resumed it, and when."""

    number: Annotated[int, Field(ge=1)]
    fix_id: str
    state: OrderState
    repository: str
    advisory_id: str
    submitted_by: str
    submitted_at: str
    started_at: str | None = None
    ended_at: str | None = None
    base_commit: str | None = None
    cancelling: bool = False
    takes: int = 0
    cancelled_by: str | None = None
    cancelled_at: str | None = None
    resumed_by: str | None = None
    resumed_at: str | None = None
    outcome: str | None = None
    problem: Problem | None = None


class Order(OrderLine):
    """The whole. ``ended``: the document that ``fallback-tier fix --json`` prints, its patch in it."""

    submission: Submission
    ended: dict[str, JsonValue] | None = None


class NewOrder(Frozen):
    """A new submission, before the queue has it."""

    fix_id: str
    submission: Submission
    advisory_id: str
    by: str
