"""A unified diff applied in memory, exactly where it says: no fuzz, no offset, as the gates apply it."""

from collections.abc import Callable

from fallback_tier.errors import PatchError
from fallback_tier.outcome import FileChange
from fallback_tier.patch.diff import NO_NEWLINE, git_lines
from fallback_tier.patch.parse import FilePatch, parse_patch


def apply_patch(diff: str, read: Callable[[str], str]) -> tuple[FileChange, ...]:
    """Apply a diff to the files that ``read`` returns. Raises PatchSyntaxError if it isn't strictly of our
    kind, PatchError if the files differ, and the errors of ``read``."""
    return tuple(_change(patch, read) for patch in parse_patch(diff))


def _change(patch: FilePatch, read: Callable[[str], str]) -> FileChange:
    before = None if patch.kind == "created" else read(patch.path)
    after = _patched(patch, git_lines(before or ""))
    return FileChange(
        path=patch.path, before=before, after=None if patch.kind == "deleted" else after
    )


def _patched(patch: FilePatch, lines: list[str]) -> str:
    patched_lines: list[str] = []
    at = 0
    for hunk in patch.hunks:
        start = hunk.old_start - (hunk.old_count > 0)  # an empty range names the line before it
        old, new = _side(hunk.lines, "-"), _side(hunk.lines, "+")
        patched_lines += lines[at:start]
        at = start + len(old)
        if lines[start:at] != old:
            raise PatchError(
                f"The patch was not made from this {patch.path!r}: line {start + 1} differs.",
                next_step="Give the repository and the commit that it was made from.",
                kind="another_base",
            )
        patched_lines += new
    return "".join([*patched_lines, *lines[at:]])


def _side(lines: tuple[str, ...], mark: str) -> list[str]:
    side: list[str] = []
    last = ""
    for line in lines:
        if line == NO_NEWLINE:
            if last in {" ", mark}:
                side[-1] = side[-1].removesuffix("\n")
            continue
        last = line[:1]
        if last in {" ", mark}:
            side.append(line[1:] + "\n")
    return side
