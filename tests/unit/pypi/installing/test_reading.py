"""What is there and can't be read is known: nobody can tell which registries it names."""

from collections.abc import Callable
from pathlib import Path

import pytest

from fallback_plugins.pypi.installing.plan import Manifests
from tests.integration.gate_setup import repository


def as_link(path: Path) -> None:
    path.unlink()
    path.symlink_to("elsewhere")


def as_utf_16(path: Path) -> None:
    path.write_bytes("x".encode("utf-16"))


@pytest.mark.parametrize("unreadable", [as_link, as_utf_16], ids=lambda one: one.__name__)
@pytest.mark.parametrize("name", ["uv.toml", "pip.conf", "requirements.txt", "tox.ini", "uv.lock"])
def test_a_file_that_can_not_be_read_may_name_an_index(
    tmp_path: Path, name: str, unreadable: Callable[[Path], None]
) -> None:
    repo = repository(tmp_path, {"requirements-dev.txt": "left\n", name: "\n"})
    before = Manifests(repo, ".")
    assert not before.indexes.own
    unreadable(tmp_path / name)
    after = Manifests(repo, ".")
    assert after.indexes.own
    assert after.identity != before.identity


def test_settings_above_a_folder_count_and_those_beside_it_do_not(tmp_path: Path) -> None:
    files = {"lib/requirements.txt": "left\n", "uv.toml": "\n", "other/uv.toml": "\n"}
    repo = repository(tmp_path, files)
    as_utf_16(tmp_path / "other" / "uv.toml")
    assert not Manifests(repo, "lib").indexes.own
    as_utf_16(tmp_path / "uv.toml")
    assert Manifests(repo, "lib").indexes.own


def test_what_uv_comes_across(tmp_path: Path) -> None:
    files = {
        "requirements.txt": "-r more/base.txt\n-r absent.txt\n",
        "more/base.txt": "left\n",
        "tox.ini": "[tox]\n",
        "README.txt": "text\n",
    }
    found = Manifests(repository(tmp_path, files), ".")
    assert sorted(found.texts) == ["more/base.txt", "requirements.txt", "tox.ini"]
    assert not found.indexes.own
