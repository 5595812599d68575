"""The store: nothing without origin, nothing twice, versions, all or none."""

import json
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fallback_plugins.solved_examples.interfaces import ExampleStoreError
from fallback_plugins.solved_examples.store.example_store import (
    MAX_ID_CHARS,
    ExampleStore,
    Selection,
)
from fallback_plugins.solved_examples.store.schema import State
from fallback_tier.errors import InputError
from fallback_tier.retrieval import SolvedExample
from tests.kinds import OfKind
from tests.unit.solved_examples.builders import NOON, example, store_at


@pytest.fixture
def store(tmp_path: Path) -> ExampleStore:
    return store_at(tmp_path / "examples.db")


def words(store: ExampleStore, word: str) -> list[str]:
    """Ids of the records in whose chunks a word is."""
    with store.reading() as connection:
        found = connection.execute(
            "SELECT DISTINCT example_id FROM chunks_fts JOIN chunks ON chunks.id = chunks_fts.rowid "
            "JOIN examples ON examples.id = chunks.example WHERE chunks_fts MATCH ? ORDER BY 1",
            [word],
        )
        return [example_id for (example_id,) in found]


def test_the_same_content_is_one_example(store: ExampleStore) -> None:
    first = store.ingest([example("e1"), example("e2")])
    assert first.model_dump() == {"added": 2, "duplicates": 0, "revised": 0, "withdrawn": 0}
    clone = example("e1").model_copy(update={"example_id": "clone"})
    again = store.ingest([example("e1"), clone, example("e3")])
    assert (again.added, again.duplicates) == (1, 2)
    assert store.count() == 3


def test_other_content_is_the_next_version_and_the_old_one_is_never_found(
    store: ExampleStore,
) -> None:
    store.ingest([example("e1", advisory_text="before"), example("other")])
    counts = store.ingest([example("e1", advisory_text="after")])
    assert (counts.added, counts.revised) == (0, 1)
    assert store.count() == 2
    assert [(v.version, v.state, v.example.advisory_text) for v in store.versions("e1")] == [
        (2, State.LIVE, "after"),
        (1, State.SUPERSEDED, "before"),
    ]
    assert (words(store, "after"), words(store, "before")) == (["e1"], [])
    # An old file that is ingested again does not turn the clock back.
    assert store.ingest([example("e1", advisory_text="before")]).duplicates == 1
    assert words(store, "after") == ["e1"]


@pytest.mark.parametrize("field", ["licence", "provenance"])
def test_origin_is_required_and_an_ingest_is_all_or_none(store: ExampleStore, field: str) -> None:
    without = {"licence": " ", "provenance": example().provenance.model_copy(update={"source": ""})}
    with pytest.raises(InputError, check=OfKind("no_origin"), match=f"'bad' .*{field}"):
        store.ingest([example("good"), example("bad", **{field: without[field]})])
    assert not store.path.exists()
    store.ingest([example("there")])
    before = store.path.read_bytes()
    with pytest.raises(InputError):
        store.ingest([example("good"), example("bad", **{field: without[field]})])
    assert store.path.read_bytes() == before


@pytest.mark.parametrize(
    ("name", "fields", "kind", "value"),
    [
        ("bad", {"edits": ()}, "no_edits", "'bad'"),
        (" ", {}, "bad_id", "' ' .*1 "),
        ("x" * (MAX_ID_CHARS + 1), {}, "bad_id", " 513 "),
    ],
)
def test_what_is_no_example_is_refused(
    store: ExampleStore, name: str, fields: dict[str, Any], kind: str, value: str
) -> None:
    with pytest.raises(InputError, check=OfKind(kind), match=value):
        store.ingest([example(name, **fields)])
    assert not store.path.exists()
    assert store.ingest([example("x" * MAX_ID_CHARS)]).added == 1


def test_records_are_taken_one_at_a_time(store: ExampleStore) -> None:
    """A large data set is never in memory: each record is stored before the next is asked for."""
    alive: list[int] = []

    def records() -> Iterator[SolvedExample]:
        for number in range(3):
            alive.append(number)
            yield example(f"e{number}")

    assert store.ingest(records()).added == 3
    assert alive == [0, 1, 2]


def test_harvested_code_is_private(store: ExampleStore) -> None:
    store.ingest([example()])
    assert stat.S_IMODE(store.path.stat().st_mode) == 0o600
    assert [path.name for path in store.path.parent.iterdir()] == ["examples.db"]


