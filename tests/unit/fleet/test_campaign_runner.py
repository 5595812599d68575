"""A runner: what it makes of what its engine and the record say, and of a runner before it."""

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from fallback_audit.errors import AuditStoreError, DiskError, OvertakenError
from fallback_tier.errors import HeldError, StateFolderError
from fallback_tier.fleet import campaign_control, campaign_runner
from fallback_tier.fleet.campaign_control import refresh
from fallback_tier.fleet.campaign_file import (
    Campaign,
    CampaignRepository,
    Deliver,
    DeliveryTable,
    LimitTable,
)
from fallback_tier.fleet.campaign_list import NOT_DELIVERED, CampaignState, FixFacts, FixState
from fallback_tier.fleet.campaign_runner import PAUSE_S, RENEW_S, Runner
from fallback_tier.fleet.engine_interface import EngineState, Phase
from fallback_tier.fleet.errors import FleetStoreError
from fallback_tier.fleet.fix_order import FixOrder, order_of
from fallback_tier.fleet.store import store as store_module
from fallback_tier.fleet.store.store import FleetStore, open_store
from fallback_tier.workers.problem import MAX_TAKES, Problem, problem_of
from tests.unit.fleet.made import NAME, fix, planned

FIXED = FixFacts(state=FixState.FIXED, cost=3)
ESCALATED = FixFacts(state=FixState.ESCALATED, why="retry_cap_reached", cost=3)


@dataclass
class FakeEngine:
    """Implements FleetEngine: phases are set by the test."""

    room: int | None = 2
    phases: dict[str, EngineState] = field(default_factory=dict)
    submitted: list[str] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    woken: list[str] = field(default_factory=list)
    forgotten: list[str] = field(default_factory=list)
    renewed: list[FixOrder] = field(default_factory=list)
    fails: bool = False
    goes_on_elsewhere: bool = False
    closed: bool = False

    def submit(self, order: FixOrder) -> None:
        if self.fails:
            raise FleetStoreError("It is away.", next_step="Wait.")
        self.submitted.append(order.fix_id)
        self.phases[order.fix_id] = EngineState(phase=Phase.ACTIVE)

    def renew(self, order: FixOrder) -> None:
        self.renewed.append(order)

    def state(self, fix_id: str) -> EngineState:
        if self.closed and self.goes_on_elsewhere:
            raise FleetStoreError("It was closed.", next_step="Open it.")
        return self.phases.get(fix_id, EngineState(phase=Phase.UNKNOWN))

    def cancel(self, fix_id: str) -> None:
        self.cancelled.append(fix_id)
        self.phases[fix_id] = EngineState(phase=Phase.CANCELLED)

    def wake(self, fix_id: str) -> None:
        self.woken.append(fix_id)

    def forget(self, fix_id: str) -> None:
        self.forgotten.append(fix_id)

    def close(self) -> None:
        self.closed = True
        self.phases.clear()


class Clock:
    """Stands until it is set."""

    now = 1_000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Bench:
    store: FleetStore
    engine: FakeEngine
    record: dict[str, FixFacts]
    runner: Runner
    clock: Clock

    def states(self) -> list[str]:
        return [one.state.value for one in self.store.fixes(NAME)]

    def say(self, fix_id: str, phase: Phase, problem: Problem | None = None) -> None:
        self.engine.phases[fix_id] = EngineState(phase=phase, problem=problem)


def runner(
    store: FleetStore,
    engine: FakeEngine,
    record: dict[str, FixFacts],
    who: str,
    deliver: Deliver = Deliver.PATCH,
) -> Runner:
    campaign = Campaign(
        delivery=DeliveryTable(deliver=deliver),
        name=NAME,
        advisories=(Path("/a"),),
        repositories={"app": CampaignRepository(path=Path("/src"))},
    )
    return Runner(store, campaign, engine, record.get, holder=who)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    store, clock = open_store(tmp_path), Clock()
    store.clock = clock
    store.create(planned([fix(number, f"repo-{number}") for number in range(3)]))
    engine, record = FakeEngine(), dict[str, FixFacts]()
    return Bench(store, engine, record, runner(store, engine, record, "one"), clock)


