"""The lock of yarn from version 2 on, as far as we look into it."""

import re

_COMPRESSION = re.compile(r"^  cacheKey: \"?\d+(?:c(\d))?", re.MULTILINE)
_METADATA = re.compile(r"^__metadata:\n  version: (\d+)", re.MULTILINE)


def berry_format(lock_text: str) -> int | None:
    """The number of its format; None: it is yarn classic's."""
    found = _METADATA.search(lock_text)
    if found is None:
        return 0 if lock_text.startswith("__metadata:") else None
    return int(found[1])


def berry_compression(lock_text: str) -> str:
    """How the project has archives compressed: the lock's checksums are of those."""
    found = _COMPRESSION.search(lock_text)
    return found[1] if found and found[1] else "mixed"
