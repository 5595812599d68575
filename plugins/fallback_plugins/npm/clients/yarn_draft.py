"""yarn.lock before a run of yarn: which block answers each pattern, and what a registry answered before."""

import json
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from fallback_audit.vocabulary import BlockerKind
from fallback_plugins.npm.locks.yarn_lock import Block, YarnLock, real_name, split_pattern
from fallback_plugins.npm.manifests.manifest import ECOSYSTEM
from fallback_plugins.npm.manifests.specs import admits, foreign, is_tag
from fallback_tier.advisory import sort_key
from fallback_tier.advisory.versions import is_orderable
from fallback_tier.errors import RecipeError

#: Most patterns whose answers ``Lookups`` keeps. A large project's lock has some thousand, and the trials
#: of one plan share most of theirs.
MAX_LOOKUPS = 20_000

#: Address of what no registry has: nothing is fetched from it.
_NOWHERE = "https://absent.invalid/"


class Release(NamedTuple):
    """A published version of a package."""

    package: str
    version: str


class Lookups:
    """What a registry answered yarn in one plan, so that yarn need not query it again for another trial.

    Yarn takes the highest version that a range admits, whatever else a lock holds; so an answer applies to
    any lock of the same registries. It is kept as yarn wrote it.
    """

    def __init__(self) -> None:
        self._versions: dict[str, str] = {}
        #: By the line ends of the lock, which yarn keeps, and release.
        self._blocks: dict[tuple[str, Release], Block] = {}
        self._absent: dict[Release, RecipeError] = {}

    def block(self, lock: YarnLock, release: Release) -> Block | None:
        """Return the block of a release as yarn writes it to this lock, or None if it is unknown."""
        return self._blocks.get((_line_end(lock), release))

    def asked_by(self, packages: Iterable[str]) -> Iterator[str]:
        """Yield what known releases of these packages require: another one requires much of that, too."""
        names = set(packages)
        for (_, release), block in self._blocks.items():
            if release.package in names:
                yield from asked_by(block)

    def version(self, pattern: str) -> str | None:
        """Return the version that the registry has for a pattern, or None if it is unknown."""
        return self._versions.get(pattern)

    def note(self, given: YarnLock, written: YarnLock, *, but: Iterable[str] = ()) -> None:
        """Keep what yarn looked up: the patterns of ``written`` that ``given``, which yarn read, does not
        answer. ``but``: packages for which the manifest has resolutions."""
        passed = set(but)
        for block in written.blocks:
            new = [pattern for pattern in block.patterns if pattern not in given.by_pattern]
            if not block.resolved or len(self._versions) + len(new) > MAX_LOOKUPS:
                continue
            if any(foreign(plain_range(it)) or _names(it) & passed for it in block.patterns):
                continue
            ranges = (pattern for pattern in new if _is_range(pattern, block.version))
            self._versions.update(dict.fromkeys(ranges, block.version))
            # Otherwise it is the lock's block, not the registry's.
            if len(new) == len(block.patterns):
                self.keep(given, Release(block.name, block.version), block)

    def keep(self, lock: YarnLock, release: Release, block: Block) -> None:
        """Keep the block of a release."""
        self._blocks[_line_end(lock), release] = block

    def refuse(self, error: RecipeError) -> None:
        """Keep the error of a run that found that the registry lacks a release."""
        for blocker in error.blockers:
            if blocker.kind is BlockerKind.NOT_PUBLISHED and blocker.constraint:
                self._absent[Release(blocker.package, blocker.constraint)] = error

    def check(self, releases: Iterable[Release]) -> None:
        """Raise the RecipeError of the first of these releases that the registry lacks."""
        for release in releases:
            if release in self._absent:
                raise self._absent[release].with_traceback(None)

    @property
    def absent(self) -> tuple[Release, ...]:
        """Return the single releases that the registry lacks."""
        return tuple(it for it in self._absent if is_orderable(ECOSYSTEM, it.version))


