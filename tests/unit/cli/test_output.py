"""What commands print: a terminal is told nothing that it would act on, a pipe gets every byte."""

import sys

import pytest

from fallback_tier.cli.output import print_patch

DIFF = "--- a/a\n+++ b/a\n@@ -1 +1 @@\n-x\n+\x1b[2J\ty\r\n"


@pytest.mark.parametrize(
    ("terminal", "shown"),
    [(False, DIFF), (True, DIFF.replace("\x1b", "\\x1b").replace("\r", "\\r"))],
)
def test_a_patch(
    terminal: bool,
    shown: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
    print_patch(DIFF)
    assert capsys.readouterr().out == shown
