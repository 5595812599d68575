"""Diagnosis of a failed gate's log: which tests, which assertions, where in the repository.

Only lines of known shape (the patterns at the end) are taken, so that durations, progress and versions are
never included; they are cleaned of all that differs between two runs or two machines. One failure gives one
text, byte for byte, on every supported Python.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

#: Maximum of lines of each kind: the first failures explain the others.
MAX_TESTS, MAX_ASSERTIONS, MAX_FRAMES, MAX_DIAGNOSTICS = 20, 12, 20, 24

#: UTF-8 bytes of all assertions together, as lines of a list: their share of a summary.
MAX_ASSERTIONS_BYTES = 1_100

#: Characters of one line: an assertion on two long values still shows how they begin.
MAX_LINE_CHARS = 300

#: Further locations of a diagnostic that are named with it; the rest are counted.
MAX_PLACES = 3

#: If no line has a known shape: how many last lines of the log are taken.
_TAIL_LINES = 12

#: A longer line (minified code) is cut before it is matched.
_READ_CHARS = 2_000

#: The limit before cleaning: escape sequences and paths make a line longer than its cleaned text.
_CLEANED_CHARS = 4 * _READ_CHARS

#: Of a log with more lines, only the beginning and the end are read, half each. The longest log, of 4 MiB,
#: has so many if a line has 20 characters on average, which no runner's has. Matching a line takes some 5
#: us.
_READ_LINES = 200_000

#: "- " before a line of a list, and its line end.
_LIST_BYTES = 3


@dataclass(frozen=True)
class Diagnosis:
    """The cleaned content of a log, each line once, in the log's order."""

    tests: tuple[str, ...]
    assertions: tuple[str, ...]
    frames: tuple[str, ...]
    diagnostics: tuple[str, ...]


