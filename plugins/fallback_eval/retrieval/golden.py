"""The golden set: queries with graded judgements, read from two files and checked (ADR-0020).

``queries.jsonl`` and ``judgements.jsonl`` have one object a line; tests/golden/retrieval/README.md
describes them. Third-party text is never in them: ``record`` points into the data set.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, ClassVar, Literal, TypeVar

from pydantic import ConfigDict, Field, StringConstraints, ValidationError

from fallback_audit.disk_errors import blamed
from fallback_audit.frozen import Frozen
from fallback_tier.errors import InputError, first_fault
from fallback_tier.limits import MAX_FILE_BYTES

Split = Literal["dev", "reserved"]
Grade = Annotated[int, Field(ge=0, le=2)]

#: Fewer queries can't tell a good retriever from a lucky one (ADR-0020).
MIN_QUERIES = 120

#: Faults that one error names; the rest is counted.
_NAMED_FAULTS = 5

QUERIES, JUDGEMENTS, SECOND_OPINION = "queries.jsonl", "judgements.jsonl", "second-opinion.jsonl"

_Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]


class GoldenSetError(InputError):
    """The golden set is not what an evaluation may be built on; names file and line."""

    code: ClassVar[str] = "golden_set"


class _Line(Frozen):
    # Strict: a grade of true or "2" is a slip of the hand, not a grade.
    model_config = ConfigDict(strict=True)


class WrittenAdvisory(_Line):
    """An advisory written for the golden set: our own text."""

    ecosystem: _Text
    package: _Text
    summary: _Text
    details: str


class Query(_Line):
    """One question. Exactly one of ``record`` (an id of the data set) and ``advisory`` is given."""

    query: _Text
    split: Split
    record: _Text | None
    advisory: WrittenAdvisory | None
    #: The fix that a right example helps to write, in a line.
    expected_fix: _Text
    weakness: _Text
    #: No example of the corpus helps: the right answer is a miss.
    nothing_here: bool


class Opinion(_Line):
    """What a reader says of one example for one query.

    ``grade``: 2 shows the fix, 1 helps, 0 misleads or is about something else.
    """

    query: _Text
    example: _Text
    grade: Grade
    reason: _Text


class Judgement(Opinion):
    """The opinion that counts. ``methods``: what put the example before the reader (empty: the reader
    found it in the catalogue)."""

    found: Literal["pool", "catalogue", "round-2"]
    methods: tuple[str, ...] = ()


_T = TypeVar("_T", bound=Frozen)


@dataclass(frozen=True)
class Fault:
    """One thing that is wrong, and where: ``file, line n``."""

    place: str
    text: str

    def __str__(self) -> str:
        return f"{self.place}: {self.text}"


@dataclass(frozen=True)
class GoldenSet:
    """Queries and judgements. ``places``: a query's id, or ``pair`` of a judgement → its line."""

    queries: Mapping[str, Query]
    judgements: Sequence[Judgement]
    places: Mapping[str, str]

    @cached_property
    def grades(self) -> Mapping[str, Mapping[str, int]]:
        """Query → example → grade; every query has an entry."""
        found: dict[str, dict[str, int]] = {query: {} for query in self.queries}
        for one in self.judgements:
            found[one.query][one.example] = one.grade
        return found

    def of(self, split: Split) -> tuple[Query, ...]:
        """The queries of one side, in the file's order."""
        return tuple(query for query in self.queries.values() if query.split == split)


def load_golden(folder: Path) -> GoldenSet:
    """Read and check what the two files say by themselves.

    Raises GoldenSetError, naming file and line: unreadable, not of the format, a query or a pair
    given twice, a judgement of an unknown query, a query nobody judged, ``nothing_here`` against its
    grades, fewer than MIN_QUERIES queries.
    """
    queries = list(read_lines(folder / QUERIES, Query))
    judgements = list(read_lines(folder / JUDGEMENTS, Judgement))
    ensure(_file_faults(folder, queries, judgements))
    return GoldenSet(
        {query.query: query for query, _ in queries},
        [judgement for judgement, _ in judgements],
        {query.query: place for query, place in queries}
        | {pair(judgement): place for judgement, place in judgements},
    )


def load_opinions(path: Path) -> tuple[Opinion, ...]:
    """What a second reader said of some of the pairs. Raises GoldenSetError."""
    placed = list(read_lines(path, Opinion))
    ensure(_twice(placed, pair))
    return tuple(opinion for opinion, _ in placed)


def ensure(faults: Iterator[Fault]) -> None:
    """Raises GoldenSetError with the first faults, where there are any."""
    found = list(faults)
    if not found:
        return
    more = f" (and {len(found) - _NAMED_FAULTS} more)" if len(found) > _NAMED_FAULTS else ""
    raise GoldenSetError(
        "The golden set is not usable: " + "; ".join(map(str, found[:_NAMED_FAULTS])) + more,
        next_step="Mend these lines; the README.md beside them describes the format.",
        kind="not_usable",
    )


