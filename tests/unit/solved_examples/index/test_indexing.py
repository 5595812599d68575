"""An index is incremental, survives a kill at any moment, and never mixes two models."""

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fallback_plugins.solved_examples.index import indexing
from fallback_plugins.solved_examples.index.indexing import IndexReport, build_index, nearest
from fallback_plugins.solved_examples.interfaces import ExampleStoreError
from fallback_plugins.solved_examples.store.example_store import ExampleStore
from fallback_plugins.solved_examples.store.schema import Meta, set_meta
from tests.kinds import OfKind
from tests.unit.solved_examples.builders import example, store_at
from tests.unit.solved_examples.one_chunk import one_chunk_store
from tests.unit.solved_examples.toy_embedder import ToyEmbedder
from tests.waiting import PATIENCE_S, next_line

np = pytest.importorskip("numpy", reason="the extra `embeddings` is not installed")

ROOT = Path(__file__).parents[4]
WORDS = ("path", "traversal", "archive", "merge", "prototype", "query", "shell", "cookie")


def fill(path: Path, records: int = 10, *, first: int = 0, ecosystem: str = "PyPI") -> ExampleStore:
    """One chunk a record."""
    chosen = random.Random(first)
    store = one_chunk_store(path)
    store.ingest(
        example(
            f"e{n}",
            advisory_text=f"{n} " + " ".join(chosen.choices(WORDS, k=6)),
            ecosystem=ecosystem,
        )
        for n in range(first, first + records)
    )
    return store


def build(
    store: ExampleStore, embedder: ToyEmbedder | None = None, **options: object
) -> IndexReport:
    return build_index(store, embedder or ToyEmbedder(), **options)  # type: ignore[arg-type]


def counts(report: IndexReport) -> tuple[int, int, int]:
    return report.embedded, report.already, report.dead_rows


def vectors_of(store: ExampleStore, embedder: ToyEmbedder | None = None) -> dict[int, bytes]:
    """Chunk → the bytes of its vector."""
    with store.reading() as connection:
        rows = connection.execute("SELECT row, chunk FROM vectors").fetchall()
        if not rows:
            return {}
        file = indexing._vector_file(store, connection, embedder or ToyEmbedder()).open(len(rows))
        return {chunk: file.rows[row].tobytes() for row, chunk in rows}


def files(store: ExampleStore) -> list[str]:
    return sorted(path.name for path in store.path.parent.glob("*.vectors.*"))


def found(store: ExampleStore, text: str, limit: int = 3, *ecosystems: str) -> list[str]:
    embedder = ToyEmbedder()
    with store.reading() as connection:
        hits = nearest(
            store,
            connection,
            embedder,
            embedder.embed([text])[0],
            limit=limit,
            ecosystems=ecosystems,
        )
        assert [cosine for _, cosine in hits] == sorted((c for _, c in hits), reverse=True)
        sql = "SELECT text FROM chunks WHERE id = ?"
        return [connection.execute(sql, [chunk]).fetchone()[0] for chunk, _ in hits]


@pytest.fixture
def store(tmp_path: Path) -> ExampleStore:
    return fill(tmp_path / "examples.db")


def test_every_chunk_gets_a_vector_once(store: ExampleStore, tmp_path: Path) -> None:
    log = tmp_path / "log"
    seen: list[tuple[int, int]] = []
    report = build(store, ToyEmbedder(log=log), batch=4, progress=lambda *done: seen.append(done))
    assert counts(report) == (10, 0, 0)
    assert seen == [(4, 10), (8, 10), (10, 10)]
    fill(store.path, 3, first=50)
    assert counts(build(store, ToyEmbedder(log=log), batch=4)) == (3, 10, 0)
    assert counts(build(store, ToyEmbedder(log=log))) == (0, 13, 0)
    assert len(log.read_bytes()) == 13


