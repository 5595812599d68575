"""The trace contract on the record's own upkeep. A part of ``contract.table``."""

from fallback_audit.contract import rules_upkeep as upkeep
from fallback_audit.contract.rule import Added, Altered, Removed, Rule
from fallback_audit.events import (
    AppendFlagged,
    EvidenceCollected,
    FixStarted,
    PayloadRedacted,
    RecordBegunAgain,
    SegmentRetired,
    SegmentSealed,
    SigningKeyRotated,
)

UPKEEP_RULES: tuple[Rule, ...] = (
    Rule(
        "redactions-are-named",
        "A redaction has a name and a reason, and is of an earlier event of this trail, once.",
        "ADR-0036",
        upkeep.redactions_are_named,
        breaches=(
            Altered(PayloadRedacted, "by"),
            Altered(PayloadRedacted, "reason"),
            Altered(PayloadRedacted, "fields"),
            Altered(PayloadRedacted, "seq"),
        ),
        sees=frozenset({PayloadRedacted}),
        of_upkeep=True,
    ),
    Rule(
        "flags-stand-behind",
        "A flag stands right behind the event that it is about.",
        "ADR-0035",
        upkeep.flags_stand_behind,
        breaches=(Altered(AppendFlagged, "at"),),
        sees=frozenset({AppendFlagged}),
        of_upkeep=True,
    ),
    Rule(
        "upkeep-stands-apart",
        "The record's upkeep has a scope of its own, where nothing else stands.",
        "ADR-0036",
        upkeep.upkeep_stands_apart,
        breaches=(
            Added(SegmentSealed),
            Added(FixStarted),
        ),
        sees=None,
        of_upkeep=True,
    ),
    Rule(
        "upkeep-is-signed",
        "Who seals, retires, collects, rotates or begins again has a name and a reason.",
        "ADR-0036",
        upkeep.upkeep_is_signed,
        breaches=(
            Altered(SegmentSealed, "by"),
            Altered(SegmentRetired, "reason"),
            Altered(EvidenceCollected, "by"),
            Altered(SigningKeyRotated, "reason"),
            Altered(RecordBegunAgain, "by"),
        ),
        sees=frozenset(upkeep.KEEPING),
        of_upkeep=True,
    ),
    Rule(
        "segments-follow",
        "Each sealed segment goes on where the one before it ended, and holds earlier events.",
        "ADR-0036",
        upkeep.segments_follow,
        breaches=(
            Added(SegmentSealed),
            Altered(SegmentSealed, "first_seq"),
            Altered(SegmentSealed, "last_seq"),
        ),
        sees=frozenset({SegmentSealed}),
        of_upkeep=True,
    ),
    Rule(
        "retired-were-sealed",
        "Only a sealed segment is retired, as it was sealed, and once.",
        "ADR-0036",
        upkeep.retired_were_sealed,
        breaches=(
            Removed(SegmentSealed),
            Added(SegmentRetired),
            Altered(SegmentRetired, "sha256"),
        ),
        sees=frozenset({SegmentRetired}),
        of_upkeep=True,
    ),
    Rule(
        "keys-rotate-in-turn",
        "A new signing key replaces the one in use.",
        "ADR-0033",
        upkeep.keys_rotate_in_turn,
        breaches=(
            Removed(SigningKeyRotated),
            Altered(SigningKeyRotated, "old_vkey"),
        ),
        sees=frozenset({SigningKeyRotated}),
        of_upkeep=True,
    ),
)
