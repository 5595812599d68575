"""The runner of campaigns: rows on disk, what a run resumes, what a check notices, halves set aside."""

import argparse
import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import pytest

from fallback_audit.frozen import Frozen
from fallback_eval import campaign
from fallback_eval.campaign import (
    AppendedRows,
    Campaign,
    Half,
    RowError,
    Rows,
    add_halves,
    alternately,
    measure,
    parser_of,
)


class Row(Frozen):
    """A row of a small campaign."""

    name: str
    label: str = "now"
    value: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class Case:
    """A case that is its name."""

    name: str


def page(rows: Sequence[Row]) -> str:
    return "".join(f"- {row.label} {row.name}: {row.value}\n" for row in rows)


def key(row: Row) -> tuple[str, str]:
    return row.label, row.name


ROWS = Rows(Row, key, page, order=key)


@dataclass
class Small:
    """A campaign of cases a, b, c, and what it ran."""

    folder: Path
    ran: list[str] = field(default_factory=list)
    prepared: list[list[str]] = field(default_factory=list)
    fails: frozenset[str] = frozenset()
    names: tuple[str, ...] = ("a", "b", "c")

    def run(self, *words: str, **other: object) -> int:
        made: Campaign[Case, Row, tuple[str, str]] = Campaign(
            name="small",
            parser=self.parser,
            rows=ROWS,
            cases=lambda only: [Case(name) for name in only or self.names],
            key=lambda case, _: ("now", case.name),
            prepare=self.prepare,
            is_done=lambda row, *_: row is not None,
            sentence=lambda row: f"value {row.value}",
            holds=lambda row: row.value >= 0,
        )
        return replace(made, **other).main(["--folder", str(self.folder), *words])  # type: ignore[arg-type]

    def parser(self) -> argparse.ArgumentParser:
        parser = parser_of("small", None, self.folder)
        add_halves(parser)
        return parser

    def prepare(self, _: argparse.Namespace, due: Sequence[Case]) -> Callable[[Case], Row]:
        self.prepared.append([case.name for case in due])
        return self.one

    def one(self, case: Case) -> Row:
        self.ran.append(case.name)
        if case.name in self.fails:
            raise RuntimeError("no repository")
        return Row(name=case.name, value=len(self.ran))


@pytest.fixture
def small(tmp_path: Path) -> Small:
    return Small(tmp_path / "results")


# --- rows -----------------------------------------------------------------------------------------


def test_a_row_takes_the_place_of_the_one_of_its_key(tmp_path: Path) -> None:
    ROWS.keep(Row(name="b", value=1), tmp_path)
    ROWS.keep(Row(name="a", value=2), tmp_path)
    ROWS.keep(Row(name="b", value=3), tmp_path)
    ROWS.keep(Row(name="b", label="baseline", value=4), tmp_path)
    assert [(*key(row), row.value) for row in ROWS.read(tmp_path)] == [
        ("baseline", "b", 4),
        ("now", "a", 2),
        ("now", "b", 3),
    ]
    assert ROWS.shown(tmp_path) == page(ROWS.read(tmp_path))


def test_without_an_order_a_new_row_comes_last(tmp_path: Path) -> None:
    rows = replace(ROWS, order=None, page=None)
    for name, value in (("b", 1), ("a", 2), ("b", 3)):
        rows.keep(Row(name=name, value=value), tmp_path)
    assert [(row.name, row.value) for row in rows.read(tmp_path)] == [("a", 2), ("b", 3)]
    assert not (tmp_path / campaign.REPORT).exists()


def test_a_campaign_may_write_its_lines_in_its_own_way(tmp_path: Path) -> None:
    rows = replace(ROWS, dump=lambda row: json.dumps(row.model_dump(exclude_defaults=True)))
    rows.write([Row(name="a")], tmp_path)
    assert (tmp_path / campaign.RESULTS).read_text() == '{"name": "a"}\n'
    assert rows.read(tmp_path) == (Row(name="a"),)


def test_a_separator_of_unicode_does_not_end_a_row(tmp_path: Path) -> None:
    ROWS.keep(Row(name="a\u2028b"), tmp_path)
    assert [row.name for row in ROWS.read(tmp_path)] == ["a\u2028b"]


def test_what_is_not_a_row_is_named_with_its_line(tmp_path: Path) -> None:
    (tmp_path / campaign.RESULTS).write_text('{"name": "a"}\n{"name": 1}\n')
    with pytest.raises(RowError) as caught:
        ROWS.read(tmp_path)
    assert caught.value.place == f"{tmp_path / campaign.RESULTS}, line 2"
    assert caught.value.fault.errors()[0]["loc"] == ("name",)


def test_appended_rows_end_where_a_stop_cut_them(tmp_path: Path) -> None:
    rows, path = AppendedRows(Row, key), tmp_path / "rows.jsonl"
    assert rows.read(path) == {}
    for value in (1, 2):
        rows.add(Row(name="a", value=value), path)
    with path.open("a") as stream:
        stream.write('{"name": "b", "val')
    assert rows.read(path) == {("now", "a"): Row(name="a", value=2)}
    rows.add(Row(name="b"), path)
    assert set(rows.read(path)) == {("now", "a"), ("now", "b")}


