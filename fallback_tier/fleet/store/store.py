"""The list of campaigns: created once, whole or not at all, and changed by one transaction per step.

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


#: A runner that has not renewed its fixes for this long is dead, or cut off (seconds).
LEASE_S = 60.0

#: Waiting fixes that are looked at for those that may start: far more than run at once on a machine.
MAX_LOOKED_AT = 512

#: A fix that is over; and one that a runner holds.
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
    """A campaign before the store has it. ``settings``: the file, as JSON; ``digest``: of the file.

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
    """All campaigns of one place. ``close`` it at the end. Every method raises FleetStoreError."""

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

    # --- Changes ----------------------------------------------------------------------------------

    def create(self, planned: Planned) -> bool:
        """Durable, whole or not at all. False: a campaign of this name and list is there already; its
        limits are the new ones now.

        Raises CampaignError where one of this name was made of another file.
        """
        with self.tables.writing() as session:
            known = session.rows(
                "SELECT digest FROM campaigns WHERE campaign = ?", (planned.campaign,)
            )
            if known:
                check_same_list(planned.campaign, str(known[0]["digest"]), planned.digest)
                _renew(session, planned.campaign, planned.settings, planned.cap, planned.fix_cap)
                return False
            _insert(session, planned, self.now())
            return True

    def renew_settings(
        self, name: str, settings: str, cap: int | None, fix_cap: int | None
    ) -> None:
        """Its limits, model and engine are these from now on. ``settings``: the file, as JSON."""
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
        """``said``: who wants it so; None: a runner, or somebody at a terminal. False: it stands elsewhere.
        Raises CampaignError where there is none of this name."""
        with self.tables.writing() as session:
            if CampaignState(campaign_row(session, name)["state"]) not in came_from:
                return False
            who = (None, None) if said is None else (said.by, said.because)
            session.change(
                "UPDATE campaigns SET state = ?, said_by = ?, said_because = ?, said_at = ?"
                " WHERE campaign = ?",
                (state.value, *who, self.now(), name),
            )
            if state is CampaignState.CANCELLED:
                session.change(
                    "UPDATE fixes SET state = ?, ended_at = ? WHERE campaign = ? AND state = ?",
                    (FixState.CANCELLED.value, self.now(), name, FixState.QUEUED.value),
                )
            return True

    def claim(self, name: str, holder: str, limits: StartLimits) -> tuple[FleetFix, ...]:
        """Those that may start now become running, held by ``holder``: none where the campaign does not
        run. What may start is decided inside the transaction, so two runners never start the same. What is
        proved and not delivered comes first: it needs no money."""
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
            for one in chosen:
                session.change(
                    "UPDATE fixes SET state = ?, holder = ?, lease = ?, takes = takes + 1, started_at ="
                    " COALESCE(started_at, ?), why = NULL, sentence = NULL, cap = ?"
                    " WHERE fix_id = ? AND state = ?",
                    (
                        FixState.RUNNING.value, holder, now + LEASE_S, self.now(), cap_of(one, limits),
                        one.fix_id, FixState.QUEUED.value,
                    ),
                )  # fmt: skip
            ids = [one.fix_id for one in chosen]
            found = [fix for it in ids for fix in fixes_of(session, "fix_id = ?", it)]
        return tuple(found)

    def renew(self, name: str, holder: str) -> None:
        """The runner lives."""
        with self.tables.writing() as session:
            session.change(
                "UPDATE fixes SET lease = ? WHERE campaign = ? AND holder = ? AND state = ?",
                (self.clock() + LEASE_S, name, holder, FixState.RUNNING.value),
            )

    def take_over(self, name: str, holder: str) -> tuple[FleetFix, ...]:
        """The running fixes whose runner has not renewed them: ``holder``'s now."""
        now = self.clock()
        with self.tables.writing() as session:
            lost = fixes_of(
                session,
                "campaign = ? AND state = ? AND lease < ? AND holder <> ?",
                name, FixState.RUNNING.value, now, holder,
            )  # fmt: skip
            for one in lost:
                session.change(
                    "UPDATE fixes SET holder = ?, lease = ? WHERE fix_id = ?",
                    (holder, now + LEASE_S, one.fix_id),
                )
        return tuple(one.model_copy(update={"holder": holder}) for one in lost)

    def release(self, name: str, holder: str) -> None:
        """The runner ends in good order: whoever comes next need not wait for the lease to end."""
        with self.tables.writing() as session:
            session.change(
                "UPDATE fixes SET lease = 0 WHERE campaign = ? AND holder = ? AND state = ?",
                (name, holder, FixState.RUNNING.value),
            )

    def end(self, fix_id: str, holder: str | None, facts: FixFacts) -> bool:
        """It has ended, as ``facts`` say. False: it does not run any more, or is another runner's.

        ``holder`` None: it was over already, and what the record says of it now is written down (an
        escalated one that a person has decided).
        """
        assert facts.state is not None and facts.state.is_over  # noqa: S101, PT018 (its caller's part)
        guard = _OVER if holder is None else _HELD
        values = (
            facts.state.value, facts.why, facts.sentence, facts.cost, facts.tokens, facts.attempts,
            facts.started_at, facts.ended_at or self.now(), facts.raised, facts.branch, fix_id,
        )  # fmt: skip
        with self.tables.writing() as session:
            done = session.change(
                f"UPDATE fixes SET state = ?, why = ?, sentence = ?, cost = ?, tokens = ?, attempts = ?,"  # noqa: S608 (ours)
                " started_at = COALESCE(?, started_at), ended_at = ?, cap = COALESCE(?, cap),"
                " branch = COALESCE(?, branch),"
                f" holder = NULL, lease = 0 WHERE fix_id = ? AND {guard}",
                values if holder is None else (*values, holder),
            )
        return done == 1

    def queue_again(
        self,
        fix_id: str,
        facts: FixFacts,
        *,
        not_before: float = 0.0,
        holder: str | None = None,
        takes: int = 0,
    ) -> bool:
        """It waits again, for what it has used so far: one of ``holder``'s that can't go on now, or (None)
        one that is over and is to go on. ``takes``: how often it was started, as far as that counts. False:
        it stands elsewhere."""
        guard = _OVER if holder is None else _HELD
        values = (
            FixState.QUEUED.value, facts.cost, facts.tokens, facts.attempts, facts.why, facts.sentence,
            not_before, facts.raised, takes, fix_id,
        )  # fmt: skip
        with self.tables.writing() as session:
            done = session.change(
                f"UPDATE fixes SET state = ?, cost = ?, tokens = ?, attempts = ?, why = ?, sentence = ?,"  # noqa: S608 (ours)
                " not_before = ?, cap = COALESCE(?, cap), takes = ?,"
                f" holder = NULL, lease = 0, ended_at = NULL WHERE fix_id = ? AND {guard}",
                values if holder is None else (*values, holder),
            )
        return done == 1

    def progress(self, fix_id: str, facts: FixFacts) -> None:
        """What a running one has used up to now, for whoever watches."""
        with self.tables.writing() as session:
            session.change(
                "UPDATE fixes SET cost = ?, tokens = ?, attempts = ?, cap = COALESCE(?, cap)"
                " WHERE fix_id = ? AND state = 'running'",
                (facts.cost, facts.tokens, facts.attempts, facts.raised, fix_id),
            )

    def now(self) -> str:
        """RFC 3339, UTC."""
        return datetime.fromtimestamp(self.clock(), UTC).isoformat(timespec="milliseconds")

    def close(self) -> None:
        """Idempotent."""
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


