"""The list of campaigns: each is created whole or not at all, and changed by one transaction per step.

Each change of a fix's state names the state it comes from, and the fix's holder: a late caller changes
nothing. A runner holds its fixes for a time (a lease) and renews it; if it dies, another takes them.
"""

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from fallback_audit.frozen import Frozen
from fallback_audit.stores.postgres_location import require_driver
from fallback_tier.fleet.campaign_list import (
    NOT_DELIVERED,
    CampaignLine,
    CampaignState,
    FixFacts,
    FixState,
    FleetFix,
    LeftOut,
    Said,
)
from fallback_tier.fleet.errors import CampaignError
from fallback_tier.fleet.scheduling import StartLimits, cap_of, may_start
from fallback_tier.fleet.store.tables import Row, Session, SqliteTables, Tables

#: Maximum number of fixes on one page.
MAX_PAGE = 1_000

_COLUMNS = ", ".join(FleetFix.model_fields)


class Ordered(Frozen):
    """The data of an order, besides the fix: JSON, as planned."""

    fix: FleetFix
    source: str
    base_commit: str
    advisory: str
    proof: str | None = None


#: A runner that has not renewed its fixes for this long is dead, or disconnected (seconds).
LEASE_S = 60.0

#: Maximum number of waiting fixes among which startable ones are sought: far more than run on a machine.
MAX_LOOKED_AT = 512

#: Conditions (SQL) of a fix that is over, and of one that a runner holds.
_OVER = "state NOT IN ('queued', 'running')"
_HELD = "state = 'running' AND holder = ?"


class PlannedRepository(Frozen):
    """A repository of a campaign, at a commit. ``source``: its settings, as JSON."""

    repository: str
    source: str
    base_commit: str


class PlannedFix(Frozen):
    """A new fix. ``advisory``: the OSV record, as JSON; ``proof``: a ``Proof``, as JSON."""

    fix: FleetFix
    advisory: str
    proof: str | None = None


class Planned(Frozen):
    """A campaign before it is in the store. ``settings``: the file, as JSON; ``digest``: of the file.

    ``unnamed``: pairs of advisory and repository in which no manifest names the package; not stored.
    """

    campaign: str
    digest: str
    settings: str
    cap: int | None
    fix_cap: int | None
    repositories: tuple[PlannedRepository, ...]
    fixes: tuple[PlannedFix, ...]
    left_out: tuple[LeftOut, ...] = ()
    unnamed: int = 0


