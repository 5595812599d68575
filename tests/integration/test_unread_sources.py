"""Sources that a Python client installs from and that no reader here follows: never "not affected", and
never "versions proved". Real commands, real uv, a registry on loopback with ``left`` 1.0.0 (affected) and
2.0.0.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from fallback_tier.cli import exit_codes
from tests.e2e.command import Ended, osv, run
from tests.fakes.repository import git
from tests.registry import Universe, serve

UNIVERSE = Universe()
for version in ("1.0.0", "2.0.0"):
    UNIVERSE.pypi("left", version)
UNIVERSE.pypi("asks", "1.0.0", ["left"]).pypi("right", "1.0.0")

WHEEL = "left-1.0.0-py3-none-any.whl"
ARCHIVE = UNIVERSE.pypi_packages["left"][WHEEL].content
NEWER = "left-2.0.0-py3-none-any.whl"

PROJECT = '[project]\nname = "app"\nversion = "1"\nrequires-python = ">=3.9"\n'
BARE = "left\n"

Files = Mapping[str, str | bytes]


@pytest.fixture(scope="module")
def registry() -> Iterator[Mapping[str, str]]:
    with serve(UNIVERSE) as served:
        yield served.environ


def make(place: Path, files: Files) -> Path:
    repo = place / "repo"
    for path, content in files.items():
        (repo / path).parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, str) and content.startswith("-> "):
            (repo / path).symlink_to(content.removeprefix("-> "))
        else:
            (repo / path).write_bytes(content.encode() if isinstance(content, str) else content)
    git(repo, "init", "-q", "-b", "main")
    git(repo, "add", "-A", "-f")
    git(repo, "commit", "-q", "-m", "base")
    (place / "A.json").write_text(osv("left", id="A"))
    return repo


def command(name: str, place: Path, registry: Mapping[str, str], *more: str) -> Ended:
    words = [name, place / "repo", "--advisory", place / "A.json", "--json", *more]
    return run(*words, "--state-dir", place / "state", env=registry)
