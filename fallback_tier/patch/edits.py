"""Search/replace edits, applied in memory. The tool computes the diff; a model never writes one.

A model's errors in white space are tolerated if only one location remains (the second part of this module);
all else must be exact. Edits are written with ``\n`` and also match a CRLF file; inserted text gets the
line ends of its location. A new file has plain line ends, and its last line is ended.
"""

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, NamedTuple

from fallback_tier.errors import EditError
from fallback_tier.outcome import FileChange, SearchReplace
from fallback_tier.patch.diff import git_lines
from fallback_tier.repo import RepoContext

#: How many locations an ambiguous edit's message lists: enough to see what to add around it.
_SHOWN_PLACES = 5

#: How many locations are counted: whether it is a hundred or a thousand makes no difference.
_MAX_COUNTED = 100


class Merged(NamedTuple):
    """The result of edits. ``loose``: those that matched except for white space (``path: edit 2``)."""

    changes: tuple[FileChange, ...]
    loose: tuple[str, ...] = ()


class Replaced(NamedTuple):
    """A text with one edit applied. ``loose``: its old text matched except for white space."""

    text: str
    loose: bool


def apply_edits(repo: RepoContext, edits: Sequence[SearchReplace]) -> tuple[FileChange, ...]:
    """Return the changes of a solved example's edits, sorted by path.

    Edits match exactly or not at all, because no model looks at a replay. Edits of one file apply in order.
    Raises EditError if an ``old`` is not found exactly once or nothing changes; RepositoryError if a path
    is not a tracked text file.
    """
    return _merge(repo, (), edits, _exactly).changes


def merge_edits(
    repo: RepoContext, changes: Sequence[FileChange], edits: Sequence[SearchReplace]
) -> Merged:
    """Return a recipe's changes with a plan's edits on top, one change per path, sorted.

    The same as ``apply_edits``, but with ``replace_in_plan``, and an edit without ``old`` creates its file
    (EditError if it exists). Edits see the recipe's text. Whether a file *may* be created, ``creation``
    decides.
    """
    return _merge(repo, changes, edits, replace_in_plan)


def _merge(
    repo: RepoContext,
    changes: Sequence[FileChange],
    edits: Sequence[SearchReplace],
    replace: Callable[[str, SearchReplace], Replaced],
) -> Merged:
    merged = {change.path: change for change in changes}
    loose: list[str] = []
    for number, edit in enumerate(edits, start=1):
        change = merged.get(edit.path)
        if edit.makes_file:
            merged[edit.path] = _made(repo, edit, is_known=change is not None)
            continue
        if change is None:
            text = repo.read_text(edit.path)
            change = FileChange(path=edit.path, before=text, after=text)
        if change.after is None:
            raise EditError(
                f"{edit.path!r} can't be edited: the recipe deletes it.",
                next_step="Leave this file out of the edits.",
                kind="deleted",
            )
        replaced = replace(change.after, edit)
        merged[edit.path] = change.model_copy(update={"after": replaced.text})
        loose += [f"{edit.path}: edit {number}"] * replaced.loose
    changed = tuple(change for _, change in sorted(merged.items()) if change.before != change.after)
    if not changed:
        raise EditError(
            "The edits change nothing: every new text equals the old one.",
            next_step="Send edits whose `new` differs from `old`, or refuse.",
            kind="changes_nothing",
        )
    return Merged(changed, tuple(loose))


def new_file_text(edit: SearchReplace) -> str:
    """Return the text of the file that an edit creates, the same for each form of a plan: plain line ends,
    the last line ended."""
    text = _unix(edit.new)
    return text if not text or text.endswith("\n") else f"{text}\n"


def _made(repo: RepoContext, edit: SearchReplace, *, is_known: bool) -> FileChange:
    if is_known or repo.has(edit.path):
        raise EditError(
            f"An edit of {edit.path!r} has no old text, which is for a new file, and this one exists.",
            next_step="Copy into `old` the text of the file that `new` replaces, or name another path.",
            kind="file_exists",
        )
    return FileChange(path=edit.path, before=None, after=new_file_text(edit))


def replace_in_plan(text: str, edit: SearchReplace) -> Replaced:
    """Apply one edit of a model's plan: exactly, or otherwise at the one location that differs only in
    white space. Raises EditError unless there is exactly one."""
    spans = _places(text, edit.old)
    if spans:
        return Replaced(_replaced(text, edit, spans), loose=False)
    lines = _loose_lines(text, edit.old)
    if len(lines) > 1:
        raise EditError(
            f"The old text of an edit is not in {edit.path!r} (0 matches); but for white space it is"
            f" there several times ({_lines([first + 1 for first in lines])}).",
            next_step="Copy `old` from the file exactly, with its indentation and neighbouring lines.",
            kind="several_but_for_space",
        )
    replaced = _loosely_replaced(text, lines[0], edit.old, edit.new) if lines else None
    if replaced is None:
        raise _not_once(text, edit, [])
    return Replaced(replaced, loose=True)


