"""Search/replace edits, applied in memory. We compute the diff; a model never types one.

Line ends are not the model's business: edits are typed with ``\\n`` and match a CRLF file too; what
they insert gets the line ends of the place where it lands.
"""

import re
from collections.abc import Sequence

from fallback_tier.errors import EditError
from fallback_tier.outcome import FileChange, SearchReplace
from fallback_tier.repo import RepoContext

#: How many places an ambiguous edit's message lists: enough to see what to add around it.
_SHOWN_PLACES = 5

#: Either line end; the look-behind keeps a leading ``\\n`` from matching inside ``\\r\\n``.
_LINE_END = r"(?:(?<!\r)\n|\r\n)"


def apply_edits(repo: RepoContext, edits: Sequence[SearchReplace]) -> tuple[FileChange, ...]:
    """What the edits change in the repository, sorted by path; the repository is not written.

    Several edits of one file apply in order, each to what the one before left. Raises EditError
    where an ``old`` is not found exactly once, or where nothing changes in the end; RepositoryError
    where a path is not a tracked text file.
    """
    changes = merge_edits(repo, (), edits)
    if not changes:
        raise EditError(
            "The edits change nothing: every new text equals the old one.",
            next_step="Send edits whose `new` differs from `old`, or refuse.",
        )
    return changes


def merge_edits(
    repo: RepoContext, changes: Sequence[FileChange], edits: Sequence[SearchReplace]
) -> tuple[FileChange, ...]:
    """A recipe's changes with edits on top, one change a path, sorted by path.

    An edit of a file that the recipe changed sees the recipe's text. Files that end as they began
    are left out. Raises as ``apply_edits`` does, but an empty result is the caller's to judge.
    """
    merged = {change.path: change for change in changes}
    for edit in edits:
        change = merged.get(edit.path)
        if change is None:
            text = repo.read_text(edit.path)
            change = FileChange(path=edit.path, before=text, after=text)
        if change.after is None:
            raise EditError(
                f"{edit.path!r} can't be edited: the recipe deletes it.",
                next_step="Leave this file out of the edits.",
            )
        merged[edit.path] = change.model_copy(update={"after": replace_once(change.after, edit)})
    return tuple(change for _, change in sorted(merged.items()) if change.before != change.after)


def replace_once(text: str, edit: SearchReplace) -> str:
    """The text of ``edit.path`` with ``edit.old`` replaced. Raises EditError unless found once."""
    places = [(match.start(), match.end(1)) for match in _pattern(edit.old).finditer(text)]
    if len(places) != 1:
        raise _not_once(text, edit, [start for start, _ in places])
    start, end = places[0]
    new = _unix(edit.new).replace("\n", _line_end_at(text, start, end))
    return text[:start] + new + text[end:]


def _pattern(old: str) -> re.Pattern[str]:
    """``old`` with either line end; the look-ahead finds overlapping places (``aa`` in ``aaa``)."""
    lines = [re.escape(line) for line in _unix(old).split("\n")]
    return re.compile(f"(?=({_LINE_END.join(lines)}))")


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
        )
    shown = ", ".join(str(_line_of(text, start)) for start in starts[:_SHOWN_PLACES])
    more = ", …" if len(starts) > _SHOWN_PLACES else ""
    return EditError(
        f"The old text of an edit is in {edit.path!r} {len(starts)} times (lines {shown}{more}).",
        next_step="Add neighbouring lines to `old` until it names one place.",
    )


def _near_miss(text: str, edit: SearchReplace) -> str:
    """Where ``old`` would match if blanks didn't count: the commonest slip of a model."""
    words = edit.old.split()
    loose = re.search(r"\s+".join(map(re.escape, words)), text) if words else None
    if loose is None:
        return ""
    return f" It differs only in white space from line {_line_of(text, loose.start())}."


def _line_of(text: str, offset: int) -> int:
    return text.count("\n", 0, offset) + 1
