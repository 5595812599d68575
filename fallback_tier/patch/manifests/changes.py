"""What is against a changed manifest or lock file: one sentence for each thing that no fix may change.

The path alone was looked at before. A manifest may change at the keys that its ecosystem names; nothing
may be fetched from where the base commit fetches nothing; and what has a hash keeps one.
"""

from collections.abc import Collection, Iterable, Iterator
from typing import Any

from fallback_tier.ecosystem_rules import EcosystemRules
from fallback_tier.patch.manifests.documents import UnreadableError, read_document
from fallback_tier.patch.manifests.hashes import unhashed, unhashed_lines
from fallback_tier.patch.manifests.sources import (
    Place,
    is_lock,
    lies_in,
    sources_of,
    sources_of_lines,
)

_NOTHING = object()


def manifest_problems(
    path: str,
    keys: tuple[str, ...],
    before: str,
    after: str,
    rules: EcosystemRules | None = None,
    dates: Iterable[str] = (),
) -> Iterator[str]:
    """``keys``: what may change in a manifest, each with the dots of its tables (see ``lies_in``); none
    for a lock file. ``dates``: keys that may change too, and hold a date.
    ``rules``: the ecosystem's, which may have formats of its own.

    Never raises: a file that can't be read as data, before or after, may not be changed.
    """
    try:
        old, new = (read_document(path, text, rules) for text in (before, after))
    except UnreadableError as error:
        yield f"{path!r} can't be parsed: {error}."
        return
    if new is None:
        yield from _of_lines(path, before, after)
        return
    allowed = frozenset(tuple(key.split(".")) for key in keys)
    if not is_lock(path):
        may_change = allowed.union(tuple(key.split(".")) for key in dates)
        for place in _changed_keys(old, new, may_change):
            if not any(lies_in(place, prefix) for prefix in may_change):
                yield f"{path!r}: {'.'.join(place) or 'the document'} may not be changed."
    yield from _new_sources(path, sources_of(old, allowed), sources_of(new, allowed))
    if is_lock(path):
        yield from _lost_hashes(path, unhashed(path, old), unhashed(path, new))


def _of_lines(path: str, before: str, after: str) -> Iterator[str]:
    old, new = sources_of_lines(before), sources_of_lines(after)
    if any(line.startswith("-") for line in old ^ new):
        yield f"{path!r}: options of the client (lines that begin with `-`) may not be changed."
    yield from _new_sources(path, old, frozenset(s for s in new if not s.startswith("-")))
    yield from _lost_hashes(path, unhashed_lines(before), unhashed_lines(after))


def _new_sources(path: str, before: frozenset[str], after: frozenset[str]) -> Iterator[str]:
    """The same host by https is no other source: clients write it so where an old lock had http."""
    safer = {source.replace("http://", "https://", 1) for source in before}
    for source in sorted(after - before - safer):
        yield f"{path!r} may not fetch from {source!r}, which the base commit does not."


def _lost_hashes(
    path: str, before: tuple[frozenset[str], bool], after: tuple[frozenset[str], bool]
) -> Iterator[str]:
    """Where nothing had a hash, nothing needs one: such a lock was made so."""
    if before[1]:
        for what in sorted(after[0] - before[0]):
            yield f"{path!r}: {what!r} has no hash to be known by, where others have."


def _changed_keys(
    before: Any, after: Any, allowed: Collection[Place], place: Place = ()
) -> Iterator[Place]:
    """Where the two differ. A whole object that came or went is looked into where it may hold an allowed
    key: what else is in it is named."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in dict.fromkeys((*before, *after)):
            inner = (*place, key)
            is_above = any(path[:-1][: len(inner)] == inner for path in allowed)
            filled = before.get(key) or after.get(key)
            absent = {} if is_above and filled else _NOTHING
            old, new = before.get(key, absent), after.get(key, absent)
            yield from _changed_keys(old, new, allowed, inner)
    elif repr(before) != repr(after):  # not `==`: that takes 1, 1.0 and true for one value
        yield place
