"""Why a proof that ends badly shows nothing: it never came to look at the flaw.

A missing program, a test that can't be collected or an import that fails ends with a failure too, at the
base commit and perhaps not with the patch. Such a failure must not pass for the vulnerability. What is
looked for are the words of the interpreters and the common test runners; a proof whose *subject* is one
of these messages catches it and fails in words of its own.
"""

import re
from collections.abc import Iterator

from fallback_tier.execution import CommandResult

#: POSIX.1-2017, XCU 2.8.2: found but not executable; not found.
_NOT_EXECUTABLE, _NOT_FOUND = 126, 127

#: Where node parses and links modules; a SyntaxError of JSON.parse or of `new RegExp` comes from elsewhere.
_NODE_LOADERS = r"(?:wrapSafe|internalCompileFunction|compileSourceTextModule|ModuleJob\b)"

#: Lines that say that the proof's own code was never reached.
_FAULTS = tuple(
    (re.compile(pattern, re.MULTILINE), why)
    for pattern, why in (
        # python -m NAME, python FILE
        (r"^\S*python[\d.]*: (?:No module named|can't (?:open|find)|Error while finding)", "start"),
        # node: below an uncaught error of require or import, and from its loaders; `#`: as TAP
        (r"^(?:# )? +code: '(?:ERR_)?MODULE_NOT_FOUND'", "import"),
        (rf"^(?:# )?SyntaxError: .*\n(?:# )? +at {_NODE_LOADERS}", "import"),
        # pytest: errors while collecting; exit codes 4 and 5 in words
        (
            r"^_+ ERROR collecting |^ERROR .*- (?:\w+\.)*(?:Import|ModuleNotFound|Syntax)Error",
            "import",
        ),
        (r"^ImportError while loading conftest '", "import"),
        (r"^INTERNALERROR> ", "start"),
        (r"^!+ Interrupted: \d+ errors? during collection", "import"),
        (r"^ERROR: (?:file or directory )?not found: ", "start"),
        (r"^=*[^\S\n]*no tests ran in |^NO TESTS RAN", "no test"),
        # unittest
        (r"^ImportError: Failed to import test module: ", "import"),
        (r"^Ran 0 tests in ", "no test"),
        # jest, vitest, mocha
        (r"^[^\S\n]*(?:.{1,2} )?Test suite failed to run\b", "import"),
        (r"^No tests? (?:files? )?found\b|^Error: No test files found", "no test"),
    )
)

#: The last line of a Python traceback that nobody caught.
_UNCAUGHT = re.compile(
    r"^(?:ModuleNotFoundError|ImportError|SyntaxError|IndentationError)(?::.*)?\Z", re.MULTILINE
)

#: What each failing test ends with: in pytest's short summary; above unittest's rules.
_ENDINGS = re.compile(r"^FAILED .*? - (\S+)|^([\w.]+): .*\n\n(?:-{70}|={70})$", re.MULTILINE)
_CANNOT_IMPORT = re.compile(r"(?:ModuleNotFound|Import)Error:?")

#: What unittest tells of each test that failed: its heading, and the outermost frame of its traceback.
_UNITTEST = re.compile(
    r"^={70}\n((?:ERROR|FAIL): .*)\n(?:.*\n)?-{70}\n(?:Traceback .*\n(.*))?", re.MULTILINE
)
_SET_UP_HEADING = re.compile(r"ERROR: setUp(?:Class|Module)\b")
_SET_UP_FRAME = re.compile(r'  File ".*", line \d+, in (?:asyncS|s)etUp$')

#: pytest's: a fixture that failed, by more than an assertion; and the tests that were reached.
_SET_UP = re.compile(r"^_+ ERROR at setup of ", re.MULTILINE)
_REACHED = re.compile(r"^E +(?:assert |AssertionError)|\b\d+ failed\b", re.MULTILINE)

_SENTENCES = {
    "start": "it can't be started",
    "import": "it, or something that it needs, can't be imported",
    "no test": "it has no test that runs",
    "set-up": "none of its tests got past its set-up",
}


#: What may be otherwise on another interpreter.
_RUNTIME = frozenset({_SENTENCES["import"], _SENTENCES["set-up"]})


def may_start_elsewhere(why: str | None) -> bool:
    """Could a proof with this fault start on another interpreter?"""
    return why in _RUNTIME


def fault(result: CommandResult) -> str | None:
    """Why this failure says nothing of the flaw, as a clause; None where it may well be the flaw's."""
    if result.exit_code == _NOT_FOUND:
        return f"there is no program {result.argv[0]!r} in the sandbox, or the proof could not find one"
    if result.exit_code == _NOT_EXECUTABLE:
        return f"{result.argv[0]!r} can't be executed"
    what = next(_without_noise(result.output), None)
    return None if what is None else _SENTENCES[what]


def _without_noise(output: str) -> Iterator[str]:
    for pattern, what in _FAULTS:
        if pattern.search(output):
            yield what
    ends = [pytest or unittest for pytest, unittest in _ENDINGS.findall(output)]
    nothing_else = ends and all(map(_CANNOT_IMPORT.fullmatch, ends))
    if nothing_else or _UNCAUGHT.search(output.rstrip()):
        yield "import"
    if _only_sets_up(output):
        yield "set-up"


def _only_sets_up(output: str) -> bool:
    """Did every test that failed do so before it began, and not by an assertion?"""
    if found := _UNITTEST.findall(output):
        return all(
            _SET_UP_HEADING.match(heading)
            or (heading.startswith("ERROR") and _SET_UP_FRAME.match(frame))
            for heading, frame in found
        )
    return bool(_SET_UP.search(output)) and not _REACHED.search(output)