# --- runs -----------------------------------------------------------------------------------------


def test_a_run_resumes_after_the_rows_that_are_there(small: Small) -> None:
    small.fails = frozenset({"b"})
    assert small.run() == 1
    assert sorted(small.ran) == ["a", "b", "c"]
    assert [row.name for row in ROWS.read(small.folder)] == ["a", "c"]
    small.fails, small.ran = frozenset(), []
    assert small.run() == 0
    assert small.ran == ["b"]
    assert small.prepared == [["a", "b", "c"], ["b"]]


@pytest.mark.parametrize(
    ("words", "ran"),
    [((), []), (("--again",), ["a", "b", "c"]), (("--only", "b"), ["b"])],
)
def test_what_is_run_a_second_time(small: Small, words: tuple[str, ...], ran: list[str]) -> None:
    small.run()
    small.ran.clear()
    assert small.run(*words) == 0
    assert small.ran == ran


def test_a_row_that_does_not_hold_is_an_exit_code(small: Small) -> None:
    assert small.run() == 0
    assert small.run(holds=lambda row: row.name != "c") == 1
    assert small.run("--only", "a", holds=lambda row: row.name != "c") == 0


def test_the_earlier_row_is_there_when_a_new_one_is_kept(small: Small) -> None:
    small.run()
    former = ROWS.by_key(small.folder)["now", "b"].value
    small.run("--only", "b", follow=lambda row, old: row.model_copy(update={"value": -old.value}))
    assert ROWS.by_key(small.folder)["now", "b"].value == -former


def test_rows_of_another_label_stay_and_those_of_no_case_go(small: Small) -> None:
    ROWS.write([Row(name="a", label="baseline"), Row(name="gone")], small.folder)
    small.run("--only", "a")
    assert set(map(key, ROWS.read(small.folder))) == {("baseline", "a"), ("now", "a")}


def test_each_row_is_one_json_object(small: Small, capsys: pytest.CaptureFixture[str]) -> None:
    small.run("--json")
    lines = capsys.readouterr().out.splitlines()
    assert [Row.model_validate_json(line).name for line in lines] == ["a", "b", "c"]


def test_no_case_begins_on_a_full_disk(
    small: Small, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(campaign.shutil, "disk_usage", lambda _: argparse.Namespace(free=1))
    assert small.run() == 1
    assert small.ran == []
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_other_pools_run_the_cases_too() -> None:
    kept: list[tuple[str, str]] = []
    measure(
        [Case("a"), Case("b")],
        lambda case: Row(name=case.name),
        lambda row, which: kept.append((row.name, which)),
        jobs=1,
        pool=partial(ThreadPoolExecutor, thread_name_prefix="other"),
    )
    assert [which for _, which in kept] == ["1/2", "2/2"]
    assert sorted(name for name, _ in kept) == ["a", "b"]


# --- checks ---------------------------------------------------------------------------------------


def test_a_check_runs_nothing_and_finds_nothing_wrong(small: Small) -> None:
    small.run()
    small.ran.clear()
    assert small.run("--check") == 0
    assert small.ran == []


def test_a_check_notices_another_page_and_double_rows(small: Small) -> None:
    small.run()
    (small.folder / campaign.REPORT).write_text("by hand\n")
    assert small.run("--check") == 1
    assert small.run("--remake") == 0
    assert small.run("--check") == 0
    lines = (small.folder / campaign.RESULTS).read_text()
    (small.folder / campaign.RESULTS).write_text(lines + lines.splitlines()[0] + "\n")
    rows = ROWS.read(small.folder)
    assert len(ROWS.faults(rows, page(rows))) == 1
    assert small.run("--check") == 1


def test_a_campaigns_own_faults_count(small: Small) -> None:
    small.run()
    assert small.run("--check", faults=lambda rows: [row.name for row in rows]) == 1


def test_a_remake_leaves_out_cases_that_are_gone(small: Small) -> None:
    small.run()
    small.names = ("a", "b")
    assert small.run("--remake") == 0
    assert [row.name for row in ROWS.read(small.folder)] == ["a", "b"]


# --- halves ---------------------------------------------------------------------------------------


def halves(case: Case) -> Half:
    return Half.SET_ASIDE if case.name == "b" else Half.SEEN


@pytest.mark.parametrize(
    ("words", "code", "ran"),
    [
        ((), 0, ["a", "c"]),
        (("--half", "set aside"), 2, []),
        (("--half", "set aside", "--look-at-what-was-set-aside"), 0, ["b"]),
        (("--only", "b"), 2, []),
        (("--only", "a"), 0, ["a"]),
    ],
)
def test_a_half_set_aside_is_looked_at_only_if_meant(
    small: Small, words: tuple[str, ...], code: int, ran: list[str]
) -> None:
    assert small.run(*words, half_of=halves) == code
    assert small.ran == ran


def test_halves_fall_alternately_by_a_seed() -> None:
    names = [str(one) for one in range(9)]
    drawn = alternately(names, "seed")
    assert sorted(drawn) == names
    assert [*drawn.values()] == [*(Half.SEEN, Half.SET_ASIDE) * 4, Half.SEEN]
    assert drawn == alternately(reversed(names), "seed")
    assert drawn != alternately(names, "another")
