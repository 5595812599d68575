"""What a package-lock.json or npm-shrinkwrap.json says is installed (versions 1, 2, 3)."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from fallback_plugins.npm.refusals import unsupported
from fallback_tier.errors import RecipeError

#: Versions whose shape is read here (npm 11 writes 3 unless told otherwise).
KNOWN_VERSIONS = (1, 2, 3)

#: What a lock is called whose path nobody knows.
_UNNAMED = "The npm lockfile"

_ANEW = "npm install --package-lock-only"

#: npm writes an alias of lockfile version 1 as ``"version": "npm:real-name@1.2.3"``.
_ALIAS = "npm:"


#: Deeper than any real tree; a nested version 1 tree is walked recursively.
MAX_DEPTH = 200


def installed_versions(lock_text: str, package: str, source: str = _UNNAMED) -> dict[str, str]:
    """Where a package is installed, and in which version: ``{"node_modules/a": "1.0.0"}``.

    Paths are npm's own. Version 2 holds the tree twice; where the two disagree, the second one's
    entries stand under ``dependencies:`` paths, so that nothing an older npm installs is missed.
    Entries without a version (links) are not installed packages. Raises RecipeError where the text
    is not a lockfile that can be read; ``source`` names it.
    """
    return all_versions(lock_text, source).get(package, {})


def all_versions(lock_text: str, source: str = _UNNAMED) -> dict[str, dict[str, str]]:
    """As ``installed_versions``, for every package of the lock: ``{name: {path: version}}``."""
    lock = parse_lock(lock_text, source)
    found: dict[str, dict[str, str]] = {}
    for path, name, version in _packages(lock):
        found.setdefault(name, {})[path] = version
    for path, entry in _tree(lock, "", 0):
        name, held = _name_and_version(path, entry)
        places = found.setdefault(name, {})
        if held is not None and places.get(path) != held:
            places[path if path not in places else f"dependencies:{path}"] = held
    return found


def lockfile_version(lock_text: str, source: str = _UNNAMED) -> int:
    """1, 2 or 3. Raises RecipeError for any other."""
    return version_of(parse_lock(lock_text, source), source)


def version_of(lock: Mapping[str, Any], source: str = _UNNAMED) -> int:
    """As ``lockfile_version``, of a parsed lock."""
    version = lock.get("lockfileVersion")
    if type(version) is not int or version not in KNOWN_VERSIONS:
        known = ", ".join(map(str, KNOWN_VERSIONS))
        raise unsupported(
            f"{source} has lockfileVersion {version!r}, and read are {known}.",
            f"Run `{_ANEW} --lockfile-version={KNOWN_VERSIONS[-1]}` and commit the lock.",
        )
    return version


def parse_lock(lock_text: str, source: str = _UNNAMED) -> Mapping[str, Any]:
    """The lock as JSON. Raises RecipeError where it isn't an object, and names its path: ``source``."""
    try:
        lock = json.loads(lock_text.removeprefix("\ufeff"))
    except (ValueError, RecursionError) as error:
        raise _unreadable(f"is not JSON ({error})", source) from error
    if not isinstance(lock, dict):
        raise _unreadable("is not a JSON object", source)
    return lock


def _packages(lock: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Versions 2 and 3: one flat object, keyed by path."""
    for path, entry in objects(lock.get("packages")):
        version = entry.get("version")
        if path and isinstance(version, str):
            # An alias or a workspace member carries its real name; else the path ends with it.
            name = entry.get("name") or path.rpartition("node_modules/")[2]
            yield path, str(name), version


def _tree(
    parent: Mapping[str, Any], place: str, depth: int
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Versions 1 and 2: a nested tree, keyed by name."""
    if depth > MAX_DEPTH:
        raise _unreadable(f"is nested deeper than {MAX_DEPTH}")
    for name, entry in objects(parent.get("dependencies")):
        path = f"{place}node_modules/{name}"
        yield path, entry
        yield from _tree(entry, f"{path}/", depth + 1)


def _name_and_version(path: str, entry: Mapping[str, Any]) -> tuple[str, str | None]:
    name, version = path.rpartition("node_modules/")[2], entry.get("version")
    if not isinstance(version, str) or version.startswith("file:"):
        return name, None
    if version.startswith(_ALIAS):
        real, _, number = version.removeprefix(_ALIAS).rpartition("@")
        return real, number
    return name, version


def objects(value: Any) -> list[tuple[str, dict[str, Any]]]:
    """The entries of an object of a lock that are objects themselves."""
    entries = value.items() if isinstance(value, dict) else ()
    return [(key, entry) for key, entry in entries if isinstance(entry, dict)]


def _unreadable(why: str, source: str = _UNNAMED) -> RecipeError:
    return unsupported(f"{source} {why}.", f"Make a new one with `{_ANEW}`.")