def test_a_text_finds_itself_first(store: ExampleStore) -> None:
    build(store)
    fill(store.path, 5, first=80, ecosystem="npm")
    build(store)
    with store.reading() as connection:
        texts = [text for (text,) in connection.execute("SELECT text FROM chunks")]
    for text in texts:
        assert found(store, text)[0] == text
    assert found(store, texts[0], 3, "npm")[0] != texts[0]
    assert len(found(store, texts[0], 99, "npm")) == 5
    assert len(found(store, texts[0], 99, "npm", "PyPI")) == 15
    assert found(store, texts[0], 3, "Go") == []


def test_code_is_embedded_with_the_flaw_that_it_fixes(tmp_path: Path) -> None:
    store = store_at(tmp_path / "examples.db")
    store.ingest([example(advisory_text="Zip Slip", fix_summary="Check the members")])
    build(store)
    (vector,) = ToyEmbedder().embed(["Zip Slip\nCheck the members\ny"])
    assert vector.tobytes() in vectors_of(store).values()


def test_vectors_of_other_texts_are_of_another_model(store: ExampleStore) -> None:
    build(store)
    with store.writing() as connection:
        set_meta(connection, Meta.EMBEDDING_TEXT, "an earlier text")
    with pytest.raises(
        ExampleStoreError, check=OfKind("another_model"), match="an earlier text"
    ) as caught:
        build(store)
    assert "--rebuild" in caught.value.next_step


def test_before_the_first_build_nothing_is_near(store: ExampleStore) -> None:
    assert found(store, "path") == []


def test_a_withdrawn_record_is_not_found_and_its_row_is_dead(store: ExampleStore) -> None:
    build(store)
    gone = found(store, "0 path", 10)
    store.withdraw("e4", reason="wrong", by="a person")
    assert len(found(store, "0 path", 10)) == 9
    assert set(found(store, "0 path", 10)) < set(gone)
    assert counts(build(store)) == (0, 9, 1)


def test_many_dead_rows_are_left_behind(store: ExampleStore) -> None:
    build(store)
    assert files(store) == ["examples.db.vectors.1"]
    for n in (0, 3, 8):
        store.withdraw(f"e{n}", reason="wrong", by="a person")
    before = vectors_of_live(store)
    assert counts(build(store)) == (0, 7, 0)
    assert files(store) == ["examples.db.vectors.2"]
    assert vectors_of(store) == before
    fill(store.path, 2, first=90)
    assert counts(build(store)) == (2, 7, 0)


def vectors_of_live(store: ExampleStore) -> dict[int, bytes]:
    with store.reading() as connection:
        live = {chunk for (chunk,) in connection.execute("SELECT id FROM chunks")}
    return {chunk: row for chunk, row in vectors_of(store).items() if chunk in live}


@pytest.mark.parametrize("attribute", ["model", "sha256", "dimension"])
def test_another_model_is_an_error_that_names_the_way_out(
    store: ExampleStore, attribute: str
) -> None:
    build(store)
    other = ToyEmbedder()
    setattr(other, attribute, 8 if attribute == "dimension" else "cd" * 32)
    query = np.ones(other.dimension, dtype=np.float32)
    with (
        store.reading() as connection,
        pytest.raises(ExampleStoreError, check=OfKind("another_model"), match="toy"),
    ):
        nearest(store, connection, other, query, limit=1)
    with pytest.raises(ExampleStoreError, check=OfKind("another_model")) as caught:
        build(store, other)
    assert "fallback-tier examples index --rebuild" in caught.value.next_step
    assert len(vectors_of(store)) == 10


def test_a_rebuild_makes_them_all_anew(store: ExampleStore) -> None:
    build(store)
    other = ToyEmbedder("other")
    assert counts(build(store, other, rebuild=True)) == (10, 0, 0)
    assert files(store) == ["examples.db.vectors.2"]
    assert counts(build(store, other)) == (0, 10, 0)


