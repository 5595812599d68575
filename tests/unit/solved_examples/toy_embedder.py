"""An embedder without a model: which bytes a text has. ``python toy_embedder.py`` builds an index."""

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any


class ToyEmbedder:
    """Writes one byte a text into ``log``, unbuffered: what was computed survives a kill."""

    def __init__(
        self,
        model: str = "toy",
        *,
        dimension: int = 16,
        log: Path | None = None,
        seconds: float = 0.0,
    ) -> None:
        self.model = model
        self.sha256 = "ab" * 32
        self.dimension = dimension
        self._log = log
        self._seconds = seconds

    def embed(self, texts: Sequence[str]) -> Any:
        import numpy as np

        made = np.zeros((len(texts), self.dimension), dtype=np.float32)
        for row, text in zip(made, texts, strict=True):
            for place, byte in enumerate(text.encode()):
                row[byte % self.dimension] += 1 + place % 3
            time.sleep(self._seconds)
            if self._log is not None:
                descriptor = os.open(self._log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
                os.write(descriptor, b".")
                os.close(descriptor)
        return made / np.linalg.norm(made, axis=1, keepdims=True)

    def token_vectors(self, text: str) -> Any:
        return self.embed(text.split())


def main() -> None:
    """argv: the store, the log, the size of a batch. Says so when everything is loaded."""
    from fallback_plugins.solved_examples.index.indexing import build_index
    from tests.unit.solved_examples.one_chunk import one_chunk_store

    store, log, batch = sys.argv[1:]
    ToyEmbedder().embed(["numpy is imported"])
    print("building", flush=True)
    embedder = ToyEmbedder(log=Path(log), seconds=0.004)
    build_index(one_chunk_store(Path(store)), embedder, batch=int(batch))


if __name__ == "__main__":
    main()
