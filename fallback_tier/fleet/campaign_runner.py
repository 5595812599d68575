"""The runner of a campaign: it starts fixes, looks at running ones, and records how they ended.

Nothing of it is in memory alone. If a runner is killed, the same command continues: it finds its fixes in
the store, their workers by the engine, and their ends in the audit trail.
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

#: Between two looks (seconds), and more for each running fix; at most what the lease permits.
TICK_S, TICK_OF_ONE_S = 0.5, 0.02
RENEW_S = LEASE_S / 4

#: Between two updates of what running fixes have used (seconds).
PROGRESS_S = 5.0

#: Between two looks for decisions about escalated fixes (seconds). A person needs longer than that.
DECISIONS_S = 2.0

#: A fix with a temporary problem (``PASSING``) waits this long (seconds), and its take does not count.
PAUSE_S = 30.0


@dataclass(eq=False)
class Runner:
    """Runs one campaign with one engine. ``holder``: identifies this runner, and the one that continues
    after it.
    """

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
        """Run until nothing waits and nothing runs, the budget is used up, or the campaign is cancelled.

        Its own workers end in good order in any case. Raises FallbackError.
        """
        try:
            while not self.step():
                self.on_change()
                self.sleep(min(RENEW_S, max(TICK_S, TICK_OF_ONE_S * len(self._running()))))
        finally:
            self._leave()
            self.on_change()
        return self.store.campaign(self.campaign.name).state

    def step(self) -> bool:
        """Look once at everything. Return whether there is nothing left to do."""
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
        """Renew the lease if it is time: a look at thousands of fixes takes longer than a lease."""
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
        has_own = any(fix.holder == self.holder for fix in self._running())
        if has_own:
            return False
        match line.state:
            case CampaignState.PAUSED:
                return line.is_over
            case CampaignState.RUNNING:
                return line.is_over or self._is_stuck()
            case _:
                return True

    def _is_stuck(self) -> bool:
        """Return whether no fix runs, and no queued fix can start within the budget. A fix that is to
        start later may need no budget: it is proved, and only its patch has to be delivered.
        """
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
                is_waiting = self.engine.state(fix.fix_id).phase is Phase.WAITING
                self.engine.submit(self._order(fix))
                self._ordered.add(fix.fix_id)
                if is_waiting:  # for a person, who has decided
                    self.engine.wake(fix.fix_id)
            except FallbackError as error:
                self._again(fix, problem_of(error))
                raise

    def _renew_order(self, fix: FleetFix) -> None:
        """Send the order once: an earlier runner may have submitted it under other settings."""
        if fix.fix_id not in self._ordered:
            self.engine.renew(self._order(fix))
            self._ordered.add(fix.fix_id)

    def _order(self, fix: FleetFix) -> FixOrder:
        return order_of(self.store.ordered(fix.fix_id), self.campaign)

    # --- Looking ----------------------------------------------------------------------------------

    def _look(
        self, fix: FleetFix, closely: bool, *, cancelling: bool, leaving: bool = False
    ) -> None:
        """Look at a fix. It has ended if the audit trail says so, and the delivery of its patch has
        ended, too. If no engine knows its end, the next take finishes it, without repeating what was
        done.
        """
        if cancelling:
            self.engine.cancel(fix.fix_id)
        state = self.engine.state(fix.fix_id)
        if state.phase is Phase.ACTIVE and not closely:
            return
        facts = self.facts(fix.fix_id) or FixFacts()
        has_ended = facts.state is not None
        if state.phase is Phase.ACTIVE:
            if (facts.cost, facts.attempts) != (fix.cost, fix.attempts):
                self.store.progress(fix.fix_id, facts)
            return
        if has_ended and (state.phase is Phase.ENDED or not self._is_to_deliver(facts)):
            self._over(fix, facts)
            return
        becomes, takes, problem = settle(
            state, fix.takes, cancelling=cancelling, leaving=leaving, retries=True, resume=RESUME
        )
        if becomes is Becomes.CANCELLED and has_ended and not cancelling:  # and has continued since
            becomes = Becomes.AGAIN
        match becomes:
            case Becomes.STAYS if has_ended and not leaving:  # woken, but it has not looked yet
                self._again(fix, CUT_OFF, not_before=self.store.clock() + PAUSE_S)
            case Becomes.STAYS:
                pass  # a person has decided, and it was woken: it continues when a worker has room
            case Becomes.AGAIN if problem is not None:
                self._again(fix, problem, not_before=self.store.clock() + PAUSE_S)
            case Becomes.AGAIN:
                facts = undelivered(facts, CUT_OFF) if has_ended else facts
                self.store.queue_again(fix.fix_id, facts, holder=self.holder, takes=takes)
            case _ if has_ended:
                self._over(fix, undelivered(facts, problem or CANCELLED))
            case Becomes.CANCELLED:
                self._end(fix, facts, FixState.CANCELLED)
            case Becomes.FAILED:
                self._end(fix, facts, FixState.FAILED, problem)

    def _is_to_deliver(self, facts: FixFacts) -> bool:
        delivery = self.campaign.delivery
        has_patch = facts.state is not None and facts.state.has_patch
        is_done = facts.delivered and delivery.reports is None  # a report comes after the branch
        return has_patch and delivery.is_asked and not is_done

    def _end(
        self, fix: FleetFix, facts: FixFacts, state: FixState, problem: Problem | None = None
    ) -> None:
        update: dict[str, object] = {"state": state, "why": None, "sentence": None}
        if problem is not None:
            update |= {"why": problem.code, "sentence": f"{problem.problem} {problem.next_step}"}
        self._over(fix, facts.model_copy(update=update))

    def _over(self, fix: FleetFix, facts: FixFacts) -> None:
        self.store.end(fix.fix_id, self.holder, facts)
        self.engine.forget(fix.fix_id)

    def _again(self, fix: FleetFix, problem: Problem, *, not_before: float = 0.0) -> None:
        """Queue a fix that can't continue now, which is not its fault: this take does not count. That
        its patch is not delivered stays in the list, whatever becomes of the campaign.
        """
        facts = self.facts(fix.fix_id) or FixFacts()
        code = NOT_DELIVERED if self._is_to_deliver(facts) else problem.code
        facts = facts.model_copy(update={"why": code, "sentence": problem.problem})
        self.store.queue_again(
            fix.fix_id,
            facts,
            not_before=not_before,
            holder=self.holder,
            takes=max(0, fix.takes - 1),
        )

    def _look_at_decisions(self) -> None:
        """Refresh escalated fixes that a person has decided: they continue, or are over for good."""
        now = self.store.clock()
        if now < self._decisions_at:
            return
        self._decisions_at = now + DECISIONS_S
        name, only = self.campaign.name, self.list_changed()
        refresh(self.store, name, self._read, only=only)

    def _leave(self) -> None:
        """End this process's workers: their fixes wait for the next runner, and their take does not
        count.
        """
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
        # The engine is closed, or unreachable: the fix runs elsewhere, and the next runner looks at it.
        with suppress(FallbackError):
            self._look(fix, closely=False, cancelling=cancelling, leaving=True)


@contextmanager
def alone(state_dir: Path) -> Iterator[None]:
    """Allow one runner per state folder: two would each start as many fixes as the machine may run.

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