def _file_faults(
    folder: Path, queries: list[tuple[Query, str]], judgements: list[tuple[Judgement, str]]
) -> Iterator[Fault]:
    if len(queries) < MIN_QUERIES:
        where = str(folder / QUERIES)
        yield Fault(where, f"{len(queries)} queries, and {MIN_QUERIES} are the least")
    yield from _twice(queries, lambda query: query.query)
    yield from _twice(judgements, pair)
    best: dict[str, int] = {}
    known = {query.query for query, _ in queries}
    for judgement, place in judgements:
        if judgement.query not in known:
            yield Fault(place, f"no query has the id {judgement.query!r}")
        best[judgement.query] = max(judgement.grade, best.get(judgement.query, 0))
    for query, place in queries:
        yield from _query_faults(query, place, best.get(query.query))


def _query_faults(query: Query, place: str, best: int | None) -> Iterator[Fault]:
    if (query.record is None) == (query.advisory is None):
        yield Fault(place, f"{query.query!r} needs either a record or an advisory of its own")
    if best is None:
        yield Fault(place, f"nobody judged anything for {query.query!r}")
    elif query.nothing_here and best > 0:
        yield Fault(place, f"{query.query!r} says nothing_here, and an example has grade {best}")
    elif not query.nothing_here and best == 0:
        yield Fault(place, f"{query.query!r} has no example above grade 0: nothing_here is true")


def pair(opinion: Opinion) -> str:
    """What an opinion is about, as a name."""
    return f"{opinion.query} and {opinion.example}"


def _twice(placed: Sequence[tuple[_T, str]], key: Callable[[_T], str]) -> Iterator[Fault]:
    first: dict[str, str] = {}
    for value, place in placed:
        if (name := key(value)) in first:
            yield Fault(place, f"{name} stands already in {first[name]}")
        first.setdefault(name, place)


def read_lines(path: Path, model: type[_T]) -> Iterator[tuple[_T, str]]:
    """Each line's value with its place (``file, line n``). Raises GoldenSetError."""
    try:
        with path.open("rb") as stream:
            data = stream.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        unreadable = GoldenSetError(
            f"The golden set's {str(path)!r} can't be read: {error.strerror}.",
            next_step=f"Give the folder of the golden set, which has {path.name}.",
            kind="unreadable",
        )
        raise blamed(error, f"The golden set's {str(path)!r}", unreadable) from error
    if len(data) > MAX_FILE_BYTES:
        raise GoldenSetError(
            f"{str(path)!r} is larger than {MAX_FILE_BYTES:,} bytes.",
            next_step="Check that this is a golden set.",
        )
    for number, line in enumerate(data.split(b"\n"), start=1):
        if line.strip():
            place = f"{path}, line {number}"
            yield _parsed(line, place, model), place


def _parsed(line: bytes, place: str, model: type[_T]) -> _T:
    try:
        return model.model_validate_json(line)
    except ValidationError as error:
        raise GoldenSetError(
            f"{place} is not a {model.__name__.lower()}: {first_fault(error, 'the line')}.",
            next_step="Mend the line; the README.md beside it describes the format.",
            kind="malformed_line",
        ) from error


@dataclass(frozen=True)
class Agreement:
    """Over ``pairs`` that both readers graded; ``kappa`` is None where chance alone would agree."""

    pairs: int
    same: int
    kappa: float | None

    @property
    def share(self) -> float | None:
        """Share of the pairs with the very same grade."""
        return self.same / self.pairs if self.pairs else None


def agreement(first: Sequence[Opinion], second: Sequence[Opinion]) -> Agreement:
    """Of two readers, over what stands in both."""
    one = {pair(opinion): opinion.grade for opinion in first}
    other = {pair(opinion): opinion.grade for opinion in second}
    both = sorted(one.keys() & other.keys())
    grades = [(one[name], other[name]) for name in both]
    return Agreement(len(both), sum(a == b for a, b in grades), weighted_kappa(grades))


def weighted_kappa(grades: Sequence[tuple[int, int]]) -> float | None:
    """With quadratic weights: 1 is perfect, 0 what chance would give. None where there are no pairs,
    or both readers gave one and the same grade to everything."""
    left, right = Counter(a for a, _ in grades), Counter(b for _, b in grades)
    by_chance = sum((a - b) ** 2 * left[a] * right[b] / len(grades) for a in left for b in right)
    if not by_chance:
        return None
    return 1 - sum((a - b) ** 2 for a, b in grades) / by_chance
