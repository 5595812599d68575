"""What must not stand on both sides: the rule that makes the corpus, and the alarms on it (ADR-0020).

A query's own fix in the corpus would make retrieval look easy. So a record is *related* to a query
when they share an advisory, a fix commit, a repository, a package, or when one is said to have the
same fix as the other; the corpus is every record that is related to no query.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from fallback_eval.retrieval.golden import Fault, GoldenSet, Query, pair
from fallback_tier.advisory import canonical_name


class LeakRule(StrEnum):
    """What two records share."""

    ADVISORY = "advisory id or alias"
    COMMIT = "fix commit"
    REPOSITORY = "repository"
    PACKAGE = "package"
    SAME_FIX = "same_fix_as"


@dataclass(frozen=True)
class Identity:
    """What a record of the data set can be recognised by. Sets may be empty: then nothing is shared.

    ``packages`` are pairs of ecosystem and name; ``commits`` are full hashes, the fix's and others
    that belong to it.
    """

    id: str
    aliases: frozenset[str] = frozenset()
    repository: str = ""
    packages: frozenset[tuple[str, str]] = frozenset()
    commits: frozenset[str] = frozenset()
    same_fix_as: frozenset[str] = frozenset()

    def shares(self, other: "Identity") -> Iterator[LeakRule]:
        """Every rule by which the two are related; symmetric."""
        for rule in (LeakRule.ADVISORY, LeakRule.COMMIT, LeakRule.REPOSITORY, LeakRule.PACKAGE):
            if not self._keys[rule].isdisjoint(other._keys[rule]):
                yield rule
        names, others = self._keys[LeakRule.ADVISORY], other._keys[LeakRule.ADVISORY]
        if not self._keys[LeakRule.SAME_FIX].isdisjoint(others) or not names.isdisjoint(
            other._keys[LeakRule.SAME_FIX]
        ):
            yield LeakRule.SAME_FIX

    @cached_property
    def _keys(self) -> Mapping[LeakRule, frozenset[object]]:
        """What is compared, in one spelling."""
        repository = self.repository.strip().casefold().removesuffix("/").removesuffix(".git")
        return {
            LeakRule.ADVISORY: _folded({self.id, *self.aliases}),
            LeakRule.COMMIT: _folded(self.commits),
            LeakRule.REPOSITORY: _folded({repository}),
            LeakRule.PACKAGE: frozenset(
                (where, canonical_name(where, name)) for where, name in self.packages if name
            ),
            LeakRule.SAME_FIX: _folded(self.same_fix_as),
        }


def identity_of(query: Query, records: Mapping[str, Identity]) -> Identity:
    """A query's own: its record's, or what a written advisory names. KeyError: no such record."""
    if query.record is not None:
        return records[query.record]
    packages = frozenset(
        (one.ecosystem, one.package) for one in (query.advisory,) if one is not None
    )
    return Identity(query.query, packages=packages)


def corpus_ids(queries: Iterable[Query], records: Mapping[str, Identity]) -> tuple[str, ...]:
    """Ids of the records that are related to no query, sorted."""
    asked = [identity_of(query, records) for query in queries]
    return tuple(
        sorted(
            name
            for name, record in records.items()
            if not any(next(record.shares(query), None) for query in asked)
        )
    )


def record_faults(golden: GoldenSet, records: Mapping[str, Identity]) -> Iterator[Fault]:
    """Queries about a record that the data set doesn't have."""
    for query in golden.queries.values():
        if query.record is not None and query.record not in records:
            yield Fault(golden.places[query.query], f"the data set has no record {query.record!r}")


def corpus_faults(
    golden: GoldenSet, records: Mapping[str, Identity], corpus: Sequence[str]
) -> Iterator[Fault]:
    """What makes figures over this corpus worthless: leaks, judged examples that aren't in it, and
    queries of the two sides that are related."""
    if missing := list(record_faults(golden, records)):
        yield from missing
        return
    asked = {name: identity_of(query, records) for name, query in golden.queries.items()}
    for name, identity in asked.items():
        for example in corpus:
            for rule in records[example].shares(identity):
                text = f"the corpus leaks the answer: {example!r} shares its {rule} with {name!r}"
                yield Fault(golden.places[name], text)
    held = frozenset(corpus)
    for one in golden.judgements:
        if one.example not in held:
            text = f"{one.example!r}, judged for {one.query!r}, is not in the corpus"
            yield Fault(golden.places[pair(one)], text)
    yield from _split_faults(golden, asked)


def _split_faults(golden: GoldenSet, asked: Mapping[str, Identity]) -> Iterator[Fault]:
    for dev in golden.of("dev"):
        for reserved in golden.of("reserved"):
            for rule in asked[dev.query].shares(asked[reserved.query]):
                text = f"{dev.query!r} (dev) and {reserved.query!r} (reserved) share their {rule}"
                yield Fault(golden.places[reserved.query], text)


def _folded(names: Iterable[str]) -> frozenset[object]:
    return frozenset(name.casefold() for name in names if name)
