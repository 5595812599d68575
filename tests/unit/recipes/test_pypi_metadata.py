"""A project's own metadata is found by importlib.metadata as if it were installed."""

from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any

import pytest

from fallback_plugins.pypi.metadata import own_metadata


def written(tmp_path: Path, project: dict[str, Any]) -> Distribution | None:
    for path, text in own_metadata(project).items():
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
    assert own_metadata(project) == {}


def test_a_hostile_version_stays_in_its_folder() -> None:
    assert all(
        path.startswith("p-0.dist-info/")
        for path in own_metadata({"name": "p", "version": "../../1"})
    )