@pytest.mark.parametrize("damage", ["missing", "short", "text"])
def test_a_damaged_file_is_seen_before_anything_is_computed(
    store: ExampleStore, tmp_path: Path, damage: str
) -> None:
    build(store)
    (path,) = store.path.parent.glob("*.vectors.*")
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:200] if damage == "short" else b"x" * 5_000)
    log = tmp_path / "log"
    with pytest.raises(ExampleStoreError, match=r"vectors\.1"):
        build(store, ToyEmbedder(log=log))
    assert not log.exists()
    assert counts(build(store, rebuild=True)) == (10, 0, 0)


def test_a_chunk_that_goes_while_it_is_embedded_gets_no_row(store: ExampleStore) -> None:
    class Meanwhile(ToyEmbedder):
        def embed(self, texts):  # type: ignore[no-untyped-def]
            if len(texts) == 10:
                store.withdraw("e0", reason="wrong", by="a person")
            return super().embed(texts)

    assert counts(build(store, Meanwhile())) == (9, 0, 0)
    assert len(vectors_of(store)) == 9


def test_a_missing_store_is_told_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ExampleStoreError):
        build(one_chunk_store(tmp_path / "missing.db"))
    assert list(tmp_path.iterdir()) == []


def start(store: ExampleStore, log: Path, batch: int = 5) -> "subprocess.Popen[str]":
    """A builder in a process of its own, from the moment that it builds."""
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "tests.unit.solved_examples.toy_embedder",
            store.path,
            log,
            str(batch),
        ],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert next_line(process) == "building\n"
    return process


def test_a_build_that_is_killed_goes_on_where_it_was(tmp_path: Path) -> None:
    records, batch = 300, 5
    undisturbed = fill(tmp_path / "undisturbed.db", records)
    build(undisturbed, batch=batch)
    store = fill(tmp_path / "examples.db", records)
    log, kills, moment = tmp_path / "log", 0, random.Random(4)
    while kills < 6:
        process = start(store, log, batch)
        time.sleep(moment.uniform(0.0, 0.15))
        process.kill()
        process.communicate(timeout=PATIENCE_S)
        kills += 1
    assert len(vectors_of(store)) < records, "the kills came too late to show anything"
    build(store, ToyEmbedder(log=log), batch=batch)
    assert vectors_of(store) == vectors_of(undisturbed)
    assert records <= len(log.read_bytes()) <= records + kills * batch


def test_a_second_builder_is_told_so(tmp_path: Path) -> None:
    store = fill(tmp_path / "examples.db", 200)
    with start(store, tmp_path / "log") as process:
        while not (tmp_path / "log").exists():
            assert process.poll() is None
        with pytest.raises(ExampleStoreError, check=OfKind("locked")) as caught:
            build(store)
        assert "Wait" in caught.value.next_step
        assert found(store, "path") is not None  # readers need not wait
        assert process.wait(PATIENCE_S) == 0, process.stderr
    assert counts(build(store)) == (0, 200, 0)


_FULL = """
import resource, sys
from pathlib import Path
from fallback_plugins.solved_examples.index.indexing import build_index
from fallback_plugins.solved_examples.interfaces import ExampleStoreError
from tests.unit.solved_examples.one_chunk import one_chunk_store
from tests.unit.solved_examples.toy_embedder import ToyEmbedder

store, embedder = one_chunk_store(Path(sys.argv[1])), ToyEmbedder(dimension=2_048)
limit = int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
try:
    build_index(store, embedder, batch=300)
except ExampleStoreError as error:
    print(error.problem)
"""


def test_a_full_disk_leaves_what_was_indexed(tmp_path: Path) -> None:
    embedder = ToyEmbedder(dimension=2_048)
    store = fill(tmp_path / "examples.db", 10)
    build(store, embedder)
    before = vectors_of(store, embedder)
    fill(store.path, 300, first=1_000)
    # The store itself still fits, the vectors (2.4 MB) do not.
    limit = store.path.stat().st_size + 500_000
    done = subprocess.run(
        [sys.executable, "-c", _FULL, store.path, str(limit)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert "examples.db.vectors.1" in done.stdout, done
    assert vectors_of(store, embedder) == before
    assert counts(build(store, embedder, batch=300)) == (300, 10, 0)
