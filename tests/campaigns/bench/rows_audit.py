"""Goals 9 and 10: what a durable append costs, alone and in batches, and what verifying costs."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from tests.campaigns.bench.measure import BenchError, Command, Processes, Worker
from tests.campaigns.bench.row import Bench, Figure, Pair, Row

_HERE = Path(__file__).parent

#: Events of the store that is verified in a warm process.
EVENTS = 10_000

#: Events of the stores that are verified by a process each, to see that memory does not follow.
FEW, MANY = 10_000, 100_000

#: Peak memory over MANY events against that over FEW (docs/benchmarks.md, goal 10: flat).
PEAK_RATIO = 1.1


@contextmanager
def append(bench: Bench) -> Iterator[Pair]:
    """As production appends, against one write of as many bytes and one fdatasync: the middle one of
    each round's twenty, since one in sixteen of ours ends a fix and waits for its checkpoint too."""
    with (
        _work(bench, "durable append", "one", "production", middle=True) as ours,
        _work(bench, "write and fdatasync", "sync", middle=True) as sync,
    ):
        yield Pair(ours, sync)


@contextmanager
def append_mean(bench: Bench) -> Iterator[Pair]:
    """The same, the mean of each round's twenty: the checkpoints are shared out over all events."""
    with _work(bench, "durable append", "one", "production") as ours, _sync(bench) as sync:
        yield Pair(ours, sync)


@contextmanager
def append_bare(bench: Bench) -> Iterator[Pair]:
    """The store by itself: no contract, no checkpoints."""
    with _work(bench, "store alone", "one", "bare") as ours, _sync(bench) as sync:
        yield Pair(ours, sync)


@contextmanager
def batch(bench: Bench) -> Iterator[Pair]:
    """16 events at once, against 16 one by one, both as production appends."""
    with _batch(bench, "production") as pair:
        yield pair


@contextmanager
def batch_bare(bench: Bench) -> Iterator[Pair]:
    """The same of the store by itself."""
    with _batch(bench, "bare") as pair:
        yield pair


@contextmanager
def postgres(bench: Bench) -> Iterator[Pair]:
    """PostgreSQL, as production appends; against psycopg inserting the same rows."""
    with _postgres(bench, "one") as pair:
        yield pair


@contextmanager
def postgres_batch(bench: Bench) -> Iterator[Pair]:
    """The same, 16 at once on both sides."""
    with _postgres(bench, "batch") as pair:
        yield pair


def _verifying(check: str, label: str) -> Callable[[Bench], AbstractContextManager[Pair]]:
    @contextmanager
    def prepare(bench: Bench) -> Iterator[Pair]:
        _make(bench, bench.place, EVENTS)
        with (
            _work(bench, label, check) as ours,
            _work(bench, "scan and SHA-256", "scan") as scan,
        ):
            yield Pair(ours, scan, facts=lambda: {"events": EVENTS})

    return prepare


@contextmanager
def memory(bench: Bench) -> Iterator[Pair]:
    """A process that verifies everything, over ten times the events: its peak memory stays."""
    sides = []
    for events in (MANY, FEW):
        folder = bench.place / str(events)
        _make(bench, folder, events)
        check = Command([bench.python, _HERE / "audit_store.py", "verify", folder], bench.place)
        sides.append(Processes(f"audit verify, {events:,} events", [check]))
    many, few = sides

    def figures() -> Sequence[Figure]:
        ratio = many.measure().peak_bytes / few.measure().peak_bytes
        return (Figure("peak memory, ten times the events", ratio, PEAK_RATIO),)

    yield Pair(many, few, figures=figures)


@contextmanager
def _batch(bench: Bench, store: str) -> Iterator[Pair]:
    with (
        _work(bench, "16 at once", "batch", store) as ours,
        _work(bench, "16 one by one", "sixteen", store) as theirs,
    ):
        yield Pair(ours, theirs)


@contextmanager
def _postgres(bench: Bench, work: str) -> Iterator[Pair]:
    from tests.postgres.server import missing, running

    if reason := missing():
        raise BenchError(reason)
    with running() as server:
        url = server.url()
        with (
            _work(bench, "PostgreSQL store", work, "postgres", url) as ours,
            _work(bench, "psycopg, the same rows", work, "raw", url) as raw,
        ):
            yield Pair(ours, raw)


def _sync(bench: Bench) -> Worker:
    return _work(bench, "write and fdatasync", "sync")


def _work(bench: Bench, label: str, *options: str, middle: bool = False) -> Worker:
    script: list[str | Path] = [_HERE / "worker.py", *["--median"] * middle, "work_audit"]
    return Worker(label, [bench.python, *script, bench.place, *options], bench.place)


def _make(bench: Bench, folder: Path, events: int) -> None:
    folder.mkdir(exist_ok=True)
    Command([bench.python, _HERE / "audit_store.py", "make", folder, str(events)], folder).run()


ROWS = (
    Row("audit-append", "Durable append against one fdatasync", "9", 2.0, 31, append),
    Row("audit-append-mean", "The same, checkpoints shared out", "9", None, 31, append_mean),
    Row("audit-append-bare", "The store alone against one fdatasync", "9", None, 31, append_bare),
    Row("audit-batch", "16 events at once against one by one", "9", 0.125, 15, batch),
    Row("audit-batch-bare", "The same, the store alone", "9", None, 15, batch_bare),
    Row("audit-postgres", "Append in PostgreSQL against psycopg", "9", None, 15, postgres),
    Row("audit-postgres-batch", "16 at once in PostgreSQL", "9", None, 15, postgres_batch),
    Row(
        "audit-integrity",
        "Chain verified against scan and SHA-256",
        "10",
        1.2,
        9,
        _verifying("integrity", "chain"),
    ),
    Row(
        "audit-merkle",
        "The same with the Merkle tree",
        "10",
        2.2,
        9,
        _verifying("merkle", "chain and tree"),
    ),
    Row(
        "audit-contract",
        "All of it, trace contract too",
        "10",
        5.0,
        5,
        _verifying("contract", "audit verify"),
    ),
    Row("audit-memory", "Verifying ten times the events", "10", None, 2, memory),
)
