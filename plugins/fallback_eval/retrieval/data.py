"""The data set as an evaluation needs it: identities, advisories to ask with, records to find.

A query's own fix in the corpus would make retrieval look easy. So a record is *related* to a query if
they share an advisory, a fix commit, a repository or a package, or if one is listed as having the same
fix as the other; the corpus is every record that is related to no query. ``corpus_faults`` checks it
(ADR-0020).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from fallback_eval.retrieval.golden import Fault, GoldenSet, Query, ensure, pair
from fallback_plugins.solved_examples.interfaces import Question
from fallback_plugins.solved_examples.question import question_of
from fallback_plugins.solved_examples.sources.dataset import Imported, read_examples
from fallback_plugins.solved_examples.store.records import lines, not_valid
from fallback_tier.advisory import Advisory, canonical_name
from fallback_tier.advisory.osv import advisory_from
from fallback_tier.errors import InputError
from fallback_tier.retrieval import SolvedExample

#: The file in the folder of data sets.
FILE = "solved-examples.jsonl.xz"


class _Row(BaseModel):
    id: str
    aliases: tuple[str, ...] = ()
    repo: str = ""
    ecosystem: str
    packages: tuple[str, ...]
    fix_commit: str = ""
    other_fix_commit_urls: tuple[str, ...] = ()
    same_fix_as: tuple[str, ...] = ()
    summary: str | None = None
    details: str | None = None
    cwe_ids: tuple[str, ...] = ()


@dataclass(frozen=True)
class DataSet:
    """What the file has, by record id. ``examples``: those that the memory takes."""

    identities: "Mapping[str, Identity]"
    advisories: Mapping[str, Advisory]
    examples: Mapping[str, SolvedExample]


@dataclass(frozen=True)
class Task:
    """A golden set with its corpus and the questions' advisories."""

    golden: GoldenSet
    corpus: tuple[SolvedExample, ...]
    advisories: Mapping[str, Advisory]
    identities: "Mapping[str, Identity]"

    def question(self, query: Query, *, distilled: bool = True) -> Question:
        """What the product would ask for this query's advisory."""
        advisory = self.advisories[query.query]
        asked = question_of(advisory)
        if distilled:
            return asked
        return Question(advisory.text, asked.ecosystems, asked.packages, asked.cwe, asked.language)

    def group(self, query: Query) -> str:
        """What is never split between training and test: its repository, or the query itself."""
        record = self.identities.get(query.record or "")
        return record.repository if record is not None and record.repository else query.query


def load_data(folder: Path) -> DataSet:
    """Read the file. Raises InputError, naming file and line."""
    path = folder / FILE
    if not path.is_file():
        raise InputError(
            f"There is no {FILE} in {str(folder)!r}.",
            next_step="Give the folder of the data set with --data.",
        )
    rows = [_row(line, place) for place, line in lines(path)]
    read = (one.example for one in read_examples(path) if isinstance(one, Imported))
    return DataSet(
        {row.id: _identity(row) for row in rows},
        {row.id: _advisory(row) for row in rows},
        {example.example_id: example for example in read},
    )


def task(golden: GoldenSet, data: DataSet) -> Task:
    """Build the corpus. Raises GoldenSetError where it leaks, or lacks what was judged."""
    ensure(record_faults(golden, data.identities))
    found = corpus_ids(golden.queries.values(), data.identities)
    corpus = [name for name in found if name in data.examples]
    ensure(corpus_faults(golden, data.identities, corpus))
    return Task(
        golden,
        tuple(data.examples[name] for name in corpus),
        {query.query: _asked(query, data) for query in golden.queries.values()},
        data.identities,
    )


def _asked(query: Query, data: DataSet) -> Advisory:
    if query.advisory is None:
        return data.advisories[str(query.record)]
    return advisory_from(
        _osv(
            query.query,
            (query.advisory.ecosystem, (query.advisory.package,)),
            query.advisory.summary,
            query.advisory.details,
        ),
        query.query,
    )


def _row(line: bytes, place: str) -> _Row:
    try:
        return _Row.model_validate_json(line)
    except ValidationError as error:
        raise not_valid(place, "a fix of a data set", error) from error


def _identity(row: _Row) -> "Identity":
    others = (url.rstrip("/").rpartition("/")[2] for url in row.other_fix_commit_urls)
    return Identity(
        row.id,
        frozenset(row.aliases),
        row.repo,
        frozenset((row.ecosystem, package) for package in row.packages),
        frozenset((row.fix_commit, *others)),
        frozenset(row.same_fix_as),
    )


def _advisory(row: _Row) -> Advisory:
    named = (row.ecosystem, row.packages)
    record = _osv(row.id, named, row.summary or "", row.details or "", row.cwe_ids)
    return advisory_from(record, row.id)


def _osv(
    name: str,
    named: tuple[str, tuple[str, ...]],
    summary: str,
    details: str,
    cwe: tuple[str, ...] = (),
) -> dict[str, Any]:
    ecosystem, packages = named
    return {
        "id": name,
        "summary": summary,
        "details": details,
        "affected": [{"package": {"ecosystem": ecosystem, "name": one}} for one in packages],
        "database_specific": {"cwe_ids": list(cwe)},
    }


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
