"""Asking the memory: identity first, a floor, and honest words where it can't answer."""

import hashlib
import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fallback_plugins.solved_examples import ExampleStore, SolvedExampleIndex
from fallback_plugins.solved_examples.index import COMMON_COUNT, COVERAGE_FLOOR
from fallback_tier.advisory import Advisory, parse_advisory
from fallback_tier.limits import MAX_EXAMPLES
from fallback_tier.ports import RagDegraded, RagHit, RagMiss
from fallback_tier.repo import RepoContext
from tests.fakes.repository import context
from tests.unit.solved_examples.builders import example

TEXT = "Tarball extraction follows symlinks, allowing traversal outside destination directories"
CODE = "import tarfile\n"


def advisory(text: str, package: str = "thing", ecosystem: str = "PyPI") -> Advisory:
    record = {
        "id": "TEST-1",
        "summary": text,
        "affected": [{"package": {"ecosystem": ecosystem, "name": package}}],
    }
    return parse_advisory(json.dumps(record).encode(), "test")


@pytest.fixture
def store(tmp_path: Path) -> ExampleStore:
    return ExampleStore(tmp_path / "examples.db")


@pytest.fixture
def repo(tmp_path: Path) -> RepoContext:
    return context(tmp_path / "repo", {"a.py": CODE})


def ids(answer: object) -> list[str]:
    assert isinstance(answer, RagHit)
    return [found.example_id for found in answer.examples]


def test_similar_text_is_a_hit(store: ExampleStore, repo: RepoContext) -> None:
    store.ingest(
        [
            example("same", advisory_text=TEXT),
            example("near", advisory_text="symlinks in a tarball extraction: traversal"),
            example("far", advisory_text="quadratic regular expression in the header parser"),
            example("npm", advisory_text=TEXT, ecosystem="npm"),
        ]
    )
    answer = SolvedExampleIndex(store).query(advisory(TEXT), repo)
    assert ids(answer) == ["same", "near"]
    assert "best coverage 1.00" in answer.evidence


def test_identical_code_comes_first(store: ExampleStore, repo: RepoContext) -> None:
    digest = hashlib.sha256(CODE.encode()).hexdigest()
    store.ingest(
        [
            example("text", advisory_text=TEXT),
            example("code", advisory_text="x", package="Thing", file_sha256={"a.py": digest}),
            example("package", advisory_text="x", package="thing"),
            example("elsewhere", advisory_text="x", package="no", file_sha256={"a.py": digest}),
            example("no files", advisory_text="x", package="thing", file_sha256={}),
        ]
    )
    assert ids(SolvedExampleIndex(store).query(advisory(TEXT), repo)) == ["code", "text"]
    thin = SolvedExampleIndex(store).query(advisory("xss"), repo)
    assert ids(thin) == ["code"], "identity needs no words"


def test_below_the_floor_is_a_miss(store: ExampleStore, repo: RepoContext) -> None:
    words = [f"word{letter}" for letter in "abcdefghijkl"]
    enough = int(len(words) * COVERAGE_FLOOR)
    store.ingest([example("at", advisory_text=" ".join(words[:enough]))])
    index = SolvedExampleIndex(store)
    assert ids(index.query(advisory(" ".join(words)), repo)) == ["at"]
    longer = advisory(" ".join([*words, "wordm"]))
    answer = index.query(longer, repo)
    assert isinstance(answer, RagMiss)
    assert f"floor {COVERAGE_FLOOR:.2f}" in answer.evidence


def test_at_most_max_examples(store: ExampleStore, repo: RepoContext) -> None:
    many = [example(f"e{n}", advisory_text=f"{TEXT} {n}") for n in range(MAX_EXAMPLES + 3)]
    store.ingest(many)
    assert len(ids(SolvedExampleIndex(store).query(advisory(TEXT), repo))) == MAX_EXAMPLES


def test_common_words_say_nothing(store: ExampleStore, repo: RepoContext) -> None:
    common = "attacker could cause denial service"
    store.ingest(
        [example(f"e{n}", advisory_text=common, package=f"p{n}") for n in range(COMMON_COUNT)]
    )
    index = SolvedExampleIndex(store)
    assert isinstance(index.query(advisory(common), repo), RagHit), "not common yet"
    store.ingest([example("one more", advisory_text=common)])
    answer = index.query(advisory(common), repo)
    assert isinstance(answer, RagMiss)
    assert "informative words" in answer.evidence


@pytest.mark.parametrize("text", ["", "the", "a 1 2 3 2024 99999 !!! -- \U0001f600"])
def test_too_little_text_is_a_miss(store: ExampleStore, repo: RepoContext, text: str) -> None:
    store.ingest([example("e", advisory_text=TEXT)])
    assert isinstance(SolvedExampleIndex(store).query(advisory(text), repo), RagMiss)


def test_a_store_that_can_not_be_read_degrades(store: ExampleStore, repo: RepoContext) -> None:
    index = SolvedExampleIndex(store)
    missing = index.query(advisory(TEXT), repo)
    assert isinstance(missing, RagDegraded)
    assert missing.examples == ()
    assert str(store.path) in missing.evidence
    store.path.write_bytes(b"junk" * 999)
    assert isinstance(index.query(advisory(TEXT), repo), RagDegraded)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.text(max_size=200)
    | st.lists(
        st.sampled_from(
            ["tarball", "symlinks", '"', "NEAR(a b)", "OR", "*", "-", "^", "a:b", "(", "'"]
        )
    ).map(" ".join)
)
def test_no_text_of_an_advisory_is_syntax(
    store: ExampleStore, repo: RepoContext, text: str
) -> None:
    store.ingest([example("e", advisory_text=TEXT)])
    answer = SolvedExampleIndex(store).query(advisory(text.replace("\0", "")), repo)
    assert isinstance(answer, RagHit | RagMiss)
