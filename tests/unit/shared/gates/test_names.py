"""Names of tests that are longer than anybody reads."""

import pytest

from fallback_plugins.npm.gates.summaries import MAX_LEVELS, summary
from fallback_plugins.npm.gates.testing import read_jest
from fallback_plugins.shared.gates import suite_run as names
from fallback_plugins.shared.gates.suite_run import MAX_NAME_CHARS, Names, Report, shortened

LONG = "x" * MAX_NAME_CHARS

NODE = "# tests 2\n# fail 2\n"
TAP_16 = "1..1\n# failed 1 test\n# time=1ms\n"
JEST = "Tests: 2 failed, 2 total\n"


def test_a_name_is_shortened_where_it_is_too_long() -> None:
    assert shortened(LONG) == LONG
    longer = [f"{LONG}{end}" for end in ("a", "b", "ab", "\udc80")]
    short = [shortened(name) for name in longer]
    assert len(set(short)) == len(longer)
    assert short == [shortened(name) for name in longer]
    assert all(name.startswith(LONG) for name in short)
    assert all(len(name) < MAX_NAME_CHARS + 40 for name in short)


def test_what_is_shortened_is_no_other_name() -> None:
    """Not even one that a test is given so that it would be."""
    short = shortened(f"{LONG}a")
    assert shortened(short) != short


def test_names_that_are_too_long_together_are_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names, "MAX_NAMES_CHARS", 5)
    few = Names()
    assert (few.full("a", "b"), few.are_lost) == ("a > b", False)
    assert (few.full("", "c"), few.are_lost) == ("", True)


@pytest.mark.parametrize(
    "text",
    [
        f"# Subtest: {LONG}\n    not ok 1 - a\n    not ok 2 - b\n{NODE}",
        f"not ok 1 - {LONG}a\nnot ok 2 - {LONG}b\n{NODE}",
        f"# {LONG}a\nnot ok 1 same\n# {LONG}b\nnot ok 2 same\n{NODE}",
        f"FAIL {LONG}\n  \u25cf a\n  \u25cf b\n{JEST}",
        f"FAIL {LONG}a\n  \u25cf same\nFAIL {LONG}b\n  \u25cf same\n{JEST}",
        f"  {LONG}\n    \u2717 a\n    \u2717 b\n\u2717 Broken \u00bb 0 honored, 2 broken (0.1s)\n",
        f"{'-' * 9}\n{LONG}\n{'-' * 9}\n FAIL - a\n FAIL - b\n    PASS: 0  FAIL: 2  TOTAL: 2\n",
        "# Subtest: f\n{}{}not ok 1 - f\n{}".format(
            *(
                f"    # Subtest: {LONG}{end}\n        not ok 1 - x\n    not ok 1 - {LONG}{end}\n"
                for end in "ab"
            ),
            TAP_16,
        ),
    ],
)
def test_tests_of_long_names_are_as_many_as_they_are(text: str) -> None:
    found = summary(text)
    assert found is not None
    assert found.failing is not None
    assert len(set(found.failing)) == len(found.failing) == found.failed == 2
    assert not any(name.endswith("(2)") for name in found.failing)
    assert all(len(name) < MAX_NAME_CHARS + 40 for name in found.failing)


def nested(levels: int, ends: str, *, fails: bool = True) -> str:
    result = "not ok" if fails else "ok"
    opened = "".join(f"{' ' * level}# Subtest: a\n" for level in range(levels))
    return f"{opened}{' ' * levels}{result} 1 - b\n{ends}"


@pytest.mark.parametrize("fails", [True, False])
def test_nothing_is_named_where_tests_are_nested_beyond_all_measure(fails: bool) -> None:
    ends = f"# tests 1\n# fail {int(fails)}\n"
    full = " > ".join(["a"] * MAX_LEVELS + ["b"])
    found = summary(nested(MAX_LEVELS, ends, fails=fails))
    assert found is not None
    assert (found.names, found.report) == (
        ((full,), None) if fails else ((), Report(frozenset([full])))
    )
    found = summary(nested(MAX_LEVELS + 1, ends, fails=fails))
    assert found is not None
    assert (found.names, found.report) == ((), None)


def test_nothing_is_named_by_tap_16_where_tests_are_nested_beyond_all_measure() -> None:
    ends = f"not ok 1 - a\n{TAP_16}"
    assert summary(nested(MAX_LEVELS, ends)) is not None
    assert summary(nested(MAX_LEVELS + 1, ends)) is None


@pytest.mark.parametrize(
    "text",
    [
        f"# Subtest: a\n    not ok 1 - b\n    not ok 2 - c\n{NODE}",
        f"FAIL a\n  \u25cf b\n  \u25cf c\n{JEST}",
        "  a\n    \u2717 b\n    \u2717 c\n\u2717 Broken \u00bb 0 honored, 2 broken (0.1s)\n",
        f"{'-' * 9}\na\n{'-' * 9}\n FAIL - b\n FAIL - c\n    PASS: 0  FAIL: 2  TOTAL: 2\n",
    ],
)
def test_names_that_are_too_long_together_are_not_told(
    monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    before = summary(text)
    assert before is not None
    assert len(before.names) == 2
    monkeypatch.setattr(names, "MAX_NAMES_CHARS", 6)
    found = summary(text)
    assert found is not None
    assert (found.names, found.failing, found.report) == ((), None, None)
    assert found.failed == 2


def test_reports_of_names_that_are_too_long_together_are_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    node = "# Subtest: a\n    ok 1 - b\nok 1 - a\n# tests 2\n# fail 0\n"
    tap_16 = "# Subtest: a\n    ok 1 - b\nok 1 - a\n1..1\n# time=1ms\n"
    assert (found := summary(node)) is not None
    assert found.report is not None
    assert summary(tap_16) is not None
    monkeypatch.setattr(names, "MAX_NAMES_CHARS", 0)
    assert (found := summary(node)) is not None
    assert found.report is None
    assert summary(tap_16) is None


def test_other_names_are_not_all_where_one_runner_tells_none() -> None:
    """Names of a second runner are as many as there are failures, and not those of the first."""
    mocha = "  1 failing\n\n  1) a:\n     Error\n\n  2) b:\n     Error\n\n  3) c:\n     Error\n"
    assert (known := summary(mocha)) is not None
    assert len(known.names) == 3
    found = summary(f"{mocha}\n{nested(MAX_LEVELS + 1, NODE)}")
    assert found is not None
    assert (found.failed, found.names) == (3, ())
    spec = "test at a.js:1:1\n\u2716 a (1ms)\n" * 2
    found = summary(f"{spec}{nested(MAX_LEVELS + 1, NODE)}")
    assert found is not None
    assert found.failing is None


def test_a_report_of_jest_names_its_files_in_short(monkeypatch: pytest.MonkeyPatch) -> None:
    tests = ",".join(
        f'{{"ancestorTitles": ["in"], "title": "{title}", "status": "passed"}}' for title in "ab"
    )
    text = (
        f'{{"numPassedTests": 2, "numFailedTests": 0, "testResults": [{{"name": "{LONG}", '
        f'"status": "passed", "assertionResults": [{tests}]}}]}}'
    )
    found = read_jest(text)
    assert found is not None
    assert len(found.passed) == 2
    assert all(len(name) < MAX_NAME_CHARS + 40 for name in found.passed)
    monkeypatch.setattr(names, "MAX_NAMES_CHARS", 400)
    assert read_jest(text) is None
