"""The store's file: shared, killed in mid-write, altered, foreign, of another version."""

import signal
import sqlite3
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fallback_plugins.solved_examples.index.drift import validate
from fallback_plugins.solved_examples.interfaces import ExampleStoreError
from fallback_plugins.solved_examples.store.example_store import ExampleStore, Selection
from fallback_tier.errors import InputError
from tests.kinds import OfKind
from tests.unit.solved_examples.builders import example, store_at
from tests.waiting import PATIENCE_S, came


@pytest.fixture
def store(tmp_path: Path) -> ExampleStore:
    return store_at(tmp_path / "examples.db")


def alter(store: ExampleStore, sql: str) -> None:
    connection = sqlite3.connect(store.path, isolation_level=None)
    connection.execute(sql)
    connection.close()


def test_ingests_at_the_same_time_share_a_new_file(store: ExampleStore) -> None:
    """Migrations and rows are one immediate transaction: or the schema is made twice."""
    records = [example(f"e{n}") for n in range(5)]
    with ThreadPoolExecutor(6) as pool:
        counts = list(pool.map(lambda _: store.ingest(records), range(6)))
    assert sum(count.added for count in counts) == store.count() == 5
    assert sum(count.duplicates for count in counts) == 25


def test_who_waits_for_a_failed_maker_is_told_and_loses_nothing_silently(
    store: ExampleStore,
) -> None:
    """The file of a failed first ingest goes; another one that has it open must not write there."""
    entered, go = threading.Event(), threading.Event()

    def fails() -> None:
        with store.writing(create=True):
            entered.set()
            came(go)
            raise ZeroDivisionError

    with ThreadPoolExecutor(2) as pool:
        failing = pool.submit(fails)
        came(entered)
        waiting = pool.submit(store.ingest, [example()])
        until = time.monotonic() + PATIENCE_S
        while not _has_open(store.path, times=2):
            assert time.monotonic() < until, "nobody waits for the one who makes the file"
            assert not waiting.done(), "it did not wait for the one who makes the file"
        go.set()
        assert isinstance(failing.exception(), ZeroDivisionError)
        error = waiting.exception()
    assert isinstance(error, ExampleStoreError)
    assert not store.path.exists()
    assert store.ingest([example()]).added == 1


def _has_open(path: Path, *, times: int) -> bool:
    opened = 0
    for descriptor in Path("/proc/self/fd").iterdir():
        try:
            opened += descriptor.readlink() == path
        except FileNotFoundError:
            continue
    return opened >= times


_KILLED = """
import os, signal, sys
from pathlib import Path
from tests.unit.solved_examples.builders import example, store_at

store = store_at(Path(sys.argv[1]))
with store.writing() as connection:
    connection.execute("PRAGMA cache_size = 1")  # changed pages go to the file at once
    for number in range(200):
        connection.execute("INSERT INTO chunks (example, ordinal, kind, context, text, tokens, edits)"
                           " VALUES (1, ?, 'code', '', hex(randomblob(4000)), 1, '[]')", [number + 9])
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_writer_that_was_killed_leaves_the_store_as_it_was(store: ExampleStore) -> None:
    """Also to a reader, who opens it first: that one rolls the dead writer's work back."""
    store.ingest([example("e1"), example("e2")])
    before, size = store.manifest(), store.path.stat().st_size
    done = subprocess.run([sys.executable, "-c", _KILLED, store.path], check=False)
    assert done.returncode == -signal.SIGKILL
    assert store.path.stat().st_size > size  # it was in mid-write
    assert store.manifest() == before
    assert validate(store) == ()
    assert store.path.stat().st_size == size


def test_a_missing_store_is_an_error_and_stays_missing(store: ExampleStore) -> None:
    with pytest.raises(ExampleStoreError, check=OfKind("unusable")):
        store.count()
    with pytest.raises(ExampleStoreError):
        store.rechunk()
    assert not store.path.exists()


def test_a_file_that_is_no_database(store: ExampleStore) -> None:
    content = b"not a database, but long enough to be looked at" * 40
    store.path.write_bytes(content)
    for use in (store.count, lambda: store.ingest([example()])):
        with pytest.raises(ExampleStoreError):
            use()
    assert store.path.read_bytes() == content


def test_a_database_of_something_else(store: ExampleStore) -> None:
    alter(store, "CREATE TABLE shopping (item)")
    for use in (store.count, lambda: store.ingest([example()])):
        with pytest.raises(ExampleStoreError, check=OfKind("no_store")):
            use()


