"""A project's own metadata is found by importlib.metadata as if it were installed."""

from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any

import pytest
import tomlkit

from fallback_plugins.pypi.manifests.metadata import (
    own_metadata,
    own_scripts,
    version_files,
    version_of,
)


def metadata_of(project: dict[str, Any]) -> dict[str, str]:
    return own_metadata({"pyproject.toml": tomlkit.dumps({"project": project})})


def written(tmp_path: Path, project: dict[str, Any]) -> Distribution | None:
    return found_in(tmp_path, metadata_of(project))


def found_in(tmp_path: Path, files: dict[str, str]) -> Distribution | None:
    for path, text in files.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(text)
    return next(iter(distributions(path=[str(tmp_path)])), None)


def test_name_version_and_entry_points_are_found(tmp_path: Path) -> None:
    found = written(
        tmp_path,
        {
            "name": "My.Project",
            "version": "1.2rc1",
            "scripts": {"mine": "mine.cli:main"},
            "entry-points": {"pytest11": {"mine": "mine.plugin"}},
        },
    )
    assert found is not None
    assert (found.metadata["Name"], found.version) == ("My.Project", "1.2rc1")
    assert {(e.group, e.name, e.value) for e in found.entry_points} == {
        ("console_scripts", "mine", "mine.cli:main"),
        ("pytest11", "mine", "mine.plugin"),
    }


def test_a_computed_version_is_older_than_every_release(tmp_path: Path) -> None:
    found = written(tmp_path, {"name": "p", "dynamic": ["version"]})
    assert found is not None
    assert found.version == "0"


@pytest.mark.parametrize(
    "project", [{}, {"name": 3}, {"name": "../up"}, {"name": "a b"}, {"name": "a\nb"}]
)
def test_what_is_no_name_writes_nothing(tmp_path: Path, project: dict[str, Any]) -> None:
    assert metadata_of(project) == {}


def test_a_hostile_version_stays_in_its_folder() -> None:
    assert all(
        path.startswith("p-0.dist-info/")
        for path in metadata_of({"name": "p", "version": "../../1"})
    )


SETUP_PY = """
from setuptools import setup
setup(name="old", version="1.1", entry_points={"console_scripts": ["old = old.cli:main"]})
"""
SETUP_CFG = """
[metadata]
name = old
version = 1.1
[options.entry_points]
console_scripts =
    old = old.cli:main
"""
POETRY = """
[tool.poetry]
name = "old"
version = "1.1"
[tool.poetry.plugins.console_scripts]
old = "old.cli:main"
"""


@pytest.mark.parametrize(
    ("file", "text"),
    [("setup.py", SETUP_PY), ("setup.cfg", SETUP_CFG), ("pyproject.toml", POETRY)],
)
def test_older_manifests_say_the_same(tmp_path: Path, file: str, text: str) -> None:
    found = found_in(tmp_path, own_metadata({file: text}))
    assert found is not None
    assert (found.metadata["Name"], found.version) == ("old", "1.1")
    assert [(it.name, it.value) for it in found.entry_points] == [("old", "old.cli:main")]


@pytest.mark.parametrize(
    ("tag", "version"),
    [("v2.3.0", "2.3.0"), ("lib-2.3.0rc1", "2.3.0rc1"), ("latest", "0"), ("", "0")],
)
def test_a_tag_tells_a_computed_version(tag: str, version: str) -> None:
    project = tomlkit.dumps({"project": {"name": "p", "dynamic": ["version"]}})
    assert f"p-{version}.dist-info/METADATA" in own_metadata({"pyproject.toml": project}, tag)
    assert version_of(tag) == version


@pytest.mark.parametrize(
    "text",
    [
        '[tool.setuptools_scm]\nwrite_to = "src/p/_version.py"\n',
        '[tool.setuptools_scm]\nversion_file = "src/p/_version.py"\n',
        '[tool.hatch.build.hooks.vcs]\nversion-file = "src/p/_version.py"\n',
    ],
)
def test_a_version_module_says_the_version(text: str) -> None:
    reported: dict[str, Any] = {}
    exec(version_files({"pyproject.toml": text}, "v1.2")["src/p/_version.py"], reported)
    assert (reported["version"], reported["version_tuple"]) == ("1.2", (1, 2))


def test_what_is_no_python_is_not_written() -> None:
    text = '[tool.setuptools_scm]\nwrite_to = "VERSION"\n'
    assert version_files({"pyproject.toml": text}) == {}


@pytest.mark.parametrize(
    ("name", "target", "message"),
    [
        ("tool", "app.cli:main", "from app.cli import main\nraise SystemExit(main())\n"),
        (
            "a.b-c",
            " app : Tool.run [extra] ",
            "from app import Tool\nraise SystemExit(Tool.run())\n",
        ),
        ("tool", "app.cli", None),
        ("tool", "app:main();exit", None),
        ("tool", "app\nimport os:main", None),
        ("../tool", "app:main", None),
        ("-tool", "app:main", None),
        (".", "app:main", None),
    ],
)
def test_programs_call_a_function_of_a_module_and_nothing_else(
    name: str, target: str, message: str | None
) -> None:
    for table in ("scripts", "gui-scripts"):
        text = tomlkit.dumps({"project": {"name": "app", table: {name: target}}})
        found = own_scripts({"pyproject.toml": text})
        assert [*found] == ([] if message is None else [name])
        assert message is None or found[name].endswith(message)


def test_programs_of_setup_files_are_found_too() -> None:
    cfg = "[metadata]\nname = app\n[options.entry_points]\nconsole_scripts =\n    one = app:main\n"
    script = "setup(name='app', entry_points={'console_scripts': ['two=app:main']})\n"
    assert [*own_scripts({"setup.cfg": cfg, "setup.py": script})] == ["two"]
    assert [*own_scripts({"setup.cfg": cfg})] == ["one"]
    assert own_scripts({}) == {}
