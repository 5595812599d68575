"""Rendering: both prompt shapes in words, the failure summary, and nothing hostile on the terminal."""

import io
import json
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import get_args

import pytest
from rich.console import Console

from fallback_audit.events import (
    AuditEvent,
    FixStarted,
    GateJudged,
    PatchDelivered,
    event_adapter,
)
from fallback_audit.ports import StoredEvent
from fallback_audit.showing.describe import sentence, visible
from fallback_audit.showing.headline import headline_of
from fallback_audit.showing.render import Renderer, fix_json, log_json
from fallback_audit.showing.render_report import render_report
from fallback_audit.stores.sqlite import open_readonly
from fallback_audit.verifying.report import VerificationReport
from fallback_audit.vocabulary import ProofLevel, Retrieve
from fallback_audit.vocabulary import TestsLevel as Level
from tests.unit.audit import human_trails as h
from tests.unit.audit import maintenance_trails as u
from tests.unit.audit import model_trails as m
from tests.unit.audit import trails as t
from tests.unit.audit.batch_trails import (
    delivered_in_part,
    fails_together,
    nothing_proved_together,
    part,
    undecided_together,
)
from tests.unit.audit.proof_trails import own_code_patched
from tests.unit.audit.tamper import build, report
from tests.unit.audit.trails import digest

HOSTILE = "\x1b[2Jgone\x07 [bold red]markup[/] \u202eevil\u202c :skull: \u009b31m \x00end"


def stored(tmp_path: Path, *trails: Sequence[AuditEvent]) -> list[StoredEvent]:
    with closing(open_readonly(build(tmp_path / "audit.db", *trails))) as reader:
        return list(reader.events())


def console() -> tuple[Console, io.StringIO]:
    out = io.StringIO()
    return Console(file=out, width=160, force_terminal=False), out


def shown(method: str, argument: object) -> str:
    target, out = console()
    getattr(Renderer(target), method)(argument)
    return out.getvalue()


def told(found: VerificationReport) -> str:
    target, out = console()
    render_report(found, target)
    return out.getvalue()


def test_the_log_has_a_row_a_fix_with_its_shapes(tmp_path: Path) -> None:
    proved = [[*t.verified_on_retry(), h.delivered(2)], [*t.model_with_examples(), h.delivered(1)]]
    events = stored(tmp_path, *proved, t.cap_reached()[:-1])
    text = shown("render_log", events)
    assert "GHSA-xxxx-yyyy-zzzz" in text
    assert "shop" in text
    assert "1: recipe, no model call, failed: tests_failed" in text
    assert "2: llm, fresh LLM run, no RAG, patch proposed" in text
    assert "1: llm, initial LLM run, patch proposed" in text
    assert [text.count(word) for word in ("fixed; versions proved", "open")] == [2, 1]


def test_the_log_has_dates(tmp_path: Path) -> None:
    events = stored(tmp_path, t.recipe_verified())
    first = shown("render_log", events).splitlines()[0]
    assert first.startswith(events[0].recorded_at[:16].replace("T", " "))


def test_the_status_is_that_of_the_last_transition(tmp_path: Path) -> None:
    status = shown("render_status", stored(tmp_path, [*t.verified_on_retry(), h.delivered(2)]))
    assert status.startswith("fixed; versions proved, tests ")
    assert status.count("\n") == 1
    assert shown("render_status", stored(tmp_path / "2", t.cap_reached()[:-1])).startswith("open  ")


def test_the_status_has_the_level_of_the_tests(tmp_path: Path) -> None:
    """As the headline of ``fix``: of the last patch, and not of one that failed before."""
    told = {"tests_level": Level.RAN}
    verdicts = [
        one.model_copy(update=told) if isinstance(one, GateJudged) and one.gate == "tests" else one
        for one in [*t.verified_on_retry(), h.delivered(2)]
    ]
    (fix,) = log_json(stored(tmp_path, verdicts))
    seen = [one for one in verdicts if isinstance(one, GateJudged) and one.attempt == 2]
    assert fix["headline"] == headline_of(seen, is_shown=True, level=ProofLevel.RESOLVED_TREE)
    assert headline_of(seen, is_shown=True) != headline_of([], is_shown=True)
    assert shown("render_status", stored(tmp_path / "2", verdicts)).startswith(fix["headline"])