def test_an_unwritable_place(tmp_path: Path) -> None:
    with pytest.raises(
        ExampleStoreError, check=OfKind("unusable"), match="No such file or directory"
    ):
        store_at(tmp_path / "missing" / "examples.db").ingest([example()])
    with pytest.raises(ExampleStoreError, check=OfKind("unusable"), match="File name too long"):
        store_at(tmp_path / ("x" * 300)).ingest([example()])


def test_a_name_that_is_no_utf_8(tmp_path: Path) -> None:
    store = store_at(tmp_path / "\udcff?#%.db")
    store.ingest([example()])
    assert (store.count(), [*tmp_path.iterdir()]) == (1, [store.path])


def test_a_value_that_is_no_unicode_is_bad_input(store: ExampleStore) -> None:
    """A command line's bytes may be any."""
    store.ingest([example()])
    with pytest.raises(InputError, check=OfKind("not_unicode")):
        store.versions("\udcff")
    with pytest.raises(InputError, check=OfKind("not_unicode")):
        store.withdraw("e1", reason="\udcff", by="me")
    with pytest.raises(InputError, check=OfKind("not_unicode")):
        list(store.listing(Selection(package="\udcff")))
    assert store.count() == 1


@pytest.mark.parametrize(
    ("sql", "kind"),
    [
        ("UPDATE meta SET value = '99' WHERE key = 'format'", "another_format"),
        ("DROP TABLE meta", "early_format"),
    ],
)
def test_another_format_names_the_way_out(store: ExampleStore, sql: str, kind: str) -> None:
    store.ingest([example()])
    alter(store, sql)
    for use in (store.count, lambda: store.ingest([example("e2")])):
        with pytest.raises(ExampleStoreError, check=OfKind(kind)) as caught:
            use()
        assert "`fallback-tier examples ingest FILE --store NEW`" in caught.value.next_step


@pytest.mark.parametrize(
    "change",
    ["record = replace(record, 'Apache', 'Apathy')", "record = '{}'", "record = 'x'"],
)
def test_an_altered_record_is_noticed(store: ExampleStore, change: str) -> None:
    store.ingest([example("e1", package="p")])
    alter(store, f"UPDATE examples SET {change}")
    for use in (lambda: store.of_package("PyPI", ["p"]), lambda: store.records([1])):
        with pytest.raises(ExampleStoreError, check=OfKind("record_altered")):
            use()


def test_a_reader_can_not_write(store: ExampleStore) -> None:
    store.ingest([example()])
    with (
        pytest.raises(ExampleStoreError, check=OfKind("unusable"), match="readonly"),
        store.reading() as connection,
    ):
        connection.execute("DELETE FROM chunks")
    assert validate(store) == ()


# --- Another chunker ------------------------------------------------------------------------------


def test_another_chunker_is_refused_until_all_is_cut_again(store: ExampleStore) -> None:
    store.ingest([example(f"e{number}") for number in range(3)])
    newer = store_at(store.path, "whole-2")
    for use in (lambda: newer.ingest([example("e9")]), lambda: newer.reading().__enter__()):
        with pytest.raises(
            ExampleStoreError, check=OfKind("another_chunker"), match="whole-1"
        ) as caught:
            use()
        assert f"`fallback-tier examples index --store {store.path}`" in caught.value.next_step
    assert newer.count() == 3
    assert newer.rechunk() == 3
    assert newer.rechunk() == 0
    assert newer.ingest([example("e9")]).added == 1
    assert validate(newer) == ()
    with pytest.raises(ExampleStoreError, check=OfKind("another_chunker"), match="whole-2"):
        store.ingest([example("e9")])


def test_cutting_again_goes_on_where_it_was_stopped(
    store: ExampleStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fallback_plugins.solved_examples.store.example_store._PAGE", 2)
    store.ingest([example(f"e{number}") for number in range(5)])
    newer = store_at(store.path, "whole-2")

    def stop(done: int, total: int) -> None:
        assert (done, total) == (2, 5)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        newer.rechunk(stop)
    with pytest.raises(ExampleStoreError, check=OfKind("another_chunker"), match="whole-1"):
        newer.ingest([])
    seen: list[tuple[int, int]] = []
    assert newer.rechunk(lambda done, total: seen.append((done, total))) == 3
    assert seen == [(2, 3), (3, 3)]
    assert validate(newer) == ()


def test_nothing_heavy_is_imported_to_read(store: ExampleStore) -> None:
    store.ingest([example()])
    code = (
        "import sys; from pathlib import Path\n"
        "from fallback_plugins.solved_examples.store.example_store import ExampleStore\n"
        "assert ExampleStore(Path(sys.argv[1])).count() == 1\n"
        "sys.exit(bool({'sqlite_utils', 'tree_sitter', 'numpy', 'onnxruntime'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code, store.path], check=False).returncode == 0
