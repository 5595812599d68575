"""Names and paths of npm's files; package.json as text: its declarations, and an exact edit."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from fallback_plugins.shared.bumping import unreadable, unsupported
from fallback_plugins.shared.jsontext import set_value
from fallback_tier.errors import RecipeError, RepositoryError
from fallback_tier.repo import RepoContext

ECOSYSTEM = "npm"
MANIFEST = "package.json"

#: npm reads the first of these that exists.
LOCKS = ("npm-shrinkwrap.json", "package-lock.json")

YARN_LOCK = "yarn.lock"
PNPM_LOCK = "pnpm-lock.yaml"

#: Locks of other clients, which decide what is installed with the manifest next to them.
FOREIGN_LOCKS = (YARN_LOCK, PNPM_LOCK, "bun.lock", "bun.lockb")
BINARY_LOCKS = frozenset({"bun.lockb"})

_INSTALLED = "node_modules"


def is_manifest(path: str) -> bool:
    """Return whether a file is a manifest or a lock, and not an installed package's."""
    pure = PurePosixPath(path)
    return pure.name in {MANIFEST, *LOCKS, *FOREIGN_LOCKS} and _INSTALLED not in pure.parts


def in_folder(folder: str, name: str) -> str:
    """Return the path of a file in a folder; "." is the root."""
    return name if folder == "." else f"{folder}/{name}"


def readable_text(repo: RepoContext, path: str) -> str:
    """Return a file's text; empty if there is none, or if it can't be read: its reader reports that."""
    try:
        return repo.read_text(path) if repo.has(path) else ""
    except RepositoryError:
        return ""


def names_any(text: str, packages: Iterable[str]) -> bool:
    """Return whether the text may name one of the packages (``may_name``)."""
    return any(may_name(text, package) for package in packages)


def may_name(text: str, package: str) -> bool:
    """Return whether a JSON or lock text may name the package. Letters can be written as escapes, too, and
    a scope's slash as an escape of JSON or of an address."""
    if package in text or "\\u" in text:
        return True
    return "/" in package and (
        package.replace("/", "\\/") in text
        or package.replace("/", "%2f") in text.replace("%2F", "%2f")
    )


#: Sections that a direct bump edits.
SECTIONS = ("dependencies", "devDependencies", "optionalDependencies")

#: A requirement on users of this package; raising it is a decision about them.
PEER_SECTION = "peerDependencies"

#: Sections of a project or workspace member that are installed, peers last.
MEMBER_SECTIONS = (*SECTIONS, PEER_SECTION)

#: Sections of a package from a registry that are installed: its devDependencies are published, too.
INSTALLED_SECTIONS = ("dependencies", "optionalDependencies", PEER_SECTION)

#: Sections in which npm looks up an override's ``$name``, in its order.
_REFERRED = ("devDependencies", "optionalDependencies", "dependencies", PEER_SECTION)

#: A ``packageManager`` that is a yarn of another lock format than classic's.
LATER_YARN = re.compile(r"yarn@(?:[2-9]|\d\d)")

_BOM = "\ufeff"
_REPAIR = "Repair the file first."

#: An alias; a range after ``npm:`` is not an alias.
_ALIAS = re.compile(r"npm:[@A-Za-z_]")


@dataclass(frozen=True)
class Declared:
    """An entry of a section, or of a catalog. ``key`` differs from the package's name if it is an alias."""

    section: str
    key: str
    spec: str

    def is_of(self, package: str) -> bool:
        """Return whether it declares the package: by its name, or by an alias for it."""
        is_alias_of = re.match(rf"npm:{re.escape(package)}(@|$)", self.spec)
        return bool(is_alias_of) or (self.key == package and not _ALIAS.match(self.spec))


def parse_manifest(path: str, text: str) -> Mapping[str, Any]:
    """Return package.json as an object. Raises RecipeError, naming the file, if it isn't one."""
    try:
        manifest = json.loads(text.removeprefix(_BOM))
    except (ValueError, RecursionError) as error:
        raise unreadable(path, f"is not JSON ({error})", _REPAIR) from error
    if not isinstance(manifest, dict):
        raise unreadable(path, "is not a JSON object", _REPAIR)
    return manifest


def readable_manifest(repo: RepoContext, path: str) -> Mapping[str, Any]:
    """Return a manifest; empty if there is none, or if it can't be read: its reader reports that."""
    with suppress(RecipeError):
        return parse_manifest(path, readable_text(repo, path))
    return {}


def declared(manifest: Mapping[str, Any], package: str) -> tuple[Declared, ...]:
    """Return the package's declarations, by its name or an alias, peers included."""
    return tuple(place for place in every_declared(manifest) if place.is_of(package))


def every_declared(
    manifest: Mapping[str, Any], sections: Sequence[str] = MEMBER_SECTIONS
) -> tuple[Declared, ...]:
    """Return every declaration of these sections."""
    return tuple(
        Declared(section, key, spec)
        for section in sections
        for key, spec in entries(manifest.get(section))
    )


def referred(manifest: Mapping[str, Any], spec: str) -> str:
    """Return the declaration that an override's ``$name`` refers to; any other spec as it is."""
    if spec.startswith("$"):
        for section in _REFERRED:
            if (declared_spec := dict(entries(manifest.get(section))).get(spec[1:])) is not None:
                return declared_spec
    return spec


def with_value(path: str, text: str, keys: Sequence[str], value: str) -> str:
    """Return the text with a string at ``keys``, every other byte kept. Raises RecipeError if the edit is
    not exactly that."""
    manifest = parse_manifest(path, text)
    refusal = unsupported(
        f"{'.'.join(keys)} of {path!r} is not written as a plain string.",
        f"Write it in {path} as one plain JSON string.",
    )
    try:
        wanted = json.loads(json.dumps(manifest))
        edited = set_value(text, keys, value)
        inner = wanted
        for key in keys[:-1]:
            inner = inner.setdefault(key, {})
        inner[keys[-1]] = value
        is_exact = parse_manifest(path, edited) == wanted
    except (ValueError, AttributeError, TypeError, RecursionError) as error:
        raise refusal from error
    if not is_exact:
        raise refusal
    return edited


def mapping(value: Any) -> dict[str, Any]:
    """Return a value of a manifest or a lock if it is an object; otherwise an empty one."""
    return value if isinstance(value, dict) else {}


def entries(section: Any) -> list[tuple[str, str]]:
    """Return the entries of an object that are strings; none if it is not an object."""
    return [(key, spec) for key, spec in mapping(section).items() if isinstance(spec, str)]


def texts_of(manifest: Mapping[str, Any], key: str) -> list[str]:
    """Return the texts that a manifest lists under a key (globs), or in ``packages`` of an object there."""
    listed = manifest.get(key)
    listed = listed.get("packages") if isinstance(listed, dict) else listed
    return [text for text in listed if isinstance(text, str)] if isinstance(listed, list) else []
