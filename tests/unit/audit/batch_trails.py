"""Valid trails of parts of a run over several advisories, and mutants of their rules."""

from collections.abc import Callable

from fallback_audit.events import AuditEvent, FixRefused, FixStarted, PatchDelivered
from fallback_audit.vocabulary import DeliveryPlace, GateStatus, RefusalReason, Tier
from tests.unit.audit import trails as t
from tests.unit.audit.trails import Events, changed, digest


def part(*ids: str, in_part: tuple[str, ...] = ()) -> AuditEvent:
    reported = {"advisory_ids": ids, "batch_sha256": digest("batch"), "in_part": in_part}
    return t.fix_started().model_copy(update=reported)


def fails_together() -> Events:
    """Gates refuse the fixes of two packages in one patch, and they are proved apart."""
    failed = t.failing_gates(1, tier=Tier.RECIPE)
    end = FixRefused(attempt=1, reason=RefusalReason.FAILS_TOGETHER, sentence="Apart, then.")
    return [part("A", "B"), *t.first_by_recipe(), *failed, end]


def nothing_proved_together() -> Events:
    """No gate could say anything of both in one patch."""
    gates = [t.judged(1, "applies"), t.judged(1, "tests", GateStatus.SKIPPED)]
    end = FixRefused(attempt=1, reason=RefusalReason.FAILS_TOGETHER, sentence="Apart, then.")
    return [part("A", "B"), *t.first_by_recipe(), *gates, end]


def undecided_together() -> Events:
    """A gate could not hold both in one patch against the base commit."""
    gates = [t.judged(1, "not_vulnerable"), t.judged(1, "tests", GateStatus.UNDECIDED)]
    end = FixRefused(attempt=1, reason=RefusalReason.FAILS_TOGETHER, sentence="Apart, then.")
    return [part("A", "B"), *t.first_by_recipe(), *gates, end]


def fixed_in_part() -> Events:
    gates = t.passing_gates(1)
    return [part("A", in_part=("A",)), *t.first_by_recipe(), *gates, t.verified(1, Tier.RECIPE)]


def delivered_in_part() -> Events:
    """Planned whole; another part of the run did not fix A."""
    gates = t.passing_gates(1)
    delivered = PatchDelivered(
        patch_sha256=digest("patch 1"), place=DeliveryPlace.WORKING_TREE, in_part=("A",)
    )
    end = t.verified(1, Tier.RECIPE)
    return [part("A", "B"), *t.first_by_recipe(), *gates, end, delivered]


BATCH_VALID = (
    fails_together,
    nothing_proved_together,
    undecided_together,
    fixed_in_part,
    delivered_in_part,
)

BATCH_MUTANTS: dict[str, list[Callable[[], Events]]] = {
    "fails-together-is-of-a-batch": [
        lambda: [part("A", "B"), *t.first_by_recipe(), fails_together()[-1]],
        lambda: [
            *nothing_proved_together()[:-2],
            t.judged(1, "tests"),
            nothing_proved_together()[-1],
        ],
        lambda: changed(fails_together(), FixStarted, batch_sha256=None),
        lambda: changed(fails_together(), FixStarted, advisory_ids=("A",)),
    ],
    "in-part-is-said-of-a-batch": [
        lambda: changed(fixed_in_part(), FixStarted, batch_sha256=None),
        lambda: changed(fixed_in_part(), FixStarted, in_part=("B",)),
        lambda: changed(delivered_in_part(), FixStarted, batch_sha256=None),
        lambda: changed(delivered_in_part(), PatchDelivered, in_part=("C",)),
    ],
}
