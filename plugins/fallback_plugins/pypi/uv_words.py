"""uv's own words, as they are read for what they say of packages."""

import re

#: ``left{python_full_version < '3.9'}==1.0``: what was asked for under a condition.
_CONDITION = re.compile(r"\{[^{}]*\}")


def one_line(output: str) -> str:
    """On one line, and without conditions: a release is named as it is elsewhere, and no text of a
    repository's is read as uv's."""
    return _CONDITION.sub("", " ".join(output.split()))
