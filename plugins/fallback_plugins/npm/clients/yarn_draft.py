"""A yarn.lock before yarn sees it: what is known is written in, what is stale is taken out.

Yarn keeps every pattern that its lock answers and asks the registry for the highest version of any
other. So a draft that answers a pattern decides its version, and one that doesn't has it raised.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from fallback_plugins.npm.locks.yarn_lock import (
    Block,
    YarnLock,
    real_name,
    resolution_target,
    split_pattern,
)
from fallback_plugins.npm.manifests.manifest import SECTIONS, entries
from fallback_plugins.npm.manifests.specs import admits, is_tag
from fallback_tier.advisory import sort_key
from fallback_tier.advisory.versions import is_orderable

ECOSYSTEM = "npm"

#: A manifest, parsed.
Manifest = Mapping[str, Any]


class Draft:
    """Which block is to answer each pattern."""

    def __init__(self, lock: YarnLock) -> None:
        self._lock = lock
        self._answers: dict[str, Block] = dict(lock.by_pattern)

    @property
    def text(self) -> str:
        """The draft as a lock that yarn reads."""
        groups: dict[int, tuple[Block, list[str]]] = {}
        for pattern, block in self._answers.items():
            groups.setdefault(id(block), (block, []))[1].append(pattern)
        blocks = [block.answering(patterns) for block, patterns in groups.values()]
        return self._lock.with_blocks(blocks).text

    def grant(self, name: str, version: str, block: Block, new: Iterable[str]) -> None:
        """The block answers what that version did, and what is ``new``, where the ranges admit it."""
        answered = {
            pattern
            for pattern, old in self._answers.items()
            if (old.name, old.version) == (name, version)
        }
        unanswered = {p for p in new if p not in self._answers and real_name(p) == name}
        for pattern in answered | unanswered:
            if is_tag(plain_range(pattern)) or admits(plain_range(pattern), block.version):
                self._answers[pattern] = block

    def held(self, name: str, version: str) -> Block | None:
        """The block of exactly this version, where there is one."""
        return next((b for b in self._of(name) if b.version == version and b.resolved), None)

    def forget(self, packages: Iterable[str]) -> None:
        """Let yarn look these packages up anew, wherever a range of versions is asked for."""
        names = set(packages)
        for pattern, block in list(self._answers.items()):
            if block.name in names and admits(plain_range(pattern), block.version):
                del self._answers[pattern]

    def settle(self, patterns: Iterable[str], *, but: Iterable[str] = ()) -> None:
        """Answer new patterns from what is locked, where a locked version serves; yarn would take the
        highest that is published. ``but``: packages that are to be looked up."""
        passed = set(but)
        for pattern in patterns:
            name = real_name(pattern)
            if pattern in self._answers or name in passed:
                continue
            serving = [b for b in self._of(name) if admits(plain_range(pattern), b.version)]
            if serving:
                highest = max(serving, key=lambda block: sort_key(ECOSYSTEM, block.version))
                self._answers[pattern] = highest

    def _of(self, name: str) -> Iterator[Block]:
        """Blocks of a package from a registry, each once."""
        seen = {id(block): block for block in self._answers.values() if block.name == name}
        return (block for block in seen.values() if is_orderable(ECOSYSTEM, block.version))


def plain_range(pattern: str) -> str:
    """The version range of a pattern, also of an alias's."""
    spec = split_pattern(pattern)[1]
    return split_pattern(spec.removeprefix("npm:"))[1] if spec.startswith("npm:") else spec


def asked(manifest: Manifest) -> Iterator[str]:
    """The patterns that a manifest asks for (peers are not installed), or puts in the place of others."""
    for section in SECTIONS:
        for name, spec in entries(manifest.get(section)):
            yield f"{name}@{spec}"
    for key, spec in entries(manifest.get("resolutions")):
        yield f"{resolution_target(key)}@{spec}"


def asked_by(block: Block) -> Iterator[str]:
    """The patterns that a locked package asks for."""
    for name, spec in {**block.dependencies, **block.optional}.items():
        yield f"{name}@{spec}"


def unseen_asks(lock: YarnLock, manifests: Iterable[Manifest]) -> tuple[str, ...]:
    """Patterns that nobody known asks for, and that yarn would therefore drop.

    Members, linked folders that we don't have ask for them, or nobody does: that is not ours to tidy up.
    What hangs only on the former range of a declaration that was raised is left out.
    """
    asks = [pattern for manifest in manifests for pattern in asked(manifest)]
    reached: set[str] = set()

    def walk(waiting: list[str]) -> None:
        while waiting:
            pattern = waiting.pop()
            block = lock.by_pattern.get(pattern)
            if block is not None and pattern not in reached:
                reached.add(pattern)
                waiting.extend(asked_by(block))

    walk(list(asks))
    raised = {split_pattern(pattern)[0] for pattern in asks if pattern not in lock.by_pattern}
    walk([pattern for pattern in lock.by_pattern if split_pattern(pattern)[0] in raised])
    orphans = {
        pattern: block
        for block in lock.blocks
        for pattern in block.patterns
        # The former resolution of a block that is still asked for: ``a@1.2.3, a@^1.0.0``.
        if not (reached.intersection(block.patterns) and plain_range(pattern) == block.version)
    }
    inner = {pattern for block in orphans.values() for pattern in asked_by(block)}
    found = []
    # First what no other orphan asks for; what is then left asks for itself in a circle.
    for late in (False, True):
        for pattern in orphans:
            if pattern not in reached and (pattern in inner) == late:
                found.append(pattern)
                walk([pattern])
    return tuple(found)
