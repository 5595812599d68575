"""A result is made once and used twice, by whoever asks for the same of the same files."""

import os
from datetime import date
from pathlib import Path

import pytest

from fallback_plugins.shared import resolution
from fallback_plugins.shared.plugin_base import MAX_AGE_S, MAX_KEPT, KeptResults
from fallback_plugins.shared.resolution import KeptResolution
from fallback_tier.outcome import RecipeResult, Selected
from fallback_tier.repo import RepoContext, Settings
from tests.registry import Universe
from tests.unit.npm.world import World, at, bad, project, world

FILES = project({"leaf": "^1.0.0"}, {"leaf": at("1.0.0")})
LEAF = bad("leaf", ("0", "1.2.0"))
UNIVERSE = Universe().npm("leaf", "1.0.0").npm("leaf", "1.2.0")
SELECTED = Selected(recipe="npm-ladder")


def test_what_was_planned_is_not_resolved_again(tmp_path: Path) -> None:
    with world(UNIVERSE, tmp_path) as here:
        plugin, repo = here.plugin, here.repo(FILES)
        first = plugin.apply(SELECTED, LEAF, repo)
        asked = len(here.clients.calls)
        assert plugin.apply(SELECTED, LEAF, repo) == first
        assert len(here.clients.calls) == asked > 0
        # Once: whoever comes third, and does not have the client's answers, asks anew.
        anew = RepoContext.model_validate(repo.model_dump())
        assert plugin.apply(SELECTED, LEAF, anew) == first
        assert len(here.clients.calls) == 2 * asked


def test_what_clients_made_is_handed_out_with_the_result(tmp_path: Path) -> None:
    kept = KeptResults()
    with world(UNIVERSE, tmp_path) as here:
        planned = here.repo(FILES)
        make = Counting(here, planned)
        result = kept.get(SELECTED, LEAF, planned, make)
    planned.once("a lock", lambda: "made by a client")
    fixed = RepoContext.model_validate(planned.model_dump())
    assert fixed.once("another", dict) == {}
    assert kept.get(SELECTED, LEAF, fixed, make) is result
    assert fixed.once("a lock", str) == "made by a client"


class Counting:
    """Makes results, and counts them."""

    def __init__(self, here: World, repo: RepoContext) -> None:
        self.made = 0
        self._result = here.plugin.apply(SELECTED, LEAF, repo)

    def __call__(self) -> RecipeResult:
        self.made += 1
        return self._result


def test_another_question_changed_files_and_age_make_it_anew(tmp_path: Path) -> None:
    now = [0.0]
    kept = KeptResults(clock=lambda: now[0])
    with world(UNIVERSE, tmp_path) as here:
        repo = here.repo(FILES)
        make = Counting(here, repo)

    def made(selection: Selected = SELECTED, of: RepoContext = repo) -> int:
        before = make.made
        kept.get(selection, LEAF, of, make)
        return make.made - before

    assert made() == 1
    assert made(Selected(recipe="another")) == 1
    assert made(of=repo.model_copy(update={"settings": Settings(offline=True)})) == 1
    assert made(of=repo.model_copy(update={"base_commit": "1" * 40})) == 1
    assert made() == 0
    assert made() == 1
    now[0] += MAX_AGE_S + 1
    assert made() == 1
    (repo.root / "package-lock.json").write_text("{}")
    assert made() == 1


def test_so_many_are_kept(tmp_path: Path) -> None:
    kept = KeptResults()
    with world(UNIVERSE, tmp_path) as here:
        repo = here.repo(FILES)
        make = Counting(here, repo)
    for number in range(MAX_KEPT + 1):
        kept.get(Selected(recipe=str(number)), LEAF, repo, make)
    kept.get(Selected(recipe="0"), LEAF, repo, make)
    assert make.made == MAX_KEPT + 2, "the oldest has made room"


def test_resolutions_of_all_clients_are_kept_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(resolution, "MAX_RESOLUTIONS", 2)
    made = [KeptResolution(["client", number]) for number in range(3)]
    for number, one in enumerate(made):
        assert one.text == ""
        one.keep(f"text {number}")
        os.utime(next(tmp_path.rglob(f"{one.digest}.json")), (number, number))
    made[2].keep("newer")
    assert [one.text for one in made] == ["", "text 1", "newer"]
    assert made[1].made_on == date(1970, 1, 1)
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    made[2].keep("nowhere")
    assert made[2].text == ""
