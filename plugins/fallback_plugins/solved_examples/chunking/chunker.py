"""A record's chunks: runs of whole structural units, advisory before code.

The order is that of cAST (arXiv 2506.15655) with units in place of syntax nodes: neighbours share a
piece while they fit; a unit that fits no piece is split one level down, again and again, at last into
lines, words and characters. Only then text is repeated: each further piece begins with what the unit's
parts need with them (``Unit.header``) and with the last whole small units before it, up to the overlap.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, groupby, pairwise

from fallback_plugins.solved_examples.chunking.code import edit_unit
from fallback_plugins.solved_examples.chunking.markdown import advisory_units
from fallback_plugins.solved_examples.chunking.units import (
    COUNTING,
    Unit,
    UnitKind,
    count_tokens,
    lines_of,
)
from fallback_plugins.solved_examples.interfaces import Chunk, ChunkKind
from fallback_tier.errors import ConfigurationError
from fallback_tier.outcome import SearchReplace
from fallback_tier.retrieval import SolvedExample

#: Raise it with every change that moves a border: stores made by another one are drift.
_ALGORITHM = "structure-1"

#: About two sections of an advisory. The embedding model reads a longer chunk's beginning only
#: (``embedding.MAX_TOKENS``); smaller chunks were no better (docs/evaluation/retrieval/defaults.md).
MAX_TOKENS = 512
#: Two or three sentences, repeated only if a single unit had to be split.
OVERLAP_TOKENS = 64

#: A smaller piece has no room for a header and a sentence.
MIN_MAX_TOKENS = 16


class StructureChunker:
    """Implements ``interfaces.Chunker``: cuts between structural units, never in one that fits.

    Raises ConfigurationError for fewer than MIN_MAX_TOKENS, or an overlap of more than half.
    """

    def __init__(self, max_tokens: int = MAX_TOKENS, overlap_tokens: int = OVERLAP_TOKENS) -> None:
        check_sizes(max_tokens, overlap_tokens)
        self.max_tokens = max_tokens
        self._overlap_tokens = overlap_tokens

    @property
    def version(self) -> str:
        """Algorithm, counting and sizes: another one would cut the same record elsewhere."""
        return f"{_ALGORITHM}/{COUNTING}/{self.max_tokens}/{self._overlap_tokens}"

    def chunks(self, example: SolvedExample) -> tuple[Chunk, ...]:
        """Return all chunks of a record, advisory before code; never empty, never raises for odd text."""
        pieces = pack(advisory_units(example.advisory_text), self.max_tokens, self._overlap_tokens)
        advisory = (
            _chunk(ChunkKind.ADVISORY, piece.text, piece.context)
            for piece in pieces
            if piece.text.strip()
        )
        code = (chunk for file in units_by_file(example.edits) for chunk in self._file(*file))
        return (*advisory, *code) or (_chunk(ChunkKind.ADVISORY, example.package),)

    def spans(self, units: Sequence[Unit]) -> tuple[tuple[int, int], ...]:
        """Return where the chunks of these units' text begin and end in it (characters)."""
        pieces = pack(units, self.max_tokens, self._overlap_tokens)
        return tuple(pairwise(accumulate((len(piece.own) for piece in pieces), initial=0)))

    def _file(self, path: str, edits: Sequence[tuple[int, Unit]]) -> Iterator[Chunk]:
        units = [unit for _, unit in edits]
        ends = list(accumulate(len(unit.text) for unit in units))
        begin = 0
        for piece in pack(units, self.max_tokens, self._overlap_tokens):
            end = begin + len(piece.own)
            shown = [
                (number, unit.context)
                for (number, unit), stop in zip(edits, ends, strict=True)
                if stop - len(unit.text) < end and begin < stop
            ]
            begin = end
            if piece.text.strip():
                symbols = ", ".join(dict.fromkeys(symbol for _, symbol in shown if symbol))
                context = f"{path}: {symbols}" if symbols else path
                yield _chunk(
                    ChunkKind.CODE, piece.text, context, tuple(number for number, _ in shown)
                )


def units_by_file(
    edits: Sequence[SearchReplace],
) -> Iterator[tuple[str, list[tuple[int, Unit]]]]:
    """Yield each path with its edits as units and their positions.

    Edits of the same file share chunks: what was changed together explains itself.
    """
    for path, group in groupby(enumerate(edits), key=lambda entry: entry[1].path):
        yield path, [(number, edit_unit(edit)) for number, edit in group]


