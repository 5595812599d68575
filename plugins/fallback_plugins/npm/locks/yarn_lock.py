"""yarn.lock of yarn classic (format version 1): parsed strictly, and written without other changes. Locks
of yarn from version 2 on, and of bun, are only read (the last part).

A lock is a prologue and *blocks*. A block's first line has the patterns (``name@range``) that it
answers; the lines below have the version. An unchanged block keeps every byte, whichever yarn wrote it.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

from fallback_audit.vocabulary import BlockerKind
from fallback_plugins.npm.client import Files
from fallback_plugins.npm.locks.addresses import Addresses
from fallback_plugins.npm.locks.pnpm_lock import parse_yaml
from fallback_plugins.npm.manifests.manifest import (
    MEMBER_SECTIONS,
    PEER_SECTION,
    entries,
    parse_manifest,
)
from fallback_plugins.shared.bumping import unsupported
from fallback_plugins.shared.tree import DependencyEdge, DependencyTree, Node
from fallback_tier.errors import RecipeError
from fallback_tier.outcome import Blocker

_QUOTED = r'"(?:[^"\\\r\n]|\\.)*"'
_KEY = rf'(?:{_QUOTED}|[^\s",:#][^\s",:]*)'
_PATTERNS = re.compile(rf"{_KEY}(?:, {_KEY})*:")
_PAIR = re.compile(rf'(?P<key>{_KEY}) (?P<value>{_QUOTED}|[^\s",]+)')

#: What yarn leaves unquoted; its own parser could misread anything else.
_BARE = re.compile(r'(?!true|false)[a-zA-Z][^:\s\\",\[\]]*')

_DEPENDENCIES, _OPTIONAL = "dependencies", "optionalDependencies"

#: Most parsed blocks that are kept: those of two large locks. The locks of a plan's trials share most.
MAX_PARSED = 8192


@dataclass(frozen=True)
class Block:
    """One block. ``fields``: its plain lines (version, resolved, integrity …) as values."""

    patterns: tuple[str, ...]
    fields: Mapping[str, str]
    dependencies: Mapping[str, str]
    optional: Mapping[str, str]
    #: Its text: the key line and the indented lines below.
    text: str
    #: Blank lines and comments between it and the next block.
    gap: str = "\n"

    @property
    def version(self) -> str:
        """Return the installed version."""
        return self.fields["version"]

    @property
    def resolved(self) -> str:
        """Return the address; empty for a folder."""
        return self.fields.get("resolved", "")

    @property
    def from_folder(self) -> bool:
        """Return whether it is a folder of the project."""
        return any(split_pattern(p)[1].startswith(("file:", "link:")) for p in self.patterns)

    @property
    def name(self) -> str:
        """Return the package's own name, also if the patterns are aliases of it."""
        return real_name(self.patterns[0])

    @property
    def key(self) -> str:
        """Return ``name@version``, with the package's own name."""
        return f"{self.name}@{self.version}"

    def same_package(self, other: "Block") -> bool:
        """Return whether only patterns or addresses may differ."""
        mine, theirs = (
            (block.name, block.version, block.dependencies, block.optional)
            for block in (self, other)
        )
        return mine == theirs

    def answering(self, patterns: Iterable[str]) -> "Block":
        """Return the same block for other patterns: only its first line changes."""
        wanted = tuple(sorted(set(patterns)))
        if set(wanted) == set(self.patterns):
            return self
        keys = ", ".join(
            pattern if _BARE.fullmatch(pattern) else json.dumps(pattern, ensure_ascii=False)
            for pattern in wanted
        )
        first = self.text.splitlines()[0]
        rest = ":" + self.text[len(first) :]
        return replace(self, patterns=wanted, text=keys + rest)

    def at(self, resolved: str) -> "Block":
        """Return the same block with another address."""
        text = self.text.replace(f'"{self.resolved}"', f'"{resolved}"', 1)
        return replace(self, fields={**self.fields, "resolved": resolved}, text=text)


