"""Running variants, keeping what they answered, and the figures made from it."""

from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

from fallback_eval.retrieval.analysis import (
    PRIMARY,
    Finding,
    analyse,
    compare,
    summary,
    unjudged,
)
from fallback_eval.retrieval.build import Ranked, evaluate
from fallback_eval.retrieval.golden import Query, load_golden
from fallback_eval.retrieval.results import (
    DEFAULT,
    DEPTH,
    EvaluationError,
    Latency,
    Results,
    load_results,
)
from tests.kinds import OfKind
from tests.unit.evaluation.planted import write
from tests.unit.evaluation.runs import RANKS, run_all, variant


@pytest.fixture(scope="module")
def golden_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("golden"))


@pytest.fixture(scope="module")
def results(golden_folder: Path) -> Results:
    return run_all(golden_folder)


def ask_one(golden_folder: Path, ask: Callable[[Query], Ranked]) -> None:
    queries = load_golden(golden_folder).of("dev")[:1]
    evaluate(variant("odd", ask), queries, clock=iter(range(99)).__next__)


def test_what_is_saved_is_read_back(results: Results, tmp_path: Path) -> None:
    results.save(tmp_path)
    assert load_results(tmp_path) == results
    first = (tmp_path / "rankings.jsonl").read_bytes()
    results.save(tmp_path)
    assert (tmp_path / "rankings.jsonl").read_bytes() == first
    assert {path.name for path in tmp_path.iterdir()} == {
        "run.json",
        "rankings.jsonl",
        "latencies.jsonl",
    }


def test_each_query_is_timed_by_the_median_of_its_repeats(golden_folder: Path) -> None:
    queries = load_golden(golden_folder).of("dev")[:2]
    taken = iter([0, 0.002, 0, 0.004, 0, 0.003, 0, 0.001, 0, 0.001, 0, 0.001])
    found, latency = evaluate(variant(DEFAULT), queries, clock=taken.__next__)
    assert latency.medians == (3.0, 1.0)
    assert latency.noise == pytest.approx(0.333, abs=0.001)
    assert [answer.query for answer in found] == [query.query for query in queries]


def test_a_slow_query_is_asked_once(golden_folder: Path) -> None:
    queries = load_golden(golden_folder).of("dev")[:2]
    taken = iter([0, 1.5, 2, 2.001, 3, 3.001, 4, 4.001])
    _, latency = evaluate(variant(DEFAULT), queries, clock=taken.__next__)
    assert latency.medians == (1500.0, 1.0)


def test_a_variant_that_changes_its_mind_is_refused(golden_folder: Path) -> None:
    asked = count()
    with pytest.raises(EvaluationError, check=OfKind("not_repeatable"), match="'q0'"):
        ask_one(golden_folder, lambda _: Ranked((f"e{next(asked)}",), (1.0,), 0.5))


def test_an_example_returned_twice_is_refused(golden_folder: Path) -> None:
    with pytest.raises(EvaluationError, check=OfKind("duplicate_example")):
        ask_one(golden_folder, lambda _: Ranked(("e0", "e0"), (1.0, 1.0), 0.5))


def test_only_the_first_places_are_kept(golden_folder: Path) -> None:
    ids = [f"x{number}" for number in range(30)]
    queries = load_golden(golden_folder).of("dev")[:1]
    answer = variant("many", lambda _: Ranked(ids, [0.123456789] * 30, 0.5))
    (found,), _ = evaluate(answer, queries, clock=iter(range(99)).__next__)
    assert found.ids == tuple(ids[:DEPTH])
    assert found.scores == (0.12346,) * DEPTH


def drop_last_line(path: Path) -> None:
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))


