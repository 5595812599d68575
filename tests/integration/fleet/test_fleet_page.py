"""docs/fleet.md's minute, as it stands there."""

import shlex
from pathlib import Path

from tests.e2e.command import SCRIPT, run_with_workers

PAGE = Path(__file__).parents[3] / "docs" / "fleet.md"

#: What each command of the page ends with: the tests pass, and nothing shows the flaw gone.
CODES = [0, 0, 8, 0, 0]


def test_the_minute_on_the_page(tmp_path: Path) -> None:
    section = PAGE.read_text().partition("## A minute on this machine")[2]
    lines = section.partition("```sh\n")[2].partition("```")[0].splitlines()
    environment = {"FALLBACK_TIER_KEYS": str(tmp_path / "keys")}
    said = []
    for line, code in zip(lines, CODES, strict=True):
        program, *words = shlex.split(line)
        assert program == SCRIPT.name
        done = run_with_workers(*words, cwd=tmp_path, env=environment)
        assert done.code == code, (line, done)
        said.append(done.out)
    assert "3 fixes in 3 repositories" in said[1]
    assert "3 of 3" in said[3]
    assert (tmp_path / "try" / "report.html").stat().st_size
    assert len([*(tmp_path / "try" / "patches").glob("*/*.patch")]) == 3
