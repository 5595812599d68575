"""What a proof's failure at the base commit points at: frames, what its failing tests use, its imports."""

import pytest

from fallback_tier.gates.failure_summary.proof_failure import proof_failure
from fallback_tier.repo import MAX_POINTERS, SourceLine

PROOF = """\
import pytest

from lib.archive import unpack
from lib.other import unrelated


def make(tmp_path):
    return tmp_path.joinpath("x")


def test_fine():
    assert unrelated(1)


def test_stays_inside(tmp_path):
    place = make(tmp_path)
    assert unpack(place).is_inside()
"""
TRACKED = ("lib/__init__.py", "lib/archive.py", "lib/other.py", "lib/paths.py", "tests/helper.py")

LONG = """\
=================================== FAILURES ===================================
______________________________ test_stays_inside _______________________________

    def test_stays_inside(tmp_path):
>       assert unpack(place).is_inside()

tests/test_proof.py:17:
_ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _
lib/archive.py:30: in unpack
    return join(name)
lib/paths.py:4: ValueError
=========================== short test summary info ============================
FAILED tests/test_proof.py::test_stays_inside - ValueError: outside
"""


def test_frames_of_the_product_come_innermost_first() -> None:
    failure = proof_failure(LONG, {"tests/test_proof.py": PROOF.encode()}, TRACKED)
    assert failure.frames == (
        SourceLine(path="lib/paths.py", line=4),
        SourceLine(path="lib/archive.py", line=30),
    )
    assert "ValueError: outside" in failure.text
    assert "lib/archive.py:30 in unpack" in failure.text


def test_only_what_the_failing_test_uses_counts() -> None:
    failure = proof_failure(LONG, {"tests/test_proof.py": PROOF.encode()}, TRACKED)
    assert failure.files == ("lib/archive.py",)
    assert failure.names == ("unpack",)
    assert {"unpack", "is_inside", "make", "joinpath"} <= {*failure.uses}
    assert "unrelated" not in failure.uses
    assert failure.titles == ("tests/test_proof.py::test_stays_inside", "tests/test_proof.py")


@pytest.mark.parametrize(
    "line",
    [
        '  File "lib/archive.py", line 30, in unpack',
        "lib/archive.py:30: in unpack",
        "lib/archive.py:30: ValueError",
        "archive.py:30: in unpack",
    ],
)
def test_frames_of_python(line: str) -> None:
    assert proof_failure(f"{line}\n", {}, TRACKED).frames == (
        SourceLine(path="lib/archive.py", line=30),
    )


@pytest.mark.parametrize(
    "line",
    [
        "    at unpack (src/archive.ts:30:5)",
        "    at async Reader.unpack (file://src/archive.ts:30:5)",
        "    at src/archive.ts:30:5",
        " \x1b[36m\u276f\x1b[39m unpack src/archive.ts:30:5",
    ],
)
def test_frames_of_javascript(line: str) -> None:
    assert proof_failure(f"{line}\n", {}, ("src/archive.ts",)).frames == (
        SourceLine(path="src/archive.ts", line=30),
    )


@pytest.mark.parametrize(
    "line",
    [
        "    at unpack (node_modules/lib/src/archive.ts:30:5)",
        "    at node:internal/process:30:5",
        '  File "/usr/lib/python3.11/lib/archive.py", line 30, in unpack',
        "tests/helper.py:3: in check",
        "elsewhere/archive.py:30: in unpack",
        f"lib/archive.py:{'9' * 1_990}: in unpack",
        "lib/archive.py:0: in unpack",
    ],
)
def test_what_is_not_the_products_source_is_no_frame(line: str) -> None:
    tracked = (*TRACKED, "src/archive.ts")
    assert proof_failure(f"{line}\n", {}, tracked).frames == ()


def test_a_frame_of_built_code_counts_by_its_function() -> None:
    failure = proof_failure("    at Reader.unpack (dist/index.js:3:5)\n", {}, TRACKED)
    assert failure.frames == ()
    assert failure.uses == ("unpack",)


TITLED = """\
import { readFile } from 'node:fs'
import { merge as combine } from '../src/merge.js'
const { other } = require('../src/other')

describe('merge', () => {
  it('keeps the prototype', () => {
    expect(combine({}, payload)).toEqual({})
  })
  it('is not this one', () => {
    expect(other()).toBe(1)
  })
})
"""


@pytest.mark.parametrize(
    "output",
    [
        "  ● merge \u203a keeps the prototype\n",
        "not ok 1 - keeps the prototype\n",
        " FAIL  test/merge.test.ts > merge > keeps the prototype\n",
        "  1 failing\n\n  1) merge\n       keeps the prototype:\n",
    ],
)
def test_a_test_is_found_by_its_title(output: str) -> None:
    tracked = ("src/merge.ts", "src/other.ts", "src/unused.ts")
    failure = proof_failure(output, {"test/merge.test.ts": TITLED.encode()}, tracked)
    assert failure.files == ("src/merge.ts",)
    assert {"merge", "combine"} <= {*failure.names}
    assert "other" not in {*failure.names, *failure.uses}


def test_a_short_script_without_named_tests_counts_whole() -> None:
    script = b"const set = require('.')\nset({}, '__proto__.x', 1)\nprocess.exit(1)\n"
    failure = proof_failure("code was run\n", {"proof.js": script}, ("index.js",))
    assert failure.files == ("index.js",)
    assert "set" in failure.names


def test_secrets_are_taken_out_and_work_is_bounded() -> None:
    key = "AKIA" + "Z7Q2M5X9K3W8R4T1"
    frames = "".join(f"lib/f{number}.py:{number}: in f\n" for number in range(1, 500))
    output = f"E   AssertionError: {key}\n{frames}"
    failure = proof_failure(output, {}, tuple(f"lib/f{number}.py" for number in range(500)))
    assert key not in failure.text
    assert len(failure.frames) == MAX_POINTERS
    assert len(failure.text.encode()) < 3_000
