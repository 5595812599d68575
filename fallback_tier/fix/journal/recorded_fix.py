"""A fix as the audit trail records it: its inputs, its state, its end.

So it can continue in another process: after kill -9, after a raised budget, or reopened by a person. All is
read from the audit trail and its evidence; no other state outlives a run. Answers that were paid for are
found again by the attempt itself (``fallback_tier.budget.journal``).
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

#: The parts of a configuration that determine how a patch is judged.
_JUDGED_BY = ("gates", "proof")

#: The parts of a configuration that name the source of plans.
_MODELS = ("model", "script")


class RecordedFix:
    """One fix as recorded when this object was created; evidence is read on demand.

    Hold the fix (``holding``) to continue it. Raises InputError if there is no such fix; reading evidence
    raises EvidenceError.
    """

    def __init__(self, audit: AuditReader, evidence: EvidenceStore, fix_id: str) -> None:
        self.fix_id = fix_id
        self._audit = audit
        self._evidence = evidence
        self._history = read_history(audit, fix_id)
        self._current = self._history.current

    def check_not_abandoned(self) -> None:
        """Raise InputError if a person has abandoned the fix."""
        self._history.check_not_abandoned()

    # Its inputs.

    @cached_property
    def start(self) -> FixStarted:
        """The first event. Raises InputError if another orchestrator keeps the fix's state."""
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
        """The fix's inputs. Raises InputError if an older version began it, and as ``start``."""
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
        """The fix's setup; an empty one if an older version began it."""
        return Setup() if self.start.inputs_sha256 is None else self.inputs.setup

    @property
    def base_commit(self) -> str:
        """The commit that the fix is for."""
        return self.start.base_commit

    @property
    def affected(self) -> Affected | None:
        """Whose code is affected, decided once: neither a registry nor a renamed manifest changes it during
        the fix. None: an older version did not record it."""
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

    # Its state.

    @property
    def is_reopened(self) -> bool:
        """Whether a person reopened it, and the gate transition that this opens is not started yet."""
        return self._current.reopened is not None

    @property
    def linked(self) -> str | None:
        """The gate transition that a person reopened, or None; ``gate_transition_id`` is then not started
        yet."""
        return self._current.scope.gate_transition_id if self.is_reopened else None

    @property
    def gate_transition_id(self) -> str:
        """The gate transition in which it continues."""
        event = self._current.reopened
        return self._current.scope.gate_transition_id if event is None else event.opens

    @property
    def after(self) -> str:
        """The kind of the last recorded event."""
        event = self._current.reopened
        return self._current.last_kind if event is None else event.kind

    @property
    def seen(self) -> int:
        """The number of the last event that was read."""
        return self._history.last_seq

    @cached_property
    def state(self) -> FixProgress:
        """The state for the next step.

        Raises InputError if the trail lacks it, the fix was abandoned, or there is nothing to continue;
        UnansweredError if it stopped at a budget that no person has raised.
        """
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
        """Return the state with the old transition's last failure, for a first attempt if there was none,
        or for gates alone."""
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
        """All caps that were raised for it, in order."""
        return () if self.is_reopened else tuple(self._current.of(BudgetRaised))

    @property
    def unprotected(self) -> bool:
        """Whether the record says that no sandbox was used."""
        return not self.is_reopened and bool(self._current.of(SandboxDisabled))

    @cached_property
    def resolutions(self) -> dict[str, str]:
        """The resolutions made for it, by its plugin's keys."""
        if self.is_reopened or self.result is not None:
            return {}
        return recorded_resolutions(self._current, self._evidence)

    @property
    def asked_model(self) -> bool:
        """Whether it asked a model, or was about to."""
        transitions = self._history.transitions
        return any(
            transition.of(ModelCalled) or transition.of(BudgetReached) for transition in transitions
        )

    @property
    def needs_model(self) -> bool:
        """Whether it began with a model, asked one, or was reopened for attempts."""
        if self.is_reopened:
            return self.state.recorded is None
        has_one = any(map(self.setup.configuration.get, _MODELS))
        return self.asked_model or has_one or bool(self.start.linked_transition)

    @property
    def judges_only(self) -> bool:
        """Whether only gates remain to be run: no model, no memory, no recipe."""
        event = self._current.reopened
        patch = self._current.judges_again if event is None else event.judges_again
        return patch is not None

    # Its end.

    @cached_property
    def result(self) -> FixResult | None:
        """The fix's result, or None if it continues. Raises as ``state``."""
        end, state = self._current.end, self.state
        if self.is_reopened or not isinstance(end, TERMINALS):
            return None
        return result_of(end, state, self._audit, self._current.scope, self.start.advisory_id)

    @property
    def delivered(self) -> PatchDelivered | None:
        """The delivery of its proved patch, or None."""
        is_proved = isinstance(self._current.end, FixVerified | FixPatched)
        return self._current.last_of(PatchDelivered) if is_proved else None

    # Checks that it may continue here.

    def check_advisory(self, advisory: Advisory) -> None:
        """Raise InputError if the fix is about another advisory, or this one has changed."""
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
        """Raise RepositoryError if the repository is at another commit than the fix."""
        if self.base_commit != base_commit:
            raise RepositoryError(
                f"Fix {self.fix_id} began at commit {self.base_commit[:12]}, and this is "
                f"{base_commit[:12]}.",
                next_step="Check out that commit to resume, or start a new fix.",
                kind="another_commit",
            )

    def check_gates(self, gates: Sequence[str], configuration: dict[str, JsonValue]) -> None:
        """Raise InputError if other gates are configured now. A reopened gate transition has no verdicts
        yet, and an older version's fix did not record its gates."""
        recorded_configuration, recorded_gates = self.setup.configuration, self.start.gates
        if self.is_reopened or not (recorded_gates or recorded_configuration):
            return
        check_judged_by(recorded_configuration, configuration, self.fix_id)
        configured_gates = (APPLIES, *gates)
        if recorded_gates == configured_gates:
            return
        gone = [f"{name!r} is gone" for name in recorded_gates if name not in configured_gates]
        new = [f"{name!r} is new" for name in configured_gates if name not in recorded_gates]
        difference = ", ".join([*gone, *new]) or "their order differs"
        raise InputError(
            f"Fix {self.fix_id} began with other gates: {difference}.",
            next_step="Configure the gates as before to resume, or start a new fix.",
            kind="other_gates",
        )


def check_judged_by(began: dict[str, JsonValue], now: dict[str, JsonValue], fix_id: str) -> None:
    """Raise InputError if a patch would now be judged differently from how the fix began."""
    for name in _JUDGED_BY:
        if began.get(name) != now.get(name):
            raise InputError(
                f"Fix {fix_id} began with another configuration of its {name}.",
                next_step=f"`fallback-tier resume {fix_id}` continues with that one; or start a new fix.",
                kind="other_configuration",
            )
