"""Levels of builds that have none, and what counts as caught."""

from typing import Any

import pytest

from tests.campaigns.tests_judged.results import Breaking, cause_of, commands_of, count_of, level_of


@pytest.mark.parametrize(
    ("verdict", "level"),
    [
        ({"status": "passed", "detail": "12 test(s) pass"}, ("compared", True)),
        ({"status": "failed", "detail": "tests failed (3 ran)"}, ("compared", True)),
        ({"status": "failed", "detail": "tests failed"}, ("ran", True)),
        ({"status": "failed", "detail": "fails, not at the base commit: a"}, ("compared", True)),
        ({"status": "passed", "detail": "tests pass; no count"}, ("ran", True)),
        ({"status": "skipped", "detail": "no test ran, here or at the base commit"}, ("not_judged", True)),
        ({"status": "undecided", "detail": "12 test(s) pass; but not so"}, ("not_judged", True)),
        ({"status": "passed", "detail": "x", "tests_level": "ran"}, ("ran", False)),
        (None, ("not_judged", False)),
    ],
)  # fmt: skip
def test_level_of_verdict(verdict: dict[str, Any] | None, level: tuple[str, bool]) -> None:
    assert level_of(verdict) == level


def test_counts_of_several_projects_are_added() -> None:
    assert count_of({"detail": "'a': 12 test(s) pass; 'b': 3 test(s) pass"}) == 15
    assert count_of({"detail": "1,412 of 5,012 tests, those that reach it, all as before"}) == 1412
    assert count_of({"detail": "tests pass"}) is None


def test_commands_are_those_of_the_projects() -> None:
    tests = [
        {
            "project": "a",
            "tests_level": "compared",
            "command": "npm test",
            "source": "package.json",
        },
        {
            "project": "b",
            "tests_level": "compared",
            "command": "npm test",
            "source": "package.json",
        },
        {"project": "c", "tests_level": "not_judged", "reason": "none is stated"},
    ]
    assert commands_of({"tests": tests}) == ("npm test", "package.json")
    assert commands_of({"detail": "12 test(s) pass"}) == ("", "")


def test_cause_is_read_from_what_a_project_says() -> None:
    tests = [{"reason": "needs redis, which is not installed here", "last_line": ""}]
    cause = cause_of({"detail": "not judged", "tests": tests}, "fixed", "")
    assert cause == "a service is missing"


@pytest.mark.parametrize(
    ("detail", "log", "cause"),
    [
        ("the tests fail at the base commit too, in the same way", "sh: 1: yarn: not found", "a program"),
        ("the tests fail at the base commit too, in the same way", "3 tests failed", "the tests fail"),
        ("package.json has no test script", "", "no test command"),
    ],
)  # fmt: skip
def test_cause_of_verdict(detail: str, log: str, cause: str) -> None:
    assert cause_of({"detail": detail}, "fixed", log).startswith(cause)


def test_cause_without_verdict_is_the_end_of_the_fix() -> None:
    assert cause_of(None, "refused", "") == "no tests verdict: refused"


def breaking(status: str, bare: tuple[int | None, ...] = (), detail: str = "") -> Breaking:
    return Breaking(function="a.py:1 a", status=status, detail=detail, bare=bare, seconds=1.0)


def test_only_what_a_bare_run_fails_is_missed() -> None:
    assert breaking("failed").is_caught
    assert breaking("failed", (0,)).is_caught
    assert not breaking("failed", (0, 1)).is_caught
    assert not breaking("passed", (0,)).is_missed
    assert breaking("passed", (1,)).is_missed
    assert not breaking("passed", (None,)).is_missed


def test_false_as_before_is_a_miss_with_that_sentence() -> None:
    sentence = "the tests fail at the base commit too"
    assert breaking("skipped", (1,), sentence).is_false_as_before
    assert not breaking("skipped", (0,), sentence).is_false_as_before
    assert not breaking("skipped", (1,), "no test ran").is_false_as_before
