"""uv's own words, as they are read for what they say of packages.

They quote a repository's requirements, however long: all here takes time in proportion to their length.
"""

import re

#: Of a release in uv's words (characters): name, extras, version range. What is longer is no release that
#: anybody publishes, and is not read.
MAX_RELEASE = 1_000

#: ``left{python_full_version < '3.9'}==1.0``: what was asked for under a condition.
#: A quoted value may hold a brace.
_CONDITION = re.compile(r"""\{(?:'[^']*'|"[^"]*"|[^{}'"])*\}""")

#: One way to read any text: else a range that a repository has takes hours.
_CLAUSE = r"(?:===|[<>=!~]=|[<>])[\w.!+*]+"
_RELEASE = re.compile(
    r"(?P<name>[A-Za-z0-9](?:[\w.-]{0,198}[A-Za-z0-9])?)(?:\[[^\]]*\])?"
    rf"(?P<spec>{_CLAUSE}(?:,{_CLAUSE})*)?",
    re.ASCII,
)


def one_line(output: str) -> str:
    """On one line, and without conditions: a release is named as it is elsewhere, and no text of a
    repository's is read as uv's."""
    return _CONDITION.sub("", " ".join(output.split()))


def release_before(line: str, end: int) -> tuple[str, str] | None:
    """Name and range (empty: any) of the release that the word before a place names, or None."""
    # One character more, so that the end of a longer word is not taken for all of it.
    return _release(line[max(0, end - MAX_RELEASE - 1) : end].rpartition(" ")[2])


def release_at(line: str, begin: int) -> tuple[str, str] | None:
    """… that the word which begins at a place names; a sentence may end with it."""
    return _release(line[begin : begin + MAX_RELEASE + 1].partition(" ")[0].rstrip(".,;"))


def _release(word: str) -> tuple[str, str] | None:
    match = _RELEASE.fullmatch(word) if len(word) <= MAX_RELEASE else None
    return None if match is None else (match["name"], match["spec"] or "")
