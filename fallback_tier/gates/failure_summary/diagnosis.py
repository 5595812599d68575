"""Reads a failed gate's log: which tests, which assertions, where in the repository.

Only lines of known shape (``log_shapes``) are taken, so that durations, progress and versions never
get in; what is taken is cleaned of everything that differs between two runs or two machines. One
failure gives one text, byte for byte, on every supported Python.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

from fallback_tier.gates.failure_summary import log_shapes as shapes

#: Lines taken of each kind: the first failures explain the others.
MAX_TESTS, MAX_ASSERTIONS, MAX_FRAMES, MAX_DIAGNOSTICS = 20, 12, 20, 24

#: UTF-8 bytes of all assertions together, as lines of a list: their share of a summary.
MAX_ASSERTIONS_BYTES = 1_100

#: One line: an assertion on two long values still shows how they begin.
MAX_LINE_CHARS = 300

#: Further places of a diagnostic that are named with it; the rest is counted.
MAX_PLACES = 3

#: Where no line has a known shape: the log's last lines.
_TAIL_LINES = 12

#: A longer line (minified code) is cut before it is looked at.
_READ_CHARS = 2_000

#: And before it is cleaned: escape sequences and paths make a line longer than what stays of it.
_CLEANED_CHARS = 4 * _READ_CHARS

#: Of a log with more lines, its beginning and its end, half each. The longest log, of 4 MiB, has so many
#: where a line has 20 characters on average: no runner's has. Looking at a line takes some 5 us.
_READ_LINES = 200_000

#: "- " before a line of a list, and its line end.
_LIST_BYTES = 3


@dataclass(frozen=True)
class Diagnosis:
    """What a log says, cleaned, each line once, in the log's order."""

    tests: tuple[str, ...]
    assertions: tuple[str, ...]
    frames: tuple[str, ...]
    diagnostics: tuple[str, ...]


