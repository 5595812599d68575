"""`cache`: what is kept for the next fix is shown, and cleared but for what a run has now."""

import os
import time
from pathlib import Path

import pytest

from fallback_plugins.shared.installation import Installed, Level
from fallback_plugins.shared.store import MAX_BYTES, MAX_ENTRIES, InstalledStore
from fallback_tier.cli import exit_codes
from fallback_tier.cli.main import main
from fallback_tier.gates.trees.bases import MAX_BASES, Bases
from fallback_tier.sandbox.clients import SubprocessClients
from tests.e2e.command import Ended
from tests.integration.gate_setup import repository

DAY_S = 86_400


def make(folder: Path) -> Installed:
    (folder / "a.py").write_text("x" * 1000)
    return Installed(Level.IN_PART)


class Scenario:
    """A state folder with an installed set in use, one that is not, and a base."""

    def __init__(self, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.state = place / "state"
        self._capsys = capsys
        self.installed = self.state / "cache" / "installed"
        self.user: InstalledStore | None = InstalledStore(self.installed)
        self.user.entry("python-used", make)
        InstalledStore(self.installed).entry("npm-idle", make)
        self.repo = repository(place / "repo", {"a.py": ""})
        Bases(self.state / "bases", SubprocessClients()).open(self.repo).close()

    def cache(self, *words: str) -> Ended:
        code = main(["cache", *words, "--state-dir", str(self.state)])
        return Ended(code, *self._capsys.readouterr())

    def age(self, key: str, days: float) -> None:
        (mark,) = self.state.rglob(f"{key}/whole")
        when = time.time() - days * DAY_S
        os.utime(mark, (when, when))

    @property
    def kept(self) -> set[str]:
        return {mark.parent.name for mark in self.state.rglob("*/whole")}


@pytest.fixture
def scenario(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Scenario:
    return Scenario(tmp_path, capsys)


def test_a_list_for_machines(scenario: Scenario) -> None:
    scenario.age("python-used", 1)
    ended = scenario.cache("list", "--json")
    assert ended.code == exit_codes.OK
    idle, used, base = ended.json["entries"]
    assert (idle["kind"], idle["what"], idle["in_use"]) == ("npm", "in part", False)
    assert (used["kind"], used["key"], used["in_use"]) == ("python", "python-used", True)
    assert (base["kind"], base["kept_in"], base["in_use"]) == ("checkout", "checked out", False)
    assert base["what"] == f"{scenario.repo.root} at {scenario.repo.base_commit[:12]}"
    assert 1000 < idle["bytes"] < 2000
    assert used["last_used"] < idle["last_used"]
    installed, checked_out = ended.json["totals"]
    assert (installed["entries"], installed["bytes"]) == (2, idle["bytes"] + used["bytes"])
    assert (installed["most_entries"], installed["most_bytes"]) == (MAX_ENTRIES, MAX_BYTES)
    assert (checked_out["most_entries"], checked_out["most_bytes"]) == (MAX_BASES, None)


def test_a_list_for_a_person(scenario: Scenario) -> None:
    out = scenario.cache("list").out
    lines = out.splitlines()
    assert len(lines) == 3 + 2
    assert [text for text in lines if "in use" in text] == [
        text for text in lines if "python-used" in text
    ]
    assert f"installed: 2 of at most {MAX_ENTRIES} entries" in out


def test_what_a_run_has_is_never_cleared(scenario: Scenario) -> None:
    ended = scenario.cache("clear", "--json")
    assert (ended.json["removed"], ended.json["in_use"]) == (2, 1)
    assert ended.json["freed_bytes"] > 1000
    assert scenario.kept == {"python-used"}
    scenario.user = None
    assert "removed: 1 entries" in scenario.cache("clear").out
    assert scenario.kept == set()
    assert [*scenario.installed.iterdir()] == []


def test_what_is_told_of_what_is_kept(scenario: Scenario) -> None:
    assert "1 that a run uses now" in scenario.cache("clear").out


def test_only_what_is_old_enough_is_cleared(scenario: Scenario) -> None:
    scenario.age("npm-idle", 2.5)
    assert scenario.cache("clear", "--older-than", "3", "--json").json["removed"] == 0
    assert scenario.cache("clear", "--older-than", "2", "--json").json["removed"] == 1
    assert len(scenario.kept) == 2


def test_what_can_not_be_read_is_cleared_all_the_same(scenario: Scenario) -> None:
    (scenario.installed / "npm-idle" / "installed" / "fallback-tier-installed.json").write_text("{")
    (scenario.installed / "npm-idle" / "bytes").unlink()
    (base,) = (scenario.state / "bases").glob("*/tree/.git/HEAD")
    base.unlink()
    ended = scenario.cache("list", "--json")
    assert [entry["what"] for entry in ended.json["entries"] if not entry["in_use"]] == [
        "nothing that can be read",
        "nothing that can be read",
    ]
    scenario.cache("clear")
    assert scenario.kept == {"python-used"}


def test_a_state_folder_that_is_not_there_has_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for verb in ("list", "clear"):
        assert main(["cache", verb, "--state-dir", str(tmp_path / "absent")]) == exit_codes.OK
    assert not (tmp_path / "absent").exists()


@pytest.mark.parametrize("days", ["0", "-1", "soon"])
def test_days_are_counted_from_one(days: str, scenario: Scenario) -> None:
    with pytest.raises(SystemExit):
        scenario.cache("clear", "--older-than", days)
