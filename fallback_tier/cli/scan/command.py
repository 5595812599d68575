"""``fallback-tier scan``: what is vulnerable, and what would fix it."""

import argparse
from datetime import UTC, datetime

from rich.console import Console

from fallback_tier.cli import exit_codes
from fallback_tier.cli.options import advisory_lookup, decided, repository_of, settings
from fallback_tier.cli.progress import OnTerminal
from fallback_tier.cli.results import print_shown
from fallback_tier.cli.scan.report import show
from fallback_tier.installed import committed_settings
from fallback_tier.scan.document import ScanResult
from fallback_tier.scan.rules import ScanRules
from fallback_tier.scan.scanning import Scanner


def run(arguments: argparse.Namespace) -> int:
    """Scan, print. The exit code says whether something is vulnerable."""
    repository, says = repository_of(arguments), decided(arguments)
    # As gates are: with --config, what the repository says does not count.
    committed = None if arguments.config else committed_settings(repository)
    with OnTerminal(quiet=arguments.json).planning() as progress:
        scanner = Scanner(
            advisory_lookup(arguments),
            settings(arguments, says),
            ScanRules.of(says.over(committed)),
            today=datetime.now(UTC).date(),
            resolve=not arguments.no_resolve,
            observe=progress,
        )
        result = scanner.scan(repository)
    code = exit_code(result)
    document = {**result.model_dump(mode="json"), "exit_code": code}
    return print_shown(arguments, document, lambda: show(result, Console()), code)


def exit_code(result: ScanResult) -> int:
    """The documented exit code: what is vulnerable counts more than what is unknown."""
    if result.findings:
        return exit_codes.VULNERABLE
    return exit_codes.UNKNOWN if result.is_unknown else exit_codes.OK
