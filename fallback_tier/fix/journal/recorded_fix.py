"""A fix as the audit trail records it: what it began with, where it stands, how it ended.

So it can continue in another process: after kill -9, after a raised budget, or reopened by a person.
Everything is read from the audit trail and its evidence; nothing else outlives a run. Answers that were
paid for are found again by the attempt itself (``fallback_tier.budget.journal``).
"""

from collections.abc import Sequence
from functools import cached_property

from pydantic import JsonValue

from fallback_audit.contract.trail import TERMINALS
from fallback_audit.events import (
    BudgetRaised,
    BudgetReached,
    FixPatched,
    FixStarted,
    FixVerified,
    ModelCalled,
    PatchDelivered,
    SandboxDisabled,
)
from fallback_audit.evidence.store import get_document
from fallback_audit.ports import AuditReader, EvidenceStore
from fallback_tier.advisory import Advisory
from fallback_tier.affected import Affected, OwnPackage
from fallback_tier.budget.meter import how_to_go_on
from fallback_tier.errors import InputError, RepositoryError, UnansweredError
from fallback_tier.fix.journal.history import (
    last_failure,
    read_history,
    rebuild,
    recorded_patch,
    recorded_resolutions,
)
from fallback_tier.fix.journal.inputs import FixInputs, Setup
from fallback_tier.fix.journal.recording import result_of
from fallback_tier.fix.journal.review import can_be_tried_again
from fallback_tier.fix.steps import FixProgress
from fallback_tier.fix_result import FixResult
from fallback_tier.gate_ports import APPLIES

#: The parts of a configuration that say what a patch is judged by.
_JUDGED_BY = ("gates", "proof")

#: The parts of a configuration that name what writes plans.
_MODELS = ("model", "script")


