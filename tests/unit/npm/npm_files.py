"""Small npm files for the recipe tests."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.unit.shared.recipes import (
    FakeClients,
    advisory,
    repository,
)

RECORD = advisory("npm", "minimist", [("0", "0.2.1"), ("1.0.0", "1.2.3")])


def manifest(**sections: Any) -> str:
    return json.dumps({"name": "app", "version": "1.0.0", **sections}, indent=2) + "\n"


def lock(installed: dict[str, str], version: int = 3, **root: Any) -> str:
    packages = {
        f"node_modules/{path}": {"version": number, "resolved": "https://host/x.tgz"}
        for path, number in installed.items()
    }
    return json.dumps(
        {"name": "app", "lockfileVersion": version, "packages": {"": root, **packages}}
    )


def bumping(*locks: str) -> FakeClients:
    """An npm that answers each run with the next of these locks."""
    answers = list(locks)

    def act(tool: str, args: Sequence[str], cwd: Path) -> tuple[int, str]:
        (cwd / "package-lock.json").write_text(answers.pop(0))
        return 0, ""

    return FakeClients(act)


def locked(tmp_path: Path, old: str, spec: str = "^1.2.0") -> Any:
    return repository(
        tmp_path,
        {"package.json": manifest(dependencies={"minimist": spec}), "package-lock.json": old},
    )
