"""What advisories, files and clients say reaches no terminal and no record as they wrote it."""

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from fallback_audit.events import FixStarted, GateJudged, RecipeEvaluated
from fallback_audit.showing.describe import sentence
from fallback_audit.stores.sqlite import SqliteAuditStore
from fallback_audit.vocabulary import GateStatus, RefusalReason
from fallback_tier.advisory import Advisory
from fallback_tier.cli import exit_codes
from fallback_tier.cli.fix.batch_report import combined_exit_code
from fallback_tier.cli.output import print_error, print_error_json, print_json
from fallback_tier.cli.progress import FixProgress, PlanProgress
from fallback_tier.errors import AdvisoryError, RecipeError
from fallback_tier.fix.batch.outcome import Part
from fallback_tier.fix_result import RefusedFix
from fallback_tier.wiring import audit_db
from tests.integration.test_cli_several import Scenario, ecosystem
from tests.unit.planning.test_planning import advisory, planned
from tests.unit.planning.test_planning_unknown import commits_only

#: A window title, a colour by an eight-bit control, text turned around.
HOSTILE = "\x1b]0;owned\x07\x9b31m\u202e"
ACTING = set("\x1b\x07\x9b\u202e")


def test_an_error_that_quotes_an_advisory_is_neutralised(
    capsys: pytest.CaptureFixture[str],
) -> None:
    withdrawn = AdvisoryError(f"{HOSTILE} was withdrawn.", next_step=HOSTILE)
    print_error(withdrawn)
    print_error_json(withdrawn)
    reported = capsys.readouterr()
    assert not ACTING & set(reported.err + reported.out)
    assert json.loads(reported.out)["error"]["next_step"] == HOSTILE, "JSON gives it back"


def test_json_holds_what_no_encoding_has(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"id": "a\udcff", "name": "Zoë 🎈"})
    message = capsys.readouterr().out
    message.encode()
    assert json.loads(message) == {"id": "a\udcff", "name": "Zoë 🎈"}
    assert "Zoë 🎈" in message


def test_progress_is_neutralised() -> None:
    written = io.StringIO()
    console = Console(file=written)
    show = FixProgress(console)
    show(RecipeEvaluated(attempt=1, selected=False, reason=HOSTILE))
    show(GateJudged(attempt=1, gate="g", status=GateStatus.PASSED, detail=HOSTILE, duration_ms=1))
    PlanProgress(console)(HOSTILE)
    assert "owned" in written.getvalue()
    assert not ACTING & set(written.getvalue())


def test_progress_is_told_in_the_trails_own_words() -> None:
    failed = GateStatus.FAILED
    recipe = RecipeEvaluated(attempt=1, selected=False, reason="[red]not[/] affected")
    gate = GateJudged(
        attempt=1,
        gate="g",
        status=failed,
        failure_kind="tests_failed",
        detail="1\n2",
        duration_ms=1,
    )
    written = io.StringIO()
    show = FixProgress(Console(file=written))
    show(recipe)
    show(gate)
    assert written.getvalue() == f"  {sentence(recipe)}\n  {sentence(gate)}: 1\n"


def test_a_clients_words_are_redacted_in_the_trail(tmp_path: Path) -> None:
    scenario = Scenario(tmp_path)
    message = f"npm: https://me:s3cr3tw0rd@registry.test/left failed {HOSTILE}" + "x" * 5_000
    error = RecipeError(RefusalReason.RESOLVER_FAILED, message, next_step="")
    scenario.plugins = {**scenario.plugins, "PyPI": ecosystem("PyPI", failing={"left": error})}
    assert scenario.fix(advisory("A", "left")) == exit_codes.REFUSED
    assert "RecipeEvaluated" in scenario.kinds
    store = SqliteAuditStore(audit_db(scenario.state))
    reasons = [
        str(it.payload.reason) for it in store.events() if isinstance(it.payload, RecipeEvaluated)
    ]
    store.close()
    assert "s3cr3tw0rd" not in reasons[0]
    assert not ACTING & set(reasons[0])
    assert len(reasons[0]) < 2_000


def test_planned_and_then_not_fixed_is_no_success(tmp_path: Path) -> None:
    result = planned(tmp_path, advisory("A", "left"))
    ended = RefusedFix(
        fix_id="f",
        gate_transition_id="g",
        advisory_id="A",
        attempts=1,
        prior_attempts=(),
        verdicts=(),
        reason=RefusalReason.NOT_AFFECTED,
        sentence="Not affected.",
    )
    part = Part("PyPI", result.fixes[0].advisory, ended)
    assert combined_exit_code(result, [part]) == exit_codes.REFUSED


def test_a_record_of_commits_is_not_said_to_be_no_concern(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scenario = Scenario(tmp_path)
    assert scenario.fix(commits_only("G", "left")) == exit_codes.REFUSED
    reported = json.loads(capsys.readouterr().out)
    assert reported["reason"] == "no_fixed_version"
    assert "names no version of left" in reported["sentence"]


def test_a_record_of_commits_in_two_ecosystems_is_left(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scenario = Scenario(tmp_path)
    both = commits_only("G", "left")
    npm = [it.model_dump() for it in both.affected]
    npm[0]["package"]["ecosystem"] = "npm"
    record = Advisory.model_validate({"id": "G", "affected": [*map(dict, both.affected), *npm]})
    assert scenario.fix(record) == exit_codes.REFUSED
    reported = json.loads(capsys.readouterr().out)
    assert [item["reason"] for item in reported["left"]] == ["no_fixed_version"] * 2
    assert reported["not_affected"] == []


def test_the_trail_names_every_advisory_of_a_bundle(tmp_path: Path) -> None:
    scenario = Scenario(tmp_path)
    given = [advisory(name, "left") for name in "ABCDE"] + [advisory("GUARD", "absent")]
    assert scenario.fix(*given) == exit_codes.OK
    assert "FixStarted" in scenario.kinds
    store = SqliteAuditStore(audit_db(scenario.state))
    (started,) = [it.payload for it in store.events() if isinstance(it.payload, FixStarted)]
    store.close()
    assert started.advisory_ids == tuple("ABCDE")
