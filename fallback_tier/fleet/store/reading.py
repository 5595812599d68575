"""The list as it is read: a campaign with its sums, fixes in the queue's order, what orders are made of."""

import json
import time
from collections.abc import Callable, Iterator
from typing import Any, Self

from fallback_audit.frozen import Frozen
from fallback_tier.fleet.model import (
    NOT_DELIVERED,
    CampaignLine,
    CampaignState,
    FixState,
    FleetFix,
    LeftOut,
    Said,
)
from fallback_tier.fleet.refusals import CampaignError
from fallback_tier.fleet.store.tables import Row, Session, Tables

#: Fixes on one page.
MAX_PAGE = 1_000

_COLUMNS = ", ".join(FleetFix.model_fields)


class Ordered(Frozen):
    """What an order is made of, beside the fix: JSON, as it was planned."""

    fix: FleetFix
    source: str
    base_commit: str
    advisory: str
    proof: str | None = None


class FleetReader:
    """All campaigns of one place, read. ``close`` it at the end. Every method raises FleetStoreError."""

    def __init__(self, tables: Tables, *, clock: Callable[[], float] = time.time) -> None:
        self.tables = tables
        self.clock = clock

    def campaigns(self) -> tuple[CampaignLine, ...]:
        """All, the newest first."""
        with self.tables.reading() as session:
            found = session.rows("SELECT * FROM campaigns ORDER BY created_at DESC, campaign")
            return tuple(_line(session, row) for row in found)

    def campaign(self, name: str) -> CampaignLine:
        """Raises CampaignError where there is none of this name."""
        with self.tables.reading() as session:
            return _line(session, campaign_row(session, name))

    def settings(self, name: str) -> str:
        """The campaign's file as it was planned, as JSON. Raises CampaignError."""
        with self.tables.reading() as session:
            return str(campaign_row(session, name)["settings"])

    def left_out(self, name: str) -> tuple[LeftOut, ...]:
        """What the file names and the list does not have. Raises CampaignError."""
        with self.tables.reading() as session:
            kept = campaign_row(session, name)["left_out"]
        return tuple(LeftOut.model_validate(it) for it in json.loads(kept or "[]"))

    def fixes(
        self, name: str, *, state: FixState | None = None, after: int = -1, limit: int = MAX_PAGE
    ) -> tuple[FleetFix, ...]:
        """In the queue's order, behind number ``after``; at most MAX_PAGE."""
        where, values = "campaign = ? AND number > ?", [name, after]
        if state is not None:
            where, values = f"{where} AND state = ?", [*values, state.value]
        with self.tables.reading() as session:
            return fixes_of(
                session, f"{where} ORDER BY number LIMIT ?", *values, min(limit, MAX_PAGE)
            )

    def starts_later(self, name: str, now: float) -> bool:
        """There is one that waits, and is not to start before a time behind ``now``."""
        where = "campaign = ? AND state = ? AND not_before > ? LIMIT 1"
        with self.tables.reading() as session:
            return bool(fixes_of(session, where, name, FixState.QUEUED.value, now))

    def every(self, name: str, state: FixState | None = None) -> Iterator[FleetFix]:
        """All of them in the queue's order, read page by page: what changes meanwhile may be missed."""
        after = -1
        while page := self.fixes(name, state=state, after=after):
            after = page[-1].number
            yield from page

    def undelivered(self, name: str, limit: int = MAX_PAGE) -> tuple[FleetFix, ...]:
        """Proved ones whose patch is not where it was asked for, in the queue's order."""
        where = "campaign = ? AND why = ? AND state IN ('fixed', 'partly') ORDER BY number LIMIT ?"
        with self.tables.reading() as session:
            return fixes_of(session, where, name, NOT_DELIVERED, min(limit, MAX_PAGE))

    def on_branches(self, name: str, limit: int = MAX_PAGE) -> tuple[FleetFix, ...]:
        """Those whose patch was committed, the last ones first."""
        where = "campaign = ? AND branch IS NOT NULL ORDER BY ended_at DESC, number LIMIT ?"
        with self.tables.reading() as session:
            return fixes_of(session, where, name, min(limit, MAX_PAGE))

    def fix(self, fix_id: str) -> FleetFix | None:
        """One; None: no campaign here has it."""
        with self.tables.reading() as session:
            return next(iter(fixes_of(session, "fix_id = ?", fix_id)), None)

    def ordered(self, fix_id: str) -> Ordered:
        """What its order is made of. Raises CampaignError."""
        with self.tables.reading() as session:
            fix = next(iter(fixes_of(session, "fix_id = ?", fix_id)), None)
            found = session.rows(
                "SELECT r.source, r.base_commit, a.record, f.proof FROM fixes f"
                " JOIN repositories r ON r.campaign = f.campaign AND r.repository = f.repository"
                " JOIN advisories a ON a.campaign = f.campaign AND a.sha256 = f.advisory_sha256"
                " WHERE f.fix_id = ?",
                (fix_id,),
            )
        if fix is None or not found:
            raise CampaignError(
                f"No campaign has a fix {fix_id!r}.",
                next_step="`fleet status` lists them.",
                kind="no_such_fix",
            )
        (row,) = found
        return Ordered(
            fix=fix,
            source=row["source"],
            base_commit=row["base_commit"],
            advisory=row["record"],
            proof=row["proof"],
        )

    def close(self) -> None:
        """Idempotent."""
        self.tables.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def campaign_row(session: Session, name: str) -> Row:
    """Raises CampaignError."""
    found = session.rows("SELECT * FROM campaigns WHERE campaign = ?", (name,))
    if not found:
        raise CampaignError(
            f"There is no campaign {name[:100]!r} in this store.",
            next_step="`fallback-tier fleet status` lists those that there are.",
            kind="no_such_campaign",
        )
    return found[0]


