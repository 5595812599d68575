"""From a ranking to an answer: floors, the same fix once, at most ``k``, and the account of it."""

import json
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fallback_plugins.solved_examples.chunking.passage import passage
from fallback_plugins.solved_examples.interfaces import Candidate, Chunk, ChunkKind
from fallback_plugins.solved_examples.search.ranking import Ranking
from fallback_plugins.solved_examples.search.settings import RetrievalSettings
from fallback_plugins.solved_examples.store.example_store import ExampleStore, StoredExample
from fallback_tier.retrieval import (
    DroppedExample,
    FewShot,
    Floor,
    RetrievalAccount,
    SolvedExample,
)

#: Candidates that were dropped and are told of: those that came nearest.
MAX_REPORTED = 20

#: The score that says of how the records with identical code were found.
IDENTICAL = "identical"


@dataclass(frozen=True)
class Selection:
    """What is shown, best first (with identical code: True), and what is not, with the reason."""

    kept: tuple[tuple[Candidate, bool], ...]
    dropped: tuple[DroppedExample, ...]


def routed(ranking: Ranking, settings: RetrievalSettings) -> bool:
    """Whether the best candidate is good enough for the memory to be believed at all."""
    floor = settings.floor("routing", ranking.mode)
    return bool(ranking.candidates) and (floor is None or _reached(ranking.candidates, floor))


def select(
    same: Sequence[StoredExample],
    ranking: Ranking,
    settings: RetrievalSettings,
    beyond: frozenset[str] = frozenset(),
) -> Selection:
    """Identical code needs no similarity; everything else passes both floors.

    ``beyond``: ids that were shown before. Neither they nor their fixes under other ids are kept; the
    routing floor stands on the whole ranking, so that a memory that is believed stays so.
    """
    known = {stored.content_sha256 for stored in same}
    found = [
        Candidate(one.example, one.content_sha256, {IDENTICAL: 1.0})
        for one in same
        if one.example.example_id not in beyond
    ]
    too_many = f"not among the best {settings.k}"
    kept = [(candidate, True) for candidate in found[: settings.k]]
    met = [*(one.example for one in same), *(one.example for one in ranking.candidates)]
    fixes = {_fix(example): example for example in met if example.example_id in beyond}
    fixes.update((_fix(candidate.example), candidate.example) for candidate, _ in kept)
    dropped = [_dropped(candidate, too_many) for candidate in found[settings.k :]]
    floor = settings.floor("chunk", ranking.mode)
    believed = routed(ranking, settings)
    for candidate in ranking.candidates:
        twin = fixes.get(_fix(candidate.example))
        if candidate.content_sha256 in known:
            continue
        if candidate.example.example_id in beyond:
            reason = "shown before"
        elif not believed:
            reason = "below the routing floor, as everything"
        elif floor is not None and candidate.scores.get(floor.score, 0.0) < floor.value:
            reason = f"{floor.score} is below the chunk floor"
        elif twin is not None:
            reason = f"the same fix as {twin.example_id}"
        elif len(kept) >= settings.k:
            reason = too_many
        else:
            kept.append((candidate, False))
            fixes[_fix(candidate.example)] = candidate.example
            continue
        dropped.append(_dropped(candidate, reason))
    return Selection(tuple(kept), tuple(dropped[:MAX_REPORTED]))


def shots(store: ExampleStore, kept: Sequence[tuple[Candidate, bool]]) -> tuple[FewShot, ...]:
    """What a prompt shows of each. Raises ExampleStoreError."""
    if not kept:
        return ()
    with store.reading() as connection:
        return tuple(_shot(connection, candidate, same=same) for candidate, same in kept)


def account(
    selection: Selection, ranking: Ranking, settings: RetrievalSettings
) -> RetrievalAccount:
    """Why the answer is what it is."""
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
    """One sentence: what was found, by which mode, against which floor."""
    messages = [
        f"{len(same)} with the same package and code",
        f"{len(ranking.candidates)} looked at",
    ]
    floor = settings.floor("routing", ranking.mode)
    if floor is not None:
        best = max((c.scores.get(floor.score, 0.0) for c in ranking.candidates), default=0.0)
        messages.append(f"best {floor.score} {best:.3f}, routing floor {floor.value:.3f}")
    return "; ".join((f"{ranking.mode} search", *messages, *ranking.notes))


def _reached(candidates: Sequence[Candidate], floor: Floor) -> bool:
    return any(candidate.scores.get(floor.score, 0.0) >= floor.value for candidate in candidates)


def _fix(example: SolvedExample) -> tuple[str, ...]:
    """What makes two records the same fix: the same edits, wherever they were published."""
    return tuple(part for edit in example.edits for part in (edit.old, edit.new))


def _dropped(candidate: Candidate, reason: str) -> DroppedExample:
    return DroppedExample(
        example_id=candidate.example.example_id, reason=reason, scores=_rounded(candidate)
    )


def _rounded(candidate: Candidate) -> dict[str, float]:
    """Six digits: float noise of another machine must not make another account."""
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
    """Chunks by their ids, in that order; one that is gone since is left out."""
    sql = "SELECT kind, text, tokens, context, edits FROM chunks WHERE id = ?"
    for chunk in ids:
        for kind, text, tokens, context, edits in connection.execute(sql, [chunk]):
            yield Chunk(ChunkKind(kind), text, tokens, context, tuple(json.loads(edits)))
