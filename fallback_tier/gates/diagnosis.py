"""Reads a failed gate's log: which tests, which assertions, where in the repository.

Only lines of known shape are taken, so that durations, progress and versions never get in; what is
taken is cleaned of everything that differs between two runs or two machines. One failure gives one
text, byte for byte, on every supported Python.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

#: Lines taken of each kind: the first failures explain the others.
MAX_TESTS, MAX_ASSERTIONS, MAX_FRAMES, MAX_DIAGNOSTICS = 20, 12, 20, 24

#: One line: an assertion on two long values still shows how they begin.
MAX_LINE_CHARS = 300

#: Where no line has a known shape: the log's last lines.
_TAIL_LINES = 12

#: A longer line (minified code) is cut before it is looked at.
_READ_CHARS = 2_000

_NAMES = r"(?:[^\s:'\"()<>,/]+/)"
_INSTALLED = r"site-packages|node_modules|lib/python3[\d.]*|venvs|scratch-\w+"

_PATH_OF_THIS_MACHINE = (
    rf"(?<![\w.:/])/(?:(?:tmp|var/tmp|root|home|opt|usr)/|{_NAMES}*(?:{_INSTALLED})/){_NAMES}*"
    r"([^\s:'\"()<>,/]+)"
)

_NOISE = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])", ""),
        # Control, zero-width, bidi and line-separator characters.
        (r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]", ""),
        (r"\bfile://(?=/)", ""),
        # A path of this machine: temporary, of a user, of an interpreter, of our cache. (Gates make
        # the repository's own relative; /etc/passwd in an assertion is what the test is about.)
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

_TEST = re.compile(
    r"(?:FAILED|ERROR) (?P<pytest>[^\s(]\S*(?:\[.*?\])?)(?: - .*)?"
    r"|(?:FAIL|ERROR): (?P<unittest>\S+ \([\w.<>]+\).*)"
    r"|\s*not ok \d+ - (?P<tap>.+?)(?: # .*)?"
    r"|\s*\u2716 (?P<spec>.+) <time>"
)
_ASSERTION = re.compile(
    r"E   (?P<pytest>\s*(?!\? +\^)\S.*)"
    r"|\s*(?P<raised>(?:Uncaught )?[A-Za-z_][\w.]*(?:Error|Exception|Failure|Exit)\b"
    r"(?: \[\w+\])?(?::.*)?)"
    r"|\s*(?P<tap>(?:expected|actual): (?!undefined).*|error: (?:['\"](?!\d+ subtests? ).*|\|-))"
)
_FRAME = re.compile(
    r"(?P<path>[^\s:/][^\s:]*\.\w+):(?P<line>\d+): (?:in (?P<function>.+)|\w+(?:Error|Exception).*)"
    r"|\s+File \"(?P<file>[^/<\"][^\"]*)\", line (?P<file_line>\d+)(?:, in (?P<file_function>.+))?"
    r"|\s*(?:at )?(?:(?:async )?(?P<js_function>[\w.$<>\[\] ]+) \()?"
    r"(?P<js>(?!node:)[^\s:()/'][^\s:()]*\.[cm]?[jt]sx?):(?P<js_line>\d+):\d+\)?"
    r"|\s*location: '(?P<location>[^/'][^:']*):(?P<location_line>\d+):\d+'"
)
_DIAGNOSTIC = re.compile(
    r"npm (?:error|ERR!) (?P<npm>.*\S)"
    r"|\s*(?P<uv>(?:error|cause): (?!['\"|]).*|[\u00d7\u2570].*)"
    r"|(?P<compiler>[^\s:(]+(?:\(\d+,\d+\)|:\d+(?::\d+)?): (?:fatal )?(?:error|warning)\b.*)"
)
_NPM_CHATTER = re.compile(
    r"(?:code ELIFECYCLE|errno |syscall |A complete log|Log files were not|.*-debug-\d|Fix the upstream"
    r"|this command with|to accept an incorrect|For a full report|command (?:sh|failed)|path "
    r"|location |Lifecycle |.*-report\.txt)"
)
_DECORATION = re.compile(r"[\s~^|]*")


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
    lines = [line for line in lines if not _DECORATION.fullmatch(line)]
    found = Diagnosis(
        tests=_take(map(_test, lines), MAX_TESTS),
        assertions=_take(_assertions(lines), MAX_ASSERTIONS),
        frames=_take(map(_frame, lines), MAX_FRAMES),
        diagnostics=_take(_diagnostics(lines), MAX_DIAGNOSTICS),
    )
    if found.tests or found.assertions or found.diagnostics:
        return found
    tail = _take(iter(lines[-_TAIL_LINES:]), _TAIL_LINES)
    return Diagnosis(tests=(), assertions=(), frames=found.frames, diagnostics=tail)


def clean(text: str) -> str:
    """Without control characters, and without what differs between two runs of one failure."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    for pattern, replacement in _NOISE:
        lines = [pattern.sub(replacement, line) for line in lines]
    return "\n".join(line.rstrip() for line in lines)


def _take(candidates: Iterator[str | None], limit: int) -> tuple[str, ...]:
    texts = (text.strip()[:MAX_LINE_CHARS].rstrip() for text in candidates if text)
    return tuple(dict.fromkeys(text for text in texts if text))[:limit]


def _test(line: str) -> str | None:
    match = _TEST.fullmatch(line)
    if match is None:
        return None
    return match["pytest"] or match["unittest"] or match["tap"] or match["spec"]


def _assertions(lines: list[str]) -> Iterator[str | None]:
    block: int | None = (
        None  # the indent of a TAP `error: |-`: the lines below it, deeper, are its text
    )
    for line in lines:
        indent = len(line) - len(line.lstrip())
        if block is not None and indent > block:
            yield line
            continue
        match = _ASSERTION.fullmatch(line)
        block = indent if match is not None and (match["tap"] or "").endswith("|-") else None
        if match is not None and block is None:
            yield match["pytest"] or match["raised"] or match["tap"]


def _frame(line: str) -> str | None:
    match = _FRAME.fullmatch(line)
    if match is None:
        return None
    for path, number, function in (
        ("path", "line", "function"),
        ("file", "file_line", "file_function"),
        ("js", "js_line", "js_function"),
        ("location", "location_line", None),
    ):
        if match[path] and "node_modules/" not in match[path] and not match[path].startswith("..."):
            where = match[function] if function else None
            return f"{match[path]}:{match[number]}" + (f" in {where}" if where else "")
    return None


def _diagnostics(lines: list[str]) -> Iterator[str | None]:
    told = False  # uv wraps its explanation: the indented lines go with it
    for line in lines:
        match = _DIAGNOSTIC.fullmatch(line)
        if match is None:
            if told and line.startswith("      "):
                yield line
            else:
                told = False
            continue
        told = match["uv"] is not None
        if not (match["npm"] and _NPM_CHATTER.match(match["npm"])):
            yield match["npm"] or match["uv"] or match["compiler"]
