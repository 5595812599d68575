"""Checks of versions against a record (or bundle)."""

from collections.abc import Callable, Iterable

from fallback_tier.advisory.osv import Advisory
from fallback_tier.advisory.versions import is_orderable, is_prerelease, served, sort_key


def is_affected(advisory: Advisory, ecosystem: str, package: str, version: str) -> bool:
    """Return whether the advisory covers this version. A text that can't be ordered (a URL, a tag) is
    affected if the package has any range."""
    matcher = advisory.matcher(ecosystem, package)
    return matcher is not None and matcher.covers(version)


def fixed_versions(advisory: Advisory, ecosystem: str, package: str) -> tuple[str, ...]:
    """Return the versions that the advisory names as fixed, lowest first, each once."""
    matcher = advisory.matcher(ecosystem, package)
    return () if matcher is None else matcher.fixed


def admits_affected(
    advisory: Advisory, ecosystem: str, package: str, admits: Callable[[str], bool]
) -> bool:
    """Return whether a range may resolve to an affected version: whether the highest version that
    ``admits`` accepts is affected, of those that the record names and of one above all."""
    matcher = advisory.matcher(ecosystem, package)
    if matcher is None:
        return False
    versions = (*matcher.named, served(ecosystem).above_all)
    highest = next((version for version in reversed(versions) if admits(version)), None)
    return highest is not None and matcher.covers(highest)


def lowest_fixed_version(
    advisory: Advisory, ecosystem: str, package: str, current: str
) -> str | None:
    """Return the lowest fixed version above ``current`` that is not itself affected; None if the record
    names none, or ``current`` can't be ordered (never a downgrade)."""
    return _lowest_above(
        advisory, ecosystem, package, current, fixed_versions(advisory, ecosystem, package)
    )


def lowest_safe(
    advisory: Advisory, ecosystem: str, package: str, current: str, published: Iterable[str]
) -> str | None:
    """Return the lowest published version above ``current`` that is not affected, whatever the record's
    kind; pre-releases only if ``current`` is one. None if there is none, or ``current`` can't be
    ordered."""
    candidates = (version for version in published if is_orderable(ecosystem, version))
    if not is_prerelease(ecosystem, current):
        candidates = (version for version in candidates if not is_prerelease(ecosystem, version))
    ordered = sorted(candidates, key=lambda version: (sort_key(ecosystem, version), version))
    return _lowest_above(advisory, ecosystem, package, current, ordered)


def _lowest_above(
    advisory: Advisory, ecosystem: str, package: str, current: str, ordered: Iterable[str]
) -> str | None:
    if not is_orderable(ecosystem, current):
        return None
    floor = sort_key(ecosystem, current)
    return next(
        (
            version
            for version in ordered
            if sort_key(ecosystem, version) > floor
            and not is_affected(advisory, ecosystem, package, version)
        ),
        None,
    )
