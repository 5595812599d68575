"""Goals 6 to 8: searching 100,000 vectors, asking once in a new process, searching by words."""

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.campaigns.bench.measure import BenchError, Command, Processes, Worker
from tests.campaigns.bench.row import Bench, Pair, Row

_HERE = Path(__file__).parent

#: Vectors, and chunks, of the rows of a warm process.
COUNT = 100_000

#: Vectors of the rows of a new process: chromadb takes minutes to index more.
COLD_COUNT = 10_000

#: Texts of the row of building.
BUILT = 20

#: A search's peak memory against the vectors' own size (docs/benchmarks.md, goal 6).
PEAK_LIMIT = 1.3

#: chromadb brings onnxruntime, which reports to its vendor unless told otherwise.
_SILENT = {"ORT_DISABLE_TELEMETRY": "1"}

#: Of 80 places, those where two exact searches may differ: float32 sums in another order.
_ROUNDING = 1


@contextmanager
def floor(bench: Bench) -> Iterator[Pair]:
    """Against reading the same bytes once; the peak memory of ours has a limit of its own."""
    with _vectors(bench, "reading the bytes once", bench.python, "floor") as (found, read):

        def check() -> None:
            if (times := _peak_times(found)) > PEAK_LIMIT:
                raise BenchError(
                    f"peak memory was {times:.2f} times the vectors, over {PEAK_LIMIT}"
                )

        def facts() -> dict[str, Any]:
            return {"peak_to_vectors": round(_peak_times(found), 3)}

        yield Pair(found, read, check, facts)


@contextmanager
def faiss(bench: Bench) -> Iterator[Pair]:
    """Against faiss's flat index."""
    with _same_vectors(bench, "faiss IndexFlatIP", "faiss") as pair:
        yield pair


@contextmanager
def sqlite_vec(bench: Bench) -> Iterator[Pair]:
    """Against sqlite-vec."""
    with _same_vectors(bench, "sqlite-vec", "sqlite_vec") as pair:
        yield pair


@contextmanager
def _same_vectors(bench: Bench, label: str, side: str) -> Iterator[Pair]:
    with _vectors(bench, label, bench.peer("python"), side) as (found, theirs):

        def check() -> None:
            differing = _places(found) - _shared(found, theirs)
            if differing > _ROUNDING:
                raise BenchError(f"{differing} of {_places(found)} neighbours differ")

        yield Pair(found, theirs, check)


@contextmanager
def _vectors(bench: Bench, label: str, python: Path, side: str) -> Iterator[tuple["Peak", "Peak"]]:
    _make(bench, COUNT, "vectors")
    with (
        Peak(
            "exact top-4 of 100,000 vectors", _work(bench, bench.python, "ours"), bench.place
        ) as found,
        Peak(label, _work(bench, python, side), bench.place) as theirs,
    ):
        yield found, theirs


@contextmanager
def cold(bench: Bench) -> Iterator[Pair]:
    """Both are given the question's vector."""
    with _cold(bench, "ours") as pair:
        yield pair


@contextmanager
def cold_text(bench: Bench) -> Iterator[Pair]:
    """Ours embeds the question; chromadb is still given its vector."""
    with _cold(bench, "ours_text") as pair:
        yield pair


@contextmanager
def _cold(bench: Bench, side: str) -> Iterator[Pair]:
    _make(bench, COLD_COUNT, "store")
    script, peer = _HERE / "cold_retrieval.py", bench.peer("python")
    Command([peer, script, "make_chromadb", bench.place], bench.place, env=_SILENT).run()
    ours, theirs = bench.place / "ours.json", bench.place / "theirs.json"
    commands = (
        Command([bench.python, script, side, bench.place], bench.place, stdout=ours),
        Command([peer, script, "chromadb", bench.place], bench.place, stdout=theirs, env=_SILENT),
    )

    def check() -> None:
        found, known = (json.loads(path.read_text()) for path in (ours, theirs))
        if len(found) != len(known) or (side == "ours" and found[0] != known[0]):
            raise BenchError(f"ours found {found}, chromadb {known}")

    yield Pair(
        Processes("import, open, first question", commands[:1]),
        Processes("chromadb, the same", commands[1:]),
        check,
    )


@contextmanager
def words_common(bench: Bench) -> Iterator[Pair]:
    """Six words that a fifth of the chunks have each."""
    with _words(bench, "common") as pair:
        yield pair


@contextmanager
def words_rare(bench: Bench) -> Iterator[Pair]:
    """Six words that one of a thousand chunks has each."""
    with _words(bench, "rare") as pair:
        yield pair


