"""Releases from the registries, by the real clients: npm packs a tarball, uv unpacks a wheel.

No script runs and nothing is built. The clients work in scratch folders of their own, as the user has
configured them.
"""

import json
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from packaging.version import InvalidVersion, Version

from fallback_plugins.shared.scratch import scratch_folder
from fallback_tier.advisory import sort_key
from fallback_tier.errors import InputError, ToolFailedError
from fallback_tier.execution import ClientRunner, CommandResult

#: Seconds for one question or one download; slow links exist.
_TIMEOUT_S = 300.0

#: How much of a client's own words an error repeats.
_MAX_WORDS = 400

#: What may follow "--" without becoming an address, a path or a tag.
_NPM_NAME = re.compile(r"(?:@\w[\w.~-]*/)?\w[\w.~-]*")
_PYPI_NAME = re.compile(r"[A-Za-z0-9](?:[\w.-]*[A-Za-z0-9])?")
_SEMVER = re.compile(r"\d+\.\d+\.\d+(?:[-+][0-9A-Za-z.+-]+)?")

_NPM = ("--ignore-scripts", "--allow-git=none", "--loglevel=error")
_UV = ("--no-python-downloads", "--no-progress", "--color=never")
_ENVIRONMENT = {"GIT_ALLOW_PROTOCOL": "none", "UV_COMPILE_BYTECODE": ""}


@dataclass(frozen=True)
class RegistryReleases:
    """``release_pair.Releases`` over a client runner. Methods raise ToolError, InputError."""

    clients: ClientRunner

    def newest_below(self, ecosystem: str, package: str, version: str) -> str | None:
        """The newest release below; of PyPI only with a wheel for this Python. None: there is none."""
        _check(ecosystem, package, version)
        with scratch_folder("releases") as folder:
            if ecosystem == "npm":
                spec = f"{package}@<{version}"
                reported = self._run(
                    "npm", ["view", "--json", *_NPM, "--", spec, "version"], folder
                )
                found = (
                    json.loads(reported.output) if reported.ok and reported.output.strip() else []
                )
                names = [found] if isinstance(found, str) else list(found)
                return max(names, key=lambda it: sort_key("npm", it), default=None)
            (folder / "wanted.in").write_text(f"{package}<{version}\n", encoding="utf-8")
            compile_one = ["pip", "compile", "--no-deps", "--no-header", "--no-annotate"]
            reported = self._run("uv", [*compile_one, "--no-build", *_UV, "wanted.in"], folder)
            line = re.search(r"^[\w.-]+==(\S+)", reported.output, re.MULTILINE)
            if not reported.ok and "unsatisfiable" in reported.output:
                return None
            return line[1] if line and reported.ok else _raise(reported)

    def fetch(self, ecosystem: str, package: str, version: str, into: Path) -> Path:
        """npm's tarball, or a folder with a wheel's files, below ``into``."""
        _check(ecosystem, package, version)
        place = into / version
        place.mkdir(parents=True)
        if ecosystem == "npm":
            pack = ["pack", "--silent", *_NPM, f"--pack-destination={place}"]
            reported = self._run("npm", [*pack, "--", f"{package}@{version}"], place)
            found = next(place.glob("*.tgz"), None)
            return found if reported.ok and found else _raise(reported)
        install = ["pip", "install", "--no-deps", "--only-binary=:all:", "--link-mode=copy"]
        where = [f"--target={place}", f"--python={sys.executable}"]
        reported = self._run("uv", [*install, *_UV, *where, f"{package}=={version}"], into)
        return place if reported.ok else _raise(reported)

    def _run(self, tool: str, arguments: Sequence[str], cwd: Path) -> CommandResult:
        return self.clients.run(tool, arguments, cwd=cwd, timeout_s=_TIMEOUT_S, env=_ENVIRONMENT)


def _check(ecosystem: str, package: str, version: str) -> None:
    """They come out of an advisory: neither may become an option, an address or a path."""
    if ecosystem == "npm":
        good = bool(_NPM_NAME.fullmatch(package) and _SEMVER.fullmatch(version))
    else:
        good = bool(_PYPI_NAME.fullmatch(package)) and _is_pep440(version)
    if not good:
        raise InputError(
            f"{package!r} {version!r} is not a package and a version of {ecosystem}.",
            next_step="Check the advisory, or give --package, --vulnerable and --fixed.",
            kind="not_a_release",
        )


def _is_pep440(version: str) -> bool:
    try:
        Version(version)
    except InvalidVersion:
        return False
    return True


def _raise(reported: CommandResult) -> NoReturn:
    words = " ".join(reported.output.replace("npm error", "").split())[:_MAX_WORDS]
    what = f"gave no answer in {_TIMEOUT_S:.0f} s" if reported.timed_out else f"said: {words}"
    raise ToolFailedError(
        f"{reported.argv[0]} could not get the release; it {what}.",
        next_step="Check the registry, or give the releases' archives (--before, --after).",
        output=reported.output,
        kind="release_unavailable",
    )
