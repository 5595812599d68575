"""A golden set that is wrong is refused, with file and line; each fault is planted."""

from collections.abc import Callable
from pathlib import Path

import pytest

from fallback_eval.retrieval.data import Identity, LeakRule, corpus_faults, corpus_ids
from fallback_eval.retrieval.golden import (
    GoldenSetError,
    ensure,
    load_golden,
    load_opinions,
)
from tests.kinds import OfKind
from tests.unit.evaluation.planted import (
    Row,
    judgement,
    query,
    record,
    records,
    rows,
    write,
)

CORPUS = ("e0", "e1", "e2", "e3")


def test_a_whole_one_is_read(tmp_path: Path) -> None:
    golden = load_golden(write(tmp_path))
    assert len(golden.queries) == 120
    assert len(golden.of("dev")) == len(golden.of("reserved")) == 60
    assert golden.grades["q0"] == {"e0": 2, "e1": 1, "e2": 0}
    assert corpus_ids(golden.queries.values(), records()) == CORPUS
    assert list(corpus_faults(golden, records(), CORPUS)) == []


def change(which: int, row: int, **fields: object) -> Callable[..., object]:
    return lambda *files: files[which][row].update(fields)


WRITTEN = {"ecosystem": "PyPI", "package": "p", "summary": "s", "details": "d"}

