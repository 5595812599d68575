"""Files that can't be read, in every way that a stranger's repository can have them."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from fallback_tier.repo import RepoContext, Settings

#: What a text of a manifest or lock is made into; the text names the affected package.
SPOILT: Mapping[str, Callable[[bytes], bytes]] = {
    "not UTF-8": lambda text: text + b"\n\xff\xfe\n",
    "UTF-16": lambda text: text.decode().encode("utf-16"),
    "NUL bytes": lambda text: text.replace(b"left", b"\0left\0", 1),
    "empty": lambda _text: b"",
    "nested 10,000 deep": lambda _text: b'{"left":' * 10_000 + b"1" + b"}" * 10_000,
    "a list 10,000 deep": lambda _text: b'{"left": ' + b"[" * 10_000 + b"]" * 10_000 + b"}",
    "deep TOML": lambda _text: b"left = " + b"[" * 10_000 + b"]" * 10_000 + b"\n",
    "no JSON, no TOML": lambda _text: b"{{{ left ]]] \x01 <<<",
    "another type": lambda _text: b'["left"]',
    "nothing at all": lambda _text: b"null",
}

#: What stands in the place of a file.
IN_ITS_PLACE: Mapping[str, Callable[[Path], object]] = {
    "a broken link": lambda place: place.symlink_to("nowhere"),
    "a link to itself": lambda place: place.symlink_to(place.name),
    "a link out of the repository": lambda place: place.symlink_to("/etc/hostname"),
    "a folder": lambda place: place.mkdir(),
    "a pipe": lambda place: os.mkfifo(place),
    "nothing (a sparse checkout)": lambda _place: None,
}

FAULTS = (*SPOILT, *IN_ITS_PLACE)


def spoil(root: Path, path: str, text: str, fault: str) -> None:
    """Put a file that can't be read at ``path``; its text would have been ``text``."""
    place = root / path
    place.parent.mkdir(parents=True, exist_ok=True)
    if fault in SPOILT:
        place.write_bytes(SPOILT[fault](text.encode()))
    else:
        IN_ITS_PLACE[fault](place)


def repository(root: Path, files: Mapping[str, str], **spoilt: tuple[str, str]) -> RepoContext:
    """The files, and those that can't be read (any name → (path, fault)); all tracked; no registry."""
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(text.encode())
    for path, fault in spoilt.values():
        text = files.get(path, "")
        (root / path).unlink(missing_ok=True)
        spoil(root, path, text, fault)
    paths = {*files, *(path for path, _ in spoilt.values())}
    return RepoContext(
        root=root,
        base_commit="0" * 40,
        tracked_files=tuple(sorted(paths)),
        manifests=(),
        fix_id="fix",
        gate_transition_id="transition",
        settings=Settings(offline=True),
    )
