"""What is to be fixed: OSV records, folders of them, scanners' reports."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fallback_tier.advisory import AdvisorySet, load_advisories, load_advisory
from fallback_tier.errors import AdvisoryError

if TYPE_CHECKING:
    from fallback_tier.planning import RemediationPlan

#: Inputs of a kind that are named, one per line: a report can have thousands.
MAX_NAMED = 10


def advisories_at(paths: Sequence[Path]) -> AdvisorySet:
    """All that these places hold. Raises AdvisoryError if something in them can't be used, and nothing else
    can; an empty report and withdrawn records are fine: nothing is to be fixed."""
    given = load_advisories(list(paths))
    unknown = any(item.unknown for item in given.skipped)
    if unknown and not (given.advisories or given.findings):
        first = given.skipped[0]
        raise AdvisoryError(
            f"Nothing that --advisory names can be used: {first.source}: {first.reason}",
            next_step="Give an OSV record, a folder of them, or a scanner's report.",
        )
    return given


def advisories_to_fix(paths: Sequence[Path]) -> AdvisorySet:
    """As ``advisories_at``; besides, one record that names only commits: it is for the package's own
    source."""
    try:
        return advisories_at(paths)
    except AdvisoryError:
        if len(paths) > 1:
            raise
        try:
            return AdvisorySet(advisories=(load_advisory(paths[0]),))
        except AdvisoryError:
            pass
        raise


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
