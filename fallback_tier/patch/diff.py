"""Unified diffs in git's own form, computed by us from the text before and after."""

import hashlib
import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from fallback_audit.events import Digest
from fallback_tier.errors import PatchError
from fallback_tier.outcome import FileChange
from fallback_tier.patch.align import Change, changes
from fallback_tier.patch.lines import git_lines
from fallback_tier.patch.paths import unsafe_reason

#: git's default; `git apply` finds a hunk by it.
CONTEXT_LINES = 3

NO_NEWLINE = "\\ No newline at end of file"


#: A header of ours that makes a file. No line of a file begins so: those of a hunk have a mark in front.
_NEW_FILE = re.compile(r"^diff --git a/(.+) b/\1\nnew file mode ", re.MULTILINE)


def unified_diff(file_changes: Sequence[FileChange]) -> str:
    """The diff that turns every ``before`` into its ``after``; "" where nothing differs.

    `git apply` accepts it and reproduces ``after`` byte for byte. Sorted by path, three context
    lines, no `index` lines (they would name blobs that the target may not have). A file that ends
    as it began is left out; new files are 100644. Raises PatchError for a path or a text that a
    strict reader of diffs would refuse: see ``paths``, twice the same path, NUL characters.
    """
    ordered = sorted(file_changes, key=lambda change: change.path)
    for change, following in pairwise(ordered):
        if change.path == following.path:
            raise PatchError(
                f"{change.path!r} is changed twice in one patch.",
                next_step="Merge the changes of a file before making the diff.",
                kind="duplicate_path",
            )
    return "".join(_block(change) for change in ordered if change.before != change.after)


def new_files(diff: str) -> frozenset[str]:
    """The files that a diff of ours makes."""
    return frozenset(_NEW_FILE.findall(diff))


def patch_digest(diff: str) -> Digest:
    """SHA-256 of a diff's UTF-8 bytes, in hexadecimal."""
    return hashlib.sha256(diff.encode("utf-8")).hexdigest()


def _block(change: FileChange) -> str:
    _check(change)
    path, before, after = change.path, change.before, change.after
    lines = [f"diff --git a/{path} b/{path}\n"]
    if before is None:
        lines.append("new file mode 100644\n")
    if after is None:
        lines.append("deleted file mode 100644\n")
    if before or after:
        # git ends a name that has a space with a tab, so that readers know where it stops.
        tab = "\t" if " " in path else ""
        lines.append("--- /dev/null\n" if before is None else f"--- a/{path}{tab}\n")
        lines.append("+++ /dev/null\n" if after is None else f"+++ b/{path}{tab}\n")
        lines += _hunks(git_lines(before or ""), git_lines(after or ""))
    return "".join(lines)


def _check(change: FileChange) -> None:
    reason = unsafe_reason(change.path)
    if reason is None and "\0" in (change.before or "") + (change.after or ""):
        reason = "the text has a NUL character, so that git takes the file for binary"
    if reason is not None:
        raise PatchError(
            f"No patch can be made for {change.path!r}: {reason}.",
            next_step="Only text files with plain relative names are changed.",
        )


def _hunks(before: Sequence[str], after: Sequence[str]) -> Iterator[str]:
    for group in _grouped(before, after):
        first, last = group[0], group[-1]
        lead = min(CONTEXT_LINES, first.i1)
        tail = min(CONTEXT_LINES, len(before) - last.i2)
        old = _range(first.i1 - lead, last.i2 + tail)
        new = _range(first.j1 - lead, last.j2 + tail)
        yield f"@@ -{old} +{new} @@\n"
        at = first.i1 - lead
        for change in group:
            yield from _marked(" ", before[at : change.i1])
            yield from _marked("-", before[change.i1 : change.i2])
            yield from _marked("+", after[change.j1 : change.j2])
            at = change.i2
        yield from _marked(" ", before[at : at + tail])


def _grouped(before: Sequence[str], after: Sequence[str]) -> Iterator[list[Change]]:
    """Changes whose contexts touch share a hunk."""
    group: list[Change] = []
    for change in changes(before, after):
        if group and change.i1 - group[-1].i2 > 2 * CONTEXT_LINES:
            yield group
            group = []
        group.append(change)
    if group:
        yield group


def _range(start: int, stop: int) -> str:
    """``first,count`` as git writes it: ",1" left out, an empty range named by the line before."""
    count = stop - start
    if count == 1:
        return str(start + 1)
    return f"{start + 1 if count else start},{count}"


def _marked(mark: str, lines: Sequence[str]) -> Iterator[str]:
    for line in lines:
        yield mark + line if line.endswith("\n") else f"{mark}{line}\n{NO_NEWLINE}\n"
