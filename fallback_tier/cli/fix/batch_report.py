"""The end of a batch, for people and for machines."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from fallback_tier.cli import exit_codes
from fallback_tier.cli.fix.plan import exit_code as plan_exit_code
from fallback_tier.cli.fix.plan import show_rest
from fallback_tier.cli.fix.report import (
    FixReport,
    exit_code,
    report_end,
    report_patch,
    report_record,
)
from fallback_tier.cli.remediation import line, safe, show_left
from fallback_tier.cli.suggesting import command
from fallback_tier.fix.batch.outcome import (
    HELD_BACK,
    AdvisoryEnd,
    Outcome,
    Part,
    Why,
    ends_of,
    failing_gates,
    merged,
)
from fallback_tier.fix.batch.running import BatchEnd
from fallback_tier.fix.delivery import SeveralFixes
from fallback_tier.fix.document import document
from fallback_tier.fix_result import DeliveryOutcome, OneFix, WithPatch
from fallback_tier.handover.headline import headline
from fallback_tier.planning import RemediationPlan
from fallback_tier.wiring import Services

#: Raised if a name is removed or changes its meaning; a new name does not raise it.
SCHEMA_VERSION = 1

_STYLES = {
    Outcome.FIXED: "[green]fixed[/]",
    Outcome.PATCHED: "[yellow]patched[/]",
    Outcome.FIXED_IN_PART: "[yellow]fixed in part[/]",
    Outcome.NOT_FIXED: "[bold yellow]not fixed[/]",
    Outcome.UNKNOWN: "[bold yellow]unknown[/]",
}


#: About a patch that gates accept, but not together with the others.
_ALONE = "works alone, not together"


def combined_exit_code(
    planned: RemediationPlan, parts: Sequence[Part], *, require_tests: bool = False
) -> int:
    """Return the worst exit code of the parts: a missing tool, then a person's decision, then what is left,
    then what is unknown, then what is not tested, then what is not shown."""
    codes = {exit_code(part.result, require_tests=require_tests) for part in parts}
    codes.add(plan_exit_code(planned))
    if any(part.application is None for part in parts):
        # It was planned and not done, whatever the reason.
        codes.add(exit_codes.REFUSED)
    return exit_codes.worst(codes, exit_codes.NOT_AFFECTED)


def report_several(fixed: SeveralFixes, services: Services) -> FixReport:
    """Return the report of how the batch ended."""
    end, ends, outcome = fixed.end, fixed.advisories, fixed.delivery
    configured = services.configuration
    code = combined_exit_code(end.planned, end.parts, require_tests=configured.require_tests)
    return FixReport(
        code,
        document=lambda: batch_document(end, ends, outcome, code=code),
        show=lambda: report_batch(end, ends, outcome, Console(), services),
    )


def batch_document(
    end: BatchEnd, ends: Sequence[AdvisoryEnd], outcome: DeliveryOutcome, *, code: int
) -> dict[str, object]:
    """Return a batch for machines: each advisory with its end, and each part with its own."""
    planned = end.planned.model_dump(mode="json", exclude={"fixes", "resolved"})
    return {
        **planned,
        **run_document(end.parts, ends, outcome, code=code),
        "taken_apart": end.taken_apart,
        "gate_runs": end.trials,
    }


def one_document(fixed: OneFix, *, code: int) -> dict[str, object]:
    """Return the fix of one advisory for machines: the fields of every run, and the fix's own."""
    part = Part(", ".join(fixed.advisory.ecosystems), fixed.advisory, fixed.result)
    run = run_document([part], ends_of(part), fixed.delivery, code=code)
    return {**document(fixed.result), **run}


def run_document(
    parts: Sequence[Part], ends: Sequence[AdvisoryEnd], outcome: DeliveryOutcome, *, code: int
) -> dict[str, object]:
    """Return the fields that every run has, over one advisory or several."""
    fixes = [
        {
            **document(part.result),
            **_headline(part),
            "ecosystem": part.ecosystem,
            "advisory_ids": part.ids,
            "in_part": part.advisory.in_part,
            "failing_gates": failing_gates(part.result),
            "delivered": outcome.delivered and part.application is not None,
            "held_back": part.held_back,
        }
        for part in parts
    ]
    return {
        "schema_version": SCHEMA_VERSION,
        "advisories": [end.model_dump(mode="json") for end in ends],
        "fixes": fixes,
        **outcome.document(),
        "exit_code": code,
    }


def report_batch(
    end: BatchEnd,
    ends: Sequence[AdvisoryEnd],
    outcome: DeliveryOutcome,
    console: Console,
    services: Services,
) -> None:
    """Print what was delivered, what was not and why, then each advisory in a line."""
    for part in end.parts:
        _report_part(part, console, services.configuration.state_dir)
    show_left(console, end.planned.left)
    show_rest(console, end.planned)
    if not (end.parts or end.planned.left or end.planned.findings):
        line(console, "[bold]not affected[/]  there is nothing to fix")
    _report_advisories(ends, end.parts, console)
    patch = merged([part.application for part in end.parts if part.application])
    if patch is not None:
        report_patch(patch, console, outcome)
    failed = any(not isinstance(part.result, WithPatch) for part in end.parts)
    if services.has_model and (end.planned.left or failed):
        alone = command("fallback-tier fix REPO --advisory THAT")
        line(console, f"  next: a model is asked for one advisory at a time: {safe(alone)}")


def _headline(part: Part) -> dict[str, str]:
    """Return a headline only if something stays ("in part") or the patch is held back ("not delivered")."""
    if not isinstance(part.result, WithPatch):
        return {}
    if part.held_back is not None:
        return {"headline": f"not delivered: {part.held_back}"}
    if not part.advisory.in_part:
        return {}
    return {"headline": f"{headline(part.result)}; in part: {', '.join(part.advisory.in_part)}"}


def _report_part(part: Part, console: Console, state_dir: Path) -> None:
    undelivered = None
    if part.held_back is not None:
        undelivered = f"{_ALONE}; not delivered" if part.fails_with else "not delivered"
    report_end(part.result, console, state_dir, undelivered=undelivered)
    ids = safe(", ".join(part.ids))
    line(console, f"  {part.ecosystem}, {len(part.ids)} in all: {ids}")
    if part.application is not None and part.advisory.in_part:
        line(console, f"  [yellow]in part[/]: {safe(', '.join(part.advisory.in_part))}")
    if part.held_back is not None:
        line(console, f"  [yellow]not delivered[/]: {safe(part.held_back)}")
    report_record(part.result, console)


def _report_advisories(
    ends: Sequence[AdvisoryEnd], parts: Sequence[Part], console: Console
) -> None:
    fails_with_by_id = {
        name: part.fails_with for part in parts if part.fails_with for name in part.ids
    }
    for end in ends:
        if end.outcome is Outcome.NOT_FIXED and end.id in fails_with_by_id:
            fails_with = safe(", ".join(fails_with_by_id[end.id]))
            line(console, f"[yellow]{_ALONE}[/]  {safe(end.id)}: it fails with {fails_with}")
        elif end.outcome in _STYLES:
            reasons = ", ".join(dict.fromkeys(_short(why) for why in end.why))
            more = f": {safe(reasons)}" if reasons else ""
            line(console, f"{_STYLES[end.outcome]}  {safe(end.id)}{more}")


def _short(why: Why) -> str:
    if why.reason == HELD_BACK:
        return "its patch is not delivered"
    gates = ", ".join(why.failing_gates)
    return f"{why.reason} at {gates}" if gates else why.reason