def _exactly(text: str, edit: SearchReplace) -> Replaced:
    return Replaced(replace_once(text, edit), loose=False)


def replace_once(text: str, edit: SearchReplace) -> str:
    """Return the text of ``edit.path`` with ``edit.old`` replaced. Raises EditError unless found once."""
    return _replaced(text, edit, _places(text, edit.old))


def _replaced(text: str, edit: SearchReplace, spans: Sequence[tuple[int, int]]) -> str:
    if len(spans) != 1:
        raise _not_once(text, edit, [start for start, _ in spans])
    start, end = spans[0]
    new = _unix(edit.new).replace("\n", _line_end_at(text, start, end))
    return text[:start] + new + text[end:]


def _places(text: str, old: str) -> list[tuple[int, int]]:
    """Return the span of each occurrence of ``old``, whatever the line ends, also overlapping ones (``aa``
    in ``aaa``).

    At most _MAX_COUNTED. Linear: a regular expression would be quadratic for repetitive text.
    """
    plain, wanted = _unix(text), _unix(old)
    spans: list[tuple[int, int]] = []
    at = plain.find(wanted)
    while at >= 0 and len(spans) < _MAX_COUNTED:
        spans.append((at, at + len(wanted)))
        at = plain.find(wanted, at + 1)
    if len(plain) == len(text):
        return spans
    ends = [match.start() - number for number, match in enumerate(re.finditer("\r\n", text))]
    return [
        (start + bisect_left(ends, start), end + bisect_left(ends, end)) for start, end in spans
    ]


def _unix(text: str) -> str:
    return text.replace("\r\n", "\n")


def _line_end_at(text: str, start: int, end: int) -> str:
    """Return the line end in use at a span: inside it, else after it, else before it, else ``\\n``."""
    newline = text.find("\n", start)
    if newline < 0:
        newline = text.rfind("\n", 0, end)
    return "\r\n" if newline > 0 and text[newline - 1] == "\r" else "\n"


def _not_once(text: str, edit: SearchReplace, starts: list[int]) -> EditError:
    if not starts:
        return EditError(
            f"The old text of an edit is not in {edit.path!r} (0 matches).{_near_miss(text, edit)}",
            next_step="Copy `old` from the file exactly, with its indentation.",
            kind="no_match",
        )
    more = " or more" if len(starts) == _MAX_COUNTED else ""
    places = _lines([text.count("\n", 0, start) + 1 for start in starts[: _SHOWN_PLACES + 1]])
    return EditError(
        f"The old text of an edit is in {edit.path!r} {len(starts)} times{more} ({places}).",
        next_step="Add neighbouring lines to `old` until it names one place.",
        kind="several_matches",
    )


def _lines(numbers: Sequence[int]) -> str:
    shown = ", ".join(map(str, numbers[:_SHOWN_PLACES]))
    return f"lines {shown}{', …' if len(numbers) > _SHOWN_PLACES else ''}"


def _near_miss(text: str, edit: SearchReplace) -> str:
    """Name the line where ``old`` would match without white space: the most common error of a model."""
    words = " ".join(edit.old.split())
    if not words:
        return ""
    lines = [
        (number, " ".join(line.split())) for number, line in enumerate(text.split("\n"), start=1)
    ]
    full = [(number, body) for number, body in lines if body]
    joined = "\n".join(body for _, body in full)
    at = joined.replace("\n", " ").find(words)
    if at < 0:
        return ""
    line, _ = full[joined.count("\n", 0, at)]
    return f" It differs only in white space from line {line}."


# Edits whose old text differs from the file's only in white space: the errors that models make, and no
# others.
#
# Tolerated, together or alone: blanks at a line's end, blank lines before and after the old text, and an
# indentation that is too large or too small by the same amount in all its lines. Never tolerated: a change
# inside a line, a tab for four spaces, a missing line. No match by similarity, as in editors that fall back
# on edit distance: a fix in the wrong one of two similar branches would count as a fix.
#
# Whole lines are compared, so a match replaces whole lines; the common beginning and end of old and new
# keep the file's own bytes.

#: White space of source code. Form feeds, no-break spaces and the like are content.
_INDENT: Final = " \t"
_BLANKS: Final = _INDENT + "\r"

#: Locations that are reported. One is needed; if there are more, a few show what to add around the old
#: text.
_MAX_PLACES: Final = 6

#: Quotes of strings that may span lines (Python, JavaScript).
_LONG_QUOTES: Final = ('"""', "'''", "`")


@dataclass(frozen=True)
class _Shift:
    """The indentation that the file's lines have in addition (``more``) or lack (``less``), or ""."""

    more: str
    less: str


@dataclass(frozen=True)
class _Core:
    """Lines without the blank ones around them, and the numbers of those."""

    lines: tuple[str, ...]
    before: int
    after: int


