"""pnpm-lock.yaml as a tree: formats 5.4 (pnpm 7), 6.0 (pnpm 8) and 9.0 (pnpm 9, 10).

The formats differ in how a package's key is spelt (``/a/1.0.0_peer@2.0.0``, ``/a@1.0.0(peer@2.0.0)``,
``a@1.0.0(peer@2.0.0)``) and in the place of a project's own dependencies.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import PurePosixPath
from typing import Any

from fallback_plugins.npm.client import Files
from fallback_plugins.npm.manifests.manifest import PEER_SECTION, SECTIONS, mapping, parse_manifest
from fallback_plugins.npm.manifests.pnpm_workspace import has_aliases, meant
from fallback_plugins.shared.bumping import unsupported
from fallback_plugins.shared.tree import DependencyEdge, DependencyTree, Node
from fallback_tier.errors import RecipeError

#: Formats that are read.
KNOWN_FORMATS = ("5.4", "6.0", "6.1", "9.0")

#: Overrides that no manifest has, as no package has this name.
_NO_MANIFEST_HAS = {"/": "0.0.0"}

#: Spaces by which pnpm indents.
_INDENT = 2

#: Most lines that a fix changes; if more differ, a formatter wrote the lock.
_LINES_OF_A_FIX = 40

Entry = Mapping[str, Any]


@dataclass(frozen=True)
class PnpmLock:
    """A parsed lock; every scalar in it is text."""

    content: Entry

    @property
    def format(self) -> str:
        """Return ``lockfileVersion``."""
        return str(self.content.get("lockfileVersion"))

    @property
    def importers(self) -> Mapping[str, Entry]:
        """Return the project and its workspace members by folder; ``.`` is the root."""
        return _objects(self.content.get("importers")) or {".": self.content}

    @cached_property
    def facts(self) -> Mapping[str, Entry]:
        """Return the lock's entries of packages, without their dependencies."""
        return _objects(self.content.get("packages"))

    @cached_property
    def nodes(self) -> Mapping[str, Node]:
        """Return the installed packages by the lock's own keys."""
        facts = self.facts
        entries = _objects(self.content.get("snapshots")) if self.format == "9.0" else facts
        keys = frozenset(entries)
        return {
            key: self._node(key, entry, facts.get(key.partition("(")[0], entry), keys)
            for key, entry in entries.items()
        }

    def asks(self, importer: Entry, specs: Mapping[str, str]) -> tuple[DependencyEdge, ...]:
        """Return what a project requires. ``specs``: its manifest's ranges, used instead of the lock's."""
        edges = []
        for section in SECTIONS:
            for name, entry in mapping(importer.get(section)).items():
                spec, ref = self.declared(importer, name, entry)
                to = self.key(name, ref, self.nodes)
                optional = section == "optionalDependencies"
                edges.append(DependencyEdge(name, specs.get(name, spec), to, optional=optional))
        return tuple(edges)

    def unlisted(self) -> Iterator[tuple[str, str]]:
        """Yield name and version of each dependency that has no entry. pnpm does not write such a lock."""
        owners = (*_objects(self.content.get("snapshots")).values(), *self.facts.values())
        for owner in (*self.importers.values(), *owners):
            for section in SECTIONS:
                for name, entry in mapping(owner.get(section)).items():
                    _, ref = self.declared(owner, name, entry)
                    if ref[:1].isdigit() and self.key(name, ref, self.nodes) is None:
                        yield name, ref

    def from_registry(self, key: str) -> bool:
        """Return whether a key is a plain version, not an address."""
        return ":" not in key if self.format == "9.0" else key.startswith("/")

    def declared(self, importer: Entry, name: str, entry: Any) -> tuple[str, str]:
        """Return the range of a project's entry, and the reference that answers it."""
        if isinstance(entry, dict):
            return str(entry.get("specifier", "")), str(entry.get("version", ""))
        return str(mapping(importer.get("specifiers")).get(name, "")), str(entry)

    def _node(self, key: str, entry: Entry, facts: Entry, keys: frozenset[str]) -> Node:
        if self.format == "5.4":
            name, _, version = key.removeprefix("/").rpartition("/")
            version = version.partition("_")[0]
        else:
            name, _, version = key.removeprefix("/").partition("(")[0].rpartition("@")
        # A package that comes from elsewhere (git, a URL) has an address as its key.
        name, version = str(facts.get("name", name)), str(facts.get("version", version))
        peers = mapping(facts.get(PEER_SECTION))
        asks = (
            DependencyEdge(
                dependency,
                str(peers.get(dependency, "")),
                self.key(dependency, str(ref), keys),
                optional=section == "optionalDependencies",
                peer=dependency in peers,
            )
            for section in ("dependencies", "optionalDependencies")
            for dependency, ref in mapping(entry.get(section)).items()
        )
        return Node(key, name, version, tuple(asks))

    def key(self, name: str, ref: str, keys: Any) -> str | None:
        """Return the key that a reference means: a whole key (an alias, an address) or a version."""
        spelt = {"5.4": f"/{name}/{ref}", "9.0": f"{name}@{ref}"}.get(self.format, f"/{name}@{ref}")
        return spelt if spelt in keys else ref if ref in keys else None


