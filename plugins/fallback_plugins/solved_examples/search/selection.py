"""Selection of an answer from a ranking: floors, the same fix once, at most ``k``, the account, and
passages.

A passage is what a prompt shows of a record: whole edits and whole units, small enough not to be cut.

1. edits come first, best ranked first, each whole: the model is to learn from them;
2. the title and the units of the best ranked chunks fill the rest, in the order of the text, with
   ``[…]`` in place of what was left out;
3. a unit that doesn't fit even alone is divided if that costs no meaning (a section, a paragraph), never a
   table, a list, a code block, or a rule with its exception.
"""

import json
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from fallback_plugins.solved_examples.chunking.markdown import advisory_units
from fallback_plugins.solved_examples.chunking.units import Unit, UnitKind
from fallback_plugins.solved_examples.interfaces import Candidate, Chunk, ChunkKind
from fallback_plugins.solved_examples.search.ranking import Ranking
from fallback_plugins.solved_examples.search.settings import RetrievalSettings
from fallback_plugins.solved_examples.store.example_store import ExampleStore, StoredExample
from fallback_tier.limits import MAX_EXAMPLE_BYTES, MAX_FENCE_PREFIX_BYTES
from fallback_tier.outcome import SearchReplace
from fallback_tier.retrieval import (
    DroppedExample,
    FewShot,
    RetrievalAccount,
    SolvedExample,
    edit_line,
    example_text,
)

#: Dropped candidates that are reported, at most: the best ranked.
MAX_REPORTED = 20

#: The score of records that were found by identical code.
IDENTICAL = "identical"

#: Why a candidate was dropped, as it is recorded.
BELOW_ROUTING_FLOOR = "below the routing floor, as everything"


@dataclass(frozen=True)
class Selection:
    """The candidates that are shown, best first (True: with identical code), and those that are not,
    with reasons."""

    kept: tuple[tuple[Candidate, bool], ...]
    dropped: tuple[DroppedExample, ...]


def routed(ranking: Ranking, settings: RetrievalSettings) -> bool:
    """Return whether the best candidate reaches the routing floor."""
    floor = settings.floor("routing", ranking.mode)
    if floor is None:
        return bool(ranking.candidates)
    return any(
        candidate.scores.get(floor.score, 0.0) >= floor.value for candidate in ranking.candidates
    )


def select(
    same: Sequence[StoredExample],
    ranking: Ranking,
    settings: RetrievalSettings,
    beyond: frozenset[str] = frozenset(),
) -> Selection:
    """Return the candidates to show: identical code, and those that reach both floors.

    ``beyond``: ids that were shown before. Neither they nor their fixes under other ids are kept; the
    routing floor applies to the whole ranking, so its result does not change.
    """
    same_digests = {stored.content_sha256 for stored in same}
    identical = [
        Candidate(stored.example, stored.content_sha256, {IDENTICAL: 1.0})
        for stored in same
        if stored.example.example_id not in beyond
    ]
    too_many = f"not among the best {settings.k}"
    chosen = [(candidate, True) for candidate in identical[: settings.k]]
    known_examples = [
        *(stored.example for stored in same),
        *(candidate.example for candidate in ranking.candidates),
    ]
    fixes = {_fix(example): example for example in known_examples if example.example_id in beyond}
    fixes.update((_fix(candidate.example), candidate.example) for candidate, _ in chosen)
    dropped = [_dropped(candidate, too_many) for candidate in identical[settings.k :]]
    floor = settings.floor("chunk", ranking.mode)
    believed = routed(ranking, settings)
    for candidate in ranking.candidates:
        twin = fixes.get(_fix(candidate.example))
        if candidate.content_sha256 in same_digests:
            continue
        if candidate.example.example_id in beyond:
            reason = "shown before"
        elif not believed:
            reason = BELOW_ROUTING_FLOOR
        elif floor is not None and candidate.scores.get(floor.score, 0.0) < floor.value:
            reason = f"{floor.score} is below the chunk floor"
        elif twin is not None:
            reason = f"the same fix as {twin.example_id}"
        elif len(chosen) >= settings.k:
            reason = too_many
        else:
            chosen.append((candidate, False))
            fixes[_fix(candidate.example)] = candidate.example
            continue
        dropped.append(_dropped(candidate, reason))
    return Selection(tuple(chosen), tuple(dropped[:MAX_REPORTED]))