BROKEN: dict[str, tuple[Callable[[Path], object], str, str]] = {
    "a file is gone": (
        lambda folder: (folder / "latencies.jsonl").unlink(),
        "no_results",
        "latencies.jsonl",
    ),
    "an answer is gone": (
        lambda folder: drop_last_line(folder / "rankings.jsonl"),
        "files_differ",
        "/",
    ),
    "an example that is none": (
        lambda folder: (folder / "rankings.jsonl").write_text(
            (folder / "rankings.jsonl").read_text().replace("[0,1,2]", "[0,1,4]")
        ),
        "unknown_example",
        "/",
    ),
    "a line is no answer": (
        lambda folder: (folder / "rankings.jsonl").write_text('{"variant": 1}\n'),
        "malformed",
        "rankings.jsonl, line 1 .*: variant",
    ),
    "another format": (
        lambda folder: (folder / "run.json").write_text('{"format": 9}'),
        "malformed",
        "run.json .*: format",
    ),
}


@pytest.mark.parametrize("how", BROKEN)
def test_broken_results_are_refused(how: str, results: Results, tmp_path: Path) -> None:
    results.save(tmp_path)
    breaking, kind, value = BROKEN[how]
    breaking(tmp_path)
    with pytest.raises(EvaluationError, check=OfKind(kind), match=value):
        load_results(tmp_path)


# --- Figures --------------------------------------------------------------------------------------


def test_figures_and_findings(results: Results, golden_folder: Path) -> None:
    found = analyse(results, load_golden(golden_folder))
    best = found.summaries[DEFAULT]
    primary = best.figures[PRIMARY]
    assert primary is not None
    assert (primary.mean, primary.low, primary.high) == (1, 1, 1)
    assert best.abstention.rightly == 1
    assert best.abstention.wrongly == 0
    assert best.timing is not None
    assert best.timing.median == pytest.approx(1000 / 1024, abs=0.001)
    assert found.comparisons["bm25-only"].finding is Finding.WORSE
    assert found.comparisons["bm25-only"].difference.mean < 0
    # Both at the ceiling: no difference could be seen.
    assert found.comparisons["same-as-default"].finding is Finding.SATURATED
    assert DEFAULT not in found.comparisons
    assert found.curves[DEFAULT]["precision"][:4] == pytest.approx([1, 1, 2 / 3, 0.5])
    assert len(found.curves[DEFAULT]["nDCG"]) == DEPTH


def test_half_of_the_queries_are_faster_than_the_median(
    results: Results, golden_folder: Path
) -> None:
    taken = Latency(variant=DEFAULT, repeats=1, medians=(1.0, 4.0, 2.0, 8.0), noise=0.0)
    timed = replace(results, latencies={DEFAULT: taken})
    found = summary(timed, load_golden(golden_folder), DEFAULT).timing
    assert found is not None
    assert (found.median, found.p95) == (3.0, 8.0)


def test_a_difference_either_way(results: Results, golden_folder: Path) -> None:
    found = compare(results, load_golden(golden_folder), against="bm25-only")
    assert found[DEFAULT].finding is Finding.BETTER
    assert compare(results, load_golden(golden_folder), against="absent") == {}


def test_what_one_query_decides_is_chance(golden_folder: Path) -> None:
    golden = load_golden(golden_folder)
    results = run_all(golden_folder, names=("bm25-only", "same-as-default"))
    answers = {name: dict(one) for name, one in results.answers.items()}
    for number, query in enumerate(answers["same-as-default"]):
        if number:
            same = answers["bm25-only"][query].model_copy(update={"variant": "same-as-default"})
            answers["same-as-default"][query] = same
    altered = Results(results.run, answers, results.latencies)
    found = compare(altered, golden, against="bm25-only")["same-as-default"]
    assert found.difference.mean > 0
    assert found.finding is Finding.UNDECIDED


def test_what_nobody_judged_is_listed_for_the_next_round(
    results: Results, golden_folder: Path
) -> None:
    found = unjudged(results, load_golden(golden_folder))
    # Only e3 was never judged, and only one variant returns it, for every answerable query.
    assert {example for _, example in found} == {"e3"}
    assert len(found) == 55
    assert all(names == ["embeddings-only"] for names in found.values())


def test_the_made_up_variants_are_what_is_compared(results: Results) -> None:
    assert set(results.answers) == set(RANKS)
