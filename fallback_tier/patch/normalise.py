"""The identity of an edit set, without formatting and order: what "the same patch again" means.

Two edit sets on the same base have the same digest exactly if they result in the same files with the
same *normalised* lines. Normalised away, so equal:

* the order of the edits and of the files, how the change is split into edits, a file restored to its
  old content;
* blank lines, line ends, a missing last newline, blanks at a line's end, runs of blanks in a line;
* the width of indentation (tabs, two or four spaces); if it has no meaning (not Python, not YAML)
  the indentation itself;
* a file of which only such formatting changed.

Everything else differs: another line, the same lines at another location or in another order (a check
moved before what it guards is a new fix), in Python and YAML another nesting (the retry that repairs
an IndentationError must not be called a repeat), another path, a file created or deleted.
``a=1`` and ``a = 1`` differ: we collapse blanks, we don't parse languages.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath

from fallback_audit.events import Digest
from fallback_tier.outcome import FileChange

#: Suffixes of languages in which indentation is structure.
_INDENTED = frozenset({".py", ".pyi", ".pyx", ".yml", ".yaml"})

#: Python's own tab stop (language reference, 2.1.8).
_TAB_STOP = 8


def edit_digest(changes: Iterable[FileChange]) -> Digest:
    """Return the SHA-256 of the normalised edit set, in hexadecimal. Linear in the size of the files."""
    files = {
        change.path: (
            _text_digest(change.path, change.before),
            _text_digest(change.path, change.after),
        )
        for change in changes
    }
    entries = [[path, *sides] for path, sides in sorted(files.items()) if sides[0] != sides[1]]
    return hashlib.sha256(json.dumps(entries, separators=(",", ":")).encode()).hexdigest()


def _text_digest(path: str, text: str | None) -> str | None:
    """Return the digest of the normalised lines, or None for an absent file."""
    if text is None:
        return None
    lines = [line for line in text.split("\n") if line.strip()]
    bodies = [" ".join(line.split()) for line in lines]
    if PurePosixPath(path).suffix.lower() in _INDENTED:
        bodies = [
            f"{nesting}:{body}" for nesting, body in zip(_nesting(lines), bodies, strict=True)
        ]
    return hashlib.sha256("\n".join(bodies).encode()).hexdigest()


def _nesting(lines: Iterable[str]) -> Iterator[str]:
    """Yield each line's nesting by Python's indentation stack, whatever the step's width. A dedent between
    two levels, which Python refuses, is marked."""
    stack = [0]
    for line in lines:
        expanded = line.expandtabs(_TAB_STOP)
        width = len(expanded) - len(expanded.lstrip())
        dedented = False
        while width < stack[-1]:
            stack.pop()
            dedented = True
        between = width > stack[-1]
        if between:
            stack.append(width)
        yield f"{len(stack) - 1}{'!' if between and dedented else ''}"
