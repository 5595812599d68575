"""Input from outside, as a file that a person names or as JSON: reading it ends, and it has one meaning."""

import errno
import json
import os
import re
import stat
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any, BinaryIO

#: Descriptors of this process, by any name: standard input, and the pipes of a shell's ``<(…)``.
_OWN = ("/dev/stdin", "/dev/fd/", "/proc/self/fd/")

#: The limit of a dotted key's parts in TOML. tomllib keeps all n prefixes of a key of n parts: 40 KB of
#: ``a.a.a`` took five seconds and 1.6 GB. Real files have fewer than ten.
MAX_KEY_PARTS = 100

_LONG_KEY = re.compile(
    r"""(?<![\w"'-])(?:(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+)"""
    f"{{{MAX_KEY_PARTS}}}"
)

_KINDS = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


class DuplicateKeyError(ValueError):
    """An object of a JSON text has a key twice, and two parsers may use different values."""


def open_named(path: Path) -> BinaryIO:
    """Open a file that a person named.

    Raises OSError, also for a named pipe, a socket or a device, which may never end; a descriptor of this
    process (``/dev/stdin``) and ``/dev/null`` are read.
    """
    if str(path).startswith(_OWN):
        return path.open("rb")
    check_ends(path, path.stat())
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    file = os.fdopen(descriptor, "rb")
    try:
        check_ends(path, os.fstat(descriptor))
    except OSError:
        file.close()
        raise
    return file


def check_ends(path: Path, status: os.stat_result) -> None:
    """Raise OSError for a folder, a named pipe, a socket or a device: reading it may never end."""
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    is_null = stat.S_ISCHR(status.st_mode) and status.st_rdev == Path(os.devnull).stat().st_rdev
    if not stat.S_ISREG(status.st_mode) and not is_null:
        kind = _KINDS.get(stat.S_IFMT(status.st_mode), "something else")
        raise OSError(errno.EINVAL, f"it is {kind}, not a regular file", str(path))


def parse_json(text: str | bytes) -> Any:
    """Return the value of a JSON text. Raises ValueError (not JSON), DuplicateKeyError, RecursionError."""
    return json.loads(text, object_pairs_hook=_unique)


def parse_toml(text: str) -> dict[str, Any]:
    """Return the value of a TOML text. Raises ValueError if it is not TOML, or has a key of more than
    MAX_KEY_PARTS parts; RecursionError."""
    if (match := _LONG_KEY.search(text)) is not None:
        line = text.count("\n", 0, match.start()) + 1
        raise ValueError(f"a key has more than {MAX_KEY_PARTS} parts (at line {line})")
    return tomllib.loads(text)


def check_keys(text: str | bytes) -> None:
    """Raise DuplicateKeyError if an object has a key twice. A text that is not JSON is left to its own
    parser to refuse."""
    try:
        parse_json(text)
    except DuplicateKeyError:
        raise
    except (ValueError, RecursionError):
        return


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) < len(pairs):
        (key, _), *_ = Counter(name for name, _ in pairs).most_common(1)
        raise DuplicateKeyError(f"an object has the key {key[:100]!r} twice")
    return table
