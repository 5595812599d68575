"""A patch as rows: what was, what is, with line numbers; code in colours, by CSS classes alone."""

import re
from dataclasses import dataclass, field

from markupsafe import Markup
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexer import Lexer
from pygments.lexers import TextLexer, get_lexer_for_filename
from pygments.util import ClassNotFound

from fallback_audit.showing.describe import visible

#: Rows that a page shows; the rest is in the file that can be saved. A browser lays out so many at once.
MAX_ROWS = 3_000

#: A longer line is shown without colours, and cut: it is generated code, and no lexer is fast on it.
MAX_LINE_CHARS = 1_000

_HUNK = re.compile(r"@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@(.*)")

_FORMAT = HtmlFormatter(nowrap=True)


@dataclass(frozen=True)
class Row:
    """One line. ``kind``: add, del, same, or note (what git says of the file's end)."""

    kind: str
    old: int | None
    new: int | None
    code: Markup

    @property
    def sign(self) -> str:
        """As in the patch: colours alone say nothing to some."""
        return {"add": "+", "del": "-"}.get(self.kind, "")


@dataclass
class Hunk:
    """``about``: what git shows of the function around it."""

    about: str
    rows: list[Row] = field(default_factory=list)


@dataclass
class FileDiff:
    """One file of a patch. ``notes``: modes, renames, as the patch has them."""

    path: str
    hunks: list[Hunk] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    added: int = 0
    removed: int = 0


@dataclass
class Diff:
    """A patch. ``rows_left_out``: those beyond what a page shows."""

    files: list[FileDiff] = field(default_factory=list)
    rows_left_out: int = 0

    @property
    def added(self) -> int:
        """Lines, of all files."""
        return sum(one.added for one in self.files)

    @property
    def removed(self) -> int:
        """Lines, of all files."""
        return sum(one.removed for one in self.files)


def read_diff(text: str) -> Diff:
    """Read an untrusted unified diff: what is not understood is shown as it is."""
    found, rows = Diff(), 0
    lines: list[tuple[str, str]] = []
    at = (0, 0)

    def flush() -> None:
        nonlocal rows
        if lines and found.files and found.files[-1].hunks:
            kept = lines[: max(0, MAX_ROWS - rows)]
            found.rows_left_out += len(lines) - len(kept)
            rows += len(kept)
            found.files[-1].hunks[-1].rows = _rows(found.files[-1].path, kept, *at)
        lines.clear()

    for line in text.splitlines():
        if line.startswith("diff --git "):
            flush()
            found.files.append(FileDiff(line.rpartition(" b/")[2]))
        elif (hunk := _HUNK.match(line)) is not None:
            flush()
            found.files = found.files or [FileDiff("")]
            found.files[-1].hunks.append(Hunk(hunk[3].strip()))
            at = (int(hunk[1]), int(hunk[2]))
        elif found.files and found.files[-1].hunks:
            lines.append(_kind(line))
            found.files[-1].added += line.startswith("+")
            found.files[-1].removed += line.startswith("-")
        elif not line.startswith(("index ", "--- ", "+++ ")):
            found.files = found.files or [FileDiff("")]
            found.files[-1].notes.append(line)
    flush()
    return found


def _kind(line: str) -> tuple[str, str]:
    kinds = {"+": "add", "-": "del", "\\": "note"}
    kind = kinds.get(line[:1], "same")
    return kind, line if kind == "note" else line[1:]


def _rows(path: str, lines: list[tuple[str, str]], old: int, new: int) -> list[Row]:
    found = []
    for (kind, _), code in zip(lines, _coloured(path, [text for _, text in lines]), strict=True):
        here = (old if kind in ("del", "same") else None, new if kind in ("add", "same") else None)
        found.append(Row(kind, *here, code))
        old += kind in ("del", "same")
        new += kind in ("add", "same")
    return found


def _coloured(path: str, texts: list[str]) -> list[Markup]:
    """Each line's code, in one reading of all of them: a string may go over several."""
    shown = [visible(text, lines=True) for text in texts]
    if all(len(text) <= MAX_LINE_CHARS for text in shown):
        made = highlight("\n".join(shown) + "\n", _lexer(path), _FORMAT).splitlines()
        if len(made) == len(shown):
            return [Markup(line) for line in made]  # noqa: S704 (pygments escapes it)
    return [Markup.escape(_cut(text)) for text in shown]


def _cut(text: str) -> str:
    left = len(text) - MAX_LINE_CHARS
    return text if left <= 0 else f"{text[:MAX_LINE_CHARS]} … ({left:,} more characters)"


def _lexer(path: str) -> Lexer:
    try:
        found = get_lexer_for_filename(path, stripnl=False)
    except ClassNotFound:
        return TextLexer(stripnl=False)
    return found
