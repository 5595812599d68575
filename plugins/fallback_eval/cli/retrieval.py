"""``fallback-tier eval``: measure, publish, check."""

import argparse
import sys
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from fallback_audit.showing.describe import visible
from fallback_eval.cli.reporting import print_check
from fallback_tier.cli import exit_codes
from fallback_tier.cli.output import print_json
from fallback_tier.cli.progress import Shown
from fallback_tier.errors import ConfigurationError
from fallback_tier.files.folders import users_folder

if TYPE_CHECKING:
    from fallback_eval.retrieval.publish import Folder
    from fallback_eval.retrieval.run import Options

#: What the extra ``eval`` brings.
_EXTRA = ("numpy", "matplotlib")


def retrieval(arguments: argparse.Namespace) -> int:
    """Run variants (or not: --check, --again), make the report; ENVIRONMENT where a check fails."""
    require_extra()
    if arguments.check:
        return _check(arguments)
    if arguments.unjudged:
        return _unjudged(arguments)
    if not arguments.again:
        _run(arguments)
    return _publish(arguments)


def require_extra() -> None:
    """Raises ConfigurationError where the extra ``eval`` is not installed."""
    if missing := [name for name in _EXTRA if find_spec(name) is None]:
        raise ConfigurationError(
            f"An evaluation needs the extra `eval`, and {' and '.join(missing)} can't be imported.",
            next_step="pip install 'fallback-tier[eval]' (with [eval,embeddings] for all variants).",
        )


def _run(arguments: argparse.Namespace) -> None:
    from fallback_eval.retrieval.publish import RAW, RAW_RESERVED
    from fallback_eval.retrieval.run import run
    from fallback_eval.retrieval.variants import code_defaults

    folder = _folder(arguments)
    options = _options(arguments)
    with StageProgress(Console(stderr=True)) as progress:
        results = run(options, progress)
    if options.split == "reserved":
        # Noted before anything is kept: a look counts, also one that nobody liked.
        folder.path.mkdir(parents=True, exist_ok=True)
        folder.note_look(results, code_defaults(), datetime.now(UTC))
    results.save(folder.path / (RAW_RESERVED if options.split == "reserved" else RAW))


def _options(arguments: argparse.Namespace) -> "Options":
    from fallback_eval.retrieval.build import CrossEncoderFiles
    from fallback_eval.retrieval.run import Options

    if arguments.data is None:
        raise ConfigurationError(
            "To run variants, --data names the folder of the data set.",
            next_step="Give --data DIR; or --again or --check, which need no data.",
        )
    if arguments.repeats < 1:
        raise ConfigurationError(
            f"--repeats {arguments.repeats}: each query is asked at least once.",
            next_step="Give 1 or more.",
        )
    files = arguments.cross_encoder
    return Options(
        data=Path(arguments.data),
        golden=Path(arguments.golden),
        cache=users_folder("cache") / "evaluation",
        split="reserved" if arguments.reserved else "dev",
        only=tuple(arguments.only),
        repeats=arguments.repeats,
        cross_encoder=CrossEncoderFiles(*map(Path, files)) if files else None,
    )


def _publish(arguments: argparse.Namespace) -> int:
    from fallback_eval.retrieval.goals import goals
    from fallback_eval.retrieval.run import claims
    from fallback_eval.retrieval.variants import code_defaults

    folder = _folder(arguments)
    evidence = folder.publish(code_defaults(), claims())
    reached = goals(evidence.analysis)
    if arguments.json:
        document = {one.name: asdict(one) for one in reached}
        print_json({"report": str(folder.path), "goals": document})
        return exit_codes.OK
    for one in reached:
        sys.stdout.write(f"{one.verdict:12} {one.name} {one.wanted}: {one.measured}\n")
    sys.stdout.write(f"report: {visible(str(folder.path / 'report.html'))}\n")
    return exit_codes.OK


def _check(arguments: argparse.Namespace) -> int:
    from fallback_eval.retrieval.run import claims
    from fallback_eval.retrieval.variants import code_defaults

    return print_check(
        _folder(arguments).faults(code_defaults(), claims()),
        as_json=arguments.json,
        if_none="the report follows from code, golden set and raw results",
    )


def _unjudged(arguments: argparse.Namespace) -> int:
    from fallback_eval.retrieval.analysis import unjudged
    from fallback_eval.retrieval.golden import load_golden
    from fallback_eval.retrieval.publish import RAW
    from fallback_eval.retrieval.results import load_results

    folder = _folder(arguments)
    found = unjudged(load_results(folder.path / RAW), load_golden(folder.golden))
    for (query, example), names in found.items():
        print_json({"query": query, "example": example, "variants": names})
    return exit_codes.OK


def _folder(arguments: argparse.Namespace) -> "Folder":
    from fallback_eval.retrieval.publish import Folder

    return Folder(Path(arguments.report), Path(arguments.golden))


class StageProgress(Shown):
    """What is being done, on a terminal; nothing elsewhere. Use as a context manager."""

    def __init__(self, console: Console) -> None:
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
        )

        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
        )
        self._progress = Progress(*columns, console=console, disable=not console.is_terminal)
        super().__init__(self._progress)
        self._tasks: dict[str, Any] = {}

    def __call__(self, what: str, done: int, total: int) -> None:
        """One bar a stage; ``asking …`` shares one, whose text changes."""
        stage = what.partition(" ")[0]
        if stage not in self._tasks:
            self._tasks[stage] = self._progress.add_task(what)
        self._progress.update(self._tasks[stage], description=what, completed=done, total=total)
