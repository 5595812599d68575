"""Fixes that engines run: one record, one state folder, a repository a fix, a scripted model, real else.

A fix's identifier begins with its story: ``short`` and ``long`` are those of the crash scenario, ``asks``
has a gate that can't decide until a person has had its gates run again.
"""

import json
import os
import signal
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import SecretStr

from fallback_audit.contract.guard import ContractGuard
from fallback_audit.errors import AuditStoreError
from fallback_audit.events import AuditEvent
from fallback_audit.evidence.store import FileEvidenceStore
from fallback_audit.ports import AppendGuard, AuditStore, Record, StoredEvent, TrailReader
from fallback_audit.verifying.verify import verify
from fallback_audit.vocabulary import GateStatus
from fallback_tier.advisory import AdvisorySet, parse_advisory
from fallback_tier.budget.audited import AuditMeter
from fallback_tier.budget.journal import AuditJournal
from fallback_tier.budget.meter import BudgetLimits
from fallback_tier.budget.prices import Prices, read_price
from fallback_tier.fix import Fixer
from fallback_tier.fix.fixer import EndedFix
from fallback_tier.fix.journal.review import Signature, run_gates_again
from fallback_tier.fix.open_fix import OpenFix
from fallback_tier.gate_ports import GateContext, GateVerdict
from fallback_tier.llm.leaf import LlmLeaf
from fallback_tier.ports import ModelRequest
from fallback_tier.prompt.builder import PromptBuilder
from fallback_tier.sandbox.clients import SubprocessClients
from fallback_tier.tier import FallbackTier
from fallback_tier.wiring import Configuration, RecordSettings, Services, evidence_dir, random_nonce
from fallback_tier.wiring.trail import ReadOnlyTrail, open_bare, read_trail
from tests.fakes.answering import AnsweringModel
from tests.fakes.ecosystem import FakeEcosystem
from tests.fakes.gates import RuleGate
from tests.fakes.repository import commit_all, write
from tests.fixtures.fallback_tier_callable import ADVISORY, FILES
from tests.integration.crash_scenario import PASSES, accepts, plan

GIVEN = AdvisorySet(advisories=(parse_advisory(ADVISORY, "test"),))
STORIES = ("short", "long", "asks")

#: What only a fix that was interrupted has on record.
RESUMED = ("FixResumed", "SandboxDisabled")


@dataclass
class Killing:
    """A guard that kills at the ``event``-th append: this process, or the worker that started it."""

    guard: AppendGuard
    event: int
    before: bool
    worker: bool
    asked: int = 0

    def admit(self, record: Record, seq: int, recorded: TrailReader) -> tuple[AuditEvent, ...]:
        self.asked += 1
        self._kill(before=True)
        return self.guard.admit(record, seq, recorded)

    def appended(self, event: StoredEvent) -> None:
        self.guard.appended(event)
        self._kill(before=False)

    def _kill(self, *, before: bool) -> None:
        if self.asked == self.event and before == self.before:
            self.event = 0
            worker = int(os.environ.get("FIX_WORKER", os.getppid()))  # a fork's (``forked_fix``)
            os.kill(worker if self.worker else os.getpid(), signal.SIGKILL)


@dataclass
class AsksGate:
    """Undecided until a person has had the gates run again."""

    flag: Path
    name: str = "proof"
    inner: RuleGate = field(default_factory=lambda: RuleGate(lambda _: True))

    def judge(self, context: GateContext) -> GateVerdict:
        if self.flag.exists():
            return self.inner.judge(context)
        return GateVerdict(gate=self.name, status=GateStatus.UNDECIDED, detail="nobody knows")


