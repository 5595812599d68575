"""What reading an input yields: records, findings in source code, and what was left out and why."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from pydantic import Field

from fallback_audit.frozen import Frozen
from fallback_audit.vocabulary import RefusalReason
from fallback_tier.advisory.osv import Advisory, advisory_from
from fallback_tier.advisory.versions import NPM, is_orderable, sort_key, successor
from fallback_tier.errors import AdvisoryError

#: A scanner's message as we keep it: a sentence or two; some tools put whole pages there.
MAX_MESSAGE_LENGTH = 2_000


class Skipped(Frozen):
    """A part of the input that gives no advisory, and why: unknown, never clean."""

    source: str
    reason: str


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


class Record(NamedTuple):
    """A record, and whether it is a whole one or was pieced together from what a report says."""

    advisory: Advisory
    whole: bool = True


Found = Record | Skipped | CodeFinding


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

    def record(self) -> Record:
        """As an OSV record. Raises AdvisoryError where the report's fields can't be one."""
        severity = [{"type": "CVSS_V3", "score": self.cvss}] if self.cvss else []
        package = {"ecosystem": self.ecosystem, "name": self.package}
        advisory = advisory_from(
            {
                "id": self.id,
                "aliases": [alias for alias in self.aliases if alias != self.id],
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
        return Record(advisory, whole=False)


def ranges_up_to(ecosystem: str, version: str, fixes: Sequence[str]) -> list[dict[str, Any]]:
    """Ranges for a report that names one affected version and, maybe, fixed ones.

    Everything below the lowest fix above ``version`` is affected but the named fixes themselves: what
    the report doesn't say is not called safe. No fix above it: everything is.
    """
    kind = "SEMVER" if ecosystem == NPM else "ECOSYSTEM"
    events: list[dict[str, str]] = [{"introduced": "0"}]
    orderable = {fix for fix in fixes if is_orderable(ecosystem, fix)}
    for fix in sorted(orderable, key=lambda it: sort_key(ecosystem, it)):
        events.append({"fixed": fix})
        if is_orderable(ecosystem, version) and sort_key(ecosystem, fix) > sort_key(
            ecosystem, version
        ):
            break
        events.append({"introduced": successor(ecosystem, fix)})
    return [{"type": kind, "events": events}]


def records(reported: Iterator[Reported], source: str) -> Iterator[Found]:
    """Each as a record; what can't be one is skipped."""
    for item in reported:
        try:
            yield item.record()
        except AdvisoryError as error:
            yield Skipped(source=source, reason=error.problem)


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
    """The JSON objects of an array; of anything else, none."""
    if isinstance(value, list):
        yield from (item for item in value if isinstance(item, dict))
