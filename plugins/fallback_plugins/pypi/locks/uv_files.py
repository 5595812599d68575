"""The files that uv resolves a project from, as it may read them outside the sandbox.

What a lock says of its project (names, requirements, groups, sources) is enough to write the manifest
again where it is not in the repository; whether that is the manifest it was made from, uv itself says.
"""

import posixpath
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import PurePosixPath
from typing import Any

from fallback_audit.vocabulary import RefusalReason
from fallback_plugins.pypi.locks.uv_lock import (
    LOCAL_SOURCES,
    UNVERSIONED,
    declared,
    foreign_source,
    local_folders,
    local_source,
    package_tables,
    requirement_of,
    versioned,
)
from fallback_plugins.pypi.manifests.pyproject import NO_BACKEND, harmless, parse_toml
from fallback_plugins.pypi.manifests.uv_settings import leading_out
from fallback_plugins.shared.bumping import unsupported
from fallback_plugins.shared.gates.gating import in_folder
from fallback_tier.errors import RecipeError

MANIFEST = "pyproject.toml"
LOCK = "uv.lock"

#: What a program computes at build time that decides the resolution.
_DECIDES = frozenset({"dependencies", "optional-dependencies", "requires-python"})

_EXTRA = re.compile(r"(?:(?P<marker>.*) and )?extra == '(?P<extra>[^']+)'")

#: A lock's ``[options]`` → the setting of ``[tool.uv]`` that they come from.
_OPTIONS = {
    "resolution-mode": "resolution",
    "prerelease-mode": "prerelease",
    "fork-strategy": "fork-strategy",
    "exclude-newer": "exclude-newer",
}


def manifest_paths(lock: str, text: str) -> dict[str, Mapping[str, Any]]:
    """Where the manifests lie that the lock was made from, with the lock's table of each.

    Raises RecipeError: the lock can't be read, or one lies outside the repository.
    """
    found = {}
    for folder, table in local_folders(lock, text).items():
        if folder.startswith(("..", "/")):
            raise unsupported(
                f"{lock} takes {table['name']} from {folder!r}, outside the repository.",
                kind="outside",
            )
        found[posixpath.normpath(posixpath.join(folder, MANIFEST))] = table
    return found


def scratch_files(manifests: Mapping[str, str], lock: str, text: str) -> dict[str, str]:
    """Manifests and lock as uv may read them; manifests that are missing are rebuilt from the lock.

    Where a program would compute the version, ``UNVERSIONED`` stands for it, in both. Raises RecipeError.
    """
    for table in package_tables(lock, text):
        if foreign_source(table) == "git":
            raise unsupported(
                f"{lock} takes {table['name']} from a git repository, and no repository is cloned here."
            )
    files = {lock: versioned(text)}
    for path, table in manifest_paths(lock, text).items():
        if path in manifests:
            for message in leading_out(path, manifests[path]):
                raise unsupported(message, kind="source_not_read")
            version = str(table.get("version", UNVERSIONED))
            files[path] = _static(path, harmless(path, manifests[path]), version)
        else:
            files[path] = rebuilt(lock, text, table)
    return files


def rebuilt(lock: str, text: str, table: Mapping[str, Any]) -> str:
    """A local package's manifest as the lock tells it. Raises RecipeError."""
    import tomlkit

    document = parse_toml(lock, text)
    metadata = table.get("metadata", {})
    plain: list[str] = []
    extras: dict[str, list[str]] = {extra: [] for extra in metadata.get("provides-extras", ())}
    for entry in metadata.get("requires-dist", ()):
        match = _EXTRA.fullmatch(entry.get("marker", ""))
        if match is None:
            plain.append(requirement_of(entry))
        else:
            extras.setdefault(match["extra"], []).append(
                requirement_of({**entry, "marker": match["marker"] or ""})
            )
    project: dict[str, Any] = {"name": table["name"]}
    project["version"] = table.get("version", UNVERSIONED)
    if "requires-python" in document:
        project["requires-python"] = document["requires-python"]
    project |= {"dependencies": plain, "optional-dependencies": extras}
    groups = metadata.get("requires-dev", {})
    written: dict[str, Any] = {
        "project": project,
        "dependency-groups": {
            name: [requirement_of(it) for it in own] for name, own in groups.items()
        },
        "tool": {"uv": _settings(document, table)},
    }
    if "virtual" not in table["source"]:
        written["build-system"] = {"requires": [], "build-backend": NO_BACKEND}
    return tomlkit.dumps(written)