def test_what_has_ended_is_read_from_the_record(bench: Bench) -> None:
    bench.runner.step()
    assert bench.engine.submitted == ["fix-0", "fix-1"]
    bench.record["fix-0"] = FIXED
    bench.say("fix-0", Phase.ENDED)
    bench.engine.room = 0
    assert not bench.runner.step()
    assert bench.states() == ["fixed", "running", "queued"]
    assert bench.engine.forgotten == ["fix-0"]
    bench.engine.room = 1
    bench.runner.step()
    for name in ("fix-1", "fix-2"):
        bench.record[name] = FIXED
        bench.say(name, Phase.ENDED)
    assert bench.runner.step()
    assert bench.store.campaign(NAME).state is CampaignState.FINISHED


def test_an_engines_word_is_not_the_truth(bench: Bench) -> None:
    """It says that the fix failed, or that it knows nothing: the record has its end."""
    bench.runner.step()
    bench.record["fix-0"] = FIXED
    bench.say("fix-0", Phase.FAILED, Problem(code="x", problem="y", next_step="z"))
    bench.record["fix-1"] = ESCALATED
    bench.say("fix-1", Phase.UNKNOWN)
    bench.runner.step()
    assert bench.states()[:2] == ["fixed", "escalated"]


def test_a_worker_that_died_is_followed_by_another_until_that_is_no_use(bench: Bench) -> None:
    bench.engine.room = 1
    for take in range(1, MAX_TAKES + 1):
        bench.runner.step()
        found = bench.store.fix("fix-0")
        assert found is not None
        assert (found.state, found.takes) == (FixState.RUNNING, take)
        bench.say("fix-0", Phase.UNKNOWN)
        bench.engine.room = 0
        bench.runner.step()
        bench.engine.room = 1
    found = bench.store.fix("fix-0")
    assert found is not None
    assert (found.state, found.why) == (FixState.FAILED, "worker")


def test_what_fails_for_a_passing_reason_is_tried_again_later(bench: Bench) -> None:
    bench.runner.step()
    away = Problem(code="audit_store", problem="The server is away.", next_step="Wait.")
    broken = Problem(code="sandbox", problem="There is no sandbox.", next_step="Install it.")
    bench.say("fix-0", Phase.FAILED, away)
    bench.say("fix-1", Phase.FAILED, broken)
    bench.engine.room = 0
    bench.runner.step()
    assert bench.states() == ["queued", "failed", "queued"]
    bench.engine.room = 3
    bench.runner.step()
    assert bench.states() == ["queued", "failed", "running"]
    bench.clock.now += 60
    bench.runner.step()
    assert bench.states() == ["running", "failed", "running"]
    assert bench.store.fixes(NAME)[1].sentence == "There is no sandbox. Install it."


def test_a_runner_that_was_killed_is_followed_by_one_that_does_nothing_twice(bench: Bench) -> None:
    bench.runner.step()
    bench.record["fix-0"] = FIXED
    bench.say("fix-0", Phase.ENDED)  # and fix-1 is still active
    after = runner(bench.store, bench.engine, bench.record, "one")
    after.step()
    assert bench.states() == ["fixed", "running", "running"]
    assert bench.engine.submitted == ["fix-0", "fix-1", "fix-2"]


def test_whoever_follows_tells_running_fixes_of_its_settings_once(bench: Bench) -> None:
    bench.runner.step()
    bench.engine.room = 0
    bench.runner.step()
    assert not bench.engine.renewed  # it has just submitted them
    campaign = bench.runner.campaign
    limits = campaign.limits.model_copy(update={"tokens_per_fix": 5})
    campaign = campaign.model_copy(update={"limits": limits})
    again = Runner(bench.store, campaign, bench.engine, bench.record.get, holder="one")
    again.step()
    again.step()
    assert [order.fix_id for order in bench.engine.renewed] == ["fix-0", "fix-1"]
    assert bench.engine.renewed[0] == order_of(bench.store.ordered("fix-0"), campaign)


