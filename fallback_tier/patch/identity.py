"""When a solved example may be replayed without asking a model: identity, never similarity."""

import hashlib

from fallback_tier.advisory import Advisory, canonical_name
from fallback_tier.errors import EditError, RepositoryError
from fallback_tier.patch.edits import apply_edits
from fallback_tier.patch.policy import check_policy
from fallback_tier.repo import RepoContext
from fallback_tier.retrieval import SolvedExample


def replayable(example: SolvedExample, advisory: Advisory, repo: RepoContext) -> bool:
    """Is this the same package and the same code, and do the edits apply cleanly?

    All of: the advisory names the example's package in its ecosystem; every file that the example
    was made on is tracked here with the same content; every edited file is one of those, and one
    that edits may touch (``policy``); the edits apply.
    """
    return (
        _names_package(example, advisory)
        and {edit.path for edit in example.edits} <= example.file_sha256.keys()
        and not check_policy(edit.path for edit in example.edits)
        and all(_same_content(repo, *item) for item in example.file_sha256.items())
        and _applies(example, repo)
    )


def _names_package(example: SolvedExample, advisory: Advisory) -> bool:
    name = canonical_name(example.ecosystem, example.package)
    return name in advisory.packages(example.ecosystem)


def _same_content(repo: RepoContext, path: str, digest: str) -> bool:
    try:
        content = repo.read_text(path).encode("utf-8")
    except RepositoryError:
        return False
    return hashlib.sha256(content).hexdigest() == digest


def _applies(example: SolvedExample, repo: RepoContext) -> bool:
    try:
        apply_edits(repo, example.edits)
    except EditError:
        return False
    return True
