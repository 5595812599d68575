"""A fix whose steps do nothing but put their events on record."""

from fallback_audit.events import FixStarted
from fallback_audit.ports import Scope
from fallback_audit.stores.sqlite import SqliteAuditStore
from fallback_tier.advisory import Advisory
from fallback_tier.fix.steps import FixProgress, StepKey, next_step
from fallback_tier.fix_result import FixResult, OneFix
from tests.campaigns.bench.work_fix_loop import _step as take_step

_START = FixStarted(
    advisory_id="GHSA",
    repository="target",
    base_commit="0" * 40,
    ecosystem="PyPI",
    tool_version="0",
)


class EmptyFix:
    """Its steps do nothing but put their events on record: attempt, one gate, decide."""

    def __init__(self, store: SqliteAuditStore, fix_id: str) -> None:
        self._store = store
        self._scope = Scope(fix_id=fix_id, gate_transition_id="gate")
        self._store.append(self._scope, _START)
        self.state = FixProgress(isolated=True)

    @property
    def result(self) -> FixResult | None:
        return self.state.result

    def next(self) -> StepKey | None:
        return next_step(self.state, [])

    def step(self, key: StepKey) -> None:
        self.state = take_step(key, self.state, self._store, self._scope)

    def deliver(self) -> OneFix:
        assert self.state.result is not None
        return OneFix(self.state.result, Advisory(id="GHSA", affected=()))
