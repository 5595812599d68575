"""Which decisions a worker sends to their workflows, over a client that only counts."""

import asyncio
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from fallback_audit.errors import AuditStoreError
from fallback_audit.events import BudgetRaised
from fallback_audit.stores.sqlite import SqliteAuditStore
from tests.unit.audit import human_trails as h
from tests.unit.audit.trails import SCOPE

pytest.importorskip("temporalio", reason="the extra `temporal` is not installed")

from fallback_tier.engines.temporal import reconciling
from fallback_tier.engines.temporal.messages import DecisionResult


@dataclass
class Signals:
    """Stands for a client: each workflow is there."""

    sent: list[str] = field(default_factory=list)

    def get_workflow_handle(self, _: str) -> "Signals":
        return self

    async def signal(self, name: str) -> None:
        self.sent.append(name)


@pytest.fixture
def record(tmp_path: Path) -> Iterator[SqliteAuditStore]:
    whole = h.resumed_after_raise()
    at = next(n for n, event in enumerate(whole) if isinstance(event, BudgetRaised))
    store = SqliteAuditStore(tmp_path / "audit.db")
    for event in whole[: at + 1]:
        store.append(SCOPE, event)
    yield store
    store.close()


def test_whether_the_record_is_reached_is_known(record: SqliteAuditStore) -> None:
    """A worker that can't reach it opens nothing."""
    there = [True, False, True]

    def opened() -> AbstractContextManager[SqliteAuditStore]:
        if not there.pop(0):
            raise AuditStoreError("no route to host", next_step="Look at the network.")
        return nullcontext(record)

    following = reconciling.Reconciler(cast(Any, Signals()), opened, lambda _: DecisionResult())

    async def look() -> bool:
        with suppress(AuditStoreError):
            await following.look()
        return following.reaches_record

    assert [asyncio.run(look()) for _ in range(3)] == [True, False, True]


def test_a_fix_whose_campaign_has_not_started_it_is_told_later(
    record: SqliteAuditStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconciling, "RESEND_S", 0.0)
    started, client = [False, True], Signals()
    decided = reconciling.looking(lambda: nullcontext(record), lambda _: started.pop(0))
    following = reconciling.Reconciler(cast(Any, client), lambda: nullcontext(record), decided)

    async def look() -> list[int]:
        counts = []
        for _ in range(2):
            await following.look()
            counts.append(len(client.sent))
        return counts

    assert asyncio.run(look()) == [0, 1]