@contextmanager
def words_advisory(bench: Bench) -> Iterator[Pair]:
    """All fifty words of a text: rare ones and common ones, as an advisory has them."""
    with _words(bench, "advisory") as pair:
        yield pair


@contextmanager
def _words(bench: Bench, kind: str) -> Iterator[Pair]:
    _make(bench, COUNT, "store")
    with (
        Worker("posting lists", _work(bench, bench.python, "words", kind), bench.place) as found,
        Worker(
            "tantivy", _work(bench, bench.peer("python"), "tantivy", kind), bench.place
        ) as theirs,
    ):

        def facts() -> dict[str, Any]:
            return {"same_of_top_10": round(_shared(found, theirs) / len(found.facts["found"]), 1)}

        yield Pair(found, theirs, facts=facts)


@contextmanager
def whole(bench: Bench) -> Iterator[Pair]:
    """Four by meaning and ten by words, of one memory: its files, and the memory a process needs."""
    for kind in ("vectors", "store"):
        _make(bench, COUNT, kind)
    with (
        Worker("words and vectors", _work(bench, bench.python, "whole"), bench.place) as found,
        Worker(
            "faiss and tantivy", _work(bench, bench.peer("python"), "whole_peers"), bench.place
        ) as theirs,
    ):

        def facts() -> dict[str, Any]:
            parts = {"sqlite": "", "postings": ".postings.*", "vectors": ".vectors.*"}
            return {f"{name}_mib": _mib(bench.place, end) for name, end in parts.items()}

        yield Pair(found, theirs, facts=facts)


@contextmanager
def build(bench: Bench) -> Iterator[Pair]:
    """A small store indexed anew; the peer runs the same model on the same texts, and keeps nothing."""
    _make(bench, BUILT, "store")
    with (
        Peak("index built", _work(bench, bench.python, "build"), bench.place) as found,
        Peak("the bare model", _work(bench, bench.python, "bare_model"), bench.place) as theirs,
    ):

        def check() -> None:
            if {*found.facts["found"][0], *theirs.facts["found"][0]} != {BUILT}:
                raise BenchError(f"not {BUILT} texts: {found.facts}, {theirs.facts}")

        def facts() -> dict[str, Any]:
            return {"texts_per_s": round(BUILT / found.best_s, 1)}

        yield Pair(found, theirs, check, facts)


def _mib(place: Path, end: str) -> int:
    return round(sum(path.stat().st_size for path in place.glob(f"examples.db{end}")) / 2**20)


class Peak(Worker):
    """A worker that remembers its peak memory, and its quickest round."""

    peak_bytes = 0
    best_s = math.inf

    def measure(self):  # type: ignore[no-untyped-def]
        """One round."""
        sample = super().measure()
        self.peak_bytes = max(self.peak_bytes, sample.peak_bytes)
        self.best_s = min(self.best_s, sample.wall_s)
        return sample


def _peak_times(worker: Peak) -> float:
    return worker.peak_bytes / (COUNT * 384 * 4)


def _places(worker: Worker) -> int:
    return sum(map(len, worker.facts["found"]))


def _shared(one: Worker, other: Worker) -> int:
    """How many places of the answers hold what the other found too."""
    pairs = zip(one.facts["found"], other.facts["found"], strict=True)
    return sum(len(set(mine) & set(theirs)) for mine, theirs in pairs)


def _make(bench: Bench, count: int, kind: str) -> None:
    script = _HERE / "corpus_retrieval.py"
    Command([bench.python, script, bench.place, str(count), kind], bench.place).run()


def _work(bench: Bench, python: Path, side: str, *options: str) -> list[str | Path]:
    return [python, _HERE / "worker.py", "work_retrieval", bench.place, side, *options]


ROWS = (
    Row("vectors-floor", "Exact top-4 against memory bandwidth", "6", 1.4, 15, floor),
    Row("vectors-faiss", "The same against faiss's flat index", "6", 0.5, 15, faiss),
    Row("vectors-sqlite-vec", "The same against sqlite-vec", "6", None, 7, sqlite_vec),
    Row("retrieval-cold", "Import, open, first question", "7", 0.2, 9, cold),
    Row("retrieval-cold-text", "The same, the question embedded", "7", None, 9, cold_text),
    Row("words-common", "Common words against tantivy", "8", 1.5, 9, words_common),
    Row("words-rare", "Rare words", "8", None, 9, words_rare),
    Row("words-advisory", "All words of a text", "8", None, 9, words_advisory),
    Row("whole-index", "Words and vectors together", "6", None, 7, whole),
    Row("index-build", "20 texts embedded and indexed", "6", None, 5, build),
)