def shots(store: ExampleStore, kept: Sequence[tuple[Candidate, bool]]) -> tuple[FewShot, ...]:
    """Return what a prompt shows of each candidate. Raises ExampleStoreError."""
    if not kept:
        return ()
    with store.reading() as connection:
        return tuple(_shot(connection, candidate, same=same) for candidate, same in kept)


def account(
    selection: Selection, ranking: Ranking, settings: RetrievalSettings
) -> RetrievalAccount:
    """Return the account of an answer: scores, floors, and what was dropped."""
    return RetrievalAccount(
        mode=ranking.mode,
        manifest_sha256=ranking.manifest_sha256,
        floors=tuple(floor for floor in settings.floors if floor.mode == ranking.mode),
        returned=tuple(candidate.example.example_id for candidate, _ in selection.kept),
        scores={
            candidate.example.example_id: _rounded(candidate) for candidate, _ in selection.kept
        },
        dropped=selection.dropped,
        notes=ranking.notes,
    )


def evidence(same: Sequence[StoredExample], ranking: Ranking, settings: RetrievalSettings) -> str:
    """Return one sentence: what was found, in which mode, with which floor."""
    clauses = [
        f"{len(same)} with the same package and code",
        f"{len(ranking.candidates)} looked at",
    ]
    floor = settings.floor("routing", ranking.mode)
    if floor is not None:
        best = max(
            (candidate.scores.get(floor.score, 0.0) for candidate in ranking.candidates),
            default=0.0,
        )
        clauses.append(f"best {floor.score} {best:.3f}, routing floor {floor.value:.3f}")
    return "; ".join((f"{ranking.mode} search", *clauses, *ranking.notes))


def _fix(example: SolvedExample) -> tuple[str, ...]:
    """Return what identifies a fix, its edits, whichever record they are in."""
    return tuple(part for edit in example.edits for part in (edit.old, edit.new))


def _dropped(candidate: Candidate, reason: str) -> DroppedExample:
    return DroppedExample(
        example_id=candidate.example.example_id, reason=reason, scores=_rounded(candidate)
    )


def _rounded(candidate: Candidate) -> dict[str, float]:
    """Return scores with six digits: float noise of another machine must not make another account."""
    return {name: round(score, 6) for name, score in candidate.scores.items()}


def _shot(connection: sqlite3.Connection, candidate: Candidate, *, same: bool) -> FewShot:
    chosen = passage(candidate.example, ranked=tuple(_chunks(connection, candidate.chunks)))
    return FewShot(
        example=candidate.example,
        content_sha256=candidate.content_sha256,
        text=chosen.text,
        edits=chosen.edits,
        scores=_rounded(candidate),
        identical=same,
    )


def _chunks(connection: sqlite3.Connection, ids: Sequence[int]) -> Iterator[Chunk]:
    """Yield chunks by their ids, in that order; one that was deleted meanwhile is left out."""
    sql = "SELECT kind, text, tokens, context, edits FROM chunks WHERE id = ?"
    for chunk in ids:
        for kind, text, tokens, context, edits in connection.execute(sql, [chunk]):
            yield Chunk(ChunkKind(kind), text, tokens, context, tuple(json.loads(edits)))


#: Replaces units that were left out.
LEFT_OUT = "[…]"

#: The part of the space that edits leave to the text: for a title and a paragraph or, if no edit would
#: fit then, for a title and a sentence.
_TEXT_SHARES = (4, 8)

