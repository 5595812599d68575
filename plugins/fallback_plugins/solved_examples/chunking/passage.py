"""What a prompt shows of a record: whole edits and whole units, small enough not to be cut.

1. edits come first, best ranked first, each whole: they are what the model is to learn from;
2. the title and the units of the best ranked chunks fill the rest, in the order of the text, with
   ``[…]`` where something was left out;
3. a unit that has no room even alone is taken apart where that costs no meaning (a section, a
   paragraph), never a table, a list, a code block, or a rule with its exception.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from fallback_plugins.solved_examples.chunking.markdown import advisory_units
from fallback_plugins.solved_examples.chunking.units import Unit, UnitKind
from fallback_plugins.solved_examples.interfaces import Chunk, ChunkKind
from fallback_tier.limits import MAX_EXAMPLE_BYTES, MAX_FENCE_PREFIX_BYTES
from fallback_tier.outcome import SearchReplace
from fallback_tier.retrieval import SolvedExample, edit_line, example_text

#: Stands where units were left out.
LEFT_OUT = "[…]"

#: The part of the room that edits leave to the text: a title and a paragraph, or where no edit would
#: fit beside that, a title and a sentence.
_TEXT_SHARES = (4, 8)

_GAP = f"\n\n{LEFT_OUT}\n\n"

#: Kinds that are taken apart when they have no room whole.
_DIVISIBLE = (UnitKind.SECTION, UnitKind.PARAGRAPH)


@dataclass(frozen=True)
class Passage:
    """``FewShot.text`` and ``FewShot.edits``."""

    text: str
    edits: tuple[SearchReplace, ...]


def passage(
    example: SolvedExample,
    *,
    ranked: Sequence[Chunk] = (),
    max_bytes: int = MAX_EXAMPLE_BYTES,
    units: Callable[[str], Sequence[Unit]] = advisory_units,
) -> Passage:
    """The best of a record in ``max_bytes`` of ``example_text``, prefixes counted in.

    ``ranked``: the record's chunks that were found, best first (none: its own order counts).
    """
    space = max_bytes - _shown_bytes(example_text(example, LEFT_OUT, ()))
    whole = tuple(units(example.advisory_text))
    text_bytes = sum(_unit_bytes(unit) for unit in whole)
    edits = _Edits(example, ranked)
    for share in _TEXT_SHARES:
        if not edits.chosen:
            space -= edits.choose(space - min(text_bytes, space // share))
    if not edits.chosen:
        # A text without any edit is a topic, no precedent.
        space -= edits.choose(space)
    candidates = tuple(_divided(whole, space))
    chosen = _chosen_units(candidates, ranked, space)
    space -= sum(_unit_bytes(candidates[number]) for number in chosen)
    edits.choose(space)
    return Passage(_text(candidates, chosen), edits.chosen)


class _Edits:
    """The edits of a record, taken greedily: each that still fits, best ranked first."""

    def __init__(self, example: SolvedExample, ranked: Sequence[Chunk]) -> None:
        found = [number for chunk in ranked for number in chunk.edits]
        self._edits = example.edits
        self._open = list(dict.fromkeys([*found, *range(len(example.edits))]))
        self._chosen: set[int] = set()

    def choose(self, space: int) -> int:
        """Take what fits into ``space``; how many bytes that is."""
        taken = 0
        for number in self._open:
            size = _shown_bytes(edit_line(self._edits[number]))
            if number not in self._chosen and taken + size <= space:
                self._chosen.add(number)
                taken += size
        return taken

    @property
    def chosen(self) -> tuple[SearchReplace, ...]:
        return tuple(self._edits[number] for number in sorted(self._chosen))


def _divided(units: Sequence[Unit], space: int) -> Iterator[Unit]:
    for unit in units:
        if unit.parts and unit.kind in _DIVISIBLE and _unit_bytes(unit) > space:
            yield from _divided(unit.parts, space)
        else:
            yield unit


def _chosen_units(units: Sequence[Unit], ranked: Sequence[Chunk], space: int) -> list[int]:
    """Positions of the units that fit, the title's and the best ranked first; in order."""
    texts = [chunk.text for chunk in ranked if chunk.kind is ChunkKind.ADVISORY]

    def rank(number: int) -> int:
        text = units[number].text.strip()
        return next((place for place, chunk in enumerate(texts) if text in chunk), len(texts))

    order = sorted(range(len(units)), key=lambda number: (number > 0, rank(number), number))
    chosen: list[int] = []
    for number in order:
        size = _unit_bytes(units[number])
        if size <= space:
            chosen.append(number)
            space -= size
    return [number for number in sorted(chosen) if not _dangles(units, number, chosen)]


def _dangles(units: Sequence[Unit], number: int, chosen: Sequence[int]) -> bool:
    """Whether it is a heading (not the title) whose text was left out."""
    heading = units[number].kind is UnitKind.HEADING
    return heading and number > 0 and number + 1 not in chosen


def _text(units: Sequence[Unit], chosen: Sequence[int]) -> str:
    """The chosen units as they stand in the text, and marks between them."""
    text = ""
    following = 0
    for number in chosen:
        if number != following:
            text = text.rstrip() + _GAP
        text += units[number].text
        following = number + 1
    if following < len(units):
        text = text.rstrip() + _GAP
    return text.strip("\n")


def _unit_bytes(unit: Unit) -> int:
    """With the mark that may have to stand beside it."""
    return _shown_bytes(unit.text + _GAP)


def _shown_bytes(text: str) -> int:
    """The most bytes that the text can take inside a fence, which shows some characters by name.

    ``<U+FE0F>`` stands for a hidden character of the first plane, ``<U+E0001>`` for a later one;
    which ones are hidden is the fence's to know, so that every one above ASCII counts as if.
    """
    spelled = sum(
        1 if " " <= char <= "~" or char in "\n\t" else 8 if char <= "\uffff" else 10
        for char in text
    )
    return spelled + MAX_FENCE_PREFIX_BYTES * (text.count("\n") + 1) + 1
