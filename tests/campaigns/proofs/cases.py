"""The cases of the real proof: which package, what flaw, and a small project of ours that has it.

::

    NAME/case.toml     package, vulnerable version, weakness, the advisory's facts
    NAME/repo/         becomes a repository of its own; the real client makes its lock
    NAME/proof/        exits with 0 exactly where the flaw is gone; given to `fix` by --proof-file
    NAME/script.json   only where a bump is not enough: the plan that a model would have to give

NAME begins with the ecosystem. Nothing of the packages is kept here: clients fetch them at run time.
"""

import hashlib
import json
import re
import subprocess
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from fallback_audit.frozen import Frozen
from tests.fakes.repository import commit_all

CASES = Path(__file__).parent / "cases"

#: One small project's packages, on a slow line.
_CLIENT_TIMEOUT_S = 300

#: Options that a lock is made with: no script of a package runs here.
_NPM_LOCK = ("--package-lock-only", "--ignore-scripts", "--no-audit", "--no-fund")


class AdvisoryFacts(Frozen):
    """What is needed of an advisory; ``fixed`` is the first version without the flaw."""

    id: str
    aliases: tuple[str, ...] = ()
    summary: str
    introduced: str = "0"
    fixed: str


class CaseFacts(Frozen):
    """A case file. ``edits``: why a bump alone breaks the project; empty where it doesn't."""

    package: str
    vulnerable: str
    weakness: str
    edits: str = ""
    advisory: AdvisoryFacts


@dataclass(frozen=True)
class Case:
    """One real package at a real vulnerable version, used by a project of ours."""

    folder: Path
    facts: CaseFacts

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def ecosystem(self) -> str:
        return "npm" if self.name.startswith("npm-") else "PyPI"

    @property
    def script(self) -> Path | None:
        place = self.folder / "script.json"
        return place if place.exists() else None

    @property
    def proof_command(self) -> str:
        program = "node" if self.ecosystem == "npm" else "python"
        return f"{program} {self.proof.relative_to(self.folder).as_posix()}"

    @property
    def proof(self) -> Path:
        (place,) = (self.folder / "proof").glob("proof.*")
        return place

    @cached_property
    def digest(self) -> str:
        """SHA-256 over the case's files: a result tells which form of the case it is of."""
        found = hashlib.sha256()
        for place in sorted(self.folder.rglob("*")):
            if place.is_file() and place.suffix != ".pyc":
                found.update(f"{place.relative_to(self.folder).as_posix()}\0".encode())
                found.update(hashlib.sha256(place.read_bytes()).digest())
        return found.hexdigest()

    def record(self, published: Mapping[str, Any]) -> tuple[dict[str, Any], bool]:
        """The advisory as OSV, and whether it is a published one rather than written from its facts."""
        facts = self.facts.advisory
        if facts.id in published:
            return published[facts.id], True
        kind = "SEMVER" if self.ecosystem == "npm" else "ECOSYSTEM"
        events = [{"introduced": facts.introduced}, {"fixed": facts.fixed}]
        affected = {
            "package": {"ecosystem": self.ecosystem, "name": self.facts.package},
            "ranges": [{"type": kind, "events": events}],
        }
        written = {"id": facts.id, "aliases": list(facts.aliases), "summary": facts.summary}
        return {**written, "modified": "2026-01-01T00:00:00Z", "affected": [affected]}, False

    def make_repository(self, place: Path, uv: Path) -> None:
        """The project with a lock of today that holds the vulnerable version, committed."""
        for source in sorted((self.folder / "repo").rglob("*")):
            if source.is_file() and source.suffix != ".pyc":
                target = place / source.relative_to(self.folder / "repo")
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(source.read_bytes())
        pinned = f"{self.facts.package}=={self.facts.vulnerable}"
        if self.ecosystem == "npm":
            self._lock_npm(place)
        elif (place / "pyproject.toml").exists():
            _run([str(uv), "lock", "--quiet", "--upgrade-package", pinned], place)
        commit_all(place)
        if held(place, self.facts.package) != self.facts.vulnerable:
            raise ValueError(f"{self.name}: the lock does not hold {pinned}")

    def _lock_npm(self, place: Path) -> None:
        manifest = place / "package.json"
        text = manifest.read_text()
        package, version = self.facts.package, self.facts.vulnerable
        declared = json.loads(text)["dependencies"].get(package)
        if declared is None:  # its parent brings it: held back for as long as the lock is made
            manifest.write_text(json.dumps({**json.loads(text), "overrides": {package: version}}))
            _run(["npm", "install", *_NPM_LOCK], place)
            manifest.write_text(text)
            return
        prefix = declared[0] if declared[0] in "^~" else ""
        save = [f"--save-prefix={prefix}"] if prefix else ["--save-exact"]
        _run(["npm", "install", *_NPM_LOCK, *save, f"{package}@{version}"], place)


def held(place: Path, package: str) -> str:
    """The version that a repository's lock (or pin) holds; empty: none, or several."""
    if (place / "package-lock.json").exists():
        packages = json.loads((place / "package-lock.json").read_text())["packages"]
        found = {
            entry["version"]
            for path, entry in packages.items()
            if path.rpartition("node_modules/")[2] == package
        }
    elif (place / "uv.lock").exists():
        entries = tomllib.loads((place / "uv.lock").read_text())["package"]
        found = {entry["version"] for entry in entries if entry["name"] == package}
    else:
        pin = rf"^{re.escape(package)}==(\S+)"
        found = set(re.findall(pin, (place / "requirements.txt").read_text(), re.MULTILINE))
    return found.pop() if len(found) == 1 else ""


def load_cases(only: Sequence[str] = (), root: Path = CASES) -> tuple[Case, ...]:
    """All cases by name, or those named. Raises KeyError for a name that none has."""
    found = {}
    for place in sorted(root.glob("*/case.toml")):
        facts = CaseFacts.model_validate(tomllib.loads(place.read_text()))
        found[place.parent.name] = Case(place.parent, facts)
    return tuple(found[name] for name in only) if only else tuple(found.values())


def _run(command: Sequence[str], cwd: Path) -> None:
    done = subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, timeout=_CLIENT_TIMEOUT_S
    )
    if done.returncode != 0:
        raise RuntimeError(f"{command[0]} failed: {done.stderr.strip()[-600:]}")
