"""Rerankers: late interaction, the learned ranker and its training, a real cross-encoder graph."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fallback_eval.retrieval.alternatives import (
    CODE_CHARS,
    TEXT_CHARS,
    CrossEncoder,
    LateInteraction,
    LinearRanker,
    shown,
)
from fallback_eval.retrieval.learned import Judged, train
from fallback_plugins.solved_examples.interfaces import Candidate, EmbeddingError, Question
from fallback_plugins.solved_examples.search.ranking import Coefficients, shipped
from fallback_tier.outcome import SearchReplace
from tests.kinds import OfKind, RaisedIn
from tests.unit.solved_examples.builders import example

QUESTION = Question("a path leaves the served folder")


def candidate(text: str, **scores: float) -> Candidate:
    return Candidate(example(text, advisory_text=text), "0" * 64, scores)


def test_what_is_shown_is_bounded_and_has_both_sides() -> None:
    long = example(
        advisory_text="word " * 9_999, edits=(SearchReplace(path="a", old="o", new="n" * 9_999),)
    )
    text = shown(Candidate(long, "0" * 64))
    assert len(text) <= TEXT_CHARS + CODE_CHARS + 1
    assert text.startswith("word")
    assert text.endswith("n")


# --- Late interaction ------------------------------------------------------------------------------


class OneHotEmbedder:
    """A word's vector is one dimension of its own: MaxSim counts the words that are there."""

    model, sha256, dimension = "one-hot", "0" * 64, 64

    def token_vectors(self, text: str) -> object:
        np = pytest.importorskip("numpy")
        rows = [np.eye(64, dtype="float32")[sum(map(ord, word)) % 64] for word in text.split()]
        return np.array(rows, dtype="float32").reshape(len(rows), 64)

    def embed(self, texts: object) -> object:
        raise NotImplementedError


def test_late_interaction_is_the_mean_of_the_best_matches() -> None:
    ranker = LateInteraction(OneHotEmbedder())  # type: ignore[arg-type]
    question = Question("alpha beta")
    both, one, none = (candidate(text) for text in ("beta alpha", "alpha", "q"))
    scores = ranker.scores(question, [both, one, none])
    assert scores == [1.0, 0.5, 0.0]
    assert ranker.scores(Question(""), [both]) == [0.0]


# --- The learned ranker ----------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["hybrid", "lexical"])
def test_the_shipped_coefficients(mode: str) -> None:
    coefficients = shipped(mode)
    assert "golden" in coefficients.provenance
    assert all(weight > 0 for weight in coefficients.weights.values())
    assert ("cosine" in coefficients.weights) == (mode == "hybrid")


@given(st.dictionaries(st.sampled_from(["bm25", "cosine", "x"]), st.floats(-1e6, 1e6)))
def test_a_probability_is_one(scores: dict[str, float]) -> None:
    coefficients = Coefficients(bias=-2, weights={"bm25": 3, "cosine": 5}, provenance="p")
    assert 0 <= coefficients.probability(scores) <= 1


def test_more_of_a_good_component_is_never_worse() -> None:
    ranker = LinearRanker(Coefficients(bias=0, weights={"bm25": 2}, provenance="p"))
    low, high = ranker.scores(QUESTION, [candidate("a", bm25=0.1), candidate("b", bm25=0.2)])
    assert low < high
    assert ranker.scores(QUESTION, [candidate("none")]) == [0.5]


def rows(count: int = 40) -> list[Judged]:
    """Relevant where ``good`` is large; ``noise`` says nothing."""
    return [
        Judged(f"q{n // 4}", f"g{n // 8}", {"good": n % 4 / 4, "noise": n * 7 % 5 / 5}, n % 4 == 3)
        for n in range(count)
    ]


def test_training_finds_what_matters_and_is_repeatable() -> None:
    pytest.importorskip("numpy")
    learned = train(rows(), ["good", "noise"], "here")
    assert learned == train(rows(), ["good", "noise"], "here")
    assert learned.weights["good"] > 10 * abs(learned.weights["noise"])
    assert json.loads(learned.model_dump_json())["provenance"] == "here"
    with pytest.raises(ValueError, check=RaisedIn(train)):
        train([row for row in rows() if row.relevant], ["good"], "here")


