"""Hints from a proof's failure at the base commit: the first prompt begins with them (ADR-0120).

Three sources, the most certain first: frames in the repository's source, identifiers that the failing tests
use, and files that the proof imports. Output and proof files are untrusted: the work is bounded, and only
tracked files are ever named.
"""

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import TypeVar

from fallback_tier.files.source_paths import PYTHON_SUFFIXES, SOURCE_SUFFIXES, is_beside
from fallback_tier.gates.failure_summary.diagnosis import Frame, diagnose, read_frame
from fallback_tier.gates.failure_summary.distill import sections
from fallback_tier.prompt.redact import redact_secrets
from fallback_tier.repo import MAX_POINTERS, ProofFailure, SourceLine
from fallback_tier.syntax import Definition, Import, Structure, grammar_of, structure

_Item = TypeVar("_Item")

#: How many lines of output are searched for frames, half at its beginning and half at its end, and
#: characters of each: a stack is near one of the ends.
_READ_LINES = 4_000
_READ_CHARS = 2_000

#: A larger number is not a line of a file that people write.
_MAX_LINE = 10_000_000

#: A larger file of a proof is data.
_MAX_PROOF_BYTES = 512 * 1024

#: A definition in a proof with more lines is a suite of tests, not one test.
_MAX_TEST_LINES = 80

#: How many lines around a failing line at a file's top level belong to the test.
_LINES_AROUND = 12

#: If no failing test is named, the whole text of a proof is used if it has no more lines than this.
_SHORT_PROOF_LINES = 200

#: A shorter title would match in any line.
_MIN_TITLE_CHARS = 4

#: pytest prints a caller's location alone on its line.
_CALLER = re.compile(r"(?P<path>[^\s:/][^\s:]*\.\w+):(?P<line>\d{1,7}):?")
_ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
_CALLED = re.compile(r"(?<![\w$])([A-Za-z_$][\w$]{1,99})(?=\s*\()")
_ATTRIBUTE = re.compile(r"\.([A-Za-z_$][\w$]{1,99})")
_QUOTED = re.compile(r"'[^'\n]*'|\"[^\"\n]*\"")
_WORD = re.compile(r"[A-Za-z_$][\w$]{1,99}")
_IN_QUOTES = re.compile(r"['\"`]([^'\"`]{4,300})['\"`]")
_TITLE_PARTS = re.compile(r" \u203a | > |::")
_PYTHON_MODULE = re.compile(r"^\s*(?:from|import)\s+([\w.]+)")
_SPECIFIER = re.compile(r"['\"](\.{1,2}(?:/[^'\"\n]{0,200})?)['\"]")


def proof_failure(output: str, files: Mapping[str, bytes], tracked: Sequence[str]) -> ProofFailure:
    """Read the output of a proof that failed at the base commit. ``files``: the proof's own, by path."""
    diagnosis = diagnose(output)
    text, _ = redact_secrets("\n".join(sections(diagnosis)))
    frames = list(_frames(output))
    tracked_files = _Tracked(tracked)
    proofs = [
        _ProofFile.read(path, content, frames, diagnosis.tests) for path, content in files.items()
    ]
    tests = [proof for proof in proofs if proof is not None]
    product = [
        (frame, tracked_files.source(frame.path))
        for frame in _innermost_first(frames)
        if not any(test.has(frame) for test in tests)
    ]
    imports = [
        (list(tracked_files.imported(test.path, statement.text, statement.names)), statement)
        for test in tests
        for statement in test.imports()
    ]
    functions = (frame.function.rpartition(".")[2] for frame, path in product if path is None)
    return ProofFailure(
        text=text,
        titles=_first([*diagnosis.tests, *(test.path for test in tests)]),
        frames=_first(SourceLine(path=path, line=frame.line) for frame, path in product if path),
        files=_first(path for paths, _ in imports for path in paths),
        names=_first(
            name
            for paths, statement in imports
            if paths
            for name in _WORD.findall(_bare(statement.text))
        ),
        uses=_first(
            [*filter(_WORD.fullmatch, functions), *(use for test in tests for use in test.uses())]
        ),
    )


def _bare(statement: str) -> str:
    return _QUOTED.sub("", statement).rpartition(" import ")[2]