def diagnose(log: str) -> Diagnosis:
    """Return the lines of known shape, or the last lines if there are none."""
    lines = [line[:_READ_CHARS] for line in clean(log).split("\n")]
    lines = [line for line in lines if line and not _DECORATION.fullmatch(line)]
    if len(lines) > _READ_LINES:
        lines = [*lines[: _READ_LINES // 2], *lines[-_READ_LINES // 2 :]]
    diagnosis = Diagnosis(
        tests=_take(chain(map(_test, lines), _numbered(lines)), MAX_TESTS),
        assertions=_take(_shared([*_assertions(lines), *_reasons(lines)]), MAX_ASSERTIONS),
        frames=_take(map(_frame, lines), MAX_FRAMES),
        diagnostics=_take(_folded(_diagnostics(lines)), MAX_DIAGNOSTICS),
    )
    if diagnosis.tests or diagnosis.assertions or diagnosis.diagnostics:
        return diagnosis
    tail = _take(lines[-_TAIL_LINES:], _TAIL_LINES)
    return Diagnosis(tests=(), assertions=(), frames=diagnosis.frames, diagnostics=tail)


def clean(text: str) -> str:
    """Remove control characters and all that differs between two runs of one failure; cut lines at 8,000
    characters."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    cleaned = "\n".join(line[:_CLEANED_CHARS] for line in lines)
    for pattern, replacement in _NOISE:
        cleaned = pattern.sub(replacement, cleaned)
    return "\n".join(line.rstrip() for line in cleaned.split("\n"))


def _take(candidates: Iterable[str | None], limit: int) -> tuple[str, ...]:
    lines: dict[str, None] = {}
    for text in filter(None, map(_shown, candidates)):
        lines[text] = None
        if len(lines) == limit:
            break
    return tuple(lines)


def _shown(line: str | None) -> str:
    return line.strip()[:MAX_LINE_CHARS].rstrip() if line else ""


def _test(line: str) -> str | None:
    match = _TEST.fullmatch(line)
    if match is None:
        return None
    groups = ("pytest", "unittest", "tap", "spec", "jest", "file", "ava")
    return next((match[name] for name in groups if match[name]), None)


def _numbered(lines: Sequence[str]) -> Iterator[str]:
    begun, title = False, list[str]()
    for line in lines:
        begun = begun or _NUMBERED_BEGIN.fullmatch(line) is not None
        if not begun:
            continue
        if first := _NUMBERED.fullmatch(line):
            title = [first["title"]]
        elif title and (continuation := _NUMBERED_MORE.fullmatch(line)):
            title.append(continuation["title"])
        if title and (title[-1].endswith(":") or _NUMBERED_END.fullmatch(line)):
            yield " ".join(title).removesuffix(":")
            title = []


def _assertions(lines: Sequence[str]) -> list[list[str]]:
    """Return groups of neighbouring assertion lines: the output of one failure."""
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
    """The state of reading, by the lines before: a TAP block, a diff, an expected message."""

    def __init__(self) -> None:
        #: The indent of a TAP ``error: |-``: deeper lines below it are its text.
        self._block: int | None = None
        #: The meaning of - and + in the current diff.
        self._signs: dict[str, str] | None = None
        self._message_next = False
        self._in_message = False

    @property
    def inside(self) -> bool:
        """Whether the next line may belong to the same failure although this one is not an assertion."""
        return self._block is not None or self._signs is not None or self._in_message

    def read(self, line: str) -> str | None:
        """Return the line as an assertion, or None."""
        indent = len(line) - len(line.lstrip())
        if self._block is not None and indent > self._block:
            return line
        self._block = None
        if begin := _DIFF_BEGIN.fullmatch(line):
            minus, plus = ("expected", "actual") if begin["minus"] else ("actual", "expected")
            self._signs = {"-": minus, "+": plus}
            return None
        if _DIFF_END.match(line):
            self._signs, self._in_message = None, False
        if _MESSAGE_BEGIN.fullmatch(line):
            self._message_next = self._in_message = True
            return None
        if self._message_next:
            self._message_next = False
            return None if _MESSAGE_EMPTY.fullmatch(line) else line
        if self._signs is not None:
            changed = _DIFF_LINE.fullmatch(line)
            return f"{self._signs[changed['sign']]}: {changed['value']}" if changed else None
        if self._in_message and _MATCHER.fullmatch(line):
            return line
        return self._plain(line, indent)

    def _plain(self, line: str, indent: int) -> str | None:
        match = _ASSERTION.fullmatch(line)
        if match is None:
            return None
        if (match["tap"] or "").endswith("|-"):
            self._block = indent
            return None
        return match["pytest"] or match["raised"] or match["tap"]


def _reasons(lines: Sequence[str]) -> Iterator[list[str]]:
    """Yield the reasons in pytest's summary, if the log shows no traceback (``--tb=no``)."""
    if any(line.startswith("E   ") for line in lines):
        return
    reason: list[str] = []
    for line in lines:
        match = _TEST.fullmatch(line)
        if match is not None and match["reason"]:
            reason = [match["reason"]]
            yield reason
        elif reason and (continuation := _ASSERTION.fullmatch(f"E {line}")) and line[:2] == "  ":
            reason.append(continuation["pytest"])
        else:
            reason = []


def _shared(groups: Sequence[list[str]]) -> Iterator[str]:
    """Yield all lines or, if they don't fit, the first ones of each failure, as many as fit."""
    if not all(map(_Room().has, chain.from_iterable(groups))):
        groups = [[line for line in group if not _CHATTER.fullmatch(line)] for group in groups]
    depth = _fitting_depth(groups)
    return chain.from_iterable(group[:depth] for group in groups)


def _fitting_depth(groups: Sequence[list[str]]) -> int:
    """Return how many lines of each group fit, at least one. A deeper line only adds to those above it."""
    room = _Room()
    depth, deeper_groups = 0, list(groups)
    while deeper_groups := [group for group in deeper_groups if len(group) > depth]:
        if not all(room.has(group[depth]) for group in deeper_groups):
            break
        depth += 1
    return max(depth, 1)


class _Room:
    """The remaining room for assertions in a summary; a line that is in it already takes nothing."""

    def __init__(self) -> None:
        self._lines: set[str] = set()
        self._bytes = MAX_ASSERTIONS_BYTES

    def has(self, line: str) -> bool:
        """Add this line, and return whether it fits too."""
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
    """A source line that a failure ran through. ``line`` is from 1; ``function`` is empty if not named."""

    path: str
    line: int
    function: str = ""


def read_frame(line: str) -> Frame | None:
    """Return the frame in a log's line, or None if there is none, or it is in ``node_modules``."""
    match = _FRAME.fullmatch(line)
    if match is None:
        return None
    for path, number, function in _FRAME_GROUPS:
        if match[path] and "node_modules/" not in match[path]:
            return Frame(match[path], int(match[number]), (function and match[function]) or "")
    return None


def _diagnostics(lines: Sequence[str]) -> Iterator[str]:
    continued_tool = ""  # uv wraps its explanation, tsc indents it: those lines belong to the first
    for line in lines:
        match = _DIAGNOSTIC.fullmatch(line)
        if match is None:
            if (continued_tool == "uv" and line.startswith("      ")) or (
                continued_tool == "tsc" and _TSC_MORE.fullmatch(line)
            ):
                yield line
            else:
                continued_tool = ""
            continue
        continued_tool = "uv" if match["uv"] else "tsc" if _TSC.fullmatch(line) else ""
        if not (match["npm"] and _NPM_CHATTER.match(match["npm"])):
            yield match["npm"] or match["uv"] or match["compiler"]


def _folded(diagnostics: Iterable[str]) -> Iterator[str]:
    """Yield a compiler's message once, with the locations that have it: an upgrade breaks every caller."""
    locations: dict[str, list[str]] = {}
    for line in diagnostics:
        match = _DIAGNOSTIC.fullmatch(line)
        if match is not None and match["compiler"]:
            locations.setdefault(match["message"], []).append(match["place"])
        else:
            locations.setdefault(line, [])
    for message, message_locations in locations.items():
        if not message_locations:
            yield message
            continue
        first, others = message_locations[0], list(dict.fromkeys(message_locations[1:]))
        more_locations = ", ".join(others[:MAX_PLACES])
        more_locations += (
            f" and {len(others) - MAX_PLACES} more" if len(others) > MAX_PLACES else ""
        )
        yield f"{first}{message}"[: MAX_LINE_CHARS // 2] + (
            f" (also {more_locations})" if more_locations else ""
        )


# The lines that test runners, compilers and package clients print about a failure. Each pattern matches
# output that was recorded from the real tool (tests/fixtures/logs), without colours and durations.

_NAMES = r"(?:[^\s:'\"()<>,/]+/)"
_INSTALLED = r"site-packages|node_modules|lib/python3[\d.]*|venvs|scratch-\w+"

#: The number of folders above installed files is bounded: each slash of a line may be the beginning of a
#: path.
_PATH_OF_THIS_MACHINE = (
    rf"(?<![\w.:/])/(?:(?:tmp|var/tmp|root|home|opt|usr)/|{_NAMES}{{,30}}(?:{_INSTALLED})/){_NAMES}*"
    r"([^\s:'\"()<>,/]+)"
)

#: What differs between two runs or two machines, with its replacement. For a whole log: no pattern matches
#: a line end.
_NOISE = tuple(
    (re.compile(pattern, re.MULTILINE), replacement)
    for pattern, replacement in (
        (r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b\n]*(?:\x07|\x1b\\)|[@-Z\\-_])", ""),
        # Control, zero-width, bidi and line-separator characters.
        (r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]", ""),
        (r"\bfile://(?=/)", ""),
        # A path of this machine: temporary, of a user, of an interpreter, of our cache. (Gates make the
        # repository's own relative; /etc/passwd in an assertion is the subject of the test.)
        (_PATH_OF_THIS_MACHINE, r".../\1"),
        (r"\b\d{4}-\d\d-\d\d[T ]\d\d[:_]\d\d[:_]\d\d(?:[.,_]\d+)?(?:Z|[+-]\d\d:?\d\d)?", "<time>"),
        (r"\bin \d+(?:\.\d+)?m?s\b|\(\d+(?:\.\d+)? ?m?s\)|\bduration_ms:? [\d.]+", "<time>"),
        (r"\b0x[0-9a-fA-F]{4,}\b", "0x..."),
        (r"\btmp[a-z0-9_]{6,10}\b", "tmp..."),
        (r"\b(pid|PID)[ =:]+\d+", r"\1 <n>"),
        (r"\b([Pp]ython|Node\.js|node|npm|v8)[ /@]?v?\d+(?:\.\d+)+\b", r"\1"),
        # Hints that newer Pythons add to the same exception.
        (r"[.;]? (?:Did you (?:mean|forget)\b.*\?|\(consider renaming .*\))$", ""),
    )
)  # fmt: skip


#: A test that failed, in one line.
_TEST = re.compile(
    r"(?:FAILED|ERROR) (?P<pytest>[^\s(](?:\S*|[^\s\[]*\[.*?\]))(?: - (?P<reason>.*))?"
    r"|(?:FAIL|ERROR): (?P<unittest>\S+ \([\w.<>]+\).*)"
    r"|\s*not ok \d+ (?:- )?(?P<tap>(?!.* # (?:TODO|SKIP)\b).+?)(?: # .*)?"
    r"|\s*\u2716 (?P<spec>.+) <time>"
    r"|  \u25cf (?P<jest>(?!Console$|Test suite failed to run$|\w+ Warning:?$).+)"
    r"|\s*FAIL  ?(?P<file>\S+\.[cm]?[jt]sx?(?: > .+)?)(?: <time>| \[ .* \])?"
    r"|\s*\u2718 \[fail\]: (?P<ava>.+)"
)

#: mocha and jasmine number their failures below such a line, with titles over several lines.
_NUMBERED_BEGIN = re.compile(r"  \d+ failing|Failures:")
_NUMBERED = re.compile(r" {0,3}\d+\) (?P<title>.+)")
_NUMBERED_MORE = re.compile(r" {7,}(?P<title>\S.*)")
_NUMBERED_END = re.compile(r"  Message:")

_ASSERTION = re.compile(
    r"E   (?P<pytest>\s*(?!\?[ +^-]+$)\S.*)"
    r"|\s*(?P<raised>(?:Uncaught )?(?:[A-Za-z_][\w.]*(?:Error|Exception|Failure|Exit)|Error(?=: ))\b"
    r"(?: \[\w+\])?(?::.*)?)"
    r"|\s*(?P<tap>(?:expected|actual): (?!undefined).*|error: (?:['\"](?!\d+ subtests? ).*|\|-))"
)

#: The line after such a line is the failure's own message.
_MESSAGE_BEGIN = re.compile(r"  \u25cf (?!Console$).+|  Message:")
#: A message that only says which matcher was called.
_MESSAGE_EMPTY = re.compile(r"\s*expect\(.*")
#: jest's facts of a failed matcher.
_MATCHER = re.compile(r"\s{4}(?:Expected|Received|Number of)\b.*")

#: Runners disagree about the meaning of - and +, which this line defines.
_DIFF_BEGIN = re.compile(
    r"\s*(?:(?P<minus>- Expected|\+ Received|--- expected|\+\+\+ actual)(?:\s+[-+] \d+)?"
    r"|(?P<plus>\+ expected - actual|Difference \(- actual, \+ expected\):))"
)
_DIFF_LINE = re.compile(r"\s*(?P<sign>[-+])\s*(?P<value>\S.*)")
_DIFF_END = re.compile(
    r"\s*(?:at |[\u276f\u203a] |(?:>\s*)?\d+ ?\||\.\.\.$|\d+\) |\u25cf |FAIL |[A-Za-z]*Error\b)"
)

#: What pytest prints around a comparison: dropped first if there is no room for all.
_CHATTER = re.compile(
    r"\s*(?:Omitting \d+ identical items.*|Differing items:|Full diff.*|\W{1,4}|\.\.\.Full output .*"
    r"|Use -v+ to get .*|(?:\{|\[|\()?\.\.\.)"
)

_FRAME = re.compile(
    r"(?P<path>[^\s:/][^\s:]*\.\w+):(?P<line>\d+): (?:in (?P<function>.+)|\w+(?:Error|Exception).*)"
    r"|\s+File \"(?P<file>[^/<\"][^\"]*)\", line (?P<file_line>\d+)(?:, in (?P<file_function>.+))?"
    r"|\s*(?:at |(?!\s))(?:(?:async )?(?P<js_function>[\w.$<>\[\] ]+) \()?"
    r"(?P<js>(?!node:)[^\s:()/'][^\s:()]*\.[cm]?[jt]sx?):(?P<js_line>\d+):\d+\)?"
    r"|\s*[\u276f\u203a] (?:(?P<arrow_function>[\w.$<>\[\] ]+) )?"
    r"(?P<arrow>[^\s:()/'][^\s:()]*\.[cm]?[jt]sx?):(?P<arrow_line>\d+):\d+"
    r"|\s*location: '(?P<location>[^/'][^:']*):(?P<location_line>\d+):\d+'"
)

#: Groups of _FRAME that belong together: path, line, function.
_FRAME_GROUPS = (
    ("path", "line", "function"),
    ("file", "file_line", "file_function"),
    ("js", "js_line", "js_function"),
    ("arrow", "arrow_line", "arrow_function"),
    ("location", "location_line", None),
)

_DIAGNOSTIC = re.compile(
    r"npm (?:error|ERR!) (?P<npm>.*\S)"
    r"|\s*(?P<uv>(?:error|cause): (?!['\"|]).*|\u00d7(?!.*(?: > |\d ?m?s$)).*|\u2570.*)"
    r"|\s*(?P<compiler>(?P<place>[^\s:(]+(?:\(\d+,\d+\)|:\d+(?::\d+)?))"
    r"(?P<message>(?:: | - )(?:fatal )?(?:error|warning)\b.*))"
)
_NPM_CHATTER = re.compile(
    r"(?:code ELIFECYCLE|errno |syscall |A complete log|Log files were not|.*-debug-\d|Fix the upstream"
    r"|this command with|to accept an incorrect|For a full report|command (?:sh|failed)|path "
    r"|location |Lifecycle |.*-report\.txt)"
)

#: tsc explains an error in deeper lines below it; a line that begins with a number is code.
_TSC = re.compile(r".*\berror TS\d+: .*")
_TSC_MORE = re.compile(r"  +(?!\d)\S.*")

_DECORATION = re.compile(r"[\s~^|]*")