class FleetStore:
    """All campaigns of one database. ``close`` it at the end. Every method raises FleetStoreError."""

    def __init__(self, tables: Tables, *, clock: Callable[[], float] = time.time) -> None:
        self.tables = tables
        self.clock = clock

    def campaigns(self) -> tuple[CampaignLine, ...]:
        """Return all campaigns, the newest first."""
        with self.tables.reading() as session:
            rows = session.rows("SELECT * FROM campaigns ORDER BY created_at DESC, campaign")
            return tuple(_line(session, row) for row in rows)

    def campaign(self, name: str) -> CampaignLine:
        """Return a campaign. Raises CampaignError if there is none of this name."""
        with self.tables.reading() as session:
            return _line(session, campaign_row(session, name))

    def settings(self, name: str) -> str:
        """Return the campaign's file as it was planned, as JSON. Raises CampaignError."""
        with self.tables.reading() as session:
            return str(campaign_row(session, name)["settings"])

    def left_out(self, name: str) -> tuple[LeftOut, ...]:
        """Return what the file names and the list does not have. Raises CampaignError."""
        with self.tables.reading() as session:
            text = campaign_row(session, name)["left_out"]
        return tuple(LeftOut.model_validate(entry) for entry in json.loads(text or "[]"))

    def fixes(
        self, name: str, *, state: FixState | None = None, after: int = -1, limit: int = MAX_PAGE
    ) -> tuple[FleetFix, ...]:
        """Return fixes in the queue's order, after number ``after``; at most MAX_PAGE."""
        condition, values = "campaign = ? AND number > ?", [name, after]
        if state is not None:
            condition, values = f"{condition} AND state = ?", [*values, state.value]
        with self.tables.reading() as session:
            return fixes_of(
                session, f"{condition} ORDER BY number LIMIT ?", *values, min(limit, MAX_PAGE)
            )

    def starts_later(self, name: str, now: float) -> bool:
        """Return whether a queued fix must wait until a time after ``now``."""
        condition = "campaign = ? AND state = ? AND not_before > ? LIMIT 1"
        with self.tables.reading() as session:
            return bool(fixes_of(session, condition, name, FixState.QUEUED.value, now))

    def every(self, name: str, state: FixState | None = None) -> Iterator[FleetFix]:
        """Yield all fixes in the queue's order, read page by page: a change meanwhile may be missed."""
        after = -1
        while page := self.fixes(name, state=state, after=after):
            after = page[-1].number
            yield from page

    def undelivered(self, name: str, limit: int = MAX_PAGE) -> tuple[FleetFix, ...]:
        """Return proved fixes whose patch is not delivered, in the queue's order."""
        condition = (
            "campaign = ? AND why = ? AND state IN ('fixed', 'partly') ORDER BY number LIMIT ?"
        )
        with self.tables.reading() as session:
            return fixes_of(session, condition, name, NOT_DELIVERED, min(limit, MAX_PAGE))

    def on_branches(self, name: str, limit: int = MAX_PAGE) -> tuple[FleetFix, ...]:
        """Return fixes whose patch was committed, the last ones first."""
        condition = "campaign = ? AND branch IS NOT NULL ORDER BY ended_at DESC, number LIMIT ?"
        with self.tables.reading() as session:
            return fixes_of(session, condition, name, min(limit, MAX_PAGE))

    def fix(self, fix_id: str) -> FleetFix | None:
        """Return a fix, or None if no campaign here has it."""
        with self.tables.reading() as session:
            return next(iter(fixes_of(session, "fix_id = ?", fix_id)), None)

    def ordered(self, fix_id: str) -> Ordered:
        """Return the data of a fix's order. Raises CampaignError."""
        with self.tables.reading() as session:
            fix = next(iter(fixes_of(session, "fix_id = ?", fix_id)), None)
            rows = session.rows(
                "SELECT r.source, r.base_commit, a.record, f.proof FROM fixes f"
                " JOIN repositories r ON r.campaign = f.campaign AND r.repository = f.repository"
                " JOIN advisories a ON a.campaign = f.campaign AND a.sha256 = f.advisory_sha256"
                " WHERE f.fix_id = ?",
                (fix_id,),
            )
        if fix is None or not rows:
            raise CampaignError(
                f"No campaign has a fix {fix_id!r}.",
                next_step="`fleet status` lists them.",
                kind="no_such_fix",
            )
        (row,) = rows
        return Ordered(
            fix=fix,
            source=row["source"],
            base_commit=row["base_commit"],
            advisory=row["record"],
            proof=row["proof"],
        )

    # --- Changes ----------------------------------------------------------------------------------

    def create(self, planned: Planned) -> bool:
        """Store a campaign, durably, whole or not at all. Return False if a campaign of this name and list
        exists; it has the new limits then.

        Raises CampaignError if a campaign of this name was made of another file.
        """
        with self.tables.writing() as session:
            rows = session.rows(
                "SELECT digest FROM campaigns WHERE campaign = ?", (planned.campaign,)
            )
            if rows:
                check_same_list(planned.campaign, str(rows[0]["digest"]), planned.digest)
                _renew(session, planned.campaign, planned.settings, planned.cap, planned.fix_cap)
                return False
            _insert(session, planned, self.now())
            return True

    def renew_settings(
        self, name: str, settings: str, cap: int | None, fix_cap: int | None
    ) -> None:
        """Replace the campaign's limits, model and engine. ``settings``: the file, as JSON."""
        with self.tables.writing() as session:
            _renew(session, name, settings, cap, fix_cap)

    def set_state(
        self,
        name: str,
        state: CampaignState,
        *,
        came_from: Sequence[CampaignState],
        said: Said | None = None,
    ) -> bool:
        """Set the campaign's state. Return False if it is in none of the states ``came_from``.

        ``said``: the caller who wants it; None: a runner, or a person at a terminal. Raises CampaignError
        if there is none of this name.
        """
        with self.tables.writing() as session:
            if CampaignState(campaign_row(session, name)["state"]) not in came_from:
                return False
            signature = (None, None) if said is None else (said.by, said.because)
            session.change(
                "UPDATE campaigns SET state = ?, said_by = ?, said_because = ?, said_at = ?"
                " WHERE campaign = ?",
                (state.value, *signature, self.now(), name),
            )
            if state is CampaignState.CANCELLED:
                session.change(
                    "UPDATE fixes SET state = ?, ended_at = ? WHERE campaign = ? AND state = ?",
                    (FixState.CANCELLED.value, self.now(), name, FixState.QUEUED.value),
                )
            return True

    def claim(self, name: str, holder: str, limits: StartLimits) -> tuple[FleetFix, ...]:
        """Mark fixes that may start now as running, held by ``holder``, and return them; none if the
        campaign does not run.

        What may start is decided inside the transaction, so two runners never start the same fix. Proved
        fixes that are not delivered come first: they need no budget.
        """
        now = self.clock()
        with self.tables.writing() as session:
            if campaign_row(session, name)["state"] != CampaignState.RUNNING.value:
                return ()
            running = fixes_of(session, "campaign = ? AND state = ?", name, FixState.RUNNING.value)
            waiting = fixes_of(
                session,
                "campaign = ? AND state = ? AND not_before <= ? AND repository NOT IN"
                " (SELECT repository FROM fixes WHERE campaign = ? AND state = ?)"
                " ORDER BY CASE WHEN why = ? THEN 0 ELSE 1 END, number LIMIT ?",
                name, FixState.QUEUED.value, now, name, FixState.RUNNING.value, NOT_DELIVERED,
                MAX_LOOKED_AT,
            )  # fmt: skip
            used = used_of(session, name, "state <> 'running'")
            chosen = may_start(waiting, running, used, limits, now)
            for fix in chosen:
                session.change(
                    "UPDATE fixes SET state = ?, holder = ?, lease = ?, takes = takes + 1, started_at ="
                    " COALESCE(started_at, ?), why = NULL, sentence = NULL, cap = ?"
                    " WHERE fix_id = ? AND state = ?",
                    (
                        FixState.RUNNING.value, holder, now + LEASE_S, self.now(), cap_of(fix, limits),
                        fix.fix_id, FixState.QUEUED.value,
                    ),
                )  # fmt: skip
            ids = [fix.fix_id for fix in chosen]
            claimed = [fix for fix_id in ids for fix in fixes_of(session, "fix_id = ?", fix_id)]
        return tuple(claimed)

    def renew(self, name: str, holder: str) -> None:
        """Renew the lease of a runner's fixes."""
        with self.tables.writing() as session:
            session.change(
                "UPDATE fixes SET lease = ? WHERE campaign = ? AND holder = ? AND state = ?",
                (self.clock() + LEASE_S, name, holder, FixState.RUNNING.value),
            )

    def take_over(self, name: str, holder: str) -> tuple[FleetFix, ...]:
        """Give the running fixes whose lease has expired to ``holder``, and return them."""
        now = self.clock()
        with self.tables.writing() as session:
            lost = fixes_of(
                session,
                "campaign = ? AND state = ? AND lease < ? AND holder <> ?",
                name, FixState.RUNNING.value, now, holder,
            )  # fmt: skip
            for fix in lost:
                session.change(
                    "UPDATE fixes SET holder = ?, lease = ? WHERE fix_id = ?",
                    (holder, now + LEASE_S, fix.fix_id),
                )
        return tuple(fix.model_copy(update={"holder": holder}) for fix in lost)

    def release(self, name: str, holder: str) -> None:
        """End the lease of a runner that ends in good order, so that the next one need not wait for it."""
        with self.tables.writing() as session:
            session.change(
                "UPDATE fixes SET lease = 0 WHERE campaign = ? AND holder = ? AND state = ?",
                (name, holder, FixState.RUNNING.value),
            )

    def end(self, fix_id: str, holder: str | None, facts: FixFacts) -> bool:
        """Store the end of a fix. Return False if it does not run any more, or another runner holds it.

        ``holder`` None: it was over already, and its end on record has changed (an escalated fix that a
        person has decided).
        """
        assert facts.state is not None and facts.state.is_over  # noqa: S101, PT018 (the caller checks it)
        guard = _OVER if holder is None else _HELD
        values = (
            facts.state.value, facts.why, facts.sentence, facts.cost, facts.tokens, facts.attempts,
            facts.started_at, facts.ended_at or self.now(), facts.raised, facts.branch, fix_id,
        )  # fmt: skip
        with self.tables.writing() as session:
            changed_rows = session.change(
                f"UPDATE fixes SET state = ?, why = ?, sentence = ?, cost = ?, tokens = ?, attempts = ?,"  # noqa: S608 (ours)
                " started_at = COALESCE(?, started_at), ended_at = ?, cap = COALESCE(?, cap),"
                " branch = COALESCE(?, branch),"
                f" holder = NULL, lease = 0 WHERE fix_id = ? AND {guard}",
                values if holder is None else (*values, holder),
            )
        return changed_rows == 1

    def queue_again(
        self,
        fix_id: str,
        facts: FixFacts,
        *,
        not_before: float = 0.0,
        holder: str | None = None,
        takes: int = 0,
    ) -> bool:
        """Queue a fix again, with what it has used so far. Return False if it is in another state.

        ``holder``: of a fix that can't continue now; None: a fix that is over is to continue. ``takes``:
        how often it was started, as far as that counts.
        """
        guard = _OVER if holder is None else _HELD
        values = (
            FixState.QUEUED.value, facts.cost, facts.tokens, facts.attempts, facts.why, facts.sentence,
            not_before, facts.raised, takes, fix_id,
        )  # fmt: skip
        with self.tables.writing() as session:
            changed_rows = session.change(
                f"UPDATE fixes SET state = ?, cost = ?, tokens = ?, attempts = ?, why = ?, sentence = ?,"  # noqa: S608 (ours)
                " not_before = ?, cap = COALESCE(?, cap), takes = ?,"
                f" holder = NULL, lease = 0, ended_at = NULL WHERE fix_id = ? AND {guard}",
                values if holder is None else (*values, holder),
            )
        return changed_rows == 1

    def progress(self, fix_id: str, facts: FixFacts) -> None:
        """Store what a running fix has used so far, for display."""
        with self.tables.writing() as session:
            session.change(
                "UPDATE fixes SET cost = ?, tokens = ?, attempts = ?, cap = COALESCE(?, cap)"
                " WHERE fix_id = ? AND state = 'running'",
                (facts.cost, facts.tokens, facts.attempts, facts.raised, fix_id),
            )

    def now(self) -> str:
        """Return the time as RFC 3339, UTC."""
        return datetime.fromtimestamp(self.clock(), UTC).isoformat(timespec="milliseconds")

    def close(self) -> None:
        """Close the database. Idempotent."""
        self.tables.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _renew(
    session: Session, name: str, settings: str, cap: int | None, fix_cap: int | None
) -> None:
    session.change(
        "UPDATE campaigns SET settings = ?, cap = ?, fix_cap = ? WHERE campaign = ?",
        (settings, cap, fix_cap, name),
    )


