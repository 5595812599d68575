"""The data set as an evaluation needs it: identities, advisories to ask with, records to find."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from fallback_eval.retrieval.golden import GoldenSet, Query, ensure
from fallback_eval.retrieval.leakage import (
    Identity,
    corpus_faults,
    corpus_ids,
    record_faults,
)
from fallback_plugins.solved_examples.interfaces import Question
from fallback_plugins.solved_examples.question import question_of
from fallback_plugins.solved_examples.sources.dataset import Imported, read_examples
from fallback_plugins.solved_examples.store.records import lines, not_valid
from fallback_tier.advisory import Advisory
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

    identities: Mapping[str, Identity]
    advisories: Mapping[str, Advisory]
    examples: Mapping[str, SolvedExample]


@dataclass(frozen=True)
class Task:
    """A golden set with its corpus and the questions' advisories."""

    golden: GoldenSet
    corpus: tuple[SolvedExample, ...]
    advisories: Mapping[str, Advisory]
    identities: Mapping[str, Identity]

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


def _identity(row: _Row) -> Identity:
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
