"""Version order and package names, by ecosystem: from its plugin's rules, made a total order.

The core evaluates ranges (``ranges``), whatever orders the versions in them.
"""

from functools import lru_cache
from typing import Any

from fallback_tier.ecosystem_rules import EcosystemRules, ecosystems, rules_of
from fallback_tier.errors import AdvisoryError

#: (0, text): not a version of the ecosystem, below all that are. (1, key): the plugin's own key.
SortKey = tuple[int, Any]


def canonical_name(ecosystem: str, name: str) -> str:
    """Return the name that identifies a package; unchanged if no plugin knows the ecosystem."""
    rules = rules_of(ecosystem)
    return name if rules is None else rules.canonical_name(name)


def served(ecosystem: str) -> EcosystemRules:
    """Return the rules of an ecosystem. Raises AdvisoryError if no plugin has them."""
    rules = rules_of(ecosystem)
    if rules is None:
        raise AdvisoryError(
            f"Versions of ecosystem {ecosystem!r} can't be ordered.",
            next_step=f"Ecosystems that can be: {', '.join(ecosystems())}.",
        )
    return rules


@lru_cache(maxsize=65_536)
def sort_key(ecosystem: str, version: str) -> SortKey:
    """Return a key whose order is total; texts that aren't versions are below all. Raises AdvisoryError for
    an unknown ecosystem."""
    try:
        return 1, served(ecosystem).sort_key(version)
    except ValueError:
        return 0, version


def is_orderable(ecosystem: str, version: str) -> bool:
    """Return whether this text is a version of the ecosystem (not a URL, a tag, a range)."""
    return sort_key(ecosystem, version)[0] == 1


def compare_versions(ecosystem: str, left: str, right: str) -> int:
    """Return -1, 0 or 1, as ``left`` is below, equal to or above ``right``."""
    a, b = sort_key(ecosystem, left), sort_key(ecosystem, right)
    return (a > b) - (a < b)


def successor(ecosystem: str, version: str) -> str:
    """Return the lowest version above this one, for ranges that begin *after* a version (OSV's
    ``introduced`` is inclusive). Raises AdvisoryError if the text is not a version."""
    if not is_orderable(ecosystem, version):
        raise AdvisoryError(
            f"{version!r} is not a version of ecosystem {ecosystem!r}.",
            next_step="Look at the range that names it.",
        )
    return served(ecosystem).successor(version)


def next_line(ecosystem: str, version: str) -> str:
    """Return where the release line (first two numbers) after this one begins, pre-releases included."""
    return served(ecosystem).next_line(version)


def is_major_step(ecosystem: str, old: str, new: str) -> bool:
    """Return whether the step from one version to a higher one announces breaking changes. False if one of
    them is not a version."""
    if not (is_orderable(ecosystem, old) and is_orderable(ecosystem, new)):
        return False
    return served(ecosystem).is_major_step(old, new)


@lru_cache(maxsize=65_536)
def is_prerelease(ecosystem: str, version: str) -> bool:
    """Return whether this is a pre-release (alpha, rc, dev …) by the ecosystem's rules."""
    return is_orderable(ecosystem, version) and served(ecosystem).is_prerelease(version)