def parse_pnpm_lock(text: str) -> PnpmLock:
    """Parse a lock. Raises RecipeError if it isn't YAML, if its format isn't read, or if a program of the
    repository made it."""
    lock = PnpmLock(parse_yaml(text))
    if lock.format not in KNOWN_FORMATS:
        known = ", ".join(KNOWN_FORMATS)
        raise _unsupported(
            f"has lockfileVersion {lock.format}, and read are {known}",
            "Write it with a pnpm whose lockfileVersion is one of these: `pnpm install --lockfile-only`.",
            kind="lockfile_version",
        )
    if "pnpmfileChecksum" in lock.content:
        raise _unsupported(
            "was resolved through .pnpmfile.cjs, a program of the repository",
            "Update what is affected with the project's own pnpm, which runs that program.",
            kind="pnpmfile",
        )
    return lock


def parse_yaml(text: str) -> dict[str, Any]:
    """Return a lock of any format. Raises RecipeError if it isn't YAML of the kind that pnpm writes."""
    import yaml

    # Every scalar as text: a version such as 1.10 is not a number. The C parser is ten times as fast.
    loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
    try:
        if has_aliases(text):
            raise _unsupported("has YAML aliases, which pnpm does not write", kind="aliases")
        content = yaml.load(text, Loader=loader)  # noqa: S506 (BaseLoader makes only text, lists and dicts)
    except (yaml.YAMLError, RecursionError) as error:
        raise _unsupported(
            f"is not YAML ({' '.join(str(error).split())})", kind="not_yaml"
        ) from error
    if not isinstance(content, dict):
        raise _unsupported("is not a YAML mapping", kind="not_a_mapping")
    return content


def without(text: str, packages: Iterable[str]) -> str:
    """Return a lock without these packages, so that pnpm looks each up again. What comes from git or a URL
    stays: nothing newer answers the same request."""
    import yaml

    # Typed scalars here, as pnpm reads them.
    content = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506 (safe)
    lock, names = parse_pnpm_lock(text), set(packages)
    gone = {
        key for key, node in lock.nodes.items() if node.name in names and lock.from_registry(key)
    }
    parts = (
        _objects(content.get(part)).values() for part in ("importers", "packages", "snapshots")
    )
    for owner in (content, *chain(*parts)):
        for section in SECTIONS:
            for name, entry in list(mapping(owner.get(section)).items()):
                _, ref = lock.declared(owner, name, entry)
                if lock.key(name, ref, lock.nodes) in gone:
                    del owner[section][name]
    for section in ("packages", "snapshots"):
        for key in gone & set(_objects(content.get(section))):
            del content[section][key]
    # If the projects' own requirements are answered, pnpm trusts what the lock has below them, even if
    # that is nothing. A lock that was made with other overrides is resolved completely.
    content["overrides"] = _NO_MANIFEST_HAS
    edited: str = yaml.dump(content, Dumper=getattr(yaml, "CSafeDumper", yaml.SafeDumper))
    return edited


