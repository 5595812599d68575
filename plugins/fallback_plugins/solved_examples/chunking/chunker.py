"""A record's chunks: runs of whole structural units, advisory before code."""

from collections.abc import Iterator, Sequence
from itertools import accumulate, groupby, pairwise

from fallback_plugins.solved_examples.chunking.code import edit_unit
from fallback_plugins.solved_examples.chunking.markdown import advisory_units
from fallback_plugins.solved_examples.chunking.pack import pack
from fallback_plugins.solved_examples.chunking.tokens import COUNTING, count_tokens
from fallback_plugins.solved_examples.chunking.units import Unit
from fallback_plugins.solved_examples.interfaces import Chunk, ChunkKind
from fallback_tier.errors import ConfigurationError
from fallback_tier.outcome import SearchReplace
from fallback_tier.retrieval import SolvedExample

#: Raise it with every change that moves a border: stores made by another one are drift.
_ALGORITHM = "structure-1"

#: What an advisory of two sections fills; the embedding model reads no more than this.
MAX_TOKENS = 512
#: Two or three sentences, told again only where a single unit had to be split.
OVERLAP_TOKENS = 64

#: Below this a piece has no room for a header beside a sentence.
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
        """All of a record, advisory before code; never empty, never raises for odd text."""
        found = (*self._advisory(example.advisory_text), *self._code(example.edits))
        return found or (_chunk(ChunkKind.ADVISORY, example.package),)

    def spans(self, units: Sequence[Unit]) -> tuple[tuple[int, int], ...]:
        """Where the chunks of these units' text begin and end in it (characters)."""
        pieces = pack(units, self.max_tokens, self._overlap_tokens)
        return tuple(pairwise(accumulate((len(piece.own) for piece in pieces), initial=0)))

    def _advisory(self, text: str) -> Iterator[Chunk]:
        for piece in pack(advisory_units(text), self.max_tokens, self._overlap_tokens):
            if piece.text.strip():
                yield _chunk(ChunkKind.ADVISORY, piece.text, piece.context)

    def _code(self, edits: Sequence[SearchReplace]) -> Iterator[Chunk]:
        for path, units in units_by_file(edits):
            yield from self._file(path, units)

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
    """Each path with its edits as units and their positions.

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
