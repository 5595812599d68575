"""``fallback-tier schema``: the JSON Schema of what a command prints with ``--json``."""

import argparse
import sys
from importlib.resources import files

from fallback_tier.cli import exit_codes
from fallback_tier.errors import InputError

_SUFFIX = ".schema.json"


def run(arguments: argparse.Namespace) -> int:
    """Print the schema, or the names of all. Raises InputError for an unknown name."""
    schemas = {
        entry.name.removesuffix(_SUFFIX): entry
        for entry in (files("fallback_tier") / "schemas").iterdir()
    }
    if not arguments.name:
        sys.stdout.writelines(f"{name}\n" for name in sorted(schemas))
        return exit_codes.OK
    name = "-".join(arguments.name)
    if name not in schemas:
        raise InputError(
            f"There is no schema {name!r}.",
            next_step="`fallback-tier schema` lists those there are.",
        )
    sys.stdout.write(schemas[name].read_text(encoding="utf-8"))
    return exit_codes.OK
