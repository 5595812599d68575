"""Pipfile.lock as text: its pins, edits of one entry, and the hash of its Pipfile."""

import hashlib
import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from fallback_plugins.pypi.manifests.pyproject import BOM, parse_toml
from fallback_plugins.shared.bumping import unsupported
from fallback_plugins.shared.jsontext import rewritten

_META = "_meta"
#: Tables of a Pipfile that are not categories of packages, or that have another name in the lock.
_NOT_HASHED_BY_NAME = frozenset(
    {
        *("source", "packages", "dev-packages", "requires", "scripts", "pipfile", "pipenv"),
        *("default", "develop"),
    }
)
_FLOOR_MARKER = re.compile(r"python_version >= '(?P<version>[\d.]+)'")
_FLOOR = re.compile(r">= ?(?P<version>\d+(?:\.\d+)*)")


def parsed_lock(path: str, text: str) -> Mapping[str, Any]:
    """Return a Pipfile.lock's JSON object, with any content. Raises RecipeError."""
    next_step = "Make a new one with `pipenv lock`."
    try:
        document = json.loads(text.removeprefix(BOM))
    except (ValueError, RecursionError) as error:
        problem = f"{path!r} is not JSON: {error}."
        raise unsupported(problem, next_step, kind="not_json") from error
    if not isinstance(document, dict):
        raise unsupported(f"{path!r} is not a JSON object.", next_step)
    return document


@dataclass(frozen=True)
class _Pin:
    """One entry: a package at a version, also as a requirement."""

    name: str
    version: str
    requirement: str
    section: str
    index: str | None = None


