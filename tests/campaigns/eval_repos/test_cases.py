"""The cases as they are committed: well-formed, in the half that is due, their ends stated."""

import json
import re
from pathlib import Path

import pytest

from fallback_eval.campaign import Half, alternately, may_look
from tests.campaigns.eval_repos import report
from tests.campaigns.eval_repos.cases import CASES, DRAWS, SOURCES, Case, Outcome, load_cases
from tests.campaigns.eval_repos.history import Stated, faults, read_history, state
from tests.campaigns.eval_repos.judge import admits
from tests.campaigns.eval_repos.judged_case import npm_case, uv_case
from tests.campaigns.eval_repos.results import Result

CASES_NOW = load_cases()


def test_what_is_expected_is_stated_and_halves_are_those_of_the_seed() -> None:
    assert faults(CASES_NOW, read_history()) == []


def test_a_half_is_half() -> None:
    for ecosystem in ("npm", "PyPI"):
        members = [case for case in CASES_NOW if case.ecosystem == ecosystem and case.half]
        seen = sum(case.half is Half.SEEN for case in members)
        assert seen in {len(members) // 2, -(-len(members) // 2)}


@pytest.mark.parametrize("case", CASES_NOW, ids=lambda case: case.name)
def test_a_case_can_be_judged(case: Case) -> None:
    prefix = {"npm": "npm-", "PyPI": "pypi-"}[case.ecosystem]
    assert case.name.startswith(prefix)
    assert (case.half is None) == (case.draw in DRAWS)
    assert case.kinds
    assert case.advisories or case.advisory
    assert bool(case.repo) == bool(re.fullmatch(r"[0-9a-f]{40}", case.commit))
    assert case.repo or case.files or case.source
    assert not case.source or (SOURCES / case.source).is_dir()
    for end in case.end:
        assert end.versions or end.outcome not in {Outcome.FIXED, Outcome.PARTLY}
        assert end.reasons or end.words or end.outcome in {Outcome.FIXED, Outcome.NOT_AFFECTED}
        for spec in end.versions.values():
            admits(case.ecosystem, spec, "1.0.0")
    for record in (one.osv(case.ecosystem) for one in case.advisory):
        json.dumps(record)


def test_no_case_names_a_registry_or_a_place_of_a_machine() -> None:
    for place in sorted([*CASES.glob("*.toml"), *SOURCES.rglob("*.*")]):
        text = place.read_text(encoding="utf-8") if place.is_file() else ""
        hosts = set(re.findall(r"https?://([^/\s\"'{}]+)", text))
        assert all(
            host.endswith(".invalid") or host.startswith(("127.0.0.1", "${")) for host in hosts
        ), (place, hosts)


def test_rows_page_and_cases_fit() -> None:
    """What is there: rows that are still to come are no fault here."""
    rows = report.ROWS.read(report.FOLDER)
    digests = {case.name: (case.sha256, case.part) for case in CASES_NOW}
    stated = [(one.name, one.expected_sha256) for one in read_history()]
    shown = report.ROWS.shown(report.FOLDER) or report.render(rows)
    found = [*report.ROWS.faults(rows, shown), *report.check(rows, digests, stated)]
    assert [line for line in found if not line.startswith("no result of")] == []
    assert all(isinstance(row, Result) for row in rows)


# --- the history of what is expected -----------------------------------------------------------


def due(*cases: Case) -> list[Case]:
    halves = alternately((case.name for case in cases), "eval-repos-1")
    return [case.model_copy(update={"half": halves[case.name]}) for case in cases]


def test_a_change_of_what_is_expected_needs_a_reason(tmp_path: Path) -> None:
    (case,) = due(uv_case())
    place = tmp_path / "expected.jsonl"
    assert "not stated" in faults([case], read_history(place))[0]
    assert len(state([case], place)) == 1
    assert faults([case], read_history(place)) == []
    assert state([case], place) == ()
    other = case.model_copy(update={"end": (case.end[0].model_copy(update={"lines": 99}),)})
    assert "not stated" in faults([other], read_history(place))[0]
    state([other], place)
    assert faults([other], read_history(place)) == ["pypi-made-left: 2 forms, and 0 reasons"]
    reported = other.model_copy(update={"changed": ("The lock has more lines than was thought.",)})
    assert faults([reported], read_history(place)) == []
    assert reported.expected_sha256 == other.expected_sha256
    assert reported.sha256 == other.sha256


def test_a_half_that_nobody_drew_is_a_fault() -> None:
    (case,) = due(npm_case())
    wrong = Half.SEEN if case.half is Half.SET_ASIDE else Half.SET_ASIDE
    history = [Stated(name=case.name, expected_sha256=case.expected_sha256)]
    assert faults([case], history) == []
    found = faults([case.model_copy(update={"half": wrong})], history)
    assert found == [f"npm-made-left: is {wrong}, due is {case.half}"]
    assert faults([], history) == ["npm-made-left: stated, and no case"]


def test_what_is_set_aside_is_looked_at_only_where_it_is_meant(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert may_look([Half.SEEN], "x", meant=False)
    assert may_look([Half.SET_ASIDE], "x", meant=True)
    assert not may_look([Half.SEEN, Half.SET_ASIDE], "x", meant=False)
    assert "set aside" in capsys.readouterr().err
