"""``fallback-tier eval`` where the evaluations are not: in an installed wheel (ADR-0062)."""

import argparse

from fallback_tier.errors import ConfigurationError


def not_here(arguments: argparse.Namespace) -> int:
    """Raises ConfigurationError, always."""
    arguments.json = "--json" in arguments.rest
    raise ConfigurationError(
        "The evaluations are part of the source tree, and not of an installed fallback-tier.",
        next_step="In a checkout of the source: make setup && .venv/bin/fallback-tier eval --help",
    )
