"""The line of a log that a person is shown first."""

import pytest

from fallback_plugins.shared.gates.suite_run import last_line


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
        ("-----\n", "-----"),
    ],
)
def test_it_says_why(output: str, line: str) -> None:
    assert last_line(output) == line
