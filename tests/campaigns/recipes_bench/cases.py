"""The cases: what was there before, what people (or a peer's tests) made of it, and the advisories."""

import json
import tarfile
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any

ARCHIVE = "recipe-cases.tar.xz"

#: Files of ``expected/`` that describe a result instead of being a part of it.
_DESCRIPTIONS = frozenset({"result.json", "patches.json"})

_LOCKS = frozenset(
    {"package-lock.json", "yarn.lock", "pnpm-lock.yaml", "poetry.lock", "uv.lock", "Pipfile.lock"}
)


class Group(StrEnum):
    """What a case is held against."""

    MINIMAL = "minimal bump, with manifest"
    LOCK_ONLY = "minimal bump, lock without manifest"
    COMMIT = "other real commits"
    FIXTURE = "peer's fixtures"


@dataclass(frozen=True)
class Case:
    """One folder of the archive."""

    folder: Path

    @property
    def name(self) -> str:
        """The folder's name."""
        return self.folder.name

    @cached_property
    def facts(self) -> dict[str, Any]:
        """case.json."""
        facts: dict[str, Any] = json.loads((self.folder / "case.json").read_text())
        return facts

    @cached_property
    def before(self) -> dict[str, str]:
        """Texts by path."""
        return _texts(self.folder / "before")

    @cached_property
    def expected(self) -> dict[str, str]:
        """Texts by path, descriptions left out."""
        texts = _texts(self.folder / "expected")
        return {path: text for path, text in texts.items() if path not in _DESCRIPTIONS}

    @cached_property
    def patches(self) -> list[dict[str, Any]]:
        """The patches that a peer's own test accepts (fixtures only)."""
        place = self.folder / "expected"
        if (place / "result.json").is_file():
            result: dict[str, Any] = json.loads((place / "result.json").read_text())
            return list(result["patches"])
        return list(json.loads((place / "patches.json").read_text()))

    @cached_property
    def advisories(self) -> list[dict[str, Any]]:
        """The OSV records as they are written."""
        return [json.loads(file.read_text()) for file in self.advisory_files]

    @property
    def advisory_files(self) -> list[Path]:
        """One OSV record each."""
        return sorted((self.folder / "advisories").glob("*.json"))

    @property
    def ecosystem(self) -> str:
        """As OSV names it."""
        return str(self.facts["ecosystem"])

    @property
    def universe(self) -> Path | None:
        """The schema of the packages that only this case's registry has."""
        named = self.facts.get("package_universe")
        return self.folder.parent / named if named else None

    @property
    def group(self) -> Group:
        """What the case is held against."""
        if self.universe is not None:
            return Group.FIXTURE
        if not self.facts.get("expected_is_minimal_bump"):
            return Group.COMMIT
        names = {PurePosixPath(path).name for path in self.before}
        return Group.LOCK_ONLY if names <= _LOCKS else Group.MINIMAL

    @property
    def kind(self) -> str:
        """Its manifest kinds in a few words, for tables."""
        return " + ".join(sorted({_kind(path) for path in self.before}))


def unpack(data: Path, place: Path) -> list[Case]:
    """Every case of the shared data, unpacked under ``place`` (once). Raises FileNotFoundError."""
    root = place / "recipe-cases"
    if not root.is_dir():
        with tarfile.open(data / ARCHIVE) as archive:
            archive.extraction_filter = getattr(tarfile, "data_filter", None)
            archive.extractall(place)
    return [Case(file.parent) for file in sorted(root.glob("*/case.json"))]


def _texts(folder: Path) -> dict[str, str]:
    files = (file for file in sorted(folder.rglob("*")) if file.is_file())
    return {file.relative_to(folder).as_posix(): file.read_bytes().decode() for file in files}


def _kind(path: str) -> str:
    name = PurePosixPath(path).name
    return "requirements" if name.endswith((".txt", ".in")) else name