@dataclass(frozen=True)
class YarnLock:
    """A parsed lock. ``text`` gives back the very bytes that were parsed."""

    prologue: str
    blocks: tuple[Block, ...]

    @property
    def text(self) -> str:
        """Return the whole file."""
        return self.prologue + "".join(block.text + block.gap for block in self.blocks)

    @cached_property
    def by_pattern(self) -> Mapping[str, Block]:
        """Return the block that answers each ``name@range``."""
        return {pattern: block for block in self.blocks for pattern in block.patterns}

    def with_blocks(self, blocks: Iterable[Block]) -> "YarnLock":
        """Return the same file with other blocks. The end of the file stays as it is."""
        new_blocks = list(blocks)
        if new_blocks and self.blocks:
            end, between = self.blocks[-1].gap, "\r\n" if "\r\n" in self.blocks[0].text else "\n"
            new_blocks = [
                replace(block, gap=block.gap or between) for block in new_blocks[:-1]
            ] + new_blocks[-1:]
            new_blocks[-1] = replace(new_blocks[-1], gap=end)
        return replace(self, blocks=tuple(new_blocks))

    def following(self, written: "YarnLock") -> "YarnLock":
        """Return this lock with what a run of yarn changed, and nothing else.

        Yarn writes the whole file in its own order, and makes one block of two with one version. Here a
        pattern of the same version stays in its block, byte for byte; new blocks are where yarn has them,
        with the registry address of this lock's others. A block without address or folder (a member) stays.
        """
        if not self.blocks:
            return written
        home = {
            pattern: number
            for number, block in enumerate(self.blocks)
            for pattern in block.patterns
            if not (block.resolved or block.from_folder)
            or (pattern in written.by_pattern and block.same_package(written.by_pattern[pattern]))
        }
        patterns: dict[int, list[str]] = {}
        for pattern, number in home.items():
            if pattern not in written.by_pattern:
                patterns.setdefault(number, []).append(pattern)
        new: list[tuple[Block, Block | None]] = []
        before: Block | None = None
        for block in written.blocks:
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
    """Return the refusal of a lock that another yarn has to write."""
    return unsupported(
        "yarn.lock has __metadata: yarn 2 or later wrote it, and only yarn classic's is resolved.",
        "Update each affected package by its name with the project's own yarn.",
        kind="berry",
    )


def parse_yarn_lock(text: str) -> YarnLock:
    """Parse a lock. Raises RecipeError if yarn 2 or later wrote it, or if a line is not of the format."""
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
    """Return the lock of any yarn as a tree. In classic's, two blocks of one version are one package, and
    ``resolutions`` answer ranges that no block answers. Raises RecipeError."""
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
    project_roots = tuple(roots(files, find, with_peers=False))
    return DependencyTree(files.lock or "yarn.lock", nodes, project_roots)


def resolution_target(key: str) -> str:
    """Return the package that a key of ``resolutions`` is about: ``**/a/@s/b`` is about @s/b."""
    *before, last = key.split("/")
    return f"{before[-1]}/{last}" if before and before[-1].startswith("@") else last


def split_pattern(pattern: str) -> tuple[str, str]:
    """Split ``name@range`` into name and range. A scope's own ``@`` is not a separator."""
    name, _, spec = pattern[1:].partition("@")
    return pattern[0] + name, spec


def real_name(pattern: str) -> str:
    """Return the package that a pattern means: ``a@npm:b@^1`` is an alias of b."""
    name, spec = split_pattern(pattern)
    if not spec.startswith("npm:"):
        return name
    return split_pattern(spec.removeprefix("npm:"))[0]


def _chunks(lines: list[str]) -> Iterator[tuple[list[str], str]]:
    """Yield (lines of a block, text up to the next one); the prologue has no lines."""
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
    block = _parsed_block("".join(lines))
    return block if block.gap == gap else replace(block, gap=gap)


@lru_cache(maxsize=MAX_PARSED)
def _parsed_block(text: str) -> Block:
    lines = text.splitlines(keepends=True)
    patterns = tuple(_plain(key) for key in re.findall(_KEY, lines[0].rstrip("\r\n")[:-1]))
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
    return Block(patterns, sections[""], sections[_DEPENDENCIES], sections[_OPTIONAL], text)


def _place(result: list[Block], predecessor: Block | None) -> int:
    """Return the index after the block that yarn has before it; 0 if there is none."""
    patterns = set(predecessor.patterns) if predecessor else set()
    return next(
        (at + 1 for at, block in enumerate(result) if not patterns.isdisjoint(block.patterns)), 0
    )


def _plain(text: str) -> str:
    if not text.startswith('"'):
        return text
    if "\\" not in text and text.isprintable():
        return text[1:-1]
    try:
        return str(json.loads(text))
    except ValueError as error:
        raise _unreadable(
            f"has a string that can't be read: {text[:80]}", kind="bad_string"
        ) from error


def _unreadable(why: str, *, kind: str = "") -> RecipeError:
    blocker = Blocker(kind=BlockerKind.UNREADABLE, constraint=why, file="yarn.lock")
    return unsupported(f"yarn.lock {why}.", "Repair it with `yarn install`.", blocker, kind=kind)


# --- locks that are only read: of yarn from version 2 on, and of bun (its text format) ---

#: Yarn 2 and later write another format (YAML) under the same name; each of its locks has this key.
_BERRY = re.compile(r"^__metadata:\s*$", re.MULTILINE)

_COMPRESSION = re.compile(r"^  cacheKey: \"?\d+(?:c(\d))?", re.MULTILINE)
_METADATA = re.compile(r"^__metadata:\n  version: (\d+)", re.MULTILINE)

#: A comma that JSON does not have, before a closing bracket; strings are matched, so that they stay.
_TRAILING = re.compile(r'("(?:[^"\\]|\\.)*")|,(?=\s*[}\]])')

#: Before a range, the source of the package; before a name, an alias.
_RANGE_PREFIX = re.compile(r"^npm:(?![@A-Za-z_])")

