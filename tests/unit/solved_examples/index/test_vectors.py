import subprocess
import sys
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fallback_plugins.solved_examples.index import vectors as module
from fallback_plugins.solved_examples.index.vectors import VectorFile, Vectors
from fallback_plugins.solved_examples.interfaces import ExampleStoreError
from tests.waiting import PATIENCE_S

np = pytest.importorskip("numpy", reason="the extra `embeddings` is not installed")

MODEL = "ab" * 32


def matrix(rows: int, dimension: int = 4, seed: int = 0):  # type: ignore[no-untyped-def]
    made = np.random.default_rng(seed).standard_normal((rows, dimension)).astype(np.float32)
    return made / np.linalg.norm(made, axis=1, keepdims=True)


def stored(path: Path, rows) -> Vectors:  # type: ignore[no-untyped-def]
    file = VectorFile(path, rows.shape[1], MODEL)
    file.create()
    file.write(0, rows)
    return file.open(len(rows))


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 120), st.integers(1, 150), st.integers(0, 9), st.booleans())
def test_a_search_finds_what_sorting_everything_finds(
    tmp_path_factory: pytest.TempPathFactory, count: int, k: int, seed: int, twins: bool
) -> None:
    rows = matrix(count, seed=seed)
    if twins:
        rows[count // 2 :] = rows[: count - count // 2]
    found = stored(tmp_path_factory.mktemp("vectors") / "v", rows)
    query = rows[count // 2]
    scores = found.scores(query)
    order = sorted(range(count), key=lambda row: (-scores[row], row))
    assert [row for row, _ in islice(found.ranked(query), k)] == order[:k]
    assert np.allclose(scores, rows @ query, atol=1e-6)


def test_nothing_is_copied_to_search(tmp_path: Path) -> None:
    found = stored(tmp_path / "v", matrix(10))
    assert len(list(found.ranked(matrix(1)[0]))) == 10
    assert not found.rows.flags.owndata


@pytest.mark.parametrize("resident", [0, 2**40], ids=["given back", "resident"])
def test_threads_and_chunks_change_no_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, resident: int
) -> None:
    rows = matrix(1000, 384)
    monkeypatch.setattr(module, "_RESIDENT_BYTES", resident)
    one = stored(tmp_path / "v", rows).scores(rows[3], threads=1)
    monkeypatch.setattr(module, "_CHUNK_ROWS", 7)
    several = stored(tmp_path / "w", rows)
    assert np.array_equal(several.scores(rows[3], threads=4), one)
    assert np.array_equal(several.scores(rows[3]), one)


def test_rows_behind_the_count_are_nothing_and_are_overwritten(tmp_path: Path) -> None:
    rows = matrix(6)
    file = VectorFile(tmp_path / "v", 4, MODEL)
    file.create()
    file.write(0, rows[:2])
    file.write(2, rows[5:])  # a builder that was killed before it named this row
    assert len(file.open(2).rows) == 2
    file.write(2, rows[2:4])
    assert np.array_equal(file.open(4).rows, rows[:4])


def test_a_reader_keeps_its_rows_while_others_are_added(tmp_path: Path) -> None:
    rows = matrix(6)
    before = stored(tmp_path / "v", rows[:3])
    VectorFile(tmp_path / "v", 4, MODEL).write(3, rows[3:])
    (tmp_path / "v").unlink()
    assert np.array_equal(before.rows, rows[:3])


def test_an_empty_file_has_no_neighbours(tmp_path: Path) -> None:
    assert list(stored(tmp_path / "v", matrix(0)).ranked(matrix(1)[0])) == []


def test_the_file_is_private(tmp_path: Path) -> None:
    stored(tmp_path / "v", matrix(1))
    assert (tmp_path / "v").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("file", "count", "reason"),
    [
        (("v", 4, "cd" * 32), 3, "has vectors of model abababababab, dimension 4"),
        (("v", 8, MODEL), 1, "has vectors of model abababababab, dimension 4"),
        (("v", 4, MODEL), 4, "has 112 bytes, too few for 4 vectors"),
        (("text", 4, MODEL), 0, "is no vector file of this version"),
        (("short", 4, MODEL), 0, "is no vector file of this version"),
        (("missing", 4, MODEL), 0, "can't be used: No such file"),
    ],
)
def test_a_file_that_can_not_be_used_is_explained(
    tmp_path: Path, file: tuple[str, int, str], count: int, reason: str
) -> None:
    stored(tmp_path / "v", matrix(3))
    (tmp_path / "text").write_bytes(b"x" * 200)
    (tmp_path / "short").write_bytes(b"FTVECS\x00\x01")
    name, dimension, model = file
    with pytest.raises(ExampleStoreError) as caught:
        VectorFile(tmp_path / name, dimension, model).open(count)
    assert reason in caught.value.problem


@pytest.mark.parametrize("wrong", [np.zeros((1, 3)), np.full((1, 4), np.nan), np.zeros(4)])
def test_what_is_no_vector_is_not_written(tmp_path: Path, wrong) -> None:  # type: ignore[no-untyped-def]
    file = VectorFile(tmp_path / "v", 4, MODEL)
    file.create()
    with pytest.raises(ValueError, match="vector"):
        file.write(0, wrong.astype(np.float32))
    assert len((tmp_path / "v").read_bytes()) == 64


def test_a_query_of_another_dimension_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"shape \(3,\), not \(4,\)"):
        next(stored(tmp_path / "v", matrix(2)).ranked(matrix(1, 3)[0]))


#: argv: the file, _RESIDENT_BYTES. Prints by how many KiB the largest size grew in a search.
SEARCH = f"""
import sys
from pathlib import Path
import numpy as np
from fallback_plugins.solved_examples.index import vectors

def peak():
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0])

vectors._RESIDENT_BYTES = int(sys.argv[2])
found = vectors.VectorFile(Path(sys.argv[1]), 384, {MODEL!r}).open(32_768)
Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew: a child inherits its parent's
before = peak()
found.scores(np.ones(384, dtype=np.float32), threads=2)
print(peak() - before)
"""


def test_a_large_file_does_not_stay_in_the_process(tmp_path: Path) -> None:
    stored(tmp_path / "v", matrix(32_768, 384))  # 48 MiB

    def grown_mib(resident: int) -> float:
        argv = [sys.executable, "-c", SEARCH, tmp_path / "v", str(resident)]
        return int(subprocess.run(argv, capture_output=True, text=True, check=True).stdout) / 1024

    assert grown_mib(2**40) > 40
    assert grown_mib(2**20) < 30


_FULL = f"""
import resource, sys
from pathlib import Path
import numpy as np
from fallback_plugins.solved_examples.interfaces import ExampleStoreError
from fallback_plugins.solved_examples.index.vectors import VectorFile

rows = np.frombuffer(sys.stdin.buffer.read(), dtype=np.float32).reshape(-1, 4)
resource.setrlimit(resource.RLIMIT_FSIZE, (2_000, 2_000))
try:
    VectorFile(Path(sys.argv[1]), 4, "{MODEL}").write(100, rows)
except ExampleStoreError as error:
    print(error.problem)
"""


def test_a_full_disk_leaves_the_rows_before(tmp_path: Path) -> None:
    rows = matrix(300)
    file = VectorFile(tmp_path / "v", 4, MODEL)
    file.create()
    file.write(0, rows[:100])
    done = subprocess.run(
        [sys.executable, "-c", _FULL, file.path],
        input=rows[100:].tobytes(),
        capture_output=True,
        timeout=PATIENCE_S,
    )
    assert b"can't be used" in done.stdout, done
    assert np.array_equal(file.open(100).rows, rows[:100])
