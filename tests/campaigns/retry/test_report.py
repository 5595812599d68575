"""Figures of the comparison: of rows that are known, and again of those that are committed."""

import json
import re
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path

import pytest

from fallback_audit.vocabulary import FailureKind
from fallback_eval.document import markdown
from fallback_eval.retry import report as analysis
from fallback_eval.retry.calls import Call
from fallback_eval.retry.policies import COMPARED, EXPLORED, FIRST_ATTEMPTS, Policy
from fallback_eval.retry.report import BY_ATTEMPT, DIFFERENCES, Study, is_complete, page, plots
from fallback_eval.retry.run import Attempt, RetryCase, Row
from fallback_eval.retry.study import (
    CALLS_NAME,
    EXPLORED_SEED,
    PILOT,
    PILOT_SEED,
    REPORT_NAME,
    ROWS,
    SEEDS,
    StudyFolder,
    estimate,
    load_cases,
    replayed,
)
from fallback_eval.retry.tasks import load_tasks
from fallback_tier.cli.exit_codes import ENVIRONMENT
from fallback_tier.cli.main import main
from tests.campaigns.retry.__main__ import FOLDER, TASKS

FRESH, FULL, TALK = COMPARED
COMMITTED = StudyFolder(FOLDER, TASKS)


def attempt(kind: FailureKind | None, mark: str, tokens: int = 100) -> Attempt:
    """``mark``: two hexadecimal digits for its edits and its failure."""
    return Attempt(
        failure_kind=kind,
        edits=mark * 32,
        signature=None if kind is None else mark * 32,
        calls=1,
        input_tokens=tokens,
        output_tokens=10,
    )


def row(
    task: str,
    policy: Policy,
    marks: str,
    *,
    fixed: bool,
    seed: int = 1,
    stricter: bool = False,
    tokens: int = 100,
) -> Row:
    """``marks``: one digit per attempt, of which the last passes in a row that is fixed."""
    last = len(marks) - 1
    attempts = [
        attempt(None if fixed and number == last else FailureKind.PROOF_FAILED, mark * 2, tokens)
        for number, mark in enumerate(marks)
    ]
    return Row(
        task=task,
        policy=policy,
        seed=seed,
        task_sha256="0" * 64,
        model="none",
        outcome="verified" if fixed else "escalated",
        stricter=stricter if fixed else None,
        attempts=tuple(attempts),
        model_seconds=len(marks),
        seconds=0,
    )


def case(task: str, wins: Sequence[Policy], seed: int = 1) -> list[Row]:
    """Rows of a task whose first attempt fails, and that ``wins`` fix at the second."""
    return [
        row(task, policy, "12" if policy in wins else "1111", fixed=policy in wins, seed=seed)
        for policy in COMPARED
    ]


ROWS_OF_ALL = [
    *case("a", [FRESH]),
    *case("b", [FRESH, FULL]),
    *case("c", []),
    *case("d", [FRESH, TALK]),
    *[row("e", policy, "1", fixed=True, stricter=True) for policy in COMPARED],
    # Without the other policies it is no pair, but a first attempt.
    row("f", FRESH, "12", fixed=True),
]


def test_pairs_and_first_tries() -> None:
    found = analysis.triples(ROWS_OF_ALL, (1,))
    assert [one[FRESH].task for one in found] == list("abcde")
    assert [one[FRESH].task for one in analysis.continued(found)] == list("abcd")
    assert analysis.fixed_by(analysis.continued(found), FRESH) == (3, 3, 3)
    assert analysis.fixed_by(found[4:], FRESH) == (1, 1, 1)
    assert analysis.first_tries(ROWS_OF_ALL, (1,)) == analysis.FirstTries(6, 1, 1)
    assert analysis.first_tries(ROWS_OF_ALL, (2,)).rate is None


def test_comparison_counts_pairs_and_tests_tasks() -> None:
    pairs = analysis.continued(analysis.triples(ROWS_OF_ALL, (1,)))
    full, talk = analysis.primary(pairs)
    assert (full.both, full.first_alone, full.second_alone, full.pairs) == (1, 2, 0, 4)
    assert (talk.both, talk.first_alone, talk.second_alone) == (1, 2, 0)
    assert full.discordance == 0.5
    assert full.p_value == 0.5
    assert full.adjusted == 1
    assert full.difference is not None
    assert full.difference.mean == 0.5
    assert full.difference.low <= 0.5 <= full.difference.high
    stricter = analysis.compare(pairs, FRESH, FULL, analysis.is_stricter)
    assert (stricter.both, stricter.first_alone) == (0, 0)