#: (name, range) → key of the package that answers.
_Find = Callable[[str, str], str | None]

#: One name in a key of bun's: ``a/@scope/b/c``.
_NAME = re.compile(r"@[^/]+/[^/]+|[^/]+")


def is_berry(text: str) -> bool:
    """Return whether yarn 2 or later wrote it."""
    return _BERRY.search(text) is not None


def berry_format(lock_text: str) -> int | None:
    """Return the number of a lock's format; None for yarn classic's."""
    match = _METADATA.search(lock_text)
    return int(match[1]) if match else 0 if is_berry(lock_text) else None


def berry_compression(lock_text: str) -> str:
    """Return the project's compression level: the lock has checksums of compressed archives."""
    match = _COMPRESSION.search(lock_text)
    return match[1] if match and match[1] else "mixed"


def berry_tree(files: Files) -> DependencyTree:
    """Return yarn's lock as a tree, keyed by its resolutions. Raises RecipeError if it is not YAML."""
    content = parse_yaml(files.lock_text)
    by_pattern: dict[str, str] = {}
    entry_by_resolution: dict[str, Mapping[str, Any]] = {}
    for patterns, entry in content.items():
        resolution = str(entry.get("resolution", "")) if isinstance(entry, dict) else ""
        if "@" in resolution[1:]:
            entry_by_resolution[resolution] = entry
            by_pattern |= dict.fromkeys(
                (pattern.strip() for pattern in patterns.split(",")), resolution
            )
    root = parse_manifest(files.root_manifest, files.manifests.get(files.root_manifest, "{}"))
    forced = {key.rpartition("/")[2]: spec for key, spec in entries(root.get("resolutions"))}

    def find(name: str, spec: str) -> str | None:
        specs = [spec, *([forced[name]] if name in forced else [])]
        tried = (f"{name}@{kind}{spec}" for spec in specs for kind in ("", "npm:"))
        key = next((by_pattern[pattern] for pattern in tried if pattern in by_pattern), None)
        return None if key is not None and "@workspace:" in key else key

    nodes = {
        key: Node(key, key[: key.index("@", 1)], str(entry.get("version", "")), asks)
        for key, entry in entry_by_resolution.items()
        if "@workspace:" not in key
        for asks in [tuple(edges(entry, ("dependencies",), find))]
    }
    return DependencyTree(files.lock or "yarn.lock", nodes, tuple(roots(files, find)))


def bun_tree(files: Files) -> DependencyTree:
    """Return bun.lock as a tree, keyed by its paths. Raises RecipeError if it is not what bun writes."""
    try:
        content = json.loads(_TRAILING.sub(lambda match: match[1] or "", files.lock_text))
        packages = {
            key: entry for key, entry in content["packages"].items() if "@" in str(entry[0])[1:]
        }
    except (ValueError, TypeError, KeyError, AttributeError, IndexError, RecursionError) as error:
        raise unsupported(
            f"{files.lock} is not a lock as bun writes it.", "Make a new one with `bun install`."
        ) from error
    workspaces = {key for key, entry in packages.items() if "@workspace:" in entry[0]}

    def nearest(path: str, name: str) -> str | None:
        parts = _NAME.findall(path)
        keys = ("/".join([*parts[:end], name]) for end in range(len(parts), -1, -1))
        nearest_key = next((key for key in keys if key in packages), None)
        return None if nearest_key in workspaces else nearest_key

    nodes = {}
    for key, entry in packages.items():
        name, _, version = entry[0][1:].partition("@")
        facts = next((part for part in entry if isinstance(part, dict)), {})

        def find(name: str, _spec: str, path: str = key) -> str | None:
            return nearest(path, name)

        asks = tuple(edges(facts, ("dependencies", "optionalDependencies", PEER_SECTION), find))
        if key not in workspaces:
            nodes[key] = Node(key, entry[0][0] + name, version, asks)
    return DependencyTree(
        files.lock or "bun.lock", nodes, tuple(roots(files, lambda name, _: nearest("", name)))
    )


def edges(
    facts: Mapping[str, Any], sections: tuple[str, ...], find: _Find
) -> Iterator[DependencyEdge]:
    """Yield what these sections of a manifest, or of an entry like one, require."""
    for section in sections:
        for name, written in entries(facts.get(section)):
            spec = _RANGE_PREFIX.sub("", written)
            to, optional = find(name, spec), section == "optionalDependencies"
            yield DependencyEdge(name, spec, to, optional=optional, peer=section == PEER_SECTION)


def roots(files: Files, find: _Find, *, with_peers: bool = True) -> Iterator[Node]:
    """Yield the project and its members, keyed by their manifests' paths, ``with_peers`` or without."""
    for path, text in files.manifests.items():
        manifest = parse_manifest(path, text)
        asks = (
            ask if with_peers or not ask.peer else ask._replace(to=None)
            for ask in edges(manifest, MEMBER_SECTIONS, find)
        )
        version = str(manifest.get("version", ""))
        yield Node(path, str(manifest.get("name", path)), version, tuple(asks))
