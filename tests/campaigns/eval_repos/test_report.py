"""The report of rows: its figures come from them, and its check notices what does not fit."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from fallback_eval.campaign import Half
from tests.campaigns.eval_repos import report
from tests.campaigns.eval_repos.figures import FIGURES, Compared, compared
from tests.campaigns.eval_repos.judge import Kind, Problem, Verdict
from tests.campaigns.eval_repos.peers import PeerEnd
from tests.campaigns.eval_repos.reported import Reported
from tests.campaigns.eval_repos.results import Base, Result

BROKE = Verdict(problems=(Problem(kind=Kind.BROKE, detail="no pad"),))
LARGE = Verdict(problems=(Problem(kind=Kind.TOO_LARGE, detail="more than is honest"),))
REFUSED = Reported(code=4, outcome="refused", reasons=("no_fixed_version",), words="none | known")


def row(name: str, label: str = "now", **facts: object) -> Result:
    kept = {
        "label": label,
        "name": name,
        "half": Half.SEEN,
        "ecosystem": "npm",
        "kinds": ("lock v1",),
        "case_sha256": "1" * 64,
        "expected_sha256": "2" * 64,
        "expected": "fixed",
        "changes": 0,
        "base": Base(installs=True, works=True, affected=("left 1.0.0",)),
        "told": Reported(code=0, outcome="fixed", attempts=1),
        "verdict": Verdict(problems=()),
        "lines": 6,
        "unlike": (),
        **facts,
    }
    return Result.model_validate(kept)


def peer(name: str = "npm update", **facts: object) -> PeerEnd:
    kept = {"peer": name, "cleared": True, "works": True, "lines": 8, "moved": 1, **facts}
    return PeerEnd.model_validate(kept)


def values(*rows: Result) -> list[str]:
    return [one.value(rows) for one in FIGURES]


def test_figures_come_from_the_rows() -> None:
    rows = [
        row("a", peers=(peer(), peer("npm audit fix", lines=10))),
        row("b", verdict=BROKE, lines=90),
        row("c", told=REFUSED, lines=0, unlike=("only planned: move x",)),
        row("d", told=REFUSED.model_copy(update={"traceback": True}), lines=0),
        row("e", verdict=LARGE, lines=10, peers=(peer(works=False, lines=1), peer(lines=6))),
    ]
    assert values(*rows) == [
        "1 of 5 (20 %)",
        "1 of 5 (20 %)",
        "3 of 5 (60 %)",
        "4 of 5 (80 %)",
        "8 lines, the peer's 7 (over 2)",
    ]
    assert not any(one.met(rows) for one in FIGURES)
    page = report.render(rows)
    for one in FIGURES:
        assert f"| {one.name} | {one.goal} | {one.value(rows)} |" in page
    goals = page.split("## The half")[0]
    assert "## All 5 cases" in goals
    for one in FIGURES:
        assert f"| {one.name} | {one.goal} | {one.value(rows)} | **no** |" in goals
    assert "**false fixed**" in page
    assert "none / known" not in page.split("### What was wrong")[0]


def test_all_cases_together_are_those_of_now() -> None:
    rows = [row("a"), row("b", half=Half.SET_ASIDE), row("a", "baseline", verdict=BROKE)]
    goals = report.render(rows).split("## The half")[0]
    assert "## All 2 cases" in goals
    assert "| tracebacks | 0 | 0 of 2 (0 %) | yes |" in goals


@pytest.mark.parametrize(
    ("ours", "theirs", "wins", "losses"),
    [
        (row("a"), peer(), 1, 0),
        (row("a"), peer(lines=6), 0, 0),
        (row("a"), peer(lines=4), 0, 1),
        (row("a"), peer(works=False), 1, 0),
        (row("a", verdict=BROKE), peer(), 0, 1),
        (row("a", verdict=LARGE, lines=7), peer(), 1, 0),
        (row("a", verdict=LARGE, lines=9), peer(), 0, 1),
        (row("a", verdict=BROKE), peer(works=False), 0, 0),
        (row("a", told=REFUSED, lines=0), peer(cleared=False), 1, 0),
        (row("a", told=REFUSED, lines=0), peer(), 0, 0),
    ],
)
def test_wins_and_losses(ours: Result, theirs: PeerEnd, wins: int, losses: int) -> None:
    (found,) = compared([ours.model_copy(update={"peers": (theirs,)})])
    assert isinstance(found, Compared)
    assert (found.wins, found.losses) == (wins, losses)


def test_labels_stand_side_by_side_and_halves_apart(tmp_path: Path) -> None:
    rows = [row("a"), row("a", "baseline", verdict=BROKE), row("b", half=Half.SET_ASIDE)]
    report.ROWS.write(rows, tmp_path)
    assert list(report.ROWS.read(tmp_path)) == sorted(rows, key=lambda one: (one.label, one.name))
    page = report.ROWS.shown(tmp_path)
    assert page == report.render(rows)
    assert "| figure | goal | baseline | now |" in page
    assert page.index("## The half seen") < page.index("## The half set aside")


def test_what_is_of_an_older_build_is_told_from_what_was_run_again() -> None:
    rows = [row("a").model_copy(update={"made": "2026-11-01", "tool": "t at 1"})]
    rows += [
        row(name).model_copy(update={"made": "2026-11-02", "tool": f"t at {build}"})
        for name, build in (("b", 2), ("c", 3), ("d", 2))
    ]
    message = "- Rows of *now* made on 2026-11-02: t at 2: b, d; t at 3: c. "
    message += "The other 1 are of older builds."
    assert message in report.render(rows)


def test_the_first_look_stays_and_what_was_measured_again_is_named() -> None:
    aside = {"half": Half.SET_ASIDE}
    missed = row("a", report.FIRST_LOOK, verdict=BROKE, **aside)
    rows = [
        missed,
        row("a", **aside),
        *(row("b", it, **aside) for it in (report.FIRST_LOOK, "now")),
    ]
    page = report.render(rows)
    assert "| figure | goal | first look | now |" in page
    assert "| 1 of 2 (50 %) | 2 of 2 (100 %) |" in page
    assert "Of its 2 rows of *now*, 1 were measured again since its misses were mended: a." in page
    assert "looked at once" not in report.render([row("a"), row("b")])


def test_drawn_repositories_stand_apart_with_their_first_figure() -> None:
    drawn = {"half": None}
    rows = [
        row("a"),
        row("d", report.FIRST_LOOK, verdict=BROKE, unlike=("x",), **drawn),
        row("e", report.FIRST_LOOK, **drawn),
        *(row(name, **drawn) for name in ("d", "e")),
        row("f", report.FIRST_LOOK, draw="ten-public-2", **drawn),
    ]
    page = report.render(rows)
    assert "## All 3 cases" in page
    part = page.split("## The repositories that a seed drew")[1].split("## The repositories")[0]
    assert "with the seed `ten-public-1`" in part
    assert "1 of 2 (50 %) ended rightly,\nand in 1 of 2 (50 %) `fix` first applied" in part
    second = page.split("## The repositories that the seed `ten-public-2` drew")[1]
    assert "1 of 1 (100 %) ended rightly,\nand in 1 of 1 (100 %) `fix` first applied" in second
    assert "The half set aside was looked at once" not in page


def test_rows_of_the_first_draw_lack_the_seed_and_belong_to_it(tmp_path: Path) -> None:
    drawn = [row("d", half=None), row("e", half=None, draw="ten-public-1")]
    report.ROWS.write(drawn, tmp_path)
    first, second = (tmp_path / "results.jsonl").read_text(encoding="utf-8").splitlines()
    assert "draw" not in json.loads(first)
    assert json.loads(second)["draw"] == "ten-public-1"
    assert [one.part for one in report.ROWS.read(tmp_path)] == ["ten-public-1"] * 2


def test_a_draw_that_was_run_under_no_other_label_is_not_missing_there() -> None:
    rows = [row("d", half=None), row("e", report.FIRST_LOOK, half=None, draw="ten-public-2")]
    digests = {"d": ("1" * 64, "ten-public-1"), "e": ("1" * 64, "ten-public-2")}
    stated = [(name, "2" * 64) for name in digests]
    assert report.check(rows, digests, stated) == []
    digests["f"] = ("1" * 64, "ten-public-2")
    found = report.check(rows, digests, stated)
    assert found == ["no result of f (first look)"]


DIGESTS = dict.fromkeys(("a", "b"), ("1" * 64, Half.SEEN))
STATED = [(name, "2" * 64) for name in ("a", "b")]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda rows: rows[1:], "no result of a (now)"),
        (lambda rows: [*rows, rows[0]], "2 rows of now a"),
        (lambda rows: [rows[0].model_copy(update={"case_sha256": "0"}), rows[1]], "another form"),
        (
            lambda rows: [rows[0].model_copy(update={"expected_sha256": "0"}), rows[1]],
            "never stated",
        ),
        (lambda rows: [row("a", lines=7), rows[1]], "is not made from"),
        (lambda rows: [*rows, row("gone")], "gone (now) is of another form"),
    ],
)
def test_the_check_notices(change: Callable[[list[Result]], list[Result]], message: str) -> None:
    rows = [row("a"), row("b")]
    assert report.check(rows, DIGESTS, STATED) == []
    changed = change(rows)
    found = [
        *report.ROWS.faults(changed, report.render(rows)),
        *report.check(changed, DIGESTS, STATED),
    ]
    assert any(message in line for line in found), found


def test_what_must_never_be_is_named() -> None:
    crashed = REFUSED.model_copy(update={"traceback": True})
    rows = [
        row("a"),
        row("b", verdict=BROKE),
        row("c", told=crashed),
        row("d", "old", verdict=BROKE),
    ]
    assert report.missed(rows) == ["b: says fixed, and is not", "c: a traceback"]
