"""Campaigns of a fleet: status, and pause and resume by a named caller (docs/fleet.md).

The list is that of ``fallback-tier fleet``: in the state folder, or in PostgreSQL. The service starts no
fix of a campaign, and creates no list.
"""

import threading
from typing import Annotated

from pydantic import ConfigDict, Field, SecretStr

from fallback_audit.events import MAX_WORDS_CHARS
from fallback_audit.frozen import Frozen
from fallback_tier.budget.tally import in_dollars
from fallback_tier.fleet import campaign_control
from fallback_tier.fleet.audit_facts import facts_of
from fallback_tier.fleet.campaign_list import (
    CampaignLine,
    CampaignState,
    FixFacts,
    FixState,
    FleetFix,
    Said,
)
from fallback_tier.fleet.errors import CampaignError
from fallback_tier.fleet.store.store import FleetStore, fleet_db, open_store
from fallback_tier.fleet.store.summing import Reason, StuckKind, reasons, stuck
from fallback_tier.service.operations.record import TrailAndEvidence
from fallback_tier.service.refusals import ConflictError, NotFoundError
from fallback_tier.service.roles import Caller

#: Maximum number of fixes on one page.
MAX_PAGE = 200

#: Explanation of each kind, for a person.
_STUCK_SAYS = {
    StuckKind.LEFT: "No runner has it: its worker may go on, and nothing new starts.",
    StuckKind.LONG: "It runs for far longer than others did.",
    StuckKind.AGAIN: "It waits for another start.",
    StuckKind.ASKS: "It waits for a person's decision.",
    StuckKind.UNDELIVERED: "It is proved, and its patch is not where it was asked for.",
}


class Because(Frozen):
    """Why a campaign is paused or resumed: kept with the campaign, and the caller's name."""

    # Built at once: FastAPI silences pydantic's warnings about its fields only while it reads a route.
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=False)

    because: Annotated[
        str,
        Field(min_length=1, max_length=MAX_WORDS_CHARS, pattern=r"^[^\x00]*[^\s\x00][^\x00]*$"),
    ]


class Spend(Frozen):
    """Dollars, estimates from the dated price table. ``reserved``: what running fixes may still use;
    ``cap`` None: no hard stop; ``unpriced``: fixes whose price is not known. ``is_used_up``: fixes wait,
    and another one, at what it may use, does not fit below the cap."""

    cap: str | None
    spent: str
    reserved: str
    unpriced: int
    is_used_up: bool


class Campaign(Frozen):
    """A campaign with its sums. ``counts``: fixes by state; ``over``: those that have ended; ``said``: who
    paused or resumed it last at ``said_at``, where that was not at a terminal."""

    campaign: str
    state: CampaignState
    created_at: str
    fixes: int
    over: int
    counts: dict[FixState, int]
    usd: Spend
    said: Said | None
    said_at: str | None


class CampaignFix(Frozen):
    """A fix of a campaign. ``usd`` None: its price is not known; ``branch``: where its patch was
    committed."""

    fix_id: str
    number: int
    repository: str
    advisory_id: str
    ecosystem: str
    state: FixState
    why: str | None
    sentence: str | None
    attempts: int
    tokens: int
    usd: str | None
    priority: float
    started_at: str | None
    ended_at: str | None
    branch: str | None


class StuckFix(Frozen):
    """A fix that doesn't get on: what ``kind`` it is of, in words, and since when."""

    kind: StuckKind
    says: str
    since: str | None
    fix: CampaignFix


class CampaignView(Frozen):
    """``why``: how fixes ended, the most frequent reason first; ``stuck``: at most 50 of each kind."""

    campaign: Campaign
    why: tuple[Reason, ...]
    stuck: tuple[StuckFix, ...]