def check_same_list(name: str, stored_digest: str, new_digest: str) -> None:
    """Raise CampaignError if the digests differ: the list would be of other repositories."""
    if stored_digest != new_digest:
        raise CampaignError(
            f"Campaign {name!r} was made of other repositories, advisories or proofs.",
            next_step="Give the file as it was to go on (limits may change), or another `name`.",
            kind="another_list",
        )


def fleet_db(state_dir: Path) -> Path:
    """Return the path of the list, unless it is in PostgreSQL."""
    return state_dir / "fleet" / "fleet.db"


def open_store(state_dir: Path, url: str | None = None) -> FleetStore:
    """Open the store. ``url``: ``postgresql://…``; None: SQLite, in the state folder.

    Raises FleetStoreError, and AuditStoreError if the driver is missing.
    """
    if url is None:
        return FleetStore(SqliteTables(fleet_db(state_dir)))
    require_driver()
    from fallback_tier.fleet.store.postgres import PostgresTables

    return FleetStore(PostgresTables(url))


def campaign_row(session: Session, name: str) -> Row:
    """Return a campaign's row. Raises CampaignError."""
    rows = session.rows("SELECT * FROM campaigns WHERE campaign = ?", (name,))
    if not rows:
        raise CampaignError(
            f"There is no campaign {name[:100]!r} in this store.",
            next_step="`fallback-tier fleet status` lists those that there are.",
            kind="no_such_campaign",
        )
    return rows[0]


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
        counts={FixState(count["state"]): count["fixes"] for count in counts},
        spent=spent,
        reserved=sum(fix.counts - (fix.cost or 0) for fix in running),
        unpriced=unpriced["fixes"],
        said=None
        if row["said_by"] is None
        else Said(by=row["said_by"], because=row["said_because"]),
        said_at=row["said_at"],
    )


