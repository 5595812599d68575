"""The result of a scan as a document: ``fallback-tier scan --json``. Its names are an interface."""

from datetime import date
from enum import StrEnum
from typing import Literal

from fallback_audit.frozen import Frozen
from fallback_audit.vocabulary import LadderStep
from fallback_tier.advisory import AdvisorySource, Skipped
from fallback_tier.advisory.query import Answered
from fallback_tier.configured import Ignored, ResolvedSettings, Setting, Source
from fallback_tier.outcome import UnreadItem


class Level(StrEnum):
    """A severity. ``UNKNOWN``: no database states one that can be read."""

    UNKNOWN = "unknown"
    NONE = "none"
    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"
    CRITICAL = "critical"

    @property
    def rank(self) -> int:
        """The severity's place in the order. An unknown severity may be any, and is above all."""
        return _RANKS[self]


_RANKS = {level: rank for rank, level in enumerate(Level)} | {Level.UNKNOWN: len(Level)}


#: Keys of the settings that are rules of a scan.
_KEYS = ("severity", "production", "ignore", "paths")


class ScanRules(Frozen):
    """``severity``: the lowest that is shown, None: all; ``production``: leave out what is installed for
    development alone. ``settings``: where each comes from that is not the default."""

    severity: Level | None = None
    production: bool = False
    ignore: tuple[Ignored, ...] = ()
    settings: tuple[Setting, ...] = ()

    @classmethod
    def of(cls, resolved: ResolvedSettings) -> "ScanRules":
        """Return the rules that the settings state."""
        settings = resolved.own
        return cls(
            severity=Level(settings.severity) if settings.severity else None,
            production=settings.production,
            ignore=tuple(settings.ignore),
            settings=tuple(
                setting for setting in resolved.settings if setting.key in _KEYS and setting.where
            ),
        )

    def where(self, key: str) -> str:
        """Return where a rule comes from, or an empty text if that is unknown or it is the default."""
        return next((setting.where for setting in self.settings if setting.key == key), "")


#: Raised if a name is removed or changes its meaning; a new name does not raise it.
SCHEMA_VERSION: Literal[1] = 1


class Stopped(StrEnum):
    """Why a scan has not looked for all steps (``StoppedError.kind``)."""

    TIME_LIMIT = "time_limit"
    INTERRUPTED = "interrupted"


class FixStep(Frozen):
    """A step that fixes the package, as ``plan`` has it: versions ``before``, and the one ``after`` (None:
    it is no longer installed). ``raised``: other packages that it changes, as ``name version``."""

    manifest: str
    step: LadderStep
    before: tuple[str, ...]
    after: str | None
    raised: tuple[str, ...] = ()


class Finding(Frozen):
    """One advisory and one package of it that is installed in an affected version.

    ``severity``: the highest that a record of it states. ``paths``: one from a root to each affected copy,
    as ``sources`` (locks, manifests) has them. ``fixed``: versions that the records name as fixed.
    ``steps``: what fixes it; empty: ``why_not`` says why there is none. ``not_resolved``: the scan was
    stopped before all steps were found, so that there may be one, or one more; ``why_not`` says how to find
    it. ``disputed``: versions that the database's answer calls affected and the ranges of its records do
    not.
    """

    id: str
    aliases: tuple[str, ...]
    summary: str
    ecosystem: str
    package: str
    versions: tuple[str, ...]
    severity: Level
    sources: tuple[str, ...]
    paths: tuple[tuple[str, ...], ...]
    direct: bool
    development: bool
    fixed: tuple[str, ...] = ()
    steps: tuple[FixStep, ...] = ()
    why_not: str = ""
    not_resolved: bool = False
    disputed: tuple[str, ...] = ()


class IgnoredFinding(Frozen):
    """A finding that a person decided to leave, why, and the last day on which it is left. ``where``: the
    option, the variable or ``FILE:LINE`` of the list that says so."""

    finding: Finding
    reason: str
    until: date
    where: str = ""


class WhyLeft(StrEnum):
    """``not_fixed``: the fix ended without a patch for it. ``not_affected``: the fix does not call it
    affected, and the database does. ``not_tried``: no fix was begun, as its ranges cover nothing here."""

    NOT_FIXED = "not_fixed"
    NOT_AFFECTED = "not_affected"
    NOT_TRIED = "not_tried"


class NotFixed(Frozen):
    """A finding that is there after ``scan --fix``. ``reason``: a sentence for a person."""

    id: str
    package: str
    why: WhyLeft
    reason: str


class ScanResult(Frozen):
    """``findings``: what is vulnerable. ``ignored``: the same, left by a person; ``expired``: ids whose day
    has passed, so that they are among ``findings``. ``below`` and ``development``: how many findings the
    rules leave out for their severity, and since they are for development alone. ``rules``: the settings
    that leave something out, each with where it comes from: a repository may set them, too.

    ``paths``: the folders that it is limited to; ``outside``: projects in none of them, which were not
    looked at. ``packages``: how many installed versions were asked about. ``unread``: what may install
    more, and was not read, resolved or asked about. ``unmatched``: ids of rules that ignore nothing here.
    ``skipped``: answers that gave no record. ``resolved`` False: the steps are predicted from the files
    alone. ``stopped``: why steps were not looked for to the end (those that are shown may be others then);
    None: they were.
    """

    schema_version: Literal[1] = SCHEMA_VERSION
    repository: str
    base_commit: str
    packages: int
    findings: tuple[Finding, ...] = ()
    ignored: tuple[IgnoredFinding, ...] = ()
    expired: tuple[str, ...] = ()
    unmatched: tuple[str, ...] = ()
    below: int = 0
    development: int = 0
    rules: tuple[Setting, ...] = ()
    paths: tuple[str, ...] = ()
    outside: tuple[str, ...] = ()
    unread: tuple[UnreadItem, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    resolved: bool
    stopped: Stopped | None = None
    asked: Answered
    advisory_sources: tuple[AdvisorySource, ...] = ()

    @property
    def is_unknown(self) -> bool:
        """Whether something may be vulnerable that could not be found out. What a repository itself leaves
        out (``paths`` in its file) counts, since the user who scans it did not decide that. So does what a
        scan would have resolved, had it not been stopped."""
        is_limited_by_repository = any(
            setting.key == "paths" and setting.source is Source.REPOSITORY for setting in self.rules
        )
        return (
            bool(self.unread)
            or self.stopped is not None
            or any(item.unknown for item in self.skipped)
            or (is_limited_by_repository and bool(self.outside))
        )
