"""Gates are run again on a patch on record: killed at any event, from nothing seen before, and no more."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fallback_audit.errors import EvidenceError
from fallback_audit.events import AttemptStarted, FixStarted, PatchProposed
from fallback_audit.evidence.store import FileEvidenceStore
from fallback_audit.vocabulary import PromptShape
from fallback_tier.cli import exit_codes
from fallback_tier.errors import RepositoryError
from fallback_tier.fix.journal.review import Signature, reopen, run_gates_again
from fallback_tier.gate_ports import GateContext
from fallback_tier.wiring import evidence_dir
from tests.choice import a_choice
from tests.fakes.crashing import Kill, boundaries
from tests.fakes.ecosystem import FakeEcosystem
from tests.fakes.gates import RuleGate
from tests.fakes.repository import git
from tests.integration.crash_scenario import PASSES, CrashScenario
from tests.integration.test_answer_sequences import MAKING
from tests.kinds import OfKind

ADA = Signature("Ada", "the machine was flaky")


class Scenario(CrashScenario):
    """Its gate is red, whatever the patch, until it is fixed. Whoever killed it may put it back."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.gates = (RuleGate(self._accepts),)

    def _accepts(self, context: GateContext) -> bool:
        """What is installed once is found again, by all that share a cache."""
        seen = context.cache / "installed"
        if not seen.exists():
            seen.parent.mkdir(parents=True, exist_ok=True)
            seen.write_text("all of it" if self.fixed.exists() else "in part")
        text = context.worktree.tree.locate("app.py").read_text()
        return PASSES in text and seen.read_text() == "all of it"

    @property
    def fixed(self) -> Path:
        return self.root / "mended"

    def judge_again(self, opens: str = "gate-2") -> None:
        with self.services() as its:
            run_gates_again(its.audit, its.evidence, self.fix_id, ADA, opens=opens)

    def keep(self, name: str) -> None:
        shutil.copytree(self.root, self.root.with_name(name))

    def put_back(self, name: str) -> None:
        shutil.rmtree(self.root)
        shutil.copytree(self.root.with_name(name), self.root)

    def said(self) -> Any:
        return json.loads((self.root / "said").read_text())

    def since(self, start: int) -> list[str]:
        return [event.kind for event in self.events[start:]]


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Scenario:
    scenario = Scenario(tmp_path_factory.mktemp("again") / "scenario")
    assert scenario.fix() == exit_codes.ESCALATED
    assert scenario.said()["reason"] == "retry_refused"
    scenario.keep("asked")
    return scenario


@pytest.fixture
def scenario(asked: Scenario) -> Iterator[Scenario]:
    """As the fix stood when a person was asked."""
    yield asked
    asked.put_back("asked")


