"""``fallback-tier local-model``: a small model for this machine."""

import argparse
import sys
from pathlib import Path

from rich.console import Console

from fallback_audit.frozen import Frozen
from fallback_tier.cli import exit_codes
from fallback_tier.cli.output import print_json
from fallback_tier.cli.progress import Shown


class ModelFetched(Frozen):
    """What ``local-model fetch --json`` prints."""

    file: str
    name: str
    sha256: str


def fetch(arguments: argparse.Namespace) -> int:
    """Fetch the model and print how to use it."""
    from fallback_plugins.messages_api.local import FETCHED_NAME, FETCHED_SHA256, fetch_model

    with _Parts(Console(stderr=True, quiet=arguments.json)) as shown:
        model = fetch_model(Path(arguments.folder), shown)
    if arguments.json:
        fetched = ModelFetched(file=str(model), name=FETCHED_NAME, sha256=FETCHED_SHA256)
        print_json(fetched.model_dump())
    else:
        sys.stdout.write(f"{model}\nUse it with: --model local:{model}\n")
    return exit_codes.OK


class _Parts(Shown):
    """Progress of a download, in parts."""

    def __init__(self, console: Console) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
        self._progress = Progress(*columns, console=console, disable=not console.is_terminal)
        super().__init__(self._progress)
        self._task = self._progress.add_task("model", total=None)

    def __call__(self, what: str, done: int, total: int) -> None:
        self._progress.update(self._task, description=what, completed=done, total=total)