def test_seeds_of_a_task_are_one_value() -> None:
    rows = [*case("a", [FRESH]), *case("a", [FULL], seed=2), *case("a", [FRESH], seed=3)]
    pairs = analysis.continued(analysis.triples(rows, (1, 2, 3)))
    found = analysis.compare(pairs, FRESH, FULL)
    assert (found.pairs, found.tasks, found.first_alone, found.second_alone) == (3, 1, 2, 1)
    assert found.p_value == 1
    assert found.difference is not None
    assert found.difference.mean == pytest.approx(1 / 3)


def test_equal_cost_takes_away_what_was_dearer() -> None:
    rows = [
        row("a", FRESH, "12", fixed=True, tokens=100),
        row("a", FULL, "12", fixed=True, tokens=101),
        row("a", TALK, "12", fixed=True, tokens=100),
    ]
    pairs = analysis.triples(rows, (1,))
    full, talk = analysis.at_equal_cost(pairs)
    assert (full.both, full.first_alone) == (0, 1)
    assert (talk.both, talk.first_alone) == (1, 0)


def test_cost_and_repetition() -> None:
    found = analysis.triples(ROWS_OF_ALL, (1,))
    spent = analysis.cost(found, FULL)
    assert (spent.cases, spent.fixed, spent.stricter) == (5, 2, 1)
    assert spent.tokens_per_fix == 15 * 110  # 4 + 2 + 4 + 4 + 1 attempts
    assert spent.seconds_per_fix == 15
    repeated = analysis.repeats(analysis.continued(found), FULL)
    assert (repeated.retries, repeated.same_edits) == (10, 9)
    assert (repeated.failed, repeated.same_failure) == (9, 9)
    nothing = analysis.cost([], FULL)
    assert nothing.tokens_per_fix is None
    assert nothing.seconds_per_fix is None


def test_split_by_first_failure() -> None:
    pairs = analysis.continued(analysis.triples(ROWS_OF_ALL, (1,)))
    (only,) = analysis.split(pairs, analysis.first_failure)
    assert (only.name, only.pairs) == ("proof_failed", 4)
    assert only.fixed == {FRESH: 3, FULL: 1, TALK: 1}


def study(*, has_ended: bool, cases: int = 99) -> Study:
    return Study(PILOT_SEED, (1,), cases, {}, has_ended)


def test_differences_are_not_shown_before_the_end() -> None:
    running, ended = study(has_ended=False), study(has_ended=True)
    assert not is_complete(ROWS_OF_ALL, running)
    assert plots(ROWS_OF_ALL, running) == {}
    early, late = page(ROWS_OF_ALL, running), page(ROWS_OF_ALL, ended)
    assert len(early.sections) == 2
    assert len(late.sections) > len(early.sections)
    assert set(plots(ROWS_OF_ALL, ended)) == {DIFFERENCES, BY_ATTEMPT}
    whole = study(has_ended=False, cases=len(ROWS_OF_ALL))
    assert is_complete(ROWS_OF_ALL, whole)
    assert len(page(ROWS_OF_ALL, whole).sections) == len(late.sections)


def test_explored_policies_are_no_part_of_the_main_run() -> None:
    more = [row(task, Policy.RESAMPLE, "12", fixed=task == "a") for task in "ab"]
    first = next(one for one in ROWS_OF_ALL if one.policy is FRESH and not one.is_first_try)
    more.append(row(first.task, Policy.NO_SUMMARY, "11", fixed=False))
    unfinished = study(has_ended=False, cases=len(ROWS_OF_ALL) + 1)
    assert not is_complete([*ROWS_OF_ALL, *more], unfinished)
    ended = study(has_ended=True)
    before, after = page(ROWS_OF_ALL, ended), page([*ROWS_OF_ALL, *more], ended)
    *same, section = after.sections
    assert same == before.sections
    (table,) = section.tables
    named = [line[0].partition(":")[0] for line in table.rows]
    assert named == [Policy.NO_SUMMARY.value, Policy.RESAMPLE.value]
    pairs = analysis.continued(analysis.explored(more + ROWS_OF_ALL, Policy.RESAMPLE, (1,)))
    assert {one[Policy.RESAMPLE].task for one in pairs} <= {"a", "b"}


