"""The code that a model names when it declines: files, lines, functions that no snippet showed.

Only the repository's own tracked source is looked through, none that keeps secrets by its name, and it is
redacted as any other: a model repeats what an advisory tells it to ask for (ADR-0044).
"""

import re
from collections.abc import Iterator, Sequence

from fallback_tier.files.source_paths import is_beside
from fallback_tier.prompt.context.named import (
    MAX_TERMS,
    code_names,
    defines,
    failure_names,
    find_word,
    named_files,
    named_modules,
)
from fallback_tier.prompt.context.packing import (
    MAX_SNIPPET_BYTES,
    Snippet,
    SnippetBudget,
    Wanted,
    pack,
)
from fallback_tier.prompt.context.sources import Showable, Sources, Unit, scannable
from fallback_tier.repo import RepoContext

#: Shown on top of the first prompt, at most (UTF-8 bytes): some functions with their files' rest. A room
#: for code that is smaller than this holds here too.
MAX_MORE_BYTES = 24_000

#: Of a reason so much is read: who names more names nothing.
_READ_CHARS = 4_000

#: A plain word that is said to be code: "the merge function", "class Session".
_KIND = r"(?:function|method|class|helper|definition of)"
_CALLED_SO = re.compile(rf"\b(?:([A-Za-z_$]\w{{2,60}}) {_KIND}|{_KIND} ([A-Za-z_$]\w{{2,60}}))\b")

#: A name that more files define, or have, says nothing about which of them is meant.
_MAX_FILES_OF_A_NAME = 3

#: … and of so many files that have it none is looked at closely: a hostile repository has it everywhere.
_MAX_LOOKED_AT = 200


def asked_for(
    reason: str,
    shown: Sequence[Snippet],
    repo: RepoContext,
    *,
    space: int,
    secrets: frozenset[str] = frozenset(),
) -> tuple[Snippet, ...]:
    """Return what ``reason`` names and ``shown`` lacks, in at most ``space`` bytes and MAX_MORE_BYTES
    (UTF-8), numbered after ``shown``. Empty if there is none."""
    search = _Search(reason[:_READ_CHARS], repo)
    files = Showable(search.sources, secrets)
    return pack(
        search.places(),
        files.lines,
        SnippetBudget.of_own(min(space, MAX_MORE_BYTES)),
        shown=shown,
        first=len(shown) + 1,
        hidden=files.hidden,
    )


class _Search:
    def __init__(self, reason: str, repo: RepoContext) -> None:
        self.sources = Sources(repo, MAX_SNIPPET_BYTES)
        named = named_files(reason, repo.tracked_files)
        modules = named_modules(reason, repo.tracked_files)
        self._paths = scannable(repo.tracked_files, frozenset(named) | modules)
        ours = frozenset(self._paths)
        files = [*named, *sorted(modules - set(named))]
        self._files = {path: named.get(path, ()) for path in files if path in ours}
        called = (found[1] or found[2] for found in _CALLED_SO.finditer(reason))
        names = (*code_names(reason), *failure_names(reason), *called)
        self._names = tuple(dict.fromkeys(names))[:MAX_TERMS]

    def places(self) -> Iterator[Wanted]:
        """Best first: lines of a file that are named, what defines a name, then the named files' rest."""
        for path, lines in self._files.items():
            yield from self._lines_of(path, lines)
        for name in self._names:
            for unit, at in self._having(name):
                yield Wanted(*unit[:3], at)
        for path in self._files:
            for unit in self.sources.units(path):
                yield Wanted(*unit[:3], unit.start)

    def _lines_of(self, path: str, lines: Sequence[int]) -> Iterator[Wanted]:
        for unit in self.sources.units(path):
            for line in lines:
                if unit.start < line <= unit.end:
                    yield Wanted(*unit[:3], line - 1)

    def _having(self, name: str) -> Iterator[tuple[Unit, int]]:
        """Where the named files have the name; and where it is defined, else used, in few files."""
        having = [path for path in self._paths if name in (self.sources.text(path) or "")]
        yield from self._units_with(name, [path for path in having if path in self._files])
        looked_at = having[:_MAX_LOOKED_AT]
        defining = [path for path in looked_at if defines(self.sources.text(path) or "", name)]
        for group in (defining, having):
            product = [path for path in group if not is_beside(path)] or group
            if 0 < len(product) <= _MAX_FILES_OF_A_NAME:
                yield from self._units_with(name, product)
                return

    def _units_with(self, name: str, paths: Sequence[str]) -> Iterator[tuple[Unit, int]]:
        """Definitions first."""
        having = []
        for unit in (unit for path in paths for unit in self.sources.units(path)):
            body = self.sources.body(unit)
            at = defines(body, name)
            place = find_word(body, name) if at is None else at
            if place is not None:
                having.append((at is None, unit, unit.start + body.count("\n", 0, place)))
        for _, unit, line in sorted(having, key=lambda one: one[0]):
            yield unit, line
