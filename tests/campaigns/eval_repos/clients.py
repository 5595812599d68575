"""Clients at stated versions, fetched once into a folder from npm's registry and Python's index."""

import os
import shlex
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from tests.campaigns.measuring.process import Done, run_to_end
from tests.registry.upstream import Upstream

#: One client command: a whole install over a slow line.
TIMEOUT_S = 900

#: Where the program of a client that npm's registry has lies in its package.
_NODE_PROGRAMS = {
    "npm": "npm/bin/npm-cli.js",
    "yarn": "yarn/bin/yarn.js",
    "pnpm": "pnpm/bin/pnpm.cjs",
}

#: What goes with a Python client: poetry would ask an index's JSON interface, which few mirrors have; the
#: others of their age know no newer pip and setuptools.
_WITH = {
    "poetry": ("poetry-plugin-pypi-mirror",),
    "pipenv": ("setuptools<80",),
    "pip-tools": ("pip<25.1",),
}

#: A client's settings of the user's own that would change what a lock holds; "" is unset.
_SETTINGS = {
    "PIP_CONFIG_FILE": os.devnull,
    "PIP_FIND_LINKS": "",
    "PIP_EXTRA_INDEX_URL": "",
    "PIPENV_VENV_IN_PROJECT": "1",
    "PIPENV_IGNORE_VIRTUALENVS": "1",
    "PIPENV_YES": "1",
    "PIPENV_NOSPIN": "1",
    "POETRY_VIRTUALENVS_IN_PROJECT": "true",
    "POETRY_NO_INTERACTION": "1",
    "UV_PYTHON_DOWNLOADS": "never",
    "CI": "1",
    "NO_COLOR": "1",
    "VIRTUAL_ENV": "",
    "PYTHONPATH": "",
    "PYTHONHOME": "",
    "npm_config_omit_lockfile_registry_resolved": "false",
    "npm_config_ignore_scripts": "true",
    # A host that isn't there is soon known not to be.
    "npm_config_fetch_retry_mintimeout": "1000",
    "npm_config_fetch_retry_maxtimeout": "5000",
    "npm_config_audit": "false",
    "npm_config_fund": "false",
    "npm_config_update_notifier": "false",
}


@dataclass(frozen=True)
class Clients:
    """``folder``: where they are kept. ``more``: put over the environment (a registry on loopback)."""

    folder: Path
    more: Mapping[str, str] = field(default_factory=dict)
    _making: threading.Lock = field(default_factory=threading.Lock, compare=False)

    @cached_property
    def registries(self) -> Upstream:
        """Those that this machine's clients ask, or the one on loopback. Raises UnreachableError."""
        index, npm = self.more.get("UV_DEFAULT_INDEX"), self.more.get("npm_config_registry")
        return Upstream(npm.rstrip("/"), index) if index and npm else Upstream.discover()

    @cached_property
    def environ(self) -> dict[str, str]:
        """For every client and check: the user's own, without what changes a lock."""
        reported = {**os.environ, **_SETTINGS, **self.more}
        reported["PIP_INDEX_URL"] = reported["POETRY_PYPI_MIRROR_URL"] = self.registries.pypi
        return {name: value for name, value in reported.items() if value}

    def run(
        self, command: Sequence[str | Path], cwd: Path, more: Mapping[str, str] | None = None
    ) -> Done:
        """Run a client, or what a client made."""
        env = {**self.environ, **(more or {})}
        return run_to_end(command, cwd=cwd, env=env, timeout_s=TIMEOUT_S)

    def must(
        self, command: Sequence[str | Path], cwd: Path, more: Mapping[str, str] | None = None
    ) -> Done:
        """The same. Raises RuntimeError with the client's own words where it fails."""
        done = self.run(command, cwd, more)
        if not done.ok:
            raise RuntimeError(f"{shlex.join(map(str, command))}: {done.said[-600:]}")
        return done

    def had(self, by: str) -> list[str | Path]:
        """The command of a client: ``npm@8.19.4``, ``poetry@1.8.5``, ``uv``; without a version the one
        that is installed. Raises RuntimeError where it can't be had."""
        name, _, version = by.partition("@")
        if name in {"uv", "pip"}:
            return [Path(sys.executable).with_name("uv")]
        if not version:
            return [name]
        place = self.folder / by
        with self._making:
            self._fetch(name, version, place)
        if name in _NODE_PROGRAMS:
            return ["node", place / "node_modules" / _NODE_PROGRAMS[name]]
        return [place / "bin" / ("pip-compile" if name == "pip-tools" else name)]

    def _fetch(self, name: str, version: str, place: Path) -> None:
        """Once, from the real registries, whatever this case's packages come from."""
        node = name in _NODE_PROGRAMS
        packages = [f"{name}{'@' if node else '=='}{version}", *_WITH.get(name, ())]
        whole, wanted = place / "whole", "\n".join(packages)
        if whole.exists() and whole.read_text(encoding="utf-8") == wanted:
            return
        real = Clients(self.folder)
        place.mkdir(parents=True, exist_ok=True)
        if node:
            (place / "package.json").write_text('{"private": true}\n', encoding="utf-8")
            real.must(["npm", "install", "--ignore-scripts", *packages], place)
        else:
            uv = Path(sys.executable).with_name("uv")
            python = place / "bin" / "python"
            real.must([uv, "venv", "--quiet", "--clear", "--python", "3.11", place], place.parent)
            real.must([uv, "pip", "install", "--python", python, *packages], place)
        whole.write_text(wanted, encoding="utf-8")


def installed_version(command: str) -> str:
    """What an installed client calls itself; empty where there is none."""
    try:
        done = subprocess.run([command, "--version"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    # ``uv 0.1.2 (a platform)``, ``git version 2.3.4``, ``11.1.0``
    return next((word for word in done.stdout.split() if word[:1].isdigit()), "")
