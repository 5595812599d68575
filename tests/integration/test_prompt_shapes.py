"""Both prompt shapes in every reader: what a prompt stood on is seen wherever its attempt is."""

import json
from contextlib import closing
from typing import Any

import pytest

from fallback_audit.events import AuditEvent
from fallback_audit.evidence.store import FileEvidenceStore
from fallback_audit.ports import Record, Scope
from fallback_audit.vocabulary import EscalationReason
from fallback_tier.cli import exit_codes
from fallback_tier.cli.main import main
from fallback_tier.wiring.trail import RecordSettings, evidence_dir, open_trail
from tests.unit.audit import human_trails as h
from tests.unit.audit import trails as t

INITIAL, RETRY = "initial LLM run", "fresh LLM run, no RAG"
SUMMARY = "expected 1, got 2"


def asked(*examples: str) -> list[AuditEvent]:
    """An initial run and its retries: a person is asked."""
    events = [t.fix_started(), *t.first_by_model(*examples), *t.failing_gates(1)]
    for attempt in (2, 3, 4):
        events += [*t.retry(attempt), *t.failing_gates(attempt)]
    return [*events, t.escalated(4, EscalationReason.RETRY_CAP_REACHED)]


#: By fix: what its first prompt had in it.
FIXES = {"with-examples": ("e1", "e2"), "with-none": ()}


@pytest.fixture(scope="module")
def where(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    place = tmp_path_factory.mktemp("shapes")
    keys, state = place / "keys", place / "state"
    assert main(["audit", "keygen", "--keys", str(keys)]) == exit_codes.OK
    with closing(open_trail(state, RecordSettings(keys=keys))) as store:
        for fix, examples in FIXES.items():
            scope = Scope(fix_id=fix, gate_transition_id="t")
            store.append_all([Record(scope, event) for event in asked(*examples)])
        recipe = Scope(fix_id="by-recipe", gate_transition_id="t")
        store.append_all([Record(recipe, event) for event in h.verified_and_delivered()])
    evidence = FileEvidenceStore(evidence_dir(state))
    for text in t.TEXTS.values():
        evidence.put(text.encode())
    return ["--state-dir", str(state), "--keys", str(keys)]


@pytest.fixture
def read(where: list[str], capsys: pytest.CaptureFixture[str]) -> Any:
    def reader(*arguments: str) -> str:
        capsys.readouterr()
        assert main([*arguments, *where]) == exit_codes.OK
        return capsys.readouterr().out

    return reader


def test_log(read: Any) -> None:
    reported = read("audit", "log")
    assert f"1: llm, {INITIAL}, failed: tests_failed; examples: e1, e2\n" in reported
    assert f"1: llm, {INITIAL}, failed: tests_failed; no examples\n" in reported
    for attempt in (2, 3, 4):
        line = f"{attempt}: llm, {RETRY}, failed: tests_failed"
        assert reported.count(f"{line}; in place of examples, the last failure: {SUMMARY}\n") == 2
    assert "1: recipe, no model call, patch proposed\n" in reported


def test_log_json(read: Any) -> None:
    fixes = {
        fix["fix_id"]: fix["attempts"]
        for fix in json.loads(read("audit", "log", "--json"))["fixes"]
    }
    for fix, examples in FIXES.items():
        first, *retries = fixes[fix]
        assert (first["prompt_shape"], first["shape"]) == ("initial", INITIAL)
        assert (first["examples"], first["in_place_of_examples"]) == ([*examples], None)
        for retry in retries:
            assert (retry["prompt_shape"], retry["shape"]) == ("retry", RETRY)
            assert (retry["examples"], retry["in_place_of_examples"]) == ([], SUMMARY)
    (by_recipe,) = fixes["by-recipe"]
    assert (by_recipe["prompt_shape"], by_recipe["shape"]) == ("none", "no model call")


@pytest.mark.parametrize("fix", FIXES)
def test_show(read: Any, fix: str) -> None:
    lines = read("audit", "show", fix).splitlines()
    assert f"── Attempt 1: {INITIAL}" in lines
    examples = ", ".join(FIXES[fix]) or "no example"
    assert sum("solved examples: " in line and f"({examples})" in line for line in lines) == 1
    for attempt in (2, 3, 4):
        start = lines.index(f"── Attempt {attempt}: {RETRY}")
        skip = next(
            n for n in range(start, len(lines)) if f"{RETRY}: in place of examples" in lines[n]
        )
        assert "the summary of the last failure (tests_failed)" in lines[skip]
        assert lines[skip + 1].strip() == "│ (as above)"  # where the attempt before failed
    assert sum(SUMMARY in line for line in lines) == 1


@pytest.mark.parametrize("fix", FIXES)
def test_show_json(read: Any, fix: str) -> None:
    document = json.loads(read("audit", "show", fix, "--json"))
    (transition,) = document["transitions"]
    assert [attempt["shape"] for attempt in transition["attempts"]] == [INITIAL, *[RETRY] * 3]
    assert transition["attempts"][0]["examples"] == [*FIXES[fix]]
    skips = [
        event["payload"] for event in document["events"] if event["kind"] == "RagSkippedOnRetry"
    ]
    assert [skip["summary_excerpt"] for skip in skips] == [SUMMARY] * 3


@pytest.mark.parametrize("fix", FIXES)
def test_review_show(read: Any, fix: str) -> None:
    lines = [line.strip() for line in read("review", "show", fix).splitlines()]
    stood_on = {line: lines[n + 1] for n, line in enumerate(lines[:-1]) if "LLM run" in line}
    first = f"examples: {', '.join(FIXES[fix])}" if FIXES[fix] else "no examples"
    assert [reported for line, reported in stood_on.items() if INITIAL in line] == [first]
    retries = [reported for line, reported in stood_on.items() if RETRY in line]
    assert len(retries) == 3
    assert all(
        reported.startswith("in place of examples, the last failure: summary ")
        for reported in retries
    )


@pytest.mark.parametrize("fix", FIXES)
def test_review_show_json(read: Any, fix: str) -> None:
    first, *retries = json.loads(read("review", "show", fix, "--json"))["attempts"]
    assert (first["shape"], first["examples"]) == (INITIAL, [*FIXES[fix]])
    assert first["in_place_of_examples"] is None
    for number, retry in enumerate(retries, start=1):
        assert (retry["shape"], retry["examples"]) == (RETRY, [])
        assert retry["in_place_of_examples"] == f"summary {number}"  # whole, from its evidence


def test_export(read: Any) -> None:
    shown = [json.loads(line).get("shown", "") for line in read("audit", "export").splitlines()]
    assert any("solved examples: hit (e1, e2)" in reported for reported in shown)
    assert any("solved examples: miss (no example)" in reported for reported in shown)
    skips = [
        reported for reported in shown if reported.startswith(f"{RETRY}: in place of examples")
    ]
    assert len(skips) == 6
    assert all(reported.endswith(SUMMARY) for reported in skips)
    assert any(INITIAL in reported for reported in shown)
