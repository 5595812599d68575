"""Checks of a manifest, in both ecosystems, before it counts as evidence of whose source a repository
is."""

from collections.abc import Callable
from pathlib import PurePosixPath
from typing import TypeGuard

from fallback_tier.repo import RepoContext

#: Folders whose manifests are not of a package that the repository publishes: examples, fixtures,
#: documentation, other people's code.
_ASIDE = frozenset(
    {"test", "tests", "__tests__", "testing", "testdata", "spec", "specs", "e2e", "integration"}
    | {"fixture", "fixtures", "__fixtures__", "template", "templates"}
    | {"bench", "benchmark", "benchmarks", "tutorial", "tutorials"}
    | {"example", "examples", "demo", "demos", "sample", "samples", "playground", "playgrounds"}
    | {"doc", "docs", "website", "site"}
    | {"vendor", "vendored", "_vendor", "third_party", "third-party", "external", "node_modules"}
)

#: Manifests and locks of ecosystems that have no plugin here.
OTHER_LOCKS = {
    "crates.io": frozenset({"Cargo.toml", "Cargo.lock"}),
    "Go": frozenset({"go.mod", "go.sum"}),
    "Hex": frozenset({"mix.exs", "mix.lock"}),
    "Maven": frozenset({"pom.xml", "build.gradle", "build.gradle.kts", "gradle.lockfile"}),
    "NuGet": frozenset({"packages.config", "packages.lock.json", "Directory.Packages.props"}),
    "Packagist": frozenset({"composer.json", "composer.lock"}),
    "Pub": frozenset({"pubspec.yaml", "pubspec.lock"}),
    "RubyGems": frozenset({"Gemfile", "Gemfile.lock", "gems.rb", "gems.locked"}),
}

#: Versions that a release tool replaces.
_PLACEHOLDERS = frozenset(
    {"0.0.0", "0.0.0-development", "0.0.0-semantically-released", "0.0.0-semantic-release"}
)

#: Characters of a version or address that is accepted from a manifest or a registry, at most.
_MAX_CHARS = 300

#: Doubts about a manifest that may or may not name the repository's own package.
ASIDE = "it lies among examples, tests or other people's code"
UNPUBLISHED = "it is private or has no version, as an application's"
UNREADABLE = "its own name is computed, or can't be read"


def is_aside(path: str) -> bool:
    """Return whether the manifest is in or below a folder of examples, tests or other people's code."""
    return not _ASIDE.isdisjoint(part.lower() for part in PurePosixPath(path).parts[:-1])


def has_source(repo: RepoContext, manifest: str, is_code: Callable[[str], bool]) -> bool:
    """Return whether code is in or below the manifest's folder. Without code, it only names a package."""
    folder = PurePosixPath(manifest).parent
    return any(
        is_code(path) and PurePosixPath(path).is_relative_to(folder) for path in repo.tracked_files
    )


def declared_version(version: object) -> str | None:
    """Return a version that a person wrote; None for a placeholder or a value that is not a text."""
    accepted = texts(version)
    return accepted[0].strip() if accepted and accepted[0].strip() not in _PLACEHOLDERS else None


def texts(*values: object) -> tuple[str, ...]:
    """Return the values that are texts of a plausible length and can be recorded, each once."""
    return tuple(dict.fromkeys(value for value in values if _is_text(value)))


def _is_text(value: object) -> TypeGuard[str]:
    if not isinstance(value, str) or not value.strip() or len(value) > _MAX_CHARS:
        return False
    try:
        value.encode()
    except UnicodeEncodeError:  # a lone surrogate, which JSON and Python can spell
        return False
    return True
