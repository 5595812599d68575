"""The verbs of ``fallback-tier audit``."""

import argparse

from fallback_tier.cli.arguments import add_fix_id, finish
from fallback_tier.cli.audit.parser_keys import add_checkpoint, add_keygen, add_prove
from fallback_tier.cli.audit.parser_postgres import add_init_postgres
from fallback_tier.cli.audit.parser_retention import (
    add_begin_again,
    add_evidence,
    add_redact,
    add_retire,
    add_seal,
)
from fallback_tier.cli.audit.parser_verify import add_export, add_import, add_verify


def add_verbs(parser: argparse.ArgumentParser) -> None:
    """log, show, verify, stats, and what keeps the record."""
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    log = verbs.add_parser("log", help="list the fixes on record")
    show = verbs.add_parser("show", help="show one fix, event by event")
    add_fix_id(show, "audit log")
    stats = verbs.add_parser("stats", help="show how often a judge changed something, and its cost")
    for verb, name in ((log, "log"), (show, "show"), (stats, "stats")):
        finish(verb, f"audit.trails:{name}")
    add_verify(verbs)
    add_export(verbs)
    add_import(verbs)
    add_checkpoint(verbs)
    add_keygen(verbs)
    add_prove(verbs)
    add_redact(verbs)
    add_seal(verbs)
    add_retire(verbs)
    add_evidence(verbs)
    add_begin_again(verbs)
    add_init_postgres(verbs)
