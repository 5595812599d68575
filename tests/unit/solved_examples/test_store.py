"""The store and its records: nothing without origin, nothing twice, all or none."""

import json
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fallback_plugins.solved_examples import ExampleStore, load_jsonl
from fallback_plugins.solved_examples.records import content_sha256
from fallback_plugins.solved_examples.store import ExampleStoreError
from fallback_tier.errors import InputError
from fallback_tier.limits import MAX_FILE_BYTES
from tests.unit.solved_examples.builders import example


@pytest.fixture
def store(tmp_path: Path) -> ExampleStore:
    return ExampleStore(tmp_path / "examples.db")


def test_the_same_content_is_one_example(store: ExampleStore) -> None:
    first = store.ingest([example("e1"), example("e2")])
    assert (first.added, first.duplicates) == (2, 0)
    clone = example("e1").model_copy(update={"example_id": "clone"})
    again = store.ingest([example("e1"), clone, example("e3")])
    assert (again.added, again.duplicates) == (1, 2)
    assert store.count() == 3


def test_the_content_hash_ignores_only_the_id() -> None:
    base = example()
    assert content_sha256(base.model_copy(update={"example_id": "other"})) == content_sha256(base)
    for field, value in (("licence", "MIT"), ("package", "p"), ("edits", ()), ("cwe", ("CWE-1",))):
        assert content_sha256(base.model_copy(update={field: value})) != content_sha256(base)


@pytest.mark.parametrize("field", ["licence", "provenance"])
def test_origin_is_required_and_an_ingest_is_all_or_none(store: ExampleStore, field: str) -> None:
    with pytest.raises(InputError, match=f"'bad' has no {field}"):
        store.ingest([example("good"), example("bad", **{field: "  "})])
    assert not store.path.exists()


def test_a_taken_id_rolls_everything_back(store: ExampleStore) -> None:
    store.ingest([example("e1")])
    with pytest.raises(InputError, match="'e1' is taken"):
        store.ingest([example("new"), example("e1", licence="MIT")])
    assert store.count() == 1


def test_ingests_at_the_same_time_share_a_new_file(store: ExampleStore) -> None:
    """Migrations and rows are one immediate transaction: or the schema is made twice."""
    records = [example(f"e{n}") for n in range(5)]
    with ThreadPoolExecutor(6) as pool:
        counts = list(pool.map(lambda _: store.ingest(records), range(6)))
    assert sum(count.added for count in counts) == store.count() == 5
    assert sum(count.duplicates for count in counts) == 25


def test_packages_are_found_by_their_canonical_name(store: ExampleStore) -> None:
    store.ingest([example("e2"), example("e1"), example("e3", ecosystem="npm")])
    found = store.of_package("PyPI", ["some-package"])
    assert [stored.example.example_id for stored in found] == ["e1", "e2"]
    assert store.of_package("PyPI", ["Some.Package", "other"]) == ()


def test_counts_and_search_are_safe_for_any_word(store: ExampleStore) -> None:
    store.ingest([example("e1", advisory_text="alpha beta"), example("e2", advisory_text="alpha")])
    assert store.document_counts(["alpha", "beta", "absent"]) == {
        "alpha": 2,
        "beta": 1,
        "absent": 0,
    }
    for words in (["alpha", 'x" OR "'], ["NEAR(", "alpha"], ["*", "advisory_text:", "alpha"]):
        assert len(store.search("PyPI", words, 9)) == 2
    assert [s.example.example_id for s in store.search("PyPI", ["alpha", "beta"], 1)] == ["e1"]
    assert store.search("npm", ["alpha"], 9) == ()


def test_a_missing_store_is_an_error_and_stays_missing(store: ExampleStore) -> None:
    with pytest.raises(ExampleStoreError, match="can't be used"):
        store.count()
    assert not store.path.exists()


def test_a_file_that_is_no_database(store: ExampleStore) -> None:
    store.path.write_bytes(b"not a database, but long enough to be looked at" * 40)
    for use in (store.count, lambda: store.ingest([example()])):
        with pytest.raises(ExampleStoreError):
            use()


def test_an_unwritable_place(tmp_path: Path) -> None:
    with pytest.raises(ExampleStoreError):
        ExampleStore(tmp_path / "missing" / "examples.db").ingest([example()])


def test_an_altered_record_is_noticed(store: ExampleStore) -> None:
    store.ingest([example("e1", package="p")])
    for change in ("replace(record, 'Apache', 'Apathy')", "'{}'"):
        with sqlite3.connect(store.path) as db:
            db.execute(f"UPDATE examples SET record = {change}")
        db.close()
        with pytest.raises(ExampleStoreError, match="not what was ingested"):
            store.of_package("PyPI", ["p"])


def test_sqlite_utils_is_not_imported_until_it_is_needed() -> None:
    code = "import sys, fallback_plugins.solved_examples\nsys.exit('sqlite_utils' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# --- Records ---------------------------------------------------------------------------------------


def test_records_round_trip(tmp_path: Path) -> None:
    path = tmp_path / "examples.jsonl"
    records = (example("e1"), example("e2", advisory_text="line\u2028separator\n"))
    path.write_text("\n\n".join(record.model_dump_json() for record in records) + "\n")
    assert load_jsonl(path) == records


@pytest.mark.parametrize(
    ("second", "said"),
    [
        ("{", "Invalid JSON"),
        ("[]", "the line"),
        ("{}", "example_id: Field required"),
        (json.dumps({**example().model_dump(mode="json"), "more": 1}), "more: Extra inputs"),
        (json.dumps({**example().model_dump(mode="json"), "file_sha256": {"a": "x"}}), "file_sha"),
        ("\udcff", "line 2"),
    ],
)
def test_faults_name_file_and_line(tmp_path: Path, second: str, said: str) -> None:
    path = tmp_path / "examples.jsonl"
    text = f"{example().model_dump_json()}\n{second}\n"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(InputError, match="line 2") as caught:
        load_jsonl(path)
    assert str(path) in caught.value.problem
    assert said in caught.value.problem


def test_files_that_can_not_be_taken(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="can't be read"):
        load_jsonl(tmp_path / "absent.jsonl")
    large = tmp_path / "large.jsonl"
    with large.open("wb") as stream:
        stream.truncate(MAX_FILE_BYTES + 1)
    with pytest.raises(InputError, match="larger than"):
        load_jsonl(large)
