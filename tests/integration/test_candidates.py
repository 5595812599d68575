"""Gates refuse a recipe's patch, and the recipe has another: a first attempt still (ADR-0048)."""

from pathlib import Path

import pytest

from fallback_audit.events import PatchProposed, RagSkippedOnRetry, RecipeCandidateFailed
from fallback_audit.vocabulary import LadderStep, Tier
from fallback_tier.cli import exit_codes
from tests.choice import a_choice
from tests.e2e.command import osv, repository, run
from tests.fakes.crashing import Kill
from tests.fakes.ecosystem import TwoCandidates
from tests.integration.crash_scenario import CrashScenario, Ended, check_killed
from tests.integration.gate_setup import needs_sandbox
from tests.registry import Universe, serve
from tests.unit.npm.world import at, project

#: mid 1.1.0 brings in a safe leaf, and no longer does what the application needs.
UNIVERSE = (
    Universe()
    .npm("leaf", "1.0.0", files={"index.js": "module.exports = 'leaf';\n"})
    .npm("leaf", "1.2.0", files={"index.js": "module.exports = 'leaf';\n"})
    .npm("mid", "1.0.0", {"leaf": "1.0.0"}, files={"index.js": "exports.shout = () => 'LEAF';\n"})
    .npm("mid", "1.1.0", {"leaf": "1.2.0"}, files={"index.js": "exports.whisper = () => 'leaf';\n"})
)
TEST = """const { test } = require('node:test');
const assert = require('node:assert');
test('shouts', () => assert.strictEqual(require('mid').shout(), 'LEAF'));
"""


@pytest.mark.sandbox
def test_where_the_parent_breaks_the_application_the_override_is_tried(tmp_path: Path) -> None:
    needs_sandbox()
    installed = {"leaf": at("1.0.0"), "mid": at("1.0.0", leaf="1.0.0")}
    files = project({"mid": "1.0.0"}, installed, scripts={"test": "node --test"})
    with serve(UNIVERSE) as registry:
        repo = repository(tmp_path / "repo", {**files, "test/app.test.js": TEST})
        (tmp_path / "advisory.json").write_text(osv("leaf", ecosystem="npm", fixed="1.2.0"))
        own = ["--state-dir", tmp_path / "state", "--keys", tmp_path / "keys"]
        ended = run(
            *("fix", repo, "--advisory", tmp_path / "advisory.json", "--dry-run", "--json"),
            *own,
            env=registry.environ,
        )
    assert ended.code == exit_codes.OK, ended
    reported = ended.json
    assert (reported["attempts"], reported["application"]["tier"]) == (1, "recipe")
    (failed,) = reported["failed_candidates"]
    assert (failed["candidate"], failed["steps"]) == (1, ["parent_bump"])
    assert (failed["failure_kind"], failed["failing_gates"]) == ("tests_failed", ["tests"])
    (changed,) = reported["application"]["remediation"]["declarations"]
    assert (changed["package"], changed["file"]) == ("leaf", "package.json")
    assert "1: recipe, no model call, candidate 1 failed" in run("audit", "log", *own).out
    shown = run("audit", "show", reported["fix_id"], *own)
    assert "candidate 1 failed: tests_failed at tests" in shown.out, shown
    assert "without parent bump" in shown.out, shown
    assert run("audit", "verify", *own).code == exit_codes.OK


Whole = tuple[CrashScenario, Ended]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    """Two candidates in vain, then a retry."""
    scenario = CrashScenario(tmp_path_factory.mktemp("whole") / "scenario")
    scenario.ecosystem = TwoCandidates
    return scenario, scenario.ended(scenario.fix())


def test_the_last_candidates_failure_is_the_only_prior_attempt(whole: Whole) -> None:
    scenario, ended = whole
    assert ended.document["attempts"] == 2
    (failed,) = (event for event in scenario.events if isinstance(event, RecipeCandidateFailed))
    assert (failed.candidate, failed.left_out) == (1, (LadderStep.DIRECT_BUMP,))
    patches = [event for event in scenario.events if isinstance(event, PatchProposed)]
    assert [(patch.attempt, patch.tier) for patch in patches[:2]] == [(1, Tier.RECIPE)] * 2
    (skipped,) = (event for event in scenario.events if isinstance(event, RagSkippedOnRetry))
    assert (skipped.attempt, skipped.attempt_count) == (2, 1)
    assert scenario.kinds["RetrievalQueried"] == 0


@pytest.mark.parametrize("share", a_choice((0, 1), step=2))
def test_killed_between_candidates_a_fix_comes_to_the_same_end(
    whole: Whole, tmp_path: Path, share: int
) -> None:
    """With the suite right behind the failure, and at every other event around it."""
    kinds = [event.kind for event in whole[0].events]
    at = kinds.index("RecipeCandidateFailed") + 1
    for number in range(at - 2 + share, at + 4, 2):
        check_killed(*whole, tmp_path / str(number), Kill(number, before=False))
