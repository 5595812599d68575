"""The report of rows, and what its check must notice."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from fallback_eval.campaign import Half
from tests.campaigns.own_code import report
from tests.campaigns.own_code.ends import End, Stop, Stopped
from tests.campaigns.own_code.results import DidRun, Plan, Result, WrongEnd
from tests.campaigns.own_code.shown import Shown
from tests.campaigns.own_code.wrong import Kind

PLAN = Plan(edits=2, bytes=90, files=("lib/a.js",), left_out=("package.json",), exact=True)
SEEN = Shown(lines=4, lines_shown=2, hunks=2, hunks_touched=1, hunks_whole=1)
STOPPED = Stopped(stop=Stop.GATE, what="tests (tests_failed)", said="2 | fail")


def row(name: str, label: str = "now", **facts: object) -> Result:
    kept = {
        "label": label,
        "name": name,
        "case_sha256": "1" * 64,
        "ecosystem": "npm",
        "installs_by": "package-lock",
        "half": Half.SEEN,
        "record": "CVE-1",
        "repo": "o/n",
        "plan": PLAN,
        "perfect": End(code=0, outcome="verified"),
        "plain": End(code=8, outcome="patched"),
        "stopped": None,
        "tests": DidRun(ran=True),
        "proof": DidRun(ran=True),
        "first": SEEN,
        **facts,
    }
    return Result.model_validate(kept)


def wrong(*, with_proof: bool, code: int, passes: bool | None = None) -> WrongEnd:
    return WrongEnd(
        kind=Kind.HALF, with_proof=with_proof, outcome="verified", code=code, proof_passes=passes
    )


def cells(page: str, first: str) -> list[str]:
    line = next(line for line in page.splitlines() if line.startswith(f"| {first} |"))
    return [cell.strip() for cell in line.split("|")[2:-1]]


def test_labels_stand_side_by_side() -> None:
    rows = [row("a"), row("b", stopped=STOPPED), row("a", "baseline", stopped=STOPPED)]
    page = report.render(rows)
    assert cells(page, "figure") == ["goal", "baseline", "now"]
    assert cells(page, "(a) proved with a perfect answer") == [
        "≥ 85 %",
        "0 of 1 (0 %)",
        "1 of 2 (50 %)",
    ]
    assert cells(page, "a gate failed: tests (tests_failed)") == ["1", "1"]
    assert "2 / fail" in page


def test_no_prompt_shows_nothing_and_no_place_is_not_asked_for() -> None:
    nowhere = PLAN.model_copy(update={"files": ()})
    page = report.render([row("a"), row("b", first=None), row("c", first=None, plan=nowhere)])
    assert cells(page, "(c) first prompt: a line of the fix's place")[1] == "1 of 2 (50 %)"
    assert cells(page, "(c) first prompt: half of its lines")[1] == "1 of 2 (50 %)"
    assert cells(page, "(c) first prompt: all of its lines")[1] == "0 of 2 (0 %)"


@pytest.mark.parametrize(
    ("ends", "count"),
    [
        ((wrong(with_proof=True, code=0),), 1),
        ((wrong(with_proof=True, code=0, passes=False),), 1),
        ((wrong(with_proof=True, code=0, passes=True),), 0),
        ((wrong(with_proof=False, code=0, passes=True),), 1),
        ((wrong(with_proof=True, code=3), wrong(with_proof=False, code=8)), 0),
    ],
)
def test_what_is_a_false_fixed(ends: tuple[WrongEnd, ...], count: int) -> None:
    assert row("a", wrong=ends).false_fixed == count


def test_the_true_fix_without_a_proof_must_not_be_called_fixed() -> None:
    assert row("a", plain=End(code=0, outcome="verified")).false_fixed == 1


def test_a_true_fix_that_is_run_alone_keeps_the_wrong_answers_and_their_day() -> None:
    ends = (wrong(with_proof=True, code=3), wrong(with_proof=False, code=8))
    former = row("a", stopped=STOPPED, wrong=ends, retries=(SEEN,), made="2026-01-01")
    alone = row("a", wrong_skipped=True, made="2026-02-02")
    again = alone.beside(former)
    assert again.proved
    assert (again.wrong, again.retries, again.wrong_of) == (ends, (SEEN,), "2026-01-01")
    assert (again.looks, alone.beside(again).looks) == (2, 3)
    assert alone.beside(again).wrong_of == "2026-01-01"
    page = report.render([again])
    assert "a (2026-02-02; 2026-01-01)" in page
    assert "No wrong answers" not in page


@pytest.mark.parametrize(
    "former",
    [
        None,
        row("a", wrong_skipped=True, made="2026-01-01"),
        row("a", case_sha256="2" * 64, wrong=(wrong(with_proof=True, code=3),), made="2026-01-01"),
    ],
)
def test_else_it_has_none_and_the_page_says_so(former: Result | None) -> None:
    alone = row("a", wrong_skipped=True, made="2026-02-02")
    again = alone.beside(former)
    assert (again.wrong, again.wrong_of) == ((), "")
    assert "No wrong answers were given: a." in report.render([again])


def test_a_run_with_wrong_answers_keeps_its_own() -> None:
    former = row("a", wrong=(wrong(with_proof=True, code=3),), made="2026-01-01")
    again = row("a", made="2026-02-02").beside(former)
    assert (again.wrong, again.wrong_of, again.looks) == ((), "", 2)


@pytest.mark.parametrize("half", [*Half])
def test_a_second_look_at_what_was_set_aside_is_told(half: Half) -> None:
    first = row("a", half=half)
    pages = report.render([first]), report.render([first.beside(first)])
    assert ["no blind figure" in page for page in pages] == [False, half is Half.SET_ASIDE]


def test_rows_are_kept_and_the_page_is_theirs(tmp_path: Path) -> None:
    rows = (row("a"), row("b", half=Half.SET_ASIDE), row("a", "baseline"))
    drawn = [{"record": "CVE-1", "outcome": "case"}, {"record": "CVE-2", "outcome": "no test"}]
    kept = replace(report.ROWS, page=lambda rows: report.render(rows, drawn))
    kept.write(rows, tmp_path)
    assert list(kept.read(tmp_path)) == sorted(rows, key=lambda one: (one.label, one.name))
    page = kept.shown(tmp_path)
    digests = {"a": ("1" * 64, Half.SEEN), "b": ("1" * 64, Half.SET_ASIDE)}
    assert kept.faults(kept.read(tmp_path), page) == []
    assert report.check(kept.read(tmp_path), digests) == []
    assert "| no test | 1 |" in page
    assert "## The half set aside" in page


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda rows: rows[1:], "no result of a (now)"),
        (lambda rows: [*rows, rows[0]], "2 rows of now a"),
        (lambda rows: [rows[0].model_copy(update={"case_sha256": "0"}), rows[1]], "another form"),
        (lambda rows: [row("a", stopped=STOPPED), rows[1]], "is not made from"),
        (
            lambda rows: [*rows, row("gone")],
            "gone (now) is of another form of the case, or of none",
        ),
        (lambda rows: [rows[0], row("b", wrong=(wrong(with_proof=False, code=0),))], "1 ends say"),
    ],
)
def test_the_check_notices(change: Callable[[list[Result]], list[Result]], message: str) -> None:
    rows = [row("a"), row("b")]
    digests = dict.fromkeys(("a", "b"), ("1" * 64, Half.SEEN))
    changed, shown = change(rows), report.render(rows, report.read_drawn())
    found = [*report.ROWS.faults(changed, shown), *report.check(changed, digests)]
    assert any(message in line for line in found), found
