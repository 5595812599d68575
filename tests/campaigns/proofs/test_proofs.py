"""Some cases of the real proof, end to end over recorded registries, and what its check must notice."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.campaigns.proofs import report
from tests.campaigns.proofs.__main__ import CAMPAIGN
from tests.campaigns.proofs.cases import CASES, Case, load_cases
from tests.campaigns.proofs.running import Result, run_case

#: Small packages; in each ecosystem a bump by the recipe, and edits by a scripted retry; then another bump.
CHOSEN = ("npm-xml2js", "npm-dset", "pypi-pyjwt", "pypi-h11", "pypi-jinja2-xmlattr")


def case_of(name: str) -> Case:
    (case,) = load_cases([name])
    return case


@pytest.mark.registry
@pytest.mark.sandbox
@pytest.mark.parametrize("name", CHOSEN)
def test_a_real_flaw_is_fixed_and_proved(name: str) -> None:
    case = case_of(name)
    result = run_case(case, {})
    assert result.problems == ()
    assert {gate.status for gate in result.gates if gate.name == "proof"} == {"passed"}
    assert result.resolved != case.facts.vulnerable
    if case.script:
        assert (result.author, result.attempts, result.retrieval_skipped) == ("scripted", 2, True)
        assert len(result.failed_first) == 1
        assert any(path.startswith("app.") for path in result.files)
    else:
        assert (result.author, result.attempts, result.failed_first) == ("recipe", 1, ())


@pytest.mark.registry("uv")
@pytest.mark.sandbox
def test_a_patch_that_leaves_the_flaw_is_not_accepted(tmp_path: Path) -> None:
    """The same case with a range that ends too early: all is green but the proof."""
    case = copy_of("pypi-h11", tmp_path, {"case.toml": ('fixed = "0.16.0"', 'fixed = "0.14.0"')})
    case = Case(case.folder, case.facts.model_copy(update={"vulnerable": "0.13.0"}))
    pin = case.folder / "repo" / "requirements.txt"
    pin.write_text("h11==0.13.0\n")
    result = run_case(case, {})
    assert result.outcome == "escalated"
    assert result.failed_first == ("recipe: proof_failed at proof",)
    assert not result.ok


def test_the_committed_report_fits_results_and_cases() -> None:
    assert CAMPAIGN.check(report.FOLDER) == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda rows: rows[1:], "no result of"),
        (lambda rows: [*rows, rows[0]], "2 rows of"),
        (lambda rows: [rows[0].model_copy(update={"case_sha256": "0"}), *rows[1:]], "another form"),
        (lambda rows: [failed(rows[0]), *rows[1:]], "is not made from"),
        (lambda rows: [failed(row) if row.edits else row for row in rows], "with edits, 5 wanted"),
        (lambda rows: [failed(row) for row in rows if row.ecosystem == "npm"], "0 npm, 10 wanted"),
    ],
)
def test_the_check_notices(change: Callable[[list[Result]], list[Result]], message: str) -> None:
    shown = report.ROWS.shown(report.FOLDER)
    rows = change(list(report.ROWS.read(report.FOLDER)))
    found = [*report.ROWS.faults(rows, shown), *report.check(rows, digests())]
    assert any(message in line for line in found), found


@pytest.mark.parametrize("case", load_cases(), ids=lambda case: case.name)
def test_a_case_is_whole(case: Case) -> None:
    """The proof names its advisory first; edits have a reason, and a script that gives them."""
    first = case.proof.read_text(encoding="utf-8").splitlines()[0]
    assert case.facts.advisory.id in first
    assert bool(case.facts.edits) == (case.script is not None)
    record, _ = case.record({})
    assert record["affected"][0]["package"]["name"] == case.facts.package
    for plan in json.loads(case.script.read_text()) if case.script else ():
        assert plan["edits"]
        for edit in plan["edits"]:
            text = (case.folder / "repo" / edit["path"]).read_text()
            assert text.count(edit["old"]) == 1


def digests() -> dict[str, str]:
    return {case.name: case.digest for case in load_cases()}


def failed(row: Result) -> Result:
    return row.model_copy(update={"problems": ("changed",)})


def copy_of(name: str, place: Path, changes: dict[str, Any]) -> Case:
    for source in sorted((CASES / name).rglob("*")):
        if source.is_file() and source.suffix != ".pyc":
            target = place / name / source.relative_to(CASES / name)
            target.parent.mkdir(parents=True, exist_ok=True)
            text = source.read_text()
            old, new = changes.get(source.relative_to(CASES / name).as_posix(), ("", ""))
            assert old in text
            target.write_text(text.replace(old, new, 1) if old else text)
    (case,) = load_cases(root=place)
    return case
