"""Layered trees read from outside: what overlayfs shows, links never followed."""

import errno
import os
from pathlib import Path

import pytest

from fallback_tier.files.tree import OPAQUE, FileTree, write_whiteout
from tests.fakes.repository import write


@pytest.fixture
def tree(tmp_path: Path) -> FileTree:
    write(tmp_path / "base", {"a": "base", "b": "base", "d/x": "base", "d/y": "base", "f": "base"})
    write(tmp_path / "patch", {"b": "patch", "d/y": "patch", "d/new": "patch"})
    write(tmp_path / "upper", {"d/x": "upper", "nm/z": "upper"})
    (tmp_path / "work").mkdir()
    return FileTree(
        root=tmp_path / "tree",
        lower=(tmp_path / "base", tmp_path / "patch"),
        upper=tmp_path / "upper",
        work=tmp_path / "work",
    )


def text(tree: FileTree, path: str) -> str | None:
    found = tree.find(path)
    return None if found is None else found.read_text()


def upper(tree: FileTree) -> Path:
    assert tree.upper is not None
    return tree.upper


def test_the_topmost_layer_that_has_a_file_shows(tree: FileTree) -> None:
    names = ("a", "b", "d/x", "d/y", "d/new", "nm/z", "none", "d/none", "a/none")
    reported = [text(tree, name) for name in names]
    assert reported == ["base", "patch", "upper", "patch", "patch", "upper", None, None, None]
    assert tree.has_folder("d")
    assert not tree.has_folder("a")


def test_a_whiteout_hides_what_lies_below(tree: FileTree) -> None:
    write_whiteout(tree.lower[1] / "a")
    write_whiteout(upper(tree) / "b")
    assert (text(tree, "a"), text(tree, "b")) == (None, None)
    (upper(tree) / "a").write_text("again")
    assert text(tree, "a") == "again"


def test_an_opaque_folder_hides_what_lies_below(tree: FileTree) -> None:
    os.setxattr(upper(tree) / "d", OPAQUE, b"y")
    assert (text(tree, "d/x"), text(tree, "d/y")) == ("upper", None)
    os.removexattr(upper(tree) / "d", OPAQUE)
    assert text(tree, "d/y") == "patch"


def test_a_file_and_a_folder_may_stand_in_for_each_other(tree: FileTree) -> None:
    write(upper(tree), {"a/inner": "upper"})
    (tree.lower[1] / "f").mkdir()
    assert text(tree, "a/inner") == "upper"
    assert tree.has_folder("f")
    (upper(tree) / "f").write_text("file")
    assert text(tree, "f") == "file"


@pytest.mark.parametrize("path", ["../base/a", "/etc/passwd", "d/../../base/a"])
def test_nothing_outside_is_found(tree: FileTree, path: str) -> None:
    with pytest.raises(FileNotFoundError):
        tree.locate(path)


def test_links_are_never_followed(tree: FileTree, tmp_path: Path) -> None:
    write(tmp_path / "elsewhere", {"secret": "x"})
    (upper(tree) / "link").symlink_to(tmp_path / "elsewhere")
    (upper(tree) / "alias").symlink_to(tmp_path / "elsewhere" / "secret")
    for path in ("link", "link/secret", "alias"):
        with pytest.raises(OSError) as caught:
            tree.locate(path)
        assert caught.value.errno == errno.ELOOP
        with pytest.raises(FileExistsError):
            tree.add(path, b"")
        with pytest.raises(FileExistsError):
            tree.add(f"{path}/new", b"")
    assert {place.name for place in (tmp_path / "elsewhere").iterdir()} == {"secret"}


def test_a_new_file_lies_on_top_and_replaces_nothing(tree: FileTree) -> None:
    tree.add("d/more/test.py", b"new")
    assert text(tree, "d/more/test.py") == "new"
    assert text(tree, "d/y") == "patch", "the folder is merged, not replaced"
    for taken in ("a", "d", "d/y", "nm/z", "a/below"):
        with pytest.raises(FileExistsError):
            tree.add(taken, b"new")
    write_whiteout(tree.lower[1] / "a")
    tree.add("a/below", b"new")
    assert text(tree, "a/below") == "new"


def test_a_plain_folder_is_a_tree_of_one_layer(tmp_path: Path) -> None:
    write(tmp_path, {"a/b": "x"})
    tree = FileTree(root=tmp_path)
    tree.add("a/c", b"y")
    assert (text(tree, "a/b"), text(tree, "a/c"), tree.layers) == ("x", "y", (tmp_path,))


def test_a_layer_below_all_others_covers_nothing(tmp_path: Path) -> None:
    base, installed = tmp_path / "base", tmp_path / "installed"
    for folder, message in ((base, "base"), (installed, "installed")):
        (folder / "m").mkdir(parents=True)
        (folder / "m" / "both").write_text(message)
        (folder / "m" / message).touch()
    tree = FileTree(root=tmp_path / "t", lower=(base,), upper=base, work=base).over(installed)
    assert tree.locate("m/both").read_text() == "base"
    assert tree.find("m/base") is not None
    assert tree.find("m/installed") is not None
