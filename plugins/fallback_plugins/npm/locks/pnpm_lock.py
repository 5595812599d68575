"""pnpm-lock.yaml as a tree: formats 5.4 (pnpm 7), 6.0 (pnpm 8) and 9.0 (pnpm 9, 10).

The formats differ in how a package's key is spelt (``/a/1.0.0_peer@2.0.0``, ``/a@1.0.0(peer@2.0.0)``,
``a@1.0.0(peer@2.0.0)``) and in where a project's own dependencies stand.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePosixPath
from typing import Any

from fallback_plugins.npm.client import Files
from fallback_plugins.npm.manifests.manifest import PEER_SECTION, SECTIONS, parse_manifest
from fallback_plugins.npm.refusals import own_client, unsupported
from fallback_plugins.shared.tree import DependencyEdge, DependencyTree, Node
from fallback_tier.errors import RecipeError

#: Formats that are read.
KNOWN_FORMATS = ("5.4", "6.0", "6.1", "9.0")

#: A star that a letter follows at once may be an alias (or stand in a text).
_MAYBE_ALIAS = re.compile(r"\*[\w-]")

#: Overrides that are no manifest's: no package is called so.
_NO_MANIFEST_HAS = {"/": "0.0.0"}

Entry = Mapping[str, Any]


@dataclass(frozen=True)
class PnpmLock:
    """A parsed lock; every scalar in it is text."""

    content: Entry

    @property
    def format(self) -> str:
        """``lockfileVersion``."""
        return str(self.content.get("lockfileVersion"))

    @property
    def importers(self) -> Mapping[str, Entry]:
        """The project and its workspace members by folder; ``.`` is the root."""
        return _objects(self.content.get("importers")) or {".": self.content}

    @cached_property
    def facts(self) -> Mapping[str, Entry]:
        """What the lock says of each package but its dependencies."""
        return _objects(self.content.get("packages"))

    @cached_property
    def nodes(self) -> Mapping[str, Node]:
        """Installed packages by the lock's own keys."""
        facts = self.facts
        entries = _objects(self.content.get("snapshots")) if self.format == "9.0" else facts
        keys = frozenset(entries)
        return {
            key: self._node(key, entry, facts.get(key.partition("(")[0], entry), keys)
            for key, entry in entries.items()
        }

    def asks(self, importer: Entry, specs: Mapping[str, str]) -> tuple[DependencyEdge, ...]:
        """What a project asks for. ``specs``: what its manifest says now, before the lock's word."""
        found = []
        for section in SECTIONS:
            for name, held in _entries(importer.get(section)):
                spec, ref = self.declared(importer, name, held)
                to = self.key(name, ref, self.nodes)
                optional = section == "optionalDependencies"
                found.append(DependencyEdge(name, specs.get(name, spec), to, optional=optional))
        return tuple(found)

    def from_registry(self, key: str) -> bool:
        """Is it a plain version of a package, and no address?"""
        return ":" not in key if self.format == "9.0" else key.startswith("/")

    def declared(self, importer: Entry, name: str, held: Any) -> tuple[str, str]:
        """What a project's entry says: the range, and the reference that answers it."""
        if isinstance(held, dict):
            return str(held.get("specifier", "")), str(held.get("version", ""))
        return str(dict(_entries(importer.get("specifiers"))).get(name, "")), str(held)

    def _node(self, key: str, entry: Entry, facts: Entry, keys: frozenset[str]) -> Node:
        name, version = self._name_and_version(key)
        # A package that comes from elsewhere (git, a URL) has an address as its key.
        name, version = str(facts.get("name", name)), str(facts.get("version", version))
        peers = dict(_entries(facts.get(PEER_SECTION)))
        asks = []
        for section in ("dependencies", "optionalDependencies"):
            for other, ref in _entries(entry.get(section)):
                asks.append(
                    DependencyEdge(
                        other,
                        str(peers.get(other, "")),
                        self.key(other, str(ref), keys),
                        optional=section == "optionalDependencies",
                        peer=other in peers,
                    )
                )
        return Node(key, name, version, tuple(asks))

    def _name_and_version(self, key: str) -> tuple[str, str]:
        if self.format == "5.4":
            name, _, version = key.removeprefix("/").rpartition("/")
            return name, version.partition("_")[0]
        name, _, version = key.removeprefix("/").partition("(")[0].rpartition("@")
        return name, version

    def key(self, name: str, ref: str, keys: Any) -> str | None:
        """The key that a reference means; it has a whole key (an alias, an address) or a version."""
        spelt = {"5.4": f"/{name}/{ref}", "9.0": f"{name}@{ref}"}.get(self.format, f"/{name}@{ref}")
        return spelt if spelt in keys else ref if ref in keys else None