@dataclass(frozen=True)
class EngineScenario:
    """``database``: the record is in PostgreSQL; None: SQLite, in the state folder."""

    root: Path
    database: str | None = None
    #: Machines share the record and its evidence, and nothing else: each has its own locks and worktrees.
    host: str | None = None

    @property
    def work(self) -> Path:
        """The state folder of this machine."""
        return self.state if self.host is None else self.root / "hosts" / self.host

    @property
    def state(self) -> Path:
        return self.root / "state"

    @property
    def record(self) -> RecordSettings:
        url = None if self.database is None else SecretStr(self.database)
        return RecordSettings(database=url, keys=self.root / "keys")

    def add(self, story: str, fix_id: str | None = None) -> str:
        """A repository for one more fix, whose identifier nobody has: a server knows them for ever."""
        fix_id = fix_id or f"{story}-{uuid.uuid4().hex[:12]}"
        write(self.repo(fix_id), FILES)
        commit_all(self.repo(fix_id))
        self.state.mkdir(parents=True, exist_ok=True)
        return fix_id

    def repo(self, fix_id: str) -> Path:
        return self.root / "repos" / fix_id

    def order(self, fix_id: str) -> bytes:
        """What a fix's process is given."""
        found = {
            "root": str(self.root),
            "database": self.database,
            "host": self.host,
            "fix_id": fix_id,
        }
        return json.dumps(found).encode()

    def orders(self, fix_id: str) -> Path:
        """The order of each opening by a worker, a line each."""
        return self.root / f"orders-{fix_id}"

    # --- Kills -----------------------------------------------------------------------------------

    def kill_at(self, fix_id: str, number: int, event: int, *, before: bool, worker: bool) -> None:
        """The ``number``-th process of this fix that starts from now on."""
        folder = self.root / "kills" / fix_id
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{number:03}").write_text(f"{event} {int(before)} {int(worker)}")

    def _next_kill(self, fix_id: str) -> tuple[int, bool, bool]:
        for place in sorted((self.root / "kills" / fix_id).glob("*")):
            event, before, worker = map(int, place.read_text().split())
            place.unlink()
            return event, bool(before), bool(worker)
        return 0, False, False

    # --- Parts -----------------------------------------------------------------------------------

    @contextmanager
    def opened(self, fix_id: str) -> Iterator[OpenFix | EndedFix]:
        """As a process of its own has it."""
        with (
            self.services(fix_id) as services,
            Fixer(services).open(GIVEN, self.repo(fix_id), fix_id=fix_id) as fix,
        ):
            yield fix

    def by_the_loop(self, fix_id: str) -> None:
        """The fix by the plain loop, in this process."""
        with self.opened(fix_id) as fix:
            fix.to_the_end()

    @contextmanager
    def services(self, fix_id: str) -> Iterator[Services]:
        write_guard = ContractGuard()
        event, before, worker = self._next_kill(fix_id)
        audit = open_bare(
            self.state, self.record, guard=Killing(write_guard, event, before, worker)
        )
        evidence = FileEvidenceStore(evidence_dir(self.state))
        gate = RuleGate(accepts)
        if fix_id.startswith("asks"):
            gate = AsksGate(self._flag(fix_id))  # type: ignore[assignment]
        plugins = {"PyPI": FakeEcosystem(gate_list=(gate,))}
        leaf = LlmLeaf(
            AnsweringModel(lambda request: self._answer(fix_id, request)),
            PromptBuilder(random_nonce, frozenset()),
            evidence=evidence,
            meter=AuditMeter(audit, BudgetLimits(), Prices(read_price("1:10"))),
            journal=AuditJournal(audit, evidence),
        )
        tier = FallbackTier(
            plugins=plugins, retriever=None, leaf=leaf, audit=audit, evidence=evidence
        )
        configuration = Configuration(
            state_dir=self.work, sandbox_waiver="a test", record=self.record
        )
        clients = SubprocessClients()
        try:
            yield Services(
                configuration, clients, plugins, audit, evidence, tier, write_guard=write_guard
            )
        finally:
            audit.close()

    def _answer(self, fix_id: str, request: ModelRequest) -> str:
        with (self.root / "requests").open("a") as file:
            file.write(f"{fix_id}\n")
        while (self.root / f"held-{fix_id}").exists():
            time.sleep(0.05)
        if "first(name)" in request.text:
            return plan(PASSES)
        if len(request.messages) == 1:
            return "no plan"
        return plan("first(name)" if fix_id.startswith("long") else PASSES)

    def hold_model(self, fix_id: str) -> None:
        """It answers when it is let."""
        (self.root / f"held-{fix_id}").touch()

    def let_model_answer(self, fix_id: str) -> None:
        (self.root / f"held-{fix_id}").unlink()

    # --- A person --------------------------------------------------------------------------------

    def decide(self, fix_id: str) -> None:
        """A person has the gates run again, which can decide by now."""
        self._flag(fix_id).touch()
        audit = self._store()
        try:
            evidence = FileEvidenceStore(evidence_dir(self.state))
            signature = Signature("a person", "they can decide by now")
            run_gates_again(audit, evidence, fix_id, signature, opens=f"again-{fix_id}")
        finally:
            audit.close()

    def _flag(self, fix_id: str) -> Path:
        return self.root / f"decided-{fix_id}"

    def make_record(self) -> None:
        """As a worker does before its processes would at the same time."""
        self._store().close()

    def _store(self) -> AuditStore:
        return open_bare(self.state, self.record, guard=ContractGuard())

    # --- The record ------------------------------------------------------------------------------

    @contextmanager
    def reading(self) -> Iterator[ReadOnlyTrail]:
        reader = read_trail(self.state, self.record)
        try:
            yield reader
        finally:
            reader.close()

    def events(self, fix_id: str) -> list[AuditEvent]:
        with self.reading() as audit:
            return [stored.payload for stored in audit.events(fix_id)]

    def kinds(self, fix_id: str) -> list[str]:
        return [event.kind for event in self.events(fix_id)]

    def kinds_so_far(self, fix_id: str) -> list[str]:
        """While it runs: there may be no record yet."""
        try:
            return self.kinds(fix_id)
        except AuditStoreError:
            return []

    def kept(self, fix_id: str) -> list[str]:
        """Without what only an interrupted fix has."""
        return [kind for kind in self.kinds(fix_id) if kind not in RESUMED]

    def counted(self, fix_id: str) -> Counter[str]:
        return Counter(self.kinds(fix_id))

    def check(self) -> None:
        """The whole record, by ``audit verify`` and its contract."""
        with self.reading() as audit:
            report = verify(
                audit, checkpoints=None, evidence=FileEvidenceStore(evidence_dir(self.state))
            )
        assert report.ok, report.model_dump(mode="json")


def scenario_of(order: bytes) -> tuple[EngineScenario, str]:
    """Whose fix a process is given."""
    found = json.loads(order)
    scenario = EngineScenario(Path(found["root"]), found["database"], found["host"])
    return scenario, found["fix_id"]