def test_another_host_takes_what_a_dead_one_held(bench: Bench) -> None:
    bench.runner.step()
    engine = FakeEngine()
    other = runner(bench.store, engine, bench.record, "two")
    other.step()
    assert engine.submitted == ["fix-2"]
    bench.clock.now += 120
    other.step()
    assert engine.submitted == ["fix-2", "fix-0", "fix-1"]
    assert [one.holder for one in bench.store.fixes(NAME)] == ["two"] * 3


def test_a_pause_lets_what_runs_end_and_waits(bench: Bench) -> None:
    bench.runner.step()
    bench.store.set_state(NAME, CampaignState.PAUSED, came_from=[CampaignState.RUNNING])
    bench.record |= {"fix-0": FIXED, "fix-1": FIXED}
    for name in ("fix-0", "fix-1"):
        bench.say(name, Phase.ENDED)
    assert not bench.runner.step()
    assert bench.states() == ["fixed", "fixed", "queued"]


def test_a_runner_that_ends_in_a_cancelled_campaign_leaves_nothing_queued(bench: Bench) -> None:
    bench.runner.step()
    campaign_control.cancel(bench.store, NAME)
    bench.runner._leave()
    assert bench.states() == ["cancelled"] * 3


def test_a_cancelled_campaign_ends_what_runs(bench: Bench) -> None:
    bench.runner.step()
    bench.store.set_state(NAME, CampaignState.CANCELLED, came_from=[CampaignState.RUNNING])
    assert bench.runner.step()
    assert bench.engine.cancelled == ["fix-0", "fix-1"]
    assert bench.states() == ["cancelled"] * 3


def test_a_decision_on_record_lets_an_escalated_fix_go_on(bench: Bench) -> None:
    bench.runner.step()
    for name in ("fix-0", "fix-1"):
        bench.record[name] = ESCALATED
        bench.say(name, Phase.WAITING)
    bench.runner.step()
    assert bench.states() == ["escalated", "escalated", "running"]
    bench.record["fix-0"] = FixFacts(state=None, cost=3, raised=9)
    bench.record["fix-1"] = FixFacts(state=FixState.REFUSED, why="rejected", cost=3)
    bench.clock.now += 10
    bench.runner.step()
    assert bench.engine.woken == ["fix-0"]
    assert bench.states() == ["running", "refused", "running"]
    assert bench.engine.submitted == ["fix-0", "fix-1", "fix-2", "fix-0"]


def test_a_runner_that_is_left_hands_its_fixes_back(bench: Bench) -> None:
    def stop(_: float) -> None:
        raise KeyboardInterrupt

    bench.runner.sleep = stop
    with pytest.raises(KeyboardInterrupt):
        bench.runner.run()
    found = bench.store.fixes(NAME)
    assert [one.state for one in found] == [FixState.QUEUED] * 3
    assert [one.takes for one in found] == [0] * 3


def test_an_engine_that_is_asked_no_more_leaves_its_fixes_to_whoever_comes_next(
    bench: Bench,
) -> None:
    """They go on without this runner: none is lost, none waits for a lease, and what ended is over."""

    def stop(_: float) -> None:
        bench.record["fix-0"] = FIXED
        raise KeyboardInterrupt

    bench.engine.goes_on_elsewhere = True
    bench.runner.sleep = stop
    with pytest.raises(KeyboardInterrupt):
        bench.runner.run()
    assert bench.states() == ["fixed", "running", "queued"]
    after = runner(bench.store, FakeEngine(), bench.record, "two")
    after.step()  # the clock stands: the lease was given back
    assert [one.holder for one in bench.store.fixes(NAME)][1:] == ["two", "two"]


def test_a_runner_that_can_not_hand_back_gives_its_lease_back(bench: Bench) -> None:
    def away(_: str) -> FixFacts | None:
        raise FleetStoreError("The record is away.", next_step="Wait.")

    bench.runner.step()
    bench.runner.facts = away
    with pytest.raises(FleetStoreError):
        bench.runner._leave()
    after = runner(bench.store, FakeEngine(), bench.record, "two")
    after.step()
    assert [one.holder for one in bench.store.fixes(NAME)][:2] == ["two", "two"]