def _line(session: Session, row: Row) -> CampaignLine:
    name = row["campaign"]
    counts = session.rows(
        "SELECT state, count(*) AS fixes FROM fixes WHERE campaign = ? GROUP BY state", (name,)
    )
    running = fixes_of(session, "campaign = ? AND state = 'running'", name)
    spent = used_of(session, name, "1 = 1")
    (unpriced,) = session.rows(
        "SELECT count(*) AS fixes FROM fixes WHERE campaign = ? AND cost IS NULL", (name,)
    )
    return CampaignLine(
        campaign=name,
        digest=row["digest"],
        state=CampaignState(row["state"]),
        created_at=row["created_at"],
        cap=row["cap"],
        fix_cap=row["fix_cap"],
        counts={FixState(it["state"]): it["fixes"] for it in counts},
        spent=spent,
        reserved=sum(one.counts - (one.cost or 0) for one in running),
        unpriced=unpriced["fixes"],
        said=None
        if row["said_by"] is None
        else Said(by=row["said_by"], because=row["said_because"]),
        said_at=row["said_at"],
    )


def used_of(session: Session, name: str, which: str) -> int:
    """What the fixes have used that ``which`` (SQL of ours) says."""
    (row,) = session.rows(
        f"SELECT COALESCE(SUM(cost), 0) AS used FROM fixes WHERE campaign = ? AND {which}",  # noqa: S608
        (name,),
    )
    return int(row["used"])


def fixes_of(session: Session, where: str, *values: object) -> tuple[FleetFix, ...]:
    """Those that ``where`` (SQL of ours) says."""
    found = session.rows(f"SELECT {_COLUMNS} FROM fixes WHERE {where}", values)  # noqa: S608 (ours)
    return tuple(_fix(row) for row in found)


def _fix(row: Row) -> FleetFix:
    facts: dict[str, Any] = dict(row)
    facts["risk"] = json.loads(facts["risk"])
    return FleetFix.model_validate(facts)