def used_of(session: Session, name: str, condition: str) -> int:
    """Return the sum that the fixes which match ``condition`` (our own SQL) have used."""
    (row,) = session.rows(
        f"SELECT COALESCE(SUM(cost), 0) AS used FROM fixes WHERE campaign = ? AND {condition}",  # noqa: S608
        (name,),
    )
    return int(row["used"])


def fixes_of(session: Session, condition: str, *values: object) -> tuple[FleetFix, ...]:
    """Return the fixes that match ``condition`` (our own SQL)."""
    rows = session.rows(f"SELECT {_COLUMNS} FROM fixes WHERE {condition}", values)  # noqa: S608 (ours)
    return tuple(_fix(row) for row in rows)


def _fix(row: Row) -> FleetFix:
    facts: dict[str, Any] = dict(row)
    facts["risk"] = json.loads(facts["risk"])
    return FleetFix.model_validate(facts)


def _insert(session: Session, planned: Planned, now: str) -> None:
    name = planned.campaign
    session.change(
        "INSERT INTO campaigns (campaign, digest, settings, state, created_at, cap, fix_cap)"
        " VALUES (?,?,?,?,?,?,?)",
        (
            name, planned.digest, planned.settings, CampaignState.RUNNING.value, now, planned.cap,
            planned.fix_cap,
        ),
    )  # fmt: skip
    if planned.left_out:
        session.change(
            "UPDATE campaigns SET left_out = ? WHERE campaign = ?",
            (json.dumps([entry.model_dump() for entry in planned.left_out]), name),
        )
    for repository in planned.repositories:
        session.change(
            "INSERT INTO repositories VALUES (?,?,?,?)",
            (name, repository.repository, repository.source, repository.base_commit),
        )
    stored_digests: set[str] = set()
    for planned_fix in planned.fixes:
        digest = hashlib.sha256(planned_fix.advisory.encode()).hexdigest()
        if digest not in stored_digests:
            stored_digests.add(digest)
            session.change(
                "INSERT INTO advisories VALUES (?,?,?)", (name, digest, planned_fix.advisory)
            )
        facts = planned_fix.fix.model_dump(mode="json", exclude={"branch"}) | {
            "risk": planned_fix.fix.risk.model_dump_json(),
            "advisory_sha256": digest,
            "lease": 0.0,
        }
        if planned_fix.proof is not None:
            facts["proof"] = planned_fix.proof
        session.change(
            f"INSERT INTO fixes ({', '.join(facts)}) VALUES ({','.join('?' * len(facts))})",  # noqa: S608
            tuple(facts.values()),
        )
