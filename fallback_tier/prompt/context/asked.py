"""The code that a model names when it declines: files, lines, functions that no snippet showed.

Only the repository's own tracked source is looked through, none that keeps secrets by its name, and it is
redacted as any other: a model repeats what an advisory tells it to ask for (ADR-0044).
"""

import re
from collections.abc import Iterator, Sequence

from fallback_tier.prompt.context.files import is_beside, scannable
from fallback_tier.prompt.context.named import (
    code_names,
    defines,
    failure_names,
    find_word,
    named_files,
    named_modules,
)
from fallback_tier.prompt.context.packing import (
    MAX_SNIPPET_BYTES,
    Room,
    Snippet,
    Wanted,
    pack,
)
from fallback_tier.prompt.context.sources import Sources, without_secrets
from fallback_tier.prompt.context.units import Unit
from fallback_tier.prompt.context.words import MAX_WORDS, telling_words
from fallback_tier.repo import RepoContext

#: Shown on top of the first prompt, at most (UTF-8 bytes): some functions with their files' rest. A room
#: for code that is smaller than this holds here too.
MAX_MORE_BYTES = 24_000

#: Of a reason so much is read: who names more names nothing.
_READ_CHARS = 4_000

#: A name that more files define, or have, says nothing about which of them is meant.
_MAX_FILES_OF_A_NAME = 3

#: Source files that are kept for their secrets, whatever is asked.
_SECRET = re.compile(
    r"(?:^|/)[\w-]*(?:secrets?|credentials?|passwords?|(?:private|api)[-_]?keys?)\.\w+$"
    r"|(?:^|/)(?:local[-_]settings|settings[-_]local)\.\w+$|(?:^|/)\.(?:secrets?|ssh|aws|gnupg)/",
    re.IGNORECASE,
)


def asked_for(
    reason: str,
    shown: Sequence[Snippet],
    repo: RepoContext,
    *,
    room: int,
    secrets: frozenset[str] = frozenset(),
) -> tuple[Snippet, ...]:
    """What ``reason`` names and ``shown`` lacks, in at most ``room`` bytes and MAX_MORE_BYTES of UTF-8.

    Ids go on after ``shown``. Empty: it names nothing that can be shown.
    """
    search = _Search(reason[:_READ_CHARS], repo)
    seen: dict[str, list[tuple[int, int]]] = {}
    for snippet in shown:
        seen.setdefault(snippet.path, []).append((snippet.start_line - 1, snippet.end_line))
    wanted = (
        piece for place in search.places() for piece in _unseen(place, seen.get(place.path, ()))
    )
    return pack(
        [(wanted, Room.of_own(min(room, MAX_MORE_BYTES)))],
        without_secrets(search.sources, secrets),
        first=len(shown) + 1,
    )


class _Search:
    def __init__(self, reason: str, repo: RepoContext) -> None:
        self.sources = Sources(repo, MAX_SNIPPET_BYTES)
        named = named_files(reason, repo.tracked_files)
        modules = named_modules(reason, repo.tracked_files)
        paths = scannable(repo.tracked_files, frozenset(named) | modules)
        self._paths = [path for path in paths if not _SECRET.search(path)]
        self._files = {
            path: named.get(path, ()) for path in [*named, *sorted(modules - set(named))]
        }
        self._names = tuple(dict.fromkeys((*code_names(reason), *failure_names(reason))))
        self._words = telling_words(reason)

    def places(self) -> Iterator[Wanted]:
        """Best first: lines of a file that are named, what defines a name, then the named files' rest."""
        files = [path for path in self._files if path in set(self._paths)]
        for path in files:
            yield from self._lines_of(path, self._files[path])
        found = False
        for name in self._names:
            for unit, at in self._having(name, files):
                found = True
                yield Wanted(*unit[:3], at)
        if not found and not files:
            yield from self._by_plain_words()
        for path in files:
            for unit in self.sources.units(path):
                yield Wanted(*unit[:3], unit.start)

    def _lines_of(self, path: str, lines: Sequence[int]) -> Iterator[Wanted]:
        for unit in self.sources.units(path):
            for line in lines:
                if unit.start < line <= unit.end:
                    yield Wanted(*unit[:3], line - 1)

    def _having(self, name: str, files: Sequence[str]) -> Iterator[tuple[Unit, int]]:
        """Where the named files have the name; else where it is defined; else where it is used."""
        mentions = [path for path in self._paths if name in (self.sources.text(path) or "")]
        here = [path for path in mentions if path in files]
        defining = [path for path in mentions if self._defines(path, name)]
        for group in (here, defining, mentions):
            product = [path for path in group if not is_beside(path)] or group
            if 0 < len(product) <= _MAX_FILES_OF_A_NAME:
                units = [unit for path in product for unit in self.sources.units(path)]
                yield from self._units_with(name, units)
                if group is not here:
                    return

    def _units_with(self, name: str, units: Sequence[Unit]) -> Iterator[tuple[Unit, int]]:
        """Definitions first."""
        having = []
        for unit in units:
            body = self.sources.body(unit)
            at = defines(body, name)
            place = find_word(body, name) if at is None else at
            if place is not None:
                having.append((at is None, unit, unit.start + body.count("\n", 0, place)))
        for _, unit, line in sorted(having, key=lambda one: one[0]):
            yield unit, line

    def _defines(self, path: str, name: str) -> bool:
        return defines(self.sources.text(path) or "", name) is not None

    def _by_plain_words(self) -> Iterator[Wanted]:
        """ "the merge function is not shown": a word that one file of the product defines."""
        for word in self._words[:MAX_WORDS]:
            defining = [
                path for path in self._paths if not is_beside(path) and self._defines(path, word)
            ]
            if len(defining) == 1:
                for unit, at in self._units_with(word, self.sources.units(defining[0])):
                    yield Wanted(*unit[:3], at)
                    break


def _unseen(place: Wanted, seen: Sequence[tuple[int, int]]) -> Iterator[Wanted]:
    """The lines of a place that stand in no snippet."""
    start = place.start
    for first, after in [*sorted(seen), (place.end, place.end)]:
        end = min(first, place.end)
        if start < end:
            yield place._replace(start=start, end=end, focus=min(max(place.focus, start), end - 1))
        start = max(start, after)
