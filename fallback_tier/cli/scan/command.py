"""``fallback-tier scan``: what is vulnerable, and what fixes it."""

import argparse
from datetime import UTC, datetime

from rich.console import Console

from fallback_tier.cli import exit_codes
from fallback_tier.cli.options import (
    advisory_lookup,
    configuration,
    repository_of,
    resolved_settings,
    setting_lines,
    settings,
    uncommitted_settings,
)
from fallback_tier.cli.progress import watch_of
from fallback_tier.cli.results import print_shown
from fallback_tier.cli.scan.report import show
from fallback_tier.errors import InputError
from fallback_tier.installed import committed_settings
from fallback_tier.scan.document import ScanResult, ScanRules
from fallback_tier.scan.scanning import Scanner

#: Options that promise something which only a fix does.
_OF_A_FIX = ("dry_run", "output", "commit", "report", "no_sandbox", "require_tests")


class ScanDocument(ScanResult):
    """What ``scan --json`` prints."""

    exit_code: int


def run(arguments: argparse.Namespace) -> int:
    """Scan, print; with ``--fix``, fix what is shown. The exit code says whether something is vulnerable,
    or how the fix ended."""
    _check_options(arguments)
    repository, says = repository_of(arguments), resolved_settings(arguments)
    configured = configuration(arguments, says) if arguments.fix else None
    # As gates are: with --config, what the repository says does not count.
    all_says = says.over(None if arguments.config else committed_settings(repository))
    watch = watch_of(arguments)
    for text in setting_lines(all_says):
        watch.detail(text)
    for text in uncommitted_settings(arguments):
        watch.note(text)
    with watch.planning() as progress:
        scanner = Scanner(
            advisory_lookup(arguments),
            settings(arguments, says),
            ScanRules.of(all_says),
            today=datetime.now(UTC).date(),
            resolve=not arguments.no_resolve,
            observe=progress,
        )
        scanned = scanner.scan_with_records(repository)
    if configured is not None:
        from fallback_tier.cli.scan.fixing import fix_shown

        return fix_shown(scanned, repository, configured, arguments, watch)
    result = scanned.result
    code = exit_code(result)
    document = ScanDocument(**dict(result), exit_code=code)
    return print_shown(arguments, document, lambda: show(result, Console()), code)


def _check_options(arguments: argparse.Namespace) -> None:
    """Raises InputError: an option is about a fix, and none is to be made."""
    for name in _OF_A_FIX:
        if not arguments.fix and getattr(arguments, name) not in (None, False):
            raise InputError(
                f"--{name.replace('_', '-')} is about a fix, and a scan alone makes none.",
                next_step="Give --fix as well, or leave it out.",
            )


def exit_code(result: ScanResult) -> int:
    """The documented exit code: what is vulnerable counts more than what is unknown."""
    if result.findings:
        return exit_codes.VULNERABLE
    return exit_codes.UNKNOWN if result.is_unknown else exit_codes.OK
