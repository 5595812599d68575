"""Names in a text: identifiers, files and their lines, modules; and the positions of a name in code.

Untrusted text is first cut into maximal runs, then each run is judged: no pattern here can be made to read
the same character many times.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import PurePosixPath

from fallback_tier.files.source_paths import SOURCE_SUFFIXES, is_lock

#: How many identifiers, and paths, are taken from a text: the first ones.
MAX_TERMS = 50

#: Shorter words (``get``, ``set``) are in every file.
MIN_NAME_CHARS = 4

#: Longer than any name that people give to code.
_MAX_NAME_CHARS = 200

#: How many occurrences of a name are checked in one text: a hostile text has nothing else.
_MAX_PLACES = 500

#: How many pairs of neighbours in dotted names are kept.
_MAX_PAIRS = 1_000

_RUN = re.compile(r"[\w@./$-]+")
_WORD = re.compile(r"[\w$]+")
_DOTTED = re.compile(r"[\w.]+")
_QUOTED = re.compile(r"[`'\"]([^`'\"\n]{1,120})[`'\"]")
_BACKTICKED = re.compile(r"`([^`\n]{1,120})`")
_PATH_SUFFIXES = SOURCE_SUFFIXES | {".json", ".toml", ".txt", ".cfg", ".ini"}
#: The line number that a tool or a trace adds to a path: ``a.py:12``, ``a.py", line 12``, ``a.js(12``.
_LINE_NUMBER = re.compile(r"(?::|\", line |\()(\d{1,6})")
_DEFINED_BEFORE = re.compile(r"(?:\bdef|\bclass|\bfunction\*?|\bconst|\blet|\bvar)\s+$")
_ASSIGNED_AFTER = re.compile(r"\s*=(?![=>])")
_DEFINED_AFTER = re.compile(r"\s*(?:[:=]\s*(?:async\s*)?(?:function|\()|\([^)\n]*\)\s*\{)")
#: ``block.def``: its parts are often too short to be separate names. Files (``a.js``) are not meant.
_WITH_DOTS = re.compile(r"(?<![\w.$/])[A-Za-z_$][\w$]*(?:\.[A-Za-z_$][\w$]*)+(?![\w$/])")
_CAMEL = re.compile(r"[a-z][A-Z]|[^_]_+[^_]")


def code_names(text: str) -> tuple[str, ...]:
    """Return the identifiers that prose marks as code: in backticks, called, with a capital or _ inside."""
    return tuple(dict.fromkeys(_code_names(text)))[:MAX_TERMS]


def failure_names(text: str) -> tuple[str, ...]:
    """Return the identifiers that a tool's message names, also in quotes: ``import name 'escape'``."""
    quoted = (
        name
        for match in _QUOTED.finditer(text)
        for name in _WORD.findall(match[1])
        if " " not in match[1] and _is_name(name)
    )
    return tuple(dict.fromkeys((*quoted, *_code_names(text))))[:MAX_TERMS]


def named_files(text: str, tracked: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """Return the tracked files that a text names, in its order, with their lines (from 1). Its paths may be
    longer than ours (``/work/src/a.js``) or shorter (``lib/a.js``)."""
    lines: dict[str, list[int]] = {}
    for run in _RUN.finditer(text):
        name = run[0].rstrip(".")
        if len(name) > _MAX_NAME_CHARS or PurePosixPath(name).suffix not in _PATH_SUFFIXES:
            continue
        if name not in lines and len(lines) == MAX_TERMS:
            break
        number = _LINE_NUMBER.match(text, run.end())
        numbers = lines.setdefault(name, [])
        if number and len(numbers) < MAX_TERMS:
            numbers.append(max(1, int(number[1])))
    by_name: dict[str, list[str]] = {name.rpartition("/")[2]: [] for name in lines}
    for path in sorted(tracked):
        if (same_name := by_name.get(path.rpartition("/")[2])) is not None:
            same_name.append(path)
    lines_by_path: dict[str, tuple[int, ...]] = {}
    for name, numbers in lines.items():
        for path in by_name[name.rpartition("/")[2]]:
            is_suffix = f"/{path}".endswith(f"/{name.lstrip('./')}")
            if (is_suffix or f"/{name}".endswith(f"/{path}")) and not is_lock(path):
                lines_by_path[path] = (*lines_by_path.get(path, ()), *numbers)
    return lines_by_path


def named_modules(text: str, tracked: Sequence[str]) -> frozenset[str]:
    """Return the tracked files of dotted names: the module of ``aiohttp.web_request.Request``."""
    pairs: set[str] = set()
    for run in _DOTTED.finditer(text):
        if "." in run[0] and len(run[0]) <= _MAX_NAME_CHARS:
            parts = [part for part in run[0].split(".") if part]
            pairs.update("/".join(pair) for pair in pairwise(parts))
        if len(pairs) > _MAX_PAIRS:
            break
    return frozenset(
        path for path in tracked if "/".join(path.rpartition(".")[0].rsplit("/", 2)[-2:]) in pairs
    )


def _code_names(text: str) -> Iterator[str]:
    for quoted in _BACKTICKED.finditer(text):
        yield from (name[0] for name in _WITH_DOTS.finditer(quoted[1]))
        yield from (name for name in _WORD.findall(quoted[1]) if _is_name(name))
    for word in _WORD.finditer(text):
        called = text.startswith("(", word.end())
        if _is_name(word[0]) and (called or _CAMEL.search(word[0])):
            yield word[0]


def _is_name(word: str) -> bool:
    """Return whether a word is long enough to be a name, and not a number."""
    return MIN_NAME_CHARS <= len(word) <= _MAX_NAME_CHARS and not word[0].isdigit()


def find_word(text: str, word: str) -> int | None:
    """Return the first position of the word in the text as a whole identifier, or None."""
    return next(_whole(text, word), None)


def defines(text: str, name: str) -> int | None:
    """Return the position at which the text defines the name, as far as plain text shows, or None."""
    return next((at for at in _whole(text, name) if _is_definition(text, at, at + len(name))), None)


def _whole(text: str, word: str) -> Iterator[int]:
    at = -len(word)
    for _ in range(_MAX_PLACES):
        at = text.find(word, at + len(word))
        if at < 0:
            return
        if not _is_part(text, at - 1) and not _is_part(text, at + len(word)):
            yield at


def _is_part(text: str, at: int) -> bool:
    return 0 <= at < len(text) and (text[at].isalnum() or text[at] in "_$")


def _is_definition(text: str, at: int, end: int) -> bool:
    preceding = text[max(0, at - 40) : at].rpartition("\n")[2]
    dotted = "." in text[at:end] and _ASSIGNED_AFTER.match(text, end, end + 20)
    following = _DEFINED_AFTER.match(text, end, end + 200)
    return bool(_DEFINED_BEFORE.search(preceding) or following or dotted)
