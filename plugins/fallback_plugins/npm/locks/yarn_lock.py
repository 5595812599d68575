"""yarn.lock of yarn classic (format version 1): read strictly, written so that nothing else moves.

A lock is a prologue and *blocks*. A block's first line has the patterns (``name@range``) that it
answers; what stands below says which version that is. Text is kept by the block: one that isn't
changed keeps every byte, whichever yarn wrote it.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from fallback_audit.vocabulary import BlockerKind
from fallback_plugins.npm.client import Files
from fallback_plugins.npm.locks.addresses import Addresses
from fallback_plugins.npm.locks.yarn_berry import berry_tree, edges, is_berry, roots
from fallback_plugins.npm.manifests.manifest import entries, parse_manifest
from fallback_plugins.npm.refusals import unsupported
from fallback_plugins.shared.tree import DependencyTree, Node
from fallback_tier.errors import RecipeError
from fallback_tier.outcome import Blocker

_QUOTED = r'"(?:[^"\\\r\n]|\\.)*"'
_KEY = rf'(?:{_QUOTED}|[^\s",:#][^\s",:]*)'
_PATTERNS = re.compile(rf"{_KEY}(?:, {_KEY})*:")
_PAIR = re.compile(rf'(?P<key>{_KEY}) (?P<value>{_QUOTED}|[^\s",]+)')

#: What yarn leaves unquoted; anything else its own parser could take for something else.
_BARE = re.compile(r'(?!true|false)[a-zA-Z][^:\s\\",\[\]]*')

_DEPENDENCIES, _OPTIONAL = "dependencies", "optionalDependencies"


@dataclass(frozen=True)
class Block:
    """One block. ``fields``: its plain lines (version, resolved, integrity …) as values."""

    patterns: tuple[str, ...]
    fields: Mapping[str, str]
    dependencies: Mapping[str, str]
    optional: Mapping[str, str]
    #: Its bytes: key line and what is indented below.
    text: str
    #: Blank lines and comments between it and the next block.
    gap: str = "\n"

    @property
    def version(self) -> str:
        """The version that is installed."""
        return self.fields["version"]

    @property
    def resolved(self) -> str:
        """Where it comes from; empty for a folder."""
        return self.fields.get("resolved", "")

    @property
    def from_folder(self) -> bool:
        """A folder of the project: the patterns name it, there is no address."""
        return any(split_pattern(p)[1].startswith(("file:", "link:")) for p in self.patterns)

    @property
    def name(self) -> str:
        """The package's own name, also where the patterns are aliases of it."""
        return real_name(self.patterns[0])

    @property
    def key(self) -> str:
        """``name@version``, by the package's own name."""
        return f"{self.name}@{self.version}"

    def same_package(self, other: "Block") -> bool:
        """The same version with the same dependencies: only patterns or addresses may differ."""
        mine, theirs = (
            (one.name, one.version, one.dependencies, one.optional) for one in (self, other)
        )
        return mine == theirs

    def answering(self, patterns: Iterable[str]) -> "Block":
        """The same block for other patterns: only its first line changes."""
        wanted = tuple(sorted(set(patterns)))
        if set(wanted) == set(self.patterns):
            return self
        keys = ", ".join(_quoted(pattern) for pattern in wanted)
        first = self.text.splitlines()[0]
        rest = ":" + self.text[len(first) :]
        return replace(self, patterns=wanted, text=keys + rest)

    def at(self, resolved: str) -> "Block":
        """The same block with another address."""
        text = self.text.replace(f'"{self.resolved}"', f'"{resolved}"', 1)
        return replace(self, fields={**self.fields, "resolved": resolved}, text=text)