class RecordedFix:
    """One fix as on record when this was made; evidence is read on demand. Hold the fix (``holding``) to
    continue it. Raises InputError if there is no such fix; what is read from evidence raises
    EvidenceError."""

    def __init__(self, audit: AuditReader, evidence: EvidenceStore, fix_id: str) -> None:
        self.fix_id = fix_id
        self._audit = audit
        self._evidence = evidence
        self._history = read_history(audit, fix_id)
        self._current = self._history.current

    def check_not_abandoned(self) -> None:
        """Raises InputError if a person has abandoned it."""
        self._history.check_not_abandoned()

    # What it began with.

    @cached_property
    def start(self) -> FixStarted:
        """Its first event. Raises InputError if another orchestrator keeps its state."""
        start = self._current.start
        if start is None:
            raise InputError(
                f"{self.fix_id} is no fix of this program's gate runner: another orchestrator keeps its "
                "state.",
                next_step="Call `fallback-tier attempt` again with the same fix_id, gate_transition_id "
                "and prior_attempts.",
            )
        return start

    @cached_property
    def inputs(self) -> FixInputs:
        """What it began with. Raises InputError if an older version began it, and as ``start``."""
        if self.start.inputs_sha256 is None:
            raise InputError(
                f"Fix {self.fix_id} was begun by an older version, which did not keep what it began with.",
                next_step=f"`fallback-tier fix REPO --advisory FILE --resume {self.fix_id}`, with the "
                "options as before.",
                kind="older_version",
            )
        return get_document(self._evidence, FixInputs, self.start.inputs_sha256)

    @property
    def setup(self) -> Setup:
        """Its setup; an empty one if an older version began it."""
        return Setup() if self.start.inputs_sha256 is None else self.inputs.setup

    @property
    def base_commit(self) -> str:
        """The commit that it is about."""
        return self.start.base_commit

    @property
    def affected(self) -> Affected | None:
        """Whose code it is about, decided once: neither a registry nor a renamed manifest changes it in
        mid-fix. None: an older version did not say."""
        start = self.start
        if start.affected_code is None or start.decided_by is None:
            return None
        names = start.own_packages
        whose = ", ".join(names) or "as a person said"
        return Affected(
            code=start.affected_code,
            decided_by=start.decided_by,
            own=tuple(OwnPackage(name=name, manifest="as the fix began") for name in names),
            sentence=f"Affected is {start.affected_code} code ({whose}), as this fix began.",
        )

    # Where it stands.

    @property
    def is_reopened(self) -> bool:
        """A person reopened it, and the gate transition that this opens is not started yet."""
        return self._current.reopened is not None

    @property
    def linked(self) -> str | None:
        """The gate transition that a person reopened; then ``gate_transition_id`` is to be started."""
        return self._current.scope.gate_transition_id if self.is_reopened else None

    @property
    def gate_transition_id(self) -> str:
        """The one in which it continues."""
        event = self._current.reopened
        return self._current.scope.gate_transition_id if event is None else event.opens

    @property
    def after(self) -> str:
        """Kind of the last event on record."""
        event = self._current.reopened
        return self._current.last_kind if event is None else event.kind

    @property
    def seen(self) -> int:
        """Number of the last event that was read."""
        return self._history.last_seq

    @cached_property
    def state(self) -> FixProgress:
        """Return what the next step needs. Raises InputError if the trail lacks it, the fix was
        abandoned, or nothing is to be continued; UnansweredError if it stopped at a budget that no
        person has raised."""
        self.check_not_abandoned()
        if self.is_reopened:
            return self._reopened_state()
        current = self._current
        if current.end is not None and (reached := current.stopped) is not None:
            raise UnansweredError(
                f"Fix {self.fix_id} stopped at its budget, and nobody has raised it.",
                next_step=how_to_go_on(reached, self.fix_id),
                kind="not_raised",
            )
        return rebuild(self._history, self._evidence)

    def _reopened_state(self) -> FixProgress:
        """With the old transition's last failure, with a first attempt if there was none, or with gates
        alone."""
        old, event = self._current, self._current.reopened
        if event is not None and event.judges_again is not None:
            patch = recorded_patch(self._history, event.judges_again, self._evidence)
            state = FixProgress(recorded=patch)
        else:
            state = FixProgress(prior_attempts=last_failure(self._history, old, self._evidence))
        if not (state.recorded or can_be_tried_again(self._history, old)):
            raise InputError(
                f"Fix {self.fix_id} was reopened, and no attempt of it had failed: there is nothing to "
                "continue.",
                next_step="Start a new fix.",
                kind="nothing_to_continue",
            )
        return state

    @property
    def raised(self) -> tuple[BudgetRaised, ...]:
        """All that was raised for it, in order."""
        return () if self.is_reopened else tuple(self._current.of(BudgetRaised))

    @property
    def unprotected(self) -> bool:
        """That no sandbox was used is on record."""
        return not self.is_reopened and bool(self._current.of(SandboxDisabled))

    @cached_property
    def resolutions(self) -> dict[str, str]:
        """What was resolved for it, by its plugin's keys."""
        if self.is_reopened or self.result is not None:
            return {}
        return recorded_resolutions(self._current, self._evidence)

    @property
    def asked_model(self) -> bool:
        """It asked a model, or was to."""
        all_of_it = self._history.transitions
        return any(it.of(ModelCalled) or it.of(BudgetReached) for it in all_of_it)

    @property
    def needs_model(self) -> bool:
        """It began with a model, asked one, or was reopened for attempts."""
        if self.is_reopened:
            return self.state.recorded is None
        has_one = any(map(self.setup.configuration.get, _MODELS))
        return self.asked_model or has_one or bool(self.start.linked_transition)

    @property
    def judges_only(self) -> bool:
        """What continues is gates alone: no model, no memory, no recipe."""
        event = self._current.reopened
        patch = self._current.judges_again if event is None else event.judges_again
        return patch is not None

    # How it ended.

    @cached_property
    def result(self) -> FixResult | None:
        """How it ended; None: it continues. Raises as ``state``."""
        end, state = self._current.end, self.state
        if self.is_reopened or not isinstance(end, TERMINALS):
            return None
        return result_of(end, state, self._audit, self._current.scope, self.start.advisory_id)

    @property
    def delivered(self) -> PatchDelivered | None:
        """Where its proved patch was put."""
        is_proved = isinstance(self._current.end, FixVerified | FixPatched)
        return self._current.last_of(PatchDelivered) if is_proved else None

    # May it continue here?

    def check_advisory(self, advisory: Advisory) -> None:
        """Raises InputError if it is about another advisory, or this one has changed."""
        start, ecosystems = self.start, ", ".join(advisory.ecosystems)
        if (start.advisory_ids, start.ecosystem) != (advisory.ids, ecosystems):
            raise InputError(
                f"Fix {self.fix_id} is about {', '.join(start.advisory_ids)} ({start.ecosystem}), and "
                f"--advisory is {', '.join(advisory.ids)} ({ecosystems}).",
                next_step="Give the advisory that the fix began with.",
                kind="another_advisory",
            )
        if start.inputs_sha256 is not None and self.inputs.advisory != advisory:
            raise InputError(
                f"Advisory {advisory.id} has changed since fix {self.fix_id} began.",
                next_step=f"`fallback-tier resume {self.fix_id}` continues with the advisory as it was; or "
                "start a new fix.",
                kind="advisory_changed",
            )

    def check_base(self, base_commit: str) -> None:
        """Raises RepositoryError if the repository is at another commit than the fix."""
        if self.base_commit != base_commit:
            raise RepositoryError(
                f"Fix {self.fix_id} began at commit {self.base_commit[:12]}, and this is "
                f"{base_commit[:12]}.",
                next_step="Check out that commit to resume, or start a new fix.",
                kind="another_commit",
            )

    def check_gates(self, gates: Sequence[str], configuration: dict[str, JsonValue]) -> None:
        """Raises InputError if other gates are configured now. A reopened gate transition has no verdicts
        yet, and an older version's fix did not record its gates."""
        began, before = self.setup.configuration, self.start.gates
        if self.is_reopened or not (before or began):
            return
        check_judged_by(began, configuration, self.fix_id)
        now = (APPLIES, *gates)
        if before == now:
            return
        gone = [f"{name!r} is gone" for name in before if name not in now]
        new = [f"{name!r} is new" for name in now if name not in before]
        what = ", ".join([*gone, *new]) or "their order differs"
        raise InputError(
            f"Fix {self.fix_id} began with other gates: {what}.",
            next_step="Configure the gates as before to resume, or start a new fix.",
            kind="other_gates",
        )


def check_judged_by(began: dict[str, JsonValue], now: dict[str, JsonValue], fix_id: str) -> None:
    """Raises InputError where a patch would be judged by something else than what the fix began with."""
    for name in _JUDGED_BY:
        if began.get(name) != now.get(name):
            raise InputError(
                f"Fix {fix_id} began with another configuration of its {name}.",
                next_step=f"`fallback-tier resume {fix_id}` continues with that one; or start a new fix.",
                kind="other_configuration",
            )
