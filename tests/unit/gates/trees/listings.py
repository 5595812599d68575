"""Looking at trees from outside, as tests compare them."""

from pathlib import Path

from fallback_tier.files.tree import FileTree, merged


def snapshot(root: Path) -> dict[str, tuple[int, int, bytes]]:
    """Every file below a folder, .git included: mode, time of change, content.

    Without the times of git's objects: git renews the time of one that it would have written anew,
    in a borrowed store too, so that it is not collected meanwhile.
    """
    found = {}
    for path in sorted(root.rglob("*")):
        stat = path.lstat()
        when = 0 if "objects" in path.parts else stat.st_mtime_ns
        content = path.read_bytes() if path.is_file() else b""
        found[str(path.relative_to(root))] = (stat.st_mode, when, content)
    return found


def listing(tree: FileTree) -> set[str]:
    """Everything in a tree but git's own, folders too."""
    return {path for path in _below(list(tree.layers), "") if path.partition("/")[0] != ".git"}


def _below(folders: list[Path], at: str) -> set[str]:
    found = set()
    for name in {place.name for folder in folders for place in folder.iterdir()}:
        inside = merged(folders, name)
        if inside:
            found.add(f"{at}{name}")
            if inside[0].is_dir() and not inside[0].is_symlink():
                found |= _below(inside, f"{at}{name}/")
    return found
