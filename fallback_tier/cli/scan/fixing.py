"""``scan --fix``: the advisories that a scan shows, fixed as ``fix --advisory`` would with each of them.

Their records are those that the scan fetched: nothing is looked up twice, so that what is fixed is what was
shown.
"""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from rich.console import Console

from fallback_audit.vocabulary import RefusalReason
from fallback_tier.advisory import AdvisorySet
from fallback_tier.batch.outcome import AdvisoryEnd, Outcome
from fallback_tier.cli import exit_codes
from fallback_tier.cli.fix.command import delivery_of, report_of
from fallback_tier.cli.fix.report import FixReport
from fallback_tier.cli.options import cap_in_words
from fallback_tier.cli.output import print_json
from fallback_tier.cli.progress import OnTerminal
from fallback_tier.cli.scan.report import show, show_not_fixed
from fallback_tier.fix.delivery import Fixed
from fallback_tier.fix.fixer import open_fixer
from fallback_tier.gates.result import Escalated, OneFix, RefusedFix
from fallback_tier.scan.document import NotFixed, ScanResult, WhyLeft
from fallback_tier.scan.scanning import Scanned
from fallback_tier.wiring import Configuration


def fix_shown(
    scanned: Scanned,
    repository: Path,
    configured: Configuration,
    arguments: argparse.Namespace,
    watch: OnTerminal,
) -> int:
    """Show the scan, fix what it shows, print. Raises as ``Fixer.fix``; returns the exit code."""
    result = scanned.result
    if not arguments.json:
        show(result, Console())
    given = AdvisorySet(advisories=scanned.to_fix)
    if not given.advisories:
        return _finish(result, None, {}, arguments)
    watch.note(f"fixing {', '.join(advisory.id for advisory in given.advisories)}")
    with open_fixer(configured, given, watch) as fixer:
        if (cap := cap_in_words(configured)) is not None:
            watch.note(cap)
        fixed = fixer.fix(given, repository, delivery_of(arguments))
        ended = report_of(fixed, fixer.services)
        if not arguments.json:
            ended.show()
        return _finish(result, ended, dict(_ends(fixed)), arguments)


#: Why an advisory is left, and the reason as a sentence; None: it is fixed.
_End = tuple[WhyLeft, str] | None


def _finish(
    result: ScanResult,
    ended: FixReport | None,
    ends: Mapping[str, _End],
    arguments: argparse.Namespace,
) -> int:
    not_fixed = tuple(_not_fixed(result, ends))
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
        show_not_fixed(not_fixed, Console())
    return code


def _exit_code(result: ScanResult, of_fix: int | None, not_fixed: Sequence[NotFixed]) -> int:
    """Return fix's own, unless something stays that it does not count: what is left is never 0."""
    codes = set() if of_fix is None else {of_fix}
    if any(one.why is not WhyLeft.NOT_FIXED for one in not_fixed):
        codes.add(exit_codes.REFUSED)
    if result.is_unknown:
        codes.add(exit_codes.UNKNOWN)
    return exit_codes.worst(codes, exit_codes.OK)


def _ends(fixed: Fixed) -> Iterator[tuple[str, _End]]:
    """Yield each advisory that the fix was given, by its id."""
    if not isinstance(fixed, OneFix):
        for end in fixed.advisories:
            yield end.id, _end_of_several(end)
        return
    result = fixed.result
    match result:
        case RefusedFix(reason=RefusalReason.NOT_AFFECTED, sentence=sentence):
            yield result.advisory_id, (WhyLeft.NOT_AFFECTED, sentence)
        case RefusedFix(sentence=sentence) | Escalated(question=sentence):
            yield result.advisory_id, (WhyLeft.NOT_FIXED, sentence)
        case _:
            yield result.advisory_id, None


def _end_of_several(end: AdvisoryEnd) -> _End:
    if end.outcome in (Outcome.FIXED, Outcome.PATCHED):
        return None
    if end.outcome in (Outcome.NOT_AFFECTED, Outcome.UNDECIDED):
        return WhyLeft.NOT_AFFECTED, "The plan has nothing that is affected."
    return WhyLeft.NOT_FIXED, " ".join(dict.fromkeys(why.sentence for why in end.why))


def _not_fixed(result: ScanResult, ends: Mapping[str, _End]) -> Iterator[NotFixed]:
    """Yield the findings that stay. ``ends``: of the advisories that a fix was begun for."""
    for finding in result.findings:
        reason = finding.why_not or "The ranges of its record cover no installed version."
        end = ends.get(finding.id, (WhyLeft.NOT_TRIED, reason))
        if end is not None:
            why, reason = end
            yield NotFixed(id=finding.id, package=finding.package, why=why, reason=reason)
