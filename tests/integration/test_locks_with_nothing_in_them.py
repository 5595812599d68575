"""A lock that its client can't have written does not say that nothing is installed, nor which version."""

import json
from pathlib import Path

import pytest

from tests.e2e.command import run as command
from tests.fakes.repository import commit_all, git, write

#: Locks that hold nothing and lack what their client always writes; and those of projects without a
#: dependency, as their client writes them.
CUT = {
    "Pipfile.lock": ["{}", '{"default": {}}', '{"_meta": {}, "default": {}}'],
    "poetry.lock": ["package = []\n", '[metadata]\nlock-version = "2.0"\n'],
    "uv.lock": ["version = 1\n"],
    "pdm.lock": ["package = []\n"],
    "pylock.toml": ['lock-version = "1.0"\n'],
    "package-lock.json": ["{}", '{"lockfileVersion": 3}'],
    "npm-shrinkwrap.json": ['{"name": "app"}'],
    "pnpm-lock.yaml": ["{}", "importers:\n  .: {}\n"],
    "bun.lock": ["{}"],
}
WHOLE = {
    "Pipfile.lock": '{"_meta": {"hash": {"sha256": "0"}}, "default": {}, "develop": {}}',
    "poetry.lock": 'package = []\n\n[metadata]\nlock-version = "2.0"\n',
    "uv.lock": 'version = 1\nrequires-python = ">=3.9"\n',
    "pdm.lock": '[metadata]\nlock_version = "4.5.0"\n',
    "package-lock.json": '{"lockfileVersion": 3, "packages": {}}',
    "npm-shrinkwrap.json": '{"lockfileVersion": 1}',
    "pnpm-lock.yaml": "lockfileVersion: '9.0'\n\nimporters:\n\n  .: {}\n",
}
#: Locks that name the package ``left``, and say no version of it.
UNVERSIONED = {
    "Pipfile.lock": '{"_meta": {"hash": {}}, "default": {"left": {}}, "develop": {}}',
    "pdm.lock": '[metadata]\nlock_version = "4.5"\n[[package]]\nname = "left"\n',
    "pylock.toml": 'lock-version = "1.0"\n[[packages]]\nname = "left"\n',
    "package-lock.json": '{"lockfileVersion": 3, "packages": {"": {}, "node_modules/left": {}}}',
    "npm-shrinkwrap.json": '{"lockfileVersion": 1, "dependencies": {"left": {"optional": true}}}',
    "pnpm-lock.yaml": (
        "lockfileVersion: '9.0'\nimporters:\n  .:\n    dependencies:\n      left:\n"
        "        specifier: ^1\n        version: 1.0.0\n"
    ),
}


def planned(tmp_path: Path, name: str, text: str) -> int:
    """The exit code of a plan for a repository of this lock alone."""
    ecosystem = "npm" if name.endswith((".json", ".yaml")) or name.startswith("bun") else "PyPI"
    place = tmp_path / "app"
    place.mkdir()
    git(place, "init", "--quiet")
    write(place, {name: text})
    commit_all(place)
    events = [{"introduced": "0"}, {"fixed": "2.0.0"}]
    record = {
        "schema_version": "1.6.0",
        "id": "TEST-1",
        "modified": "2026-01-01T00:00:00Z",
        "affected": [
            {
                "package": {"ecosystem": ecosystem, "name": "left"},
                "ranges": [
                    {"type": "ECOSYSTEM" if ecosystem == "PyPI" else "SEMVER", "events": events}
                ],
            }
        ],
    }
    advisory = tmp_path / "advisory.json"
    advisory.write_text(json.dumps(record))
    return command("plan", "--json", "--advisory", advisory, place).code


@pytest.mark.parametrize(("name", "text"), [(name, it) for name in CUT for it in CUT[name]])
def test_a_lock_that_its_client_can_not_have_written_is_unknown(
    name: str, text: str, tmp_path: Path
) -> None:
    assert planned(tmp_path, name, text) == 9


@pytest.mark.parametrize("name", WHOLE)
def test_a_lock_of_a_project_without_dependencies_holds_nothing(name: str, tmp_path: Path) -> None:
    assert planned(tmp_path, name, WHOLE[name]) == 5


@pytest.mark.parametrize("name", UNVERSIONED)
def test_a_lock_that_says_no_version_of_the_package_is_unknown(name: str, tmp_path: Path) -> None:
    assert planned(tmp_path, name, UNVERSIONED[name]) == 9
