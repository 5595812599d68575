"""``fallback-tier audit``: read the trail, show a fix."""

import argparse
from collections.abc import Iterator, Sequence
from contextlib import closing

from rich.console import Console

from fallback_audit.errors import EvidenceError
from fallback_audit.events import FixStarted, PatchProposed
from fallback_audit.evidence.store import FileEvidenceStore, get_document
from fallback_audit.frozen import Frozen
from fallback_audit.ports import MAINTENANCE, AuditReader, StoredEvent
from fallback_audit.showing.describe import FixSummary, summarise
from fallback_audit.showing.judging_stats import KINDS, JudgingStats, judging_stats
from fallback_audit.showing.render import Renderer, fix_json
from fallback_tier.cli import exit_codes
from fallback_tier.cli.options import record, state_dir
from fallback_tier.cli.output import print_json
from fallback_tier.cli.remediation import (
    MAX_PATCH_LINES,
    line,
    safe,
    show_block,
    show_remediation,
)
from fallback_tier.cli.results import print_result
from fallback_tier.cli.suggesting import command
from fallback_tier.errors import InputError
from fallback_tier.outcome import Applied
from fallback_tier.wiring.trail import (
    ReadOnlyTrail,
    keys_dir,
    open_evidence,
    read_trail,
    segment_dir,
)


def _reader(arguments: argparse.Namespace) -> closing[ReadOnlyTrail]:
    return closing(read_trail(state_dir(arguments), record(arguments)))


def _whole(arguments: argparse.Namespace, reader: ReadOnlyTrail) -> AuditReader:
    """Return a reader that also reads sealed segments, as far as their files are there."""
    if not reader.segments():
        return reader
    from fallback_audit.checkpoints.keyring import Keyring
    from fallback_audit.retention.history import History

    verifiers = Keyring.load(keys_dir(record(arguments))).verifiers()
    return History(reader, segment_dir(state_dir(arguments)), verifiers, only_present=True)


class AuditLog(Frozen):
    """What ``audit log --json`` prints: the gate transitions, in the order of their first events."""

    fixes: tuple[FixSummary, ...]


def log(arguments: argparse.Namespace) -> int:
    """Print one row per gate transition."""
    with _reader(arguments) as reader:
        all_events = _whole(arguments, reader).events()
        # Maintenance is on record, too, but is not a fix.
        events = (event for event in all_events if event.scope.fix_id != MAINTENANCE.fix_id)
        if arguments.json:
            print_json(AuditLog(fixes=tuple(summarise(events))).model_dump(mode="json"))
        else:
            Renderer(Console()).render_log(events)
    return exit_codes.OK


def show(arguments: argparse.Namespace) -> int:
    """Print one fix, event by event. Raises InputError for a fix that is not on record."""
    with _reader(arguments) as reader:
        # A fix is never split: the store has all of its events, or none.
        events = list(reader.events(arguments.fix_id)) or list(
            _whole(arguments, reader).events(arguments.fix_id)
        )
        if not events:
            raise InputError(
                f"There is no fix {arguments.fix_id!r} in the audit trail.",
                next_step="`fallback-tier audit log` lists those on record.",
            )
        evidence = open_evidence(state_dir(arguments))
        if arguments.json:
            print_json(fix_json(events, evidence))
        else:
            _show(events, evidence, Console())
    return exit_codes.OK


def _show(events: Sequence[StoredEvent], evidence: FileEvidenceStore, console: Console) -> None:
    """Print the status, the last patch and its reasons, then event by event, and the next step last."""
    renderer, fix_id = Renderer(console), events[0].scope.fix_id
    if fix_id == MAINTENANCE.fix_id:  # maintenance is not a fix
        renderer.render_fix(events, evidence)
        return
    renderer.render_status(events)
    proposed = [event.payload for event in events if isinstance(event.payload, PatchProposed)]
    if proposed:
        _show_patch(proposed[-1], evidence, console)
    renderer.render_fix(events, evidence)
    last = summarise(events)[-1]
    began = any(isinstance(event.payload, FixStarted) for event in events)
    if last.outcome == "open" and began:
        step = safe(command(f"fallback-tier resume {fix_id}"))
        end = safe(command(f"fallback-tier abandon {fix_id} --reason TEXT"))
        line(
            console,
            f"it has not ended: another process is at it, or it was interrupted. next: {step}",
        )
        line(console, f"or, if nobody is to continue it: {end}")
    elif last.outcome.startswith("escalated"):
        line(console, f"next: {safe(command(f'fallback-tier review show {fix_id}'))}")


def _show_patch(proposed: PatchProposed, evidence: FileEvidenceStore, console: Console) -> None:
    try:
        patch = evidence.get(proposed.patch_sha256).decode("utf-8", "replace")
        digest = proposed.application_sha256
        application = get_document(evidence, Applied, digest) if digest else None
    except EvidenceError as error:
        line(console, f"patch {proposed.patch_sha256[:12]}: {safe(error.problem)}")
        return
    if application is not None and application.remediation is not None:
        show_remediation(console, application.remediation)
    if application is not None and application.plan is not None and application.plan.rationale:
        line(console, f"  plan: {safe(application.plan.rationale)}")
    for note in application.notes if application is not None else ():
        line(console, f"  note: {safe(note)}")
    show_block(console, f"patch {proposed.patch_sha256[:12]}", patch, MAX_PATCH_LINES)


def stats(arguments: argparse.Namespace) -> int:
    """Print how often a judge changed something, and what that added to an attempt."""
    with _reader(arguments) as reader:
        counted = judging_stats(reader.events(kinds=KINDS))
    return print_result(arguments, counted, *_counted(counted))


def _counted(counted: JudgingStats) -> Iterator[str]:
    yield f"plans proposed by a model   {counted.proposed}"
    yield f"  judged                    {counted.judged}"
    yield f"  regenerated               {counted.regenerated}{_share(counted.regeneration_rate)}"
    yield f"  passed on with a flag     {counted.flagged}{_share(counted.flag_rate)}"
    if counted.added_ms_p50 is not None:
        yield f"  added by the judge        {counted.added_ms_p50 / 1_000:.1f} s (median)"
    if counted.regeneration_ms_p50 is not None:
        yield f"  a regeneration            {counted.regeneration_ms_p50 / 1_000:.1f} s (median)"
    for reason, count in sorted(counted.not_evaluated.items()):
        yield f"  not evaluated             {count}: {safe(reason)}"


def _share(rate: float | None) -> str:
    return "" if rate is None else f" ({rate:.0%} of those judged)"
