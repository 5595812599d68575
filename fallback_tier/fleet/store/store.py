"""The list of campaigns: made once, read by anybody, changed by one transaction a step.

Each change of a fix's state names the state it comes from, and whose fix it is: whoever is late changes
nothing. A runner holds its fixes for a time (a lease) and renews that; where it dies, another takes them.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from fallback_audit.stores.postgres_location import require_driver
from fallback_tier.fleet.model import (
    NOT_DELIVERED,
    CampaignState,
    FixFacts,
    FixState,
    FleetFix,
    Said,
)
from fallback_tier.fleet.refusals import CampaignError
from fallback_tier.fleet.scheduling import StartLimits, cap_of, may_start
from fallback_tier.fleet.store.planned import Planned, insert
from fallback_tier.fleet.store.reading import FleetReader, campaign_row, fixes_of, used_of
from fallback_tier.fleet.store.sqlite import SqliteTables
from fallback_tier.fleet.store.tables import Session

#: A runner that has not renewed its fixes for this long is dead, or cut off (seconds).
LEASE_S = 60.0

#: Waiting fixes that are looked at for those that may start: far more than run at once on a machine.
MAX_LOOKED_AT = 512

#: A fix that is over; and one that a runner holds.
_OVER = "state NOT IN ('queued', 'running')"
_HELD = "state = 'running' AND holder = ?"


class FleetStore(FleetReader):
    """All campaigns of one place. ``close`` it at the end. Every method raises FleetStoreError."""

    # --- Campaigns --------------------------------------------------------------------------------

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
            insert(session, planned, self.now())
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

    # --- Fixes ------------------------------------------------------------------------------------

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