def test_the_status_names_what_is_fixed_in_part(tmp_path: Path) -> None:
    started, *others = t.recipe_verified()
    assert isinstance(started, FixStarted)
    events = [started.model_copy(update={"in_part": ("A",)}), *others]
    (fix,) = log_json(stored(tmp_path, events))
    assert fix["headline"].endswith("; in part: A")


def test_the_status_names_what_another_part_left(tmp_path: Path) -> None:
    """It is known at the delivery, and not before."""
    (fix,) = log_json(stored(tmp_path, delivered_in_part()))
    assert fix["headline"].startswith("fixed; ")
    assert fix["headline"].endswith("; in part: A")


@pytest.mark.parametrize("trail", [t.recipe_verified, own_code_patched, delivered_in_part])
def test_a_patch_is_not_fixed_before_its_delivery(
    tmp_path: Path, trail: Callable[[], t.Events]
) -> None:
    """Held back, of a dry run, or not delivered yet."""
    events = [one for one in trail() if not isinstance(one, PatchDelivered)]
    (fix,) = log_json(stored(tmp_path, events))
    assert fix["headline"].startswith("not delivered; ")
    assert "fixed" not in fix["headline"]
    for how in ("render_status", "render_log"):
        assert "not delivered" in shown(how, stored(tmp_path / how, events))


def test_a_trail_from_before_deliveries_is_told_as_it_was(tmp_path: Path) -> None:
    old = [one.model_copy(update={"schema_version": 4}) for one in stored(tmp_path, t.replayed())]
    (fix,) = log_json(old)
    assert fix["headline"].startswith("fixed; ")


@pytest.mark.parametrize("whole", [fails_together, nothing_proved_together, undecided_together])
def test_the_status_of_what_is_taken_apart_says_no_more_than_the_trail(
    tmp_path: Path, whole: Callable[[], t.Events]
) -> None:
    """Gates may have refused nothing, and no part may be on record."""
    (fix,) = log_json(stored(tmp_path, whole()))
    assert fix["outcome"] == "refused: fails_together"
    assert "refused" not in fix["headline"]
    assert "to be proved" in fix["headline"]


def test_an_empty_log() -> None:
    assert "empty" in shown("render_log", [])


def test_a_retry_says_what_stood_in_place_of_examples(tmp_path: Path) -> None:
    lines = shown("render_fix", stored(tmp_path, t.verified_on_retry())).splitlines()
    assert any("Attempt 2: fresh LLM run, no RAG" in line for line in lines)
    skip = next(i for i, line in enumerate(lines) if "summary of the last failure" in line)
    assert "tests_failed" in lines[skip]
    assert "│ (as above)" in lines[skip + 1]
    assert sum("│ expected 1, got 2" in line for line in lines) == 1, "each summary once"
    assert any("old text not found" in line for line in lines)
    assert any("SANDBOX DISABLED" in line for line in lines)
    assert any("FIXED; versions proved: passed applies, tests" in line for line in lines)


def test_an_initial_run_is_called_that(tmp_path: Path) -> None:
    text = shown("render_fix", stored(tmp_path, t.model_with_examples()))
    assert "Attempt 1: initial LLM run" in text
    assert "no RAG" not in text


def test_an_attempt_without_a_model_is_not_called_a_run(tmp_path: Path) -> None:
    text = shown("render_fix", stored(tmp_path, t.recipe_verified()))
    assert "Attempt 1: no model call" in text
    assert "LLM run" not in text


@pytest.mark.parametrize("valid", [*h.VALID, *u.KINDS], ids=lambda valid: valid.__name__)
def test_each_event_has_a_sentence_of_its_own(valid: Callable[[], t.Events]) -> None:
    for event in valid():
        assert sentence(event) not in {"", event.kind}


def test_the_trails_have_every_kind_of_event() -> None:
    """So that what is tested over all of them is tested over all kinds."""
    (union, _) = get_args(AuditEvent)
    trails = (*h.VALID, *u.KINDS)
    assert {type(event) for trail in trails for event in trail()} == set(get_args(union))