def check_same_list(name: str, known: str, given: str) -> None:
    """Raises CampaignError: the list of other repositories would not be this one's."""
    if known != given:
        raise CampaignError(
            f"Campaign {name!r} was made of other repositories, advisories or proofs.",
            next_step="Give the file as it was to go on (limits may change), or another `name`.",
            kind="another_list",
        )


def fleet_db(state_dir: Path) -> Path:
    """Where the list is, unless it is in PostgreSQL."""
    return state_dir / "fleet" / "fleet.db"


def open_store(state_dir: Path, url: str | None = None) -> FleetStore:
    """``url``: ``postgresql://…``; None: SQLite, in the state folder. Raises FleetStoreError, and
    AuditStoreError where the driver is missing."""
    if url is None:
        return FleetStore(SqliteTables(fleet_db(state_dir)))
    require_driver()
    from fallback_tier.fleet.store.postgres import PostgresTables

    return FleetStore(PostgresTables(url))


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
            (json.dumps([it.model_dump() for it in planned.left_out]), name),
        )
    for repository in planned.repositories:
        session.change(
            "INSERT INTO repositories VALUES (?,?,?,?)",
            (name, repository.repository, repository.source, repository.base_commit),
        )
    known: set[str] = set()
    for one in planned.fixes:
        digest = hashlib.sha256(one.advisory.encode()).hexdigest()
        if digest not in known:
            known.add(digest)
            session.change("INSERT INTO advisories VALUES (?,?,?)", (name, digest, one.advisory))
        facts = one.fix.model_dump(mode="json", exclude={"branch"}) | {
            "risk": one.fix.risk.model_dump_json(),
            "advisory_sha256": digest,
            "lease": 0.0,
        }
        if one.proof is not None:
            facts["proof"] = one.proof
        session.change(
            f"INSERT INTO fixes ({', '.join(facts)}) VALUES ({','.join('?' * len(facts))})",  # noqa: S608
            tuple(facts.values()),
        )
