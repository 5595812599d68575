"""The fleet's engine over Temporal (``fleet.engine.FleetEngine``): a workflow a fix, orders by digest."""

from fallback_audit.evidence.store import put_document
from fallback_audit.ports import EvidenceStore
from fallback_tier.engines.sessions.messages import Ticket
from fallback_tier.engines.temporal.client import FixWorkflows
from fallback_tier.fleet.engine import EngineState, Phase
from fallback_tier.fleet.order import FixOrder
from fallback_tier.workers.problem import Problem

#: What to do about a workflow that gave up; its sentence names the fix's own next step.
_NEXT = "Repair what is named, then have the campaign go on: `fallback-tier fleet resume NAME`."


class TemporalEngine:
    """Implements ``FleetEngine``. ``evidence``: where orders are kept, which the workers read."""

    def __init__(self, workflows: FixWorkflows, evidence: EvidenceStore) -> None:
        self._workflows = workflows
        self._evidence = evidence

    @property
    def room(self) -> int | None:
        """No bound: the task queue waits for workers that have room."""
        return None

    def submit(self, order: FixOrder) -> None:
        """Raises EngineUnreachableError, EvidenceError."""
        self._workflows.start(self._ticket(order))

    def renew(self, order: FixOrder) -> None:
        """Raises EngineUnreachableError, EvidenceError."""
        self._workflows.renew(self._ticket(order))

    def state(self, fix_id: str) -> EngineState:
        """Raises EngineUnreachableError."""
        found = self._workflows.state(fix_id)
        phase = Phase(found.phase)
        if phase is not Phase.FAILED:
            return EngineState(phase=phase)
        problem = Problem(code=found.code, problem=found.sentence, next_step=_NEXT)
        return EngineState(phase=phase, problem=problem)

    def cancel(self, fix_id: str) -> None:
        """Raises EngineUnreachableError."""
        self._workflows.cancel(fix_id)

    def wake(self, fix_id: str) -> None:
        """Raises EngineUnreachableError."""
        self._workflows.hint(fix_id)

    def forget(self, fix_id: str) -> None:
        """Nothing of it is kept here."""

    def close(self) -> None:
        """Workers go on: they belong to nobody's campaign. Idempotent."""
        self._workflows.close()

    def _ticket(self, order: FixOrder) -> Ticket:
        return Ticket(order.fix_id, put_document(self._evidence, order))
