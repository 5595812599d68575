"""The study of retry policies: its cases in their order, and its folder of results, answers and report."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Final

from fallback_eval.campaign import Rows, check_disk, write_files
from fallback_eval.document import markdown
from fallback_eval.retry.calls import CALLS, Call, Calls
from fallback_eval.retry.policies import COMPARED, EXPLORED, FIRST_ATTEMPTS, Policy
from fallback_eval.retry.run import RetryCase, Row, Setup, run_case
from fallback_eval.retry.tasks import Language, Task, load_tasks

CALLS_NAME: Final = "calls.jsonl"
REPORT_NAME: Final = "report.md"

#: A file with this name, beside the rows, says that no more rows will come, and why.
ENDED_NAME: Final = "ended.txt"

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

#: The seed of the policies that are explored; its first attempts are the main comparison's.
EXPLORED_SEED: Final = 1

ROWS: Final = Rows(Row, key=lambda row: row.name, order=lambda row: row.name)


def load_cases(root: Path, only: Sequence[str] = ()) -> tuple[RetryCase, ...]:
    """Return the cases, seed by seed, the pilot's, and last those that are explored (first attempts of one
    seed, retries, first attempts of the other seeds); those named, or all.

    A name is ``TASK.POLICY.SEED``. Raises InputError. A task's policies follow each other, and tasks of a
    language: a server keeps what their prompts have in common. The pilot has its first attempts first.
    """
    load_tasks(root, list(dict.fromkeys(name.split(".")[0] for name in only)))  # are there such?
    tasks = load_tasks(root)
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
    explored = [RetryCase(task, policy, EXPLORED_SEED) for policy in EXPLORED for task in ordered]
    firsts = {
        seed: [
            RetryCase(task, policy, seed, tasks if policy is Policy.FIRST_RETRIEVED else ())
            for policy in FIRST_ATTEMPTS
            for task in ordered
        ]
        for seed in SEEDS
    }
    one, *others = (firsts[seed] for seed in SEEDS)
    cases = (*main, *pilot, *one, *explored, *chain.from_iterable(others))
    return tuple(case for case in cases if not only or case.name in only)


def is_done(row: Row | None, case: RetryCase) -> bool:
    """Return whether a case has a row of its task's present form."""
    return row is not None and row.task_sha256 == case.task.digest


def other_forms(rows: Sequence[Row], tasks: Sequence[Task]) -> list[str]:
    """Return the names of rows whose task is gone, or has another form now."""
    digests = {task.name: task.digest for task in tasks}
    return [row.name for row in rows if digests.get(row.task) != row.task_sha256]


@dataclass(frozen=True)
class Estimate:
    """What the cases that are due may cost, from the cases that were run. None: none was run."""

    cases: int
    calls: float | None
    input_tokens: float | None
    output_tokens: float | None
    seconds: float | None


def estimate(due: Sequence[RetryCase], rows: Sequence[Row], calls: Sequence[Call]) -> Estimate:
    """Return the mean over answers kept so far, times those that the due cases may ask for.

    An answer that policies share is counted once, so the mean is of new answers per case.
    """
    used = {key for row in rows for key in row.calls}
    kept = [call for call in calls if call.key in used]
    if not rows or not kept:
        return Estimate(len(due), None, None, None, None)
    share = len(due) / len(rows)
    return Estimate(
        len(due),
        share * len(kept),
        share * sum(call.input_tokens for call in kept),
        share * sum(call.output_tokens for call in kept),
        share * sum(call.seconds for call in kept),
    )


@dataclass(frozen=True)
class StudyFolder:
    """The folder of a study. ``root``: that of its tasks."""

    path: Path
    root: Path

    def rows(self) -> tuple[Row, ...]:
        """Return the rows. Raises OSError, RowError."""
        return ROWS.read(self.path)

    def calls(self) -> tuple[Call, ...]:
        """Return the kept answers. Raises OSError, RowError."""
        return tuple(CALLS.read(self.path / CALLS_NAME).values())

    def texts(self) -> dict[str, str]:
        """Return report and plots by name, made from the rows. Raises OSError, RowError, InputError."""
        # The extra `eval` is needed where a report is made, not where cases are run.
        from fallback_eval.retry.report import Study, page, plots

        tasks = load_tasks(self.root)
        study = Study(
            pilot_seed=PILOT_SEED,
            seeds=SEEDS,
            cases=len(tasks) * len(SEEDS) * len(COMPARED),
            languages={task.name: task.language.value for task in tasks},
            has_ended=(self.path / ENDED_NAME).exists(),
        )
        rows = self.rows()
        drawn = {f"{name}.svg": text for name, text in plots(rows, study).items()}
        return {REPORT_NAME: markdown(page(rows, study)), **drawn}

    def publish(self) -> None:
        """Write report and plots. Raises OSError, RowError, InputError."""
        write_files(self.path, self.texts())

    def faults(self) -> list[str]:
        """Return what does not fit: report and rows, rows and tasks, rows and answers."""
        found = []
        for name, text in self.texts().items():
            place = self.path / name
            if not place.exists() or place.read_text(encoding="utf-8") != text:
                found.append(f"{name} is not made from the rows: --again")
        rows, kept = self.rows(), {call.key for call in self.calls()}
        found += [
            f"{name} was run with another form of its task: run it again"
            for name in other_forms(rows, load_tasks(self.root))
        ]
        found += [
            f"{row.name} has an answer that is not kept: run it again"
            for row in rows
            if not kept.issuperset(row.calls)
        ]
        return [*found, *ROWS.faults(rows, "")]


def replayed(folder: StudyFolder, into: Path, only: Sequence[str] = ()) -> list[str]:
    """Make every kept row again from kept answers, without a server, and keep them in ``into``, which
    resumes. Return the names of rows that come out otherwise. Raises OSError, RowError, InputError,
    EvaluationError where an answer is missing."""
    kept, calls = ROWS.by_key(folder.path), Calls(folder.path / CALLS_NAME)
    done, found = ROWS.by_key(into), []
    for case in load_cases(folder.root, only):
        row = kept.get(case.name)
        if row is None:
            continue
        again = done.get(case.name)
        if again is None:
            check_disk()
            again = run_case(case, Setup(row.model, calls))
            ROWS.keep(again, into)
        if again.model_copy(update={"seconds": row.seconds}) != row:
            found.append(f"{case.name} comes out otherwise")
    return found
