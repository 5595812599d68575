"""The command that is measured, and the options of a measure of it."""

import argparse
import subprocess
import sys
from functools import cache
from pathlib import Path

from fallback_eval.campaign import add_halves, parser_of

#: The command of this environment.
SCRIPT = Path(sys.prefix) / "bin" / "fallback-tier"


@cache
def version_of(script: Path) -> str:
    """What the tool calls itself; of this checkout's own also the commit."""
    reported = subprocess.run([script, "--version"], capture_output=True, text=True, check=True)
    name = reported.stdout.strip()
    if script != SCRIPT:
        return name
    describe = ["git", "describe", "--always", "--dirty=+changes"]
    here = Path(__file__).parent
    commit = subprocess.run(describe, cwd=here, capture_output=True, text=True).stdout.strip()
    return f"{name} at {commit}" if commit else name


def tool_options(prog: str, about: str | None, folder: Path) -> argparse.ArgumentParser:
    """Return a parser with the options of a measure of the whole tool, over repositories in two halves."""
    parser = parser_of(prog, about, folder)
    add_halves(parser)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="the data sets")
    parser.add_argument(
        "--clones", type=Path, metavar="DIR", help="bare clones, OWNER+NAME.git each"
    )
    parser.add_argument("--command", type=Path, default=SCRIPT, help="another fallback-tier")
    parser.add_argument("--label", default="now", help="of the rows that this run makes")
    return parser
