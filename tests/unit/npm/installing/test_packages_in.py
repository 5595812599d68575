"""What is read of the packages that npm's clients installed."""

import json
import os
import tracemalloc
from pathlib import Path

import pytest

from fallback_plugins.npm.installing import modules_layer
from fallback_plugins.npm.installing.modules_layer import packages_in
from fallback_tier.files.folders import remove_tree
from fallback_tier.limits import MAX_FILE_BYTES


@pytest.mark.parametrize(
    ("here", "there"),
    [
        pytest.param(b'{"version": "1", "author": "\xe9"}', b'{"version": "2", "author": "\xe9"}'),
        pytest.param(b"{", b"["),
        pytest.param(b'{"version": 1}', b'{"version": null}'),
        pytest.param(b'{"version": "1", "a": "too long"}', b'{"version": "2", "a": "too long"}'),
    ],
    ids=["no UTF-8", "no JSON", "no version", "too large"],
)
def test_a_package_that_tells_no_version_is_told_apart_by_its_manifest(
    tmp_path: Path, here: bytes, there: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(modules_layer, "MAX_FILE_BYTES", 30)
    found: list[modules_layer.Package] = []
    for place, content in (("here", here), ("there", there), ("as there", there)):
        manifest = tmp_path / place / "tree" / "node_modules" / "@a" / "odd" / "package.json"
        manifest.parent.mkdir(parents=True)
        manifest.write_bytes(content)
        found += packages_in(tmp_path / place)
    assert [one.name for one in found] == ["@a/odd"] * 3
    assert found[0] != found[1] == found[2]
    assert found[0].version.startswith("version not told")


def test_no_more_of_a_manifest_is_read_than_of_any_file(tmp_path: Path) -> None:
    """A package's author decides how long it is, and this process, not the sandbox, reads it."""
    manifest = tmp_path / "tree" / "node_modules" / "odd" / "package.json"
    manifest.parent.mkdir(parents=True)
    manifest.write_text('{"version": "1"')
    with manifest.open("ab") as file:
        file.truncate(20 * MAX_FILE_BYTES)  # without a block on the disk
    tracemalloc.start()
    (found,) = packages_in(tmp_path)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found.version.startswith("version not told")
    assert most < 3 * MAX_FILE_BYTES


def test_what_is_no_file_is_no_manifest(tmp_path: Path) -> None:
    """Opened, a pipe would never answer."""
    manifest = tmp_path / "tree" / "node_modules" / "odd" / "package.json"
    manifest.parent.mkdir(parents=True)
    os.mkfifo(manifest)
    linked = tmp_path / "tree" / "node_modules" / "linked" / "package.json"
    linked.parent.mkdir()
    linked.symlink_to("/dev/zero")
    assert [*packages_in(tmp_path)] == []


def test_every_layout_of_a_client_is_read_once_with_its_place_and_own_name(tmp_path: Path) -> None:
    top = tmp_path / "tree"
    for place, name in {
        "node_modules/foo": "left",
        "node_modules/@acme/left": "@acme/left",
        "node_modules/a/node_modules/left": "left",
        "node_modules/a/lib/node_modules/left": "left",
        "node_modules/.pnpm/left@1.0.0/node_modules/left": "left",
        "packages/b/node_modules/left": "left",
        "node_modules/@acme/test/node_modules/left": "left",
        "node_modules/a/test/node_modules/left": "left",
        "node_modules/@acme/b/Fixtures/x/node_modules/left": "left",
        "node_modules/unnamed": "",
    }.items():
        manifest = top / place / "package.json"
        manifest.parent.mkdir(parents=True)
        manifest.write_text(json.dumps({"name": name, "version": "1.0.0"}))
    (top / "node_modules" / "loop").symlink_to("..")
    (top / "node_modules" / "out").symlink_to(tmp_path.parent)
    found = {one.place: one for one in packages_in(tmp_path)}
    assert len(found) == 10
    assert found["node_modules/foo"].own_name == "left"
    assert found["node_modules/unnamed"].own_name == "unnamed"
    assert {place for place, one in found.items() if one.is_sample} == {
        "node_modules/a/test/node_modules/left",
        "node_modules/@acme/b/Fixtures/x/node_modules/left",
    }


def test_package_that_nests_folders_deeper_than_python_recurses_is_read(tmp_path: Path) -> None:
    folder = tmp_path / "tree" / "node_modules" / "deep"
    folder.mkdir(parents=True)
    (folder / "package.json").write_text('{"name": "deep", "version": "1.0.0"}')
    deep = folder
    for _ in range(1_500):
        deep /= "a"
        deep.mkdir()
    found = [one.name for one in packages_in(tmp_path)]
    remove_tree(folder)  # which pytest could not
    assert found == ["deep"]
