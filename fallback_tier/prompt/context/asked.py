"""The code that a model names when it declines: files, lines, functions that no snippet showed.

Only the repository's own tracked source is searched, without files whose name marks them as secret, and it
is redacted like all other text: a model may repeat what an advisory tells it to ask for (ADR-0044).
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

#: The limit of code added to the first prompt (UTF-8 bytes): some functions with the rest of their files. A
#: smaller budget for code also applies here.
MAX_MORE_BYTES = 24_000

#: How much of a reason is read: a longer one names too much.
_READ_CHARS = 4_000

#: A plain word that is described as code: "the merge function", "class Session".
_KIND = r"(?:function|method|class|helper|definition of)"
_CALLED_SO = re.compile(rf"\b(?:([A-Za-z_$]\w{{2,60}}) {_KIND}|{_KIND} ([A-Za-z_$]\w{{2,60}}))\b")

#: If more files define or contain a name, it does not tell which of them is meant.
_MAX_FILES_OF_A_NAME = 3

#: At most this many of the files that contain a name are searched for its definition: a hostile repository
#: has it in all files.
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
        lines_by_path = named_files(reason, repo.tracked_files)
        modules = named_modules(reason, repo.tracked_files)
        self._paths = scannable(repo.tracked_files, frozenset(lines_by_path) | modules)
        searchable = frozenset(self._paths)
        files = [*lines_by_path, *sorted(modules - set(lines_by_path))]
        self._files = {path: lines_by_path.get(path, ()) for path in files if path in searchable}
        described_names = (match[1] or match[2] for match in _CALLED_SO.finditer(reason))
        names = (*code_names(reason), *failure_names(reason), *described_names)
        self._names = tuple(dict.fromkeys(names))[:MAX_TERMS]

    def places(self) -> Iterator[Wanted]:
        """Yield the wanted code, best first: named lines of files, definitions of names, then the rest of
        the named files."""
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
        """Yield the name's positions in the named files, and in few files its definitions,
        otherwise uses."""
        containing = [path for path in self._paths if name in (self.sources.text(path) or "")]
        yield from self._units_with(name, [path for path in containing if path in self._files])
        looked_at = containing[:_MAX_LOOKED_AT]
        defining = [path for path in looked_at if defines(self.sources.text(path) or "", name)]
        for group in (defining, containing):
            product = [path for path in group if not is_beside(path)] or group
            if 0 < len(product) <= _MAX_FILES_OF_A_NAME:
                yield from self._units_with(name, product)
                return

    def _units_with(self, name: str, paths: Sequence[str]) -> Iterator[tuple[Unit, int]]:
        """Yield units with the name, definitions first."""
        matches = []
        for unit in (unit for path in paths for unit in self.sources.units(path)):
            body = self.sources.body(unit)
            at = defines(body, name)
            offset = find_word(body, name) if at is None else at
            if offset is not None:
                matches.append((at is None, unit, unit.start + body.count("\n", 0, offset)))
        for _, unit, line in sorted(matches, key=lambda match: match[0]):
            yield unit, line
