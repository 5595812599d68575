"""A strict parser of unified diffs: the kind that ``diff`` makes, and `git diff` of the same.

`git apply` is lenient: it took `diff --git a/f.py b/f.py` with `+++ b/tests/test_f.py` and changed
two files, of which other parsers saw one. Here every header of a block must agree, every count must
be right, and nothing may be between the blocks. What is accepted means the same to git.

::

    patch  = block+
    block  = "diff --git a/P b/P" [mode] [index] [names hunk+]
    mode   = "new file mode 100644" | "deleted file mode 100644"
    index  = "index " hex ".." hex [" 100644" | " 100755"]
    names  = ("--- a/P" | "--- /dev/null") ("+++ b/P" | "+++ /dev/null")

Names and hunks are missing if an empty file is created or deleted. The index line states the mode
of a file that keeps it: an executable file stays executable.

Which paths P may name, the policy decides (``policy``); here P is only plain and relative.
"""

import re
from typing import Literal, NoReturn

from fallback_audit.frozen import Frozen
from fallback_tier.errors import PatchSyntaxError
from fallback_tier.limits import MAX_PATCH_BYTES
from fallback_tier.outcome import RelativePath
from fallback_tier.patch.diff import NO_NEWLINE
from fallback_tier.patch.paths import unsafe_reason

#: Line numbers have at most nine digits: more lines than MAX_PATCH_BYTES can hold.
_RANGE = "([0-9]{1,9})(?:,([0-9]{1,9}))?"
_HUNK = re.compile(rf"@@ -{_RANGE} \+{_RANGE} @@(?: .*)?")
_INDEX = re.compile(r"index [0-9a-f]{4,64}\.\.[0-9a-f]{4,64}( 100(?:644|755))?")

_MODES: dict[str, Literal["created", "deleted"]] = {
    "new file mode 100644": "created",
    "deleted file mode 100644": "deleted",
}


class Hunk(Frozen):
    """One hunk: its place, and its lines with their mark (" ", "-", "+") and without line feed."""

    old_start: int
    old_count: int
    new_start: int
    new_count: int
    lines: tuple[str, ...]


class FilePatch(Frozen):
    """What a patch does to one file."""

    path: RelativePath
    kind: Literal["created", "deleted", "modified"]
    hunks: tuple[Hunk, ...]


def parse_patch(text: str) -> tuple[FilePatch, ...]:
    """Return the files of a patch, in its order. Raises PatchSyntaxError and no other error."""
    if _too_large(text):
        raise _error(0, f"it is larger than {MAX_PATCH_BYTES:,} bytes")
    if not text.endswith("\n"):
        raise _error(0, "it is empty, or its last line is not ended")
    if "\0" in text:
        raise _error(0, "it has a NUL character, so that it is binary")
    reader = _Reader(text[:-1].split("\n"))
    patches: dict[str, FilePatch] = {}
    while not reader.done:
        patch = _block(reader)
        if patch.path in patches:
            reader.fail(f"{patch.path!r} occurs twice")
        patches[patch.path] = patch
    return tuple(patches.values())


class _Reader:
    def __init__(self, lines: list[str]) -> None:
        self._lines = lines
        self._at = 0

    @property
    def done(self) -> bool:
        return self._at == len(self._lines)

    @property
    def line(self) -> str:
        """The next line; at the end an empty one, which no rule accepts."""
        return "" if self.done else self._lines[self._at]

    def take(self) -> str:
        if self.done:
            self.fail("it ends too early")
        self._at += 1
        return self._lines[self._at - 1]

    def fail(self, problem: str) -> NoReturn:
        raise _error(self._at, problem)


def _too_large(text: str) -> bool:
    if len(text) > MAX_PATCH_BYTES:  # a character is at least a byte: don't encode a huge text
        return True
    try:
        return len(text.encode("utf-8")) > MAX_PATCH_BYTES
    except UnicodeEncodeError as error:
        raise _error(0, "it has a lone surrogate, which UTF-8 can't express") from error


def _error(at: int, problem: str) -> PatchSyntaxError:
    return PatchSyntaxError(
        f"The patch can't be read (after line {at}): {problem}.",
        next_step="Give a plain text diff as `git diff --no-renames` makes it, nothing around it.",
    )


def _block(reader: _Reader) -> FilePatch:
    path = _path(reader)
    kind = _kind(reader)
    _skip_index(reader, kind)
    if not reader.line.startswith("--- "):
        if kind == "modified":
            reader.fail(f"{path!r} has no `---` line (mode changes, renames, copies, binaries?)")
        return FilePatch(path=path, kind=kind, hunks=())
    _name(reader, "--- ", "/dev/null" if kind == "created" else f"a/{path}")
    _name(reader, "+++ ", "/dev/null" if kind == "deleted" else f"b/{path}")
    hunks: list[Hunk] = []
    while reader.line.startswith("@@ "):
        hunks.append(_hunk(reader))
    _check_order(reader, hunks)
    _check_whole_file(reader, kind, hunks)
    return FilePatch(path=path, kind=kind, hunks=tuple(hunks))


