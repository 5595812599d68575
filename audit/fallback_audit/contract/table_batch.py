"""The trace contract on the parts of a run over several advisories. A part of ``contract.table``."""

from fallback_audit.contract import rules_batch as batch
from fallback_audit.contract.rule import Altered, Removed, Rule
from fallback_audit.contract.trail import TERMINALS
from fallback_audit.events import AttemptFailed, FixRefused, FixStarted, GateJudged

BATCH_RULES: tuple[Rule, ...] = (
    Rule(
        "fails-together-is-of-a-batch",
        "Only several fixes of a batch fail together, in one patch that gates refused or could not prove.",
        "ADR-0051",
        batch.fails_together_is_of_a_batch,
        breaches=(
            Removed(AttemptFailed),
            Altered(GateJudged, "status"),
            Altered(FixRefused, "reason"),
            Altered(FixStarted, "batch_sha256"),
            Altered(FixStarted, "advisory_ids"),
        ),
        sees=frozenset({FixStarted, AttemptFailed, GateJudged, *TERMINALS}),
    ),
    Rule(
        "in-part-is-said-of-a-batch",
        "Only a part of a batch fixes an advisory in part, and names it among those that it is about.",
        "ADR-0051",
        batch.in_part_is_said_of_a_batch,
        breaches=(Altered(FixStarted, "in_part"), Altered(FixStarted, "batch_sha256")),
        sees=frozenset({FixStarted}),
    ),
)