# --- The cross-encoder -----------------------------------------------------------------------------


def varint(number: int) -> bytes:
    out = b""
    while True:
        number, low = number >> 7, number & 0x7F
        if not number:
            return out + bytes([low])
        out += bytes([low | 0x80])


def field(number: int, value: int | bytes | str) -> bytes:
    """One protobuf field: onnx itself is no dependency, and its wire format is this small."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def tensor_info(name: str, kind: int, dimensions: tuple[str | int, ...]) -> bytes:
    shape = b"".join(
        field(1, field(1, size) if isinstance(size, int) else field(2, size)) for size in dimensions
    )
    return field(1, name) + field(2, field(1, field(1, kind) + field(2, shape)))


def write_model(path: Path, *, output: tuple[str | int, ...] = (1,)) -> None:
    """A graph whose score is the sum of the second text's segment ids: its length in tokens."""
    cast = field(1, "token_type_ids") + field(2, "f") + field(4, "Cast")
    cast += field(5, field(1, "to") + field(3, 1) + field(20, 2))
    summed = field(1, "f") + field(2, "score") + field(4, "ReduceSum")
    summed += field(5, field(1, "keepdims") + field(3, 0) + field(20, 2))
    keep = field(1, "f") + field(2, "score") + field(4, "Identity")
    graph = field(1, cast) + field(1, summed if output == (1,) else keep) + field(2, "g")
    for name in ("input_ids", "attention_mask", "token_type_ids"):
        graph += field(11, tensor_info(name, 7, ("batch", "tokens")))
    graph += field(12, tensor_info("score", 1, () if output == (1,) else ("batch", "tokens")))
    path.write_bytes(field(1, 8) + field(7, graph) + field(8, field(1, "") + field(2, 13)))


def write_tokenizer(path: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace
    from tokenizers.processors import TemplateProcessing

    tokenizer = tokenizers.Tokenizer(WordLevel({"[UNK]": 0, "[SEP]": 1}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.post_processor = TemplateProcessing(
        single="$A [SEP]", pair="$A [SEP] $B:1 [SEP]:1", special_tokens=[("[SEP]", 1)]
    )
    tokenizer.save(str(path))


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    pytest.importorskip("onnxruntime")
    model, tokenizer = tmp_path / "model.onnx", tmp_path / "tokenizer.json"
    write_model(model)
    write_tokenizer(tokenizer)
    return model, tokenizer


def test_a_cross_encoder_reads_question_and_candidate(files: tuple[Path, Path]) -> None:
    encoder = CrossEncoder(*files)
    short, long = candidate("one"), candidate("one two three four")
    first = encoder.scores(QUESTION, [short, long])
    assert first[1] - first[0] == 3
    assert encoder.scores(Question("\ud800"), [short])[0] == first[0], "only the pair's second part"


def test_a_pair_is_cut_to_what_the_model_reads(files: tuple[Path, Path]) -> None:
    encoder = CrossEncoder(*files, max_tokens=16)
    assert encoder.scores(QUESTION, [candidate("word " * 90)])[0] <= 16


def test_a_model_that_is_none(files: tuple[Path, Path], tmp_path: Path) -> None:
    model, tokenizer = files
    junk = tmp_path / "junk.onnx"
    junk.write_bytes(b"junk")
    for broken in ((tmp_path / "absent", tokenizer), (junk, tokenizer), (model, junk)):
        with pytest.raises(EmbeddingError, check=OfKind("unusable")):
            CrossEncoder(*broken).scores(QUESTION, [candidate("one")])


def test_a_model_of_another_kind_is_told(files: tuple[Path, Path], tmp_path: Path) -> None:
    other = tmp_path / "tokens.onnx"
    write_model(other, output=(1, 1))
    with pytest.raises(EmbeddingError, check=OfKind("bad_scores")):
        CrossEncoder(other, files[1]).scores(QUESTION, [candidate("one two three")])