def _path(reader: _Reader) -> str:
    """Return the header's one path. Both names have the same length, so it may contain spaces."""
    header = reader.take()
    names = header.removeprefix("diff --git ")
    path = names[2 : 2 + (len(names) - 5) // 2]
    if header != f"diff --git a/{path} b/{path}":
        reader.fail("a block must begin with `diff --git a/PATH b/PATH`, the same path twice")
    reason = unsafe_reason(path)
    if reason is not None:
        reader.fail(f"{path!r}: {reason}")
    return path


def _kind(reader: _Reader) -> Literal["created", "deleted", "modified"]:
    if reader.line in _MODES:
        return _MODES[reader.take()]
    return "modified"


def _skip_index(reader: _Reader, kind: str) -> None:
    """Check the index line: only its mode matters, which must be that of a plain file."""
    if not reader.line.startswith("index "):
        return
    index = _INDEX.fullmatch(reader.take())
    if index is None or (index[1] and kind != "modified"):
        reader.fail("the index line is not that of a plain file that keeps its mode")


def _name(reader: _Reader, mark: str, name: str) -> None:
    # git ends a name that has a space with a tab.
    expected = {mark + name, f"{mark}{name}\t"} if " " in name else {mark + name}
    if reader.take() not in expected:
        reader.fail(f"the header says another name than `{mark}{name}`")


def _hunk(reader: _Reader) -> Hunk:
    header = _HUNK.fullmatch(reader.take())
    if header is None:
        reader.fail("a hunk header is malformed")
    old_start, old_count, new_start, new_count = (
        1 if number is None else int(number) for number in header.groups()
    )
    lines = _hunk_lines(reader, old_count, new_count)
    if all(line.startswith((" ", "\\")) for line in lines):
        reader.fail("a hunk changes nothing")
    return Hunk(
        old_start=old_start,
        old_count=old_count,
        new_start=new_start,
        new_count=new_count,
        lines=tuple(lines),
    )


def _hunk_lines(reader: _Reader, old_left: int, new_left: int) -> list[str]:
    """Return exactly the lines that the header counts, and markers of a missing last newline."""
    lines: list[str] = []
    while old_left or new_left or reader.line == NO_NEWLINE:
        line = reader.take()
        mark = line[:1]
        if line == NO_NEWLINE:
            _check_marker(reader, lines, old_left, new_left)
        elif mark not in {" ", "-", "+"}:
            reader.fail("a hunk has fewer lines than its header says, or a line without its mark")
        old_left -= mark in {" ", "-"}
        new_left -= mark in {" ", "+"}
        if old_left < 0 or new_left < 0:
            reader.fail("a hunk has other lines than its header says")
        lines.append(line)
    return lines


def _check_marker(reader: _Reader, lines: list[str], old_left: int, new_left: int) -> None:
    """Check that no line of the side that the marker ends follows in this hunk."""
    mark = lines[-1][:1] if lines else "\\"
    if mark == "\\" or (mark != "+" and old_left) or (mark != "-" and new_left):
        reader.fail("`\\ No newline at end of file` is not at the end of a file")


def _check_order(reader: _Reader, hunks: list[Hunk]) -> None:
    """Check that hunks go down the file without overlap, with new line numbers that follow from the old."""
    end, shift = 0, 0
    for number, hunk in enumerate(hunks):
        # An empty range names the line before it.
        old = hunk.old_start - (hunk.old_count > 0)
        new = hunk.new_start - (hunk.new_count > 0)
        if old < end or new != old + shift:
            reader.fail("the line numbers of the hunks contradict each other")
        if number < len(hunks) - 1 and NO_NEWLINE in hunk.lines:
            reader.fail("a hunk follows the end of the file")
        end, shift = old + hunk.old_count, shift + hunk.new_count - hunk.old_count


def _check_whole_file(
    reader: _Reader, kind: Literal["created", "deleted", "modified"], hunks: list[Hunk]
) -> None:
    """Check that a created or deleted file is one hunk of all its lines, and a modified one has a hunk."""
    if kind == "modified":
        if not hunks:
            reader.fail("a changed file has no hunk")
        return
    absent = [
        (hunk.old_start, hunk.old_count) if kind == "created" else (hunk.new_start, hunk.new_count)
        for hunk in hunks
    ]
    if absent != [(0, 0)]:
        reader.fail(f"a {kind} file must be one hunk that holds the whole file")