def test_a_doubted_patch_says_so_wherever_it_is_shown(tmp_path: Path) -> None:
    events = stored(tmp_path, m.doubted_twice())
    lines = shown("render_fix", events).splitlines()
    doubt = next(i for i, line in enumerate(lines) if "answer 1 NOT grounded: 50% of 2" in line)
    assert "│ it says that 1.2.4 is fixed" in lines[doubt + 1]
    assert any("strict: only what the context states" in line for line in lines)
    assert any("LOW CONFIDENCE (unsupported 2 times), check by hand: 1 of 2" in s for s in lines)
    assert any("package.json (NOT grounded, LOW CONFIDENCE)" in line for line in lines)
    assert "patch proposed, NOT grounded, LOW CONFIDENCE" in shown("render_log", events)
    (attempt,) = log_json(events)[0]["attempts"]
    assert (attempt["grounded"], attempt["low_confidence"]) == (False, True)


def test_a_supported_patch_is_grounded_and_an_unjudged_one_is_neither(tmp_path: Path) -> None:
    events = stored(tmp_path, m.supported(), m.judge_failed(), t.recipe_verified())
    text = shown("render_fix", events)
    assert "answer 1 grounded: 100% of 2 claims supported, by judge-model" in text
    assert "judge call 1 gave no answer (overloaded)" in text
    assert [text.count(f"package.json{reported}\n") for reported in ("", " (grounded)")] == [1, 1]
    assert "package.json (grounding not evaluated)" in text
    judged = [fix["attempts"][0]["grounded"] for fix in log_json(events)]
    assert judged == [True, None, None]
    assert "LOW CONFIDENCE" not in text


def test_a_verdict_outlives_the_failure_of_its_patch(tmp_path: Path) -> None:
    events = [*m.doubted_twice()[:-4], *t.failing_gates(1)]
    (attempt,) = log_json(stored(tmp_path, events))[0]["attempts"]
    assert (attempt["outcome"], attempt["low_confidence"]) == ("failed: tests_failed", True)


def test_a_budget_stop_who_raised_it_and_what_was_not_paid_again(tmp_path: Path) -> None:
    stopped = stored(tmp_path, m.stopped_at_budget())
    text = shown("render_fix", stopped)
    assert "BUDGET REACHED (usd_per_fix): the next call may use 0.05, 0.01 of 0.05 are used" in text
    assert "at most ~$0.05" in text
    assert log_json(stopped)[0]["outcome"] == "escalated: budget_exhausted"
    (tmp_path / "audit.db").unlink()
    raised = stored(tmp_path, m.raised_and_verified())
    text = shown("render_fix", raised)
    assert "budget of this fix raised to $0.50 by A. Person: worth it" in text
    assert "author call 1 to author-model not sent: answered before the interruption" in text
    assert text.count("Attempt 1: initial LLM run") == 2
    assert log_json(raised[: len(stopped) + 1])[0]["outcome"] == "open"
    assert log_json(raised)[0]["outcome"] == "verified"


def test_a_persons_answer_is_no_proof_wherever_it_is_shown(tmp_path: Path) -> None:
    events = stored(tmp_path, h.cap_then_approved(), h.cap_then_rejected(), h.cap_then_reopened())
    text = shown("render_fix", events)
    patch = t.digest("patch 4")[:12]
    assert f"patch {patch} approved by A. Person (not proved): read it line by line" in text
    assert f"patch {patch} delivered on the working tree" in text
    assert "rejected by A. Person: not worth it" in text
    assert "reopened by A. Person as transition-2: the test was wrong" in text
    assert [(fix["outcome"], fix["delivered"]) for fix in log_json(events)] == [
        ("approved by A. Person (not proved)", "delivered on the working tree"),
        ("rejected by A. Person", None),
        ("reopened by A. Person", None),
    ]
    log = shown("render_log", events)
    assert "approved by A. Person (not proved)  delivered on the working tree" in log
    assert "verified" not in log + text.lower()


def test_a_fix_that_was_resumed_says_so_and_a_linked_one_from_where(tmp_path: Path) -> None:
    events = stored(tmp_path, h.resumed_between_gates(), h.reopened_twice())
    text = shown("render_fix", events)
    assert text.count("resumed after GateJudged (version 0.1.0)") == 2
    assert "(npm), reopened from transition-0" in text
    assert [fix["linked_transition"] for fix in log_json(events)] == [None, "transition-0"]


def test_flaky_tests_and_a_branch_are_named() -> None:
    judged = next(e for e in h.flaky_and_verified() if getattr(e, "flaky", ()))
    assert sentence(judged) == "gate tests passed (flaky: test_clock): as expected"
    branch = sentence(h.verified_and_delivered()[-1])
    assert branch.endswith("delivered on a branch (fix/GHSA at c0ffee)")


