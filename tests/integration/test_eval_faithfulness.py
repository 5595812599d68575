"""``fallback-tier eval faithfulness``: the committed report holds; the whole path runs with a script."""

import json
import re
from pathlib import Path

import pytest

from fallback_eval.faithfulness.data import load_cases
from fallback_eval.faithfulness.golden import load_faithfulness
from fallback_eval.faithfulness.results import load_raw
from fallback_eval.faithfulness.run import askings, judge_by_words, request_for
from fallback_tier.cli import exit_codes
from fallback_tier.cli.main import main

ROOT = Path(__file__).parents[2]
DATA = ROOT.parent / "shared" / "data"
GOLDEN = ROOT / "tests" / "golden" / "faithfulness"
REPORT = ROOT / "docs" / "evaluation" / "faithfulness"

#: All raw results together: they are committed, so they must stay small.
MAX_BYTES = 1_000_000

#: The largest prompt, in characters: what fits a context of 8,192 tokens with room for the answer.
MAX_PROMPT_CHARS = 12_000

needs_data = pytest.mark.skipif(not DATA.is_dir(), reason=f"the data set is not at {DATA}")

FOLDERS = ["--golden", str(GOLDEN), "--report"]


def test_the_committed_report_follows(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["eval", "faithfulness", "--check", *FOLDERS, str(REPORT)]) == exit_codes.OK
    assert "follows" in capsys.readouterr().out


def test_raw_results_stay_small_and_name_no_machine() -> None:
    files = [path for path in (REPORT / "raw").rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < MAX_BYTES
    for path in files:
        text = path.read_text(encoding="utf-8")
        assert "/home/" not in text
        assert "/tmp/" not in text


@needs_data
def test_every_reference_leads_somewhere_and_the_product_reads_the_labelled_claims() -> None:
    cases = load_cases(load_faithfulness(GOLDEN), DATA)
    assert len(cases) > 50
    assert all(case.context.snippets for case in cases)


@needs_data
def test_the_committed_words_are_those_of_today() -> None:
    """So the prompts, too: their digests are beside the shares, and with a model's answers."""
    cases = load_cases(load_faithfulness(GOLDEN), DATA)
    today = {(one.plan, one.examples): one for one in judge_by_words(cases)}
    assert today == load_raw(REPORT).overlaps


@needs_data
def test_the_whole_path_with_a_judge_that_knows_the_labels(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    golden = load_faithfulness(GOLDEN)
    asked = list(askings(load_cases(golden, DATA)))
    script = tmp_path / "judge.json"
    answers = [
        {
            "claims": [
                {"id": one.claim, "reason": "read", "supported": one.supported_with(count)}
                for one in golden.claims[case.ref.plan]
            ]
        }
        for case, count in asked
    ]
    script.write_text(json.dumps(answers))
    report = str(tmp_path / "report")
    command = ["eval", "faithfulness", *FOLDERS, report]
    assert main([*command, "--data", str(DATA), "--judge-script", str(script), "--json"]) == 0
    judges = json.loads(capsys.readouterr().out)["judges"]
    assert judges["scripted"]["kappa"] == 1
    assert judges["scripted"]["graded"] == judges["scripted"]["claims"]
    assert judges["constant: supported"]["kappa"] == 0
    assert 0 < judges["lexical overlap"]["kappa"] < 0.8
    assert main([*command, "--check"]) == exit_codes.OK
    page = (tmp_path / "report" / "report.md").read_text()
    assert "scripted against lexical overlap: p < 0.001" in page
    (tmp_path / "report" / "report.html").write_text("gone")
    assert main([*command, "--check"]) == exit_codes.ENVIRONMENT


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ([], "--data names the folder"),
        (["--data", "/nowhere"], "There is no solved-examples.jsonl.xz"),
        (["--data", ".", "--judge-model", "m"], "without a key|needs a key"),
    ],
)
def test_what_is_missing_is_named(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    options: list[str],
    why: str,
) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    code = main(["eval", "faithfulness", *FOLDERS, str(tmp_path / "report"), *options])
    assert code != exit_codes.OK
    assert re.search(why, capsys.readouterr().err)
    assert not (tmp_path / "report").exists()


@needs_data
def test_no_prompt_is_too_long_for_a_small_model() -> None:
    cases = load_cases(load_faithfulness(GOLDEN), DATA)
    sizes = [len(request_for(case, count).text) for case, count in askings(cases)]
    assert max(sizes) < MAX_PROMPT_CHARS
