"""The form of a plan as plain text: ``key: value`` lines, and a search/replace block for each edit.

::

    action: source_edit
    rationale: Names that lead outside are refused.
    citations: S1, GHSA-1
    path: pkg/file.py
    ```
    <<<<<<< SEARCH
        return os.path.join(folder, name)
    =======
        return inside(folder, name)
    >>>>>>> REPLACE
    ```

Nothing is escaped: the text between the markers is the code itself. A text is its lines joined by
``\\n``, without one at its end. If the new text has no line, the old lines are deleted with the last
one's end, not emptied. If the old text has no line, or an empty one, the new text is a whole file.
"""

import re
from collections.abc import Sequence
from typing import Final

from fallback_tier.answers.reading import THINKING
from fallback_tier.outcome import SearchReplace

SEARCH, DIVIDER, REPLACE = "<<<<<<< SEARCH", "=======", ">>>>>>> REPLACE"

#: Models miscount a marker's characters, or indent it; no line of code looks like these two.
_SEARCH_LINE: Final = re.compile(r"[ \t]{0,8}<{5,9}[ \t]?SEARCH[ \t:]*", re.IGNORECASE)
_REPLACE_LINE: Final = re.compile(r"[ \t]{0,8}>{5,9}[ \t]?REPLACE[ \t:]*", re.IGNORECASE)

#: Lines of text may look like this one (a heading's underline), so it counts only if there is no exact one.
_NEARLY_DIVIDER: Final = re.compile(r"[ \t]{0,8}={5,9}[ \t]*")

#: Characters that models put around a word: quotes, and Markdown's marks.
_AROUND: Final = "`\"'* \t"


def opens(line: str) -> bool:
    """Return whether a block begins with this line."""
    return _SEARCH_LINE.fullmatch(line) is not None


def closes(line: str) -> bool:
    """Return whether a block ends with this line."""
    return _REPLACE_LINE.fullmatch(line) is not None


def dividers(lines: Sequence[str]) -> list[int]:
    """Return which of a block's lines may separate old from new: unless it is one, the block has no single
    reading."""
    exact = [number for number, line in enumerate(lines) if line.rstrip() == DIVIDER]
    return exact or [number for number, line in enumerate(lines) if _NEARLY_DIVIDER.fullmatch(line)]


def parted(lines: Sequence[str], divider: int) -> tuple[str, str]:
    """Return a block's old and new text."""
    old, new = lines[:divider], lines[divider + 1 :]
    return "\n".join(old) + "\n" * (bool(old) and not new), "\n".join(new)


def word(value: str) -> str:
    """Return a value of one word, without the characters that models put around it."""
    return value.strip().strip(_AROUND)


def words(value: str) -> list[str]:
    """Return a list of words, separated by commas or blanks, as in ``S1, S2`` or ``["S1", "S2"]``."""
    parts = re.split(r"[,;\s]+", value.strip(_AROUND + "[]"))
    return [part for part in map(word, parts) if part]


def write_edit(edit: SearchReplace) -> str:
    """Return one edit in this form. Raises ValueError if it can't be expressed: a line of code is a marker,
    or the path would be read as another one."""
    path = edit.path
    if not path or path != word(path) or "\n" in path or THINKING[1] in path:
        raise ValueError("`path` would be read as another text")
    old, new = edit.old.split("\n"), edit.new.split("\n")
    if not edit.new and not old[-1]:
        old, new = old[:-1], []
    for line in (*old, *new):
        if opens(line) or closes(line) or line.rstrip() == DIVIDER or line.endswith("\r"):
            raise ValueError(f"a line of an edit of {edit.path!r} is a marker, or ends with one")
    block = [SEARCH, *old, DIVIDER, *new, REPLACE]
    return "\n".join([f"path: {edit.path}", "```", *block, "```"])