def test_an_engine_that_is_away_loses_nothing(bench: Bench) -> None:
    bench.engine.fails = True
    with pytest.raises(FleetStoreError):
        bench.runner.step()
    assert bench.states()[0] == "queued"


def test_only_what_was_decided_is_looked_at(bench: Bench) -> None:
    bench.runner.step()
    bench.record |= {"fix-0": ESCALATED, "fix-1": ESCALATED}
    for name in ("fix-0", "fix-1"):
        bench.say(name, Phase.WAITING)
    bench.engine.room = 0
    bench.runner.step()
    bench.record |= {"fix-0": FIXED, "fix-1": FIXED}
    refresh(bench.store, NAME, bench.record.get, only=frozenset({"fix-1", "fix-2", "fix-9"}))
    assert bench.states() == ["escalated", "fixed", "queued"]


def test_an_end_on_record_is_no_cancelled_fix(bench: Bench) -> None:
    """The campaign was cancelled while the patch was delivered, or before anybody looked."""
    bench.runner.step()
    bench.store.set_state(NAME, CampaignState.CANCELLED, came_from=[CampaignState.RUNNING])
    bench.record |= {"fix-0": FIXED, "fix-1": ESCALATED}
    bench.runner.step()
    assert bench.states() == ["fixed", "escalated", "cancelled"]


def test_what_a_person_ran_to_its_end_is_not_failed_any_more(bench: Bench) -> None:
    bench.runner.step()
    bench.say("fix-0", Phase.FAILED, Problem(code="x", problem="y", next_step="z"))
    bench.say("fix-1", Phase.CANCELLED)
    bench.engine.room = 0
    bench.runner.step()
    assert bench.states() == ["failed", "cancelled", "queued"]
    bench.record |= {"fix-0": FIXED, "fix-1": FixFacts(state=None, cost=3)}
    only = frozenset({"fix-0", "fix-1"})
    assert refresh(bench.store, NAME, bench.record.get, only=only) == 0
    assert bench.states() == ["fixed", "cancelled", "queued"]
    bench.record["fix-1"] = FIXED
    many = only | {f"other-{number}" for number in range(200)}
    refresh(bench.store, NAME, bench.record.get, only=many)
    assert bench.states() == ["fixed", "fixed", "queued"]


def test_a_fix_that_asks_the_same_again_has_its_new_cost(bench: Bench) -> None:
    bench.runner.step()
    bench.record["fix-0"] = ESCALATED
    bench.say("fix-0", Phase.WAITING)
    bench.runner.step()
    bench.record["fix-0"] = ESCALATED.model_copy(update={"cost": 8})
    refresh(bench.store, NAME, bench.record.get)
    assert bench.store.fixes(NAME)[0].cost == 8


def test_a_fix_that_a_person_runs_is_waited_for(bench: Bench) -> None:
    """As a store that is away, or a full disk: that counts for no death, however often it happens."""
    bench.engine.room = 1
    stores = (FleetStoreError, AuditStoreError, DiskError, StateFolderError)
    passing = (HeldError, OvertakenError, *stores)
    for problem in (problem_of(kind("It is away.", next_step="Wait.")) for kind in passing):
        for _ in range(MAX_TAKES + 1):
            bench.runner.step()
            assert bench.states()[0] == "running"
            bench.say("fix-0", Phase.FAILED, problem)
            bench.engine.room = 0
            bench.runner.step()
            assert bench.states()[0] == "queued"
            bench.engine.room = 1
            bench.clock.now += PAUSE_S
    assert bench.store.fixes(NAME)[0].takes == 0


@pytest.mark.parametrize("state", [CampaignState.PAUSED, CampaignState.CANCELLED])
def test_a_decision_starts_nothing_where_the_campaign_starts_nothing(
    bench: Bench, state: CampaignState
) -> None:
    bench.runner.step()
    bench.record["fix-0"] = ESCALATED
    bench.say("fix-0", Phase.WAITING)
    bench.runner.step()
    bench.store.set_state(NAME, state, came_from=[CampaignState.RUNNING])
    bench.record["fix-0"] = FixFacts(state=None, cost=3, raised=9)
    bench.clock.now += 10
    bench.runner.step()
    assert (bench.states()[0], bench.engine.woken) == ("queued", [])
    bench.store.set_state(NAME, CampaignState.RUNNING, came_from=[state])
    bench.engine.room = 3
    bench.say("fix-0", Phase.WAITING)
    bench.runner.step()
    assert (bench.states()[0], bench.engine.woken) == ("running", ["fix-0"])


