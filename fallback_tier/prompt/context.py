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

#: Source files opened per prompt: about 0.3 s of reading; those nearest the root come first.
MAX_SCANNED_FILES = 2_000

#: Larger source files are generated or bundled as a rule.
MAX_SOURCE_BYTES = 256 * 1024

#: A line longer than this is minified code or data: nothing to copy an edit from.
MAX_LINE_CHARS = 1_000

#: Identifiers taken from an advisory, and paths from an advisory or a summary: the first ones.
MAX_TERMS = 50

#: Lines shown before the line of interest: the signature and the decorators above it.
_LINES_BEFORE = 12

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

_PATH = re.compile(
    r"[\w@.-]*(?:/[\w@.-]+)*\.(?:py|pyi|[mc]?[jt]s|[jt]sx|vue|svelte|json|toml|txt)\b"
)
_IDENTIFIER = re.compile(r"[A-Za-z_$][\w$]{3,}")
#: What marks a word as code: backticks, a call, an underscore or a capital inside.
_CODE_WORD = re.compile(
    r"`([^`\n]{3,120})`|\b([A-Za-z_$][\w$.]{2,})\(|\b([A-Za-z]\w*_\w+|[a-z]+[A-Z]\w*)\b"
)


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
        text = advisory.text[:MAX_SOURCE_BYTES]
        self.text = text
        self.packages = advisory.packages(ecosystem)
        found = (next(filter(None, match.groups())) for match in _CODE_WORD.finditer(text))
        symbols = (word for phrase in found for word in _IDENTIFIER.findall(phrase))
        own = {part for name in self.packages for part in re.split(r"\W+", name)}
        self.symbols = tuple(dict.fromkeys(s for s in symbols if s not in own))[:MAX_TERMS]
        self._symbol = _any_word(self.symbols)
        self._package = _any_word(self.packages)

    def package_line(self, text: str) -> int:
        """The first line (from 0) that names an affected package, else the first."""
        match = self._package.search(text) if self.packages else None
        return text.count("\n", 0, match.start()) if match else 0

    def has_package(self, text: str) -> bool:
        """Is an affected package named?"""
        return bool(self.packages and self._package.search(text))

    def symbol_line(self, text: str) -> tuple[int, int]:
        """How many of the symbols occur, and the line that defines one (else the first use)."""
        if not self.symbols:
            return 0, 0
        hits = list(self._symbol.finditer(text))
        if not hits:
            return 0, 0
        best = next((hit for hit in hits if _defines(text, hit)), hits[0])
        return len({hit[0] for hit in hits}), text.count("\n", 0, best.start())


def _any_word(words: Sequence[str]) -> re.Pattern[str]:
    # "flask-login" is written flask_login in code and Flask.Login elsewhere (PEP 503).
    spelled = (re.sub(r"(?:\\[-.]|_)+", "[-_.]+", re.escape(word)) for word in words)
    return re.compile(rf"(?<![\w$])(?:{'|'.join(spelled)})(?![\w$])")


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
        if words.has_package(text) or len(text) <= MAX_SNIPPET_BYTES // 2:
            yield _Place(path, text, words.package_line(text))
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
            if not symbols:
                line = words.package_line(text)
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
    """Tracked files that a text names, in its order, with the line (from 0) given as ``path:12``.

    The text may know more of the path than we do (``/work/src/a.js``) or less (``lib/a.js``).
    """
    by_name: dict[str, list[str]] = {}
    found: dict[str, int] = {}
    matches = list(dict.fromkeys(m[0] for m in _PATH.finditer(text)))[:MAX_TERMS]
    wanted = {name.rpartition("/")[2] for name in matches}
    for path in tracked:
        if (name := path.rpartition("/")[2]) in wanted:
            by_name.setdefault(name, []).append(path)
    for name in matches:
        for path in sorted(by_name.get(name.rpartition("/")[2], ())):
            if f"/{name}".endswith(f"/{path}") or f"/{path}".endswith(f"/{name.lstrip('./')}"):
                line = re.search(re.escape(name) + r"(?::|\", line |\()(\d{1,6})", text)
                found.setdefault(path, int(line[1]) - 1 if line else 0)
    return [(path, max(0, line)) for path, line in found.items() if not _LOCK.search(path)]


def _read(repo: RepoContext, path: str) -> str | None:
    """A text file of hand-written size, or None."""
    try:
        if (repo.root / path).stat().st_size > MAX_SOURCE_BYTES:
            return None
        text = repo.read_text(path)
    except (OSError, RepositoryError):
        return None
    if "\0" in text or any(len(line) > MAX_LINE_CHARS for line in text.split("\n")):
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
