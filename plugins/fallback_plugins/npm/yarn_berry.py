"""The lock of yarn from version 2 on, as far as we look into it."""

import re

_METADATA = re.compile(r"^__metadata:\n  version: (\d+)", re.MULTILINE)


def berry_format(lock_text: str) -> int | None:
    """The number of its format; None: it is yarn classic's."""
    found = _METADATA.search(lock_text)
    if found is None:
        return 0 if lock_text.startswith("__metadata:") else None
    return int(found[1])
