"""What a package-lock.json or npm-shrinkwrap.json says is installed (versions 1, 2, 3)."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from fallback_audit.vocabulary import BlockerKind
from fallback_plugins.npm.locks.addresses import origin_of
from fallback_plugins.npm.manifests.specs import split_alias
from fallback_plugins.npm.refusals import unsupported
from fallback_tier.errors import RecipeError
from fallback_tier.outcome import Blocker

#: Versions whose shape is read here (npm 11 writes 3 unless told otherwise).
KNOWN_VERSIONS = (1, 2, 3)

#: What a lock is called whose path nobody knows.
_UNNAMED = "The npm lockfile"

_ANEW = "npm install --package-lock-only"

#: npm writes an alias of lockfile version 1 as ``"version": "npm:real-name@1.2.3"``.
_ALIAS = "npm:"

#: What a path has before the name of an installed package.
MODULES = "node_modules/"

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
    for path, entry in entries_of(lock):
        name, version = identity(path, entry)
        places = found.setdefault(name, {})
        if version is not None and places.get(path) != version:
            places[path if path not in places else f"dependencies:{path}"] = version
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


def entries_of(lock: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (npm's path, entry) of the flat object and of the tree, of which version 2 has both; not of the
    project itself."""
    for path, entry in objects(lock.get("packages")):
        if path:
            yield path, entry
    yield from _tree(lock, "", 0)


def identity(path: str, entry: Mapping[str, Any]) -> tuple[str, str | None]:
    """Return the name of an entry's package, and its version; None for a folder of the repository.

    An alias states its name, or has the archive of another package than its path names.
    """
    name, version = path.rpartition(MODULES)[2].strip("/"), entry.get("version")
    if isinstance(version, str) and version.startswith(_ALIAS):
        real, number = split_alias(version)
        return real.removeprefix(_ALIAS).removesuffix("@"), number
    stated = entry.get("name")
    if isinstance(stated, str) and stated:
        name = stated
    elif MODULES in path and not entry.get("link"):
        name = origin_of(address_of(entry)).name or name
    if not isinstance(version, str) or version.startswith("file:"):
        return name, None
    return name, version


def address_of(entry: Mapping[str, Any]) -> str:
    """Return where an entry's package comes from; empty if it does not say. A lock of version 1 has what is
    not of a registry in the version's place."""
    found = (entry.get(key) for key in ("resolved", "version"))
    addresses = (one for one in found if isinstance(one, str) and ("/" in one or ":" in one))
    return next((one for one in addresses if not one.startswith(_ALIAS)), "")


def _tree(
    parent: Mapping[str, Any], place: str, depth: int
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Versions 1 and 2: a nested tree, keyed by name."""
    if depth > MAX_DEPTH:
        raise _unreadable(f"is nested deeper than {MAX_DEPTH}")
    for name, entry in objects(parent.get("dependencies")):
        path = f"{place}{MODULES}{name}"
        yield path, entry
        yield from _tree(entry, f"{path}/", depth + 1)


def objects(value: Any) -> list[tuple[str, dict[str, Any]]]:
    """The entries of an object of a lock that are objects themselves."""
    entries = value.items() if isinstance(value, dict) else ()
    return [(key, entry) for key, entry in entries if isinstance(entry, dict)]


def _unreadable(why: str, source: str = _UNNAMED) -> RecipeError:
    blocker = Blocker(kind=BlockerKind.UNREADABLE, constraint=why, file=source)
    return unsupported(f"{source} {why}.", f"Make a new one with `{_ANEW}`.", blocker)
