"""What reading an input yields: records, findings in source code, and what was left out and why."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from pydantic import Field

from fallback_audit.frozen import Frozen
from fallback_audit.vocabulary import RefusalReason
from fallback_tier.advisory.identifiers import identifier_or_none
from fallback_tier.advisory.osv import Advisory, advisory_from
from fallback_tier.advisory.versions import is_orderable, next_line, served, sort_key, successor
from fallback_tier.errors import AdvisoryError, WithdrawnError

#: A scanner's message as we keep it: a sentence or two; some tools put whole pages there.
MAX_MESSAGE_LENGTH = 2_000


#: Far above every real version (tens of characters); a longer fix is none.
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
        """What the error says of it."""
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
        """What a plan says of it."""
        return (
            f"{self.rule_id} is in the repository's own code ({self.path}, line {self.start_line}): "
            "not planned here, the source has to be edited by a model."
        )


class FoundAdvisory(NamedTuple):
    """A record, and whether it is a whole one or was pieced together from what a report says."""

    advisory: Advisory
    whole: bool = True


class Named(NamedTuple):
    """An advisory of which a report has identifiers, the main one first, and maybe the versions it found.

    ``stated``: what the report says without a fix: a record looked up by the identifiers says more.
    ``lacks``: a clause that says why the report does not suffice.
    """

    ids: tuple[str, ...]
    source: str
    stated: tuple[FoundAdvisory, ...] = ()
    lacks: str = "only the record's id is here, not the record: fetch it by its id"


Found = FoundAdvisory | Skipped | CodeFinding | Named


class Reported(NamedTuple):
    """A package that a report calls affected, in the words of the report."""

    id: str
    ecosystem: str
    package: str
    #: OSV ranges. From ``ranges_up_to`` where the report names only versions.
    ranges: Sequence[Mapping[str, Any]]
    versions: Sequence[str] = ()
    aliases: Sequence[str] = ()
    summary: str = ""
    details: str = ""
    cwe: Sequence[str] = ()
    url: str = ""
    cvss: str = ""

    def record(self) -> FoundAdvisory:
        """As an OSV record, with identifiers as databases spell them: it has to join the database's record.
        Raises AdvisoryError if the report's fields can't be one."""
        name, *aliases = (identifier_or_none(it) or it for it in (self.id, *self.aliases))
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
        return FoundAdvisory(advisory, whole=False)


def ranges_up_to(ecosystem: str, version: str, fixes: Sequence[str]) -> list[dict[str, Any]]:
    """Ranges for a report that names one affected version and, maybe, fixed ones.

    What the report doesn't say is not called safe. Of the fixes above ``version``, each clears its own
    release line (``2.2.28``: the rest of 2.2), the highest everything above it; of those below, each
    clears itself. All else is affected; no fix above it: everything is.
    """
    kind = served(ecosystem).range_type
    events: list[dict[str, str]] = [{"introduced": "0"}]
    usable = {it for it in fixes if len(it) <= MAX_VERSION_LENGTH and is_orderable(ecosystem, it)}
    known = is_orderable(ecosystem, version)
    before: str | None = None
    for fix in sorted(usable, key=lambda it: sort_key(ecosystem, it)):
        key = sort_key(ecosystem, fix)
        if before is not None:
            line_ends = next_line(ecosystem, before)
            other_line = sort_key(ecosystem, line_ends) < key
            events.append({"introduced": line_ends if other_line else successor(ecosystem, before)})
        events.append({"fixed": fix})
        if known and key > sort_key(ecosystem, version):
            before = fix
        else:
            events.append({"introduced": successor(ecosystem, fix)})
    return [{"type": kind, "events": events}]


def records(reported: Iterator[Reported], source: str) -> Iterator[Found]:
    """Each as a record; what can't be one is skipped."""
    for item in reported:
        try:
            yield item.record()
        except AdvisoryError as error:
            yield Skipped.because(source, error)


def text(value: object) -> str:
    """A report's text: empty where it is none; what UTF-8 can't hold is replaced."""
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else ""


def texts(value: object) -> tuple[str, ...]:
    """A list of texts; a single one is a list of one."""
    items = value if isinstance(value, list | tuple) else (value,)
    return tuple(found for item in items if (found := text(item)))


def mapping(value: object) -> Mapping[str, Any]:
    """A JSON object, or an empty one."""
    return value if isinstance(value, dict) else {}


def mappings(value: object) -> Iterator[Mapping[str, Any]]:
    """The JSON objects of an array; of anything else, none (``unread`` says so)."""
    if isinstance(value, list):
        yield from (item for item in value if isinstance(item, dict))


def unread(value: object, source: str, kinds: tuple[type, ...] = (dict,)) -> Iterator[Skipped]:
    """What should be an array of ``kinds`` (an absent one is empty) and isn't: unknown, not clean."""
    if value is None:
        return
    if not isinstance(value, list):
        yield Skipped(source=source, reason="What should be a list here is not one.")
    elif not all(isinstance(item, kinds) for item in value):
        yield Skipped(source=source, reason="An entry here does not have the expected form.")
