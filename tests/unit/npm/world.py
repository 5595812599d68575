"""A project and a registry of its own for the npm ladder's tests: real npm, made-up packages."""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fallback_plugins.npm import build_ecosystem
from fallback_tier.advisory import Advisory
from fallback_tier.execution import CommandResult
from fallback_tier.outcome import RecipeResult, RecipeSelection, Selected
from fallback_tier.ports import EcosystemPlugin
from fallback_tier.repo import RepoContext, Settings
from fallback_tier.sandbox.clients import SubprocessClients
from tests.registry import Registry, Universe, serve
from tests.unit.shared.recipes import advisory, repository

Packages = Mapping[str, Mapping[str, Any]]


@dataclass
class Counting:
    """The real clients, and what they were told."""

    inner: SubprocessClients
    calls: list[tuple[str, ...]] = field(default_factory=list)

    def run(
        self,
        tool: str,
        args: Sequence[str],
        *,
        cwd: Path,
        timeout_s: float,
        env: Mapping[str, str] | None = None,
    ) -> CommandResult:
        self.calls.append((tool, *args))
        return self.inner.run(tool, args, cwd=cwd, timeout_s=timeout_s, env=env)


#: What npm answered: one question about one document of a registry is asked once.
_ANSWERS: dict[str, CommandResult] = {}


@dataclass
class Asking(Counting):
    """The same, and an answer of ``npm view`` is npm's own to an equal question before: the same words,
    settings and files, about the same releases. Not of ``npm pack``, which leaves in npm's cache what it
    fetched: a later run needs that."""

    registry: Registry | None = None

    def run(
        self,
        tool: str,
        args: Sequence[str],
        *,
        cwd: Path,
        timeout_s: float,
        env: Mapping[str, str] | None = None,
    ) -> CommandResult:
        key = self._key(tool, args, cwd, env)
        if key is None:
            return super().run(tool, args, cwd=cwd, timeout_s=timeout_s, env=env)
        if key in _ANSWERS:
            self.calls.append((tool, *args))
            return _ANSWERS[key]
        result = super().run(tool, args, cwd=cwd, timeout_s=timeout_s, env=env)
        if result.ok:
            _ANSWERS[key] = result
        return result

    def _key(
        self, tool: str, args: Sequence[str], cwd: Path, env: Mapping[str, str] | None
    ) -> str | None:
        """None: the answer may depend on what else is there, or name the registry, which is another one
        each time."""
        if self.registry is None or tool != "npm" or args[0] != "view":
            return None
        name = args[1].rpartition("@")[0] or args[1]
        document = self.registry.universe.packument(name, "", abbreviated=False)
        if document is None or any("dist." in word for word in args):
            return None
        files = {path.name: path.read_bytes().decode() for path in cwd.iterdir()}
        environ = {**self.inner._environ, **(env or {})}
        settings = {k: v for k, v in environ.items() if k.lower().startswith(("npm_", "git_"))}
        key = json.dumps([*args, document, sorted(files.items()), sorted(settings.items())])
        return key.replace(self.registry.url, "").replace(str(self.registry.scratch), "")


@dataclass
class World:
    """One universe, served."""

    universe: Universe
    clients: Counting
    root: Path
    settings: Settings = field(default_factory=Settings)

    @property
    def plugin(self) -> EcosystemPlugin:
        return build_ecosystem(self.clients)

    def repo(self, files: Mapping[str, str]) -> RepoContext:
        return repository(self.root, files).model_copy(update={"settings": self.settings})

    def fix(self, record: Advisory, files: Mapping[str, str]) -> RecipeResult:
        repo = self.repo(files)
        selection = self.plugin.select(record, repo)
        assert isinstance(selection, Selected), selection
        return self.plugin.apply(selection, record, repo)

    def select(self, record: Advisory, files: Mapping[str, str]) -> RecipeSelection:
        return self.plugin.select(record, self.repo(files))

    def written(self, result: RecipeResult) -> CommandResult:
        """The fix put on the repository's files, and what ``npm ci`` says of them."""
        for change in result.changes:
            assert change.after is not None
            (self.root / change.path).write_bytes(change.after.encode())
        return self.clients.inner.run("npm", ["ci"], cwd=self.root, timeout_s=120)

    def locked(
        self, files: Mapping[str, str], was: str | None = None, version: int = 3
    ) -> dict[str, str]:
        """The files, and the lock that npm makes of them. ``was``: package.json as it was then."""
        place = self.root.parent / "made"
        for path, text in {**files, "package.json": was or files["package.json"]}.items():
            (place / path).parent.mkdir(parents=True, exist_ok=True)
            (place / path).write_bytes(text.encode())
        words = ["install", "--package-lock-only", "--omit-lockfile-registry-resolved=false"]
        words.append(f"--lockfile-version={version}")
        made = self.clients.inner.run("npm", words, cwd=place, timeout_s=120)
        assert made.ok, made.output
        lock = (place / "package-lock.json").read_bytes().decode()
        return {**files, "package-lock.json": lock}

    def verbs(self) -> list[str]:
        return [call[1] for call in self.clients.calls]


@contextmanager
def world(universe: Universe, root: Path) -> Iterator[World]:
    with serve(universe) as registry:
        real = SubprocessClients({**os.environ, **registry.environ})
        clients = Asking(real, registry=registry)
        yield World(universe, clients, root / "repo")


def manifest(**sections: Any) -> str:
    return json.dumps({"name": "app", "version": "1.0.0", **sections}, indent=2) + "\n"


def lock(root: Mapping[str, Any], installed: Packages, version: int = 3) -> str:
    """A flat lock; ``installed``: npm's path below node_modules → (fields of the entry)."""
    entries = {f"node_modules/{path}": dict(entry) for path, entry in installed.items()}
    packages = {"": {"name": "app", "version": "1.0.0", **root}, **entries}
    head = {"name": "app", "version": "1.0.0", "lockfileVersion": version, "requires": True}
    return json.dumps({**head, "packages": packages}, indent=2) + "\n"


def project(
    dependencies: Mapping[str, str], installed: Packages, **sections: Any
) -> dict[str, str]:
    return {
        "package.json": manifest(dependencies=dependencies, **sections),
        "package-lock.json": lock({"dependencies": dependencies}, installed),
    }


def at(version: str, **asks: str) -> dict[str, Any]:
    """An entry of a lock."""
    named = {name.replace("_", "-"): spec for name, spec in asks.items()}
    return {"version": version, **({"dependencies": named} if named else {})}


def bad(package: str, *intervals: tuple[str, str | None]) -> Advisory:
    return advisory("npm", package, intervals)


def versions(result: RecipeResult, path: str = "package-lock.json") -> dict[str, str]:
    """npm path → version, of a changed lock."""
    (text,) = (change.after for change in result.changes if change.path == path)
    assert text is not None
    packages = json.loads(text)["packages"]
    return {
        key.removeprefix("node_modules/"): entry["version"]
        for key, entry in packages.items()
        if key and "version" in entry
    }
