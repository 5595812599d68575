"""Whole units into pieces of limited size: split where one is too large, then merge.

The order of cAST (arXiv 2506.15655) with units in the place of syntax nodes: neighbours share a
piece while they fit; a unit that fits no piece is taken apart one level down, again and again, at
last into lines, words and characters. Only then something is told twice: each further piece begins
with what the unit's parts need beside them (``Unit.header``) and with the last whole small units
before it, up to the overlap.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from fallback_plugins.solved_examples.chunking.tokens import count_tokens
from fallback_plugins.solved_examples.chunking.units import Unit, UnitKind, lines_of

#: A header is repeated where it takes at most this part of a piece: the rest is for what is new.
_HEADER_SHARE = 4

#: A header is repeated where it has at most so many characters for each token of a piece: white space has
#: no token, and 100 KB of it would stand in every piece.
_CHARS_A_TOKEN = 8

#: Characters of a word that is too long for a piece (encoded data), kept together.
_SLICE = 16

_WORD = re.compile(r"\S+\s*|\s+")


@dataclass(frozen=True)
class Piece:
    """Consecutive units. ``repeated`` stands before them, and was in an earlier piece."""

    units: tuple[Unit, ...]
    repeated: str = ""
    #: Headings above, or the symbol in code.
    context: str = ""

    @property
    def own(self) -> str:
        """What no other piece has."""
        return "".join(unit.text for unit in self.units)

    @property
    def text(self) -> str:
        """What is stored and searched: without blank lines around it."""
        return (self.repeated + self.own).strip("\n")


def pack(units: Sequence[Unit], max_tokens: int, overlap_tokens: int) -> Iterator[Piece]:
    """Pieces of at most ``max_tokens``; their ``own`` texts, put together, are all units' text."""
    run: list[Unit] = []
    size = 0
    for unit in units:
        tokens = count_tokens(unit.text)
        if run and size + tokens > max_tokens:
            yield Piece(tuple(run), context=run[0].context)
            run, size = [], 0
        if tokens <= max_tokens:
            run.append(unit)
            size += tokens
        else:
            yield from _split(unit, max_tokens, overlap_tokens)
    if run:
        yield Piece(tuple(run), context=run[0].context)


def _split(unit: Unit, max_tokens: int, overlap_tokens: int) -> list[Piece]:
    splitter = _Splitter(max_tokens, overlap_tokens, unit.context)
    splitter.add(unit, "")
    splitter.end_piece()
    return splitter.pieces


@dataclass
class _Splitter:
    """The pieces of one unit that is too large, filled from its smaller units in order."""

    max_tokens: int
    overlap_tokens: int
    context: str
    pieces: list[Piece] = field(default_factory=list)
    run: list[Unit] = field(default_factory=list)
    repeated: str = ""
    size: int = 0

    def add(self, unit: Unit, headers: str) -> None:
        """Into the open piece, into a new one, or taken apart. ``headers``: of what it is part of."""
        cost = _cost(unit)
        if cost > self.max_tokens:
            below = self._affordable(headers, unit.header)
            for number, part in enumerate(unit.parts or _fragments(unit)):
                self.add(part, below if number else headers)
            return
        if self.run and self.size + cost > self.max_tokens:
            self.end_piece()
            self._begin_piece(headers, self.max_tokens - cost)
        self.run.append(unit)
        self.size += cost

    def end_piece(self) -> None:
        if self.run:
            self.pieces.append(Piece(tuple(self.run), self.repeated, self.context))
        self.run, self.repeated, self.size = [], "", 0

    def _begin_piece(self, headers: str, space: int) -> None:
        """What is told again, in ``space`` tokens. A whole unit comes before any repetition."""
        if count_tokens(headers) > space:
            headers = ""
        space = min(self.overlap_tokens, space - count_tokens(headers))
        self.repeated = headers + self._tail(headers, space)
        self.size = count_tokens(self.repeated)

    def _tail(self, headers: str, space: int) -> str:
        """The last whole smallest units of the piece before, at most ``space`` tokens."""
        tail = ""
        for unit in reversed(self.pieces[-1].units):
            for leaf in reversed(list(unit.leaves())):
                space -= _cost(leaf)
                if space < 0 or (headers and leaf.text in headers):
                    return tail
                tail = leaf.text + tail
        return tail

    def _affordable(self, headers: str, header: str) -> str:
        """Both, or the nearer one, or none: what leaves most of a piece for its own text."""
        for candidate in (headers + header, header):
            fits = len(candidate) <= self.max_tokens * _CHARS_A_TOKEN
            if fits and count_tokens(candidate) * _HEADER_SHARE <= self.max_tokens:
                return candidate
        return ""


def _cost(unit: Unit) -> int:
    """Tokens; of a slice its characters, as the tokens of joined slices don't add up."""
    return len(unit.text) if unit.kind is UnitKind.SLICE else count_tokens(unit.text)


def _fragments(unit: Unit) -> list[Unit]:
    """What has no structure: its lines, of a single line its words, of a single word slices."""
    lines = lines_of(unit.text)
    if len(lines) > 1:
        return [Unit(UnitKind.FRAGMENT, line) for line in lines]
    words = _WORD.findall(unit.text)
    if len(words) > 1:
        return [Unit(UnitKind.FRAGMENT, word) for word in words]
    starts = range(0, len(unit.text), _SLICE)
    return [Unit(UnitKind.SLICE, unit.text[start : start + _SLICE]) for start in starts]
