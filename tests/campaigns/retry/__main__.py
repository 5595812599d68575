"""``python -m tests.campaigns.retry``: the retry policies over small vulnerable programs."""

import argparse
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

from fallback_eval.campaign import Campaign, Rows, parser_of
from fallback_eval.retry.calls import Calls, LlamaServer, check_loopback
from fallback_eval.retry.policies import COMPARED
from fallback_eval.retry.run import RetryCase, Row, Setup, run_case
from fallback_eval.retry.tasks import Language, load_tasks

TASKS: Final = Path(__file__).with_name("tasks")
FOLDER: Final = Path(__file__).parents[3] / "docs" / "evaluation" / "retry"

CALLS: Final = "calls.jsonl"

#: Tasks by which difficulty and cost were measured before the others were written, and the seed of that.
PILOT: Final = (
    "csv_cell",
    "header_value",
    "html_attr",
    "merge_deep",
    "redirect_target",
    "shell_grep",
    "sql_filter",
    "token_equal",
    "trim_tail",
    "upload_path",
)
PILOT_SEED: Final = 0

#: Seeds of the main comparison, in this order: each adds a first attempt of every task.
SEEDS: Final = (1, 2, 3)

ROWS: Final = Rows(Row, key=lambda row: row.name, order=lambda row: row.name)


def load_cases(only: Sequence[str]) -> tuple[RetryCase, ...]:
    """Return the cases, first the pilot's, then seed by seed; those named, or all.

    A name is ``TASK.POLICY.SEED``. Raises InputError. Tasks of a language follow each other: a server
    keeps what their prompts have in common. The pilot has its first attempts first.
    """
    tasks = load_tasks(TASKS, list(dict.fromkeys(name.split(".")[0] for name in only)))
    ordered = sorted(tasks, key=lambda task: (task.language is Language.JAVASCRIPT, task.name))
    pilot = [
        RetryCase(task, policy, PILOT_SEED)
        for policy in COMPARED
        for task in ordered
        if task.name in PILOT
    ]
    main = [
        RetryCase(task, policy, seed) for seed in SEEDS for task in ordered for policy in COMPARED
    ]
    return tuple(case for case in (*pilot, *main) if not only or case.name in only)


def _prepare(arguments: argparse.Namespace, due: Sequence[RetryCase]) -> Callable[[RetryCase], Row]:
    server = None
    if arguments.base_url is not None:
        server = LlamaServer(check_loopback(arguments.base_url))
    setup = Setup(arguments.model, Calls(arguments.folder / CALLS), server)
    return lambda case: run_case(case, setup)


def _sentence(row: Row) -> str:
    kinds = ", ".join(one.failure_kind or "passed" for one in row.attempts)
    return f"{row.outcome} {row.reason} ({kinds}); stricter: {row.stricter}"


def _faults(rows: Sequence[Row]) -> Iterable[str]:
    digests = {case.name: case.task.digest for case in load_cases(())}
    for row in rows:
        if digests.get(row.name, row.task_sha256) != row.task_sha256:
            yield f"{row.name} was run with another form of its task: run it again"


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
    if arguments.pilot and case.seed != PILOT_SEED:
        return True
    return row is not None and row.task_sha256 == case.task.digest


CAMPAIGN = Campaign(
    name="retry",
    parser=_options,
    rows=ROWS,
    cases=load_cases,
    key=lambda case, _: case.name,
    prepare=_prepare,
    is_done=_is_done,
    sentence=_sentence,
    faults=_faults,
)

if __name__ == "__main__":
    sys.exit(CAMPAIGN.main())
