"""What each ``--json`` prints, by command. An error is an object of its own for all of them (``error``)."""

from typing import Any, Literal

from fallback_audit.event_types import JudgedTests, ProvedProject
from fallback_audit.events.model import BudgetRaised
from fallback_audit.events.people import FixAbandoned, ReviewDecided, TransitionReopened
from fallback_audit.evidence.account import AccountRead
from fallback_audit.evidence.checking import EvidenceReport
from fallback_audit.ports import StoredEvent
from fallback_audit.retention.collect import Collection
from fallback_audit.retention.redact import Redaction
from fallback_audit.retention.seal import Choice, Retired, Sealed
from fallback_audit.showing.describe import FixSummary
from fallback_audit.showing.judging_stats import JudgingStats
from fallback_audit.verifying.report import VerificationReport
from fallback_audit.vocabulary import GateStatus, ProofLevel, TestsLevel
from fallback_plugins.solved_examples.store.example_store import Withdrawal
from fallback_tier.advisory import AdvisorySource
from fallback_tier.cli.audit.setup import BegunAgain, CheckpointMade, RolesMade, SigningKey
from fallback_tier.cli.audit.trails import AuditLog
from fallback_tier.cli.audit.verify import ExportDone, ImportDone
from fallback_tier.cli.cache import CacheCleared, CacheList
from fallback_tier.cli.config import ConfigShown
from fallback_tier.cli.examples.index import DriftFound, ExamplesFound, IndexBuilt, ManifestShown
from fallback_tier.cli.examples.records import ExampleList, ExampleShown, Ingested
from fallback_tier.cli.examples.sources import Harvested, InfluencedFixes, ReleaseAdded
from fallback_tier.cli.fix.plan import PlanDocument
from fallback_tier.cli.keys import (
    KeyList,
    KeyMade,
    PersonList,
    PersonRemoved,
    SessionsEnded,
)
from fallback_tier.cli.local_model import ModelFetched
from fallback_tier.cli.review import QuestionList
from fallback_tier.cli.scan.command import ScanDocument
from fallback_tier.fix.batch.outcome import AdvisoryEnd
from fallback_tier.fix.journal.questions import Review
from fallback_tier.fix_result import Committed, Escalated, Patched, RefusedFix, Verified
from fallback_tier.fleet.campaign_list import CampaignState, FixState, FleetFix, LeftOut
from fallback_tier.observing.health.running import Health
from fallback_tier.outcome import RecipeApplication, UnreadItem
from fallback_tier.planning import RemediationPlan
from fallback_tier.scan.document import NotFixed
from fallback_tier.service.keys import KeyRecord
from fallback_tier.service.people import Person
from tests.schemas.shapes import Fields, ListOf, MapOf, Named, Trimmed, merged, one_of

Texts = tuple[str, ...]

ERROR = Fields({"error": Fields({"code": str, "problem": str, "next_step": str, "kind?": str})})

#: What a fix's document has besides its result.
_OF_ALL = Fields(
    {
        "proof": GateStatus | None,
        "unread": tuple[UnreadItem, ...],
        "tests_level?": TestsLevel | None,
        "tests?": tuple[JudgedTests, ...],
        "prices_as_of?": str,
        "listed_prices_as_of?": str,
    }
)
_OF_PATCHES = Fields(
    {
        "tests_level": TestsLevel | None,
        "tests": tuple[JudgedTests, ...],
        "projects": tuple[ProvedProject, ...],
        "gate_notes": Texts,
        "proof_level": ProofLevel,
        "headline": str,
    }
)
_ENDS: dict[str, tuple[Any, ...]] = {
    "Verified": (Verified, _OF_ALL, _OF_PATCHES),
    "Patched": (Patched, _OF_ALL, _OF_PATCHES),
    "Refused": (RefusedFix, _OF_ALL),
    "Escalated": (Escalated, _OF_ALL),
}
_PART = Fields(
    {
        "ecosystem": str,
        "advisory_ids": Texts,
        "in_part": Texts,
        "failing_gates": Texts,
        "delivered": bool,
        "held_back": str | None,
    }
)
#: What every run has, over one advisory or several.
_RUN = Fields(
    {
        "schema_version": Literal[1],
        "advisories": tuple[AdvisoryEnd, ...],
        "fixes": ListOf(
            one_of(*(Named(f"{name}Fix", merged(*end, _PART)) for name, end in _ENDS.items()))
        ),
        "delivered": bool,
        "commit": Committed | None,
        "report": str | None,
        "exit_code": int,
        "advisory_sources?": tuple[AdvisorySource, ...],
        "next_steps?": Texts,
    }
)
_SEVERAL = Fields({"taken_apart": Texts, "gate_runs": int})
_FIXES = one_of(
    *(merged(*end, _RUN) for end in _ENDS.values()),
    merged(RemediationPlan, _RUN, _SEVERAL, without=("resolved",)),
)


def _without_logs(shape: Any) -> Trimmed:
    """Logs are evidence, found by digest."""
    return Trimmed(shape, "GateVerdict", "log")


_FIX = _without_logs(_FIXES)
_OF_SCAN_FIX = Fields({"fix?": one_of(_FIXES, None), "not_fixed?": tuple[NotFixed, ...]})

_SIGNED = Fields({"origin": str, "size": int, "root": str, "hashes": Texts, "signed_by": Texts})
_PROOF = Fields(
    {
        "ok?": bool,
        "proof?": str,
        "seq?": int,
        "header?": dict[str, Any] | None,
        "old_size?": int,
    }
)

