"""``fallback-tier examples``: fill the solved-example memory."""

import argparse
import sys
from pathlib import Path

from fallback_plugins.solved_examples import ExampleStore, load_jsonl
from fallback_tier.cli import exit_codes
from fallback_tier.cli.output import print_json


def ingest(arguments: argparse.Namespace) -> int:
    """Add validated fixes, all or none. Raises InputError naming file and line."""
    counts = ExampleStore(Path(arguments.store)).ingest(load_jsonl(Path(arguments.records)))
    if arguments.json:
        print_json(counts.model_dump())
    else:
        sys.stdout.write(f"{counts.added} added, {counts.duplicates} already there\n")
    return exit_codes.OK