def _loose_lines(text: str, old: str) -> tuple[int, ...]:
    """Return the lines (from 0) at which the words of ``old`` begin, at any indentation; none if it has no
    word.

    At most _MAX_PLACES: if they occur twice, only exact text can tell the locations apart.
    """
    core = _core(old)
    if not re.search(r"\w", "".join(core.lines)):
        return ()
    return tuple(islice(_alike(text.split("\n"), core.lines), _MAX_PLACES))


def _loosely_replaced(text: str, first: int, old: str, new: str) -> str | None:
    """Return the text with ``new`` in place of ``old``, at line ``first``, with that line's indentation.

    None: the lines differ by more than one indentation, or the new ones can't be shifted safely (in a
    string of several lines, or too little indentation to remove).
    """
    core = _core(old)
    lines = _trimmed(new, core)
    head = _common(core.lines, lines)
    tail = _common(core.lines[head:][::-1], lines[head:][::-1])
    inserted = lines[head : len(lines) - tail]
    pairs = zip(text.split("\n")[first:], core.lines, strict=False)
    shifts = {_shift(actual, typed) for actual, typed in pairs if typed.strip(_BLANKS)}
    shift = shifts.pop() if len(shifts) == 1 else None
    if shift is None:
        return None
    if shift.more or shift.less:
        if _indentation_is_content(core.lines[:head], inserted):
            return None
        if not all(line.startswith(shift.less) for line in inserted if line.strip(_BLANKS)):
            return None
        inserted = [
            shift.more + line.removeprefix(shift.less) if line.strip(_BLANKS) else line
            for line in inserted
        ]
    return _spliced(text, slice(first + head, first + len(core.lines) - tail), inserted)


def _spliced(text: str, span: slice, inserted: Sequence[str]) -> str:
    """Return the text with the lines of a span replaced, with that location's line end. A file without an
    end of its last line stays so."""
    lines = git_lines(text)
    neighbours = (*lines[span.start : span.stop + 1], *lines[span.start - 1 : span.start])
    ended = next((line for line in neighbours if line.endswith("\n")), "\n")
    line_end = "\r\n" if ended.endswith("\r\n") else "\n"
    is_open = not text.endswith("\n") and (bool(inserted) or span.stop < len(lines))
    if is_open:
        lines[-1] += line_end
    lines[span] = [line + line_end for line in inserted]
    whole = "".join(lines)
    return whole.removesuffix(line_end) if is_open else whole


def _core(text: str) -> _Core:
    lines = text.replace("\r\n", "\n").split("\n")
    full = [number for number, line in enumerate(lines) if line.strip(_BLANKS)]
    if not full:
        return _Core((), len(lines), 0)
    first, last = full[0], full[-1] + 1
    return _Core(tuple(lines[first:last]), first, len(lines) - last)


def _trimmed(new: str, old: _Core) -> list[str]:
    """Return the lines of ``new`` without as many blank ones around them as ``old`` had."""
    core = _core(new)
    if not core.lines:
        return [""] * max(0, core.before - old.before - old.after)
    blank_before, blank_after = max(0, core.before - old.before), max(0, core.after - old.after)
    return [*[""] * blank_before, *core.lines, *[""] * blank_after]


def _alike(lines: Sequence[str], core: Sequence[str]) -> Iterator[int]:
    """Yield the numbers of the lines at which the core's words begin, at any indentation."""
    bodies, wanted = _bodies(lines), _bodies(core)
    at = number = 0
    while (match_at := bodies.find(wanted, at)) >= 0:
        number += bodies.count("\n", at, match_at)
        yield number
        at, number = match_at + 1, number + 1


def _bodies(lines: Sequence[str]) -> str:
    return "".join(f"\n{line.rstrip(_BLANKS).lstrip(_INDENT)}" for line in lines) + "\n"


def _shift(actual: str, typed: str) -> _Shift | None:
    actual_indent, typed_indent = _indentation(actual), _indentation(typed)
    if actual_indent.endswith(typed_indent):
        return _Shift(actual_indent.removesuffix(typed_indent), "")
    return (
        _Shift("", typed_indent.removesuffix(actual_indent))
        if typed_indent.endswith(actual_indent)
        else None
    )


def _indentation(line: str) -> str:
    return line[: len(line) - len(line.lstrip(_INDENT))]


def _indentation_is_content(before: Sequence[str], inserted: Sequence[str]) -> bool:
    """Return whether an inserted line may begin inside a string."""
    is_open = any("".join(before).count(quote) % 2 for quote in _LONG_QUOTES)
    continues = any(line.endswith("\\") for line in (*before[-1:], *inserted))
    opens_string = any(line.count(quote) % 2 for line in inserted for quote in _LONG_QUOTES)
    return is_open or continues or opens_string


def _common(first: Sequence[str], second: Sequence[str]) -> int:
    count = 0
    for left, right in zip(first, second, strict=False):
        if left != right:
            break
        count += 1
    return count
