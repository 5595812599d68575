"""The lines of a log that a person is shown first."""

import pytest

from fallback_audit.event_types import MAX_EXCERPT_CHARS
from fallback_plugins.shared.gates.suite_run import error_lines, last_line


@pytest.mark.parametrize(
    ("output", "line"),
    [
        ("", ""),
        ("\n> shop@1.0.0 test\n> yarn jest\n\nsh: 1: yarn: not found\n", "sh: 1: yarn: not found"),
        (
            "sh: 1: pnpm: not found\nnpm error Lifecycle script `test` failed:\nnpm error code 127\n",
            "sh: 1: pnpm: not found",
        ),
        (
            "django.core.exceptions.ImproperlyConfigured: settings are not configured\n\nRan 0 tests\n",
            "django.core.exceptions.ImproperlyConfigured: settings are not configured",
        ),
        (
            "sqlite3.OperationalError: unable to open database file\nmake: *** [Makefile:3: t] Error 1\n",
            "sqlite3.OperationalError: unable to open database file",
        ),
        ("\x1b[31m1,564 specs, 7 failures\x1b[0m\nFinished in 3 s\n", "1,564 specs, 7 failures"),
        (
            "RuntimeError: no database\n-----\nRan 1 test in 0.000s\n\nFAILED (errors=1)\n",
            "RuntimeError: no database",
        ),
        ("one\ntwo\n-----\n", "two"),
        # Names of tests that pass, and a progress bar, are not why it ended so.
        ("no display\ntests/test_errors.py .....  [ 80%]\n 45%|####    | 9/20\n", "no display"),
        ("exit\n✓ fails if denied\nok 2 - not found\ntest_error (app) ... ok\n", "exit"),
        ("-----\n", "-----"),
    ],
)
def test_it_says_why(output: str, line: str) -> None:
    assert last_line(output) == line


@pytest.mark.parametrize(
    ("output", "lines"),
    [
        ("", []),
        (
            (
                "\x1b[1mcollecting\x1b[0m\n"
                "tests/test_errors.py ....  [ 40%]\n"
                "tests/test_a.py::test_a ERROR  [ 50%]\n"
                "ImportError while loading conftest 'tests/conftest.py'.\n"
                "tests/conftest.py:3: in <module>\n"
                "    import redis\n"
                "E   ModuleNotFoundError: No module named 'redis'\n"
                "E   ModuleNotFoundError: No module named 'redis'\n"
                "100%|##########| 9/9\n"
            ),
            [
                "tests/test_a.py::test_a ERROR  [ 50%]",
                "ImportError while loading conftest 'tests/conftest.py'.",
                "E   ModuleNotFoundError: No module named 'redis'",
            ],
        ),
        ("".join(f"{at}\n" for at in range(20)), [f"{at}" for at in range(12, 20)]),
        (
            "".join(f"error {at}\n" for at in range(20)),
            [f"error {at}" for at in (0, 1, 2, 3, 16, 17, 18, 19)],
        ),
    ],
)
def test_error_lines_are_those_that_look_like_the_error(output: str, lines: list[str]) -> None:
    assert error_lines(output).splitlines() == lines


def test_error_lines_fit_in_an_event() -> None:
    lines = error_lines("".join(f"error {at} {'x' * 9_999}\n" for at in range(9)))
    assert len(lines) <= MAX_EXCERPT_CHARS
    assert lines.startswith("error 0 ")
    assert "error 8 " in lines
