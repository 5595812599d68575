"""``scan --fix``: the advisories that a scan shows, fixed as ``fix --advisory`` would with each of them.

Their records are those that the scan fetched: nothing is looked up twice, so that what is fixed is what was
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
    """Show the scan, fix what it shows, print. Raises as ``Fixer.fix``; returns the exit code."""
    result = scanned.result
    if not arguments.json:
        show(result, Console())
    given = AdvisorySet(advisories=scanned.to_fix)
    if not given.advisories:
        return _finish(scanned, None, None, arguments)
    watch.note(f"fixing {', '.join(advisory.id for advisory in given.advisories)}")
    with open_fixer(configured, given, watch) as fixer:
        if (cap := cap_in_words(configured)) is not None:
            watch.note(cap)
        fixed = fixer.fix(given, repository, delivery_of(arguments))
        ended = report_of(fixed, fixer.services)
        if not arguments.json:
            ended.show()
        return _finish(scanned, fixed, ended, arguments)


def _finish(
    scanned: Scanned, fixed: Fixed | None, ended: FixReport | None, arguments: argparse.Namespace
) -> int:
    result, not_fixed = scanned.result, tuple(_not_fixed(scanned, fixed))
    code = _exit_code(result, None if ended is None else ended.code, not_fixed)
    if arguments.json:
        document = {
            **result.model_dump(mode="json"),
            "fix": None if ended is None else ended.document(),
            "not_fixed": [one.model_dump(mode="json") for one in not_fixed],
            "exit_code": code,
        }
        print_json(document)
    else:
        left = {(one.id, one.package) for one in not_fixed}
        gone = [it for it in result.findings if (it.id, it.package) not in left]
        shown = sum(_is_shown_gone(fixed, finding) for finding in gone)
        show_not_fixed(not_fixed, shown, len(result.findings), Console())
    return code


def _exit_code(result: ScanResult, of_fix: int | None, not_fixed: Sequence[NotFixed]) -> int:
    """Return fix's own, unless something stays that it does not count: what is left is never 0."""
    codes = set() if of_fix is None else {of_fix}
    if any(one.why is not WhyLeft.NOT_FIXED for one in not_fixed):
        codes.add(exit_codes.REFUSED)
    if result.is_unknown:
        codes.add(exit_codes.UNKNOWN)
    return exit_codes.worst(codes, exit_codes.OK)


def _is_shown_gone(fixed: Fixed | None, finding: Finding) -> bool:
    """Whether a gate saw the flaw of a finding that does not stay gone; otherwise it is patched."""
    if isinstance(fixed, OneFix):
        return isinstance(fixed.result, Verified)
    parts = [] if fixed is None else [it for it in fixed.end.parts if finding.id in it.ids]
    return bool(parts) and all(part.fixed and isinstance(part.fixed[0], Verified) for part in parts)


#: Why a finding is left, and the reason as a sentence; None: it is fixed, or patched.
_End = tuple[WhyLeft, str] | None


def _not_fixed(scanned: Scanned, fixed: Fixed | None) -> Iterator[NotFixed]:
    """Yield the findings that stay. ``fixed``: how the fix of the records that it was given ended."""
    given = {advisory.id for advisory in scanned.to_fix}
    for finding in scanned.result.findings:
        if fixed is None or finding.id not in given:
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
    end = next((it for it in fixed.advisories if it.id == finding.id), None)
    if end is None or end.outcome in (Outcome.NOT_AFFECTED, Outcome.UNDECIDED):
        return WhyLeft.NOT_AFFECTED, "The plan has nothing of it that is affected."
    if end.outcome in (Outcome.FIXED, Outcome.PATCHED):
        return None
    if end.outcome is Outcome.FIXED_IN_PART and _is_raised(fixed, finding):
        return None
    return WhyLeft.NOT_FIXED, " ".join(dict.fromkeys(why.sentence for why in end.why))


def _is_raised(fixed: SeveralFixes, finding: Finding) -> bool:
    """Whether the delivered patch has all of this package, of an advisory that is fixed in part."""

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