def test_first_attempts_have_a_table_of_their_own_and_count_in_no_other() -> None:
    first = next(one for one in ROWS_OF_ALL if one.policy is FRESH and not one.is_first_try)
    alone = row(first.task, Policy.FIRST_RETRIEVED, "1", fixed=True, stricter=True)
    without = row(first.task, Policy.FIRST_WITHOUT, "1", fixed=False)
    ended = study(has_ended=True)
    before = page(ROWS_OF_ALL, ended)
    *same, section = page([*ROWS_OF_ALL, alone, without], ended).sections
    assert same == before.sections
    (table,) = section.tables
    counts = {line[0].partition(":")[0]: line[1:4] for line in table.rows}
    assert counts == {
        Policy.FIRST_WITHOUT.value: ["1", "0", "0"],
        Policy.FIRST_RETRIEVED.value: ["1", "1", "0"],
    }
    # Both asked the same: the search found nothing to show.
    assert analysis.retrieved([alone, without], (1,)) == (0, 1)
    asked = alone.model_copy(update={"calls": ("0" * 64,)})
    assert analysis.retrieved([asked, without], (1,)) == (1, 1)
    assert analysis.retrieved([asked, without], (2,)) == (0, 0)


def test_the_page_of_no_rows_has_no_figures() -> None:
    empty = page([], study(has_ended=True))
    assert markdown(empty)
    assert plots([], study(has_ended=True)).keys() == {DIFFERENCES, BY_ATTEMPT}


def test_cases_have_the_pilots_and_what_is_explored_last_and_each_name_once() -> None:
    cases = load_cases(TASKS)
    assert len({one.name for one in cases}) == len(cases)
    tasks = len(load_tasks(TASKS))
    sizes = (
        tasks * len(COMPARED) * len(SEEDS),
        len(PILOT) * len(COMPARED),
        tasks * len(FIRST_ATTEMPTS),
        tasks * len(EXPLORED),
        tasks * len(FIRST_ATTEMPTS) * (len(SEEDS) - 1),
    )
    ends = list(accumulate(sizes))
    main_run, pilot, firsts, explored, more_firsts = (
        cases[end - size : end] for size, end in zip(sizes, ends, strict=True)
    )
    assert ends[-1] == len(cases)
    assert {one.seed for one in main_run} == {*SEEDS}
    assert {one.seed for one in pilot} == {PILOT_SEED}
    assert {(one.policy, one.seed) for one in explored} == {
        (one, EXPLORED_SEED) for one in EXPLORED
    }
    assert {one.policy for one in (*firsts, *more_firsts)} == {*FIRST_ATTEMPTS}
    assert {one.seed for one in firsts} == {EXPLORED_SEED}
    assert {one.policy for one in main_run} == {*COMPARED}
    assert [one.policy for one in cases[: len(COMPARED)]] == [*COMPARED]
    assert len({one.task.name for one in cases[: len(COMPARED)]}) == 1


def test_estimate_is_of_new_answers() -> None:
    (task,) = load_tasks(TASKS, [PILOT[0]])
    due = [RetryCase(task, FRESH, seed) for seed in (1, 2, 3, 4)]
    facts = {"text": "", "stop_reason": "end_turn", "prompt_ms": 500, "output_ms": 500}
    calls = [
        Call.model_validate({"key": digit * 64, "input_tokens": 5, "output_tokens": 2, **facts})
        for digit in "abc"
    ]
    rows = [
        one.model_copy(update={"calls": (calls[0].key, calls[number].key)})
        for number, one in enumerate(case("a", [])[:2])
    ]
    found = estimate(due, rows, calls)  # two cases shared an answer, and the third is of none
    assert (found.cases, found.calls, found.input_tokens, found.seconds) == (4, 4, 20, 4)
    assert estimate(due, [], calls).calls is None


