"""The OSV record (schema 1.7, https://ossf.github.io/osv-schema/): the fields that are used here.

Unlike in the product's own documents, unknown fields are ignored: OSV grows, and its records must stay
readable.
"""

from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError, field_validator

from fallback_audit.disk_errors import blamed
from fallback_tier.advisory.identifiers import identifier, not_looked_up
from fallback_tier.advisory.matching import PackageMatcher
from fallback_tier.advisory.osv_affected import Affected, OsvModel
from fallback_tier.advisory.versions import canonical_name
from fallback_tier.ecosystem_rules import base_ecosystem
from fallback_tier.errors import AdvisoryError, WithdrawnError
from fallback_tier.files.inputs import DuplicateKeyError, check_keys, open_named
from fallback_tier.limits import MAX_ADVISORY_BYTES

_GET_OSV = "Give one OSV record (JSON, one object with `id` and `affected`)."

#: Most faults of a record that one message lists: the first ones show what kind of file it is.
_SHOWN_FAULTS = 3


#: Longer strings are not a severity's level.
MAX_SEVERITY_CHARS = 20


class Severity(OsvModel):
    """A score in the notation that ``type`` names (CVSS_V3, CVSS_V4 …)."""

    type: str
    score: str


class Reference(OsvModel):
    """A link, and what it is (ADVISORY, FIX, WEB …)."""

    type: str
    url: str


class DatabaseSpecific(OsvModel):
    """The fields of the databases' own that we use. ``severity``: GitHub's word (``MODERATE``); it is in no
    document of ours."""

    cwe_ids: tuple[str, ...] = ()
    severity: str = Field(default="", exclude=True)

    @field_validator("severity", mode="before")
    @classmethod
    def _other_severities(cls, value: Any) -> Any:
        return value[:MAX_SEVERITY_CHARS] if isinstance(value, str) else ""

    @field_validator("cwe_ids", mode="before")
    @classmethod
    def _other_shapes_are_not_ours(cls, value: Any) -> Any:
        strings = value if isinstance(value, list | tuple) else ()
        return tuple(item for item in strings if isinstance(item, str))


class Advisory(OsvModel):
    """One OSV record that names at least one package and is not withdrawn."""

    id: str = Field(min_length=1, max_length=200)
    aliases: tuple[str, ...] = ()
    summary: str = ""
    details: str = ""
    affected: tuple[Affected, ...]
    severity: tuple[Severity, ...] = ()
    references: tuple[Reference, ...] = ()
    database_specific: DatabaseSpecific = DatabaseSpecific()
    modified: str = ""
    withdrawn: str | None = None

    @field_validator("aliases", "severity", "references", mode="before")
    @classmethod
    def _null_is_empty(cls, value: Any) -> Any:
        return () if value is None else value

    @field_validator("database_specific", mode="before")
    @classmethod
    def _other_databases(cls, value: Any) -> Any:
        return value if isinstance(value, dict | DatabaseSpecific) else {}

    @cached_property
    def _by_package(self) -> dict[str, dict[str, PackageMatcher]]:
        """Matchers by ecosystem, then canonical name: lookups cost the same whatever the record's size."""
        entries: dict[str, dict[str, list[Affected]]] = {}
        for entry in self.affected:
            if entry.package is not None:
                ecosystem = base_ecosystem(entry.package.ecosystem)
                name = canonical_name(ecosystem, entry.package.name)
                entries.setdefault(ecosystem, {}).setdefault(name, []).append(entry)
        return {
            ecosystem: {
                name: PackageMatcher(ecosystem, affected) for name, affected in names.items()
            }
            for ecosystem, names in entries.items()
        }

    def matcher(self, ecosystem: str, package: str) -> PackageMatcher | None:
        """Return the matcher of a package's versions, or None if the record does not name the package."""
        names = self._by_package.get(ecosystem)
        return None if names is None else names.get(canonical_name(ecosystem, package))

    @property
    def ecosystems(self) -> tuple[str, ...]:
        """Ecosystems that the record names, in its order, each once."""
        return tuple(self._by_package)

    def packages(self, ecosystem: str) -> tuple[str, ...]:
        """Return canonical names of the packages affected in an ecosystem, in the record's order."""
        return tuple(self._by_package.get(ecosystem, ()))

    @property
    def is_withdrawn(self) -> bool:
        """Whether the record was withdrawn. A date in the future, or an unreadable one, does not count."""
        try:
            when = datetime.fromisoformat(self.withdrawn or "")
        except ValueError:
            return False
        return (when if when.tzinfo else when.replace(tzinfo=UTC)) <= datetime.now(UTC)

    @property
    def records(self) -> "tuple[Advisory, ...]":
        """The records that are to be fixed: this one, or those of a bundle."""
        return (self,)

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids of ``records``."""
        return tuple(record.id for record in self.records)

    @property
    def in_part(self) -> tuple[str, ...]:
        """Those of ``ids`` of which something is to stay affected: none for a single record."""
        return ()

    @property
    def says_nothing(self) -> bool:
        """Whether no version of any package is called affected: commits only (``GIT``), or no range. That
        is not "not affected": a fix of the package's own source is still possible."""
        return all(
            matcher.says_nothing
            for names in self._by_package.values()
            for matcher in names.values()
        )

    def says_nothing_of(self, ecosystem: str, package: str) -> bool:
        """Return the same as ``says_nothing`` for one package that the record names."""
        matcher = self.matcher(ecosystem, package)
        return matcher is not None and matcher.says_nothing

    @property
    def text(self) -> str:
        """Summary and details as one text. Untrusted."""
        return "\n\n".join(part for part in (self.summary, self.details) if part)

    @property
    def cwe(self) -> tuple[str, ...]:
        """Weaknesses (``CWE-79``), if the database gives them."""
        return self.database_specific.cwe_ids

    def ids_affecting(self, ecosystem: str, package: str, version: str) -> tuple[str, ...]:
        """Return the ids of the records that cover this version: of this one, or of members of a bundle."""
        matcher = self.matcher(ecosystem, package)
        return (self.id,) if matcher is not None and matcher.covers(version) else ()


