"""``python -m tests.campaigns.retry``: the retry policies over small vulnerable programs."""

import argparse
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

from fallback_eval.campaign import Campaign, parser_of
from fallback_eval.retry import study
from fallback_eval.retry.calls import Calls, LlamaServer, check_loopback
from fallback_eval.retry.run import RetryCase, Row, Setup, run_case
from fallback_eval.retry.tasks import load_tasks

TASKS: Final = Path(__file__).with_name("tasks")
FOLDER: Final = Path(__file__).parents[3] / "docs" / "evaluation" / "retry"


def load_cases(only: Sequence[str]) -> tuple[RetryCase, ...]:
    """Return the study's cases; those named, or all. Raises InputError."""
    return study.load_cases(TASKS, only)


def _prepare(arguments: argparse.Namespace, due: Sequence[RetryCase]) -> Callable[[RetryCase], Row]:
    server = None
    if arguments.base_url is not None:
        server = LlamaServer(check_loopback(arguments.base_url))
    setup = Setup(arguments.model, Calls(arguments.folder / study.CALLS_NAME), server)
    return lambda case: run_case(case, setup)


def _sentence(row: Row) -> str:
    kinds = ", ".join(one.failure_kind or "passed" for one in row.attempts)
    return f"{row.outcome} {row.reason} ({kinds}); stricter: {row.stricter}"


def _faults(rows: Sequence[Row]) -> Iterable[str]:
    for name in study.other_forms(rows, load_tasks(TASKS)):
        yield f"{name} was run with another form of its task: run it again"


def _options() -> argparse.ArgumentParser:
    parser = parser_of("python -m tests.campaigns.retry", __doc__, FOLDER)
    parser.add_argument(
        "--base-url", metavar="URL", help="a running llama-server; without it, kept answers alone"
    )
    parser.add_argument(
        "--model", default="qwen2.5-coder-1.5b-instruct-q4_k_m", help="its model, as recorded"
    )
    parser.add_argument("--pilot", action="store_true", help="the cases of the pilot alone")
    return parser


def _is_done(row: Row | None, case: RetryCase, arguments: argparse.Namespace) -> bool:
    if arguments.pilot and case.seed != study.PILOT_SEED:
        return True
    return study.is_done(row, case)


CAMPAIGN = Campaign(
    name="retry",
    parser=_options,
    rows=study.ROWS,
    cases=load_cases,
    key=lambda case, _: case.name,
    prepare=_prepare,
    is_done=_is_done,
    sentence=_sentence,
    faults=_faults,
)

if __name__ == "__main__":
    sys.exit(CAMPAIGN.main())
