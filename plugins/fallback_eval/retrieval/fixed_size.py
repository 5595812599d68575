"""The usual fixed-size splitter, and how many units a splitter cuts: for comparison only."""

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from fallback_plugins.solved_examples.chunking.chunker import (
    MAX_TOKENS,
    OVERLAP_TOKENS,
    StructureChunker,
    check_sizes,
    units_by_file,
)
from fallback_plugins.solved_examples.chunking.markdown import advisory_units
from fallback_plugins.solved_examples.chunking.units import (
    COUNTING,
    Unit,
    UnitKind,
    count_tokens,
    one_line_end,
)
from fallback_plugins.solved_examples.interfaces import Chunk, ChunkKind
from fallback_tier.retrieval import SolvedExample

_WORD = re.compile(r"\S+\s*|\s+")

#: What a reader loses when it is cut. (A comment or a plain paragraph is told by its sentences.)
COUNTED = (
    UnitKind.SECTION,
    UnitKind.RULE,
    UnitKind.SENTENCE,
    UnitKind.TABLE,
    UnitKind.LIST,
    UnitKind.ITEM,
    UnitKind.FENCE,
    UnitKind.EDIT,
    UnitKind.FUNCTION,
    UnitKind.CLASS,
    UnitKind.BRANCH,
    UnitKind.LITERAL,
)


class FixedSizeSplitter:
    """So many tokens, and so many again, wherever that falls: between words, never in one.

    Implements ``interfaces.Chunker`` as well, so that it can stand where ours does and raise the
    alarm in tests. Raises ConfigurationError as StructureChunker does.
    """

    def __init__(self, max_tokens: int = MAX_TOKENS, overlap_tokens: int = OVERLAP_TOKENS) -> None:
        check_sizes(max_tokens, overlap_tokens)
        self.max_tokens = max_tokens
        self._overlap_tokens = overlap_tokens

    @property
    def version(self) -> str:
        """Its name, counting and sizes."""
        return f"fixed-size/{COUNTING}/{self.max_tokens}/{self._overlap_tokens}"

    def chunks(self, example: SolvedExample) -> tuple[Chunk, ...]:
        """All of a record, advisory before code; never empty."""
        advisory = [_chunk(ChunkKind.ADVISORY, text) for text in self.split(example.advisory_text)]
        code = [
            _chunk(ChunkKind.CODE, text, edit.path, (number,))
            for number, edit in enumerate(example.edits)
            for text in self.split(f"{edit.old}\n{edit.new}")
        ]
        return (*advisory, *code) or (_chunk(ChunkKind.ADVISORY, example.package),)

    def units(self, text: str) -> tuple[Unit, ...]:
        """Its chunks, without their overlap, as if they were units (for ``passage``)."""
        text = one_line_end(text)
        spans = self._spans(text)
        stops = [start for start, _ in spans[1:]] + [len(text)] * bool(spans)
        return tuple(
            Unit(UnitKind.FRAGMENT, text[start:stop])
            for (start, _), stop in zip(spans, stops, strict=True)
        )

    def split(self, text: str) -> list[str]:
        """The chunks of a text, with their overlap."""
        parts = [text[start:stop] for start, stop in self._spans(text)]
        return [part for part in parts if part.strip()]

    def spans(self, units: Sequence[Unit]) -> list[tuple[int, int]]:
        """Where the chunks of the units' text begin and end (characters)."""
        return self._spans("".join(unit.text for unit in units))

    def _spans(self, text: str) -> list[tuple[int, int]]:
        words = list(_WORD.finditer(text))
        costs = [count_tokens(word[0]) for word in words]
        found: list[tuple[int, int]] = []
        begin = 0
        while begin < len(words):
            size, stop = costs[begin], begin + 1
            while stop < len(words) and size + costs[stop] <= self.max_tokens:
                size, stop = size + costs[stop], stop + 1
            found.append((words[begin].start(), words[stop - 1].end()))
            if stop == len(words):
                break
            again, following = 0, stop
            while following - 1 > begin and again + costs[following - 1] <= self._overlap_tokens:
                following -= 1
                again += costs[following]
            begin = following
        return found


@dataclass(frozen=True)
class CutCount:
    """Units of a kind: all, those no chunk has whole, and those of the latter above the cap."""

    total: int
    cut: int
    too_large: int


@dataclass(frozen=True)
class CutReport:
    """What a splitter does to the units of some texts."""

    splitter: str
    texts: int
    #: Texts above the cap; all others are one chunk, and nothing in them can be cut.
    long_texts: int
    counts: Mapping[UnitKind, CutCount]


def record_texts(example: SolvedExample) -> Iterator[tuple[Unit, ...]]:
    """The texts of a record that are chunked: its advisory, and each file's edits."""
    yield advisory_units(example.advisory_text)
    for _, edits in units_by_file(example.edits):
        yield tuple(unit for _, unit in edits)


def cut_units(
    texts: Iterable[Sequence[Unit]], splitter: FixedSizeSplitter | StructureChunker
) -> CutReport:
    """How many structural units of each counted kind the splitter cuts.

    By our own notion of a unit, of course: ours cuts only what is above the cap by construction, and
    what the figure says is how often a fixed size does harm.
    """
    total: Counter[UnitKind] = Counter()
    cut: Counter[UnitKind] = Counter()
    too_large: Counter[UnitKind] = Counter()
    texts_seen = long_texts = 0
    for units in texts:
        spans = splitter.spans(units)
        starts = [start for start, _ in spans]
        texts_seen += 1
        long_texts += len(spans) > 1
        for unit, start in _structures(units):
            total[unit.kind] += 1
            stop = start + len(unit.text.rstrip())
            # Ends grow with starts: the last chunk that begins early enough reaches furthest.
            if len(spans) > 1 and spans[bisect_right(starts, start) - 1][1] < stop:
                cut[unit.kind] += 1
                too_large[unit.kind] += count_tokens(unit.text) > splitter.max_tokens
    counts = {
        kind: CutCount(total[kind], cut[kind], too_large[kind]) for kind in COUNTED if total[kind]
    }
    return CutReport(splitter.version, texts_seen, long_texts, counts)


def _structures(units: Iterable[Unit], start: int = 0) -> Iterator[tuple[Unit, int]]:
    """Every counted unit of the trees, and where it begins."""
    for unit in units:
        if unit.kind in COUNTED:
            yield unit, start
        yield from _structures(unit.parts, start)
        start += len(unit.text)


def _chunk(kind: ChunkKind, text: str, context: str = "", edits: tuple[int, ...] = ()) -> Chunk:
    return Chunk(kind, text, count_tokens(text), context, edits)
