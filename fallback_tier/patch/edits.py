"""Search/replace edits, applied in memory. We compute the diff; a model never types one.

A model's slips in white space are forgiven where they leave one place (``patch.loose``); everything else
must be exact. Line ends are not the model's business: edits are typed with ``\\n`` and match a CRLF file
too; what they insert gets the line ends of the place where it lands. A new file has plain ones, and its
last line is ended.
"""

import re
from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import NamedTuple

from fallback_tier.errors import EditError
from fallback_tier.outcome import FileChange, SearchReplace
from fallback_tier.patch.loose import loose_lines, loosely_replaced
from fallback_tier.repo import RepoContext

#: How many places an ambiguous edit's message lists: enough to see what to add around it.
_SHOWN_PLACES = 5

#: How many places are counted: whether it is a hundred or a thousand makes no difference.
_MAX_COUNTED = 100


class Merged(NamedTuple):
    """What edits made. ``loose``: those that matched only but for white space (``path: edit 2``)."""

    changes: tuple[FileChange, ...]
    loose: tuple[str, ...] = ()


class Replaced(NamedTuple):
    """A text with one edit made. ``loose``: its old text matched only but for white space."""

    text: str
    loose: bool


def apply_edits(repo: RepoContext, edits: Sequence[SearchReplace]) -> tuple[FileChange, ...]:
    """What the edits of a solved example change, sorted by path; the repository is not written.

    Exactly or not at all: what is replayed without a model's look may not be stretched. Several edits of
    one file apply in order, each to what the one before left. Raises EditError where an ``old`` is not
    found exactly once, or where nothing changes in the end; RepositoryError where a path is not a
    tracked text file.
    """
    return _merge(repo, (), edits, _exactly).changes


def merge_edits(
    repo: RepoContext, changes: Sequence[FileChange], edits: Sequence[SearchReplace]
) -> Merged:
    """A recipe's changes (or none) with a plan's edits on top, one change a path, sorted by path.

    As ``apply_edits``, but each edit as ``replace_in_plan`` does, and one without ``old`` makes its file,
    which later ones may edit; EditError where that exists. An edit of a file that the recipe changed sees
    the recipe's text. Files that end as they began are left out. Whether a file *may* be made is not asked
    here (``creation``).
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
        made = replace(change.after, edit)
        merged[edit.path] = change.model_copy(update={"after": made.text})
        loose += [f"{edit.path}: edit {number}"] * made.loose
    changed = tuple(change for _, change in sorted(merged.items()) if change.before != change.after)
    if not changed:
        raise EditError(
            "The edits change nothing: every new text equals the old one.",
            next_step="Send edits whose `new` differs from `old`, or refuse.",
            kind="changes_nothing",
        )
    return Merged(changed, tuple(loose))


def new_file_text(edit: SearchReplace) -> str:
    """The text of the file that an edit makes, the same whichever form the plan was written in: plain line
    ends, the last line ended."""
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
    """One edit of a model's plan: exactly, or where that finds nothing, at the one place that differs
    in white space alone (``patch.loose``). Raises EditError unless there is one place."""
    exact = _places(text, edit.old)
    if exact:
        return Replaced(_replaced(text, edit, exact), loose=False)
    found = loose_lines(text, edit.old)
    if len(found) > 1:
        raise EditError(
            f"The old text of an edit is not in {edit.path!r} (0 matches); but for white space it is"
            f" there several times ({_lines([first + 1 for first in found])}).",
            next_step="Copy `old` from the file exactly, with its indentation and neighbouring lines.",
            kind="several_but_for_space",
        )
    made = loosely_replaced(text, found[0], edit.old, edit.new) if found else None
    if made is None:
        raise _not_once(text, edit, [])
    return Replaced(made, loose=True)


def _exactly(text: str, edit: SearchReplace) -> Replaced:
    return Replaced(replace_once(text, edit), loose=False)


def replace_once(text: str, edit: SearchReplace) -> str:
    """The text of ``edit.path`` with ``edit.old`` replaced. Raises EditError unless found once."""
    return _replaced(text, edit, _places(text, edit.old))


def _replaced(text: str, edit: SearchReplace, places: Sequence[tuple[int, int]]) -> str:
    if len(places) != 1:
        raise _not_once(text, edit, [start for start, _ in places])
    start, end = places[0]
    new = _unix(edit.new).replace("\n", _line_end_at(text, start, end))
    return text[:start] + new + text[end:]


def _places(text: str, old: str) -> list[tuple[int, int]]:
    """Start and end of each place of ``old``, whatever the line ends; overlapping ones too (``aa`` in
    ``aaa``). At most _MAX_COUNTED. Linear: a regular expression would be quadratic in what repeats."""
    plain, wanted = _unix(text), _unix(old)
    found: list[tuple[int, int]] = []
    at = plain.find(wanted)
    while at >= 0 and len(found) < _MAX_COUNTED:
        found.append((at, at + len(wanted)))
        at = plain.find(wanted, at + 1)
    if len(plain) == len(text):
        return found
    ends = _crlf_ends(text)
    return [
        (start + bisect_left(ends, start), end + bisect_left(ends, end)) for start, end in found
    ]


def _crlf_ends(text: str) -> list[int]:
    """Where the text with plain line ends has those that were ``\\r\\n``: what stands after so many of
    them is so many characters further on in ``text``."""
    return [found.start() - number for number, found in enumerate(re.finditer("\r\n", text))]


def _unix(text: str) -> str:
    return text.replace("\r\n", "\n")


def _line_end_at(text: str, start: int, end: int) -> str:
    """The line end in use at a place: inside it, else after it, else before it, else ``\\n``."""
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
    places = _lines([_line_of(text, start) for start in starts[: _SHOWN_PLACES + 1]])
    return EditError(
        f"The old text of an edit is in {edit.path!r} {len(starts)} times{more} ({places}).",
        next_step="Add neighbouring lines to `old` until it names one place.",
        kind="several_matches",
    )


def _lines(numbers: Sequence[int]) -> str:
    shown = ", ".join(map(str, numbers[:_SHOWN_PLACES]))
    return f"lines {shown}{', …' if len(numbers) > _SHOWN_PLACES else ''}"


def _near_miss(text: str, edit: SearchReplace) -> str:
    """Where ``old`` would match if blanks didn't count: the commonest slip of a model."""
    words = " ".join(edit.old.split())
    if not words:
        return ""
    lines = [(n, " ".join(line.split())) for n, line in enumerate(text.split("\n"), start=1)]
    full = [(number, body) for number, body in lines if body]
    joined = "\n".join(body for _, body in full)
    at = joined.replace("\n", " ").find(words)
    if at < 0:
        return ""
    line, _ = full[joined.count("\n", 0, at)]
    return f" It differs only in white space from line {line}."


def _line_of(text: str, offset: int) -> int:
    return text.count("\n", 0, offset) + 1
