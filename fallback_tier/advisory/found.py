"""Results of reading an input: records, findings in source code, and what was skipped and why."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from pydantic import Field

from fallback_audit.frozen import Frozen
from fallback_audit.vocabulary import RefusalReason
from fallback_tier.advisory.identifiers import identifier_or_none
from fallback_tier.advisory.osv import Advisory, advisory_from
from fallback_tier.advisory.versions import (
    SortKey,
    is_orderable,
    next_line,
    served,
    sort_key,
    successor,
)
from fallback_tier.ecosystem_rules import base_ecosystem, rules_of
from fallback_tier.errors import AdvisoryError, WithdrawnError

#: Most characters of a scanner's message that are kept; some tools write whole pages there.
MAX_MESSAGE_LENGTH = 2_000


#: Far above every real version (tens of characters); a longer fix is ignored.
MAX_VERSION_LENGTH = 256


class Skipped(Frozen):
    """A part of the input that gives no advisory, and why: unknown, never clean.

    ``unknown`` is False if nothing is missing: what was withdrawn, or is not about a vulnerability.
    """

    source: str
    reason: str
    unknown: bool = True

    @classmethod
    def because(cls, source: str, error: AdvisoryError) -> "Skipped":
        """Return a skipped part with the error's reason."""
        return cls(
            source=source, reason=error.problem, unknown=not isinstance(error, WithdrawnError)
        )


class CodeFinding(Frozen):
    """A scanner's finding in the repository's own source (CodeQL, Semgrep …).

    No recipe plans for it: an edit of the source is a model's work. Every text is the scanner's, and
    untrusted; ``path`` is relative to what was scanned and need not exist.
    """

    path: str
    start_line: int = Field(ge=1)
    end_line: int = Field(ge=1)
    rule_id: str
    message: str
    cwe: tuple[str, ...] = ()

    @property
    def reason(self) -> RefusalReason:
        """Why there is no deterministic plan."""
        return RefusalReason.OWN_CODE

    @property
    def sentence(self) -> str:
        """The finding's sentence in a plan."""
        return (
            f"{self.rule_id} is in the repository's own code ({self.path}, line {self.start_line}): "
            "not planned here, the source has to be edited by a model."
        )


class Cleared(NamedTuple):
    """Versions that a report calls safe: from ``version`` on (after it, if it is the last affected one),
    and below ``until``."""

    version: str
    until: str
    is_last_affected: bool = False


class FoundAdvisory(NamedTuple):
    """A record. If ``whole`` is False, it was pieced together from a report, whose ``fixes`` and
    ``cleared`` versions are safe."""

    advisory: Advisory
    whole: bool = True
    fixes: tuple[str, ...] = ()
    cleared: tuple[Cleared, ...] = ()


class Named(NamedTuple):
    """An advisory of which a report has identifiers, the main one first, and maybe the versions it found.

    ``stated``: what the report says without a fix; a record looked up by the identifiers says more.
    ``lacks``: a clause that says why the report does not suffice.
    """

    ids: tuple[str, ...]
    source: str
    stated: tuple[FoundAdvisory, ...] = ()
    lacks: str = "only the record's id is here, not the record: fetch it by its id"


Found = FoundAdvisory | Skipped | CodeFinding | Named


class Reported(NamedTuple):
    """A package that a report calls affected, as the report states it."""

    id: str
    ecosystem: str
    package: str
    versions: Sequence[str] = ()
    #: OSV ranges, if the report has any.
    ranges: Sequence[Mapping[str, Any]] = ()
    fixes: Sequence[str] = ()
    aliases: Sequence[str] = ()
    summary: str = ""
    details: str = ""
    cwe: Sequence[str] = ()
    url: str = ""
    cvss: str = ""

    def record(self) -> FoundAdvisory:
        """Return an OSV record, with identifiers as databases spell them, so that it can be merged with the
        database's record. Raises AdvisoryError if the report's fields can't form one."""
        name, *aliases = (
            identifier_or_none(identifier) or identifier for identifier in (self.id, *self.aliases)
        )
        severity = [{"type": "CVSS_V3", "score": self.cvss}] if self.cvss else []
        package = {"ecosystem": self.ecosystem, "name": self.package}
        advisory = advisory_from(
            {
                "id": name,
                "aliases": [alias for alias in dict.fromkeys(aliases) if alias != name],
                "summary": self.summary,
                "details": self.details,
                "affected": [
                    {"package": package, "ranges": self.ranges, "versions": self.versions}
                ],
                "severity": severity,
                "references": [{"type": "ADVISORY", "url": self.url}] if self.url else [],
                "database_specific": {"cwe_ids": list(self.cwe)},
            },
            self.id,
        )
        usable = (
            version
            for version in self.fixes
            if len(version) <= MAX_VERSION_LENGTH and is_orderable(self.ecosystem, version)
        )
        return in_part(FoundAdvisory(advisory, fixes=tuple(dict.fromkeys(usable))))