def load_advisory(path: Path) -> Advisory:
    """Read one OSV record from a file. Raises AdvisoryError, naming the file, or AdvisoryIdError if there
    is no such file and the path is an identifier."""
    try:
        with open_named(path) as stream:
            data = stream.read(MAX_ADVISORY_BYTES + 1)
    except OSError as error:
        if isinstance(error, FileNotFoundError) and (name := identifier(str(path))):
            raise not_looked_up(name) from error
        unreadable = AdvisoryError(
            f"The advisory {str(path)!r} can't be read: {error.strerror}.",
            next_step="Check the path given with --advisory.",
            kind="unreadable",
        )
        raise blamed(error, f"The advisory {str(path)!r}", unreadable) from error
    return parse_advisory(data, str(path))


def parse_advisory(data: bytes, source: str) -> Advisory:
    """Parse one OSV record; ``source`` names it in messages. Raises AdvisoryError if it is larger than
    MAX_ADVISORY_BYTES, not JSON, not OSV, withdrawn, or has a duplicate key or no affected package."""
    if len(data) > MAX_ADVISORY_BYTES:
        raise AdvisoryError(
            f"The advisory {source!r} is larger than {MAX_ADVISORY_BYTES:,} bytes.",
            next_step=_GET_OSV,
            kind="too_large",
        )
    try:
        check_keys(data)
    except DuplicateKeyError as error:
        raise AdvisoryError(
            f"The advisory {source!r} is ambiguous: {error}.", next_step=_GET_OSV
        ) from error
    try:
        advisory = Advisory.model_validate_json(data)
    except ValidationError as error:
        raise AdvisoryError(_what_it_is_not(error, source), next_step=_GET_OSV) from error
    return _usable(advisory, source)


def advisory_from(record: object, source: str) -> Advisory:
    """Do the same as ``parse_advisory`` for JSON that is parsed already."""
    return _usable(record_from(record, source), source)


def record_from(record: object, source: str) -> Advisory:
    """Parse one OSV record that may be withdrawn or name no package, as one database's part of an advisory.
    Raises AdvisoryError."""
    try:
        return Advisory.model_validate(record)
    except ValidationError as error:
        raise AdvisoryError(_what_it_is_not(error, source), next_step=_GET_OSV) from error


def _usable(advisory: Advisory, source: str) -> Advisory:
    if advisory.is_withdrawn:
        raise WithdrawnError(
            f"The advisory {advisory.id} ({source!r}) was withdrawn on {advisory.withdrawn}.",
            next_step="There is nothing to fix; look for the advisory that replaced it.",
        )
    if not advisory.ecosystems:
        raise AdvisoryError(
            f"The advisory {advisory.id} ({source!r}) names no affected package.",
            next_step="Give a record whose `affected` entries have a `package`.",
        )
    return advisory


def _what_it_is_not(error: ValidationError, source: str) -> str:
    faults = error.errors(include_url=False, include_input=False)
    if faults[0]["type"] == "json_invalid":
        return f"The advisory {source!r} is not JSON: {faults[0]['msg']}."
    shown = "; ".join(
        f"{'.'.join(map(str, fault['loc'])) or 'the record'}: {fault['msg']}"
        for fault in faults[:_SHOWN_FAULTS]
    )
    return f"The advisory {source!r} is not an OSV record: {shown}."