@dataclass(frozen=True)
class YarnLock:
    """A parsed lock. ``text`` gives back the very bytes that were parsed."""

    prologue: str
    blocks: tuple[Block, ...]

    @property
    def text(self) -> str:
        """The whole file."""
        return self.prologue + "".join(block.text + block.gap for block in self.blocks)

    @cached_property
    def by_pattern(self) -> Mapping[str, Block]:
        """Which block answers ``name@range``."""
        return {pattern: block for block in self.blocks for pattern in block.patterns}

    def with_blocks(self, blocks: Iterable[Block]) -> "YarnLock":
        """The same file with other blocks. What stood at the file's end stays there."""
        kept = list(blocks)
        if kept and self.blocks:
            end, between = self.blocks[-1].gap, "\r\n" if "\r\n" in self.blocks[0].text else "\n"
            kept = [replace(block, gap=block.gap or between) for block in kept[:-1]] + kept[-1:]
            kept[-1] = replace(kept[-1], gap=end)
        return replace(self, blocks=tuple(kept))

    def following(self, made: "YarnLock") -> "YarnLock":
        """This lock with what a run of yarn changed, and nothing else.

        Yarn writes the whole file anew: in its own order, and two blocks of one version become one. Here a
        pattern that still leads to the same version stays in its block, byte for byte; new blocks stand
        where yarn has them, with the registry address that this lock's other blocks have. What has neither
        address nor folder (a member under its range) stays: yarn can't look it up.
        """
        if not self.blocks:
            return made
        home = {
            pattern: number
            for number, block in enumerate(self.blocks)
            for pattern in block.patterns
            if not (block.resolved or block.from_folder)
            or (pattern in made.by_pattern and block.same_package(made.by_pattern[pattern]))
        }
        patterns: dict[int, list[str]] = {}
        for pattern, number in home.items():
            if pattern not in made.by_pattern:
                patterns.setdefault(number, []).append(pattern)
        new: list[tuple[Block, Block | None]] = []
        before: Block | None = None
        for block in made.blocks:
            owners = [home[pattern] for pattern in block.patterns if pattern in home]
            if not owners:
                new.append((block, before))
            for pattern in block.patterns if owners else ():
                patterns.setdefault(home.get(pattern, owners[0]), []).append(pattern)
            before = block
        result = [
            block.answering(patterns[number])
            for number, block in enumerate(self.blocks)
            if number in patterns
        ]
        addresses = Addresses.of((block.name, block.resolved) for block in self.blocks)
        for block, predecessor in new:
            moved = block.at(addresses.like_the_others(block.name, block.resolved))
            result.insert(_place(result, predecessor), moved)
        return self.with_blocks(result)


def berry_refusal() -> RecipeError:
    """The refusal of a lock that another yarn has to write."""
    return unsupported(
        "yarn.lock has __metadata: yarn 2 or later wrote it, and only yarn classic's is resolved.",
        "Update each affected package by its name with the project's own yarn.",
        kind="berry",
    )


def parse_yarn_lock(text: str) -> YarnLock:
    """Raises RecipeError: yarn 2 or later wrote it, or a line that the format doesn't have."""
    if is_berry(text):
        raise berry_refusal()
    chunks = list(_chunks(text.splitlines(keepends=True)))
    prologue = chunks[0][1] if chunks and not chunks[0][0] else ""
    blocks = tuple(
        _block(number, lines, gap) for number, (lines, gap) in enumerate(chunks) if lines
    )
    seen: Counter[str] = Counter(pattern for block in blocks for pattern in block.patterns)
    twice = next((pattern for pattern, times in seen.items() if times > 1), None)
    if twice is not None:
        raise _unreadable(f"has {twice} twice", kind="duplicate_key")
    return YarnLock(prologue, blocks)


def yarn_tree(files: Files) -> DependencyTree:
    """The lock of any yarn as a tree. In classic's two blocks of one version are one package, and what
    ``resolutions`` name is in the place of ranges that no block answers. Raises RecipeError."""
    if is_berry(files.lock_text):
        return berry_tree(files)
    lock, path = parse_yarn_lock(files.lock_text), files.root_manifest
    root = parse_manifest(path, files.manifests.get(path, "{}"))
    forced = {
        resolution_target(key): lock.by_pattern.get(f"{resolution_target(key)}@{spec}")
        for key, spec in entries(root.get("resolutions"))
    }

    def find(name: str, spec: str) -> str | None:
        block = lock.by_pattern.get(f"{name}@{spec}") or forced.get(name)
        return block.key if block else None

    nodes: dict[str, Node] = {}
    for block in lock.blocks:
        facts = {_DEPENDENCIES: block.dependencies, _OPTIONAL: block.optional}
        asks = tuple(edges(facts, (_DEPENDENCIES, _OPTIONAL), find))
        nodes.setdefault(block.key, Node(block.key, block.name, block.version, asks))
    own = tuple(roots(files, find, with_peers=False))
    return DependencyTree(files.lock or "yarn.lock", nodes, own)