def in_part(record: FoundAdvisory) -> FoundAdvisory:
    """Return a record that states ranges as a report's statement: it may not cover all release lines."""
    cleared = (
        stretch
        for entry in record.advisory.affected
        if entry.package is not None
        for stretch in _cleared(
            base_ecosystem(entry.package.ecosystem),
            (a_range.model_dump() for a_range in entry.ranges),
        )
    )
    return record._replace(whole=False, cleared=tuple(cleared))


def _cleared(ecosystem: str, ranges: Iterable[Mapping[str, Any]]) -> Iterator[Cleared]:
    """Yield the rest of the release line in which each range ends."""
    if rules_of(ecosystem) is None:
        return
    for event in (event for a_range in ranges for event in a_range["events"]):
        for kind in ("fixed", "last_affected"):
            version = event.get(kind)
            if version and is_orderable(ecosystem, version):
                line_ends = next_line(ecosystem, version)
                yield Cleared(version, line_ends, is_last_affected=kind == "last_affected")


def unstated(ecosystem: str, reports: Sequence[FoundAdvisory]) -> dict[str, Any]:
    """Return a range of all versions of a package that no report on one vulnerability calls safe.

    A report names the fix of the release line that it found, and often no other. So a fix clears the rest
    of its own line (the first two numbers: ``2.2.28`` the rest of 2.2), and itself alone if a higher fix or
    an affected version is in the line, or an affected version can't be compared with it.
    """
    affected_versions = {
        version
        for report in reports
        for entry in report.advisory.affected
        for version in entry.versions
    }
    fixes = {fix for report in reports for fix in report.fixes}
    comparable = bool(affected_versions) and all(
        is_orderable(ecosystem, version) for version in affected_versions
    )
    highest: dict[str, SortKey] = {}
    for version in (*fixes, *(affected_versions if comparable else ())):
        line_ends = next_line(ecosystem, version)
        key = sort_key(ecosystem, version)
        highest[line_ends] = max(highest.get(line_ends, key), key)
    cleared = [stretch for report in reports for stretch in report.cleared]
    for fix in fixes:
        line_ends = next_line(ecosystem, fix)
        is_last = (
            comparable
            and fix not in affected_versions
            and sort_key(ecosystem, fix) == highest[line_ends]
        )
        cleared.append(Cleared(fix, line_ends if is_last else successor(ecosystem, fix)))
    return {
        "type": served(ecosystem).range_type,
        "events": [{"introduced": "0"}, *_events_without(ecosystem, cleared)],
    }


def _events_without(ecosystem: str, cleared: Iterable[Cleared]) -> Iterator[dict[str, str]]:
    """Yield events that end a range at each cleared stretch and restart it after; stretches may overlap."""

    def start(stretch: Cleared) -> tuple[SortKey, bool]:
        return sort_key(ecosystem, stretch.version), stretch.is_last_affected

    until: str | None = None
    for stretch in sorted(set(cleared), key=start):
        # If a stretch begins after the version at which the other ends, that version is in neither.
        if until is not None and (sort_key(ecosystem, until), False) >= start(stretch):
            until = max(until, stretch.until, key=lambda version: sort_key(ecosystem, version))
            continue
        if until is not None:
            yield {"introduced": until}
        yield {"last_affected" if stretch.is_last_affected else "fixed": stretch.version}
        until = stretch.until
    if until is not None:
        yield {"introduced": until}


def records(package_reports: Iterator[Reported], source: str) -> Iterator[Found]:
    """Yield each as a record; one that can't be a record is skipped."""
    for item in package_reports:
        try:
            yield item.record()
        except AdvisoryError as error:
            yield Skipped.because(source, error)


def text(value: object) -> str:
    """Return a report's text; empty if the value is not a text. What UTF-8 can't encode is replaced."""
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else ""


def texts(value: object) -> tuple[str, ...]:
    """Return the texts of a list, without empty ones; a single text counts as a list of one."""
    items = value if isinstance(value, list | tuple) else (value,)
    return tuple(string for item in items if (string := text(item)))


def mapping(value: object) -> Mapping[str, Any]:
    """Return a JSON object, or an empty one for any other value."""
    return value if isinstance(value, dict) else {}


def mappings(value: object) -> Iterator[Mapping[str, Any]]:
    """Yield the JSON objects of an array. Any other value yields none (``unread`` reports it)."""
    if isinstance(value, list):
        yield from (item for item in value if isinstance(item, dict))


def unread(value: object, source: str, kinds: tuple[type, ...] = (dict,)) -> Iterator[Skipped]:
    """Yield a note if ``value`` is not an array of ``kinds`` (None counts as empty): unknown, not clean."""
    if value is None:
        return
    if not isinstance(value, list):
        yield Skipped(source=source, reason="What should be a list here is not one.")
    elif not all(isinstance(item, kinds) for item in value):
        yield Skipped(source=source, reason="An entry here does not have the expected form.")
