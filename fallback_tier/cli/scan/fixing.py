"""``scan --fix``: the advisories that a scan shows, fixed as ``fix --advisory`` would with each of them.

Their records are those that the scan fetched: nothing is looked up twice, so what is fixed is what was
shown.
"""

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console

from fallback_audit.vocabulary import RefusalReason
from fallback_tier.advisory import AdvisorySet
from fallback_tier.advisory.versions import canonical_name
from fallback_tier.cli import exit_codes
from fallback_tier.cli.fix.command import delivery_of, report_of
from fallback_tier.cli.fix.report import FixReport
from fallback_tier.cli.options import cap_in_words
from fallback_tier.cli.output import print_json
from fallback_tier.cli.progress import CommandWatch
from fallback_tier.cli.scan.report import show, show_not_fixed
from fallback_tier.fix.batch.outcome import Outcome
from fallback_tier.fix.delivery import Fixed, SeveralFixes
from fallback_tier.fix.fixer import open_fixer
from fallback_tier.fix_result import Escalated, OneFix, RefusedFix, Verified
from fallback_tier.scan.document import Finding, NotFixed, ScanResult, WhyLeft
from fallback_tier.scan.scanning import Scanned
from fallback_tier.wiring import Configuration


def fix_shown(
    scanned: Scanned,
    repository: Path,
    configured: Configuration,
    arguments: argparse.Namespace,
    watch: CommandWatch,
) -> int:
    """Show the scan, fix what it shows, and print that. Return the exit code. Raises as ``Fixer.fix``."""
    result = scanned.result
    if not arguments.json:
        show(result, Console())
    advisory_set = AdvisorySet(advisories=scanned.to_fix)
    if not advisory_set.advisories:
        return _finish(scanned, None, None, arguments)
    watch.note(f"fixing {', '.join(advisory.id for advisory in advisory_set.advisories)}")
    with open_fixer(configured, advisory_set, watch) as fixer:
        if (cap := cap_in_words(configured)) is not None:
            watch.note(cap)
        fixed = fixer.fix(advisory_set, repository, delivery_of(arguments))
        report = report_of(fixed, fixer.services)
        if not arguments.json:
            report.show()
        return _finish(scanned, fixed, report, arguments)


def _finish(
    scanned: Scanned, fixed: Fixed | None, report: FixReport | None, arguments: argparse.Namespace
) -> int:
    result, not_fixed = scanned.result, tuple(_not_fixed(scanned, fixed))
    code = _exit_code(result, None if report is None else report.code, not_fixed)
    if arguments.json:
        document = {
            **result.model_dump(mode="json"),
            "fix": None if report is None else report.document(),
            "not_fixed": [item.model_dump(mode="json") for item in not_fixed],
            "exit_code": code,
        }
        print_json(document)
    else:
        remaining = {(item.id, item.package) for item in not_fixed}
        fixed_findings = [
            finding for finding in result.findings if (finding.id, finding.package) not in remaining
        ]
        shown_count = sum(_is_shown_gone(fixed, finding) for finding in fixed_findings)
        show_not_fixed(not_fixed, shown_count, len(result.findings), Console())
    return code


def _exit_code(result: ScanResult, fix_code: int | None, not_fixed: Sequence[NotFixed]) -> int:
    """Return the fix's exit code, unless something stays that it does not count: then it is never 0."""
    codes = set() if fix_code is None else {fix_code}
    if any(item.why is not WhyLeft.NOT_FIXED for item in not_fixed):
        codes.add(exit_codes.REFUSED)
    if result.is_unknown:
        codes.add(exit_codes.UNKNOWN)
    return exit_codes.worst(codes, exit_codes.OK)


def _is_shown_gone(fixed: Fixed | None, finding: Finding) -> bool:
    """Return whether a gate saw a fixed finding's vulnerability gone; otherwise it is patched."""
    if isinstance(fixed, OneFix):
        return isinstance(fixed.result, Verified)
    parts = [] if fixed is None else [part for part in fixed.end.parts if finding.id in part.ids]
    return bool(parts) and all(part.fixed and isinstance(part.fixed[0], Verified) for part in parts)


#: Why a finding is left, and the reason as a sentence; None if it is fixed, or patched.
_End = tuple[WhyLeft, str] | None


def _not_fixed(scanned: Scanned, fixed: Fixed | None) -> Iterator[NotFixed]:
    """Yield the findings that stay. ``fixed``: the end of the fix of ``scanned.to_fix``."""
    ids = {advisory.id for advisory in scanned.to_fix}
    for finding in scanned.result.findings:
        if fixed is None or finding.id not in ids:
            reason = finding.why_not or "The ranges of its record cover no installed version."
            end: _End = (WhyLeft.NOT_TRIED, reason)
        elif isinstance(fixed, OneFix):
            end = _end_of_one(fixed)
        else:
            end = _end_of_several(fixed, finding)
        if end is None and finding.disputed:
            versions = ", ".join(finding.disputed)
            reason = f"The database lists {versions}, and the ranges of its records do not."
            end = (WhyLeft.NOT_AFFECTED, reason)
        if end is not None:
            why, reason = end
            yield NotFixed(id=finding.id, package=finding.package, why=why, reason=reason)


def _end_of_one(fixed: OneFix) -> _End:
    match fixed.result:
        case RefusedFix(reason=RefusalReason.NOT_AFFECTED, sentence=sentence):
            return WhyLeft.NOT_AFFECTED, sentence
        case RefusedFix(sentence=sentence) | Escalated(question=sentence):
            return WhyLeft.NOT_FIXED, sentence
        case _:
            return None


def _end_of_several(fixed: SeveralFixes, finding: Finding) -> _End:
    end = next((end for end in fixed.advisories if end.id == finding.id), None)
    if end is None or end.outcome in (Outcome.NOT_AFFECTED, Outcome.UNDECIDED):
        return WhyLeft.NOT_AFFECTED, "The plan has nothing of it that is affected."
    if end.outcome in (Outcome.FIXED, Outcome.PATCHED):
        return None
    if end.outcome is Outcome.FIXED_IN_PART and _is_raised(fixed, finding):
        return None
    return WhyLeft.NOT_FIXED, " ".join(dict.fromkeys(why.sentence for why in end.why))


def _is_raised(fixed: SeveralFixes, finding: Finding) -> bool:
    """Return whether the delivered patch has all of this package, of an advisory that is fixed in part."""

    def is_its(ecosystem: str, package: str) -> bool:
        name = canonical_name(ecosystem, package) if package else finding.package
        return (ecosystem, name) == (finding.ecosystem, finding.package)

    stays = any(
        finding.id in item.advisory_ids and is_its(item.ecosystem, item.package)
        for item in fixed.end.planned.left
    )
    refused = any(
        finding.id in part.ids and part.ecosystem == finding.ecosystem and part.fixed is None
        for part in fixed.end.parts
    )
    raised = any(
        is_its(part.ecosystem, move.package)
        for part in fixed.end.parts
        if finding.id in part.ids and part.application and part.application.remediation
        for move in part.application.remediation.moves
    )
    return raised and not stays and not refused