class Campaigns:
    """All campaigns of a service's list, which is opened once it exists. ``close`` it at the end.

    Every method raises FleetStoreError; those that take a campaign's name also NotFoundError.
    """

    def __init__(self, record: TrailAndEvidence, url: SecretStr | None = None) -> None:
        self._record = record
        self._url = url
        self._lock = threading.Lock()
        self._opened: FleetStore | None = None

    def all(self) -> tuple[Campaign, ...]:
        """Return all campaigns, the newest first."""
        store = self._store()
        return () if store is None else tuple(map(_campaign, store.campaigns()))

    def show(self, name: str) -> CampaignView:
        """Return a campaign, with the fixes that need a person's attention."""
        store = self._having(name)
        return CampaignView(
            campaign=_campaign(store.campaign(name)),
            why=reasons(store, name),
            stuck=tuple(
                StuckFix(
                    kind=entry.kind,
                    says=_STUCK_SAYS[entry.kind],
                    since=entry.since,
                    fix=_fix(entry.fix),
                )
                for entry in stuck(store, name)
            ),
        )

    def fixes(
        self, name: str, *, state: FixState | None = None, after: int = -1, limit: int = MAX_PAGE
    ) -> tuple[CampaignFix, ...]:
        """Return fixes in the queue's order, after number ``after``."""
        fixes = self._having(name).fixes(name, state=state, after=after, limit=min(limit, MAX_PAGE))
        return tuple(map(_fix, fixes))

    def pause(self, caller: Caller, name: str, because: Because) -> Campaign:
        """Pause a campaign: no fix is started. Raises ConflictError if it is over."""
        store = self._having(name)
        try:
            campaign_control.pause(store, name, Said(by=caller.name, because=because.because))
        except CampaignError as error:
            raise ConflictError(
                error.problem,
                next_step=f"GET /v1/campaigns/{name} shows where it stands.",
                kind=error.kind,
            ) from error
        return _campaign(store.campaign(name))

    def resume(self, caller: Caller, name: str, because: Because) -> Campaign:
        """Let a campaign start fixes again, also those that failed or were cancelled; ``fleet run``
        starts them. Raises AuditStoreError, as their states are read from the audit trail.
        """
        store = self._having(name)
        campaign_control.resume(
            store, name, self._facts, Said(by=caller.name, because=because.because)
        )
        return _campaign(store.campaign(name))

    def _facts(self, fix_id: str) -> FixFacts | None:
        with self._record.reading() as reader:
            return facts_of(reader, fix_id)

    def _having(self, name: str) -> FleetStore:
        store = self._store()
        if store is not None:
            try:
                store.settings(name)  # one row, no sums
            except CampaignError:
                pass
            else:
                return store
        raise NotFoundError(
            f"There is no campaign {name[:100]!r} here.",
            next_step="GET /v1/campaigns lists those that there are.",
            kind="no_such_campaign",
        )

    def _store(self) -> FleetStore | None:
        """Return the store, or None if there is no list of campaigns yet."""
        with self._lock:
            if self._opened is None and (self._url or fleet_db(self._record.state_dir).is_file()):
                url = None if self._url is None else self._url.get_secret_value()
                self._opened = open_store(self._record.state_dir, url)
            return self._opened

    def close(self) -> None:
        """Close the store. Idempotent."""
        with self._lock:
            store, self._opened = self._opened, None
            if store is not None:
                store.close()


def _campaign(line: CampaignLine) -> Campaign:
    return Campaign(
        campaign=line.campaign,
        state=line.state,
        created_at=line.created_at,
        fixes=line.total,
        over=sum(count for state, count in line.counts.items() if state.is_over),
        counts={state: line.counts.get(state, 0) for state in FixState},
        usd=Spend(
            cap=None if line.cap is None else in_dollars(line.cap),
            spent=in_dollars(line.spent),
            reserved=in_dollars(line.reserved),
            unpriced=line.unpriced,
            is_used_up=_is_used_up(line),
        ),
        said=line.said,
        said_at=line.said_at,
    )


def _is_used_up(line: CampaignLine) -> bool:
    if line.cap is None or not line.counts.get(FixState.QUEUED):
        return False
    return line.spent + line.reserved + (line.fix_cap or 0) > line.cap


def _fix(fix: FleetFix) -> CampaignFix:
    facts = {name: getattr(fix, name) for name in CampaignFix.model_fields if name != "usd"}
    return CampaignFix(**facts, usd=None if fix.cost is None else in_dollars(fix.cost))
