"""A fix that was interrupted, or that a person let go on: what it began with, and its rest."""

from dataclasses import dataclass
from pathlib import Path

from fallback_audit.events import Digest
from fallback_audit.ports import AuditReader, EvidenceStore
from fallback_tier.advisory import Advisory
from fallback_tier.errors import InputError
from fallback_tier.fix.ends import OneFix
from fallback_tier.fix.opened import Asked, resumed
from fallback_tier.fix.watching import Watch
from fallback_tier.gates.journal.history import read_history
from fallback_tier.gates.journal.inputs import FixInputs, Setup
from fallback_tier.gates.journal.resume import inputs_of, judges_only
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
    with resumed(Asked(advisory, services, setup, watch), fix_id, repository) as fix:
        return fix.to_the_end()
