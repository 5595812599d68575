"""The files of one prompt: each read, parsed and parted once, and never kept for the next prompt."""

from fallback_tier.files.source_paths import keeps_secrets
from fallback_tier.prompt.context.files import CUT_LINE, Reader
from fallback_tier.prompt.context.units import Unit, lines_of, units_of
from fallback_tier.prompt.redact import redact_secrets
from fallback_tier.repo import RepoContext
from fallback_tier.syntax import Structure, grammar_of, structure

#: Read for one prompt, in characters: twice what as many files as are opened have as a rule. Each is
#: looked at for each name and kept, so that 2,000 files of the largest size would take minutes and 2 GB.
MAX_READ_CHARS = 32 * 1024 * 1024

#: Parsed for one prompt, in characters: about 3 MB a second. What is left over counts as having no
#: definitions, and is parted at blank lines.
MAX_PARSED_CHARS = 1024 * 1024

#: Steps of one parse. Code that a person wrote, MAX_PARSED_CHARS of it, takes less.
_MAX_STEPS = 4_000


class Sources:
    """Reads through ``repo``. ``max_bytes``: a file up to this size is one unit, and not parsed."""

    def __init__(self, repo: RepoContext, max_bytes: int) -> None:
        self._reader = Reader(repo.root)
        self._max_bytes = max_bytes
        self._texts: dict[str, str | None] = {}
        self._lines: dict[str, list[str]] = {}
        self._structures: dict[str, Structure] = {}
        self._units: dict[str, tuple[Unit, ...]] = {}
        self._left = MAX_PARSED_CHARS
        self._left_to_read = MAX_READ_CHARS

    def text(self, path: str) -> str | None:
        """Return a tracked text file, or None: ``Reader.read`` returned None, the file's name says that it
        keeps secrets, or MAX_READ_CHARS are used up."""
        if path not in self._texts:
            is_readable = self._left_to_read > 0 and not keeps_secrets(path)
            text = self._reader.read(path) if is_readable else None
            self._left_to_read -= len(text or "")
            self._texts[path] = text
        return self._texts[path]

    def lines(self, path: str) -> list[str]:
        """Its lines with their ends; none where it can't be read."""
        if path not in self._lines:
            self._lines[path] = lines_of(self.text(path) or "")
        return self._lines[path]

    def is_small(self, path: str) -> bool:
        """Is it shown whole?"""
        text = self.text(path) or ""
        return len(text) <= self._max_bytes and len(text.encode()) <= self._max_bytes

    def structure(self, path: str) -> Structure:
        """Definitions and imports; none where they can't be told, or no more may be parsed."""
        if path not in self._structures:
            self._structures[path] = self._parse(path, self.text(path) or "")
        return self._structures[path]

    def units(self, path: str) -> tuple[Unit, ...]:
        """A small file as one unit, another one as those that ``units_of`` tells."""
        if path not in self._units:
            lines = self.lines(path)
            self._units[path] = (
                (Unit(path, 0, len(lines)),)
                if self.is_small(path)
                else units_of(path, lines, self.structure(path), self._max_bytes)
            )
        return self._units[path]

    def body(self, unit: Unit) -> str:
        """The unit's text."""
        return "".join(self.lines(unit.path)[unit.start : unit.end])

    def _parse(self, path: str, text: str) -> Structure:
        grammar = grammar_of(path)
        if not grammar or len(text) > self._left:
            return Structure()
        self._left -= len(text)
        return structure(text, grammar, max_steps=_MAX_STEPS) or Structure()


class Showable:
    """Files as they may be shown: without ``secrets``, each looked through once."""

    def __init__(self, sources: Sources, secrets: frozenset[str]) -> None:
        self._sources = sources
        self._secrets = secrets
        self._lines: dict[str, list[str]] = {}
        self._hidden: dict[str, frozenset[int]] = {}

    def lines(self, path: str) -> list[str]:
        """Its lines with their ends."""
        if path not in self._lines:
            text = self._sources.text(path) or ""
            self._lines[path] = lines_of(redact_secrets(text, self._secrets)[0])
        return self._lines[path]

    def hidden(self, path: str) -> frozenset[int]:
        """Numbers, from 1, of lines that are not shown as the file has them."""
        if path not in self._hidden:
            pairs = zip(self.lines(path), self._sources.lines(path), strict=False)
            self._hidden[path] = frozenset(
                number
                for number, (shown, line) in enumerate(pairs, start=1)
                if shown != line or line.startswith(CUT_LINE)
            )
        return self._hidden[path]
