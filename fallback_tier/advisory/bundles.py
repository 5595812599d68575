"""Several advisories merged into one record, each vulnerability once."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from functools import cached_property

from fallback_audit.frozen import Frozen
from fallback_tier.advisory.osv import Advisory, DatabaseSpecific
from fallback_tier.advisory.versions import canonical_name
from fallback_tier.errors import AdvisoryError

#: Identifiers that a bundle's own id names before it counts the rest.
_NAMED_IN_BUNDLE = 3

#: Most characters of an id in a bundle's id: three of them and the count stay below the limit of an id.
_SHOWN_OF_AN_ID = 60


class Staying(Frozen):
    """Copies of a package that no step could fix stay affected by an advisory that is fixed elsewhere."""

    advisory_id: str
    package: str


class AdvisoryBundle(Advisory):
    """Several advisories that are fixed together: affected is what any of them covers.

    OSV's own semantics: a record's ``affected`` entries are a union, and so is the bundle's.
    """

    members: tuple[Advisory, ...]
    #: Members that are only to be kept out: they come last.
    guards: int = 0
    #: Packages (canonical names) of members that stay affected, as was planned.
    staying: tuple[Staying, ...] = ()

    @property
    def records(self) -> tuple[Advisory, ...]:
        """The members that are to be fixed."""
        return self.members[: len(self.members) - self.guards]

    @property
    def in_part(self) -> tuple[str, ...]:
        """Ids of those of which something stays affected."""
        return _once(staying.advisory_id for staying in self.staying)

    @cached_property
    def _members_of(self) -> dict[tuple[str, str], list[Advisory]]:
        members_by_package: dict[tuple[str, str], list[Advisory]] = {}
        for member in self.members:
            for ecosystem in member.ecosystems:
                for package in member.packages(ecosystem):
                    members_by_package.setdefault((ecosystem, package), []).append(member)
        return members_by_package

    def ids_affecting(self, ecosystem: str, package: str, version: str) -> tuple[str, ...]:
        """Return the ids of the members that cover this version."""
        members = self._members_of.get((ecosystem, canonical_name(ecosystem, package)), ())
        id_groups = (member.ids_affecting(ecosystem, package, version) for member in members)
        return tuple(dict.fromkeys(advisory_id for ids in id_groups for advisory_id in ids))


def lets_stay(advisory: Advisory, ecosystem: str, package: str, ids: Iterable[str] = ()) -> bool:
    """Return whether copies of this package that these records cover may stay, since no step could fix
    them. Without ids: all records that name the package. A bundle in which anything stays is of one
    ecosystem."""
    if not isinstance(advisory, AdvisoryBundle):
        return False
    name = canonical_name(ecosystem, package)
    free = {staying.advisory_id for staying in advisory.staying if staying.package == name}
    naming = (member.id for member in advisory.members if name in member.packages(ecosystem))
    return bool(free) and free.issuperset(tuple(ids) or naming)


def bundle(advisories: Sequence[Advisory]) -> Advisory:
    """Return one record of several: the record itself if there is one vulnerability, otherwise an
    AdvisoryBundle. Raises AdvisoryError if there is none."""
    members = one_per_flaw(advisories)
    if not members:
        raise AdvisoryError(
            "There is no advisory to plan for.",
            next_step="Give at least one that can be used.",
            kind="none",
        )
    if len(members) == 1:
        return members[0]
    return AdvisoryBundle(
        id=_bundle_id(members),
        aliases=_once(alias for member in members for alias in member.aliases),
        details="\n\n".join(f"{member.id}: {member.text}" for member in members),
        affected=tuple(entry for member in members for entry in member.affected),
        members=members,
    )


def one_per_flaw(advisories: Iterable[Advisory]) -> tuple[Advisory, ...]:
    """Merge records of the same vulnerability (an id or alias in common), in the order of the first of
    each. The union of what they cover stays: what one database calls affected is not called safe."""
    return tuple(merged(records) for records in by_flaw(advisories))


def by_flaw(advisories: Iterable[Advisory]) -> tuple[tuple[Advisory, ...], ...]:
    """Group records that are linked by ids and aliases, in the order of the first of each group."""
    records = tuple(advisories)
    parent: dict[str, str] = {}

    def root(name: str) -> str:
        while parent.setdefault(name, name) != name:
            # Each step halves the path, so that a long chain of aliases costs no more than a short one.
            parent[name] = name = parent[parent[name]]
        return name

    for advisory in records:
        for alias in advisory.aliases:
            parent[root(alias)] = root(advisory.id)
    groups: dict[str, list[Advisory]] = {}
    for advisory in records:
        groups.setdefault(root(advisory.id), []).append(advisory)
    return tuple(map(tuple, groups.values()))


def merged(records: Sequence[Advisory]) -> Advisory:
    """Merge records of one vulnerability: the first one's id, the others' as aliases. As in OSV, the one
    modified later counts if two have the same id."""
    records = _current(records)
    first = records[0]
    if len(records) == 1:
        return first
    names = _once(name for record in records for name in (record.id, *record.aliases))
    return Advisory(
        id=first.id,
        aliases=tuple(name for name in names if name != first.id),
        summary=next((record.summary for record in records if record.summary), ""),
        details=next((record.details for record in records if record.details), ""),
        affected=tuple(dict.fromkeys(entry for record in records for entry in record.affected)),
        severity=next((record.severity for record in records if record.severity), ()),
        references=tuple(dict.fromkeys(link for record in records for link in record.references)),
        database_specific=DatabaseSpecific(
            cwe_ids=_once(cwe for record in records for cwe in record.cwe)
        ),
        modified=max(record.modified for record in records),
    )


def _current(records: Sequence[Advisory]) -> list[Advisory]:
    """Return the records without those that a later version replaces, if it is about all their packages:
    under one identifier, another database's record may be about others. A report's, without a date, stays.
    """
    latest: dict[str, Advisory] = {}
    for record in records:
        previous = latest.get(record.id)
        if record.modified and (previous is None or _time(record) > _time(previous)):
            latest[record.id] = record
    return [
        record
        for record in records
        if not record.modified or not _is_replaced(record, latest[record.id])
    ]


def _is_replaced(record: Advisory, latest: Advisory) -> bool:
    return _time(record) < _time(latest) and _named(record) <= _named(latest)


def _named(record: Advisory) -> set[tuple[str, str]]:
    return {(name, package) for name in record.ecosystems for package in record.packages(name)}


def _time(record: Advisory) -> datetime:
    """Return when a record was modified; one whose date can't be read counts as the latest."""
    try:
        modified = datetime.fromisoformat(record.modified)
    except ValueError:
        return datetime.max.replace(tzinfo=UTC)
    return modified if modified.tzinfo else modified.replace(tzinfo=UTC)


def _bundle_id(members: Sequence[Advisory]) -> str:
    shown = "+".join(member.id[:_SHOWN_OF_AN_ID] for member in members[:_NAMED_IN_BUNDLE])
    more = len(members) - _NAMED_IN_BUNDLE
    return f"{shown}+{more}-more" if more > 0 else shown


def _once(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(texts))