def _first(items: Iterable[_Item]) -> tuple[_Item, ...]:
    return tuple(dict.fromkeys(items))[:MAX_POINTERS]


def _frames(output: str) -> Iterator[Frame]:
    lines = output.replace("\r", "").replace("file://", "").split("\n")
    if len(lines) > _READ_LINES:
        lines = [*lines[: _READ_LINES // 2], *lines[-_READ_LINES // 2 :]]
    for line in lines:
        plain = _ESCAPES.sub("", line[:_READ_CHARS]).rstrip()
        if (frame := read_frame(plain)) and 0 < frame.line <= _MAX_LINE:
            yield frame
        elif (caller := _CALLER.fullmatch(plain)) and "node_modules/" not in plain:
            yield Frame(caller["path"], int(caller["line"]))


def _innermost_first(frames: Sequence[Frame]) -> list[Frame]:
    """Return the innermost calls first: Python prints them last, JavaScript first."""
    python = [frame for frame in frames if frame.path.endswith(tuple(PYTHON_SUFFIXES))]
    return [*reversed(python), *(frame for frame in frames if frame not in python)]


class _Tracked:
    def __init__(self, tracked: Sequence[str]) -> None:
        self._paths = frozenset(tracked)
        self._by_name: dict[str, list[str]] = {}
        for path in sorted(tracked):
            self._by_name.setdefault(path.rpartition("/")[2], []).append(path)

    def source(self, path: str) -> str | None:
        """Return the source file of a frame's path, which may be relative to a folder of the repository;
        None if it is not tracked, ambiguous, or not part of the product."""
        name = posixpath.normpath(path)
        candidates = [name] if name in self._paths else self._ending(name)
        match = candidates[0] if len(candidates) == 1 else ""
        is_source = match.endswith(tuple(SOURCE_SUFFIXES)) and not is_beside(match)
        return match if is_source else None

    def imported(self, importer: str, statement: str, names: Sequence[str]) -> Iterator[str]:
        """Yield the files that an import statement of ``importer`` reads."""
        folder = posixpath.dirname(importer)
        for match in _SPECIFIER.finditer(statement):
            stem = posixpath.normpath(posixpath.join(folder, match[1]))
            # A TypeScript file imports its neighbour by the name of the compiled file.
            bare = stem.rpartition(".")[0] if stem.endswith((".js", ".mjs", ".cjs")) else stem
            stems = dict.fromkeys((stem, bare, posixpath.normpath(f"{stem}/index")))
            endings = ("", *sorted(SOURCE_SUFFIXES - PYTHON_SUFFIXES))
            yield from self._product(f"{stem}{ending}" for stem in stems for ending in endings)
        if module := _PYTHON_MODULE.match(statement):
            parts = module[1].strip(".").replace(".", "/")
            for stem in dict.fromkeys((*(f"{parts}/{name}" for name in names), parts)):
                for ending in (".py", "/__init__.py", ".pyx"):
                    yield from self._module(f"{stem}{ending}")

    def _module(self, name: str) -> list[str]:
        """Return the files of a module. A one-part name is at the root, or belongs to another package."""
        if name.removesuffix("/__init__.py").count("/"):
            return [path for path in self._ending(name) if not is_beside(path)]
        return list(self._product((name, f"src/{name}")))

    def _product(self, paths: Iterable[str]) -> Iterator[str]:
        return (path for path in paths if path in self._paths and not is_beside(path))

    def _ending(self, name: str) -> list[str]:
        same_name = self._by_name.get(name.rpartition("/")[2], ())
        return [path for path in same_name if f"/{path}".endswith(f"/{name}")]


@dataclass(frozen=True)
class _ProofFile:
    """A source file of the proof. ``tests``: first and last line of each failing test in it, if known;
    ``failing``: lines of it that the output names."""

    path: str
    lines: Sequence[str]
    structure: Structure
    failing: Sequence[int]
    tests: Sequence[tuple[int, int]]

    @classmethod
    def read(
        cls, path: str, content: bytes, frames: Sequence[Frame], titles: Sequence[str]
    ) -> "_ProofFile | None":
        """Return the file, or None for data and for a file that is too long to be read."""
        if not grammar_of(path) or len(content) > _MAX_PROOF_BYTES:
            return None
        text = content.decode("utf-8", "replace")
        lines, syntax = text.split("\n"), structure(text, grammar_of(path)) or Structure()
        frame_lines = [frame.line for frame in frames if _is_of(path, frame)]
        failing = [line for line in frame_lines if 0 < line <= len(lines)]
        tests = [_test_at(syntax, line, len(lines)) for line in _titled(lines, titles)]
        is_named = bool(tests)
        for line in failing:
            if not any(first <= line <= last for first, last in tests):
                tests.append(_test_around(syntax, line, len(lines), innermost=is_named))
        if not tests and len(lines) <= _SHORT_PROOF_LINES:
            tests = [(1, len(lines))]
        return cls(path, lines, syntax, failing, tests)

    def has(self, frame: Frame) -> bool:
        """Return whether the frame is in this file."""
        return _is_of(self.path, frame)

    def uses(self) -> Iterator[str]:
        """Yield functions and attributes that the failing tests use, those of the failing lines first."""
        for line in self.failing:
            yield from _used(self.lines[line - 1])
        yield from _used(self._code)

    def imports(self) -> list[Import]:
        """Return the imports whose names the failing tests use, or all if they use none."""
        used = frozenset(_WORD.findall(self._code))
        return [
            statement
            for statement in self.structure.imports
            if not used.isdisjoint(statement.names)
        ] or list(self.structure.imports)

    @cached_property
    def _code(self) -> str:
        """The failing tests, and the functions of this file that they use."""
        code = "\n".join("\n".join(self.lines[first - 1 : last]) for first, last in self.tests)
        used = frozenset(_WORD.findall(code))
        helpers = (
            "\n".join(self.lines[definition.start_line - 1 : definition.end_line])
            for definition in self.structure.definitions
            if definition.name in used and _length(definition) <= _MAX_TEST_LINES
        )
        return "\n".join((code, *helpers))


def _is_of(path: str, frame: Frame) -> bool:
    return f"/{path}".endswith(f"/{posixpath.normpath(frame.path)}")


def _test_at(syntax: Structure, line: int, last: int) -> tuple[int, int]:
    end_lines = [
        definition.end_line for definition in syntax.definitions if definition.start_line == line
    ]
    return (line, min(last, max(end_lines))) if end_lines else _test_around(syntax, line, last)


def _test_around(
    syntax: Structure, line: int, last: int, *, innermost: bool = False
) -> tuple[int, int]:
    """Return the first and the last line of the test around a line; ``innermost``: of the function."""
    enclosing = [
        definition
        for definition in syntax.definitions
        if definition.start_line <= line <= definition.end_line
        and definition.end_line > definition.start_line
    ]
    tests = [definition for definition in enclosing if _length(definition) <= _MAX_TEST_LINES]
    if tests and not innermost:
        test = max(tests, key=_length)
    elif enclosing:
        test = min(enclosing, key=_length)
    else:
        return max(1, line - _LINES_AROUND), min(last, line + _LINES_AROUND)
    return test.start_line, min(last, test.end_line)


def _length(definition: Definition) -> int:
    return definition.end_line - definition.start_line + 1


def _titled(lines: Sequence[str], tests: Sequence[str]) -> list[int]:
    """Return the lines (from 1) that contain a failing test's title, or its function."""
    titles = {_TITLE_PARTS.split(test)[-1].split(" (")[0].partition("[")[0] for test in tests}
    wanted = [title.strip() for title in titles if len(title.strip()) >= _MIN_TITLE_CHARS]

    def is_title(line: str) -> bool:
        # Some runners print the titles of the suites around a test before its own, on one line.
        quoted_texts = (match[1] for match in _IN_QUOTES.finditer(line[:_READ_CHARS]))
        return any(title in line for title in wanted) or any(
            test.endswith(f" {title}") for title in quoted_texts for test in tests
        )

    numbers = (number for number, line in enumerate(lines, start=1) if is_title(line))
    return list(islice(numbers, MAX_POINTERS))


def _used(code: str) -> Iterator[str]:
    uses = [(match.start(1), match[1]) for match in _CALLED.finditer(code)]
    uses += [(match.start(1), match[1]) for match in _ATTRIBUTE.finditer(code)]
    yield from (name for _, name in sorted(uses))
