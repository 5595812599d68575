"""Small pypi files for the recipe tests."""

from collections.abc import Sequence
from pathlib import Path

from fallback_tier.repo import RepoContext
from tests.unit.recipes.support import (
    FakeClients,
    advisory,
    repository,
)

RECORD = advisory("PyPI", "idna", [("0", "2.9"), ("3.0", "3.7")])


def pyproject(*requirements: str, more: str = "") -> str:
    listed = "".join(f'    "{requirement}",\n' for requirement in requirements)
    return (
        '[project]\nname = "app"\nversion = "1"\nrequires-python = ">=3.9"\n'
        f"dependencies = [\n{listed}]\n{more}"
    )


def lock(*packages: tuple[str, str], asks: str = "") -> str:
    tables = [f'[[package]]\nname = "{name}"\nversion = "{number}"\n' for name, number in packages]
    return "version = 1\n" + "".join(tables) + asks


def locking(answer: str) -> FakeClients:
    """A uv that answers with this lock."""

    def act(tool: str, args: Sequence[str], cwd: Path) -> tuple[int, str]:
        (cwd / "uv.lock").write_text(answer)
        return 0, ""

    return FakeClients(act)


def locked(tmp_path: Path, requirement: str = "idna>=3.0") -> RepoContext:
    files = {
        "pyproject.toml": pyproject(requirement),
        "uv.lock": lock(("idna", "3.1"), ("six", "1.16")),
    }
    return repository(tmp_path, files)