def test_the_patch_is_judged_and_nothing_is_made(
    scenario: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    def asked(*_: object) -> None:
        raise AssertionError("a recipe, or whoever chooses one, was asked")

    for name in ("select", "apply", "outline"):
        monkeypatch.setattr(FakeEcosystem, name, asked)
    scenario.judge_again()
    scenario.fixed.touch()
    before, requests = len(scenario.events), scenario.requests
    ended = scenario.ended(scenario.resume())
    assert (ended.code, ended.document["outcome"]) == (0, "verified")
    assert ended.document["attempts"] == 2  # that of its making
    assert ended.document["usage"] == []
    assert PASSES in ended.diff
    assert scenario.requests == requests
    kinds = scenario.since(before)
    assert not MAKING & set(kinds)
    assert kinds == [
        *("FixStarted", "SandboxDisabled", "AttemptStarted", "PatchProposed"),
        *("GateJudged",) * len(ended.document["verdicts"]),
        *("FixVerified", "PatchDelivered"),
    ]
    started, patch = (
        next(event for event in scenario.events[before:] if isinstance(event, kind))
        for kind in (FixStarted, PatchProposed)
    )
    (made,) = (
        e for e in scenario.events[:before] if isinstance(e, PatchProposed) and e.attempt == 2
    )
    assert isinstance(patch, PatchProposed)
    assert patch == made.model_copy(update={"taken_from": patch.taken_from})
    assert isinstance(started, FixStarted)
    assert started.judges_again == made.patch_sha256
    (attempt,) = (e for e in scenario.events[before:] if isinstance(e, AttemptStarted))
    assert (attempt.prior_attempt_count, attempt.prompt_shape) == (0, PromptShape.NONE)


def test_a_person_is_asked_again_where_the_gate_is_as_it_was(scenario: Scenario) -> None:
    scenario.judge_again()
    requests = scenario.requests
    ended = scenario.ended(scenario.resume())
    assert (ended.code, ended.document["reason"]) == (exit_codes.ESCALATED, "gates_failed_again")
    assert "patch of attempt 2, and it failed at proof" in ended.document["question"]
    assert [one["status"] for one in ended.document["verdicts"]][-2:] == ["passed", "failed"]
    assert (scenario.requests, ended.diff) == (requests, "")
    # Once more, fixed; the patch is still that of the first gate transition.
    scenario.judge_again("gate-3")
    scenario.fixed.touch()
    assert scenario.ended(scenario.resume()).code == 0
    assert len({patch.patch_sha256 for patch in taken(scenario)}) == 1
    assert len({patch.taken_from for patch in taken(scenario)}) == 1


def taken(scenario: Scenario) -> list[PatchProposed]:
    patches = [event for event in scenario.events if isinstance(event, PatchProposed)]
    return [patch for patch in patches if patch.taken_from]


def test_attempts_behind_it_start_with_its_failure(scenario: Scenario) -> None:
    scenario.judge_again()
    assert scenario.resume() == exit_codes.ESCALATED
    with scenario.services() as its:
        reopen(its.audit, scenario.fix_id, ADA, opens="gate-3")
    before = len(scenario.events)
    scenario.resume()
    scenario.check()
    starts = [e for e in scenario.events[before:] if isinstance(e, AttemptStarted)]
    assert (starts[0].attempt, starts[0].prior_attempt_count) == (3, 1)


def test_what_gates_kept_is_forgotten_and_not_lost(scenario: Scenario) -> None:
    """The shared cache says "in part" still: for the fixes that are judged by it."""
    cache = scenario.state / "cache"
    assert (cache / "installed").read_text() == "in part"
    scenario.judge_again()
    scenario.fixed.touch()
    assert scenario.resume() == 0
    assert [path.name for path in cache.iterdir()] == ["installed"]
    assert (cache / "installed").read_text() == "in part"


@pytest.mark.parametrize("share", a_choice((2, 0, 1), step=3))
def test_killed_anywhere_it_comes_to_the_same_end(scenario: Scenario, share: int) -> None:
    """In the suite every third boundary, among them: the patch is delivered, and that is not on record."""
    scenario.judge_again()
    scenario.fixed.touch()
    reopened = f"reopened-{share}"
    scenario.keep(reopened)
    before = len(scenario.events)
    whole = scenario.ended(scenario.resume())
    kinds = scenario.since(before)
    for kill in boundaries(len(kinds))[share::3]:
        scenario.put_back(reopened)
        assert scenario.resume(kill) is None, kill
        assert scenario.ended(scenario.resume()) == whole, kill
        for kind in ("GateJudged", "FixVerified", "PatchDelivered"):
            assert scenario.since(before).count(kind) == kinds.count(kind), (kill, kind)
        assert not MAKING & set(scenario.since(before)), kill
    # The last kill of share 1 is between the verdict and the delivery: who goes on there runs no gate.
    if share != 1:
        assert not list((scenario.state / "cache").glob("again-*"))


@pytest.mark.parametrize("kill", [None, Kill(3, before=False)])
def test_a_patch_that_is_gone_is_an_error_and_nothing_is_recorded(
    scenario: Scenario, kill: Kill | None
) -> None:
    """Between the reopening and its run; and in the middle of it."""
    scenario.judge_again()
    if kill is not None:
        assert scenario.resume(kill) is None
    before = scenario.events
    (event,) = (e for e in before if isinstance(e, PatchProposed) and e.attempt == 2)
    FileEvidenceStore(evidence_dir(scenario.state)).path(event.patch_sha256).unlink()
    with pytest.raises(EvidenceError), scenario.services() as its:
        scenario.go_on(its)
    assert scenario.events == before


def test_another_commit_is_not_judged(scenario: Scenario) -> None:
    scenario.judge_again()
    (scenario.repo / "app.py").write_text("")
    git(scenario.repo, "commit", "-qam", "mine")
    before = scenario.events
    with pytest.raises(RepositoryError, check=OfKind("another_commit")), scenario.services() as its:
        scenario.go_on(its)
    assert scenario.events == before