def diagnose(log: str) -> Diagnosis:
    """Take the lines of known shape; the last lines where there is none."""
    lines = [line[:_READ_CHARS] for line in clean(log).split("\n")]
    lines = [line for line in lines if line and not shapes.DECORATION.fullmatch(line)]
    if len(lines) > _READ_LINES:
        lines = [*lines[: _READ_LINES // 2], *lines[-_READ_LINES // 2 :]]
    found = Diagnosis(
        tests=_take(chain(map(_test, lines), _numbered(lines)), MAX_TESTS),
        assertions=_take(_shared([*_assertions(lines), *_reasons(lines)]), MAX_ASSERTIONS),
        frames=_take(map(_frame, lines), MAX_FRAMES),
        diagnostics=_take(_folded(_diagnostics(lines)), MAX_DIAGNOSTICS),
    )
    if found.tests or found.assertions or found.diagnostics:
        return found
    tail = _take(lines[-_TAIL_LINES:], _TAIL_LINES)
    return Diagnosis(tests=(), assertions=(), frames=found.frames, diagnostics=tail)


def clean(text: str) -> str:
    """Without control characters, and without what differs between two runs of one failure.

    The rest of a line of over 8,000 characters is left out.
    """
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    cleaned = "\n".join(line[:_CLEANED_CHARS] for line in lines)
    for pattern, replacement in shapes.NOISE:
        cleaned = pattern.sub(replacement, cleaned)
    return "\n".join(line.rstrip() for line in cleaned.split("\n"))


def _take(candidates: Iterable[str | None], limit: int) -> tuple[str, ...]:
    taken: dict[str, None] = {}
    for text in filter(None, map(_shown, candidates)):
        taken[text] = None
        if len(taken) == limit:
            break
    return tuple(taken)


def _shown(line: str | None) -> str:
    return line.strip()[:MAX_LINE_CHARS].rstrip() if line else ""


def _test(line: str) -> str | None:
    match = shapes.TEST.fullmatch(line)
    if match is None:
        return None
    named = ("pytest", "unittest", "tap", "spec", "jest", "file", "ava")
    return next((match[name] for name in named if match[name]), None)


def _numbered(lines: Sequence[str]) -> Iterator[str]:
    """Titles of numbered failures: from the number to the colon that ends them."""
    begun, title = False, list[str]()
    for line in lines:
        begun = begun or shapes.NUMBERED_BEGIN.fullmatch(line) is not None
        if not begun:
            continue
        if first := shapes.NUMBERED.fullmatch(line):
            title = [first["title"]]
        elif title and (more := shapes.NUMBERED_MORE.fullmatch(line)):
            title.append(more["title"])
        if title and (title[-1].endswith(":") or shapes.NUMBERED_END.fullmatch(line)):
            yield " ".join(title).removesuffix(":")
            title = []


def _assertions(lines: Sequence[str]) -> list[list[str]]:
    """Neighbouring assertion lines form a group: one failure's words."""
    groups: list[list[str]] = [[]]
    reader = _Reader()
    for line in lines:
        text = reader.read(line)
        if text is not None:
            groups[-1].append(text)
        elif not reader.inside:
            groups.append([])
    return [group for group in groups if group]


class _Reader:
    """What the line before means for the next: a TAP block, a diff, a message to come."""

    def __init__(self) -> None:
        #: The indent of a TAP ``error: |-``: the lines below it, deeper, are its text.
        self._block: int | None = None
        #: What - and + mean in the diff that is being read.
        self._signs: dict[str, str] | None = None
        self._message_next = False
        self._in_message = False

    @property
    def inside(self) -> bool:
        """Whether the next line may belong to the same failure although this one says nothing."""
        return self._block is not None or self._signs is not None or self._in_message

    def read(self, line: str) -> str | None:
        """The line as an assertion, or None."""
        indent = len(line) - len(line.lstrip())
        if self._block is not None and indent > self._block:
            return line
        self._block = None
        if begin := shapes.DIFF_BEGIN.fullmatch(line):
            minus, plus = ("expected", "actual") if begin["minus"] else ("actual", "expected")
            self._signs = {"-": minus, "+": plus}
            return None
        if shapes.DIFF_END.match(line):
            self._signs, self._in_message = None, False
        if shapes.MESSAGE_BEGIN.fullmatch(line):
            self._message_next = self._in_message = True
            return None
        if self._message_next:
            self._message_next = False
            return None if shapes.MESSAGE_EMPTY.fullmatch(line) else line
        if self._signs is not None:
            changed = shapes.DIFF_LINE.fullmatch(line)
            return f"{self._signs[changed['sign']]}: {changed['value']}" if changed else None
        if self._in_message and shapes.MATCHER.fullmatch(line):
            return line
        return self._plain(line, indent)

    def _plain(self, line: str, indent: int) -> str | None:
        match = shapes.ASSERTION.fullmatch(line)
        if match is None:
            return None
        if (match["tap"] or "").endswith("|-"):
            self._block = indent
            return None
        return match["pytest"] or match["raised"] or match["tap"]


def _reasons(lines: Sequence[str]) -> Iterator[list[str]]:
    """The reasons in pytest's summary, where the log shows no traceback (``--tb=no``)."""
    if any(line.startswith("E   ") for line in lines):
        return
    reason: list[str] = []
    for line in lines:
        match = shapes.TEST.fullmatch(line)
        if match is not None and match["reason"]:
            reason = [match["reason"]]
            yield reason
        elif reason and (more := shapes.ASSERTION.fullmatch(f"E {line}")) and line[:2] == "  ":
            reason.append(more["pytest"])
        else:
            reason = []


def _shared(groups: Sequence[list[str]]) -> Iterator[str]:
    """Where there is no room for every line: the first ones of each failure, as many as fit."""
    if not _fit(groups):
        groups = [
            [line for line in group if not shapes.CHATTER.fullmatch(line)] for group in groups
        ]
    depth = _fitting_depth(groups)
    return chain.from_iterable(group[:depth] for group in groups)


def _fitting_depth(groups: Sequence[list[str]]) -> int:
    """How many lines of each group fit, at least one: a deeper line only ever adds to those above it."""
    room = _Room()
    depth, deep = 0, list(groups)
    while deep := [group for group in deep if len(group) > depth]:
        if not all(room.has(group[depth]) for group in deep):
            break
        depth += 1
    return max(depth, 1)


def _fit(groups: Iterable[list[str]]) -> bool:
    return all(map(_Room().has, chain.from_iterable(groups)))


class _Room:
    """What of a summary is left for assertions; a line that is there already takes nothing."""

    def __init__(self) -> None:
        self._lines: set[str] = set()
        self._bytes = MAX_ASSERTIONS_BYTES

    def has(self, line: str) -> bool:
        """Whether this line too has room."""
        text = _shown(line)
        if text and text not in self._lines:
            self._lines.add(text)
            self._bytes -= len(text.encode("utf-8", "replace")) + _LIST_BYTES
        return len(self._lines) <= MAX_ASSERTIONS and self._bytes >= 0


def _frame(line: str) -> str | None:
    frame = read_frame(line)
    if frame is None or frame.path.startswith("..."):
        return None
    return f"{frame.path}:{frame.line}" + (f" in {frame.function}" if frame.function else "")


class Frame(NamedTuple):
    """A place that a failure ran through. ``line`` counts from 1; ``function`` is empty if not named."""

    path: str
    line: int
    function: str = ""


def read_frame(line: str) -> Frame | None:
    """Return the frame that a log's line shows; None: no frame, or one in ``node_modules``."""
    match = shapes.FRAME.fullmatch(line)
    if match is None:
        return None
    for path, number, function in shapes.FRAME_GROUPS:
        if match[path] and "node_modules/" not in match[path]:
            return Frame(match[path], int(match[number]), (function and match[function]) or "")
    return None


def _diagnostics(lines: Sequence[str]) -> Iterator[str]:
    more = ""  # uv wraps its explanation, tsc indents it: those lines go with the first
    for line in lines:
        match = shapes.DIAGNOSTIC.fullmatch(line)
        if match is None:
            if (more == "uv" and line.startswith("      ")) or (
                more == "tsc" and shapes.TSC_MORE.fullmatch(line)
            ):
                yield line
            else:
                more = ""
            continue
        more = "uv" if match["uv"] else "tsc" if shapes.TSC.fullmatch(line) else ""
        if not (match["npm"] and shapes.NPM_CHATTER.match(match["npm"])):
            yield match["npm"] or match["uv"] or match["compiler"]


def _folded(diagnostics: Iterable[str]) -> Iterator[str]:
    """A compiler's message once, with the places that have it: an upgrade breaks every caller."""
    places: dict[str, list[str]] = {}
    for line in diagnostics:
        match = shapes.DIAGNOSTIC.fullmatch(line)
        if match is not None and match["compiler"]:
            places.setdefault(match["message"], []).append(match["place"])
        else:
            places.setdefault(line, [])
    for message, found in places.items():
        if not found:
            yield message
            continue
        first, others = found[0], list(dict.fromkeys(found[1:]))
        also = ", ".join(others[:MAX_PLACES])
        also += f" and {len(others) - MAX_PLACES} more" if len(others) > MAX_PLACES else ""
        yield f"{first}{message}"[: MAX_LINE_CHARS // 2] + (f" (also {also})" if also else "")