def pnpm_tree(files: Files) -> DependencyTree:
    """Return the lock as a tree. Its roots, the project and its members, are keyed by their manifests'
    paths. Raises RecipeError."""
    lock, roots = parse_pnpm_lock(files.lock_text), list[Node]()
    for folder, importer in lock.importers.items():
        path = str(PurePosixPath(files.folder, folder, "package.json"))
        text = files.manifests.get(path)
        manifest = parse_manifest(path, text) if text is not None else {}
        specs, peers = (
            {
                name: meant(files, name, str(spec))
                for section in sections
                for name, spec in mapping(manifest.get(section)).items()
            }
            for sections in (SECTIONS, (PEER_SECTION,))
        )
        asks = (DependencyEdge(name, spec, None, peer=True) for name, spec in peers.items())
        name, version = str(manifest.get("name", path)), str(manifest.get("version", ""))
        roots.append(Node(path, name, version, (*lock.asks(importer, specs), *asks)))
    return DependencyTree(files.lock or "pnpm-lock.yaml", lock.nodes, tuple(roots))


def _objects(value: Any) -> dict[str, Entry]:
    return {key: mapping(entry) for key, entry in mapping(value).items()}


def _unsupported(
    why: str,
    next_step: str = "Write it again with pnpm: `pnpm install --lockfile-only`.",
    *,
    kind: str = "",
) -> RecipeError:
    return unsupported(f"pnpm-lock.yaml {why}.", next_step, kind=kind)


def without_importers(text: str, folders: Iterable[str]) -> str:
    """Return the lock's text without some members' own parts; packages that only they require stay."""
    head, importers, rest = text.partition("\nimporters:\n")
    for folder in folders:
        block = rf"^  [\"']?{re.escape(folder)}[\"']?:.*\n(?:(?:    .*)?\n)*"
        rest = re.sub(block, "", rest, count=1, flags=re.MULTILINE)
    return head + importers + rest


def in_form_of(before: str, written: str) -> str:
    """Return what pnpm wrote in the format of the lock before: an unchanged entry keeps its text, and line
    ends stay."""
    old, new = (text.replace("\r\n", "\n") for text in (before, written))
    old_lines, new_lines = old.splitlines(), new.splitlines()
    if len({*old_lines} - {*new_lines}) + abs(len(old_lines) - len(new_lines)) > _LINES_OF_A_FIX:
        merged = _with_entries_of(old, new)
        if parse_yaml(merged) == parse_yaml(new):
            new = merged
    new = new.rstrip("\n") + "\n" * (len(old) - len(old.rstrip("\n")))
    return new.replace("\n", "\r\n") if "\r\n" in before else new


def _with_entries_of(old: str, new: str) -> str:
    """Return ``new``, in which entries of the first two levels that equal ``old``'s have its text."""
    text_by_entry = {(keys, repr(value)): text for keys, value, _, text in _entry_texts(old)}
    indents = [indent for keys, _, indent, _ in _entry_texts(old) if len(keys) > 1 and indent]
    scale = indents[0] / _INDENT if indents else 1
    has_blanks = "\n\n" in old
    parts = []
    for keys, value, _, text in _entry_texts(new):
        same = text_by_entry.get((keys, repr(value)))
        if same is None:
            lines = (line for line in text.splitlines() if line or has_blanks)
            blanks = ((len(line) - len(line.lstrip(" ")), line.lstrip(" ")) for line in lines)
            same = "".join(f"{' ' * int(count * scale)}{line}\n" for count, line in blanks)
        parts.append(same)
    return "".join(parts)


def _entry_texts(text: str) -> Iterator[tuple[tuple[str, ...], Any, int, str]]:
    """Yield keys, value, indent and lines of each entry of the first two levels."""
    import yaml

    content = parse_yaml(text)
    root: Any = yaml.compose(text, Loader=getattr(yaml, "CBaseLoader", yaml.BaseLoader))
    lines = text.splitlines(keepends=True)
    starts: list[tuple[tuple[str, ...], Any, int, int]] = []
    for name, section in root.value:
        is_flat = section.id != "mapping" or section.flow_style or not section.value
        value = content[name.value] if is_flat else None
        starts.append(((name.value,), value, 0, name.start_mark.line if starts else 0))
        for key, _ in () if is_flat else section.value:
            value = content[name.value][key.value]
            starts.append(
                ((name.value, key.value), value, key.start_mark.column, key.start_mark.line)
            )
    ends = [*(start for *_, start in starts[1:]), len(lines)]
    for (keys, value, indent, start), end in zip(starts, ends, strict=True):
        yield keys, value, indent, "".join(lines[start:end])