FAULTS: dict[str, tuple[Callable[[list[Row], list[Row]], object], str]] = {
    "too few": (lambda queries, _: queries.pop(), "119 queries, and 120 are the least"),
    "a grade of 3": (change(1, 4, grade=3), r"judgements.jsonl, line 5 .*: grade: "),
    "a grade of true": (change(1, 4, grade=True), r"line 5 .*: grade: "),
    "a grade as text": (change(1, 4, grade="2"), r"line 5 .*: grade: "),
    "no reason": (change(1, 0, reason=" "), r"judgements.jsonl, line 1 .*: reason: "),
    "no expected fix": (change(0, 2, expected_fix=""), r"queries.jsonl, line 3 .*: expected_fix"),
    "another split": (change(0, 2, split="test"), r"queries.jsonl, line 3 .*: split"),
    "an unknown field": (change(0, 2, note="x"), r"queries.jsonl, line 3 .*: note"),
    "an unknown way": (change(1, 0, found="luck"), r"judgements.jsonl, line 1 .*: found"),
    "twice asked": (
        lambda queries, _: queries.append(query("q0")),
        r"queries.jsonl, line 121: q0 stands already in .*line 1",
    ),
    "twice judged": (
        lambda _, judgements: judgements.append(judgement("q0", "e0", 1)),
        r"line 361: q0 and e0 stands already in .*line 1",
    ),
    "nobody's query": (change(1, 0, query="q999"), r"line 1: no query has the id 'q999'"),
    "nobody judged": (
        lambda queries, _: queries.append(query("q500")),
        r"line 121: nobody judged anything for 'q500'",
    ),
    "something is here": (
        change(0, 0, nothing_here=True),
        r"line 1: 'q0' says nothing_here, and an example has grade 2",
    ),
    "nothing is here": (
        change(0, 119, nothing_here=False),
        r"line 120: 'q119' has no example above grade 0",
    ),
    "both": (change(0, 0, advisory=WRITTEN), r"line 1: 'q0' needs either a record or an advisory"),
    "neither": (change(0, 0, record=None), r"line 1: 'q0' needs either a record or an advisory"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_named_with_its_line(fault: str, tmp_path: Path) -> None:
    plant, message = FAULTS[fault]
    with pytest.raises(GoldenSetError, match=message):
        load_golden(write(tmp_path, plant))


def test_a_line_that_is_no_json(tmp_path: Path) -> None:
    folder = write(tmp_path)
    (folder / "judgements.jsonl").write_bytes(b'{"query": \xff\n')
    with pytest.raises(GoldenSetError, check=OfKind("malformed_line"), match="line 1 "):
        load_golden(folder)


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(
        GoldenSetError, check=OfKind("unreadable"), match=r"queries.jsonl.*No such file"
    ):
        load_golden(tmp_path)


def test_many_faults_are_counted_not_listed(tmp_path: Path) -> None:
    def plant(queries: list[Row], _: list[Row]) -> None:
        for one in queries:
            one["nothing_here"] = True

    with pytest.raises(GoldenSetError, check=OfKind("not_usable"), match=r"\b105\b"):
        load_golden(write(tmp_path, plant))


def test_a_second_opinion(tmp_path: Path) -> None:
    path = tmp_path / "second-opinion.jsonl"
    line = '{"query": "q0", "example": "e0", "grade": 1, "reason": "helps"}'
    path.write_text(line)
    assert [one.grade for one in load_opinions(path)] == [1]
    path.write_text(f"{line}\n{line}\n")
    with pytest.raises(GoldenSetError, check=OfKind("not_usable"), match=r"line 2: q0 .* e0 "):
        load_opinions(path)


# --- Leaks ----------------------------------------------------------------------------------------

LEAKS: dict[str, tuple[dict[str, object], LeakRule]] = {
    "alias": ({"aliases": frozenset({"cve-rec-Q0"})}, LeakRule.ADVISORY),
    "id as alias": ({"aliases": frozenset({"REC-q0"})}, LeakRule.ADVISORY),
    "commit": ({"commits": frozenset({"other", "commit-REC-q0"})}, LeakRule.COMMIT),
    "repository": ({"repository": "Owner/REC-Q0.git"}, LeakRule.REPOSITORY),
    "package": ({"packages": frozenset({("PyPI", "Package_REC.q0")})}, LeakRule.PACKAGE),
    "same fix": ({"same_fix_as": frozenset({"REC-q0"})}, LeakRule.SAME_FIX),
}


@pytest.mark.parametrize("leak", LEAKS)
def test_a_planted_leak_is_kept_out_and_would_be_found(leak: str, tmp_path: Path) -> None:
    fields, rule = LEAKS[leak]
    golden = load_golden(write(tmp_path))
    leaking = records() | {"e0": record("e0", **fields)}
    assert "e0" not in corpus_ids(golden.queries.values(), leaking)
    found = [str(one) for one in corpus_faults(golden, leaking, CORPUS)]
    wanted = f"line 1: the corpus leaks the answer: 'e0' shares its {rule} with 'q0'"
    assert any(one.endswith(wanted) for one in found)
    with pytest.raises(GoldenSetError, check=OfKind("not_usable")):
        ensure(corpus_faults(golden, leaking, CORPUS))


def test_what_a_query_says_of_an_example_leaks_as_well(tmp_path: Path) -> None:
    golden = load_golden(write(tmp_path))
    leaking = records() | {"REC-q0": record("REC-q0", same_fix_as=frozenset({"e1"}))}
    assert corpus_ids(golden.queries.values(), leaking) == ("e0", "e2", "e3")


def test_a_written_query_leaks_by_its_package(tmp_path: Path) -> None:
    advisory = {"ecosystem": "PyPI", "package": "Package.E3", "summary": "s", "details": ""}
    golden = load_golden(write(tmp_path, change(0, 0, record=None, advisory=advisory)))
    assert "e3" in corpus_ids(list(golden.queries.values())[1:], records())
    assert "e3" not in corpus_ids(golden.queries.values(), records())


def test_what_neither_has_is_not_shared() -> None:
    assert list(Identity("a").shares(Identity("b"))) == []
    npm = record("b", packages=frozenset({("npm", "package-a")}))
    assert list(record("a").shares(npm)) == []


def test_a_judged_example_outside_the_corpus_is_named(tmp_path: Path) -> None:
    golden = load_golden(write(tmp_path))
    found = [str(one) for one in corpus_faults(golden, records(), ("e0", "e1", "e3"))]
    assert found[0].endswith(
        "judgements.jsonl, line 3: 'e2', judged for 'q0', is not in the corpus"
    )
    assert len(found) == 120


def test_a_record_that_the_data_set_does_not_have(tmp_path: Path) -> None:
    golden = load_golden(write(tmp_path))
    known = {name: one for name, one in records().items() if name != "REC-q7"}
    found = [str(one) for one in corpus_faults(golden, known, CORPUS)]
    assert [one.partition(": ")[2] for one in found] == ["the data set has no record 'REC-q7'"]


@pytest.mark.parametrize("leak", LEAKS)
def test_the_two_sides_share_nothing(leak: str, tmp_path: Path) -> None:
    fields, rule = LEAKS[leak]
    golden = load_golden(write(tmp_path))
    # q0 is a dev query, q1 a reserved one.
    shared = records() | {"REC-q1": record("REC-q1", **fields)}
    found = [str(one) for one in corpus_faults(golden, shared, CORPUS)]
    wanted = f"line 2: 'q0' (dev) and 'q1' (reserved) share their {rule}"
    assert len(found) == 1
    assert found[0].endswith(wanted)


def test_the_planted_set_has_both_kinds() -> None:
    queries, _ = rows()
    assert {one["nothing_here"] for one in queries} == {True, False}
