"""``python -m tests.campaigns.recipes_bench DATA``: run the cases, judge them, write the report.

``make bench-recipes`` calls it. Exit code 0: the run is complete, whatever it found; with ``--check``,
1 where a goal is missed.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from fallback_eval.campaign import RESULTS, measure
from tests.campaigns.recipes_bench import report
from tests.campaigns.recipes_bench.cases import Case, unpack
from tests.campaigns.recipes_bench.gates import proved
from tests.campaigns.recipes_bench.judge import Verdict, judge
from tests.campaigns.recipes_bench.raw import ROWS, Raw
from tests.campaigns.recipes_bench.reviews import Reviews
from tests.campaigns.recipes_bench.run import run_case
from tests.campaigns.recipes_bench.summary import goals

_ROOT = Path(__file__).parents[3]

#: Columns of the tables where they do not go to a terminal.
WIDTH = 140


def main(argv: Sequence[str] | None = None) -> int:
    """See the module."""
    options = _parser().parse_args(argv)
    options.results.mkdir(parents=True, exist_ok=True)
    every = unpack(options.data, options.results / "cases")
    cases = [case for case in every if options.only in case.name]
    file, whole = options.results / RESULTS, len(cases) == len(every)
    if whole and not (options.resume or options.judge_only):
        file.unlink(missing_ok=True)
    known = ROWS.read(file)
    if options.judge_only and (lacking := [case.name for case in cases if case.name not in known]):
        raise SystemExit(f"{lacking[0]} was not run: leave --judge-only out, or add --resume.")
    if wanted := [case for case in cases if _is_due(case, known, options)]:
        _run(wanted, file, options.workers)
    reviews, raws = Reviews.load(), ROWS.read(file)
    verdicts = [judge(case, raws[case.name], reviews) for case in cases]
    _print(verdicts, whole=whole)
    gates = list(proved(verdicts, cases, options.gates)) if options.gates else []
    for line in gates:
        sys.stdout.write(f"{line}\n")
    if whole:
        _keep(verdicts, reviews, options, gates)
    return int(options.check and not all(goal.met for goal in goals(verdicts)))


def _is_due(case: Case, known: Mapping[str, Raw], options: argparse.Namespace) -> bool:
    return not options.judge_only and not (options.resume and case.name in known)


def _run(cases: Sequence[Case], file: Path, workers: int) -> None:
    def keep(raw: Raw, which: str) -> None:
        ROWS.add(raw, file)
        sys.stderr.write(f"{which} {raw.case}: {raw.outcome} {raw.reason} ({raw.seconds} s)\n")

    # Spawned, a process each: a case's alarm needs a main thread of its own.
    pool = partial(ProcessPoolExecutor, mp_context=get_context("spawn"))
    measure(cases, run_case, keep, jobs=workers, pool=pool)


def _print(verdicts: Sequence[Verdict], *, whole: bool) -> None:
    from rich.console import Console

    console = Console()
    if not console.is_terminal:
        console = Console(width=WIDTH)
    report.show(console, verdicts, whole=whole)


def _keep(
    verdicts: Sequence[Verdict], reviews: Reviews, options: argparse.Namespace, gates: list[str]
) -> None:
    date = datetime.now(UTC).date().isoformat()
    facts = {"date": date, "clients": _clients(), "gates": gates}
    text = json.dumps(report.document(verdicts, facts), indent=2, ensure_ascii=False)
    (options.results.parent / "recipes.json").write_text(text + "\n")
    if options.report is not None:
        options.report.write_text(report.markdown(verdicts, reviews, facts))


def _clients() -> str:
    beside = Path(sys.executable).parent
    commands: dict[str, list[Any]] = {"npm": ["npm"], "uv": [beside / "uv"]}
    messages = []
    for name, command in commands.items():
        done = subprocess.run([*command, "--version"], capture_output=True, check=True, text=True)
        messages.append(
            f"{name} {done.stdout.split()[-1] if name == 'npm' else done.stdout.split()[1]}"
        )
    return ", ".join(messages)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.campaigns.recipes_bench", description=__doc__
    )
    parser.add_argument("data", type=Path, help="folder that has recipe-cases.tar.xz")
    parser.add_argument("--only", default="", metavar="TEXT", help="cases whose name has TEXT")
    parser.add_argument("--resume", action="store_true", help="run only what has no result yet")
    parser.add_argument("--judge-only", action="store_true", help="judge the kept results again")
    parser.add_argument("--check", action="store_true", help="exit code 1 where a goal is missed")
    parser.add_argument(
        "--gates", type=int, metavar="N", help="prove N of the fixed cases with the whole command"
    )
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument(
        "--results", type=Path, default=_ROOT / "bench-results" / "recipes", metavar="DIR"
    )
    parser.add_argument("--report", type=Path, metavar="FILE", help="write the Markdown report")
    return parser


if __name__ == "__main__":
    sys.exit(main())
