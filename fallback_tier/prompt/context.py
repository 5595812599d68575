"""Which of the repository's own text goes into the prompt: few places, chosen without a model.

1. files that the last failure summary names (a retry's first interest);
2. manifests, around the lines that name the affected package;
3. source files, best first: named by the advisory, using the package, holding symbols that the
   advisory names (the repository's own code may be what is vulnerable). Tests come last: they may
   explain, but must not be edited.

Work is bounded whatever the repository's size, and the order depends on nothing but the input.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath
from typing import NamedTuple

from pydantic import Field

from fallback_audit.frozen import Frozen
from fallback_tier.advisory import Advisory
from fallback_tier.errors import RepositoryError
from fallback_tier.outcome import AttemptSummary
from fallback_tier.ports import EcosystemPlugin
from fallback_tier.prompt.redact import redact_secrets
from fallback_tier.repo import RepoContext

#: Snippets in one prompt: more places than this are a list, not a context.
MAX_SNIPPETS = 12

#: One snippet: a long function with its surroundings. The fence's cap is twice that.
MAX_SNIPPET_BYTES = 4_000

#: Less than this of a file explains nothing; the budget's last bytes stay unused instead.
MIN_SNIPPET_BYTES = 160

#: Source files opened per prompt: about half a second of reading; those nearest the root come first.
MAX_SCANNED_FILES = 2_000

#: Larger source files are generated or bundled as a rule.
MAX_SOURCE_BYTES = 256 * 1024

#: A line longer than this is minified code or data: nothing to copy an edit from.
MAX_LINE_CHARS = 1_000

#: Identifiers taken from an advisory, and paths from an advisory or a summary: the first ones.
MAX_TERMS = 50

#: Lines shown before the line of interest: the signature and the decorators above it.
_LINES_BEFORE = 12

#: Shorter words (``get``, ``set``) are in every file.
MIN_NAME_CHARS = 4

_SOURCE_SUFFIXES = frozenset(
    {".py", ".pyi", ".pyx", ".js", ".mjs", ".cjs", ".jsx"}
    | {".ts", ".mts", ".cts", ".tsx", ".vue", ".svelte"}
)
#: Folders of other people's code and of built files.
_NOT_OURS = frozenset(
    {"node_modules", "bower_components", "site-packages", "venv", ".venv", ".tox", ".yarn"}
    | {"vendor", "vendored", "_vendor", "third_party", "third-party"}
    | {"dist", "build", "out", "min", "coverage"}
)
_TEST_PART = re.compile(r"(?:^|[._-])(?:tests?|specs?|__tests__|__mocks__|fixtures?)(?:[._-]|$)")
_LOCK = re.compile(r"(?:\.lock|[-_]lock\.(?:json|ya?ml)|npm-shrinkwrap\.json|\.lockb)$")

# Untrusted text is cut into maximal runs first, then each run is judged: no pattern here can be made to
# look at the same character many times.
_RUN = re.compile(r"[\w@./$-]+")
_WORD = re.compile(r"[\w$]+")
_QUOTED = re.compile(r"`([^`\n]{1,120})`")
_PATH_SUFFIXES = _SOURCE_SUFFIXES | {".json", ".toml", ".txt", ".cfg", ".ini"}
#: What follows a path where a tool or a trace names a line: ``a.py:12``, ``a.py", line 12``, ``a.js(12``.
_LINE_NUMBER = re.compile(r"(?::|\", line |\()(\d{1,6})")
_CAMEL = re.compile(r"[a-z][A-Z]|[^_]_+[^_]")
#: Longer than any name that people give to code.
_MAX_NAME_CHARS = 200


class Snippet(Frozen):
    """Lines of one file as the prompt shows them; secrets are already out."""

    id: str
    path: str
    start_line: int = Field(ge=1)
    text: str

    @property
    def end_line(self) -> int:
        """The last line shown."""
        return self.start_line + max(0, self.text.removesuffix("\n").count("\n"))


class _Place(NamedTuple):
    """A file worth showing, and the line (from 0) that makes it so."""

    path: str
    text: str
    line: int


def select_snippets(
    advisory: Advisory,
    repo: RepoContext,
    plugin: EcosystemPlugin,
    *,
    prior_attempts: Sequence[AttemptSummary] = (),
    secrets: frozenset[str] = frozenset(),
) -> tuple[Snippet, ...]:
    """At most MAX_SNIPPETS, together at most ``repo.settings.snippet_budget_bytes`` (UTF-8).

    Ids are S1, S2 … in the order shown. A file that can't be read (binary, too large, a link) is
    skipped: what the prompt lacks, the gates don't.
    """
    summary = prior_attempts[-1].prior_failure_summary if prior_attempts else ""
    words = _Words(advisory, plugin.name)
    left = repo.settings.snippet_budget_bytes
    snippets: list[Snippet] = []
    seen: set[str] = set()
    for place in _places(summary, words, repo, plugin):
        if place.path in seen:
            continue
        seen.add(place.path)
        start, text = _window(
            redact_secrets(place.text, secrets)[0], place.line, min(MAX_SNIPPET_BYTES, left)
        )
        size = len(text.encode())
        if not text.strip() or (size < MIN_SNIPPET_BYTES and len(text) < len(place.text)):
            continue
        snippets.append(
            Snippet(id=f"S{len(snippets) + 1}", path=place.path, start_line=start + 1, text=text)
        )
        left -= size
        if len(snippets) == MAX_SNIPPETS or left < MIN_SNIPPET_BYTES:
            break
    return tuple(snippets)


class _Words:
    """What the advisory talks about: its packages, paths and symbols."""

    def __init__(self, advisory: Advisory, ecosystem: str) -> None:
        self.text = advisory.text[:MAX_SOURCE_BYTES]
        self.packages = advisory.packages(ecosystem)
        own = {part for name in self.packages for part in _WORD.findall(name)}
        named = (name for name in _code_names(self.text) if name not in own)
        self.symbols = tuple(dict.fromkeys(named))[:MAX_TERMS]
        # "flask-login" is written flask_login in code and Flask.Login elsewhere (PEP 503).
        spelled = ("[-_.]+".join(map(re.escape, re.split(r"[-_.]+", p))) for p in self.packages)
        self._package = re.compile(rf"(?<![\w$])(?:{'|'.join(spelled) or '(?!)'})(?![\w$])")

    def package_line(self, text: str) -> int | None:
        """The first line (from 0) that names an affected package."""
        match = self._package.search(text)
        return text.count("\n", 0, match.start()) if match else None

    def symbol_line(self, text: str) -> tuple[int, int]:
        """How many of the symbols occur, and the line that defines one (else the first use)."""
        present = {symbol for symbol in self.symbols if symbol in text}
        hits = [word for word in _WORD.finditer(text) if word[0] in present] if present else []
        if not hits:
            return 0, 0
        best = next((hit for hit in hits if _defines(text, hit)), hits[0])
        return len({hit[0] for hit in hits}), text.count("\n", 0, best.start())


def _code_names(text: str) -> Iterator[str]:
    """Identifiers that a prose marks as code: in backticks, called, or with a capital or _ inside."""
    for quoted in _QUOTED.finditer(text):
        yield from (name for name in _WORD.findall(quoted[1]) if _is_name(name))
    for word in _WORD.finditer(text):
        called = text.startswith("(", word.end())
        if _is_name(word[0]) and (called or _CAMEL.search(word[0])):
            yield word[0]


def _is_name(word: str) -> bool:
    """Long enough to mean something, and no number."""
    return MIN_NAME_CHARS <= len(word) <= _MAX_NAME_CHARS and not word[0].isdigit()


def _defines(text: str, hit: re.Match[str]) -> bool:
    before = text[max(0, hit.start() - 40) : hit.start()].rpartition("\n")[2]
    after = text[hit.end() : hit.end() + 20]
    return bool(
        re.search(r"(?:\bdef|\bclass|\bfunction\*?|\bconst|\blet|\bvar)\s+$", before)
        or re.match(r"\s*(?:[:=]\s*(?:async\s*)?(?:function|\()|\([^)\n]*\)\s*\{)", after)
    )


def _places(
    summary: str, words: _Words, repo: RepoContext, plugin: EcosystemPlugin
) -> Iterator[_Place]:
    """Candidates, best first. A path may come twice; its first place is the one that counts."""
    for path, line in _named(summary, repo.tracked_files):
        if (text := _read(repo, path)) is not None:
            yield _Place(path, text, line)
    for path in sorted(repo.manifests):
        if _LOCK.search(path) or (text := _read(repo, path)) is None:
            continue
        package_line = words.package_line(text)
        if package_line is not None or len(text) <= MAX_SNIPPET_BYTES // 2:
            yield _Place(path, text, package_line or 0)
    yield from _sources(words, repo, plugin)


def _sources(words: _Words, repo: RepoContext, plugin: EcosystemPlugin) -> Iterator[_Place]:
    named = {path for path, _ in _named(words.text, repo.tracked_files)}
    ranked: list[tuple[tuple[bool, bool, bool, int, int, str], _Place]] = []
    for path in _scannable(repo.tracked_files, named):
        if (text := _read(repo, path)) is None:
            continue
        uses = any(plugin.mentions(package, path, text) for package in words.packages)
        symbols, line = words.symbol_line(text)
        if path in named or uses or symbols:
            line = line if symbols else words.package_line(text) or 0
            depth = path.count("/")
            rank = (_is_test(path), path not in named, not uses, -symbols, depth, path)
            ranked.append((rank, _Place(path, text, line)))
    ranked.sort(key=lambda item: item[0])
    yield from (place for _, place in ranked)


def _scannable(tracked: Sequence[str], named: set[str]) -> list[str]:
    """Source files of the project itself, at most MAX_SCANNED_FILES: named ones, then by depth."""
    ours = (path for path in tracked if _is_source(path))
    order = sorted(
        ours, key=lambda path: (path not in named, _is_test(path), path.count("/"), path)
    )
    return order[:MAX_SCANNED_FILES]


def _is_source(path: str) -> bool:
    pure = PurePosixPath(path)
    return (
        pure.suffix in _SOURCE_SUFFIXES
        and ".min." not in pure.name
        and ".bundle." not in pure.name
        and _NOT_OURS.isdisjoint(pure.parts[:-1])
    )


def _is_test(path: str) -> bool:
    return any(_TEST_PART.search(part) for part in PurePosixPath(path).parts)


def _named(text: str, tracked: Sequence[str]) -> list[tuple[str, int]]:
    """Tracked files that a text names, in its order, with the line (from 0) that it gives for them.

    The text may know more of the path than we do (``/work/src/a.js``) or less (``lib/a.js``).
    """
    lines: dict[str, int] = {}
    for run in _RUN.finditer(text):
        name = run[0].rstrip(".")
        if len(name) > _MAX_NAME_CHARS or PurePosixPath(name).suffix not in _PATH_SUFFIXES:
            continue
        number = _LINE_NUMBER.match(text, run.end())
        lines.setdefault(name, max(0, int(number[1]) - 1) if number else 0)
        if len(lines) == MAX_TERMS:
            break
    by_name: dict[str, list[str]] = {name.rpartition("/")[2]: [] for name in lines}
    for path in sorted(tracked):
        if (same_name := by_name.get(path.rpartition("/")[2])) is not None:
            same_name.append(path)
    found: dict[str, int] = {}
    for name, line in lines.items():
        for path in by_name[name.rpartition("/")[2]]:
            shorter = f"/{path}".endswith(f"/{name.lstrip('./')}")
            if (shorter or f"/{name}".endswith(f"/{path}")) and not _LOCK.search(path):
                found.setdefault(path, line)
    return list(found.items())


def _read(repo: RepoContext, path: str) -> str | None:
    """A text file of hand-written size, or None."""
    try:
        if (repo.root / path).stat().st_size > MAX_SOURCE_BYTES:
            return None
        text = repo.read_text(path)
    except (OSError, RepositoryError):
        return None
    if "\0" in text or max(map(len, text.split("\n"))) > MAX_LINE_CHARS:
        return None
    return text


def _window(text: str, line: int, room: int) -> tuple[int, str]:
    """Whole lines around ``line``, at most ``room`` bytes, and the index of the first one."""
    if len(text.encode()) <= room:
        return 0, text
    lines = text.splitlines(keepends=True)
    start = max(0, min(line, len(lines) - 1) - _LINES_BEFORE)
    # The line of interest must fit: near it comes before far from it.
    while start < line and sum(len(x.encode()) for x in lines[start : line + 1]) > room:
        start += 1
    size, end = 0, start
    while end < len(lines) and size + len(lines[end].encode()) <= room:
        size += len(lines[end].encode())
        end += 1
    return start, "".join(lines[start:end])
