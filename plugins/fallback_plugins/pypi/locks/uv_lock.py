"""uv.lock as text and as a tree, the smallest change from its text to a new one, and the files from which
uv resolves it, as uv may read them outside the sandbox.

What a lock states about its project (names, requirements, groups, sources) is enough to recreate a manifest
that is not in the repository; uv itself reports whether the lock was made from that manifest.
"""

import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import PurePosixPath
from typing import Any

from packaging.utils import canonicalize_name

from fallback_audit.vocabulary import RefusalReason
from fallback_plugins.pypi.manifests.indexes import leading_out
from fallback_plugins.pypi.manifests.pyproject import BOM, NO_BACKEND, harmless, parse_toml
from fallback_plugins.pypi.manifests.requirements import plain
from fallback_plugins.shared.bumping import unsupported
from fallback_plugins.shared.gates.gating import in_folder
from fallback_plugins.shared.tree import DependencyEdge, DependencyTree, Node, grouped
from fallback_tier.errors import RecipeError
from fallback_tier.files import inputs

#: Keys by which a lock marks a package whose files are in the repository itself.
_LOCAL_SOURCES = ("editable", "virtual", "directory")

#: Version of a local package whose build computes it: uv then locks none.
_UNVERSIONED = "0"

#: Folder of stub wheels, next to a scratch lock: uv writes it as their registry.
STUBS = "fallback-tier-stubs"

#: Texts whose shape is known to be valid: one resolution reads the same few locks repeatedly.
_CHECKED = 8

_BLOCK = re.compile(r"^\[\[package\]\]\r?\n", re.MULTILINE)
_REVISION = re.compile(r"^revision = .*\r?\n", re.MULTILINE)
_OWN_VERSION = re.compile(r"^version = .*\r?\n", re.MULTILINE)
_NAME = re.compile(r"^name = .*\r?\n", re.MULTILINE)
_UPLOAD_TIME = re.compile(r',? upload-time = "[^"]*"')
_SIZE = re.compile(r",? size = \d+")


def read_tree(path: str, text: str) -> DependencyTree:
    """Return the lock as a tree: the project and its workspace's members are roots. Raises RecipeError."""
    tables = package_tables(path, text)
    installed = (table for table in tables if local_source(table) is None)
    keys = grouped((str(table["name"]), key_of(table)) for table in installed)
    nodes: dict[str, Node] = {}
    roots: list[Node] = []
    for table in tables:
        edges, version = tuple(_asks(table, keys)), str(table.get("version", ""))
        node = Node(key_of(table), table["name"], version, edges)
        if local_source(table) is None:
            nodes[node.key] = node
        else:
            roots.append(node)
    return DependencyTree(path, nodes, tuple(roots))


def package_tables(path: str, text: str) -> Sequence[Mapping[str, Any]]:
    """Return the lock's packages, in its order. Raises RecipeError."""
    document = parse_toml(path, text)
    _check(path, text)
    tables: Sequence[Mapping[str, Any]] = document.get("package", ())
    return tables


def requires_python(path: str, text: str) -> str:
    """Return the lock's Pythons (PEP 440); empty if it doesn't say. Raises RecipeError."""
    return str(parse_toml(path, text).get("requires-python", ""))


def local_source(table: Mapping[str, Any]) -> str | None:
    """Return the folder of the repository's own package, as the lock writes it; otherwise None."""
    source = table.get("source", {})
    return next((source[kind] for kind in _LOCAL_SOURCES if kind in source), None)


def foreign_source(table: Mapping[str, Any]) -> str | None:
    """Return ``git``, ``url`` or ``path``; None for a registry, or a folder of the project itself."""
    source = table.get("source", {})
    return next((kind for kind in ("git", "url", "path") if kind in source), None)


def registries(path: str, text: str) -> frozenset[str]:
    """Return the registries that packages come from. Raises RecipeError."""
    addresses = (table.get("source", {}).get("registry") for table in package_tables(path, text))
    return frozenset(registry for registry in addresses if isinstance(registry, str))


