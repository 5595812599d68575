"""A fix by `fix` and `resume` in processes that are killed: small ecosystem, scripted model, all else real.

The story: a recipe that fails its tests, a retry whose first answer is no plan and whose second passes,
or (``long``) fails, and another retry passes. What the model says depends on what it is asked, never on
how often.
"""

import argparse
import json
import os
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fallback_audit.contract.guard import ContractGuard
from fallback_audit.events import AuditEvent, GateJudged, PatchProposed
from fallback_audit.evidence.store import FileEvidenceStore
from fallback_audit.stores.sqlite import SqliteAuditStore
from fallback_audit.verifying.verify import verify
from fallback_tier.advisory import Advisory, AdvisorySet, parse_advisory
from fallback_tier.budget.audited import AuditMeter
from fallback_tier.budget.journal import AuditJournal
from fallback_tier.budget.meter import BudgetLimits
from fallback_tier.budget.prices import Prices, read_price
from fallback_tier.cli.fix.command import finish, run_with
from fallback_tier.errors import RecipeError
from fallback_tier.fix import Fixer
from fallback_tier.gate_ports import Gate, GateContext
from fallback_tier.gates.builtin.proof_given import Proof
from fallback_tier.llm.leaf import LlmLeaf
from fallback_tier.ports import ModelRequest
from fallback_tier.prompt.builder import PromptBuilder
from fallback_tier.sandbox.clients import SubprocessClients
from fallback_tier.tier import FallbackTier
from fallback_tier.wiring import Configuration, Services, audit_db, evidence_dir, random_nonce
from tests.fakes.answering import AnsweringModel
from tests.fakes.crashing import CrashingStore, Kill, in_child
from tests.fakes.ecosystem import FakeEcosystem
from tests.fakes.gates import RuleGate
from tests.fakes.repository import commit_all, git, write
from tests.fixtures.fallback_tier_callable import ADVISORY, FILES, PLAN

PASSES = "check(name)"

#: Of these a killed fix has as many as one that nobody interrupts.
KEPT = ("ModelAnswered", "RecipeCandidateFailed", "AttemptFailed", "FixVerified", "PatchDelivered")


def plan(line: str) -> str:
    old = "    return open('data/' + name).read()"
    edit = {"path": "app.py", "old": old, "new": f"    {line}\n{old}"}
    return json.dumps({**PLAN, "edits": [edit]})


def accepts(context: GateContext) -> bool:
    return PASSES in context.worktree.tree.locate("app.py").read_text()


@dataclass(frozen=True)
class Ended:
    """What a fix came to. ``document``: as printed, without identifiers and durations."""

    code: int
    document: dict[str, Any]
    diff: str


