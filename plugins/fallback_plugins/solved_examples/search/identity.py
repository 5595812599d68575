"""Identical code first: records of a named package, made on files that stand here as they were.

That only brings a record to the front and marks it; whether it may be replayed, the tier judges for
itself (ADR-0013).
"""

from collections.abc import Iterator

from fallback_plugins.solved_examples.store.example_store import ExampleStore, StoredExample
from fallback_plugins.solved_examples.store.records import text_sha256
from fallback_tier.advisory import Advisory
from fallback_tier.errors import RepositoryError
from fallback_tier.repo import RepoContext
from fallback_tier.retrieval import SolvedExample


def identical(
    store: ExampleStore, advisory: Advisory, repo: RepoContext
) -> Iterator[StoredExample]:
    """Live records of the advisory's packages whose files this repository has, byte for byte.

    Raises ExampleStoreError.
    """
    digests: dict[str, str | None] = {}
    for ecosystem in advisory.ecosystems:
        for stored in store.of_package(ecosystem, advisory.packages(ecosystem)):
            if _same_files(stored.example, repo, digests):
                yield stored


def _same_files(example: SolvedExample, repo: RepoContext, digests: dict[str, str | None]) -> bool:
    """``digests``: of this repository's files, filled as they are read; each is read once."""
    for path, digest in example.file_sha256.items():
        if path not in digests:
            digests[path] = _digest(repo, path)
        if digests[path] != digest:
            return False
    return bool(example.file_sha256)


def _digest(repo: RepoContext, path: str) -> str | None:
    try:
        return text_sha256(repo.read_text(path))
    except RepositoryError:
        return None