def test_packages_are_found_by_their_canonical_name(store: ExampleStore) -> None:
    store.ingest([example("e2"), example("e1"), example("e3", ecosystem="npm")])
    found = store.of_package("PyPI", ["some-package"])
    assert [stored.example.example_id for stored in found] == ["e1", "e2"]
    assert store.of_package("PyPI", ["Some.Package", "other"]) == ()


def test_records_come_in_the_order_asked_for_and_live_only(store: ExampleStore) -> None:
    store.ingest([example(f"e{number}") for number in range(4)])
    rows = {stored.example.example_id: stored.row for stored in store.live()}
    store.withdraw("e1", reason="wrong", by="me")
    asked = [rows["e3"], rows["e1"], rows["e0"], 999]
    assert [stored.example.example_id for stored in store.records(asked)] == ["e3", "e0"]


def test_live_reads_every_page(store: ExampleStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fallback_plugins.solved_examples.store.example_store._PAGE", 2)
    store.ingest([example(f"e{number}") for number in range(5)])
    assert [stored.example.example_id for stored in store.live()] == ["e0", "e1", "e2", "e3", "e4"]


# --- Withdrawal ------------------------------------------------------------------------------------


def test_what_was_withdrawn_is_never_found_and_never_comes_back(store: ExampleStore) -> None:
    store.ingest([example("e1", advisory_text="wrong advice"), example("e2")])
    taken = store.withdraw("e1", reason=" breaks logins ", by="Ada")
    assert (taken.reason, taken.by, taken.at) == ("breaks logins", "Ada", NOON)
    assert (store.count(), words(store, "wrong"), store.withdrawals()) == (1, [], (taken,))
    again = store.ingest(
        [
            example("e1", advisory_text="wrong advice"),
            # The same content under another id; the same id in other words.
            example("other", advisory_text="wrong advice"),
            example("e1", advisory_text="wrong advice, said otherwise"),
        ]
    )
    assert again.withdrawn == 3
    assert store.count() == 1
    assert store.versions("e1")[0].example.advisory_text == "wrong advice"


def test_only_what_is_there_can_be_withdrawn_and_only_with_a_reason(store: ExampleStore) -> None:
    store.ingest([example("e1")])
    with pytest.raises(InputError, check=OfKind("no_such_example"), match="'e9'"):
        store.withdraw("e9", reason="wrong", by="me")
    for reason, by in (("", "me"), ("wrong", "  ")):
        with pytest.raises(InputError, check=OfKind("text_missing")):
            store.withdraw("e1", reason=reason, by=by)
    store.withdraw("e1", reason="wrong", by="me")
    with pytest.raises(InputError, check=OfKind("withdrawn_before")) as caught:
        store.withdraw("e1", reason="wrong", by="me")
    assert f"examples show e1 --store {store.path}" in caught.value.next_step
    with pytest.raises(ExampleStoreError):
        ExampleStore(store.path.with_name("absent.db")).withdraw("e1", reason="wrong", by="me")


def test_the_id_of_a_chunk_that_went_is_not_given_again(store: ExampleStore) -> None:
    """Else a dead vector would speak for another text."""

    def chunk_ids() -> set[int]:
        with store.reading() as connection:
            return {row for (row,) in connection.execute("SELECT id FROM chunks")}

    store.ingest([example("e1"), example("e2")])
    before = chunk_ids()
    store.withdraw("e2", reason="wrong", by="me")
    store.withdraw("e1", reason="wrong", by="me")
    assert chunk_ids() == set()
    store.ingest([example("e3")])
    assert chunk_ids()
    assert not chunk_ids() & before


# --- Listing ---------------------------------------------------------------------------------------


def test_listing_selects(store: ExampleStore) -> None:
    store.ingest(
        [
            example("e1", cwe=("CWE-79", "CWE-22"), language="python"),
            example("e2", ecosystem="npm", package="Some.Package", language="javascript"),
            example("e3", package="other"),
        ]
    )
    store.withdraw("e3", reason="wrong", by="me")

    def ids(**fields: object) -> list[str]:
        return [item.example_id for item in store.listing(Selection.model_validate(fields))]

    assert ids() == ["e1", "e2"]
    assert ids(ecosystem="npm") == ["e2"]
    # Each ecosystem reads a name in its own way.
    assert ids(package="Some.Package") == ["e1", "e2"]
    assert ids(package="some-package") == ["e1"]
    assert ids(cwe="CWE-22") == ["e1"]
    assert ids(cwe="CWE-2") == []
    assert ids(language="javascript", ecosystem="PyPI") == []
    assert ids(state="withdrawn") == ["e3"]
    assert ids(state=None) == ["e1", "e2", "e3"]
    assert json.loads(next(store.listing(Selection())).model_dump_json())["origin"] == "written"
