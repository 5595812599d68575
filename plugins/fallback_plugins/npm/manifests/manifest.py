"""package.json as text: where a package is declared, and an exact edit of one spec."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fallback_plugins.npm.manifests.jsontext import set_value
from fallback_plugins.npm.refusals import unreadable, unsupported
from fallback_tier.errors import RecipeError

#: Sections that a direct bump edits.
SECTIONS = ("dependencies", "devDependencies", "optionalDependencies")

#: A demand on whoever installs this package; raising it is a decision about its users.
PEER_SECTION = "peerDependencies"

#: What a project or workspace member asks for and gets installed, peers last.
MEMBER_SECTIONS = (*SECTIONS, PEER_SECTION)

#: What a package that is installed from a registry gets installed: what it was developed with is published
#: too, and asked for by nobody.
INSTALLED_SECTIONS = ("dependencies", "optionalDependencies", PEER_SECTION)

#: Where npm looks up what an override's ``$name`` stands for, in its order.
_REFERRED = ("devDependencies", "optionalDependencies", "dependencies", PEER_SECTION)

_BOM = "\ufeff"

#: An alias; a range after ``npm:`` is none.
_ALIAS = re.compile(r"npm:[@A-Za-z_]")


@dataclass(frozen=True)
class Declared:
    """One entry of one section. ``key`` differs from the package's name where it is an alias."""

    section: str
    key: str
    spec: str


def parse_manifest(path: str, text: str) -> Mapping[str, Any]:
    """package.json as an object. Raises RecipeError, naming the file, where it isn't one."""
    try:
        manifest = json.loads(text.removeprefix(_BOM))
    except (ValueError, RecursionError) as error:
        raise _unreadable(path, f"is not JSON ({error})") from error
    if not isinstance(manifest, dict):
        raise _unreadable(path, "is not a JSON object")
    return manifest


def declared(manifest: Mapping[str, Any], package: str) -> tuple[Declared, ...]:
    """Where the package is declared, by its own name or through an alias, peers included.

    Its name for another package (``"a": "npm:b@1"``) declares that one.
    """
    return tuple(
        Declared(section, key, spec)
        for section in MEMBER_SECTIONS
        for key, spec in entries(manifest.get(section))
        if re.match(rf"npm:{re.escape(package)}(@|$)", spec)
        or (key == package and not _ALIAS.match(spec))
    )


def referred(manifest: Mapping[str, Any], spec: str) -> str:
    """What an override's ``$name`` stands for: the project's own declaration; any other spec as it is."""
    if spec.startswith("$"):
        for section in _REFERRED:
            if (own := dict(entries(manifest.get(section))).get(spec[1:])) is not None:
                return own
    return spec


def replace_spec(path: str, text: str, place: Declared, new: str) -> str:
    """The text with one spec replaced, every other byte kept. Raises RecipeError."""
    return with_value(path, text, (place.section, place.key), new)


def with_value(path: str, text: str, keys: Sequence[str], value: str) -> str:
    """The text with a string at ``keys``, every other byte kept; held against the parsed objects.

    Raises RecipeError where the text can't be edited so.
    """
    given = parse_manifest(path, text)
    try:
        wanted = json.loads(json.dumps(given))
        edited = set_value(text, keys, value)
        inner = wanted
        for key in keys[:-1]:
            inner = inner.setdefault(key, {})
        inner[keys[-1]] = value
        is_exact = parse_manifest(path, edited) == wanted
    except (ValueError, AttributeError, TypeError, RecursionError) as error:
        raise _unwritable(path, keys) from error
    if not is_exact:
        raise _unwritable(path, keys)
    return edited


def _unwritable(path: str, keys: Sequence[str]) -> RecipeError:
    return unsupported(
        f"{'.'.join(keys)} of {path!r} is not written as a plain string.",
        f"Write it in {path} as one plain JSON string.",
    )


def entries(section: Any) -> list[tuple[str, str]]:
    """The plain entries of an object of a manifest; none of what is no object."""
    pairs = section.items() if isinstance(section, dict) else ()
    return [(key, spec) for key, spec in pairs if isinstance(spec, str)]


def _unreadable(path: str, why: str) -> RecipeError:
    return unreadable(path, why, "Repair the file first.")
