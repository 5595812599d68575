"""A run over several advisories that is killed anywhere goes on to the same end, and redoes nothing.

Small ecosystems; processes, the trail, git and the runner are real.
"""

import argparse
import json
import os
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from fallback_audit.contract.guard import ContractGuard
from fallback_audit.events import AuditEvent, FixEscalated, FixStarted, GateJudged
from fallback_audit.evidence.store import FileEvidenceStore, get_document
from fallback_audit.stores.sqlite import SqliteAuditStore
from fallback_audit.verifying.verify import verify
from fallback_tier.advisory import AdvisorySet
from fallback_tier.cli import exit_codes
from fallback_tier.cli.fix.command import finish, run_with
from fallback_tier.fix import Fixer
from fallback_tier.fix.batch.running import BatchRecord
from fallback_tier.fix.journal.holding import holding
from fallback_tier.fix.journal.review import Signature, reopen
from fallback_tier.gate_ports import GateContext
from fallback_tier.sandbox.clients import SubprocessClients
from fallback_tier.tier import FallbackTier
from fallback_tier.wiring import Configuration, Services, audit_db, evidence_dir
from tests.choice import a_choice
from tests.e2e.command import repository
from tests.fakes.crashing import CrashingStore, Kill, in_child
from tests.fakes.ecosystem import LadderEcosystem
from tests.fakes.gates import RuleGate
from tests.fakes.repository import git
from tests.unit.planning.test_planning import advisory

#: One worker: the run that nobody interrupts is made once.
pytestmark = pytest.mark.xdist_group("batch-resume")

PINS = "left 1.0.0\nright 1.0.0\nmiddle 1.0.0\n"
FILES = {"pypi.txt": PINS, "npm.txt": PINS}
#: `right` breaks the tests of the first ecosystem; the other has one that holds.
GIVEN = AdvisorySet(
    advisories=(
        advisory("A", "left"),
        advisory("B", "right"),
        advisory("C", "middle"),
        advisory("N", "left", ecosystem="npm"),
    )
)
FIXED = {"pypi.txt": "left 2.0.0\nright 1.0.0\nmiddle 2.0.0\n", "npm.txt": "left 2.0.0\n"}


class Scenario:
    """One repository and one state folder; every command is a process of its own."""

    def __init__(self, root: Path) -> None:
        self.root, self.state = root, root / "state"
        self.repo = repository(root / "repo", FILES)
        self.state.mkdir()
        self.dies_in_a_gate = False

    def fix(self, kill: Kill | None = None, **options: Any) -> int | None:
        """`fix`: its exit code, or None where it was killed."""
        arguments = self.arguments(**options)

        def work() -> int:
            with self.services(kill) as services:
                return run_with(GIVEN, Fixer(services), arguments)

        return in_child(work, self.root / "said")

    def arguments(self, **options: Any) -> argparse.Namespace:
        reported: dict[str, Any] = {"repository": self.repo, "output": None, "dry_run": False}
        reported |= dict.fromkeys(("resume", "commit", "report"))
        return argparse.Namespace(**{**reported, "json": True, **options})

    def resume(self, kill: Kill | None = None) -> int | None:
        """`resume` of the first part."""

        def work() -> int:
            with self.services(kill) as services:
                return finish(Fixer(services).resume(self.fix_id), services, as_json=True)

        return in_child(work, self.root / "said")

    @contextmanager
    def services(self, kill: Kill | None = None) -> Iterator[Services]:
        audit = CrashingStore(audit_db(self.state), kill, guard=ContractGuard())
        evidence = FileEvidenceStore(evidence_dir(self.state))
        plugins = {
            "PyPI": LadderEcosystem(gate_list=(RuleGate(self._accepts),)),
            "npm": LadderEcosystem(name="npm", gate_list=(RuleGate(lambda _: True),)),
        }
        tier = FallbackTier(
            plugins=plugins, retriever=None, leaf=None, audit=audit, evidence=evidence
        )
        configuration = Configuration(state_dir=self.state, sandbox_waiver="a test")
        yield Services(configuration, SubprocessClients(), plugins, audit, evidence, tier)
        audit.close()

    def _accepts(self, context: GateContext) -> bool:
        if self.dies_in_a_gate and not (self.root / "died").exists():
            (self.root / "died").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        text = context.worktree.tree.locate("pypi.txt").read_text()
        return "right 1.0.0" in text

    @property
    def events(self) -> list[tuple[str, AuditEvent]]:
        store = SqliteAuditStore(audit_db(self.state))
        found = [(stored.scope.fix_id, stored.payload) for stored in store.events()]
        store.close()
        return found

    @property
    def kinds(self) -> Counter[str]:
        return Counter(event.kind for _, event in self.events)

    @property
    def fix_id(self) -> str:
        return self.events[0][0]

    def check(self) -> None:
        """A whole record that keeps its contract, no verdict twice, nothing left behind."""
        store = SqliteAuditStore(audit_db(self.state))
        evidence = FileEvidenceStore(evidence_dir(self.state))
        report = verify(store, checkpoints=None, evidence=evidence)
        store.close()
        assert report.ok, report.model_dump(mode="json")
        judged = Counter(
            (fix_id, event.gate) for fix_id, event in self.events if isinstance(event, GateJudged)
        )
        assert set(judged.values()) == {1}, judged
        for folder in ("worktrees", "held"):
            assert not list((self.state / folder).glob("*")), folder

    @property
    def document(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.root / "said").read_text())
        return found


