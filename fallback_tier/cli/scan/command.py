"""``fallback-tier scan``: vulnerabilities of a repository, and the steps that fix them."""

import argparse
from datetime import UTC, datetime

from rich.console import Console

from fallback_tier.cli import exit_codes
from fallback_tier.cli.ending import code_of
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
from fallback_tier.cli.scan.report import early_lines, show
from fallback_tier.errors import InputError
from fallback_tier.inspection import committed_settings
from fallback_tier.scan.document import ScanResult, ScanRules
from fallback_tier.scan.scanning import STEPS_LIMIT_S, Scanner

#: Options of what only a fix does.
_OF_A_FIX = ("dry_run", "output", "commit", "report", "no_sandbox", "require_tests")


class ScanDocument(ScanResult):
    """What ``scan --json`` prints."""

    exit_code: int


def run(arguments: argparse.Namespace) -> int:
    """Scan and print; with ``--fix``, fix what is shown. Return as exit code whether something is
    vulnerable, or how the fix ended. Raises KeyboardInterrupt once what was found before it is printed."""
    _check_options(arguments)
    repository, user_settings = repository_of(arguments), resolved_settings(arguments)
    configured = configuration(arguments, user_settings) if arguments.fix else None
    # As for gates: with --config, the repository's own settings don't count.
    all_settings = user_settings.over(None if arguments.config else committed_settings(repository))
    watch = watch_of(arguments)
    for text in setting_lines(all_settings):
        watch.detail(text)
    for text in uncommitted_settings(arguments):
        watch.note(text)

    def found(result: ScanResult) -> None:
        for text in early_lines(result, limit_s):
            watch.note(text)

    limit_s = arguments.time_limit or STEPS_LIMIT_S
    with watch.planning() as progress:
        scanner = Scanner(
            advisory_lookup(arguments),
            settings(arguments, user_settings),
            ScanRules.of(all_settings),
            today=datetime.now(UTC).date(),
            resolve=not arguments.no_resolve,
            limit_s=limit_s,
            observe=progress,
            found=found,
        )
        scanned = scanner.scan_with_records(repository)
    if scanned.interrupt is not None:
        _print(arguments, scanned.result, code_of(scanned.interrupt))
        raise scanned.interrupt
    if configured is not None:
        from fallback_tier.cli.scan.fixing import fix_shown

        return fix_shown(scanned, repository, configured, arguments, watch)
    return _print(arguments, scanned.result, exit_code(scanned.result))


def _print(arguments: argparse.Namespace, result: ScanResult, code: int) -> int:
    document = ScanDocument(**dict(result), exit_code=code)
    return print_shown(arguments, document, lambda: show(result, Console()), code)


def _check_options(arguments: argparse.Namespace) -> None:
    """Raise InputError if an option is about a fix, and none is to be made."""
    for name in _OF_A_FIX:
        if not arguments.fix and getattr(arguments, name) not in (None, False):
            raise InputError(
                f"--{name.replace('_', '-')} is about a fix, and a scan alone makes none.",
                next_step="Give --fix as well, or leave it out.",
            )


def exit_code(result: ScanResult) -> int:
    """Return the documented exit code: what is vulnerable counts more than what is unknown."""
    if result.findings:
        return exit_codes.VULNERABLE
    return exit_codes.UNKNOWN if result.is_unknown else exit_codes.OK