def test_faults_of_a_folder_are_named(tmp_path: Path) -> None:
    (task,) = load_tasks(TASKS, [PILOT[0]])
    good = row(task.name, FRESH, "1", fixed=True)
    ROWS.write([good.model_copy(update={"task_sha256": task.digest})], tmp_path)
    folder = StudyFolder(tmp_path, TASKS)
    assert len(folder.faults()) == 1
    folder.publish()
    assert folder.faults() == []
    ROWS.write([good.model_copy(update={"calls": ("0" * 64,)})], tmp_path)
    # Another form of its task, and an answer that is not kept.
    assert len(folder.faults()) == 2
    (tmp_path / REPORT_NAME).write_text("", encoding="utf-8")
    assert len(folder.faults()) == 3


def test_committed_report_follows_from_the_committed_rows() -> None:
    assert COMMITTED.rows()
    assert COMMITTED.faults() == []


def test_readme_has_the_figures_of_the_committed_rows() -> None:
    pairs = analysis.continued(analysis.triples(COMMITTED.rows(), SEEDS))
    fixed = {policy: analysis.fixed_by(pairs, policy)[-1] for policy in COMPARED}
    text = " ".join((FOLDER.parents[2] / "README.md").read_text(encoding="utf-8").split())
    found = re.search(
        r"on (\d+) failed attempts: a fresh context fixed (\d+), the same conversation continued (\d+); "
        r"retrieval again fixed (\d+)",
        text,
    )
    assert found
    assert [int(one) for one in found.groups()] == [
        len(pairs),
        fixed[FRESH],
        fixed[TALK],
        fixed[FULL],
    ]


def test_texts_have_the_figures_of_what_a_retry_is_shown() -> None:
    def fixed(policy: Policy) -> tuple[int, int, int]:
        pairs = analysis.continued(analysis.explored(COMMITTED.rows(), policy, (1,)))
        one = analysis.compare(pairs, policy, FRESH)
        return len(pairs), one.both + one.first_alone, one.both + one.second_alone

    readme, record = (
        " ".join(path.read_text(encoding="utf-8").split())
        for path in (
            FOLDER.parents[2] / "README.md",
            FOLDER.parents[1] / "adr" / "0011-rag-bypass-on-retry.md",
        )
    )
    pairs, with_log, with_summary = fixed(Policy.LOG_TAIL)
    found = re.search(r"fixed (\d+) of (\d+) where the summary fixed (\d+)", readme)
    assert found
    assert [int(it) for it in found.groups()] == [with_log, pairs, with_summary]
    found = re.search(
        r"(\d+) failing first attempts\): with the end of the gate's log in place of the summary (\d+) are "
        r"fixed where the summary fixes (\d+).*?with the kind of the failure alone (\d+) against (\d+)",
        record,
    )
    assert found
    assert [int(it) for it in found.groups()] == [
        pairs,
        with_log,
        with_summary,
        *fixed(Policy.NO_SUMMARY)[1:],
    ]


@pytest.mark.sandbox
def test_committed_rows_replay_without_a_model(tmp_path: Path) -> None:
    shortest = sorted(COMMITTED.rows(), key=lambda one: len(one.calls))[:2]
    names = [one.name for one in shortest]
    assert replayed(COMMITTED, tmp_path, names) == []
    assert {one.name for one in ROWS.read(tmp_path)} == set(names)
    assert (FOLDER / CALLS_NAME).exists()


def test_the_verb_estimates_checks_and_runs_from_kept_answers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["eval", "retry", "--tasks", str(TASKS), "--report", str(tmp_path), "--json"]
    name = f"{PILOT[0]}.{FRESH}.1"
    assert main([*words, "--estimate", "--like", str(tmp_path)]) == 0
    estimated = json.loads(capsys.readouterr().out)
    assert (estimated["cases"], estimated["calls"]) == (len(load_cases(TASKS)), None)
    # No report yet; then a case without an answer and without a server has no row.
    assert main([*words, "--check"]) == ENVIRONMENT
    assert json.loads(capsys.readouterr().out)["faults"]
    assert main([*words, "--only", name]) == ENVIRONMENT
    assert json.loads(capsys.readouterr().out) == {"report": str(tmp_path), "rows": 0, "left": 1}
    assert main([*words, "--check"]) == 0
    assert main([*words, "--replay"]) != 0