class Draft:
    """A lock before yarn reads it: which block answers each pattern.

    Yarn keeps every pattern that its lock answers, and queries the registry for the highest version of any
    other. So a draft decides the version of a pattern that it answers; yarn raises any other.
    """

    def __init__(self, lock: YarnLock) -> None:
        self._lock = lock
        self._answers: dict[str, Block] = dict(lock.by_pattern)
        self._has_recalled = False

    @property
    def lock(self) -> YarnLock:
        """Return the draft as a lock that yarn reads."""
        groups: dict[int, tuple[Block, list[str]]] = {}
        for pattern, block in self._answers.items():
            groups.setdefault(id(block), (block, []))[1].append(pattern)
        blocks = [block.answering(patterns) for block, patterns in groups.values()]
        # Yarn leaves a lock that it need not change in the order that it has.
        if self._has_recalled:
            blocks.sort(key=lambda block: min(block.patterns))
        return self._lock.with_blocks(blocks)

    def recall(self, asks: Iterable[str], lookups: Lookups, *, but: Iterable[str] = ()) -> None:
        """Answer what yarn would look up by what the registry answered before: ``asks``, and what the
        blocks require. ``but``: packages that are left to yarn: the project's own, and those for which
        the manifest has resolutions."""
        if not self._answers:
            return  # yarn itself writes the head of a new lock
        blocks = [*{id(block): block for block in self._answers.values()}.values()]
        releases = {
            Release(block.name, block.version): block
            for block in reversed(blocks)
            if not _is_alias(block.patterns[0])
        }
        passed = {*but, *(block.name for block in blocks if not block.resolved)}
        waiting = [*asks, *(ask for block in blocks for ask in asked_by(block))]
        while waiting:
            pattern = waiting.pop()
            version = lookups.version(pattern)
            if version is None or pattern in self._answers or _names(pattern) & passed:
                continue
            release = Release(real_name(pattern), version)
            block = releases.get(release) or lookups.block(self._lock, release)
            if block is not None:
                releases[release] = self._answers[pattern] = block
                self._has_recalled = True
                waiting.extend(asked_by(block))

    def check(self, required: Iterable[str], lookups: Lookups, *, but: Iterable[str] = ()) -> None:
        """Raise RecipeError if yarn would have to look up what the registry lacks: something that
        ``required`` patterns lead to, and that this draft does not answer. ``but`` as in ``recall``."""
        passed, reached, waiting = set(but), set[str](), [*required]
        while waiting:
            pattern = waiting.pop()
            if pattern in reached or _names(pattern) & passed:
                continue
            reached.add(pattern)
            if pattern in self._answers:
                waiting.extend(asked_by(self._answers[pattern]))
            else:
                lookups.check([Release(real_name(pattern), plain_range(pattern))])

    def fill_in(self, releases: Iterable[Release]) -> None:
        """Answer the exact patterns of releases that the registry lacks, so that yarn finds out about what
        requires them. Such a draft serves to look something up; no lock is made of it."""
        for release in releases:
            pattern = f"{release.package}@{release.version}"
            text = (
                f'{json.dumps(pattern)}:\n  version "{release.version}"\n  resolved "{_NOWHERE}"\n'
            )
            fields = {"version": release.version, "resolved": _NOWHERE}
            self._answers.setdefault(pattern, Block((pattern,), fields, {}, {}, text))

    def grant(self, name: str, version: str, block: Block, new: Iterable[str]) -> None:
        """Let a block answer the patterns of that version, and ``new`` ones, if the ranges admit it."""
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
        """Return the block of exactly this version, or None."""
        return next((b for b in self._of(name) if b.version == version and b.resolved), None)

    def forget(self, packages: Iterable[str]) -> None:
        """Remove the answers for these packages if a range was required, so that yarn looks them up."""
        names = set(packages)
        for pattern, block in list(self._answers.items()):
            if block.name in names and admits(plain_range(pattern), block.version):
                del self._answers[pattern]

    def settle(self, patterns: Iterable[str], *, but: Iterable[str] = ()) -> None:
        """Answer new patterns by a locked version, if one serves; yarn would take the highest published
        one. ``but``: packages that yarn looks up."""
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
        """Return the blocks of a package from a registry, each once."""
        seen = {id(block): block for block in self._answers.values() if block.name == name}
        return (block for block in seen.values() if is_orderable(ECOSYSTEM, block.version))


def plain_range(pattern: str) -> str:
    """Return the version range of a pattern, also of an alias."""
    spec = split_pattern(pattern)[1]
    return split_pattern(spec.removeprefix("npm:"))[1] if spec.startswith("npm:") else spec


def asked_by(block: Block) -> Iterator[str]:
    """Yield the patterns that a locked package requires."""
    for name, spec in {**block.dependencies, **block.optional}.items():
        yield f"{name}@{spec}"


def _names(pattern: str) -> set[str]:
    """Return the name of a pattern's package, and its alias if it has one."""
    return {real_name(pattern), split_pattern(pattern)[0]}


def _is_alias(pattern: str) -> bool:
    """Return whether a pattern gives a package another name; yarn keeps its block apart."""
    return len(_names(pattern)) > 1


def _is_range(pattern: str, version: str) -> bool:
    """Return whether a pattern is a range of a package under its own name, and admits a version; not a tag,
    which names no range."""
    spec = plain_range(pattern)
    return not (_is_alias(pattern) or is_tag(spec)) and admits(spec, version)


def _line_end(lock: YarnLock) -> str:
    """Return the line end that yarn finds in a lock, and writes: that of the first line."""
    start = lock.prologue or "".join(block.text for block in lock.blocks[:1])
    return "\r\n" if start.partition("\n")[0].endswith("\r") else "\n"
