"""The runner of a campaign: it starts fixes that may start, looks at those that run, and records how they
ended.

Nothing of it is in memory alone: a runner that is killed is followed by another one (the same command). It
finds its fixes in the store, their workers by the engine, and how they ended in the record.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path

from fallback_tier.errors import FallbackError
from fallback_tier.files.folders import writing_below
from fallback_tier.files.locks import try_hold
from fallback_tier.fleet.campaign_control import (
    CANCELLED,
    CUT_OFF,
    Facts,
    ListChangedFixes,
    all_escalated,
    refresh,
    undelivered,
)
from fallback_tier.fleet.campaign_file import Campaign
from fallback_tier.fleet.campaign_list import (
    NOT_DELIVERED,
    CampaignState,
    FixFacts,
    FixState,
    FleetFix,
)
from fallback_tier.fleet.engine_interface import Becomes, FleetEngine, Phase, settle
from fallback_tier.fleet.errors import CampaignError
from fallback_tier.fleet.fix_order import RESUME, FixOrder, order_of
from fallback_tier.fleet.store.store import LEASE_S, FleetStore
from fallback_tier.workers.problem import Problem, problem_of

#: Between two looks (seconds), and more for each fix that runs; no longer than the lease can bear.
TICK_S, TICK_OF_ONE_S = 0.5, 0.02
RENEW_S = LEASE_S / 4

#: Between two looks at what running fixes have used (seconds).
PROGRESS_S = 5.0

#: Between two looks at escalated fixes: has a person decided? A person needs longer than that.
DECISIONS_S = 2.0

#: A fix that failed for a reason that passes (``PASSING``) waits this long (seconds), and that counts for
#: no death.
PAUSE_S = 30.0


@dataclass(eq=False)
class Runner:
    """Runs one campaign with one engine. ``holder``: who this is, the same for who follows it."""

    store: FleetStore
    campaign: Campaign
    engine: FleetEngine
    facts: Facts
    _: KW_ONLY
    holder: str
    list_changed: ListChangedFixes = all_escalated
    sleep: Callable[[float], None] = time.sleep
    on_change: Callable[[], None] = lambda: None
    _decisions_at: float = field(default=0.0, init=False)
    _progress_at: float = field(default=0.0, init=False)
    _renew_at: float = field(default=0.0, init=False)
    _claimed_at: float = field(default=0.0, init=False)
    _ordered: set[str] = field(default_factory=set, init=False)

    def run(self) -> CampaignState:
        """Until nothing waits and nothing runs, nothing more can be paid for, or it is cancelled. However
        it is left, its own workers end in good order. Raises FallbackError."""
        try:
            while not self.step():
                self.on_change()
                self.sleep(min(RENEW_S, max(TICK_S, TICK_OF_ONE_S * len(self._running()))))
        finally:
            self._leave()
            self.on_change()
        return self.store.campaign(self.campaign.name).state

    def step(self) -> bool:
        """One look. True: there is nothing left to do."""
        name, store = self.campaign.name, self.store
        self._renew_at = 0.0
        self._keep_lease()
        store.take_over(name, self.holder)
        state = store.campaign(name).state
        running = self._running()
        closely = store.clock() >= self._progress_at
        if closely:
            self._progress_at = store.clock() + PROGRESS_S
        for fix in running:
            if fix.holder == self.holder:
                self._keep_lease()
                self._renew_order(fix)
                self._look(fix, closely, cancelling=state is CampaignState.CANCELLED)
        self._look_at_decisions()
        self._start()
        return self._is_over()

    def _keep_lease(self) -> None:
        """A look at thousands takes longer than a lease."""
        now = self.store.clock()
        if now >= self._renew_at:
            self.store.renew(self.campaign.name, self.holder)
            self._renew_at = now + RENEW_S

    def _read(self, fix_id: str) -> FixFacts | None:
        self._keep_lease()
        return self.facts(fix_id)

    def _is_over(self) -> bool:
        line = self.store.campaign(self.campaign.name)
        if line.is_over and line.state is CampaignState.RUNNING:
            came_from = [CampaignState.RUNNING]
            self.store.set_state(line.campaign, CampaignState.FINISHED, came_from=came_from)
        own = any(fix.holder == self.holder for fix in self._running())
        if own:
            return False
        match line.state:
            case CampaignState.PAUSED:
                return line.is_over
            case CampaignState.RUNNING:
                return line.is_over or self._is_stuck()
            case _:
                return True

    def _is_stuck(self) -> bool:
        """Return whether no fix runs, and no queued fix can start within the budget. A fix that is to start
        later may need no budget: it is proved, and only its patch has to be delivered."""
        if self._running():
            return False
        limits = self.campaign.start_limits()
        if limits.cap is None:
            return False
        return not self.store.starts_later(self.campaign.name, self._claimed_at)

    def _running(self) -> tuple[FleetFix, ...]:
        return tuple(self.store.every(self.campaign.name, FixState.RUNNING))

    # --- Starting ---------------------------------------------------------------------------------

    def _start(self) -> None:
        room = self.engine.room
        if room is not None and room <= 0:
            return
        limits = self.campaign.start_limits(room)
        self._claimed_at = self.store.clock()
        for fix in self.store.claim(self.campaign.name, self.holder, limits):
            self._keep_lease()
            try:
                waits = self.engine.state(fix.fix_id).phase is Phase.WAITING
                self.engine.submit(self._order(fix))
                self._ordered.add(fix.fix_id)
                if waits:  # for a person, who has decided; now it may run
                    self.engine.wake(fix.fix_id)
            except FallbackError as error:
                self._again(fix, problem_of(error))
                raise

    def _renew_order(self, fix: FleetFix) -> None:
        """Once: a runner before this one may have submitted it under other settings."""
        if fix.fix_id not in self._ordered:
            self.engine.renew(self._order(fix))
            self._ordered.add(fix.fix_id)

    def _order(self, fix: FleetFix) -> FixOrder:
        return order_of(self.store.ordered(fix.fix_id), self.campaign)

    # --- Looking ----------------------------------------------------------------------------------

    def _look(
        self, fix: FleetFix, closely: bool, *, cancelling: bool, leaving: bool = False
    ) -> None:
        """A fix has ended if the record says so, and the delivery of its patch has ended, too. One of whose
        end no engine tells is done by the next take: what was done is not done again."""
        if cancelling:
            self.engine.cancel(fix.fix_id)
        found = self.engine.state(fix.fix_id)
        if found.phase is Phase.ACTIVE and not closely:
            return
        facts = self.facts(fix.fix_id) or FixFacts()
        has_ended = facts.state is not None
        if found.phase is Phase.ACTIVE:
            if (facts.cost, facts.attempts) != (fix.cost, fix.attempts):
                self.store.progress(fix.fix_id, facts)
            return
        if has_ended and (found.phase is Phase.ENDED or not self._is_to_deliver(facts)):
            self._over(fix, facts)
            return
        becomes, takes, why = settle(
            found, fix.takes, cancelling=cancelling, leaving=leaving, retries=True, resume=RESUME
        )
        if becomes is Becomes.CANCELLED and has_ended and not cancelling:  # and goes on since
            becomes = Becomes.AGAIN
        match becomes:
            case Becomes.STAYS if has_ended and not leaving:  # woken: it has not looked yet
                self._again(fix, CUT_OFF, not_before=self.store.clock() + PAUSE_S)
            case Becomes.STAYS:
                pass  # a person has decided, and it was woken: it goes on when a worker has room
            case Becomes.AGAIN if why is not None:
                self._again(fix, why, not_before=self.store.clock() + PAUSE_S)
            case Becomes.AGAIN:
                facts = undelivered(facts, CUT_OFF) if has_ended else facts
                self.store.queue_again(fix.fix_id, facts, holder=self.holder, takes=takes)
            case _ if has_ended:
                self._over(fix, undelivered(facts, why or CANCELLED))
            case Becomes.CANCELLED:
                self._end(fix, facts, FixState.CANCELLED)
            case Becomes.FAILED:
                self._end(fix, facts, FixState.FAILED, why)

    def _is_to_deliver(self, facts: FixFacts) -> bool:
        asked = self.campaign.delivery
        has_patch = facts.state is not None and facts.state.has_patch
        is_done = facts.delivered and asked.reports is None  # a report comes behind the branch
        return has_patch and asked.is_asked and not is_done

    def _end(
        self, fix: FleetFix, facts: FixFacts, state: FixState, why: Problem | None = None
    ) -> None:
        update: dict[str, object] = {"state": state, "why": None, "sentence": None}
        if why is not None:
            update |= {"why": why.code, "sentence": f"{why.problem} {why.next_step}"}
        self._over(fix, facts.model_copy(update=update))

    def _over(self, fix: FleetFix, facts: FixFacts) -> None:
        self.store.end(fix.fix_id, self.holder, facts)
        self.engine.forget(fix.fix_id)

    def _again(self, fix: FleetFix, why: Problem, *, not_before: float = 0.0) -> None:
        """It can't go on now, which is not its fault: this take does not count. That nobody has its patch
        yet stays in the list, whatever comes of the campaign."""
        facts = self.facts(fix.fix_id) or FixFacts()
        code = NOT_DELIVERED if self._is_to_deliver(facts) else why.code
        facts = facts.model_copy(update={"why": code, "sentence": why.problem})
        self.store.queue_again(
            fix.fix_id,
            facts,
            not_before=not_before,
            holder=self.holder,
            takes=max(0, fix.takes - 1),
        )

    def _look_at_decisions(self) -> None:
        """An escalated fix that a person has decided: it goes on, or is over for good."""
        now = self.store.clock()
        if now < self._decisions_at:
            return
        self._decisions_at = now + DECISIONS_S
        name, only = self.campaign.name, self.list_changed()
        refresh(self.store, name, self._read, only=only)

    def _leave(self) -> None:
        """Workers of this process have ended: their fixes wait for the next runner, and their take does
        not count."""
        try:
            self.engine.close()
            state = self.store.campaign(self.campaign.name).state
            for fix in self._running():
                if fix.holder == self.holder:
                    self._hand_back(fix, cancelling=state is CampaignState.CANCELLED)
        finally:
            self.store.release(self.campaign.name, self.holder)

    def _hand_back(self, fix: FleetFix, *, cancelling: bool) -> None:
        facts = self.facts(fix.fix_id) or FixFacts()
        if facts.state is not None and not self._is_to_deliver(facts):
            self._over(fix, facts)
            return
        with suppress(
            FallbackError
        ):  # closed, or away: it runs elsewhere, and whoever comes next looks
            self._look(fix, closely=False, cancelling=cancelling, leaving=True)


@contextmanager
def alone(state_dir: Path) -> Iterator[None]:
    """One runner a state folder: two would each start as many fixes as the machine may run.

    Raises CampaignError, StateFolderError.
    """
    with writing_below(state_dir):
        path = state_dir / "fleet" / "run.lock"
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = try_hold(path)
    if lock is None:
        raise CampaignError(
            f"Another `fleet run` is at work in {state_dir}.",
            next_step="Watch it with `fleet status`, or wait for its end.",
            kind="another_run",
        )
    with lock:
        yield
