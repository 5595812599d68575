"""Break one function on top of a fix, and see whether the tests gate fails.

A function's body begins with an error instead of its work. Functions whose names the tests use come
first, each group in the seed's order. What the gate doesn't fail is held against a bare run of the
project's own command (bare.py): a function that no test reaches is no miss.
"""

import difflib
import json
import os
import random
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

from fallback_tier.files.source_paths import is_beside
from fallback_tier.syntax import grammar_of, parse
from tests.campaigns.measuring.clones import git
from tests.campaigns.measuring.frozen import Frozen
from tests.campaigns.tests_judged import broken_gate
from tests.campaigns.tests_judged.cases import SEED

#: Functions that the gate is asked about, one after the other, until it fails one.
TRIES = 5

MESSAGE = "broken by the campaign"

_WORD = re.compile(r"[A-Za-z_$][\w$]*")
_FUNCTIONS = {
    "function_definition",
    "function_declaration",
    "generator_function_declaration",
    "function_expression",
    "arrow_function",
    "method_definition",
}
_NOT_SOURCE = re.compile(
    r"(?:^|/)(?:dist|build|lib-cov|vendor|third_party|node_modules|migrations|fixtures|static|public|coverage)/"
    r"|\.min\.|\.config\.|\.d\.[cm]?ts$"
)


class Break(Frozen):
    """One function to break: its file's whole text with the break, and that change as git's diff."""

    path: str
    function: str
    line: int
    text: str
    diff: str


def breaks(root: Path, ecosystem: str, name: str) -> list[Break]:
    """Return functions to break, the likeliest to be covered first: at most ``TRIES``."""
    paths = git(root, "ls-files", "-z").decode().split("\0")
    suffixes = (
        {".py"}
        if ecosystem == "PyPI"
        else {".js", ".mjs", ".cjs", ".ts", ".mts", ".cts", ".jsx", ".tsx"}
    )
    code = [it for it in paths if PurePosixPath(it).suffix in suffixes and (root / it).is_file()]
    sources = [it for it in code if not is_beside(it) and not _NOT_SOURCE.search(it)]
    used = set().union(*(_WORD.findall(_text(root / it)) for it in code if it not in sources))
    texts = {path: _text(root / path) for path in sources}
    # A text that isn't UTF-8 would change elsewhere, too.
    found = [
        one for path, it in texts.items() if "\ufffd" not in it for one in _functions(path, it)
    ]
    random.Random(f"{SEED} {name}").shuffle(found)
    found.sort(key=lambda one: one[1] not in used)
    return [_broken(root, *one) for one in found[:TRIES]]


def _text(place: Path) -> str:
    return place.read_bytes().decode("utf-8", "replace")


def _functions(path: str, text: str) -> Iterator[tuple[str, str, int, int]]:
    """Yield path, name, line, and the byte at which the break is inserted."""
    tree = parse(text.encode(), grammar_of(path))
    nodes = [tree.root_node] if tree is not None else []
    while nodes:
        node = nodes.pop()
        nodes += node.children
        body = node.child_by_field_name("body") if node.type in _FUNCTIONS else None
        if (
            body is None
            or body.type not in {"block", "statement_block"}
            or body.start_point == body.end_point
        ):
            continue
        named = node if node.child_by_field_name("name") is not None else node.parent
        label = (
            named.child_by_field_name("name") or named.child_by_field_name("key")
            if named is not None
            else None
        )
        name = label.text.decode() if label is not None and label.text is not None else ""
        # A body on its function's own line has no line for the break.
        if _WORD.fullmatch(name) and (
            body.type == "statement_block" or body.start_point.row > node.start_point.row
        ):
            yield (
                path,
                name,
                node.start_point.row + 1,
                body.start_byte + (body.type == "statement_block"),
            )


def _broken(root: Path, path: str, function: str, line: int, at: int) -> Break:
    source = _text(root / path).encode()
    if path.endswith(".py"):
        indent = b" " * (at - source.rfind(b"\n", 0, at) - 1)
        message = f'raise RuntimeError("{MESSAGE}")\n'.encode() + indent
    else:
        # A condition, so that no compiler complains about code that is never reached.
        message = f' if (Date.now() > 0) {{ throw new Error("{MESSAGE}"); }} '.encode()
    text = (source[:at] + message + source[at:]).decode()
    return Break(
        path=path, function=function, line=line, text=text, diff=_diff(path, source.decode(), text)
    )


def _diff(path: str, before: str, after: str) -> str:
    """Return a change as git's diff; lines end at a line feed alone, as for git."""
    old, new = (re.findall(r"[^\n]*\n|[^\n]+$", text) for text in (before, after))
    changed = difflib.unified_diff(old, new, f"a/{path}", f"b/{path}")
    ended = (it if it.endswith("\n") else f"{it}\n\\ No newline at end of file\n" for it in changed)
    return f"diff --git a/{path} b/{path}\n{''.join(ended)}"


def mount(place: Path, found: list[Break]) -> Mapping[str, str]:
    """Return the environment in which a build has the gate of broken_gate.py, which asks about these."""
    packages = place / "gate"
    facts = packages / "broken_function_gate-1.dist-info"
    facts.mkdir(parents=True)
    (facts / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: broken-function-gate\nVersion: 1\n"
    )
    entry = f"{broken_gate.NAME} = broken_function_gate:build_gates\n"
    (facts / "entry_points.txt").write_text(f"[fallback_tier.gates]\n{entry}")
    shutil.copy(broken_gate.__file__, packages / "broken_function_gate.py")
    listed = place / "breaks.json"
    listed.write_text(json.dumps([one.model_dump() for one in found]), encoding="utf-8")
    path = os.pathsep.join(filter(None, (str(packages), os.environ.get("PYTHONPATH"))))
    return {"PYTHONPATH": path, broken_gate.BREAKS: str(listed)}


def answers(place: Path) -> list[Mapping[str, str]]:
    """Return what the tests gate said of each break that it was asked about."""
    file = place / "breaks.answers"
    return (
        [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
        if file.exists()
        else []
    )
