"""What a tool said, as a row keeps it: short, without names of machines, temporary folders, registries."""

import re
from collections.abc import Iterable

#: How much of a tool's own words a row keeps.
SAID_CHARS = 300

#: A host that a client was configured with says something about a machine.
_HOST = re.compile(
    r"\b(https?://)[^\s/'\"]+"
    r"|\b()(?:[\w-]+\.)*(?:pypi|pythonhosted|npmjs|yarnpkg|npmmirror)\.(?:org|com)\b(?::\d+)?"
)


def cleaned(text: str, places: Iterable[tuple[str, str]] = (), chars: int = SAID_CHARS) -> str:
    """One line, short, without places of this machine."""
    for place, name in places:
        text = text.replace(place, name)
    return _HOST.sub(lambda match: f"{match[1] or ''}HOST", " ".join(text.split()))[:chars]
