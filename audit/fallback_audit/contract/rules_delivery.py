"""The rule of the trace contract on what is delivered."""

from collections.abc import Iterator

from fallback_audit.contract.rule import Altered, Removed, rule
from fallback_audit.contract.trail import Finding, Trail
from fallback_audit.events import FixPatched, FixVerified, PatchDelivered, ReviewDecided


@rule(
    "A patch is delivered only after it was verified, or patched with tests, or approved by a person.",
    "ADR-0070",
    breaches=(
        Removed(ReviewDecided),
        Altered(PatchDelivered, "patch_sha256"),
    ),
    sees={PatchDelivered},
)
def deliveries_are_earned(trail: Trail) -> Iterator[Finding]:
    earned: set[str | None] = set()
    for seq, event in trail.any_of(FixVerified, FixPatched, ReviewDecided, PatchDelivered):
        if not isinstance(event, PatchDelivered):
            earned.add(event.patch_sha256)  # type: ignore[attr-defined]
        elif event.patch_sha256 not in earned:
            yield seq, "delivered, and neither verified, patched nor approved"