class CrashScenario:
    """One repository and one state folder; every command is a process of its own."""

    def __init__(
        self, root: Path, *, like: "CrashScenario | None" = None, long: bool = False
    ) -> None:
        self.root = root
        self.repo = root / "repo"
        self.state = root / "state"
        self.long: bool = long if like is None else like.long
        self.gates: tuple[Gate, ...] = (RuleGate(accepts),)
        self.recipe_error: RecipeError | None = None
        self.ecosystem: type[FakeEcosystem] = FakeEcosystem if like is None else like.ecosystem
        self.proof: Proof | None = None
        self.state.mkdir(parents=True)
        if like is None:
            write(self.repo, FILES)
            commit_all(self.repo)
            shutil.copytree(self.repo, self.untouched)
        else:
            shutil.copytree(like.untouched, self.repo)

    @property
    def untouched(self) -> Path:
        """The repository as it was before the fix."""
        return self.root / "untouched"

    def fix(
        self, kill: Kill | None = None, *, dry_run: bool = False, commit: str | None = None
    ) -> int | None:
        """`fix`: its exit code, or None where it was killed."""
        reported = {"repository": self.repo, "output": None, "dry_run": dry_run, "resume": None}
        arguments = argparse.Namespace(**reported, commit=commit, report=None, json=True)
        given = AdvisorySet(advisories=(parse_advisory(ADVISORY, "test"),))

        def work() -> int:
            with self.services(kill) as services:
                return run_with(given, Fixer(services), arguments)

        return in_child(work, self.root / "said")

    def resume(self, kill: Kill | None = None) -> int | None:
        """`resume` of the one fix on record."""

        def work() -> int:
            with self.services(kill) as services:
                return self.go_on(services)

        return in_child(work, self.root / "said")

    def go_on(self, services: Services, advisory: Advisory | None = None) -> int:
        """The rest of the one fix on record, in this process."""
        given = None if advisory is None else AdvisorySet(advisories=(advisory,))
        fixed = Fixer(services).resume(self.fix_id, given=given, repository=self.repo)
        return finish(fixed, services, as_json=True)

    @property
    def fix_id(self) -> str:
        with self._store() as audit:
            return next(audit.events()).scope.fix_id

    def ended(self, code: int | None) -> Ended:
        """After the last process; checks what must be true of every end."""
        assert code is not None
        document = json.loads((self.root / "said").read_text().replace(self.fix_id, "FIX"))
        # A call that nobody heard the answer of may have been billed: only that one is booked twice.
        unheard = self.kinds["ModelCalled"] - self.kinds["ModelAnswered"]
        for part in (document, *document["fixes"]):
            part.pop("gate_transition_id", None)
            for verdict in part["verdicts"]:
                verdict.pop("duration_ms")
            assert (part.pop("unreported") is not None) == bool(unheard)
        self.check()
        return Ended(code, document, git(self.repo, "diff"))

    def check(self) -> None:
        """A whole record, no verdict twice, nothing left behind."""
        with self._store() as audit:
            report = verify(
                audit, checkpoints=None, evidence=FileEvidenceStore(evidence_dir(self.state))
            )
            judged, patch = Counter[tuple[object, ...]](), ""
            for stored in audit.events():
                if isinstance(stored.payload, PatchProposed):
                    patch = stored.payload.patch_sha256
                if isinstance(stored.payload, GateJudged):
                    judged[stored.scope, patch, stored.payload.gate] += 1
        assert report.ok, report.model_dump(mode="json")
        assert set(judged.values()) <= {1}, judged
        for folder in ("worktrees", "held"):
            assert not list((self.state / folder).glob("*")), folder

    @property
    def events(self) -> list[AuditEvent]:
        with self._store() as audit:
            return [stored.payload for stored in audit.events()]

    @property
    def kinds(self) -> Counter[str]:
        return Counter(event.kind for event in self.events)

    @property
    def requests(self) -> int:
        """How often the model was asked, by all processes together."""
        place = self.root / "requests"
        return place.read_text().count("\n") if place.exists() else 0

    @contextmanager
    def _store(self) -> Iterator[SqliteAuditStore]:
        store = SqliteAuditStore(audit_db(self.state))
        try:
            yield store
        finally:
            store.close()

    @contextmanager
    def services(self, kill: Kill | None = None) -> Iterator[Services]:
        """All parts as a process of its own has them."""
        write_guard = ContractGuard()
        audit = CrashingStore(audit_db(self.state), kill, guard=write_guard)
        evidence = FileEvidenceStore(evidence_dir(self.state))
        configuration = Configuration(
            state_dir=self.state, sandbox_waiver="a test", proof=self.proof
        )
        plugins = {"PyPI": self.ecosystem(gate_list=self.gates, recipe_error=self.recipe_error)}
        leaf = LlmLeaf(
            AnsweringModel(self._answer),
            PromptBuilder(random_nonce, frozenset()),
            evidence=evidence,
            meter=AuditMeter(audit, BudgetLimits(), Prices(read_price("1:10"))),
            journal=AuditJournal(audit, evidence),
        )
        tier = FallbackTier(
            plugins=plugins, retriever=None, leaf=leaf, audit=audit, evidence=evidence
        )
        clients = SubprocessClients()
        yield Services(
            configuration, clients, plugins, audit, evidence, tier, write_guard=write_guard
        )
        audit.close()

    def _answer(self, request: ModelRequest) -> str:
        with (self.root / "requests").open("a") as file:
            file.write(f"{os.getpid()}\n")
        if "first(name)" in request.text:
            return plan(PASSES)
        if len(request.messages) == 1:
            return "no plan"
        return plan("first(name)" if self.long else PASSES)


def check_killed(whole: CrashScenario, expected: Ended, root: Path, *kills: Kill) -> None:
    """A fix that is killed at each of ``kills``, the later ones while it resumes, ends as ``whole`` did.

    A later kill that the run doesn't come to is none.
    """
    scenario = CrashScenario(root, like=whole)
    code = scenario.fix(kills[0])
    assert code is None, kills
    if not scenario.events:  # nothing is on record, so there is no fix to resume
        assert scenario.fix() == expected.code
        return
    for kill in (*kills[1:], None):
        code = scenario.resume(kill)
        if code is not None:
            break
    assert scenario.ended(code) == expected, kills
    for kind in KEPT:
        assert scenario.kinds[kind] == whole.kinds[kind], (kills, kind)
    assert scenario.requests <= scenario.kinds["ModelCalled"], kills
    assert scenario.kinds["ModelCalled"] <= whole.kinds["ModelCalled"] + len(kills), kills