def spliced(old: str, unchanged: str, new: str) -> str:
    """Return the old lock with only the blocks of those packages replaced that the change is about.

    ``unchanged``: the old lock as the same uv writes it. A block that is the same in it and in ``new``
    stays as it was written, and so does the head: a newer uv raises the revision, leaves out sizes, rounds
    times and simplifies markers in blocks that it had no reason to change.
    """
    if "\r\n" in old:
        texts = (text.replace("\r\n", "\n") for text in (old, unchanged, new))
        return spliced(*texts).replace("\n", "\r\n")
    old_head, old_blocks = _split(old)
    base_head, base_blocks = _split(unchanged)
    new_head, new_blocks = _split(new)
    old_text_by_identity = {_identity(table): block for table, block in old_blocks}
    base = {_identity(table): _essence(table) for table, _ in base_blocks}
    unversioned = {table["name"] for table, _ in old_blocks if "version" not in table}
    blocks = []
    for table, block in new_blocks:
        if table["name"] in unversioned:
            table = {key: value for key, value in table.items() if key != "version"}
            block = _OWN_VERSION.sub("", block, count=1)
        before = old_text_by_identity.get(_identity(table))
        if before is not None and (
            table.get("source", {}).get("registry") == STUBS or _is_same(base, table)
        ):
            blocks.append(before)
            continue
        # Older revisions of the format don't have these details.
        block = block if "upload-time = " in old else _UPLOAD_TIME.sub("", block)
        blocks.append(block if "size = " in old else _SIZE.sub("", block))
    head = old_head
    if _recorded_settings(base_head) != _recorded_settings(new_head):
        revision = _REVISION.search(old_head)
        head = _REVISION.sub(lambda _: revision[0] if revision else "", new_head, count=1)
    # The last block ends without an empty line, whichever block that is now.
    text = head + "\n".join(f"{block.rstrip()}\n" for block in blocks)
    return text if old.endswith("\n") else text.removesuffix("\n")


def rewrites(old: str, new: str) -> bool:
    """Return whether uv rewrote blocks that no version change explains. The reason shows only in a
    comparison with the old lock as this uv writes it.

    Local packages are not compared: their blocks follow their manifests.
    """
    old_head, old_blocks = _split(old.replace("\r\n", "\n"))
    new_head, new_blocks = _split(new.replace("\r\n", "\n"))
    if _recorded_settings(old_head) != _recorded_settings(new_head):
        return True
    base = {_identity(table): _essence(table) for table, _ in old_blocks}
    return any(
        _identity(table) in base and not _is_same(base, table) and local_source(table) is None
        for table, _ in new_blocks
    )


def versioned(text: str) -> str:
    """Return the lock as it is for manifests with a version: local packages without one get it."""
    head, blocks = _split(text)
    return head + "".join(
        block
        if "version" in table
        else _NAME.sub(lambda match: f'{match[0]}version = "{_UNVERSIONED}"\n', block, count=1)
        for table, block in blocks
    )


def stub_wheels(path: str, text: str) -> dict[str, str]:
    """Return core metadata for the locked releases that have no wheel, by wheel name, from the lock.

    Otherwise only a build could determine their requirements. Raises RecipeError.
    """
    stubs = {}
    for table in package_tables(path, text):
        is_release = "sdist" in table and "version" in table
        if is_release and local_source(table) is None and not table.get("wheels"):
            stem = f"{table['name'].replace('-', '_')}-{table['version']}"
            lines = ["Metadata-Version: 2.3", f"Name: {table['name']}"]
            lines += [f"Version: {table['version']}", *_stub_requirements(table)]
            stubs[stem] = "\n".join(lines) + "\n"
    return stubs


@lru_cache(maxsize=_CHECKED)
def _check(path: str, text: str) -> None:
    from fallback_plugins.pypi.locks.lock_shape import UvLockShape, check

    check(path, parse_toml(path, text), UvLockShape)


def _stub_requirements(table: Mapping[str, Any]) -> Iterator[str]:
    for entry in table.get("dependencies", ()):
        yield f"Requires-Dist: {_requirement_of(entry)}"
    for extra, entries in table.get("optional-dependencies", {}).items():
        yield f"Provides-Extra: {extra}"
        for entry in entries:
            yield f"Requires-Dist: {_requirement_of(entry, extra)}"


def _requirement_of(entry: Mapping[str, Any], of_extra: str = "") -> str:
    """Return an entry of a lock as a requirement. ``of_extra``: only with this extra. Raises
    RecipeError."""
    extras = ",".join(entry.get("extras") or entry.get("extra", ()))
    marker = entry.get("marker", "")
    if of_extra:
        marker = f"({marker}) and extra == '{of_extra}'" if marker else f"extra == '{of_extra}'"
    requirement = entry["name"] + (f"[{extras}]" if extras else "") + entry.get("specifier", "")
    return plain("uv.lock", requirement + (f" ; {marker}" if marker else ""))


def _is_same(base: Mapping[tuple[str, str], Mapping[str, Any]], table: Mapping[str, Any]) -> bool:
    before = base.get(_identity(table)) or base.get((table["name"], _UNVERSIONED))
    content = {key: value for key, value in _essence(table).items() if key != "version"}
    return before is not None and content == {k: v for k, v in before.items() if k != "version"}