@dataclass(frozen=True)
class Ended:
    """What a run came to, without identifiers."""

    code: int | None
    outcomes: tuple[tuple[str, str, tuple[str, ...]], ...]
    parts: tuple[tuple[Any, ...], ...]
    gate_runs: int
    diff: str


def ended(scenario: Scenario, code: int | None) -> Ended:
    reported = scenario.document
    scenario.check()
    return Ended(
        code,
        tuple(
            (one["id"], one["outcome"], tuple(why["reason"] for why in one["why"]))
            for one in reported["advisories"]
        ),
        tuple(
            (tuple(it["advisory_ids"]), it["outcome"], it["delivered"]) for it in reported["fixes"]
        ),
        reported["gate_runs"],
        git(scenario.repo, "diff"),
    )


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Scenario, Ended]:
    """Nobody interrupts it."""
    scenario = Scenario(tmp_path_factory.mktemp("whole") / "scenario")
    return scenario, ended(scenario, scenario.fix())


def test_what_holds_is_delivered(whole: tuple[Scenario, Ended]) -> None:
    scenario, end = whole
    assert end.code == exit_codes.ESCALATED
    assert {name: outcome for name, outcome, _ in end.outcomes} == {
        "A": "fixed",
        "B": "not_fixed",
        "C": "fixed",
        "N": "fixed",
    }
    assert (scenario.repo / "pypi.txt").read_text() == FIXED["pypi.txt"]
    assert end.gate_runs == 5 + 1
    starts = [event for _, event in scenario.events if isinstance(event, FixStarted)]
    assert len({event.batch_sha256 for event in starts}) == 1
    assert len(starts) == end.gate_runs


def same_end(whole: tuple[Scenario, Ended], scenario: Scenario, code: int | None) -> None:
    """… and nothing that was on record was done again."""
    assert ended(scenario, code) == whole[1]
    for kind in ("FixStarted", "GateJudged", "FixVerified", "FixRefused", "FixEscalated"):
        assert scenario.kinds[kind] == whole[0].kinds[kind], kind
    assert scenario.kinds["PatchDelivered"] == whole[0].kinds["PatchDelivered"] == 2


@pytest.mark.parametrize("share", a_choice(range(3), step=3))
def test_killed_anywhere_the_same_command_or_resume_goes_on(
    whole: tuple[Scenario, Ended], tmp_path: Path, share: int
) -> None:
    """In the suite: in each of the first five parts, where one starts, is judged, holds, is given up."""
    numbers = range(1, len(whole[0].events) - 1, 5)
    for number in numbers[share::3]:  # odd and even in turn
        scenario = Scenario(tmp_path / str(number))
        assert scenario.fix(Kill(number, before=False)) is None, number
        code = scenario.resume() if number % 2 else scenario.fix()
        same_end(whole, scenario, code)


def test_killed_while_it_is_delivered_it_is_resumed(
    whole: tuple[Scenario, Ended], tmp_path: Path
) -> None:
    events = len(whole[0].events)
    for kill in (Kill(events - 1, before=True), Kill(events - 1, before=False)):
        scenario = Scenario(tmp_path / kill.label)
        assert scenario.fix(kill) is None
        assert git(scenario.repo, "diff") == whole[1].diff
        same_end(whole, scenario, scenario.resume())


