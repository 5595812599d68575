"""A fix goes on in another process: after kill -9, after a raised budget, or reopened by a person.

Everything is read from the audit trail and its evidence; nothing else outlives a run. Answers that were
paid for are found again by the attempt itself (``fallback_tier.budget.journal``).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

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
from fallback_audit.evidence.documents import get_document
from fallback_audit.ports import AuditReader, AuditStore, EvidenceStore
from fallback_tier.advisory import Advisory
from fallback_tier.affected import Affected, OwnPackage
from fallback_tier.errors import InputError, RepositoryError, UnansweredError
from fallback_tier.gates.journal.budget_raise import how_to_go_on
from fallback_tier.gates.journal.ending import result_of
from fallback_tier.gates.journal.history import History, read_history
from fallback_tier.gates.journal.inputs import FixInputs, Setup
from fallback_tier.gates.journal.rebuild import (
    last_failure,
    rebuild,
    recorded_patch,
    recorded_resolutions,
)
from fallback_tier.gates.journal.review import can_be_tried_again
from fallback_tier.gates.result import FixResult
from fallback_tier.gates.steps import APPLIES, FixState
from fallback_tier.repo import ProofFailure

#: The parts of a configuration that say what a patch is judged by.
_JUDGED_BY = ("gates", "proof")

#: The parts of a configuration that name what writes plans.
_MODELS = ("model", "script")


@dataclass(frozen=True)
class ResumedFix:
    """Where a fix stands, for ``GateRunner.resume``.

    ``after``: kind of the last event on record. ``raised``: everything that was raised for it, in order.
    ``unprotected``: that no sandbox was used is on record. ``linked``: the gate transition that a person
    reopened; then ``gate_transition_id`` is still to be started. ``gates`` and ``configuration``: those
    that it set out with; empty where an older version did. ``needs_model``: it began with one, asked one,
    or was reopened for attempts; ``asked_model``: it asked one. ``result``: how it has ended; None: it goes
    on. ``delivered``: where the proved patch was put, as it is on record. ``affected``: whose code it is
    about, as it began; None: an older version did not say. ``seen``: number of the last event that was
    read. ``resolutions``: what was resolved for it, by its plugin's keys. ``proof_failure``: how its proof
    failed as it began.
    """

    gate_transition_id: str
    base_commit: str
    state: FixState
    after: str
    raised: tuple[BudgetRaised, ...] = ()
    unprotected: bool = False
    linked: str | None = None
    gates: tuple[str, ...] = ()
    configuration: dict[str, JsonValue] = field(default_factory=dict)
    needs_model: bool = False
    asked_model: bool = False
    result: FixResult | None = None
    delivered: PatchDelivered | None = None
    affected: Affected | None = None
    seen: int = 0
    resolutions: dict[str, str] = field(default_factory=dict)
    proof_failure: ProofFailure | None = None


def inputs_of(audit: AuditReader, evidence: EvidenceStore, fix_id: str) -> FixInputs:
    """What a fix began with. Raises InputError: no such fix, another orchestrator's, an older version's;
    EvidenceError: what it began with is gone."""
    start = _start(read_history(audit, fix_id))
    if start.inputs_sha256 is None:
        raise InputError(
            f"Fix {fix_id} was begun by an older version, which did not keep what it began with.",
            next_step=f"`fallback-tier fix REPO --advisory FILE --resume {fix_id}`, with the options "
            "as before.",
        )
    return get_document(evidence, FixInputs, start.inputs_sha256)


def judges_only(audit: AuditReader, fix_id: str) -> bool:
    """What goes on is gates alone: no model is asked, no memory, no recipe."""
    current = read_history(audit, fix_id).current
    if current.reopened is not None:
        return current.reopened.judges_again is not None
    return current.judges_again is not None


def resume_from_trail(
    audit: AuditStore, evidence: EvidenceStore, fix_id: str, *, advisory: Advisory
) -> ResumedFix:
    """Where the fix stands. Call it while the fix is held (``holding``), and go on while it is.

    Raises InputError: no such fix, another advisory, a trail that does not tell; UnansweredError: a budget
    that nobody has raised; EvidenceError: what the trail names is gone.
    """
    history = read_history(audit, fix_id)
    start = _start(history)
    setup = _check_advisory(start, advisory, evidence, fix_id)
    configuration = setup.configuration
    current = history.current
    asked_model = any(t.of(ModelCalled) or t.of(BudgetReached) for t in history.transitions)
    if current.reopened is not None:
        taken = _reopened(history, start, evidence)
        return replace(
            taken,
            needs_model=taken.state.recorded is None,
            asked_model=asked_model,
            proof_failure=setup.proof_failure,
        )
    end = current.end
    if end is not None and (reached := current.stopped) is not None:
        raise UnansweredError(
            f"Fix {fix_id} stopped at its budget, and nobody has raised it.",
            next_step=how_to_go_on(reached, fix_id),
        )
    state = rebuild(history, evidence)
    result = None
    if isinstance(end, TERMINALS):
        result = result_of(end, state, audit, current.scope, advisory.id)
    return ResumedFix(
        gate_transition_id=current.scope.gate_transition_id,
        base_commit=start.base_commit,
        state=state,
        after=current.last_kind,
        raised=tuple(current.of(BudgetRaised)),
        unprotected=bool(current.of(SandboxDisabled)),
        gates=start.gates,
        affected=_affected(start),
        configuration=configuration,
        needs_model=asked_model
        or any(map(configuration.get, _MODELS))
        or bool(start.linked_transition),
        asked_model=asked_model,
        seen=history.last_seq,
        result=result,
        resolutions={} if result else recorded_resolutions(current, evidence),
        proof_failure=setup.proof_failure,
        delivered=current.last_of(PatchDelivered)
        if isinstance(end, FixVerified | FixPatched)
        else None,
    )


def check_base(taken: ResumedFix, base_commit: str, fix_id: str) -> None:
    """Raises RepositoryError where the repository is at another commit than the fix."""
    if taken.base_commit != base_commit:
        raise RepositoryError(
            f"Fix {fix_id} began at commit {taken.base_commit[:12]}, and this is {base_commit[:12]}.",
            next_step="Check out that commit to resume, or start a new fix.",
        )


def check_gates(
    taken: ResumedFix, gates: Sequence[str], configuration: dict[str, JsonValue], fix_id: str
) -> None:
    """Raises InputError where other gates are configured now: the verdicts would mean something else.

    A reopened gate transition has no verdicts yet.
    """
    now = (APPLIES, *gates)
    if taken.linked or not (taken.gates or taken.configuration):
        return
    check_judged_by(taken.configuration, configuration, fix_id)
    if taken.gates == now:
        return
    gone = [f"{name!r} is gone" for name in taken.gates if name not in now]
    new = [f"{name!r} is new" for name in now if name not in taken.gates]
    what = ", ".join([*gone, *new]) or "their order differs"
    raise InputError(
        f"Fix {fix_id} began with other gates: {what}.",
        next_step="Configure the gates as before to resume, or start a new fix.",
    )


def check_judged_by(began: dict[str, JsonValue], now: dict[str, JsonValue], fix_id: str) -> None:
    """Raises InputError where a patch would be judged by something else than what the fix began with."""
    for name in _JUDGED_BY:
        if began.get(name) != now.get(name):
            raise InputError(
                f"Fix {fix_id} began with another configuration of its {name}.",
                next_step=f"`fallback-tier resume {fix_id}` continues with that one; or start a new fix.",
            )


def _start(history: History) -> FixStarted:
    start = history.current.start
    if start is None:
        raise InputError(
            f"{history.fix_id} is no fix of this program's gate runner: another orchestrator keeps its "
            "state.",
            next_step="Call `fallback-tier attempt` again with the same fix_id, gate_transition_id "
            "and prior_attempts.",
        )
    return start


def _reopened(history: History, start: FixStarted, evidence: EvidenceStore) -> ResumedFix:
    """A gate transition that is still to be started: with the old one's last failure, with a first attempt
    if there was none, or with gates alone."""
    old, fix_id = history.current, history.fix_id
    event = old.reopened
    if event is not None and event.judges_again is not None:
        state = FixState(recorded=recorded_patch(history, event.judges_again, evidence))
    else:
        state = FixState(prior_attempts=last_failure(history, old, evidence))
    if event is None or not (state.recorded or can_be_tried_again(history, old)):
        raise InputError(
            f"Fix {fix_id} was reopened, and no attempt of it had failed: there is nothing to continue.",
            next_step="Start a new fix.",
        )
    return ResumedFix(
        gate_transition_id=event.opens,
        base_commit=start.base_commit,
        state=state,
        after=event.kind,
        linked=old.scope.gate_transition_id,
        gates=start.gates,
        affected=_affected(start),
        seen=history.last_seq,
    )


def _affected(start: FixStarted) -> Affected | None:
    """Decided once: neither a registry nor a renamed manifest changes it in mid-fix."""
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


def _check_advisory(
    start: FixStarted, advisory: Advisory, evidence: EvidenceStore, fix_id: str
) -> Setup:
    """Return what the fix began with; an empty setup where an older version began it."""
    ecosystems = ", ".join(advisory.ecosystems)
    if (start.advisory_ids, start.ecosystem) != (advisory.ids, ecosystems):
        raise InputError(
            f"Fix {fix_id} is about {', '.join(start.advisory_ids)} ({start.ecosystem}), and "
            f"--advisory is {', '.join(advisory.ids)} ({ecosystems}).",
            next_step="Give the advisory that the fix began with.",
        )
    if start.inputs_sha256 is None:
        return Setup()
    inputs = get_document(evidence, FixInputs, start.inputs_sha256)
    if inputs.advisory != advisory:
        raise InputError(
            f"Advisory {advisory.id} has changed since fix {fix_id} began.",
            next_step=f"`fallback-tier resume {fix_id}` continues with the advisory as it was; or start a "
            "new fix.",
        )
    return inputs.setup