_CAMPAIGN = Fields(
    {
        "campaign": str,
        "state": CampaignState,
        "created_at": str,
        "counts": dict[FixState, int],
        "usd": Fields({"cap": str | None, "spent": str, "reserved": str}),
        "fixes_of_unknown_price": int,
    }
)
_USD = Fields({"usd": str | None})
_QUEUED = ("campaign", "cap", "cost", "holder", "not_before")
_CAMPAIGN_WITH_FIXES = merged(
    _CAMPAIGN,
    Fields(
        {
            "left_out": tuple[LeftOut, ...],
            "fixes": ListOf(merged(FleetFix, _USD, without=_QUEUED)),
        }
    ),
)


def _without_but(*names: str) -> tuple[str, ...]:
    return tuple(FleetFix.model_fields.keys() - {*names})


_PLANNED = _without_but("number", "repository", "advisory_id", "ecosystem", "risk", "priority")
_CAMPAIGN_PLAN = Fields(
    {
        "campaign": str,
        "repositories": ListOf(Fields({"repository": str, "base_commit": str})),
        "fixes": ListOf(merged(FleetFix, without=_PLANNED)),
        "left_out": tuple[LeftOut, ...],
        "pairs_not_named": int,
    }
)
_SUMS = Fields(
    {
        "fixes": int,
        **{state.value: int for state in FixState},
        "attempts": int,
        "tokens": int,
        "usd": str,
        "of_unknown_price": int,
        "seconds": float,
        "median_seconds": float | None,
    }
)
_REPORTED = _without_but(
    *("fix_id", "repository", "advisory_id", "ecosystem", "state", "why", "sentence", "attempts"),
    *("tokens", "started_at", "ended_at", "priority", "branch"),
)
_CAMPAIGN_REPORT = Fields(
    {
        "campaign": str,
        "state": CampaignState,
        "created_at": str,
        "usd_cap": str | None,
        "total": _SUMS,
        "by_ecosystem": MapOf(_SUMS),
        "why": ListOf(Fields({"state": FixState, "why": str, "fixes": int})),
        "left_out": tuple[LeftOut, ...],
        "fixes": ListOf(
            merged(FleetFix, _USD, Fields({"seconds": float | None}), without=_REPORTED)
        ),
    }
)
_OF_A_FIX = Fields({"fix_id": str})
_SAID = {"id": str | int | None, "line": int}

#: By the command's words.
OUTPUTS: dict[str, Any] = {
    "abandon": merged(_OF_A_FIX, FixAbandoned),
    "attempt": RecipeApplication,
    "audit begin-again": BegunAgain,
    "audit checkpoint": CheckpointMade,
    "audit evidence check": EvidenceReport,
    "audit evidence gc": Collection,
    "audit export": ExportDone,
    "audit import": ImportDone,
    "audit init-postgres": RolesMade,
    "audit keygen": SigningKey,
    "audit log": AuditLog,
    "audit prove": merged(_SIGNED, _PROOF),
    "audit redact": Redaction,
    "audit retire": Retired,
    "audit seal": Fields(
        {"sealed": one_of(merged(Sealed, without=("choice",)), None), "choice": Choice}
    ),
    "audit show": Fields(
        {
            "transitions": tuple[FixSummary, ...],
            "events": tuple[StoredEvent, ...],
            "retrievals": ListOf(
                Fields({"seq": int, "account": AccountRead | None, "problem": str | None})
            ),
        }
    ),
    "audit stats": JudgingStats,
    "audit verify": VerificationReport,
    "cache clear": CacheCleared,
    "cache list": CacheList,
    "config": ConfigShown,
    "doctor": Health,
    "examples harvest": Harvested,
    "examples index": IndexBuilt,
    "examples influenced": InfluencedFixes,
    "examples ingest": Ingested,
    "examples list": ExampleList,
    "examples manifest": ManifestShown,
    "examples releases": ReleaseAdded,
    "examples search": ExamplesFound,
    "examples show": ExampleShown,
    "examples validate": DriftFound,
    "examples withdraw": Withdrawal,
    "fix": _FIX,
    "fleet cancel": _CAMPAIGN,
    "fleet pause": _CAMPAIGN,
    "fleet report": _CAMPAIGN_REPORT,
    "fleet resume": _CAMPAIGN,
    "fleet run": one_of(_CAMPAIGN_WITH_FIXES, _CAMPAIGN_PLAN),
    "fleet status": one_of(_CAMPAIGN_WITH_FIXES, Fields({"campaigns": ListOf(_CAMPAIGN)})),
    "health": Health,
    "keys end-sessions": SessionsEnded,
    "keys list": KeyList,
    "keys new": KeyMade,
    "keys people": PersonList,
    "keys person": Person,
    "keys remove-person": PersonRemoved,
    "keys revoke": KeyRecord,
    "keys rotate": KeyMade,
    "local-model fetch": ModelFetched,
    "plan": PlanDocument,
    "resume": _FIX,
    "review approve": merged(_OF_A_FIX, ReviewDecided, Fields({"patch": str})),
    "review list": QuestionList,
    "review raise-budget": merged(_OF_A_FIX, Fields({"limit": str}), BudgetRaised),
    "review reject": merged(_OF_A_FIX, ReviewDecided),
    "review reopen": merged(_OF_A_FIX, TransitionReopened),
    "review show": Review,
    "scan": _without_logs(merged(ScanDocument, _OF_SCAN_FIX)),
}

#: What is no command's: an error, and a line of ``attempt --serve``.
OTHERS: dict[str, Any] = {
    "attempt serve": one_of(
        Fields({**_SAID, "application": OUTPUTS["attempt"]}), Fields({**_SAID, **ERROR})
    ),
    "error": ERROR,
}