def test_interrupted_between_two_parts_it_says_how_it_continues(
    whole: tuple[Scenario, Ended], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario = Scenario(tmp_path / "scenario")
    parts = count()

    def interrupted(state_dir: Path, fix_id: str) -> AbstractContextManager[None]:
        if next(parts) == 1:
            raise KeyboardInterrupt
        return holding(state_dir, fix_id)

    with monkeypatch.context() as patched, scenario.services() as services:
        patched.setattr("fallback_tier.fix.batch.running.holding", interrupted)
        with pytest.raises(KeyboardInterrupt) as caught:
            run_with(GIVEN, Fixer(services), scenario.arguments())
    assert len(caught.value.__notes__) == 1
    same_end(whole, scenario, scenario.fix())


def test_killed_twice_and_in_a_gate(whole: tuple[Scenario, Ended], tmp_path: Path) -> None:
    scenario = Scenario(tmp_path / "scenario")
    scenario.dies_in_a_gate = True
    assert scenario.fix() is None
    assert scenario.resume(Kill(9, before=False)) is None
    same_end(whole, scenario, scenario.fix())


def test_a_run_that_came_to_its_end_is_begun_anew(tmp_path: Path) -> None:
    """A person who repeats it wants the gates asked again."""
    scenario = Scenario(tmp_path / "scenario")
    assert scenario.fix(dry_run=True) == scenario.fix(dry_run=True) == exit_codes.ESCALATED
    assert scenario.kinds["FixStarted"] == 2 * scenario.document["gate_runs"]


def test_another_command_does_not_go_on_with_it(tmp_path: Path) -> None:
    scenario = Scenario(tmp_path / "scenario")
    assert scenario.fix(Kill(20, before=False)) is None
    began = scenario.kinds["FixStarted"]
    assert scenario.fix(dry_run=True) == exit_codes.ESCALATED
    assert scenario.kinds["FixStarted"] == began + scenario.document["gate_runs"]


def test_two_processes_are_not_at_once_in_one_run(tmp_path: Path) -> None:
    scenario = Scenario(tmp_path / "scenario")
    assert scenario.fix(Kill(20, before=False)) is None
    with scenario.services() as services:
        evidence = services.evidence
        (digest,) = {it.batch_sha256 for _, it in scenario.events if isinstance(it, FixStarted)}
        record = get_document(evidence, BatchRecord, digest or "")
    before = scenario.kinds
    with holding(scenario.state, record.batch_id):
        assert scenario.fix() == 99  # InputError, in the child
    assert scenario.kinds == before
    assert scenario.fix() == exit_codes.ESCALATED


def test_a_run_whose_evidence_is_gone_is_begun_anew(tmp_path: Path) -> None:
    scenario = Scenario(tmp_path / "scenario")
    assert scenario.fix(Kill(20, before=False)) is None
    (first, *_) = (it for _, it in scenario.events if isinstance(it, FixStarted))
    digest = first.inputs_sha256 or ""
    (evidence_dir(scenario.state) / digest[:2] / digest[2:]).unlink()
    began = scenario.kinds["FixStarted"]
    assert scenario.fix() == exit_codes.ESCALATED
    assert scenario.kinds["FixStarted"] == began + scenario.document["gate_runs"]


def test_what_a_person_reopened_is_no_part_of_a_run_any_more(
    whole: tuple[Scenario, Ended], tmp_path: Path
) -> None:
    scenario = Scenario(tmp_path / "scenario")
    # All is proved, and nothing delivered yet.
    assert scenario.fix(Kill(len(whole[0].events) - 2, before=False)) is None
    asked = next(name for name, it in scenario.events if isinstance(it, FixEscalated))
    with scenario.services() as services:
        reopen(services.audit, asked, Signature("A. Person", "Once more."), opens="gate-2")
    assert scenario.resume() == 99  # InputError, in the child
    began = scenario.kinds["FixStarted"]
    assert scenario.fix() == exit_codes.ESCALATED
    assert scenario.kinds["FixStarted"] == began + scenario.document["gate_runs"]