_GAP = f"\n\n{LEFT_OUT}\n\n"

#: Kinds that are divided if they don't fit whole.
_DIVISIBLE = (UnitKind.SECTION, UnitKind.PARAGRAPH)


@dataclass(frozen=True)
class Passage:
    """The values of ``FewShot.text`` and ``FewShot.edits``."""

    text: str
    edits: tuple[SearchReplace, ...]


def passage(
    example: SolvedExample,
    *,
    ranked: Sequence[Chunk] = (),
    max_bytes: int = MAX_EXAMPLE_BYTES,
    units: Callable[[str], Sequence[Unit]] = advisory_units,
) -> Passage:
    """Return the best of a record in ``max_bytes`` of ``example_text``, prefixes included. ``ranked``: the
    record's chunks that were found, best first (if there are none, the record's order counts)."""
    space = max_bytes - _shown_bytes(example_text(example, LEFT_OUT, ()))
    whole = tuple(units(example.advisory_text))
    text_bytes = sum(_unit_bytes(unit) for unit in whole)
    edits = _Edits(example, ranked)
    for share in _TEXT_SHARES:
        if not edits.chosen:
            space -= edits.choose(space - min(text_bytes, space // share))
    if not edits.chosen:
        # A text without any edit is a topic, not a precedent.
        space -= edits.choose(space)
    candidates = tuple(_divided(whole, space))
    chosen = _chosen_units(candidates, ranked, space)
    space -= sum(_unit_bytes(candidates[number]) for number in chosen)
    edits.choose(space)
    return Passage(_text(candidates, chosen), edits.chosen)


class _Edits:
    """The edits of a record, taken greedily: each that still fits, best ranked first."""

    def __init__(self, example: SolvedExample, ranked: Sequence[Chunk]) -> None:
        ranked_edits = [number for chunk in ranked for number in chunk.edits]
        self._edits = example.edits
        self._open = list(dict.fromkeys([*ranked_edits, *range(len(example.edits))]))
        self._chosen: set[int] = set()

    def choose(self, space: int) -> int:
        """Add edits that fit into ``space``; return their bytes."""
        used = 0
        for number in self._open:
            size = _shown_bytes(edit_line(self._edits[number]))
            if number not in self._chosen and used + size <= space:
                self._chosen.add(number)
                used += size
        return used

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
    """Return the indices of the units that fit, sorted; the title and the best ranked have priority."""
    texts = [chunk.text for chunk in ranked if chunk.kind is ChunkKind.ADVISORY]

    def rank(number: int) -> int:
        text = units[number].text.strip()
        return next((index for index, chunk in enumerate(texts) if text in chunk), len(texts))

    order = sorted(range(len(units)), key=lambda number: (number > 0, rank(number), number))
    chosen: list[int] = []
    for number in order:
        size = _unit_bytes(units[number])
        if size <= space:
            chosen.append(number)
            space -= size
    return [
        number
        for number in sorted(chosen)
        # Not a heading (other than the title) whose text was left out.
        if units[number].kind is not UnitKind.HEADING or number == 0 or number + 1 in chosen
    ]


def _text(units: Sequence[Unit], chosen: Sequence[int]) -> str:
    """Return the chosen units in their order, with marks for what was left out."""
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
    """Return the bytes of a unit with the mark that may follow it."""
    return _shown_bytes(unit.text + _GAP)


def _shown_bytes(text: str) -> int:
    """Return the most bytes that the text can take inside a fence, which shows some characters by name.

    ``<U+FE0F>`` is shown for a hidden character of the first plane, ``<U+E0001>`` for a later one. Only the
    fence knows which are hidden, so every character above ASCII counts as hidden.
    """
    spelled = sum(
        1 if " " <= char <= "~" or char in "\n\t" else 8 if char <= "\uffff" else 10
        for char in text
    )
    return spelled + MAX_FENCE_PREFIX_BYTES * (text.count("\n") + 1) + 1