def check_sizes(max_tokens: int, overlap_tokens: int) -> None:
    """Raise ConfigurationError for sizes that no splitter can keep."""
    if max_tokens < MIN_MAX_TOKENS or not 0 <= overlap_tokens <= max_tokens // 2:
        raise ConfigurationError(
            f"Chunks of {max_tokens} tokens that overlap by {overlap_tokens} can't be made.",
            next_step=f"Give at least {MIN_MAX_TOKENS} tokens, and an overlap of at most half.",
            kind="bad_sizes",
        )


def _chunk(kind: ChunkKind, text: str, context: str = "", edits: tuple[int, ...] = ()) -> Chunk:
    return Chunk(kind, text, count_tokens(text), context, edits)


#: A header is repeated if it takes at most this part of a piece: the rest is for new text.
_HEADER_SHARE = 4

#: A header is repeated if it has at most so many characters for each token of a piece: white space has
#: no token, and 100 KB of it would be in every piece.
_CHARS_A_TOKEN = 8

#: Characters of a word that is too long for a piece (encoded data), kept together.
_SLICE = 16

_WORD = re.compile(r"\S+\s*|\s+")


@dataclass(frozen=True)
class Piece:
    """Consecutive units. ``repeated``: text before them that an earlier piece has too."""

    units: tuple[Unit, ...]
    repeated: str = ""
    #: Headings above, or the symbol in code.
    context: str = ""

    @property
    def own(self) -> str:
        """The text that no other piece has."""
        return "".join(unit.text for unit in self.units)

    @property
    def text(self) -> str:
        """The text that is stored and searched, without blank lines around it."""
        return (self.repeated + self.own).strip("\n")


def pack(units: Sequence[Unit], max_tokens: int, overlap_tokens: int) -> Iterator[Piece]:
    """Yield pieces of at most ``max_tokens``; their ``own`` texts, put together, are all units' text."""
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
            splitter = _Splitter(max_tokens, overlap_tokens, unit.context)
            splitter.add(unit, "")
            splitter.end_piece()
            yield from splitter.pieces
    if run:
        yield Piece(tuple(run), context=run[0].context)


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
        """Add a unit to the open piece, to a new one, or in parts. ``headers``: of the units that
        contain it."""
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
        """Begin a piece with repeated text of at most ``space`` tokens. A whole unit comes before any
        repetition."""
        if count_tokens(headers) > space:
            headers = ""
        space = min(self.overlap_tokens, space - count_tokens(headers))
        self.repeated = headers + self._tail(headers, space)
        self.size = count_tokens(self.repeated)

    def _tail(self, headers: str, space: int) -> str:
        """Return the last whole smallest units of the piece before, of at most ``space`` tokens."""
        tail = ""
        for unit in reversed(self.pieces[-1].units):
            for leaf in reversed(list(unit.leaves())):
                space -= _cost(leaf)
                if space < 0 or (headers and leaf.text in headers):
                    return tail
                tail = leaf.text + tail
        return tail

    def _affordable(self, headers: str, header: str) -> str:
        """Return both headers, the nearer one, or "": what leaves most of a piece for its own text."""
        for candidate in (headers + header, header):
            fits = len(candidate) <= self.max_tokens * _CHARS_A_TOKEN
            if fits and count_tokens(candidate) * _HEADER_SHARE <= self.max_tokens:
                return candidate
        return ""


def _cost(unit: Unit) -> int:
    """Return a unit's tokens; of a slice its characters, as the tokens of joined slices don't add up."""
    return len(unit.text) if unit.kind is UnitKind.SLICE else count_tokens(unit.text)


def _fragments(unit: Unit) -> list[Unit]:
    """Return the parts of a unit without structure: its lines, of a single line its words, of a word
    slices."""
    lines = lines_of(unit.text)
    if len(lines) > 1:
        return [Unit(UnitKind.FRAGMENT, line) for line in lines]
    words = _WORD.findall(unit.text)
    if len(words) > 1:
        return [Unit(UnitKind.FRAGMENT, word) for word in words]
    starts = range(0, len(unit.text), _SLICE)
    return [Unit(UnitKind.SLICE, unit.text[start : start + _SLICE]) for start in starts]
