"""What the record says of a fix, as the list has it."""

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from fallback_audit.events import (
    AuditEvent,
    BudgetRaised,
    FixAbandoned,
    PatchDelivered,
    ReviewDecided,
    TransitionReopened,
)
from fallback_audit.stores.sqlite import SqliteAuditStore
from fallback_audit.vocabulary import DeliveryPlace, EscalationReason, ReviewVerdict
from fallback_tier.fleet.audit_facts import ABANDONED, APPROVED, NOT_SHOWN, FleetRecord, facts_of
from fallback_tier.fleet.campaign_list import FixState
from fallback_tier.wiring import RecordSettings, audit_db
from tests.fakes.audit import MemoryAudit
from tests.unit.audit import trails
from tests.unit.audit.batch_trails import delivered_in_part


def recorded(events: Sequence[AuditEvent]) -> MemoryAudit:
    audit = MemoryAudit()
    for event in events:
        audit.append(trails.SCOPE, event)
    return audit


def patched() -> trails.Events:
    from fallback_audit.events import FixPatched

    *before, verified = trails.recipe_verified()
    facts = verified.model_dump(exclude={"kind", "schema_version"})
    return [*before, FixPatched.model_validate(facts)]


BY, WHY = "ada", "looked at it"


@pytest.mark.parametrize(
    ("events", "state", "why"),
    [
        (trails.recipe_verified(), FixState.FIXED, None),
        (patched(), FixState.PARTLY, NOT_SHOWN),
        (trails.not_affected(), FixState.REFUSED, "not_affected"),
        (trails.cap_reached(), FixState.ESCALATED, EscalationReason.RETRY_CAP_REACHED.value),
        (trails.recipe_verified()[:-1], None, None),
        (
            [
                *trails.cap_reached(),
                ReviewDecided(verdict=ReviewVerdict.APPROVED, by=BY, reason=WHY),
            ],
            FixState.PARTLY,
            APPROVED,
        ),
        (
            [
                *trails.cap_reached(),
                ReviewDecided(verdict=ReviewVerdict.REJECTED, by=BY, reason=WHY),
            ],
            FixState.REFUSED,
            "rejected",
        ),
        (
            [*trails.recipe_verified()[:-1], FixAbandoned(by=BY, reason=WHY)],
            FixState.REFUSED,
            ABANDONED,
        ),
        (
            [*trails.cap_reached(), TransitionReopened(opens="gate-2", by=BY, reason=WHY)],
            None,
            None,
        ),
    ],
)
def test_how_it_stands(events: trails.Events, state: FixState | None, why: str | None) -> None:
    facts = facts_of(recorded(events), trails.SCOPE.fix_id)
    assert facts is not None
    assert (facts.state, facts.why) == (state, why)
    assert (facts.ended_at is None) == (state is None)
    assert facts.started_at is not None


def test_what_it_used_is_what_its_calls_used() -> None:
    facts = facts_of(recorded(trails.verified_on_retry()), trails.SCOPE.fix_id)
    assert facts is not None
    assert (facts.attempts, facts.tokens > 0) == (2, True)


def test_a_cap_that_a_person_raised_is_known() -> None:
    raised = BudgetRaised(usd_per_fix="7.5", by=BY, reason=WHY)
    facts = facts_of(recorded([*trails.cap_reached(), raised]), trails.SCOPE.fix_id)
    assert facts is not None
    assert (facts.state, facts.raised) == (None, 7_500_000)


@pytest.mark.parametrize(
    ("place", "reference", "branch"),
    [
        (DeliveryPlace.BRANCH, "fallback-tier/TEST-1 " + "c" * 40, "fallback-tier/TEST-1"),
        (DeliveryPlace.WORKING_TREE, None, None),
    ],
)
def test_the_branch_of_a_delivery_is_named(
    place: DeliveryPlace, reference: str | None, branch: str | None
) -> None:
    delivered = PatchDelivered(
        patch_sha256=trails.digest("patch 1"), place=place, reference=reference
    )
    facts = facts_of(recorded([*trails.recipe_verified(), delivered]), trails.SCOPE.fix_id)
    assert facts is not None
    assert (facts.state, facts.branch) == (FixState.FIXED, branch)
    assert facts.delivered == (branch is not None)
    anew = [*trails.recipe_verified(), delivered, trails.recipe_verified()[-1]]
    again = facts_of(recorded(anew), trails.SCOPE.fix_id)
    assert again is not None
    assert (again.branch, again.delivered) == (branch, False)


def test_what_another_part_left_makes_it_partly_fixed() -> None:
    """It is known at the delivery."""
    facts = facts_of(recorded(delivered_in_part()), trails.SCOPE.fix_id)
    assert facts is not None
    assert facts.state is FixState.PARTLY


def test_what_nobody_has_begun_is_not_on_record() -> None:
    assert facts_of(MemoryAudit(), "fix-1") is None


def test_who_was_decided_about_is_told_once(tmp_path: Path) -> None:
    settings = RecordSettings(keys=tmp_path / "keys")
    with closing(FleetRecord(tmp_path, settings)) as record:
        assert record.changed_fixes() == frozenset()  # there is no record yet
        assert record("fix-1") is None
        with closing(SqliteAuditStore(audit_db(tmp_path))) as audit:
            *before, escalated = trails.cap_reached()
            for event in before:
                audit.append(trails.SCOPE, event)
            assert record.changed_fixes() == frozenset()
            audit.append(trails.SCOPE, escalated)
            assert record.changed_fixes() == {trails.SCOPE.fix_id}
            assert record.changed_fixes() == frozenset()
            audit.append(trails.SCOPE, TransitionReopened(opens="gate-2", by=BY, reason=WHY))
            assert record.changed_fixes() == {trails.SCOPE.fix_id}
            assert record.changed_fixes() == frozenset()
            facts = record(trails.SCOPE.fix_id)
        assert facts is not None
        assert facts.state is None
