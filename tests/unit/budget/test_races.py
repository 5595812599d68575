"""Caps hold whoever else is spending: all interleavings of a few, threads, processes, a crash."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fallback_audit.events import Charge
from fallback_audit.evidence.store import FileEvidenceStore
from fallback_audit.ports import Scope
from fallback_audit.stores.sqlite import SqliteAuditStore
from fallback_audit.vocabulary import ModelFailureKind
from fallback_tier.budget.audited import AuditMeter
from fallback_tier.budget.meter import BudgetLimits, OverBudget
from fallback_tier.ports import ModelAnswer, ModelRequest
from tests.fakes.audit import MemoryAudit
from tests.fakes.talking import TalkingModel, answer, ask, drain, request, start
from tests.unit.budget.books import Books, scope

CAP = 100
_HANG_S = 120


class NoConfirm(AuditMeter):
    """The mutant: what was booked at the same time is not looked at."""

    def confirm(self, scope: Scope) -> None:
        pass


def spender(
    books: Books, meter: AuditMeter, fix: str, size: int, sent: dict[str, int]
) -> Iterator[None]:
    """One call in the steps between which others may act."""
    try:
        meter.check(scope(fix), Charge(tokens=size))
    except OverBudget:
        return
    yield
    books.called(fix=fix, tokens=size)
    yield
    try:
        meter.confirm(scope(fix))
    except OverBudget:
        yield
        books.failed(ModelFailureKind.WITHHELD, fix=fix)
        return
    sent[fix] = size
    yield
    if size % 2:  # it reports 20 tokens at the end; the others never end
        books.answered(fix=fix)


def interleaved(sizes: list[int], turns: list[int], kind: type[AuditMeter]) -> dict[str, int]:
    """What was sent, with its pre-charges, where the spenders act in these turns."""
    books = Books()
    sent: dict[str, int] = {}
    limits = BudgetLimits(tokens_per_day=CAP)
    running = [
        spender(books, kind(books.audit, limits, clock=books.clock), f"fix-{n}", size, sent)
        for n, size in enumerate(sizes)
    ]
    for turn in turns:
        next(running[turn % len(running)], None)
    for one in running:
        for _ in one:
            pass
    return sent


SIZES = st.lists(st.integers(20, CAP), min_size=2, max_size=5)
TURNS = st.lists(st.integers(0, 4), max_size=25)


@given(SIZES, TURNS)
def test_no_interleaving_passes_the_cap_and_none_starves_all(
    sizes: list[int], turns: list[int]
) -> None:
    sent = interleaved([size - size % 2 for size in sizes], turns, AuditMeter)
    assert 0 < sum(sent.values()) <= CAP


@given(SIZES, TURNS)
def test_what_ended_below_its_pre_charge_makes_room_and_no_more(
    sizes: list[int], turns: list[int]
) -> None:
    sent = interleaved(sizes, turns, AuditMeter)
    used = [20 if size % 2 else size for size in sent.values()]
    assert sum(used) <= CAP


def test_without_the_confirmation_two_at_once_pass_the_cap() -> None:
    both_check_first = [0, 1, 0, 1, 0, 1, 0, 1]
    assert sum(interleaved([60, 60], both_check_first, NoConfirm).values()) > CAP
    assert sum(interleaved([60, 60], both_check_first, AuditMeter).values()) == 60


def one_charge() -> int:
    return AuditMeter(MemoryAudit()).charge("test-model", request("question 0")).tokens


@pytest.mark.parametrize("kind", [AuditMeter, NoConfirm])
def test_threads_that_check_at_the_same_moment(tmp_path: Path, kind: type[AuditMeter]) -> None:
    """Every thread passes ``check`` before any of them is on record; no call ends before all decided."""
    threads, fit = 6, 2
    together, decided = threading.Barrier(threads), threading.Barrier(threads)
    audit = SqliteAuditStore(tmp_path / "audit.db")
    evidence = FileEvidenceStore(tmp_path / "evidence")

    class Together(kind):  # type: ignore[misc, valid-type]
        def check(self, scope: Scope, charge: Charge) -> None:
            super().check(scope, charge)
            together.wait(_HANG_S)

    meter = Together(audit, BudgetLimits(tokens_per_day=fit * one_charge()))

    def reply(_request: ModelRequest) -> ModelAnswer:
        decided.wait(_HANG_S)
        return answer()

    def spend(number: int) -> bool:
        caller = start(audit, evidence, fix_id=f"fix-{number}", meter=meter)
        try:
            drain(caller.ask(TalkingModel(reply), ask("question 0")))
        except OverBudget:
            decided.wait(_HANG_S)
            return False
        return True

    with ThreadPoolExecutor(threads) as pool:
        sent = sum(pool.map(spend, range(threads)))
    audit.close()
    assert sent == (threads if kind is NoConfirm else fit)


def run_spenders(
    state: Path, count: int, cap: int, mode: str = "ask"
) -> list[subprocess.CompletedProcess[str]]:
    def one(number: int) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [
                sys.executable,
                "-m",
                "tests.unit.budget.spender",
                state,
                f"fix-{number}",
                str(cap),
                mode,
            ],
            capture_output=True,
            text=True,
            timeout=_HANG_S,
            check=False,
            cwd=Path(__file__).parents[3],
        )

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(one, range(count)))


def test_processes_share_the_cap_of_a_day(tmp_path: Path) -> None:
    cap = 5_000
    done = run_spenders(tmp_path, 3, cap)
    assert [(one.returncode, one.stderr) for one in done] == [(0, "")] * 3
    sent = sum(len(one.stdout.splitlines()) for one in done)
    # Each used 310 of what it was pre-charged; the last one sent had room for its pre-charge.
    most = (cap - one_charge()) // 310 + 1
    assert 0 < sent <= most
    audit = SqliteAuditStore(tmp_path / "audit.db")
    meter = AuditMeter(audit, BudgetLimits(tokens_per_day=cap))
    with pytest.raises(OverBudget) as caught:
        meter.check(scope("fix-9"), Charge(tokens=cap))
    assert int(caught.value.used) == sent * 310
    audit.close()


def test_a_call_in_flight_at_a_crash_is_booked_at_its_pre_charge(tmp_path: Path) -> None:
    (died,) = run_spenders(tmp_path, 1, 10_000, "die")
    assert died.returncode == -9
    audit = SqliteAuditStore(tmp_path / "audit.db")
    with pytest.raises(OverBudget) as caught:
        AuditMeter(audit, BudgetLimits(tokens_per_day=10_000)).check(
            scope("fix-9"), Charge(tokens=10_000)
        )
    assert int(caught.value.used) == one_charge()
    audit.close()