def parse_pnpm_lock(text: str) -> PnpmLock:
    """Raises RecipeError: not YAML, a format that isn't read, or made by a program of the repository."""
    lock = PnpmLock(parse_yaml(text))
    if lock.format not in KNOWN_FORMATS:
        known = ", ".join(KNOWN_FORMATS)
        raise _unsupported(f"has lockfileVersion {lock.format}, and read are {known}")
    if "pnpmfileChecksum" in lock.content:
        raise _unsupported("was resolved through .pnpmfile.cjs, a program of the repository")
    return lock


def parse_yaml(text: str) -> dict[str, Any]:
    """A lock of any format. Raises RecipeError where it isn't YAML of the kind that pnpm writes."""
    import yaml

    # Every scalar as text: a version such as 1.10 is no number. The C parser is ten times as fast.
    loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
    try:
        if has_aliases(text):
            raise _unsupported("has YAML aliases, which pnpm does not write")
        content = yaml.load(text, Loader=loader)  # noqa: S506 (BaseLoader makes only text, lists and dicts)
    except (yaml.YAMLError, RecursionError) as error:
        raise _unsupported(f"is not YAML ({' '.join(str(error).split())})") from error
    if not isinstance(content, dict):
        raise _unsupported("is not a YAML mapping")
    return content


def has_aliases(text: str) -> bool:
    """One line of a YAML file can stand for gigabytes by naming others. Raises YAMLError."""
    import yaml

    if _MAYBE_ALIAS.search(text) is None:  # as a rule; reading all events takes as long as loading
        return False
    events = yaml.parse(text, Loader=getattr(yaml, "CBaseLoader", yaml.BaseLoader))
    return any(isinstance(event, yaml.AliasEvent) for event in events)


def without(text: str, packages: Iterable[str]) -> str:
    """A lock for pnpm to complete: nobody has these packages, so that each is looked up anew.

    What git or a URL gave is left: nothing newer answers the same ask.
    """
    import yaml

    # Typed scalars here: pnpm reads them back.
    content = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506 (safe)
    lock, names = parse_pnpm_lock(text), set(packages)
    gone = {
        key for key, node in lock.nodes.items() if node.name in names and lock.from_registry(key)
    }
    owners = [
        *_objects(content.get("packages")).values(),
        *_objects(content.get("snapshots")).values(),
    ]
    for owner in (content, *_objects(content.get("importers")).values(), *owners):
        for section in SECTIONS:
            for name, held in list(_entries(owner.get(section))):
                _, ref = lock.declared(owner, name, held)
                if lock.key(name, ref, lock.nodes) in gone:
                    del owner[section][name]
    for section in ("packages", "snapshots"):
        for key in gone & set(_objects(content.get(section))):
            del content[section][key]
    # Where projects' own asks are answered, pnpm believes all that is below them, also that nothing is
    # there. Made under other overrides than there are now, a lock is resolved from end to end.
    content["overrides"] = _NO_MANIFEST_HAS
    made: str = yaml.dump(content, Dumper=getattr(yaml, "CSafeDumper", yaml.SafeDumper))
    return made


def pnpm_tree(files: Files) -> DependencyTree:
    """The lock as a tree. Raises RecipeError."""
    lock = parse_pnpm_lock(files.lock_text)
    return DependencyTree(files.lock or "pnpm-lock.yaml", lock.nodes, pnpm_roots(files, lock))


def pnpm_roots(files: Files, lock: PnpmLock) -> tuple[Node, ...]:
    """The project and its members as roots; keys are the paths of their manifests."""
    roots = []
    for folder, importer in lock.importers.items():
        path = str(PurePosixPath(files.folder, folder, "package.json"))
        text = files.manifests.get(path)
        manifest = parse_manifest(path, text) if text is not None else {}
        specs = {n: str(s) for section in SECTIONS for n, s in _entries(manifest.get(section))}
        peers = (
            DependencyEdge(n, str(s), None, peer=True)
            for n, s in _entries(manifest.get(PEER_SECTION))
        )
        name, version = str(manifest.get("name", path)), str(manifest.get("version", ""))
        roots.append(Node(path, name, version, (*lock.asks(importer, specs), *peers)))
    return tuple(roots)


def _objects(value: Any) -> dict[str, Entry]:
    """Entries that are mappings; an empty one may be written as nothing."""
    pairs = value.items() if isinstance(value, dict) else ()
    return {key: entry if isinstance(entry, dict) else {} for key, entry in pairs}


def _entries(value: Any) -> Iterator[tuple[str, Any]]:
    yield from value.items() if isinstance(value, dict) else ()


def _unsupported(why: str) -> RecipeError:
    return unsupported(f"pnpm-lock.yaml {why}.", own_client("pnpm", "pnpm update"))


def without_importers(text: str, folders: Iterable[str]) -> str:
    """The lock's text without some members' own parts; packages that only they ask for stay."""
    head, importers, rest = text.partition("\nimporters:\n")
    for folder in folders:
        block = rf"^  [\"']?{re.escape(folder)}[\"']?:.*\n(?:(?:    .*)?\n)*"
        rest = re.sub(block, "", rest, count=1, flags=re.MULTILINE)
    return head + importers + rest
