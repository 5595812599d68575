"""A patch as rows: old and new lines with their numbers; code is coloured by CSS classes only."""

import re
from dataclasses import dataclass, field

from markupsafe import Markup
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexer import Lexer
from pygments.lexers import TextLexer, get_lexer_for_filename
from pygments.util import ClassNotFound

from fallback_audit.showing.describe import visible

#: Rows that a page shows, as many as a browser can lay out at once; the file that can be saved has all.
MAX_ROWS = 3_000

#: A longer line is shown without colours, and truncated: it is generated code, on which lexers are slow.
MAX_LINE_CHARS = 1_000

_HUNK = re.compile(r"@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@(.*)")

_FORMAT = HtmlFormatter(nowrap=True)


@dataclass(frozen=True)
class Row:
    """One line. ``kind``: add, del, same, or note (git's remark about the file's end)."""

    kind: str
    old: int | None
    new: int | None
    code: Markup

    @property
    def sign(self) -> str:
        """Return the sign of the patch: not everyone can see colours."""
        return {"add": "+", "del": "-"}.get(self.kind, "")


@dataclass
class Hunk:
    """A hunk. ``about``: the function around it, as git shows it."""

    about: str
    rows: list[Row] = field(default_factory=list)


@dataclass
class FileDiff:
    """One file of a patch. ``notes``: modes, renames, as in the patch."""

    path: str
    hunks: list[Hunk] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    added: int = 0
    removed: int = 0


@dataclass
class Diff:
    """A patch. ``rows_left_out``: the number of rows that a page does not show."""

    files: list[FileDiff] = field(default_factory=list)
    rows_left_out: int = 0

    @property
    def added(self) -> int:
        """Return the number of added lines in all files."""
        return sum(file.added for file in self.files)

    @property
    def removed(self) -> int:
        """Return the number of removed lines in all files."""
        return sum(file.removed for file in self.files)


def read_diff(text: str) -> Diff:
    """Return an untrusted unified diff; what is not understood is shown unchanged."""
    diff, rows = Diff(), 0
    lines: list[tuple[str, str]] = []
    start = (0, 0)

    def flush() -> None:
        nonlocal rows
        if lines and diff.files and diff.files[-1].hunks:
            shown = lines[: max(0, MAX_ROWS - rows)]
            diff.rows_left_out += len(lines) - len(shown)
            rows += len(shown)
            diff.files[-1].hunks[-1].rows = _rows(diff.files[-1].path, shown, *start)
        lines.clear()

    for line in text.splitlines():
        if line.startswith("diff --git "):
            flush()
            diff.files.append(FileDiff(line.rpartition(" b/")[2]))
        elif (hunk := _HUNK.match(line)) is not None:
            flush()
            diff.files = diff.files or [FileDiff("")]
            diff.files[-1].hunks.append(Hunk(hunk[3].strip()))
            start = (int(hunk[1]), int(hunk[2]))
        elif diff.files and diff.files[-1].hunks:
            lines.append(_kind(line))
            diff.files[-1].added += line.startswith("+")
            diff.files[-1].removed += line.startswith("-")
        elif not line.startswith(("index ", "--- ", "+++ ")):
            diff.files = diff.files or [FileDiff("")]
            diff.files[-1].notes.append(line)
    flush()
    return diff


def _kind(line: str) -> tuple[str, str]:
    kinds = {"+": "add", "-": "del", "\\": "note"}
    kind = kinds.get(line[:1], "same")
    return kind, line if kind == "note" else line[1:]


def _rows(path: str, lines: list[tuple[str, str]], old: int, new: int) -> list[Row]:
    rows = []
    for (kind, _), code in zip(lines, _coloured(path, [text for _, text in lines]), strict=True):
        numbers = (
            old if kind in ("del", "same") else None,
            new if kind in ("add", "same") else None,
        )
        rows.append(Row(kind, *numbers, code))
        old += kind in ("del", "same")
        new += kind in ("add", "same")
    return rows


def _coloured(path: str, texts: list[str]) -> list[Markup]:
    """Return each line's code, highlighted in one pass over all lines: a string may span several."""
    shown = [visible(text, lines=True) for text in texts]
    if all(len(text) <= MAX_LINE_CHARS for text in shown):
        highlighted = highlight("\n".join(shown) + "\n", _lexer(path), _FORMAT).splitlines()
        if len(highlighted) == len(shown):
            return [Markup(line) for line in highlighted]  # noqa: S704 (pygments escapes it)
    return [Markup.escape(_cut(text)) for text in shown]


def _cut(text: str) -> str:
    excess = len(text) - MAX_LINE_CHARS
    return text if excess <= 0 else f"{text[:MAX_LINE_CHARS]} … ({excess:,} more characters)"


def _lexer(path: str) -> Lexer:
    try:
        lexer = get_lexer_for_filename(path, stripnl=False)
    except ClassNotFound:
        return TextLexer(stripnl=False)
    return lexer
