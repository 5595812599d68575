"""Posting lists are used for the very state of the store that they were made of."""

import errno
import os
from pathlib import Path

import pytest

from fallback_plugins.solved_examples.index import word_index
from fallback_plugins.solved_examples.index.indexing import build_index
from fallback_plugins.solved_examples.index.word_index import build_words, only_builder, words_of
from fallback_plugins.solved_examples.interfaces import ExampleStoreError, Question
from fallback_plugins.solved_examples.search import lexical
from fallback_plugins.solved_examples.search.ranking import rank
from fallback_plugins.solved_examples.search.settings import RetrievalSettings
from fallback_plugins.solved_examples.store.example_store import ExampleStore
from tests.kinds import OfKind
from tests.unit.solved_examples.builders import example
from tests.unit.solved_examples.index.posting_stores import assert_same, both, fill, prose
from tests.unit.solved_examples.toy_embedder import ToyEmbedder

pytest.importorskip("numpy", reason="the extra `embeddings` is not installed")


def files(store: ExampleStore) -> list[str]:
    return sorted(path.name for path in store.path.parent.glob("*.postings.*"))


def note(store: ExampleStore) -> str:
    with store.reading() as connection:
        words = words_of(store, connection)
        assert (words.postings is None) == bool(words.note)
        return words.note


@pytest.fixture
def store(tmp_path: Path) -> ExampleStore:
    made = fill(tmp_path, *prose())
    assert build_words(made, min_chunks=1)
    return made


def test_a_small_store_has_none_and_says_nothing(tmp_path: Path) -> None:
    store = fill(tmp_path, *prose(9))
    assert not build_words(store)
    assert files(store) == []
    with store.reading() as connection:
        assert words_of(store, connection) == word_index.Words()


def test_building_again_changes_nothing(store: ExampleStore) -> None:
    (path,) = store.path.parent.glob("*.postings.*")
    before = path.stat().st_ino
    assert build_words(store, min_chunks=1)
    assert path.stat().st_ino == before
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_build_of_the_index_makes_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(word_index, "MIN_CHUNKS", 1)
    store = fill(tmp_path, *prose(9))
    build_index(store, ToyEmbedder())
    assert len(files(store)) == 1
    assert note(store) == ""


@pytest.mark.parametrize("change", ["added", "withdrawn", "revised"])
def test_a_store_that_changed_is_searched_by_fts5_and_says_so(
    store: ExampleStore, change: str
) -> None:
    (before,) = files(store)
    if change == "added":
        fill(store.path.parent, "needle", first=900)
    elif change == "withdrawn":
        store.withdraw("e1", reason="wrong", by="me")
    else:
        store.ingest([example("e1", advisory_id="GHSA-1", advisory_text="needle")])
    assert "the store changed since" in note(store)
    ranking = rank(store, Question("needle"), RetrievalSettings(mode="lexical"), None, None)
    assert any("the store changed since" in message for message in ranking.notes)
    assert ranking.degraded == ""
    assert bool(ranking.candidates) == (change != "withdrawn")
    assert build_words(store, min_chunks=1)
    assert_same(*both(store, "needle", "path", "rare1"))
    (after,) = files(store)
    assert after != before


def test_a_record_that_left_and_came_back_is_another_state(store: ExampleStore) -> None:
    """The same corpus, the same number of chunks: but their ids are others."""
    with store.writing() as connection:
        rows = connection.execute("SELECT * FROM chunks WHERE id = 5").fetchall()
        connection.execute("DELETE FROM chunks WHERE id = 5")
    with store.writing() as connection:
        connection.execute("INSERT INTO chunks VALUES (NULL, ?, ?, ?, ?, ?, ?, ?)", rows[0][1:])
    assert "the store changed since" in note(store)


def test_a_ranking_takes_them(store: ExampleStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_fts5(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(lexical, "_by_fts5", no_fts5)
    ranking = rank(store, Question("rare1 path"), RetrievalSettings(mode="lexical"), None, None)
    assert ranking.candidates
    assert ranking.notes == ("by words alone, as configured",)


@pytest.mark.parametrize("damage", ["gone", "cut", "foreign", "other state", "empty"])
def test_a_damaged_file_is_not_used(store: ExampleStore, damage: str) -> None:
    (path,) = store.path.parent.glob("*.postings.*")
    data = path.read_bytes()
    changed = {
        "cut": data[:-1],
        "foreign": b"x" * len(data),
        "other state": data[:24] + bytes(32) + data[56:],
        "empty": b"",
    }
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(changed[damage])
    assert "can't be used" in note(store)
    assert build_words(store, min_chunks=1)
    assert note(store) == ""


@pytest.mark.parametrize("asked", ["rare1", "path"])
def test_an_overwritten_file_is_named(store: ExampleStore, asked: str) -> None:
    (path,) = store.path.parent.glob("*.postings.*")
    size = path.stat().st_size
    path.write_bytes(path.read_bytes()[: size // 2] + b"\xff" * (size - size // 2))
    with store.reading() as connection:
        postings = words_of(store, connection).postings
        with pytest.raises(ExampleStoreError, check=OfKind("damaged")):
            lexical.search(connection, [asked], limit=9, postings=postings)


def test_without_numpy_fts5_is_searched(
    store: ExampleStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(word_index, "find_spec", lambda _: None)
    assert "numpy is not installed" in note(store)
    fill(store.path.parent, "needle", first=900)
    assert not build_words(store, min_chunks=1)


def test_a_store_that_changes_meanwhile_gets_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = fill(tmp_path, *prose())
    monkeypatch.setattr(word_index, "_PAGE", 50)
    read = word_index._occurrences

    def and_change(*given: object) -> object:
        monkeypatch.setattr(word_index, "_occurrences", read)
        found = read(*given)  # type: ignore[arg-type]
        changed.append(1)
        return found

    changed: list[int] = []
    monkeypatch.setattr(word_index, "_occurrences", and_change)
    runs = word_index._runs

    def after_the_snapshot(*given: object) -> object:
        monkeypatch.setattr(word_index, "_runs", runs)
        fill(store.path.parent, "needle", first=900)
        return runs(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(word_index, "_runs", after_the_snapshot)
    assert not build_words(store, min_chunks=1)
    assert changed
    assert files(store) == []
    assert build_words(store, min_chunks=1)


def test_pages_make_the_same_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = fill(tmp_path, *prose())
    assert build_words(store, min_chunks=1)
    (path,) = store.path.parent.glob("*.postings.*")
    whole = path.read_bytes()
    path.unlink()
    monkeypatch.setattr(word_index, "_PAGE", 7)
    assert build_words(store, min_chunks=1)
    assert path.read_bytes() == whole


def test_a_full_disk_leaves_what_was(store: ExampleStore, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(store.path.parent, "needle", first=900)
    before = files(store)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(ExampleStoreError, match="No space left on device"):
        build_words(store, min_chunks=1)
    assert files(store) == before


def test_words_that_disagree_with_their_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = fill(tmp_path, *prose())
    read = word_index._occurrences
    monkeypatch.setattr(word_index, "_occurrences", lambda *given: read(*given)[1:])
    with pytest.raises(ExampleStoreError, check=OfKind("counts_differ")):
        build_words(store, min_chunks=1)
    assert files(store) == []


def test_one_build_at_a_time(store: ExampleStore) -> None:
    with (
        only_builder(store),
        pytest.raises(ExampleStoreError, check=OfKind("locked")),
    ):
        build_words(store, min_chunks=1)
