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
from fallback_tier.gate_ports import GateContext
from fallback_tier.gates.journal.review import Signature, reopen, run_gates_again
from fallback_tier.wiring import evidence_dir
from tests.fakes.crashing import Kill, boundaries
from tests.fakes.ecosystem import FakeEcosystem
from tests.fakes.gates import RuleGate
from tests.fakes.repository import git
from tests.integration.crash_house import PASSES, CrashHouse
from tests.integration.test_answer_sequences import MAKING

ADA = Signature("Ada", "the machine was flaky")


class House(CrashHouse):
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
def asked(tmp_path_factory: pytest.TempPathFactory) -> House:
    house = House(tmp_path_factory.mktemp("again") / "house")
    assert house.fix() == exit_codes.ESCALATED
    assert house.said()["reason"] == "retry_cap_reached"
    house.keep("asked")
    return house


@pytest.fixture
def house(asked: House) -> Iterator[House]:
    """As the fix stood when a person was asked."""
    yield asked
    asked.put_back("asked")


def test_the_patch_is_judged_and_nothing_is_made(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    def asked(*_: object) -> None:
        raise AssertionError("a recipe, or whoever chooses one, was asked")

    for name in ("select", "apply", "outline"):
        monkeypatch.setattr(FakeEcosystem, name, asked)
    house.judge_again()
    house.fixed.touch()
    before, requests = len(house.events), house.requests
    ended = house.ended(house.resume())
    assert (ended.code, ended.document["outcome"]) == (0, "verified")
    assert ended.document["attempts"] == 2  # that of its making
    assert ended.document["usage"] == []
    assert PASSES in ended.diff
    assert house.requests == requests
    kinds = house.since(before)
    assert not MAKING & set(kinds)
    assert kinds == [
        *("FixStarted", "SandboxDisabled", "AttemptStarted", "PatchProposed"),
        *("GateJudged",) * len(ended.document["verdicts"]),
        *("FixVerified", "PatchDelivered"),
    ]
    started, patch = (
        next(event for event in house.events[before:] if isinstance(event, kind))
        for kind in (FixStarted, PatchProposed)
    )
    (made,) = (e for e in house.events[:before] if isinstance(e, PatchProposed) and e.attempt == 2)
    assert isinstance(patch, PatchProposed)
    assert patch == made.model_copy(update={"taken_from": patch.taken_from})
    assert isinstance(started, FixStarted)
    assert started.judges_again == made.patch_sha256
    (attempt,) = (e for e in house.events[before:] if isinstance(e, AttemptStarted))
    assert (attempt.prior_attempt_count, attempt.prompt_shape) == (0, PromptShape.NONE)


def test_a_person_is_asked_again_where_the_gate_is_as_it_was(house: House) -> None:
    house.judge_again()
    requests = house.requests
    ended = house.ended(house.resume())
    assert (ended.code, ended.document["reason"]) == (exit_codes.ESCALATED, "gates_failed_again")
    assert "patch of attempt 2, and it failed at proof" in ended.document["question"]
    assert [one["status"] for one in ended.document["verdicts"]][-2:] == ["passed", "failed"]
    assert (house.requests, ended.diff) == (requests, "")
    # Once more, fixed; the patch is still that of the first gate transition.
    house.judge_again("gate-3")
    house.fixed.touch()
    assert house.ended(house.resume()).code == 0
    assert len({patch.patch_sha256 for patch in taken(house)}) == 1
    assert len({patch.taken_from for patch in taken(house)}) == 1


def taken(house: House) -> list[PatchProposed]:
    patches = [event for event in house.events if isinstance(event, PatchProposed)]
    return [patch for patch in patches if patch.taken_from]


def test_attempts_behind_it_start_with_its_failure(house: House) -> None:
    house.judge_again()
    assert house.resume() == exit_codes.ESCALATED
    with house.services() as its:
        reopen(its.audit, house.fix_id, ADA, opens="gate-3")
    before = len(house.events)
    house.resume()
    house.check()
    starts = [e for e in house.events[before:] if isinstance(e, AttemptStarted)]
    assert (starts[0].attempt, starts[0].prior_attempt_count) == (3, 1)


def test_what_gates_kept_is_forgotten_and_not_lost(house: House) -> None:
    """The shared cache says "in part" still: for the fixes that are judged by it."""
    cache = house.state / "cache"
    assert (cache / "installed").read_text() == "in part"
    house.judge_again()
    house.fixed.touch()
    assert house.resume() == 0
    assert [path.name for path in cache.iterdir()] == ["installed"]
    assert (cache / "installed").read_text() == "in part"


def test_killed_anywhere_it_comes_to_the_same_end(house: House) -> None:
    house.judge_again()
    house.fixed.touch()
    house.keep("reopened")
    before = len(house.events)
    whole = house.ended(house.resume())
    kinds = house.since(before)
    for kill in boundaries(len(kinds)):
        house.put_back("reopened")
        assert house.resume(kill) is None, kill
        assert house.ended(house.resume()) == whole, kill
        for kind in ("GateJudged", "FixVerified", "PatchDelivered"):
            assert house.since(before).count(kind) == kinds.count(kind), (kill, kind)
        assert not MAKING & set(house.since(before)), kill
    assert not list((house.state / "cache").glob("again-*"))


@pytest.mark.parametrize("kill", [None, Kill(3, before=False)])
def test_a_patch_that_is_gone_is_an_error_and_nothing_is_recorded(
    house: House, kill: Kill | None
) -> None:
    """Between the reopening and its run; and in the middle of it."""
    house.judge_again()
    if kill is not None:
        assert house.resume(kill) is None
    before = house.events
    (event,) = (e for e in before if isinstance(e, PatchProposed) and e.attempt == 2)
    FileEvidenceStore(evidence_dir(house.state)).path(event.patch_sha256).unlink()
    with pytest.raises(EvidenceError), house.services() as its:
        house.go_on(its)
    assert house.events == before


def test_another_commit_is_not_judged(house: House) -> None:
    house.judge_again()
    (house.repo / "app.py").write_text("")
    git(house.repo, "commit", "-qam", "mine")
    before = house.events
    with pytest.raises(RepositoryError, match="began at commit"), house.services() as its:
        house.go_on(its)
    assert house.events == before