@dataclass(frozen=True)
class PipfileLock:
    """One lock, as text."""

    path: str
    text: str

    @cached_property
    def document(self) -> Mapping[str, Any]:
        """The parsed lock. Raises RecipeError."""
        from fallback_plugins.pypi.locks.lock_shape import check_pipenv

        document = parsed_lock(self.path, self.text)
        check_pipenv(self.path, document)
        return document

    @cached_property
    def pins(self) -> tuple[_Pin, ...]:
        """Every entry with a version, in order."""
        pins = []
        for section, name, entry in self._entries():
            version = entry.get("version")
            if isinstance(version, str):
                extras, marker = ",".join(entry.get("extras", ())), entry.get("markers", "")
                line = f"{name}{f'[{extras}]' if extras else ''}{version}"
                line += f" ; {marker}" if marker else ""
                pinned = version.lstrip("=")
                index = entry.get("index")
                pins.append(_Pin(canonicalize_name(name), pinned, line, section, index))
        return tuple(pins)

    @property
    def python(self) -> str:
        """The Python that it is for (``3.9``); empty if it doesn't say."""
        requires = self._meta.get("requires", {})
        full = str(requires.get("python_full_version", ""))
        return str(requires.get("python_version", "")) or ".".join(full.split(".")[:2])

    @property
    def first_source(self) -> str | None:
        """The name of the index that is queried first."""
        sources = self._meta.get("sources", ())
        return sources[0].get("name") if sources else None

    @property
    def held(self) -> Mapping[str, Sequence[str]]:
        """Every entry's versions, by canonical name; none for what comes from elsewhere than an index."""
        versions_by_name: dict[str, list[str]] = {}
        for _, name, entry in self._entries():
            versions = versions_by_name.setdefault(canonicalize_name(name), [])
            if isinstance(entry.get("version"), str):
                versions.append(entry["version"].lstrip("="))
        return versions_by_name

    @property
    def unversioned(self) -> frozenset[str]:
        """Canonical names of entries without a version that are not folders of the repository."""
        return frozenset(
            canonicalize_name(name)
            for _, name, entry in self._entries()
            if not isinstance(entry.get("version"), str) and not entry.keys() & {"path", "editable"}
        )

    def is_of(self, path: str, pipfile: str) -> bool:
        """Return whether the lock's own hash matches this Pipfile. Raises RecipeError."""
        return self._spelling(path, pipfile) is not None

    def _spelling(self, path: str, pipfile: str) -> Callable[[str], str] | None:
        """Return how the lock's pipenv spells names in the hash of this Pipfile; None if the hash does not
        match.

        Since 2026 pipenv normalises them; older versions use them as written.
        """
        stated = self._meta.get("hash", {}).get("sha256")
        spellings: tuple[Callable[[str], str], ...] = (canonicalize_name, str)
        return next(
            (
                spelling
                for spelling in spellings
                if self._hash_of(path, pipfile, spelling) == stated
            ),
            None,
        )

    def with_release(
        self, name: str, pin: Mapping[str, Any], requires_python: str, sections: Collection[str]
    ) -> "PipfileLock":
        """Return the lock with a package at another version in these sections. ``pin``: ``version`` and
        ``hashes`` as in an entry. Raises RecipeError."""
        document, markers = deepcopy(dict(self.document)), _marker(requires_python)
        for section, key, entry in self._entries():
            if section in sections and canonicalize_name(key) == name and "version" in entry:
                new = {**entry, **pin}
                # pipenv's condition for the release's lowest Python, if the entry has just that.
                if _FLOOR_MARKER.fullmatch(entry.get("markers", "")):
                    new |= markers
                document[section][key] = {field: new[field] for field in entry} | new
        return self._written(document)

    def with_entry(
        self, name: str, pin: Mapping[str, Any], requires_python: str, sections: Collection[str]
    ) -> "PipfileLock":
        """Return the lock with one more entry, in the order of the names. Otherwise as ``with_release``."""
        markers = _marker(requires_python)
        if requires_python and not markers:
            raise unsupported(
                f"{name} {pin['version'].lstrip('=')} is for Python {requires_python}, and it is not known"
                f" how pipenv writes that into {self.path}."
            )
        entry = dict(sorted({**markers, **pin}.items()))
        document = deepcopy(dict(self.document))
        for section in sections:
            document[section] = dict(sorted({**document[section], name: entry}.items()))
        return self._written(document)

    def sections_of(self, name: str, version: str = "") -> frozenset[str]:
        """Return the sections that pin a package; with a ``version``, those that pin it to that."""
        return frozenset(
            pin.section for pin in self.pins if pin.name == name and version in ("", pin.version)
        )

    def extras_of(self, name: str) -> frozenset[str]:
        """Return the extras of a package that are pinned with it."""
        pins = (Requirement(pin.requirement) for pin in self.pins if pin.name == name)
        return frozenset(extra for pin in pins for extra in pin.extras)

    def with_pipfile_hash(self, path: str, before: str, after: str) -> "PipfileLock":
        """Return the lock of a changed Pipfile. Raises RecipeError if it isn't the lock of the old one."""
        spelling = self._spelling(path, before)
        if spelling is None:
            raise unsupported(
                f"The hash in {self.path} is not that of {path} as it stands: the lock is out of date.",
                kind="stale_lock",
            )
        document = deepcopy(dict(self.document))
        document[_META]["hash"]["sha256"] = self._hash_of(path, after, spelling)
        return self._written(document)

    @property
    def _meta(self) -> Mapping[str, Any]:
        meta = self.document.get(_META, {})
        return meta if isinstance(meta, dict) else {}

    def _hash_of(self, path: str, pipfile: str, name: Callable[[str], str]) -> str:
        document = parse_toml(path, pipfile)

        def named(table: Any) -> Any:
            is_table = isinstance(table, dict)
            return {name(key): entry for key, entry in table.items()} if is_table else table

        content: dict[str, Any] = {
            _META: {
                "sources": document.get("source", self._meta.get("sources", [])),
                "requires": document.get("requires", {}),
            },
            "default": named(document.get("packages", {})),
            "develop": named(document.get("dev-packages", {})),
        }
        content |= {
            category: named(table)
            for category, table in document.items()
            if category not in _NOT_HASHED_BY_NAME
        }
        written = json.dumps(content, sort_keys=True, separators=(",", ":"), default=str)
        return hashlib.sha256(written.encode()).hexdigest()

    def _written(self, document: Mapping[str, Any]) -> "PipfileLock":
        """Return the document as text, in the lock's own form."""
        return PipfileLock(self.path, rewritten(self.text, document))

    def _entries(self) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
        """Yield section, name and table of every entry; the table is empty if the entry is not one."""
        for section, entries in self.document.items():
            if section != _META and isinstance(entries, dict):
                for name, entry in entries.items():
                    yield section, name, entry if isinstance(entry, dict) else {}


def _marker(requires_python: str) -> dict[str, str]:
    """Return the condition that pipenv writes for these Pythons; empty if there is none, or it is
    unknown."""
    floor = _FLOOR.fullmatch(requires_python)
    return {"markers": f"python_version >= '{floor['version']}'"} if floor else {}
