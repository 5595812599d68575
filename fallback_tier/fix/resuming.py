"""A fix that was interrupted, or that a person let go on: what it began with, and its rest."""

from dataclasses import dataclass
from pathlib import Path

from fallback_audit.events import Digest
from fallback_audit.ports import AuditReader, EvidenceStore
from fallback_tier.advisory import Advisory
from fallback_tier.errors import InputError
from fallback_tier.fix.ends import OneFix
from fallback_tier.fix.one import delivered
from fallback_tier.fix.watching import Watch
from fallback_tier.gates.journal.history import read_history
from fallback_tier.gates.journal.holding import holding
from fallback_tier.gates.journal.inputs import FixInputs, Setup
from fallback_tier.gates.journal.resume import (
    ResumedFix,
    check_base,
    check_gates,
    inputs_of,
    judges_only,
    resume_from_trail,
)
from fallback_tier.gates.result import FixResult
from fallback_tier.gates.trees.isolation import inspect_repository
from fallback_tier.gates.trees.worktrees import remove_leftovers
from fallback_tier.handover.delivery import deliver
from fallback_tier.handover.interrupted_delivery import complete
from fallback_tier.installed import as_found, look_at
from fallback_tier.wiring import Services


@dataclass(frozen=True)
class RecordedStart:
    """``asks`` False: only gates are to be run, no model is asked. ``is_reopened``: by a person."""

    inputs: FixInputs
    asks: bool
    is_reopened: bool


def recorded_start(trail: AuditReader, evidence: EvidenceStore, fix_id: str) -> RecordedStart:
    """What is on record of its beginning. Raises InputError where there is no such fix; EvidenceError."""
    inputs = inputs_of(trail, evidence, fix_id)
    asks = not inputs.setup.several and not judges_only(trail, fix_id)
    is_reopened = read_history(trail, fix_id).current.reopened is not None
    return RecordedStart(inputs, asks, is_reopened)


def check_is_whole_run(fix_id: str, found: RecordedStart) -> Digest:
    """The run over several advisories that a part goes on with. Raises InputError: it can't."""
    batch = found.inputs.setup.batch_sha256
    if batch is not None and not found.is_reopened:
        return batch
    alone = f"Run `fallback-tier fix` for {', '.join(found.inputs.advisory.ids)} alone."
    again = "Run that `fallback-tier fix` again: recipes ask no model, so nothing is paid twice."
    raise InputError(
        f"Fix {fix_id} is one part of a run over several advisories, whose patches are delivered "
        "together.",
        next_step=alone if found.is_reopened else again,
    )


def resume_one(
    fix_id: str,
    advisory: Advisory,
    repository: Path,
    services: Services,
    setup: Setup,
    watch: Watch,
) -> OneFix:
    """The rest of a fix: its gates, its delivery, or only the news that it had ended."""
    with holding(services.configuration.state_dir, fix_id):
        taken = resume_from_trail(services.audit, services.evidence, fix_id, advisory=advisory)
        if taken.result is not None:
            return _ended(taken.result, taken, advisory, repository, services, setup, watch)
        services.check_raised(taken.raised)
        _check_whose(taken, services)
        repo = look_at(repository, services.clients, services.configuration.settings)
        check_base(taken, repo.base_commit, fix_id)
        inputs = services.inputs_on(
            repo,
            advisory,
            fix_id=fix_id,
            gate_transition_id=taken.gate_transition_id,
            affected=taken.affected,
            makes=taken.state.recorded is None,
        )
        with watch.fixing() as watcher:
            runner = services.gate_runner(
                advisory, watcher, setup, repo=inputs.repo_ctx, report=watcher.report
            )
            check_gates(taken, runner.gate_names, runner.setup.configuration, fix_id)
            result = runner.resume(inputs.advisory, inputs.repo_ctx, inputs.recipe_selection, taken)
        return delivered(result, advisory, inputs.repo_ctx, services, setup, deliver)


def _check_whose(taken: ResumedFix, services: Services) -> None:
    """Decided once: raises InputError where the options say now that somebody else's code is affected."""
    now = services.configuration.settings.whose_code
    if now is not None and taken.affected is not None and now is not taken.affected.code:
        raise InputError(
            f"The fix began as one of {taken.affected.code} code, and the options say {now} now.",
            next_step="Resume it without them, or start a new fix.",
        )


def _ended(
    result: FixResult,
    taken: ResumedFix,
    advisory: Advisory,
    repository: Path,
    services: Services,
    setup: Setup,
    watch: Watch,
) -> OneFix:
    """Its end is on record. What may be missing is the delivery of a proved patch."""
    fix_id = result.fix_id
    remove_leftovers(services.configuration.state_dir)
    facts = inspect_repository(repository, services.clients)
    repo = as_found(facts, services.configuration.settings).model_copy(update={"fix_id": fix_id})
    check_base(taken, repo.base_commit, fix_id)
    watch.note(f"fix {fix_id} has ended ({taken.after}): no gate is run again")
    how = taken.delivered or complete
    return delivered(result, advisory, repo, services, setup, how)
