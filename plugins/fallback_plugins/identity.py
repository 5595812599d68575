"""What both ecosystems ask of a manifest before it says whose source a repository is."""

from pathlib import PurePosixPath

#: Folders whose manifests describe something else than what the repository publishes: examples, fixtures,
#: documentation, other people's code.
_ASIDE = frozenset(
    {"test", "tests", "__tests__", "testing", "testdata", "spec", "specs", "e2e", "integration"}
    | {
        "fixture",
        "fixtures",
        "__fixtures__",
        "template",
        "templates",
        "bench",
        "benchmark",
        "benchmarks",
    }
    | {"example", "examples", "demo", "demos", "sample", "samples", "playground", "playgrounds"}
    | {"tutorial", "tutorials", "doc", "docs", "website", "site"}
    | {"vendor", "vendored", "_vendor", "third_party", "third-party", "external", "node_modules"}
)

#: Versions that a release tool puts another in place of.
_PLACEHOLDERS = frozenset(
    {"0.0.0", "0.0.0-development", "0.0.0-semantically-released", "0.0.0-semantic-release"}
)


def is_aside(path: str) -> bool:
    """Does the manifest lie in such a folder, at whatever depth?"""
    return not _ASIDE.isdisjoint(part.lower() for part in PurePosixPath(path).parts[:-1])


def told_version(version: object) -> str | None:
    """A version that a person wrote; None for a placeholder, and for what is no text."""
    if not isinstance(version, str) or version.strip() in {"", *_PLACEHOLDERS}:
        return None
    return version.strip()


def texts(*values: object) -> tuple[str, ...]:
    """Those of the values that are texts, each once."""
    return tuple(dict.fromkeys(one for one in values if isinstance(one, str) and one.strip()))
