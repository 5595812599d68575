"""Small fixes by some workers, each timed: real git, worktrees, gates' bookkeeping, and one shared record.

A recipe's patch fails its gate, a model's passes: two attempts. The model answers after a pause, the gate
reads a file; what a real gate would do (install, run tests) is left out, so that a thousand can be run.
"""

import json
import os
import resource
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from fallback_audit.contract.guard import ContractGuard
from fallback_audit.evidence.store import FileEvidenceStore
from fallback_audit.ports import Record, StoredEvent
from fallback_audit.stores.sqlite import SqliteAuditStore
from fallback_tier.advisory import parse_advisory
from fallback_tier.fix.open_fix import OpenFix
from fallback_tier.fix.parts import FixParts
from fallback_tier.llm.leaf import LlmLeaf
from fallback_tier.outcome import Selected
from fallback_tier.ports import ModelRequest
from fallback_tier.prompt.builder import PromptBuilder
from fallback_tier.repo import RepoContext
from fallback_tier.sandbox.clients import SubprocessClients
from fallback_tier.sandbox.runners import UnsandboxedRunner
from fallback_tier.tier import FallbackTier
from fallback_tier.wiring import random_nonce
from tests.fakes.answering import AnsweringModel
from tests.fakes.ecosystem import FakeEcosystem
from tests.fakes.gates import RuleGate
from tests.fakes.repository import commit_all, write
from tests.fixtures.fallback_tier_callable import ADVISORY, FILES, PLAN

#: How long the model takes, in seconds.
MODEL_S = 0.1

#: One of a thousand that has not ended by then is stuck.
TIMEOUT_S = 1_500.0

BUMP = Selected(recipe="direct-bump", parameters={"package": "vulnerable", "version": "1.0.1"})


class TimedStore(SqliteAuditStore):
    """The real store. ``spent``: seconds of its appends so far, waiting for others' among them."""

    spent = 0.0

    def append_all(self, records: Sequence[Record]) -> tuple[StoredEvent, ...]:
        began = time.perf_counter()
        try:
            return super().append_all(records)
        finally:
            self.spent += time.perf_counter() - began


def _answer(_request: ModelRequest) -> str:
    time.sleep(MODEL_S)
    return json.dumps(PLAN)


@contextmanager
def _parts(place: Path, worker: int) -> "Iterator[tuple[FixParts, TimedStore]]":
    with ExitStack() as stack:
        audit = stack.enter_context(closing(TimedStore(place / "audit.db", guard=ContractGuard())))
        evidence = FileEvidenceStore(place / f"evidence-{worker}")
        leaf = LlmLeaf(
            AnsweringModel(_answer), PromptBuilder(random_nonce, frozenset()), evidence=evidence
        )
        tier = FallbackTier(
            plugins={"PyPI": FakeEcosystem()},
            retriever=None,
            leaf=leaf,
            audit=audit,
            evidence=evidence,
        )
        gate = RuleGate(lambda c: "replace" in c.worktree.tree.locate("app.py").read_text())
        yield (
            FixParts(
                tier=tier,
                gates=[gate],
                sandbox=UnsandboxedRunner(),
                clients=SubprocessClients(),
                audit=audit,
                evidence=evidence,
                workspace=place / f"state-{worker}",
                tool_version="0",
            ),
            audit,
        )


def _cpu() -> float:
    own, children = (
        resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


def _one(parts: FixParts, audit: TimedStore, repo: RepoContext) -> list[dict[str, Any]]:
    """One fix: by step, its seconds, those of cores, and those of the record."""
    timed: list[dict[str, Any]] = []
    began = time.perf_counter(), _cpu(), audit.spent

    def lap(name: str) -> None:
        nonlocal began
        now = time.perf_counter(), _cpu(), audit.spent
        wall, cpu, record = (after - before for after, before in zip(now, began, strict=True))
        timed.append({"step": name, "wall": wall, "cpu": cpu, "record": record})
        began = now

    with closing(OpenFix(parts, parse_advisory(ADVISORY, "test"), repo, BUMP)) as fix:
        fix.begin()
        lap("begin")
        while (key := fix.next()) is not None:
            fix.step(key)
            lap(f"{key.attempt} {key.name}")
    lap("close")
    assert fix.result is not None
    assert (fix.result.outcome, fix.result.attempts) == ("verified", 2)
    return timed


def _work(place: Path, worker: int, count: int, taken: Any, commit: str, until: float) -> None:
    with (
        _parts(place, worker) as (parts, audit),
        (place / f"timed-{worker}.jsonl").open("w") as out,
    ):
        while True:
            with taken.get_lock():
                number = taken.value
                taken.value += 1
            if number >= count or time.monotonic() > until:
                return
            repo = RepoContext(
                root=place / "repo",
                base_commit=commit,
                tracked_files=tuple(sorted(FILES)),
                manifests=("deps.txt",),
                fix_id=f"fix-{number}",
                gate_transition_id=f"gate-{number}",
            )
            timed = _one(parts, audit, repo)
            memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            out.write(json.dumps({"fix": number, "steps": timed, "peak_kib": memory}) + "\n")
            out.flush()


def run(place: Path, count: int, workers: int, budget_s: float = TIMEOUT_S) -> dict[str, Any]:
    """So many small fixes by so many processes, or as many as begin in ``budget_s``.

    Raises AssertionError where one ends in another way."""
    write(place / "repo", FILES)
    commit = commit_all(place / "repo")
    SqliteAuditStore(place / "audit.db").close()
    context = get_context("fork")
    taken = context.Value("i", 0)
    until = time.monotonic() + budget_s
    processes = [
        context.Process(
            target=_work, args=(place, number, count, taken, commit, until), daemon=True
        )
        for number in range(workers)
    ]
    began = time.perf_counter()
    for process in processes:
        process.start()
    for process in processes:
        process.join(TIMEOUT_S)
    seconds = time.perf_counter() - began
    assert all(process.exitcode == 0 for process in processes), "a worker did not end well"
    fixes = [
        json.loads(line)
        for number in range(workers)
        for line in (place / f"timed-{number}.jsonl").read_text().splitlines()
    ]
    assert sorted(fix["fix"] for fix in fixes) == list(range(len(fixes)))
    return {
        "count": len(fixes),
        "workers": workers,
        "seconds": seconds,
        "load": os.getloadavg()[0],
        "fixes": fixes,
    }
