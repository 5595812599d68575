"""What logs tell of tests by name, where runners print more than a line for one, or are not known."""

from pathlib import Path

import pytest

from fallback_plugins.npm.gates.summaries import failing_names, summary

LOGS = Path(__file__).parents[3] / "fixtures" / "logs"

TAP_SPEC = """
  calc

    \u2714 adds
    \u2716 should be equal
    -----------------


  Failed Tests: There was 1 failure

    calc

      \u2716 should be equal


  total:     2
  passing:   1
  failing:   1
  duration:  22ms

"""
UVU = """ unit.js  \u2022 \u2718   (1 / 2)

   FAIL  "subtracts"
    Expected values to be strictly equal:

  Total:     2
  Passed:    1
  Skipped:   0
  Duration:  1.20ms
"""
LAB = """
  .x

Failed tests:

  1) calc subtracts:

      Expected 2 to equal specified value: 1

1 of 2 tests failed
Test duration: 10 ms
"""


def test_jasmines_titles_have_lines_and_its_suites_have_errors() -> None:
    found = summary((LOGS / "jasmine-lines.txt").read_text("utf-8"))
    assert found is not None
    assert (found.ran, found.failed) == (7, 5)
    assert found.failing == (
        "top", "calc two lines", "calc throws twice", "calc thrown", "Suite error: calc inner",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("log", "names"),
    [(TAP_SPEC, ("should be equal",)), (UVU, ('"subtracts"',)), (LAB, ("calc subtracts",))],
    ids=["tap-spec", "uvu", "lab"],
)
def test_other_runners_count_and_name(log: str, names: tuple[str, ...]) -> None:
    found = summary(log)
    assert found is not None
    assert (found.ran, found.failed, found.failing) == (2, 1, names)


def test_signs_of_an_unknown_runner_name_what_fails() -> None:
    log = "\u2714 adds (3ms)\n  \u2717 divides 12ms\nnot ok 3 - halves\n\x1b[31mFAIL\x1b[0m src/a.spec.ts\n"
    assert summary(log) is None
    assert failing_names(log) == ("divides", "halves", "src/a.spec.ts")
