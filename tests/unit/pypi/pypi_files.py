"""Small pypi files for the recipe tests."""

from collections.abc import Mapping
from pathlib import Path

from fallback_tier.repo import RepoContext, Settings
from tests.unit.shared.recipes import advisory, repository

RECORD = advisory("PyPI", "idna", [("0", "2.9"), ("3.0", "3.7")])


def pyproject(*requirements: str, more: str = "") -> str:
    listed = "".join(f'    "{requirement}",\n' for requirement in requirements)
    return (
        '[project]\nname = "app"\nversion = "1"\nrequires-python = ">=3.9"\n'
        f"dependencies = [\n{listed}]\n{more}"
    )


def offline(root: Path, files: Mapping[str, str]) -> RepoContext:
    """The files as a repository whose fixes ask no registry."""
    repo = repository(root, files)
    return repo.model_copy(update={"settings": Settings(offline=True)})
