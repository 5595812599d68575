"""Unpacks ZIP files that users upload."""

import zipfile
from pathlib import Path

MAX_FILE_BYTES = 1_000_000


def target_of(folder, name):
    """The path of the file ``name`` of an archive."""
    return Path(folder) / name


def is_wanted(info):
    """Folders are made as they are needed; what is too large is left out."""
    return not info.is_dir() and info.file_size <= MAX_FILE_BYTES


def unbox(archive, folder):
    """Write the files of ``archive`` below ``folder``; returns the names of those written."""
    written = []
    with zipfile.ZipFile(archive) as box:
        for info in box.infolist():
            if not is_wanted(info):
                continue
            target = target_of(folder, info.filename)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(box.read(info))
            written.append(info.filename)
    return written
