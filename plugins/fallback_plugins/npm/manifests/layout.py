"""Names and places of npm's files."""

from collections.abc import Iterable
from pathlib import PurePosixPath

from fallback_tier.errors import RepositoryError
from fallback_tier.repo import RepoContext

ECOSYSTEM = "npm"
MANIFEST = "package.json"

#: npm reads the first of these that exists.
LOCKS = ("npm-shrinkwrap.json", "package-lock.json")

YARN_LOCK = "yarn.lock"
PNPM_LOCK = "pnpm-lock.yaml"

#: Locks of other clients; one of them beside a manifest decides what is installed.
FOREIGN_LOCKS = (YARN_LOCK, PNPM_LOCK, "bun.lock", "bun.lockb")
BINARY_LOCKS = frozenset({"bun.lockb"})

_INSTALLED = "node_modules"


def is_manifest(path: str) -> bool:
    """Does this file declare or lock dependencies (and isn't part of an installed package)?"""
    pure = PurePosixPath(path)
    return pure.name in {MANIFEST, *LOCKS, *FOREIGN_LOCKS} and _INSTALLED not in pure.parts


def in_folder(folder: str, name: str) -> str:
    """The path of a file in a folder; "." is the root."""
    return name if folder == "." else f"{folder}/{name}"


def readable_text(repo: RepoContext, path: str) -> str:
    """Return a file's text; empty if there is none, or if it can't be read: whoever needs it says so."""
    try:
        return repo.read_text(path) if repo.has(path) else ""
    except RepositoryError:
        return ""


def names_any(text: str, packages: Iterable[str]) -> bool:
    """Can the text name one of the packages (``may_name``)?"""
    return any(may_name(text, package) for package in packages)


def may_name(text: str, package: str) -> bool:
    """Can a JSON or lock text name the package? Letters can be written as escapes, too, and a scope's slash
    as one of JSON or of an address."""
    if package in text or "\\u" in text:
        return True
    return "/" in package and (
        package.replace("/", "\\/") in text
        or package.replace("/", "%2f") in text.replace("%2F", "%2f")
    )
