"""Grammars of the languages that patches are in, loaded when first needed (each costs some 10 ms).

The per-language wheels hold their grammar; a language pack would fetch it at run time.
"""

import threading
from functools import cache
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tree_sitter import Language, Parser, Tree

_BY_SUFFIX = {
    ".py": "python",
    ".pyi": "python",
    ".js": "javascript",
    ".cjs": "javascript",
    ".mjs": "javascript",
    ".jsx": "javascript",
    ".ts": "typescript",
    ".cts": "typescript",
    ".mts": "typescript",
    ".tsx": "tsx",
}

#: Programs on a first line (``#!``) that say what a file without a suffix is written in.
_BY_INTERPRETER = {
    "python": "python",
    "node": "javascript",
    "deno": "typescript",
    "bun": "typescript",
}

#: Steps of one parse, about 0.05 ms each: code that a person wrote takes 7 to 22 a KiB, so that 350 KiB
#: and more are parsed whole, while error recovery in hostile text (0.3 ms a step) ends within seconds.
MAX_PARSE_STEPS = 8_000

#: Given to the parser at a time: each piece is copied, so that it must not be the whole rest.
_READ_BYTES = 64 * 1024

#: tree-sitter lets go of its parse stack by recursion (``stack_node_release``): what nests a hundred
#: thousand levels deep would end the process. A source up to this size needs 0.5 MB of stack at most …
_SHALLOW_BYTES = 16 * 1024

#: … and what MAX_PARSE_STEPS steps of 100 operations can pile up, at 32 bytes a level, some 26 MB. Memory
#: is taken from it as it is used.
_STACK_BYTES = 64 * 1024 * 1024

#: The size of stacks is a setting of the whole process: it is changed while one thread starts.
_STARTING = threading.Lock()


def grammar_of(path: str) -> str:
    """Name of the grammar for a file; empty where there is none."""
    return _BY_SUFFIX.get(PurePosixPath(path).suffix.lower(), "")


def grammar_of_text(path: str, *texts: str) -> str:
    """The same; for a file without a suffix, by what the first line (``#!``) of one of its texts starts.

    Several texts: a patch that takes that line away makes the file no other language's.
    """
    grammar = grammar_of(path)
    if grammar or PurePosixPath(path).suffix:
        return grammar
    firsts = (text.partition("\n")[0] for text in texts)
    named = (_by_interpreter(first) for first in firsts if first.startswith("#!"))
    return next(filter(None, named), "")


def _by_interpreter(first: str) -> str:
    return next((name for word, name in _BY_INTERPRETER.items() if word in first), "")


@cache
def language(grammar: str) -> "Language":
    """The grammar of this name (one that ``grammar_of`` gives), loaded once."""
    from tree_sitter import Language

    if grammar == "python":
        import tree_sitter_python

        return Language(tree_sitter_python.language())
    if grammar == "javascript":
        import tree_sitter_javascript

        return Language(tree_sitter_javascript.language())
    import tree_sitter_typescript

    if grammar == "tsx":
        return Language(tree_sitter_typescript.language_tsx())
    return Language(tree_sitter_typescript.language_typescript())


def parser(grammar: str) -> "Parser":
    """A parser of its own for each call: they keep state, and any thread may ask."""
    from tree_sitter import Parser

    return Parser(language(grammar))


def parse(source: bytes, grammar: str, *, max_steps: int = MAX_PARSE_STEPS) -> "Tree | None":
    """The tree of a source in UTF-8, or None: it would take more than ``max_steps``.

    Steps are tree-sitter's progress reports (one in 100 operations), not time: the same text gives
    the same answer on every machine.
    """
    if len(source) <= _SHALLOW_BYTES:
        return _parsed(source, grammar, max_steps)
    found: list[Tree | None] = []
    thread = threading.Thread(
        target=lambda: found.append(_parsed(source, grammar, max_steps)), daemon=True, name="parse"
    )
    with _STARTING:
        before = threading.stack_size(_STACK_BYTES)
        try:
            thread.start()
        finally:
            threading.stack_size(before)
    thread.join()
    return found[0] if found else None


def _parsed(source: bytes, grammar: str, max_steps: int) -> "Tree | None":
    steps = 0

    def give_up(_offset: int, _has_error: bool) -> bool:
        nonlocal steps
        steps += 1
        return steps > max_steps

    def read(offset: int, _point: object) -> bytes:
        return source[offset : offset + _READ_BYTES]

    try:
        return parser(grammar).parse(read, progress_callback=give_up)
    except ValueError:
        return None
