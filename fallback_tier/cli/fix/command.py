"""``fallback-tier fix``: a proved patch, or the reason why there is none."""

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
    """Fix, prove, deliver, report. Return how it ended, as an exit code."""
    lookup = advisory_lookup(arguments)
    advisory_set = advisories_to_fix([Path(path) for path in arguments.advisory], lookup)
    watch = watch_of(arguments)
    user_settings = resolved_settings(arguments)  # once: a file of settings may be a pipe
    configured = configuration(arguments, user_settings)
    for text in setting_lines(user_settings):
        watch.detail(text)
    for text in uncommitted_settings(arguments):
        watch.note(text)
    with open_fixer(configured, advisory_set, watch) as fixer:
        for source in advisory_set.sources:
            watch.note(source.sentence)
        if (cap := cap_in_words(configured)) is not None:
            watch.note(cap)
        return run_with(advisory_set, fixer, arguments)


def run_with(advisory_set: AdvisorySet, fixer: Fixer, arguments: argparse.Namespace) -> int:
    """Do the same with an existing fixer."""
    repository, delivery = repository_of(arguments), delivery_of(arguments)
    if arguments.resume is None:
        fixed = fixer.fix(advisory_set, repository, delivery)
    else:
        fixed = fixer.resume(
            arguments.resume, given=advisory_set, repository=repository, delivery=delivery
        )
    return finish(fixed, fixer.services, as_json=arguments.json, sources=advisory_set.sources)


def delivery_of(arguments: argparse.Namespace) -> Delivery:
    """Return where a proved patch goes, by the options."""
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
    """Report the end and return the exit code. ``sources``: of the records that were looked up."""
    fix_report = report_of(fixed, services)
    if as_json:
        print_json({**fix_report.document(), **sources_document(sources)})
    else:
        fix_report.show()
    return fix_report.code


def report_of(fixed: Fixed, services: Services) -> FixReport:
    """Return the report of how the fix ended."""
    if not isinstance(fixed, OneFix):
        from fallback_tier.cli.fix.batch_report import report_several

        return report_several(fixed, services)
    result, configured = fixed.result, services.configuration
    code = exit_code(result, require_tests=configured.require_tests)

    def as_document() -> dict[str, object]:
        from fallback_tier.cli.fix.batch_report import one_document

        steps = next_steps(result)
        fix_document = one_document(fixed, code=code)
        return {**fix_document, "next_steps": list(steps)} if steps else fix_document

    return FixReport(
        code,
        document=as_document,
        show=lambda: report(result, Console(), fixed.delivery, configured.state_dir),
    )
