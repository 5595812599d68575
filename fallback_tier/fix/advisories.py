"""Advisories to fix: identifiers, OSV records, folders of them, scanners' reports."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fallback_tier.advisory import AdvisorySet, AdvisorySource, OsvLookup, load_advisories
from fallback_tier.errors import AdvisoryError

if TYPE_CHECKING:
    from fallback_tier.planning import RemediationPlan

#: How many inputs of a kind are named, one per line: a report can have thousands.
MAX_NAMED = 10


def advisories_at(paths: Sequence[Path], lookup: OsvLookup | None = None) -> AdvisorySet:
    """Return the advisories of these files, folders and identifiers (``load_advisories``).

    Raises AdvisoryError if something in them can't be used, and nothing else can; an empty report and
    withdrawn records are valid: there is nothing to fix.
    """
    return _usable(load_advisories(list(paths), lookup))


def advisories_to_fix(paths: Sequence[Path], lookup: OsvLookup | None = None) -> AdvisorySet:
    """Do the same as ``advisories_at``, but accept a record that names only commits: it is for the
    package's own source."""
    return _usable(load_advisories(list(paths), lookup, commits_suffice=True))


def _usable(given: AdvisorySet) -> AdvisorySet:
    unknown = any(item.unknown for item in given.skipped)
    if unknown and not (given.advisories or given.findings):
        first = given.skipped[0]
        raise AdvisoryError(
            f"Nothing that --advisory names can be used: {first.source}: {first.reason}",
            next_step="Give an OSV record, a folder of them, an identifier, or a scanner's report.",
        )
    return given


def unused(given: "AdvisorySet | RemediationPlan") -> Iterator[str]:
    """Yield a sentence for each input that gave no advisory, and each finding in source code, bounded."""
    of_kinds = {
        "skipped": [f"{item.source}: {item.reason}" for item in given.skipped],
        "finding": [item.sentence for item in given.findings],
    }
    for kind, sentences in of_kinds.items():
        yield from (f"{kind}: {sentence}" for sentence in sentences[:MAX_NAMED])
        if len(sentences) > MAX_NAMED:
            yield f"{kind}: and {len(sentences) - MAX_NAMED} more (--json has them all)"


def sources_document(sources: Sequence[AdvisorySource]) -> dict[str, object]:
    """Return where looked-up records come from, for a JSON document; empty if none was looked up."""
    if not sources:
        return {}
    return {"advisory_sources": [source.model_dump(mode="json") for source in sources]}