def _split(text: str) -> tuple[str, list[tuple[dict[str, Any], str]]]:
    """Return the text before the first package, and each package's table with its text."""
    starts = [match.start() for match in _BLOCK.finditer(text)]
    ends = [*starts[1:], len(text)] if starts else []
    blocks = [text[start:end] for start, end in zip(starts, ends, strict=True)]
    head = text[: starts[0]] if starts else text
    try:
        return head, [(inputs.parse_toml(block)["package"][0], block) for block in blocks]
    except (ValueError, KeyError) as error:
        raise unsupported(
            "A lock is not written as uv writes it: its blocks can't be told apart."
        ) from error


def _recorded_settings(head: str) -> Mapping[str, Any]:
    return {
        key: value
        for key, value in inputs.parse_toml(head.removeprefix(BOM)).items()
        if key != "revision"
    }


def _identity(table: Mapping[str, Any]) -> tuple[str, str]:
    return table["name"], str(table.get("version", ""))


def _essence(table: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what a block states, without what clients round, leave out or sort differently."""
    files = [*table.get("wheels", ()), *filter(None, [table.get("sdist")])]
    identities = {(file.get("url") or file.get("path"), file.get("hash")) for file in files}
    rest = {key: value for key, value in table.items() if key not in {"wheels", "sdist"}}
    return {**rest, "files": sorted(map(repr, identities))}


def key_of(table: Mapping[str, Any]) -> str:
    """Return a package's key in the tree: name and version, if it has one."""
    return f"{table['name']} {table.get('version', '')}".strip()


def _asks(table: Mapping[str, Any], keys: Mapping[str, Sequence[str]]) -> Iterator[DependencyEdge]:
    specs = {
        canonicalize_name(declaration["name"]): declaration.get("specifier", "")
        for declaration in declared(table)
    }
    entries = [(entry, False) for entry in table.get("dependencies", ())]
    for group in ("optional-dependencies", "dev-dependencies"):
        entries += [
            (entry, True)
            for entries_of_group in table.get(group, {}).values()
            for entry in entries_of_group
        ]
    for entry, optional in entries:
        name = entry["name"]
        known_keys = keys.get(name, ())
        key = key_of(entry) if "version" in entry else (known_keys[0] if known_keys else "")
        target = key if key in known_keys else None
        yield DependencyEdge(name, specs.get(name, ""), target, optional=optional)


def declared(table: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield a local package's declarations, also those of its groups; a lock has none of other packages."""
    metadata = table.get("metadata", {})
    yield from metadata.get("requires-dist", ())
    for group in metadata.get("requires-dev", {}).values():
        yield from group


MANIFEST = "pyproject.toml"
LOCK = "uv.lock"

#: Metadata that affects the resolution, if a program computes it at build time.
_DECIDES = frozenset({"dependencies", "optional-dependencies", "requires-python"})

_EXTRA = re.compile(r"(?:(?P<marker>.*) and )?extra == '(?P<extra>[^']+)'")

#: A lock's ``[options]``, each with the setting of ``[tool.uv]`` that it comes from.
_OPTIONS = {
    "resolution-mode": "resolution",
    "prerelease-mode": "prerelease",
    "fork-strategy": "fork-strategy",
    "exclude-newer": "exclude-newer",
}


def manifest_paths(lock: str, text: str) -> dict[str, Mapping[str, Any]]:
    """Return the paths of the manifests that the lock was made from, with the lock's table of each.

    Raises RecipeError if the lock can't be read, or a manifest is outside the repository.
    """
    tables = {}
    for table in package_tables(lock, text):
        if (source := local_source(table)) is None:
            continue
        folder = posixpath.normpath(posixpath.join(posixpath.dirname(lock), source))
        if folder.startswith(("..", "/")):
            raise unsupported(
                f"{lock} takes {table['name']} from {folder!r}, outside the repository.",
                kind="outside",
            )
        tables[posixpath.normpath(posixpath.join(folder, MANIFEST))] = table
    return tables


def scratch_files(manifests: Mapping[str, str], lock: str, text: str) -> dict[str, str]:
    """Return manifests and lock as uv may read them; missing manifests are rebuilt from the lock.

    A version that a program would compute is ``_UNVERSIONED`` in both. Raises RecipeError.
    """
    for table in package_tables(lock, text):
        if foreign_source(table) == "git":
            raise unsupported(
                f"{lock} takes {table['name']} from a git repository, and no repository is cloned here."
            )
    files = {lock: versioned(text)}
    for path, table in manifest_paths(lock, text).items():
        if path in manifests:
            for problem in leading_out(path, manifests[path]):
                raise unsupported(problem, kind="source_not_read")
            version = str(table.get("version", _UNVERSIONED))
            files[path] = _static(path, harmless(path, manifests[path]), version)
        else:
            files[path] = rebuilt(lock, text, table)
    return files


def rebuilt(lock: str, text: str, table: Mapping[str, Any]) -> str:
    """Return a local package's manifest, rebuilt from the lock. Raises RecipeError."""
    import tomlkit

    document = parse_toml(lock, text)
    metadata = table.get("metadata", {})
    dependencies: list[str] = []
    extras: dict[str, list[str]] = {extra: [] for extra in metadata.get("provides-extras", ())}
    for entry in metadata.get("requires-dist", ()):
        match = _EXTRA.fullmatch(entry.get("marker", ""))
        if match is None:
            dependencies.append(_requirement_of(entry))
        else:
            extras.setdefault(match["extra"], []).append(
                _requirement_of({**entry, "marker": match["marker"] or ""})
            )
    project: dict[str, Any] = {"name": table["name"]}
    project["version"] = table.get("version", _UNVERSIONED)
    if "requires-python" in document:
        project["requires-python"] = document["requires-python"]
    project |= {"dependencies": dependencies, "optional-dependencies": extras}
    groups = metadata.get("requires-dev", {})
    written: dict[str, Any] = {
        "project": project,
        "dependency-groups": {
            name: [_requirement_of(entry) for entry in entries] for name, entries in groups.items()
        },
        "tool": {"uv": _tool_settings(document, table)},
    }
    if "virtual" not in table["source"]:
        written["build-system"] = {"requires": [], "build-backend": NO_BACKEND}
    return tomlkit.dumps(written)


def missing(lock: str, problem: str, *, kind: str = "") -> RecipeError:
    """Return the refusal of a lock whose manifest is missing and can't be rebuilt from it."""
    return RecipeError(
        RefusalReason.MANIFEST_MISSING,
        problem,
        next_step=f"Put the {MANIFEST} that {lock} was made from into the repository.",
        kind=kind,
    )


def _tool_settings(document: Mapping[str, Any], table: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``[tool.uv]`` of a manifest; for the root's, also the settings of the whole lock."""
    manifest, options = document.get("manifest", {}), document.get("options", {})
    members = set(manifest.get("members", ()))
    settings: dict[str, Any] = {"sources": dict(_neighbours(table, members))}
    if "virtual" in table["source"]:
        settings["package"] = False
    if local_source(table) != ".":
        return settings
    for key in ("constraints", "overrides"):
        if manifest.get(key):
            name = f"{key.removesuffix('s')}-dependencies"
            settings[name] = [_requirement_of(entry) for entry in manifest[key]]
    settings |= {_OPTIONS[key]: value for key, value in options.items() if key in _OPTIONS}
    if "exclude-newer-span" in options:
        settings["exclude-newer"] = options["exclude-newer-span"]
    if members:
        folders = [
            folder
            for package in document.get("package", ())
            if package["name"] in members and (folder := local_source(package)) not in {None, "."}
        ]
        settings["workspace"] = {"members": folders}
    return settings


def _neighbours(
    table: Mapping[str, Any], members: set[str]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield ``[tool.uv.sources]``: from where a package takes its neighbours in the repository."""
    folder = local_source(table) or "."
    for entry in declared(table):
        kind = next((kind for kind in _LOCAL_SOURCES if kind in entry), None)
        if entry["name"] in members:
            yield entry["name"], {"workspace": True}
        elif kind is not None:
            editable = {"editable": True} if kind == "editable" else {}
            yield entry["name"], {"path": posixpath.relpath(entry[kind], folder), **editable}


def _static(path: str, text: str, version: str) -> str:
    """Return the manifest with a version (the locked one) in place of one that only a build could compute.

    Raises RecipeError if a build would compute the requirements, too.
    """
    import tomlkit

    document = tomlkit.parse(text)
    project = document.get("project", {})
    dynamic = project.get("dynamic", ()) if isinstance(project, dict) else ()
    if not isinstance(dynamic, list) or not dynamic:
        return text
    keys = sorted(_DECIDES.intersection(map(str, dynamic)))
    if keys:
        raise unsupported(
            f"{path} leaves {', '.join(keys)} to its build (`dynamic`), and building it would run its"
            " code outside the sandbox.",
            kind="dynamic",
        )
    del project["dynamic"]
    project.setdefault("version", version)
    return tomlkit.dumps(document)


def locked_in(folder: str, texts: Mapping[str, str]) -> str | None:
    """Return the folder of the uv.lock that a folder is locked by: its own, or one above it whose workspace
    has the folder as a member. A lock that can't be read has no known members."""
    manifest = in_folder(folder, "pyproject.toml")
    for above in (folder, *map(str, PurePosixPath(folder).parents)):
        path = in_folder(above, LOCK)
        if path in texts and above == folder:
            return above
        with suppress(RecipeError):
            if path in texts and manifest in manifest_paths(path, texts[path]):
                return above
    return None
