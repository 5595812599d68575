"""package.json as text: where a package is declared, and an exact edit of one spec."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fallback_audit.vocabulary import RefusalReason
from fallback_tier.errors import RecipeError

#: Sections that a direct bump edits.
SECTIONS = ("dependencies", "devDependencies", "optionalDependencies")

#: A demand on whoever installs this package; raising it is a decision about its users.
PEER_SECTION = "peerDependencies"

_BOM = "\ufeff"


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
    """Where the package is declared, by its own name or through an alias, peers included."""
    return tuple(
        Declared(section, key, spec)
        for section in (*SECTIONS, PEER_SECTION)
        for key, spec in _entries(manifest.get(section))
        if key == package or re.match(rf"npm:{re.escape(package)}(@|$)", spec)
    )


def replace_spec(path: str, text: str, place: Declared, new: str) -> str:
    """The text with one spec replaced, every other byte kept.

    The place is found by trying: the right occurrence is the one whose replacement changes exactly
    this value of the parsed object. Raises RecipeError where none does (an escaped key).
    """
    manifest = parse_manifest(path, text)
    wanted = {**manifest, place.section: {**manifest[place.section], place.key: new}}
    entry = re.compile(rf'"{re.escape(place.key)}"\s*:\s*"({re.escape(place.spec)})"')
    for match in entry.finditer(text):
        candidate = text[: match.start(1)] + new + text[match.end(1) :]
        if json.loads(candidate.removeprefix(_BOM)) == wanted:
            return candidate
    raise RecipeError(
        RefusalReason.RECIPE_UNSUPPORTED,
        f"{place.section}.{place.key} of {path!r} is not written as a plain string.",
        next_step="Change it by hand.",
    )


def _entries(section: Any) -> list[tuple[str, str]]:
    entries = section.items() if isinstance(section, dict) else ()
    return [(key, spec) for key, spec in entries if isinstance(spec, str)]


def _unreadable(path: str, why: str) -> RecipeError:
    return RecipeError(
        RefusalReason.RECIPE_UNSUPPORTED, f"{path!r} {why}.", next_step="Repair the file first."
    )
