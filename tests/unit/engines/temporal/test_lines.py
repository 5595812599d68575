"""What an engine and a fix's process say to each other, as lines."""

import pytest

from fallback_tier.engines.temporal.messages import (
    SENTENCE_CHARS,
    Request,
    SessionProblem,
    SessionStep,
    Standing,
    reply_from,
    request_from,
    to_line,
)


@pytest.mark.parametrize(
    "standing",
    [
        Standing(),
        Standing(next=SessionStep(2, "gate:tests", 1), patch_sha256="0" * 64),
        Standing(outcome="verified", delivered=True),
    ],
)
def test_a_standing_is_one_line_and_comes_back(standing: Standing) -> None:
    line = to_line(standing)
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    assert reply_from(line) == standing


def test_a_problem_comes_back_and_is_short_where_a_history_keeps_it() -> None:
    problem = SessionProblem("input", "x" * 9_999, "y\nz", is_held=True)
    assert reply_from(to_line(problem)) == problem
    assert len(problem.shortened().problem) == SENTENCE_CHARS
    assert problem.shortened().is_held


@pytest.mark.parametrize("request_", [Request("step", SessionStep(1, "attempt")), Request("close")])
def test_a_request_comes_back(request_: Request) -> None:
    assert request_from(to_line(request_)) == request_


@pytest.mark.parametrize("line", [b"7\n", b"{}\n", b"no JSON\n", b""])
def test_what_is_no_reply_is_refused(line: bytes) -> None:
    with pytest.raises(ValueError):
        reply_from(line)
