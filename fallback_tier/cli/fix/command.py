"""``fallback-tier fix``: a proved patch, or an honest reason."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from fallback_tier.advisory import AdvisorySet, AdvisorySource
from fallback_tier.cli.fix.report import FixReport, exit_code, next_steps, report
from fallback_tier.cli.options import (
    advisory_lookup,
    cap_in_words,
    configuration,
    repository_of,
    resolved_settings,
    setting_lines,
    uncommitted_settings,
)
from fallback_tier.cli.output import print_json
from fallback_tier.cli.progress import watch_of
from fallback_tier.fix.advisories import advisories_to_fix, sources_document
from fallback_tier.fix.delivery import Delivery, Fixed
from fallback_tier.fix.fixer import Fixer, open_fixer
from fallback_tier.fix_result import OneFix
from fallback_tier.wiring import Services


def run(arguments: argparse.Namespace) -> int:
    """Fix, prove, deliver, report. The exit code says how it ended."""
    lookup = advisory_lookup(arguments)
    given = advisories_to_fix([Path(path) for path in arguments.advisory], lookup)
    watch = watch_of(arguments)
    says = resolved_settings(arguments)  # once: a file of settings may be a pipe
    configured = configuration(arguments, says)
    for text in setting_lines(says):
        watch.detail(text)
    for text in uncommitted_settings(arguments):
        watch.note(text)
    with open_fixer(configured, given, watch) as fixer:
        for source in given.sources:
            watch.note(source.sentence)
        if (cap := cap_in_words(configured)) is not None:
            watch.note(cap)
        return run_with(given, fixer, arguments)


def run_with(given: AdvisorySet, fixer: Fixer, arguments: argparse.Namespace) -> int:
    """The same with a fixer that is there already."""
    repository, where = repository_of(arguments), delivery_of(arguments)
    if arguments.resume is None:
        fixed = fixer.fix(given, repository, where)
    else:
        fixed = fixer.resume(arguments.resume, given=given, repository=repository, delivery=where)
    return finish(fixed, fixer.services, as_json=arguments.json, sources=given.sources)


def delivery_of(arguments: argparse.Namespace) -> Delivery:
    """Where the options say that a proved patch goes."""
    output, report = arguments.output, arguments.report
    return Delivery(
        dry_run=arguments.dry_run,
        output=Path(output) if output else None,
        commit=arguments.commit,
        report=Path(report) if report else None,
    )


def finish(
    fixed: Fixed,
    services: Services,
    *,
    as_json: bool,
    sources: Sequence[AdvisorySource] = (),
) -> int:
    """Report the end; returns the exit code. ``sources``: of the records that were looked up."""
    ended = report_of(fixed, services)
    if as_json:
        print_json({**ended.document(), **sources_document(sources)})
    else:
        ended.show()
    return ended.code


def report_of(fixed: Fixed, services: Services) -> FixReport:
    """Return how it ended, to be printed."""
    if not isinstance(fixed, OneFix):
        from fallback_tier.cli.fix.batch_report import report_several

        return report_several(fixed, services)
    result, configured = fixed.result, services.configuration
    code = exit_code(result, require_tests=configured.require_tests)

    def as_document() -> dict[str, object]:
        from fallback_tier.cli.fix.batch_report import one_document

        steps = next_steps(result)
        reported = one_document(fixed, code=code)
        return {**reported, "next_steps": list(steps)} if steps else reported

    return FixReport(
        code,
        document=as_document,
        show=lambda: report(result, Console(), fixed.delivery, configured.state_dir),
    )
