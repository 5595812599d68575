"""A host that knows nothing of us: an entry-point group, plain data in, attributes and JSON out."""

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest

from fallback_audit.errors import ContractError
from tests.e2e.command import osv, repository, snapshot
from tests.e2e.wheel import Installed

FILES = {"requirements.txt": "# pinned\nleft==1.0.0\n", "app.py": "import left\n"}

#: What a host writes: nothing of ours is imported.
HOST = """
import json, sys
from importlib.metadata import entry_points

(build,) = (e.load() for e in entry_points(group="fallback_tier.tiers") if e.name == "default")
tier = build({"state_dir": sys.argv[1]})
inputs = tier.prepare(sys.argv[2], sys.argv[3], fix_id="host-1", gate_transition_id="host-1-a")
first = tier.run(inputs.advisory, inputs.repo_ctx, inputs.recipe_selection, prior_attempts=[])
assert first.outcome == "applied"
failed = {
    "attempt": first.attempt,
    "tier": first.tier,
    "edit_digest": first.edit_digest,
    "failing_gates": ["my-own-tests"],
    "failure_kind": "tests_failed",
    "prior_failure_summary": "test_app.py::test_left: ImportError",
}
retry = tier.run(inputs.advisory, inputs.repo_ctx, inputs.recipe_selection, prior_attempts=[failed])
tier.close()
print(json.dumps([first.model_dump(mode="json"), retry.model_dump(mode="json")]))
"""


def make_inputs(place: Path) -> tuple[Path, Path, Path]:
    advisory = place / "advisory.json"
    advisory.write_text(osv("left"))
    return place / "state", advisory, repository(place / "repo", FILES)


def test_a_host_in_a_process_of_its_own(tmp_path: Path, installed: Installed) -> None:
    """From the wheel, so that only the entry point can lead to us."""
    state, advisory, repo = make_inputs(tmp_path)
    before = snapshot(repo)
    done = subprocess.run(
        [installed.python, "-c", HOST, str(state), str(advisory), str(repo)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    first, retry = json.loads(done.stdout)
    assert (first["tier"], first["prompt_shape"], first["attempt"]) == ("recipe", "none", 1)
    assert "-left==1.0.0\n+left==2.0.0\n" in first["diff"]
    assert (retry["outcome"], retry["reason"]) == ("refused", "model_not_configured")
    assert retry["attempt"] == 2
    assert snapshot(repo) == before  # the tier makes patches; it applies none
    shown = subprocess.run(
        [installed.script, "audit", "show", "host-1", "--state-dir", state, "--json"],
        capture_output=True,
        text=True,
        check=True,
    )
    kinds = [event["kind"] for event in json.loads(shown.stdout)["events"]]
    assert kinds.count("AttemptStarted") == 2
    assert kinds.count("RagSkippedOnRetry") == 1
    assert kinds.count("RetrievalQueried") == 0


@pytest.fixture
def tier(tmp_path: Path) -> Iterator[Any]:
    mounted = build({"state_dir": str(tmp_path / "state")})
    yield mounted
    mounted.close()


def build(configuration: Mapping[str, Any]) -> Any:
    (found,) = entry_points(group="fallback_tier.tiers", name="default")
    return found.load()(configuration)


def test_both_ways_are_the_same(tmp_path: Path, tier: Any) -> None:
    _, advisory, repo = make_inputs(tmp_path)
    once, again = (tier.prepare(str(advisory), str(repo)) for _ in range(2))
    streamed = list(tier.stream(once.advisory, once.repo_ctx, once.recipe_selection))
    assert [event.kind for event in streamed] == [
        "AttemptStarted",
        "RecipeEvaluated",
        "PatchProposed",
        "Finished",
    ]
    ran = tier.run(again.advisory, again.repo_ctx, again.recipe_selection)
    assert streamed[-1].application == ran


def test_one_attempt_is_not_made_twice(tmp_path: Path, tier: Any) -> None:
    _, advisory, repo = make_inputs(tmp_path)
    inputs = tier.prepare(str(advisory), str(repo))
    tier.run(inputs.advisory, inputs.repo_ctx, inputs.recipe_selection)
    with pytest.raises(ContractError, match="attempt 1 starts after attempt 1"):
        tier.run(inputs.advisory, inputs.repo_ctx, inputs.recipe_selection)


def summary(**changes: Any) -> dict[str, Any]:
    facts = {"attempt": 1, "failure_kind": "tests_failed", "prior_failure_summary": "it failed"}
    return {**facts, **changes}


@pytest.mark.parametrize("way", ["run", "stream"])
@pytest.mark.parametrize(
    ("history", "reason"),
    [
        ([summary(), summary(failure_kind="odd")], r"1\.failure_kind: Input should be"),
        ([summary(note="x")], r"0\.note: Extra inputs"),
        ([{"attempt": 1}], r"0\.failure_kind: Field required"),
        ([summary(attempt=2), summary()], r"\b1 .* 2\b"),
        ([summary(prior_failure_summary="x" * 8_193)], "8,193 .* 8,192"),
    ],
)
def test_a_history_that_is_none(
    tmp_path: Path, tier: Any, way: str, history: list[dict[str, Any]], reason: str
) -> None:
    """Typed, and readable by a host that can't name the class."""
    _, advisory, repo = make_inputs(tmp_path)
    inputs = tier.prepare(advisory, repo)
    arguments = (inputs.advisory, inputs.repo_ctx, inputs.recipe_selection)
    with pytest.raises(Exception, match=reason) as caught:
        list(getattr(tier, way)(*arguments, prior_attempts=history))
    assert caught.value.code == "attempt_history"  # type: ignore[attr-defined]
    assert caught.value.next_step  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("configuration", "reason"),
    [
        ({}, "state_dir: Field required"),
        ({"state_dir": "s", "modle": "x"}, "modle: Extra inputs"),
        ({"state_dir": "s", "model": "m"}, "'m' .*key"),
        ({"state_dir": "s", "base_url": "http://127.0.0.1:9"}, r"http://127\.0\.0\.1:9 .*model"),
        ({"state_dir": "s", "examples": "absent.db"}, r"absent\.db"),
    ],
)
def test_a_configuration_that_cannot_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, configuration: dict[str, Any], reason: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Exception, match=reason) as caught:
        build(configuration)
    assert caught.value.code == "configuration"  # type: ignore[attr-defined]
    assert list(tmp_path.iterdir()) == []  # no store was made for it


def test_the_entry_point_is_the_only_one() -> None:
    names = [found.name for found in entry_points(group="fallback_tier.tiers")]
    assert names == ["default"]
    assert "fallback_tier" in sys.modules
