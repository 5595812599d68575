"""Asking the memory: identity first, then BM25 over the advisory's informative words, with a floor.

The floor is a safety bound, not a tuned optimum: it keeps out examples that share only a few words
with the advisory. The score it is on is the *coverage*: the share of the advisory's distinct
informative words that an example's own advisory text has.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence

from fallback_plugins.solved_examples.store import ExampleStore, ExampleStoreError, StoredExample
from fallback_tier.advisory import Advisory
from fallback_tier.errors import RepositoryError
from fallback_tier.limits import MAX_EXAMPLES
from fallback_tier.ports import RagDegraded, RagHit, RagMiss, Retrieval, SolvedExample
from fallback_tier.repo import RepoContext

#: Below this share of the advisory's informative words an example is not shown.
COVERAGE_FLOOR = 0.25

#: A word in more than this share of the records says nothing (and costs FTS5 160 ms at 100,000
#: records); in a small memory the count below keeps "injection" from being called common.
COMMON_SHARE = 0.1
COMMON_COUNT = 10

#: An advisory with fewer informative words says too little to be compared with.
MIN_TERMS = 3

#: Rarest words that go into the query; further ones hardly move BM25.
MAX_TERMS = 64

#: BM25 candidates that the floor looks at: some for each place, as the best by BM25 may lie below
#: it.
_CANDIDATES = MAX_EXAMPLES * 5

#: Shorter words are articles, prepositions and list marks; longer ones are hashes and encoded data.
_WORD = re.compile(r"[^\W_]{3,40}")


class SolvedExampleIndex:
    """The retriever over one store (``fallback_tier.ports.SolvedExampleRetriever``)."""

    def __init__(self, store: ExampleStore) -> None:
        self._store = store

    def query(self, advisory: Advisory, repo_ctx: RepoContext) -> Retrieval:
        """At most MAX_EXAMPLES, identical code first, then by BM25 above COVERAGE_FLOOR.

        RagMiss where nothing is good enough; RagDegraded, without examples, where the store can't
        be read. Never raises for either.
        """
        try:
            identical = list(self._identical(advisory, repo_ctx))
            similar, evidence = self._similar(advisory)
        except ExampleStoreError as error:
            return RagDegraded(examples=(), evidence=str(error))
        examples = {example.example_id: example for example in [*identical, *similar]}
        if not examples:
            return RagMiss(evidence=evidence)
        return RagHit(
            examples=tuple(examples.values())[:MAX_EXAMPLES],
            evidence=f"{len(identical)} with the same package and code; {evidence}",
        )

    def _identical(self, advisory: Advisory, repo: RepoContext) -> Iterator[SolvedExample]:
        """Examples of a named package, made on files that stand in this repository as they were."""
        for ecosystem in advisory.ecosystems:
            for stored in self._store.of_package(ecosystem, advisory.packages(ecosystem)):
                if _same_files(stored.example, repo):
                    yield stored.example

    def _similar(self, advisory: Advisory) -> tuple[list[SolvedExample], str]:
        """Examples above the floor, best first, and one sentence of evidence."""
        terms = self._informative(_words(advisory.text))
        if len(terms) < MIN_TERMS:
            return [], f"the advisory has fewer than {MIN_TERMS} informative words"
        passed: list[StoredExample] = []
        best = 0.0
        for ecosystem in advisory.ecosystems:
            for stored in self._store.search(ecosystem, terms[:MAX_TERMS], _CANDIDATES):
                coverage = len(_words(stored.example.advisory_text) & set(terms)) / len(terms)
                best = max(best, coverage)
                if coverage >= COVERAGE_FLOOR:
                    passed.append(stored)
        passed.sort(key=lambda stored: stored.rank)
        return (
            [stored.example for stored in passed],
            f"{len(passed)} of similar text (best coverage {best:.2f}, floor {COVERAGE_FLOOR:.2f})",
        )

    def _informative(self, words: Iterable[str]) -> Sequence[str]:
        """Words that are not common in the memory, those in fewest records first.

        Words that no record has stay, last: they count against coverage, as they should.
        """
        counts = self._store.document_counts(words)
        ceiling = max(COMMON_COUNT, self._store.count() * COMMON_SHARE)
        rare = (word for word, count in counts.items() if count <= ceiling)
        return sorted(rare, key=lambda word: (counts[word] == 0, counts[word], word))


def _words(text: str) -> set[str]:
    return {word.lower() for word in _WORD.findall(text) if not word.isdecimal()}


def _same_files(example: SolvedExample, repo: RepoContext) -> bool:
    return bool(example.file_sha256) and all(
        _digest(repo, path) == digest for path, digest in example.file_sha256.items()
    )


def _digest(repo: RepoContext, path: str) -> str | None:
    try:
        return hashlib.sha256(repo.read_text(path).encode("utf-8")).hexdigest()
    except RepositoryError:
        return None
