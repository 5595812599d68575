"""A wrong end is counted: each is given to the judge on a real repository, installed by the real client."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.campaigns.measuring.clones import copy
from tests.campaigns.no_false_fixed.__main__ import Made, made, run_tool
from tests.campaigns.no_false_fixed.case import End, Ended, Outcome, load_cases
from tests.campaigns.no_false_fixed.peers import programs

PIN = "pip-ordinary-pin"
SAFE = "pip-ordinary-safe"
TWO_FILES = "pip-compiled-dev-pin"

_CODES: dict[End, int] = {"fixed": 0, "patched": 8, "not_affected": 5, "unknown": 9, "refused": 4}


@contextmanager
def repository(case_id: str, folder: Path) -> Iterator[Made]:
    clients, _ = programs(folder / "clients", fetched=())
    (case,) = load_cases([case_id])
    with made(case, clients) as it:
        yield it


def outcome(it: Made, end: End, edits: dict[str, tuple[str, str]]) -> Outcome:
    """Judge an invented end after edits (file → old and new text) of a copy of the repository."""
    after = copy(it.base, it.folder / "after")
    for file, (old, new) in edits.items():
        text = (after / file).read_text()
        assert old in text
        (after / file).write_text(text.replace(old, new))
    ended = Ended(end, _CODES[end], "left 1.0.0 in requirements.txt", 0.1)
    return it.judged("invented", after, ended).outcome


FIX = {"requirements.txt": ("left==1.0.0", "left==1.1.0")}


@pytest.mark.parametrize(
    ("case_id", "end", "edits", "expected"),
    [
        (PIN, "fixed", FIX, Outcome.AS_EXPECTED),
        (PIN, "fixed", {}, Outcome.FALSE_FIXED),
        (PIN, "patched", {}, Outcome.FALSE_FIXED),
        (PIN, "not_affected", {}, Outcome.FALSE_UNAFFECTED),
        (PIN, "unknown", {}, Outcome.UNKNOWN),
        (PIN, "refused", {}, Outcome.OTHER_END),
        (SAFE, "not_affected", {}, Outcome.AS_EXPECTED),
        (SAFE, "unknown", {}, Outcome.UNKNOWN),
        (
            TWO_FILES,
            "fixed",
            FIX | {"dev.txt": ("left==1.0.0", "left==1.1.0")},
            Outcome.AS_EXPECTED,
        ),
        (TWO_FILES, "fixed", FIX, Outcome.FALSE_FIXED),
    ],
)
def test_end_is_counted(
    tmp_path: Path, case_id: str, end: End, edits: dict[str, tuple[str, str]], expected: Outcome
) -> None:
    with repository(case_id, tmp_path) as it:
        assert outcome(it, end, edits) == expected


def test_lost_bytes_are_counted(tmp_path: Path) -> None:
    whole = {
        "requirements.txt": (
            "# web\nright==3.0.0  # keep below 4\n\n# storage\nleft==1.0.0  # pinned for prod\n",
            "right==3.0.0\nleft==1.1.0\n",
        )
    }
    with repository(PIN, tmp_path) as it:
        assert outcome(it, "fixed", whole) == Outcome.LOST_BYTES


def test_other_files_are_the_wrong_place(tmp_path: Path) -> None:
    with repository(SAFE.replace("safe", "dev-file"), tmp_path) as it:
        edits = FIX | {"requirements-dev.txt": ("right==3.0.0\n", "right==3.0.0\nleft==1.1.0\n")}
        assert outcome(it, "fixed", edits) in {Outcome.WRONG_PLACE, Outcome.LOST_BYTES}


def test_a_program_that_fails_is_no_end_of_a_case(tmp_path: Path) -> None:
    tool = tmp_path / "tool"
    tool.write_text("#!/bin/sh\necho Traceback >&2\nexit 1\n")
    tool.chmod(0o755)
    (case,) = load_cases([PIN])
    ended = run_tool(case, tmp_path, tmp_path, {"PATH": "/usr/bin:/bin"}, tool)
    assert (ended.end, ended.exit_code, ended.output) == ("error", 1, "Traceback")
