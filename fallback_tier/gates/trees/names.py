"""Names of files as git quotes them, and what is odd about some: no UTF-8, or no name for a patch."""

import re

from fallback_tier.patch.paths import unsafe_reason
from fallback_tier.repo import OddName

#: git-config(1), core.quotePath: as C writes strings, a byte as three octal digits.
_ESCAPE = re.compile(rb"\\(?:([0-7]{3})|(.))")
_LETTERS = {b"a": 7, b"b": 8, b"t": 9, b"n": 10, b"v": 11, b"f": 12, b"r": 13}


def unquoted(name: str) -> str:
    """A path as git prints it, as a name on the disk: surrogates stand for bytes that are no UTF-8."""
    if not name.startswith('"'):
        return name
    return _ESCAPE.sub(_byte, name[1:-1].encode()).decode("utf-8", "surrogateescape")


def printable(name: str) -> str:
    """A name as it can be shown and recorded: bytes that are no UTF-8 as ``\\xe9``."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def odd_name(name: str) -> OddName | None:
    """Why a file of this name is left alone; None: it isn't odd."""
    shown = printable(name)
    if shown != name:
        return OddName(real=name, problem=f"'{shown}' has a name that is not UTF-8.")
    if (why := unsafe_reason(name)) is not None:
        return OddName(real=name, problem=f"{name!r} has a name that no patch can have: {why}.")
    return None


def _byte(escape: re.Match[bytes]) -> bytes:
    octal, letter = escape.groups()
    return bytes([int(octal, 8) if octal else _LETTERS.get(letter, letter[0])])
