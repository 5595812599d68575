"""Which places of a package tell a version: a range does only where no lock and no environment chose."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from fallback_plugins.pypi.surveying.deciding import places_in_use
from fallback_plugins.pypi.surveying.survey import survey
from tests.unit.shared.recipes import repository

POETRY = '[tool.poetry]\nname = "app"\n[tool.poetry.dependencies]\nleaf = "^1.1"\n'
PEP_621 = '[project]\nname = "app"\ndependencies = ["leaf>=1.1"]\n'
BARE = '[project]\nname = "app"\ndynamic = ["dependencies"]\n'
PIPFILE = '[packages]\nleaf = ">=1.1"\n'
SETUP_CFG = "[options]\ninstall_requires =\n    leaf>=1.1\n"
SETUP_PY = "from setuptools import setup\nsetup(install_requires=['leaf>=1.1'])\n"

LOCK = '[[package]]\nname = "leaf"\nversion = "1.3"\n'
OTHER_LOCK = '[[package]]\nname = "leafs"\nversion = "1.3"\n'
PIPFILE_LOCK = json.dumps({"default": {"leaf": {"version": "==1.3"}}})
UV_LOCK = 'version = 1\nrequires-python = ">=3.9"\n\n' + "\n".join(
    f'[[package]]\nname = "{name}"\nversion = "1"\nsource = {{ {source} }}\n'
    for name, source in (("app", 'virtual = "."'), ("lib", 'editable = "libs/lib"'))
)
UV_LOCK += '\n[[package]]\nname = "leaf"\nversion = "1.3"\nsource = { registry = "https://a.b/" }\n'


def told(
    place: Path, files: Mapping[str, str], installed: Mapping[str, list[str]] | None = None
) -> list[str]:
    repo = repository(place, files)
    found = places_in_use(repo, survey(repo, "leaf"), installed)
    return [f"{place.path} {place.current}" for place in found]


@pytest.mark.parametrize(
    ("files", "lock"),
    [
        ({"pyproject.toml": POETRY, "poetry.lock": LOCK}, "poetry.lock"),
        ({"pyproject.toml": PEP_621, "poetry.lock": LOCK}, "poetry.lock"),
        ({"pyproject.toml": PEP_621, "pdm.lock": LOCK}, "pdm.lock"),
        ({"pyproject.toml": PEP_621, "uv.lock": UV_LOCK}, "uv.lock"),
        ({"a/pyproject.toml": PEP_621, "a/uv.lock": UV_LOCK}, "a/uv.lock"),
        # What pyproject.toml leaves to a build, uv and pdm ask the build for.
        ({"pyproject.toml": BARE, "setup.cfg": SETUP_CFG, "uv.lock": UV_LOCK}, "uv.lock"),
        ({"pyproject.toml": BARE, "setup.py": SETUP_PY, "uv.lock": UV_LOCK}, "uv.lock"),
        ({"libs/lib/pyproject.toml": PEP_621, "uv.lock": UV_LOCK}, "uv.lock"),
        ({"Pipfile": PIPFILE, "Pipfile.lock": PIPFILE_LOCK}, "Pipfile.lock"),
        # The same project's metadata beside a lock, whatever its build reads.
        ({"setup.cfg": SETUP_CFG, "poetry.lock": LOCK}, "poetry.lock"),
        ({"setup.py": SETUP_PY, "Pipfile.lock": PIPFILE_LOCK}, "Pipfile.lock"),
        ({"pyproject.toml": PEP_621, "Pipfile.lock": PIPFILE_LOCK}, "Pipfile.lock"),
        # What was compiled from a file chose for it.
        (
            {
                "a/requirements.in": "leaf~=1.1\n",
                "a/requirements.txt": "leaf==1.3  # via -r requirements.in\n",
            },
            "a/requirements.txt",
        ),
        # From a project's metadata too, wherever it was written, and with the project itself pinned.
        (
            {
                "pyproject.toml": PEP_621,
                "deploy/requirements.txt": "leaf==1.3\n  # via\n  #   six\n  #   App (pyproject.toml)\n",
            },
            "deploy/requirements.txt",
        ),
        (
            {
                "a/setup.cfg": f"[metadata]\nname = app\n{SETUP_CFG}",
                "a/requirements.txt": "leaf==1.3  # via app (a/setup.cfg)\n",
            },
            "a/requirements.txt",
        ),
        (
            {
                "pyproject.toml": PEP_621,
                "install/requirements.txt": "app==2.0\nleaf==1.3\n    # via app\n",
            },
            "install/requirements.txt",
        ),
    ],
)
def test_a_locks_choice_counts_for_its_project(
    tmp_path: Path, files: dict[str, str], lock: str
) -> None:
    assert told(tmp_path, files) == [f"{lock} 1.3"]


@pytest.mark.parametrize(
    ("files", "places"),
    [
        # Without a lock.
        ({"pyproject.toml": POETRY}, ["pyproject.toml 1.1"]),
        ({"setup.cfg": SETUP_CFG, "setup.py": SETUP_PY}, ["setup.cfg 1.1", "setup.py 1.1"]),
        # The lock of another folder, of other manifests, or without the package.
        (
            {"pyproject.toml": POETRY, "a/poetry.lock": LOCK},
            ["a/poetry.lock 1.3", "pyproject.toml 1.1"],
        ),
        (
            {"requirements.txt": "leaf>=1.1\n", "uv.lock": UV_LOCK},
            ["requirements.txt 1.1", "uv.lock 1.3"],
        ),
        (
            {"setup.cfg": SETUP_CFG, "a/poetry.lock": LOCK},
            ["a/poetry.lock 1.3", "setup.cfg 1.1"],
        ),
        ({"Pipfile": PIPFILE, "poetry.lock": LOCK}, ["Pipfile 1.1", "poetry.lock 1.3"]),
        # Two files of one name, of which neither says that it was compiled.
        (
            {"requirements.in": "leaf>=1.1\n", "requirements.txt": "leaf==1.3\n"},
            ["requirements.in 1.1", "requirements.txt 1.3"],
        ),
        (
            {"pyproject.toml": PEP_621, "pylock.toml": LOCK.replace("package", "packages")},
            ["pylock.toml 1.3", "pyproject.toml 1.1"],
        ),
        ({"pyproject.toml": POETRY, "poetry.lock": OTHER_LOCK}, ["pyproject.toml 1.1"]),
        # Compiled from another project's metadata, from none, by hand, or for something else.
        (
            {
                "pyproject.toml": PEP_621,
                "a/requirements.txt": "leaf==1.3  # via my-app (pyproject.toml)\n",
            },
            ["a/requirements.txt 1.3", "pyproject.toml 1.1"],
        ),
        (
            {
                "pyproject.toml": PEP_621,
                "a/requirements.txt": "leaf==1.3  # via -r docs.in\nsix==1  # via app\n",
            },
            ["a/requirements.txt 1.3", "pyproject.toml 1.1"],
        ),
        (
            {"pyproject.toml": PEP_621, "a/requirements.txt": "app==2.0\nleaf==1.3\n"},
            ["a/requirements.txt 1.3", "pyproject.toml 1.1"],
        ),
        (
            {
                "pyproject.toml": PEP_621.replace(">=1.1", ">=1.1,<1.3"),
                "requirements.txt": "leaf==1.3  # via app (pyproject.toml)\n",
            },
            ["pyproject.toml 1.1", "requirements.txt 1.3"],
        ),
        # A lock that was made for something else than what is asked for now.
        (
            {"pyproject.toml": POETRY.replace("^1.1", ">=1.1,<1.3"), "poetry.lock": LOCK},
            ["poetry.lock 1.3", "pyproject.toml 1.1"],
        ),
        # An exact pin is a version wherever it stands.
        (
            {"pyproject.toml": PEP_621.replace(">=", "=="), "uv.lock": UV_LOCK},
            ["pyproject.toml 1.1", "uv.lock 1.3"],
        ),
        (
            {"pyproject.toml": PEP_621.replace(">=1.1", "==1.3"), "uv.lock": UV_LOCK},
            ["pyproject.toml 1.3", "uv.lock 1.3"],
        ),
        (
            {"setup.py": SETUP_PY.replace(">=", "=="), "uv.lock": UV_LOCK},
            ["setup.py 1.1", "uv.lock 1.3"],
        ),
    ],
)
def test_a_range_that_nobody_chose_for_tells_its_lower_bound(
    tmp_path: Path, files: dict[str, str], places: list[str]
) -> None:
    assert told(tmp_path, files) == places


@pytest.mark.parametrize(
    ("path", "installed", "counts"),
    [
        ("requirements.txt", {".": ["1.3"]}, False),
        ("requirements/base.txt", {".": ["1.3"]}, False),
        ("a/requirements.txt", {"a": ["1.3"]}, False),
        ("requirements.txt", {".": []}, True),
        # Of another folder, or of what nobody asks for here.
        ("a/requirements.txt", {".": ["1.3"]}, True),
        ("requirements.txt", {".": ["2.0"]}, True),
    ],
)
def test_an_environments_choice_counts_in_its_folder(
    tmp_path: Path, path: str, installed: dict[str, list[str]], counts: bool
) -> None:
    files = {path: "leaf>=1.1,<2\n"}
    assert told(tmp_path, files, installed) == ([f"{path} 1.1"] if counts else [])
