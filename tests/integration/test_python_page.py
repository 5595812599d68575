"""docs/python.md: its example does what it says, in a program of its own."""

import re
from pathlib import Path

import pytest

from fallback_tier.fix import Configuration, ProgressCallback, advisories_to_fix, open_fixer
from tests.e2e.command import osv, repository

PAGE = Path(__file__).parents[2] / "docs" / "python.md"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    repository(tmp_path / "repository", {"requirements.txt": "idna==3.6\n"})
    (tmp_path / "advisory.json").write_text(osv("idna", fixed="3.7"))
    return tmp_path


@pytest.mark.registry("uv")
@pytest.mark.sandbox
def test_the_example_runs(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (example,) = re.findall(r"```python\n(.+?)```", PAGE.read_text(), re.DOTALL)
    exec(compile(example, str(PAGE), "exec"), {})
    *messages, last = capsys.readouterr().out.strip().split("\n")
    assert re.fullmatch(r"verified fix-[0-9a-f]{16}", last)
    assert any("kind='GateJudged'" in line for line in messages)
    assert (place / "repository" / "requirements.txt").read_text() == "idna==3.6\n"


class StopError(Exception):
    """Of who watches."""


@pytest.mark.registry("uv")
@pytest.mark.sandbox
def test_who_watches_can_end_it_and_it_goes_on(place: Path) -> None:
    def stop(reported: object) -> None:
        if "GateJudged" in repr(reported):
            raise StopError

    given = advisories_to_fix([place / "advisory.json"])
    configuration = Configuration(state_dir=place / "state")
    with (
        open_fixer(configuration, given, ProgressCallback(stop)) as fixer,
        pytest.raises(StopError),
    ):
        fixer.fix(given, place / "repository")
    assert (place / "repository" / "requirements.txt").read_text() == "idna==3.6\n"
    with open_fixer(configuration, given) as fixer:
        (fix_id,) = {stored.scope.fix_id for stored in fixer.services.audit.events()}
        fixed = fixer.resume(fix_id)
    assert fixed.delivery.delivered
    assert (place / "repository" / "requirements.txt").read_text() == "idna==3.7\n"