def resolution_target(key: str) -> str:
    """The package that a key of ``resolutions`` is about: ``**/a/@s/b`` is about @s/b."""
    *before, last = key.split("/")
    return f"{before[-1]}/{last}" if before and before[-1].startswith("@") else last


def split_pattern(pattern: str) -> tuple[str, str]:
    """``name@range`` → name, range. A scope's own ``@`` is no separator."""
    name, _, spec = pattern[1:].partition("@")
    return pattern[0] + name, spec


def real_name(pattern: str) -> str:
    """The package that a pattern means: ``a@npm:b@^1`` is an alias of b."""
    name, spec = split_pattern(pattern)
    if not spec.startswith("npm:"):
        return name
    return split_pattern(spec.removeprefix("npm:"))[0]


def _chunks(lines: list[str]) -> Iterator[tuple[list[str], str]]:
    """(lines of a block, what is between it and the next one); the prologue has no lines."""
    block: list[str] = []
    gap = ""
    for line in lines:
        quiet = not line.strip() or line.startswith("#")
        if quiet or (gap and line[0] == " "):
            if not quiet:
                raise _unreadable(
                    f"has an indented line after a blank one: {line.strip()!r}",
                    kind="indented_after_blank",
                )
            gap += line
        elif line[0] == " " and block:
            block.append(line)
        else:
            if block or gap:
                yield block, gap
            block, gap = [line], ""
    if block or gap:
        yield block, gap


def _block(number: int, lines: list[str], gap: str) -> Block:
    keys = lines[0].rstrip("\r\n")
    if not _PATTERNS.fullmatch(keys):
        raise _unreadable(
            f"has a line that names no package: {keys[:80]!r} (block {number})", kind="no_package"
        )
    patterns = tuple(_plain(key) for key in re.findall(_KEY, keys[:-1]))
    sections: dict[str, dict[str, str]] = {"": {}, _DEPENDENCIES: {}, _OPTIONAL: {}}
    section = ""
    for line in lines[1:]:
        stripped = line.strip()
        indent = len(line) - len(line.lstrip(" "))
        if indent == 2 and stripped.endswith(":") and stripped[:-1] in (_DEPENDENCIES, _OPTIONAL):
            section = stripped[:-1]
            continue
        pair = _PAIR.fullmatch(stripped)
        if indent == 2:
            section = ""
        if pair is None or indent != (4 if section else 2):
            raise _unreadable(
                f"has a line that can't be read below {patterns[0]}: {stripped[:80]!r}",
                kind="bad_line",
            )
        sections[section][_plain(pair["key"])] = _plain(pair["value"])
    if "version" not in sections[""]:
        raise _unreadable(f"gives no version for {patterns[0]}", kind="no_version")
    return Block(
        patterns, sections[""], sections[_DEPENDENCIES], sections[_OPTIONAL], "".join(lines), gap
    )


def _place(result: list[Block], predecessor: Block | None) -> int:
    """Behind the block that yarn has before it; first where it has none."""
    held = set(predecessor.patterns) if predecessor else set()
    return next((at + 1 for at, block in enumerate(result) if held & set(block.patterns)), 0)


def _plain(word: str) -> str:
    if not word.startswith('"'):
        return word
    try:
        return str(json.loads(word))
    except ValueError as error:
        raise _unreadable(
            f"has a string that can't be read: {word[:80]}", kind="bad_string"
        ) from error


def _quoted(word: str) -> str:
    return word if _BARE.fullmatch(word) else json.dumps(word, ensure_ascii=False)


def _unreadable(why: str, *, kind: str = "") -> RecipeError:
    blocker = Blocker(kind=BlockerKind.UNREADABLE, constraint=why, file="yarn.lock")
    return unsupported(f"yarn.lock {why}.", "Repair it with `yarn install`.", blocker, kind=kind)
