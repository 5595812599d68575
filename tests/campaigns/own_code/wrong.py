"""Plans that must not pass for a fix: valid, harmless, and beside the flaw.

Each is a change that a model may well send: of another file, of a comment, of half the fix, of another
place in the right file. What is inserted is looked at as syntax, so that a statement is one and does not
end up inside a string.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import StrEnum
from itertools import islice
from pathlib import PurePosixPath

from fallback_audit.frozen import Frozen
from fallback_plugins.solved_examples.chunking.units import lines_of
from fallback_plugins.solved_examples.sources.release_files import Change
from fallback_tier.errors import EditError
from fallback_tier.outcome import SearchReplace
from fallback_tier.patch.policy import forbidden_reason, recipe_only_reason
from fallback_tier.syntax import first_error_line, grammar_of, parse
from tests.campaigns.own_code.checkout import Checkout
from tests.campaigns.own_code.shown import hunk_groups
from tests.campaigns.own_code.upstream import FileFix, Fix, is_document, text_of, too_large

#: Places that are tried for one inserted line: each is a parse of the file.
_MAX_TRIES = 300

#: Another file beyond this size is not looked at: it is a bundle, or a table.
_MAX_OTHER_BYTES = 200_000

#: Folders, and files, whose code is no product: a change there would tell little.
_BESIDE = frozenset(
    {
        "example",
        "examples",
        "bench",
        "benchmark",
        "benchmarks",
        "scripts",
        "script",
        "dist",
        "build",
    }
    | {
        "vendor",
        "demo",
        "tools",
        "website",
        "fixtures",
        "site",
        "static",
        "types",
        "typings",
        "deno_dist",
    }
)

_STATEMENTS = frozenset({"pass_statement", "expression_statement"})
_COMMENTS = frozenset({"comment"})

#: At a file's top these must stay first.
_FIRST = ("import ", "from ", "'use strict'", '"use strict"', "#!", "export * from")


class Kind(StrEnum):
    """What is wrong with a plan."""

    UNRELATED = "unrelated"
    COMMENT = "comment"
    HALF = "half"
    DECOY = "decoy"
    ELSEWHERE = "elsewhere"


class Wrong(Frozen):
    """One wrong plan."""

    kind: Kind
    edits: tuple[SearchReplace, ...]


def wrong_plans(fix: Fix, checkout: Checkout) -> tuple[Wrong, ...]:
    """Four, each another kind; fewer where too little of the repository is in a language that is read."""
    known = [file for file in fix.files if grammar_of(file.path) and not file.is_new]
    made: dict[Kind, tuple[SearchReplace, ...] | None] = {
        Kind.UNRELATED: _unrelated(fix, checkout),
        Kind.COMMENT: _first(known, _comment),
        Kind.HALF: _half(fix.files),
        Kind.ELSEWHERE: _first(known, _elsewhere),
    }
    if not (made[Kind.HALF] and made[Kind.UNRELATED]):
        made[Kind.DECOY] = _first(known, _decoy)
    return tuple(
        Wrong(kind=kind, edits=edits)
        for kind, edits in made.items()
        if edits and not too_large(edits)
    )


def _first(
    files: Iterable[FileFix], make: Callable[[FileFix], tuple[SearchReplace, ...] | None]
) -> tuple[SearchReplace, ...] | None:
    return next((edits for file in files if (edits := make(file))), None)


def _comment(file: FileFix) -> tuple[SearchReplace, ...] | None:
    mark = "#" if _is_python(file.path) else "//"
    return _with_line(file, f"{mark} checked", _near(file), _COMMENTS)


def _decoy(file: FileFix) -> tuple[SearchReplace, ...] | None:
    return _with_line(file, _statement(file), _near(file), _STATEMENTS)


def _elsewhere(file: FileFix) -> tuple[SearchReplace, ...] | None:
    return _with_line(file, _statement(file), _far(file), _STATEMENTS)


def _statement(file: FileFix) -> str:
    """One that does nothing, in the file's own style: linters are among the tests, and forbid ``void``."""
    if _is_python(file.path):
        return "pass"
    code = [line.rstrip() for line in file.before.splitlines()]
    ended = sum(line.endswith(";") for line in code)
    return "Object.freeze([]);" if 10 * ended >= len(code) else "Object.freeze([])"


def _half(files: Sequence[FileFix]) -> tuple[SearchReplace, ...] | None:
    """The first half of the hunks, or of one hunk's blocks; other parts where that does not parse."""
    hunks = [(file, group) for file in files for group in hunk_groups(file)]
    if len(hunks) == 1:
        hunks = [(file, (change,)) for file, group in hunks for change in group]
    if len(hunks) < 2:
        return None
    middle = len(hunks) // 2
    parts = [hunks[:middle], hunks[middle:], *([one] for one in hunks)]
    return next((edits for part in parts if (edits := _part(part))), None)


