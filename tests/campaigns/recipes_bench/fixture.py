"""The peer's fixtures come with a universe of made-up packages: the case is moved onto loopback.

The fixture's host and the fake hashes of its lock stand for no server; ours stand in their place while
the recipe runs, and the fixture's own are put back into what is judged.
"""

import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from fallback_tier.sandbox.clients import SubprocessClients
from tests.campaigns.recipes_bench.cases import Case
from tests.campaigns.recipes_bench.inventory import held, is_lock
from tests.registry import Registry, Universe, serve

_RESOLVED = re.compile(r'("resolved": ")(https://[^/"]+/)')
_NO_INDEX = "--no-index\n"
_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class Moved:
    """A fixture on loopback: its texts, the clients' environment, and the way back."""

    case: Case
    registry: Registry

    @property
    def environ(self) -> Mapping[str, str]:
        """For the clients."""
        return os.environ | self.registry.environ

    @property
    def texts(self) -> dict[str, str]:
        """The case's files, with our registry instead of the fixture's (or of none)."""
        return {path: self._there(text) for path, text in self.case.before.items()}

    def back(self, path: str, text: str) -> str:
        """A file with the fixture's own host again."""
        before = self.case.before.get(path, "")
        if before.startswith(_NO_INDEX):
            return _NO_INDEX + text
        host = _RESOLVED.search(before)
        return text.replace(self.registry.npm_url, host[2]) if host else text

    def installed(self, texts: Mapping[str, str], scratch: Path) -> list[tuple[str, str]]:
        """What the real client makes of the files. Raises AssertionError with the client's words."""
        if not any(is_lock(path) for path in texts):
            texts = {**texts, **self._resolved(texts, scratch)}
        locked = (held(path, text) for path, text in texts.items() if is_lock(path))
        return sorted({(one.name, one.version) for group in locked for one in group})

    def _there(self, text: str) -> str:
        if text.startswith(_NO_INDEX):
            return text.removeprefix(_NO_INDEX)
        if not (_RESOLVED.search(text)):
            return text
        lock = json.loads(text)
        for place, entry in lock["packages"].items():
            name = place.rpartition("node_modules/")[2]
            if name:
                release = self.registry.universe.npm_packages[name][entry["version"]]
                entry["resolved"] = f"{self.registry.npm_url}{name}/-/{release.file}"
                entry["integrity"] = release.integrity
        return json.dumps(lock, indent=2) + "\n"

    def _resolved(self, texts: Mapping[str, str], scratch: Path) -> dict[str, str]:
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir(parents=True)
        for path, text in texts.items():
            (scratch / path).write_text(text)
        name = next(iter(texts))
        if name == "package.json":
            return {"package-lock.json": self._npm(scratch)}
        extras = ["--all-extras"] if name == "pyproject.toml" else []
        args = ["pip", "compile", "--quiet", "--no-header", *extras, name, "-o", "out.lock"]
        self._run("uv", args, scratch)
        pins = held("requirements.txt", (scratch / "out.lock").read_text())
        return {
            "uv.lock": "".join(
                f'[[package]]\nname = "{pin.name}"\nversion = "{pin.version}"\n' for pin in pins
            )
        }

    def _npm(self, scratch: Path) -> str:
        args = ["install", "--package-lock-only", "--ignore-scripts"]
        self._run("npm", args, scratch)
        return (scratch / "package-lock.json").read_text()

    def _run(self, tool: str, args: list[str], scratch: Path) -> None:
        clients = SubprocessClients(self.environ)
        done = clients.run(tool, args, cwd=scratch, timeout_s=_TIMEOUT_S)
        assert done.ok, done.output


@contextmanager
def moved(case: Case) -> Iterator[Moved]:
    """Serve the case's universe until the block ends."""
    assert case.universe is not None
    with serve(Universe.from_schema(case.universe.read_text())) as registry:
        yield Moved(case, registry)
