"""``python -m tests.campaigns.retry.peers``: other ways to use the study's model, on the study's tasks."""

import argparse
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

from fallback_eval.campaign import Campaign, Rows, parser_of
from fallback_eval.document import markdown
from fallback_eval.retry import study
from fallback_eval.retry.calls import CALLS, Calls
from fallback_eval.retry.tasks import load_tasks
from tests.campaigns.retry.__main__ import FOLDER as STUDY
from tests.campaigns.retry.__main__ import TASKS
from tests.campaigns.retry.peers.cases import (
    BLOCK,
    PeerCase,
    Row,
    Setup,
    judged_again,
    load_cases,
    run_case,
)
from tests.campaigns.retry.peers.model import llama_server
from tests.campaigns.retry.peers.programs import Environments
from tests.campaigns.retry.peers.report import page

FOLDER: Final = STUDY / "peers"


def _page(rows: Sequence[Row]) -> str:
    return markdown(page(rows, study.ROWS.read(STUDY)))


ROWS: Final = Rows(Row, key=lambda row: row.name, page=_page, order=lambda row: row.name)


def _cases(only: Sequence[str]) -> tuple[PeerCase, ...]:
    return load_cases(TASKS, only)


def _prepare(arguments: argparse.Namespace, due: Sequence[PeerCase]) -> Callable[[PeerCase], Row]:
    del due
    upstream = None if arguments.base_url is None else llama_server(arguments.base_url)
    calls = Calls(arguments.folder / study.CALLS_NAME)
    setup = Setup(arguments.model, calls, Environments(arguments.environments.resolve()), upstream)
    return lambda case: run_case(case, setup)


def _is_done(row: Row | None, case: PeerCase, arguments: argparse.Namespace) -> bool:
    if case.number >= arguments.tasks:
        return True
    return row is not None and row.task_sha256 == case.task.digest


def _sentence(row: Row) -> str:
    return f"{row.outcome} ({row.stopped}, {len(row.calls)} calls); stricter: {row.stricter}"


def _faults(rows: Sequence[Row]) -> Iterable[str]:
    """Yield rows of another form of their task, and those whose patch gets another verdict now."""
    tasks = {task.name: task for task in load_tasks(TASKS)}
    for row in rows:
        task = tasks.get(row.task)
        if task is None or task.digest != row.task_sha256:
            yield f"{row.name} was run with another form of its task: run it again"
            continue
        verdict = judged_again(row, task)
        if (verdict.outcome, verdict.stricter) != (row.outcome, row.stricter):
            yield f"{row.name} is {verdict.outcome}, stricter {verdict.stricter}, when judged again"


def _options() -> argparse.ArgumentParser:
    parser = parser_of("python -m tests.campaigns.retry.peers", __doc__, FOLDER)
    parser.add_argument(
        "--base-url", metavar="URL", help="a running llama-server; without it, kept answers alone"
    )
    parser.add_argument(
        "--model", default="qwen2.5-coder-1.5b-instruct-q4_k_m", help="its model, as recorded"
    )
    parser.add_argument(
        "--tasks", type=int, default=BLOCK, metavar="N", help="the first N tasks in the drawn order"
    )
    parser.add_argument(
        "--environments",
        type=Path,
        default=Path("peers"),
        metavar="DIR",
        help="virtual environments of the peers: DIR/aider, DIR/mini",
    )
    return parser


def missing_answers(folder: Path) -> list[str]:
    """Return the names of rows with an answer that is not kept. Raises OSError, RowError."""
    kept = CALLS.read(folder / study.CALLS_NAME)
    return [row.name for row in ROWS.read(folder) if not kept.keys() >= set(row.calls)]


CAMPAIGN = Campaign(
    name="retry peers",
    parser=_options,
    rows=ROWS,
    cases=_cases,
    key=lambda case, _: case.name,
    prepare=_prepare,
    is_done=_is_done,
    sentence=_sentence,
    faults=_faults,
)

if __name__ == "__main__":
    sys.exit(CAMPAIGN.main())
