"""Our record format, and how a file of any format is read."""

import gzip
import hashlib
import json
import lzma
from collections.abc import Callable
from pathlib import Path

import pytest

from fallback_plugins.solved_examples.store import records
from fallback_plugins.solved_examples.store.records import (
    as_ingested,
    content_sha256,
    lines,
    load_jsonl,
)
from fallback_tier.errors import InputError
from tests.kinds import OfKind
from tests.unit.solved_examples.builders import example


def test_records_round_trip(tmp_path: Path) -> None:
    path = tmp_path / "examples.jsonl"
    records = (example("e1"), example("e2", advisory_text="line\u2028separator\n"))
    path.write_text("\n\n".join(record.model_dump_json() for record in records) + "\n")
    assert load_jsonl(path) == records


def test_the_content_hash_ignores_only_the_id() -> None:
    base = example()
    assert content_sha256(base.model_copy(update={"example_id": "other"})) == content_sha256(base)
    for field, value in (("licence", "MIT"), ("package", "p"), ("edits", ()), ("cwe", ("CWE-1",))):
        assert content_sha256(base.model_copy(update={field: value})) != content_sha256(base)


def test_a_record_without_a_summary_has_the_digest_of_before_there_were_any() -> None:
    record = example().model_dump(mode="json", exclude={"example_id", "fix_summary"})
    text = json.dumps(record, sort_keys=True, separators=(",", ":"))
    assert content_sha256(example()) == hashlib.sha256(text.encode()).hexdigest()
    assert content_sha256(example(fix_summary="checks more")) != content_sha256(example())


def test_a_record_is_read_again_only_as_it_was_ingested() -> None:
    record, digest = example().model_dump_json(), content_sha256(example())
    assert as_ingested(record, digest) == example()
    for other in (record.replace("Apache", "Apathy"), "{}", "", "[]"):
        assert as_ingested(other, digest) is None


def test_streams_of_one_xz_file_with_padding_between(tmp_path: Path) -> None:
    place = tmp_path / "r.xz"
    place.write_bytes(lzma.compress(b"1\n") + bytes(8) + lzma.compress(b"2\n" * 9_000))
    assert [line for _, line in lines(place)] == [b"1\n"] + [b"2\n"] * 9_000


def test_an_xz_header_decides_nothing_about_our_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Small records that repeat far back: the file has kilobytes, its window a gigabyte."""
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": 1 << 20}]
    place = tmp_path / "r.xz"
    place.write_bytes(lzma.compress(b"\n", filters=filters))
    assert list(lines(place)) == []
    monkeypatch.setattr(records, "MAX_XZ_MEMORY_BYTES", 1 << 20)
    with pytest.raises(InputError, check=OfKind("unreadable"), match="Memory usage"):
        list(lines(place))


@pytest.mark.parametrize("pack", [bytes, gzip.compress, lzma.compress])
def test_a_file_is_unpacked_by_what_it_is_not_by_its_name(
    tmp_path: Path, pack: Callable[[bytes], bytes]
) -> None:
    path = tmp_path / "examples.txt"
    path.write_bytes(pack(b"\none\n\ntwo"))
    assert list(lines(path)) == [
        (f"{str(path)!r}, line 2", b"one\n"),
        (f"{str(path)!r}, line 4", b"two"),
    ]


@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress])
@pytest.mark.parametrize("damage", ["cut", "altered"])
def test_a_damaged_archive_is_named(
    tmp_path: Path, pack: Callable[[bytes], bytes], damage: str
) -> None:
    packed = pack(b"".join(b"record %d\n" % number for number in range(50_000)))
    middle = len(packed) // 2
    path = tmp_path / "examples.jsonl.packed"
    path.write_bytes(packed[:middle] + (b"" if damage == "cut" else b"x" * 40 + packed[middle:]))
    with pytest.raises(InputError, check=OfKind("unreadable")) as caught:
        list(lines(path))
    assert str(path) in caught.value.problem


def test_an_endless_line_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A few bytes of an archive can hold gigabytes without a line end."""
    monkeypatch.setattr("fallback_plugins.solved_examples.store.records.MAX_LINE_BYTES", 1_000)
    path = tmp_path / "examples.jsonl.gz"
    path.write_bytes(gzip.compress(b"a" * 999 + b"\n" + b"b" * 1_001))
    found = lines(path)
    with pytest.raises(InputError, check=OfKind("line_too_large"), match="line 2 "):
        list(found)
    path.write_bytes(gzip.compress(b"a" * 999 + b"\n"))
    assert len(list(lines(path))) == 1


@pytest.mark.parametrize(
    ("second", "message"),
    [
        ("{", "Invalid JSON"),
        ("[]", "the line"),
        ("{}", "example_id: Field required"),
        (json.dumps({**example().model_dump(mode="json"), "more": 1}), "more: Extra inputs"),
        (json.dumps({**example().model_dump(mode="json"), "file_sha256": {"a": "x"}}), "file_sha"),
        (json.dumps({**example().model_dump(mode="json"), "provenance": "me"}), "provenance"),
        ("\udcff", "line 2"),
    ],
)
def test_faults_name_file_and_line(tmp_path: Path, second: str, message: str) -> None:
    path = tmp_path / "examples.jsonl"
    text = f"{example().model_dump_json()}\n{second}\n"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(InputError, check=OfKind("not_valid"), match="line 2 ") as caught:
        load_jsonl(path)
    assert str(path) in caught.value.problem
    assert message in caught.value.problem


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    for path in (tmp_path / "absent.jsonl", tmp_path):
        with pytest.raises(InputError, check=OfKind("unreadable")):
            load_jsonl(path)