def missing(lock: str, problem: str, *, kind: str = "") -> RecipeError:
    """The typed refusal for a lock whose manifest isn't there and can't be determined from it."""
    return RecipeError(
        RefusalReason.MANIFEST_MISSING,
        problem,
        next_step=f"Put the {MANIFEST} that {lock} was made from into the repository.",
        kind=kind,
    )


def _settings(document: Mapping[str, Any], table: Mapping[str, Any]) -> dict[str, Any]:
    """``[tool.uv]`` of a manifest; of the root's, also what holds for the whole lock."""
    manifest, options = document.get("manifest", {}), document.get("options", {})
    members = set(manifest.get("members", ()))
    settings: dict[str, Any] = {"sources": dict(_sources(table, members))}
    if "virtual" in table["source"]:
        settings["package"] = False
    if local_source(table) != ".":
        return settings
    for key in ("constraints", "overrides"):
        if manifest.get(key):
            name = f"{key.removesuffix('s')}-dependencies"
            settings[name] = [requirement_of(entry) for entry in manifest[key]]
    settings |= {_OPTIONS[key]: value for key, value in options.items() if key in _OPTIONS}
    if "exclude-newer-span" in options:
        settings["exclude-newer"] = options["exclude-newer-span"]
    if members:
        own = [
            folder
            for other in document.get("package", ())
            if other["name"] in members and (folder := local_source(other)) not in {None, "."}
        ]
        settings["workspace"] = {"members": own}
    return settings


def _sources(table: Mapping[str, Any], members: set[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """``[tool.uv.sources]``: where a package takes its own neighbours from."""
    here = local_source(table) or "."
    for entry in declared(table):
        kind = next((kind for kind in LOCAL_SOURCES if kind in entry), None)
        if entry["name"] in members:
            yield entry["name"], {"workspace": True}
        elif kind is not None:
            path = posixpath.relpath(entry[kind], here)
            yield (
                entry["name"],
                {"path": path, **({"editable": True} if kind == "editable" else {})},
            )


def _static(path: str, text: str, version: str) -> str:
    """The manifest with a version (the locked one) for the one which only a build could tell.

    Raises RecipeError where a build would tell the requirements too.
    """
    import tomlkit

    document = tomlkit.parse(text)
    project = document.get("project", {})
    dynamic = project.get("dynamic", ()) if isinstance(project, dict) else ()
    if not isinstance(dynamic, list) or not dynamic:
        return text
    decided = sorted(_DECIDES.intersection(map(str, dynamic)))
    if decided:
        raise unsupported(
            f"{path} leaves {', '.join(decided)} to its build (`dynamic`), and building it would run its"
            " code outside the sandbox.",
            kind="dynamic",
        )
    del project["dynamic"]
    project.setdefault("version", version)
    return tomlkit.dumps(document)


def locked_in(folder: str, texts: Mapping[str, str]) -> str | None:
    """Where the uv.lock lies that a folder is locked by: there, or above, where it is of a workspace that
    has the folder as a member. One that can't be read says nothing of members."""
    own = in_folder(folder, "pyproject.toml")
    for above in (folder, *map(str, PurePosixPath(folder).parents)):
        path = in_folder(above, LOCK)
        if path in texts and above == folder:
            return above
        with suppress(RecipeError):
            if path in texts and own in manifest_paths(path, texts[path]):
                return above
    return None