def _part(
    hunks: Sequence[tuple[FileFix, tuple[Change, ...]]],
) -> tuple[SearchReplace, ...] | None:
    edits: list[SearchReplace] = []
    for file in dict.fromkeys(file for file, _ in hunks):
        before, after = _lines(file.before), _lines(file.after)
        for one in reversed([one for of, group in hunks if of == file for one in group]):
            before[one.i1 : one.i2] = after[one.j1 : one.j2]
        text = "".join(before)
        made = _edits(file, text) if _parses(file, text) else None
        if not made:
            return None
        edits += made
    return tuple(edits)


def _unrelated(fix: Fix, checkout: Checkout) -> tuple[SearchReplace, ...] | None:
    """A statement at the end of another product file, the nearest to the fix that takes one."""
    if not fix.files:
        return None
    home = PurePosixPath(fix.files[0].path)
    paths = [path for path in checkout.tracked if path not in {file.path for file in fix.files}]
    near = sorted(filter(_is_product, paths), key=lambda path: _distance(home, path))
    for path in near[:_MAX_TRIES]:
        text = text_of(checkout.root / path)
        if not text or not text.strip() or len(text) > _MAX_OTHER_BYTES:
            continue
        file = FileFix(path=path, before=text, after=text)
        line = "_checked = True" if _is_python(path) else _statement(file)
        edits = _with_line(file, line, iter([len(_lines(text))]), _STATEMENTS)
        if edits:
            return edits
    return None


def _is_product(path: str) -> bool:
    pure = PurePosixPath(path.lower())
    places = {*pure.parts[:-1], pure.name.partition(".")[0]}
    return (
        bool(grammar_of(path))
        and forbidden_reason(path) is None
        and recipe_only_reason(path) is None
        and not is_document(path)
        and places.isdisjoint(_BESIDE)
        and not path.endswith((".min.js", ".d.ts", ".config.js", ".config.ts", ".config.mjs"))
    )


def _distance(home: PurePosixPath, path: str) -> tuple[bool, int, str]:
    pure = PurePosixPath(path)
    shared = len(set(home.parents) & set(pure.parents))
    apart = len(home.parents) + len(pure.parents) - 2 * shared
    return grammar_of(path) != grammar_of(home.name), apart, path


def _near(file: FileFix) -> Iterator[int]:
    """Line numbers (from 0) at the fix's place, then ever further from it."""
    start, count = hunk_groups(file)[0][0].i1, len(_lines(file.before))
    for by in range(count + 1):
        for at in dict.fromkeys((start - by, start + by)):
            if 0 <= at <= count:
                yield at


def _far(file: FileFix) -> Iterator[int]:
    """Places at the file's top level, the furthest from every hunk first."""
    lines = _lines(file.before)
    kept = max((at for at, line in enumerate(lines) if line.startswith(_FIRST)), default=-1)
    places = [at for at, line in enumerate(lines) if at > kept and line[:1].strip()]
    changes = [change for group in hunk_groups(file) for change in group]
    yield from sorted(
        (*places, len(lines)),
        key=lambda at: (-min(max(one.i1 - at, at - one.i2) for one in changes), at),
    )


def _with_line(
    file: FileFix, line: str, places: Iterator[int], types: frozenset[str]
) -> tuple[SearchReplace, ...] | None:
    """Edits that insert the line where it is first what it should be."""
    before = _lines(file.before)
    for at in islice(places, _MAX_TRIES):
        indent = _indent(before, at)
        lines = [*before[:at], f"{indent}{line}\n", *before[at:]]
        if at and not before[at - 1].endswith("\n"):
            lines[at - 1] += "\n"
        text = "".join(lines)
        if not _parses(file, text) or not _stands(file.path, text, at, len(indent), types):
            continue
        if edits := _edits(file, text):
            return edits
    return None


def _stands(path: str, text: str, row: int, column: int, types: frozenset[str]) -> bool:
    """Is what begins there one of these, on that line alone?"""
    tree = parse(text.encode(), grammar_of(path))
    if tree is None:
        return False
    node = tree.root_node.descendant_for_point_range((row, column), (row, column + 1))
    while node is not None and node.start_point == (row, column):
        if node.type in types:
            return node.end_point.row == row
        node = node.parent
    return False


def _parses(file: FileFix, text: str) -> bool:
    suffix = PurePosixPath(file.path).suffix
    return (
        first_error_line(text, suffix) is None or first_error_line(file.before, suffix) is not None
    )


def _edits(file: FileFix, text: str) -> tuple[SearchReplace, ...]:
    try:
        return file.edits_to(text)
    except EditError:
        return ()


def _indent(lines: Sequence[str], at: int) -> str:
    """That of the next line with something on it; of none, no indentation."""
    line = next((line for line in lines[at:] if line.strip()), "")
    return line[: len(line) - len(line.lstrip())]


def _lines(text: str) -> list[str]:
    return lines_of(text.replace("\r\n", "\n"))


def _is_python(path: str) -> bool:
    return grammar_of(path) == "python"
