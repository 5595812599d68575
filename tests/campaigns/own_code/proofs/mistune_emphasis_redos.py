"""A short run of backslashes after an asterisk must not keep the inline parser busy without end."""

import subprocess
import sys

HOSTILE = "*" + "\\\\" * 60


def test_emphasis_does_not_backtrack_without_end() -> None:
    script = f"import mistune; mistune.html({HOSTILE!r})"
    try:
        subprocess.run([sys.executable, "-c", script], check=True, timeout=10)
    except subprocess.TimeoutExpired:
        raise AssertionError(
            "a line of backslashes after an asterisk backtracks without end"
        ) from None