def test_a_fix_that_was_woken_may_take_its_time(bench: Bench) -> None:
    bench.runner.step()
    bench.say("fix-0", Phase.WAITING)
    for _ in range(MAX_TAKES + 1):
        bench.runner.step()
    found = bench.store.fixes(NAME)[0]
    assert (found.state, found.takes) == (FixState.RUNNING, 1)


def test_a_decision_lets_a_finished_campaign_go_on(bench: Bench) -> None:
    bench.engine.room = 3
    bench.runner.step()
    for number in range(3):
        bench.record[f"fix-{number}"] = ESCALATED
        bench.say(f"fix-{number}", Phase.WAITING)
    assert bench.runner.step()
    assert bench.store.campaign(NAME).state is CampaignState.FINISHED
    bench.record["fix-1"] = FixFacts(state=None, cost=3)
    bench.clock.now += 10
    assert not bench.runner.step()
    assert bench.states() == ["escalated", "running", "escalated"]


def test_a_long_look_keeps_its_lease(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.runner.step()
    asked = bench.engine.state

    def slow(fix_id: str) -> EngineState:
        bench.clock.now += 40
        return asked(fix_id)

    monkeypatch.setattr(bench.engine, "state", slow)
    bench.engine.room = 0
    bench.runner.step()
    assert bench.store.take_over(NAME, "two") == ()


def test_thousands_of_fixes_do_not_make_it_sleep_its_lease_away(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept = list[float]()

    def stop(seconds: float) -> None:
        slept.append(seconds)
        raise KeyboardInterrupt

    monkeypatch.setattr(campaign_runner, "TICK_OF_ONE_S", 3_000.0)
    bench.runner.sleep = stop
    with pytest.raises(KeyboardInterrupt):
        bench.runner.run()
    assert slept == [RENEW_S]


@pytest.fixture
def delivering(bench: Bench) -> Bench:
    """The campaign makes branches."""
    bench.runner = runner(bench.store, bench.engine, bench.record, "one", Deliver.BRANCH)
    return bench


def test_who_died_between_a_proof_and_its_delivery_is_followed(delivering: Bench) -> None:
    bench = delivering
    bench.runner.step()
    bench.record |= {"fix-0": FIXED, "fix-1": ESCALATED}
    for name in ("fix-0", "fix-1"):
        bench.say(name, Phase.UNKNOWN)
    bench.engine.room = 0
    bench.runner.step()
    assert bench.states() == ["queued", "escalated", "queued"]
    assert bench.store.fixes(NAME)[0].why == NOT_DELIVERED
    bench.engine.room = 1
    bench.runner.step()
    assert bench.engine.submitted[2:] == ["fix-0"]
    bench.record["fix-0"] = FIXED.model_copy(update={"branch": "fallback-tier/TEST-0"})
    bench.say("fix-0", Phase.ENDED)
    bench.engine.room = 0
    bench.runner.step()
    found = bench.store.fixes(NAME)[0]
    assert (found.state, found.why, found.branch) == ("fixed", None, "fallback-tier/TEST-0")
    assert bench.store.on_branches(NAME) == (found,)


def test_what_needs_no_money_is_waited_for_behind_what_can_not_be_paid(
    delivering: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first two need more than is left; the proved one's delivery waits for its time."""
    bench = delivering
    bench.runner.step()
    full = Problem(code="disk", problem="The disk is full.", next_step="Free some.")
    bench.record["fix-0"] = FixFacts(cost=400_000)
    bench.say("fix-0", Phase.FAILED, full)
    bench.engine.room = 0
    bench.runner.step()
    bench.clock.now += PAUSE_S
    limits = LimitTable.model_validate({"usd": "1", "usd_per_fix": "1"})
    bench.runner.campaign = bench.runner.campaign.model_copy(update={"limits": limits})
    bench.record["fix-1"] = FIXED.model_copy(update={"cost": 500_000})
    bench.say("fix-1", Phase.FAILED, full)
    bench.engine.room = 2
    assert not bench.runner.step()
    assert bench.states() == ["queued"] * 3
    bench.clock.now += PAUSE_S
    monkeypatch.setattr(store_module, "MAX_LOOKED_AT", 1)
    assert not bench.runner.step()
    assert bench.states() == ["queued", "running", "queued"]
    bench.record["fix-1"] = FIXED.model_copy(update={"cost": 500_000})
    bench.say("fix-1", Phase.ENDED)
    assert bench.runner.step()  # for the others there is no money
    assert bench.states() == ["queued", "fixed", "queued"]


DELIVERED = FIXED.model_copy(update={"branch": "fallback-tier/TEST-0", "delivered": True})
OVERTAKEN = problem_of(OvertakenError("Another goes on with it.", next_step="Look."))


@pytest.mark.parametrize("phase", [Phase.FAILED, Phase.UNKNOWN, Phase.WAITING, Phase.CANCELLED])
def test_what_the_record_has_delivered_is_delivered_whatever_an_engine_says(
    delivering: Bench, phase: Phase
) -> None:
    """Another machine did it, its worker was killed before it said so, or a person ran it."""
    bench = delivering
    bench.runner.step()
    bench.record["fix-0"] = DELIVERED
    bench.say("fix-0", phase, OVERTAKEN if phase is Phase.FAILED else None)
    if phase is Phase.CANCELLED:
        bench.store.set_state(NAME, CampaignState.CANCELLED, came_from=[CampaignState.RUNNING])
    bench.runner.step()
    found = bench.store.fixes(NAME)[0]
    assert (found.state, found.why, found.branch) == (FixState.FIXED, None, DELIVERED.branch)
    assert bench.store.undelivered(NAME) == ()


def test_a_report_comes_behind_its_branch(delivering: Bench) -> None:
    bench = delivering
    table = DeliveryTable(deliver=Deliver.BRANCH, reports=Path("/reports"))
    bench.runner.campaign = bench.runner.campaign.model_copy(update={"delivery": table})
    bench.runner.step()
    bench.record["fix-0"] = DELIVERED
    bench.say("fix-0", Phase.UNKNOWN)
    bench.engine.room = 0
    bench.runner.step()
    found = bench.store.fixes(NAME)[0]
    assert (found.state, found.why) == (FixState.QUEUED, NOT_DELIVERED)


def test_a_workflow_that_waits_has_time_to_hear_of_a_fix_that_a_person_ran(
    delivering: Bench,
) -> None:
    """Its patch is still to be delivered; a worker that has not looked yet has not died."""
    bench = delivering
    bench.engine.room = 1
    bench.record["fix-0"] = FIXED
    for number in range(MAX_TAKES + 1):
        bench.runner.step()
        assert len(bench.engine.woken) == number
        bench.say("fix-0", Phase.WAITING)
        bench.engine.room = 0
        bench.runner.step()
        assert bench.store.fixes(NAME)[0].why == NOT_DELIVERED
        bench.runner.step()
        bench.engine.room = 1
        bench.clock.now += PAUSE_S
    found = bench.store.fixes(NAME)[0]
    assert (found.state, found.takes) == (FixState.QUEUED, 0)


def test_what_is_not_delivered_is_said_and_can_be_tried_again(delivering: Bench) -> None:
    bench = delivering
    bench.engine.room = 3
    bench.runner.step()
    bench.record |= {f"fix-{number}": FIXED for number in range(3)}
    away = Problem(code="disk", problem="The disk is full.", next_step="Free some.")
    broken = Problem(code="patch", problem="Not committed.", next_step="Look.")
    bench.say("fix-0", Phase.FAILED, away)
    bench.say("fix-1", Phase.FAILED, broken)
    bench.say("fix-2", Phase.ENDED)
    bench.runner.step()
    assert bench.states() == ["queued", "fixed", "fixed"]
    (found,) = bench.store.undelivered(NAME)
    assert (found.fix_id, found.sentence) == ("fix-1", "Not committed. Look.")
    assert campaign_control.resume(bench.store, NAME, bench.record.get) == 1
    assert bench.states() == ["queued", "queued", "fixed"]


def test_a_delivery_that_kills_its_workers_is_given_up(delivering: Bench) -> None:
    bench = delivering
    bench.engine.room = 1
    bench.record["fix-0"] = FIXED
    for _ in range(MAX_TAKES):
        bench.runner.step()
        bench.say("fix-0", Phase.UNKNOWN)
        bench.engine.room = 0
        bench.runner.step()
        bench.engine.room = 1
    (found,) = bench.store.undelivered(NAME)
    assert (found.state, found.why, found.takes) == (FixState.FIXED, NOT_DELIVERED, MAX_TAKES)


def test_a_runner_that_is_left_in_a_delivery_has_it_done_later(delivering: Bench) -> None:
    def stop(_: float) -> None:
        delivering.record["fix-0"] = FIXED
        raise KeyboardInterrupt

    delivering.runner.sleep = stop
    with pytest.raises(KeyboardInterrupt):
        delivering.runner.run()
    assert delivering.states() == ["queued"] * 3


def test_a_cancelled_campaign_says_what_it_did_not_deliver(delivering: Bench) -> None:
    delivering.runner.step()
    delivering.record["fix-0"] = FIXED
    delivering.store.set_state(NAME, CampaignState.CANCELLED, came_from=[CampaignState.RUNNING])
    delivering.runner.step()
    assert delivering.states() == ["fixed", "cancelled", "cancelled"]
    assert [one.fix_id for one in delivering.store.undelivered(NAME)] == ["fix-0"]


@pytest.mark.parametrize("how", ["cut off", "passing", "away"])
def test_what_waits_for_its_delivery_stays_undelivered_in_a_cancelled_campaign(
    delivering: Bench, how: str
) -> None:
    """The record says that it is fixed: the list must not forget that nobody has its patch."""
    bench = delivering
    bench.runner.step()
    bench.record["fix-0"] = FIXED
    away = Problem(code="disk", problem="The disk is full.", next_step="Free some.")
    if how == "passing":
        bench.say("fix-0", Phase.FAILED, away)
    else:
        bench.say("fix-0", Phase.UNKNOWN)
    bench.engine.room = 0
    bench.runner.step()
    if how == "away":  # its next take comes to nothing: the engine can't be reached
        bench.engine.room, bench.engine.fails = 1, True
        with pytest.raises(FleetStoreError):
            bench.runner.step()
    campaign_control.cancel(bench.store, NAME)
    refresh(bench.store, NAME, bench.record.get, only=frozenset({"fix-0"}))
    (found,) = bench.store.undelivered(NAME)
    assert (found.fix_id, found.state) == ("fix-0", FixState.FIXED)
    bench.record["fix-1"] = FixFacts()
    assert campaign_control.resume(bench.store, NAME, bench.record.get) == 2  # fix-2 as well
    assert bench.states() == ["queued", "running", "queued"]


def test_a_cancelled_fix_that_waited_for_its_delivery_is_resumed(delivering: Bench) -> None:
    bench = delivering
    bench.runner.step()
    bench.record["fix-0"] = FIXED
    bench.say("fix-0", Phase.UNKNOWN)
    bench.engine.room = 0
    bench.runner.step()
    campaign_control.cancel(bench.store, NAME)
    campaign_control.resume(bench.store, NAME, bench.record.get)
    assert bench.states()[0] == "queued"
    # Somebody has done it by hand: it is on record.
    campaign_control.cancel(bench.store, NAME)
    bench.record["fix-0"] = FIXED.model_copy(update={"branch": "fallback-tier/TEST-0"})
    refresh(bench.store, NAME, bench.record.get, only=frozenset({"fix-0"}))
    assert bench.store.undelivered(NAME) == ()
    assert bench.states()[0] == "fixed"
