"""``fallback-tier scan``: what is vulnerable, and what would fix it."""

import argparse
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console

from fallback_tier.cli import exit_codes
from fallback_tier.cli.options import advisory_lookup, settings
from fallback_tier.cli.progress import OnTerminal
from fallback_tier.cli.results import print_shown
from fallback_tier.cli.scan.report import show
from fallback_tier.scan.document import ScanResult
from fallback_tier.scan.rules import Ignored, Level, ScanRules
from fallback_tier.scan.scanning import Scanner


class ScanDocument(ScanResult):
    """What ``scan --json`` prints."""

    exit_code: int


def run(arguments: argparse.Namespace) -> int:
    """Scan, print. The exit code says whether something is vulnerable."""
    with OnTerminal(quiet=arguments.json).planning() as progress:
        scanner = Scanner(
            advisory_lookup(arguments),
            settings(arguments),
            rules_of(arguments),
            today=datetime.now(UTC).date(),
            resolve=not arguments.no_resolve,
            observe=progress,
        )
        result = scanner.scan(Path(arguments.repository))
    code = exit_code(result)
    document = ScanDocument(**dict(result), exit_code=code)
    return print_shown(arguments, document, lambda: show(result, Console()), code)


def rules_of(arguments: argparse.Namespace) -> ScanRules:
    """What the options say is left out."""
    return ScanRules(
        severity=Level(arguments.severity) if arguments.severity else None,
        production=arguments.production,
        ignore=tuple(
            Ignored(id=name, reason=reason, until=until) for name, until, reason in arguments.ignore
        ),
    )


def exit_code(result: ScanResult) -> int:
    """The documented exit code: what is vulnerable counts more than what is unknown."""
    if result.findings:
        return exit_codes.VULNERABLE
    return exit_codes.UNKNOWN if result.is_unknown else exit_codes.OK
