"""The list of a campaign in the store: the campaign and its fixes, refreshed from the audit trail."""

from enum import StrEnum
from typing import Annotated

from pydantic import Field, StringConstraints

from fallback_audit.frozen import Frozen
from fallback_tier.workers.tables import RepositoryName

#: Why a fix is not done although it is fixed on record: its patch could not be delivered.
NOT_DELIVERED = "not_delivered"

#: Name of a campaign, on the command line and in addresses.
CampaignName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9._-]{0,63}$")]


class FixState(StrEnum):
    """Where a fix of a campaign stands.

    ``fixed``: verified, the flaw was seen to be gone. ``partly``: a patch that passed its gates, with
    nothing to show that the whole flaw is gone (patched, or fixed in part). ``escalated``: a person is
    asked. ``refused``: no patch can be had. ``failed``: nobody goes on with it by itself.
    """

    QUEUED = "queued"
    RUNNING = "running"
    FIXED = "fixed"
    PARTLY = "partly"
    ESCALATED = "escalated"
    REFUSED = "refused"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_over(self) -> bool:
        """Return whether nothing runs, and nothing will run automatically."""
        return self not in (FixState.QUEUED, FixState.RUNNING)

    @property
    def has_patch(self) -> bool:
        """Return whether there is a patch that passed its gates."""
        return self in (FixState.FIXED, FixState.PARTLY)


class CampaignState(StrEnum):
    """``paused``: what runs goes on to its end, and nothing new starts. ``cancelled``: what runs is ended,
    and nothing new starts; ``finished``: nothing waits and nothing runs."""

    RUNNING = "running"
    PAUSED = "paused"
    CANCELLED = "cancelled"
    FINISHED = "finished"


class Risk(Frozen):
    """How urgent an advisory is. ``severity``: a CVSS base score, 0 to 10; ``epss``: the probability that
    it is exploited within 30 days, 0 to 1; None: not known. ``kev``: known to be exploited."""

    severity: Annotated[float, Field(ge=0, le=10)] | None = None
    epss: Annotated[float, Field(ge=0, le=1)] | None = None
    kev: bool = False


class FleetFix(Frozen):
    """A fix as the list has it. Money in millionths of a dollar, times RFC 3339 (UTC).

    ``number``: its place in the queue; ``cap``: what it may use at most, None where nothing is capped;
    ``cost``: what it has used by its trail, None where a price is not known; ``why``: a reason of the
    vocabulary or an error's code, ``sentence`` in words; ``takes``: how often it was started; ``holder``:
    who runs it; ``not_before``: a Unix time before which it is not to start again; ``branch``: where its
    patch was committed.
    """

    campaign: CampaignName
    fix_id: str
    number: Annotated[int, Field(ge=0)]
    repository: RepositoryName
    advisory_id: str
    ecosystem: str
    risk: Risk
    priority: float
    state: FixState = FixState.QUEUED
    why: str | None = None
    sentence: str | None = None
    cap: int | None = None
    cost: int | None = 0
    tokens: int = 0
    attempts: int = 0
    started_at: str | None = None
    ended_at: str | None = None
    takes: int = 0
    holder: str | None = None
    not_before: float = 0.0
    branch: str | None = None

    @property
    def counts(self) -> int:
        """Return what counts against the campaign's cap now: what was used; for a running fix at least
        its cap.
        """
        used = self.cost or 0
        return max(used, self.cap or 0) if self.state is FixState.RUNNING else used


class FixFacts(Frozen):
    """Facts about a fix from its audit trail. ``state``: None while it continues; the rest as in
    FleetFix. ``raised``: the cap to which a person has raised it (millionths of a dollar);
    ``delivered``: its patch is on ``branch``, and nothing was restarted since.
    """

    state: FixState | None = None
    why: str | None = None
    sentence: str | None = None
    cost: int | None = 0
    tokens: int = 0
    attempts: int = 0
    started_at: str | None = None
    ended_at: str | None = None
    raised: int | None = None
    branch: str | None = None
    delivered: bool = False


class Said(Frozen):
    """Who set a campaign's state, and why."""

    by: str
    because: str


class CampaignLine(Frozen):
    """A campaign with its sums. ``spent`` and ``reserved``, in millionths of a dollar: what was used,
    and what the running fixes may still use beyond that; ``cap`` and ``fix_cap``: the hard stops.
    ``said``: the named person who set its state at ``said_at``, if there was one.
    """

    campaign: CampaignName
    digest: str
    state: CampaignState
    created_at: str
    cap: int | None = None
    fix_cap: int | None = None
    counts: dict[FixState, int] = Field(default_factory=dict)
    spent: int = 0
    reserved: int = 0
    unpriced: int = 0
    said: Said | None = None
    said_at: str | None = None

    @property
    def total(self) -> int:
        """Return the number of fixes."""
        return sum(self.counts.values())

    @property
    def is_over(self) -> bool:
        """Return whether no fix waits or runs."""
        return not any(self.counts.get(state) for state in (FixState.QUEUED, FixState.RUNNING))


class LeftOut(Frozen):
    """What is not in the list, and why: a repository, an input, a part of one."""

    what: str
    why: str
