"""The options of ``config``, added when it is called."""

import argparse

from fallback_tier.cli.arguments import (
    add_json,
    add_scan_rules,
    count,
    dollars,
    parse_days,
    seconds,
    words,
)

#: Those of `fix` that a setting stands for: what they are read as, and what `--help` calls their value.
_OPTIONS = (
    ("--model", str, "NAME"),
    ("--base-url", str, "URL"),
    ("--judge-model", str, "NAME"),
    ("--judge-base-url", str, "URL"),
    ("--max-usd", dollars, "N"),
    ("--max-usd-per-day", dollars, "N"),
    ("--max-tokens", count, "N"),
    ("--max-tokens-per-day", count, "N"),
    ("--release-age", parse_days, "DAYS"),
    ("--test-timeout", seconds, "SECONDS"),
)


def add_verbs(parser: argparse.ArgumentParser) -> None:
    """What is shown, and of which repository."""
    parser.description = (
        "Show each setting and where it comes from. The first of these that has a setting\n"
        "counts: an option of `fix` or `scan`, a variable (FALLBACK_TIER_ and the key), the\n"
        "file of --config, your own file, the file that is committed in REPO, the default. A\n"
        "repository may not set models, addresses and budgets."
    )
    parser.add_argument(
        "repository",
        nargs="?",
        metavar="REPO",
        help="also read what its current commit says (default: no repository is read)",
    )
    parser.add_argument(
        "--config",
        metavar="FILE",
        help="TOML with [tool.fallback-tier], instead of the repository's own",
    )
    parser.add_argument(
        "--schema",
        action="store_true",
        help="print the JSON schema of these files, for editors, and nothing else",
    )
    for option, read, metavar in _OPTIONS:
        parser.add_argument(option, type=read, metavar=metavar, help="as for fix")
    parser.add_argument(
        "--test-command",
        action="append",
        type=words,
        default=[],
        metavar="CMD",
        help="as for fix",
    )
    add_scan_rules(parser)
    add_json(parser)
    parser.set_defaults(handler="fallback_tier.cli.config.command:run")