def test_self_rags_choices(tmp_path: Path) -> None:
    text = shown("render_fix", stored(tmp_path, m.self_rag(), m.self_rag_degraded()))
    for reported in (
        "self-RAG step 1, path 0: fetch examples (said so)",
        "self-RAG step 3, path 0: continue with the examples of the step before (said so)",
        "1 examples, at most ~$0.05, self-RAG step 1, path 0, candidate 0",
        "candidate 0: kept, score 0.750, from e1, relevant, support full, usefulness 4, no log-",
        "step 1, path 0, candidate 1: dropped, score 0.750",
        "step 3, path 0, candidate 0: no candidate: no answer",
        "self-RAG degraded at step 2: the budget has room for one candidate",
    ):
        assert reported in text, reported
    forced = sentence(m.decided(1, Retrieve.NO, attempt=2, forced=True))
    assert forced == "self-RAG step 1, path 0: no examples (forced, said so)"


def test_json_has_the_shapes_too(tmp_path: Path) -> None:
    events = stored(tmp_path, t.verified_on_retry())
    (fix,) = json.loads(json.dumps(log_json(events)))
    assert fix["outcome"] == "verified"
    assert [a["shape"] for a in fix["attempts"]] == ["no model call", "fresh LLM run, no RAG"]
    whole = json.loads(json.dumps(fix_json(events)))
    assert [event_adapter.validate_python(e["payload"]) for e in whole["events"]] == [
        event.payload for event in events
    ]


def hostile_trail() -> list[AuditEvent]:
    """Every free text field of every event carries the payload."""
    free = {"advisory_id", "repository", "reason", "sentence", "detail", "summary_excerpt"}
    free |= {"question", "model", "stop_reason", "resume_rule", "recipe", "gate", "example_id"}
    free |= {"by", "judge_model", "problem", "cap", "used", "wanted", "after", "tool_version"}
    free |= {"opens", "reference", "linked_transition", "base_commit", "ecosystem"}
    lists = {"problems", "files", "unsupported", "loose_edits", "flaky", "gates"}
    events = [event for valid in h.VALID for event in valid()]
    hostile = []
    for event in events:
        fields = event.model_dump()
        update: dict[str, object] = dict.fromkeys(lists & set(fields), (HOSTILE,))
        update |= {name: HOSTILE for name in free & set(fields) if type(fields[name]) is str}
        hostile.append(event.model_copy(update=update))
    return hostile


def test_hostile_text_reaches_no_terminal(tmp_path: Path) -> None:
    events = stored(tmp_path, hostile_trail())
    texts = [shown("render_log", events), shown("render_fix", events)]
    for text in texts:
        assert {c for c in text if ord(c) < 32 or 0x7F <= ord(c) < 0xA0} == {"\n"}
        assert not {"\u202e", "\u202c"} & set(text)
    assert "\\x1b[2Jgone\\x07 [bold red]markup[/] \\u202eevil\\u202c :skull:" in texts[1]
    assert all(json.dumps(made(events)).isascii() for made in (log_json, fix_json))


def test_visible_keeps_ordinary_text() -> None:
    assert visible("naïve — 漢字 🙂 [x]") == "naïve — 漢字 🙂 [x]"
    assert visible("a\tb\nc") == "a\\tb\\nc"
    assert visible("a\tb\nc\r", lines=True) == "a\tb\nc\\r"


def test_a_report_says_what_is_bad_and_what_it_cannot_promise(tmp_path: Path) -> None:
    bad = [event for event in t.verified_on_retry() if event.kind != "RagSkippedOnRetry"]
    path = build(tmp_path / "audit.db", t.recipe_verified(), bad, t.recipe_verified()[:3])
    text = told(report(path))
    assert text.startswith("NOT INTACT: ")
    assert "rag-skip-recorded" in text
    assert "Open fixes (1):" in text
    assert "Checkpoints were not looked at" in text
    intact = build(tmp_path / "intact.db", t.recipe_verified())
    assert told(report(intact)).startswith("INTACT: ")


def test_a_part_of_a_run_over_several_says_so() -> None:
    message = sentence(part("A", in_part=("A",)))
    assert f"; a part of batch {digest('batch')[:12]}; in part only: A" in message
    assert "batch" not in sentence(t.fix_started())
