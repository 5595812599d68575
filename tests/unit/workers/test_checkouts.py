"""Checkouts of repositories behind an address: which one is mirrored, and what is kept while it is used."""

import os
import time
from pathlib import Path
from typing import Any

import pytest

from fallback_tier.errors import RepositoryError, StateFolderError
from fallback_tier.execution import CommandResult
from fallback_tier.sandbox.clients import SubprocessClients
from fallback_tier.workers.checkouts import Checkouts, checkout
from fallback_tier.workers.problem import PASSING, problem_of
from fallback_tier.workers.tables import RepositorySettings

#: What the user's configuration of git has instead of these addresses: a repository of this machine.
ADDRESS = "https://git.example/{}.git"


@pytest.fixture
def clients(tmp_path: Path) -> SubprocessClients:
    """git, with a configuration of its user's that leads addresses to folders."""
    (tmp_path / ".gitconfig").write_text(
        '[user]\n name = t\n email = t@example.invalid\n[protocol "file"]\n allow = always\n'
        f'[url "file://{tmp_path}/there/"]\n insteadOf = https://git.example/\n'
    )
    return SubprocessClients({"PATH": os.environ["PATH"], "HOME": str(tmp_path)})


def commit(clients: SubprocessClients, place: Path, text: str) -> str:
    """One more commit of a repository, which is made where there is none."""
    place.mkdir(parents=True, exist_ok=True)
    (place / "file.txt").write_text(text)
    user = {"GIT_CONFIG_GLOBAL": ""}
    for words in (
        ["init", "--quiet"],
        ["add", "file.txt"],
        ["commit", "--quiet", "-m", text],
    ):
        assert clients.run("git", words, cwd=place, timeout_s=30, env=user).ok
    return clients.run("git", ["rev-parse", "HEAD"], cwd=place, timeout_s=30).output.strip()


def behind(name: str) -> RepositorySettings:
    return RepositorySettings(url=ADDRESS.format(name))


def test_another_address_is_another_repository(tmp_path: Path, clients: SubprocessClients) -> None:
    """A fix of the old one would be proved for a repository that nobody names any more."""
    old = commit(clients, tmp_path / "there" / "old.git", "the old one")
    new = commit(clients, tmp_path / "there" / "new.git", "the new one")
    checkouts = Checkouts(tmp_path / "state", clients, tmp_path / "state" / "home")
    assert checkouts.commit_of("app", behind("old")) == old
    assert checkouts.commit_of("app", behind("new")) == new
    with checkouts.made("fix-1", "app", behind("new"), new) as place:
        assert (place / "file.txt").read_text() == "the new one"
        assert place.name == "app"
    assert not checkout(tmp_path / "state" / "home", "fix-1").exists()


def test_head_is_the_default_branch_of_now(tmp_path: Path, clients: SubprocessClients) -> None:
    """Renamed or changed there: a fetch alone goes on with the old one, or finds none."""
    there = tmp_path / "there" / "app.git"
    old = commit(clients, there, "first")
    checkouts = Checkouts(tmp_path / "state", clients, tmp_path / "state" / "home")
    assert checkouts.commit_of("app", behind("app")) == old
    assert clients.run("git", ["checkout", "-q", "-b", "next"], cwd=there, timeout_s=30).ok
    new = commit(clients, there, "second")
    assert checkouts.commit_of("app", behind("app")) == new


def test_a_checkout_that_is_used_is_not_an_old_one(
    tmp_path: Path, clients: SubprocessClients
) -> None:
    """It stands for days while nothing is committed; an attempt that begins there has its time."""
    there = tmp_path / "there" / "app.git"
    commit(clients, there, "first")
    checkouts = Checkouts(tmp_path / "state", clients, tmp_path / "state" / "home")
    first = checkouts.standing("app", behind("app"))
    days_ago = time.time() - 3 * 86_400
    os.utime(first, (days_ago, days_ago))
    assert checkouts.standing("app", behind("app")) == first  # an attempt begins
    commit(clients, there, "second")
    second = checkouts.standing("app", behind("app"))
    assert (first / "file.txt").read_text() == "first"
    os.utime(first, (days_ago, days_ago))
    commit(clients, there, "third")
    assert checkouts.standing("app", behind("app")) != second
    assert not first.exists()


class Terse(SubprocessClients):
    """git, which says this many characters at most."""

    def run(self, *words: Any, **more: Any) -> CommandResult:
        done = super().run(*words, **more)
        cut = {"output": done.output[:40], "truncated": len(done.output) > 40}
        return done.model_copy(update=cut) if words[1][0] == "show" else done


def test_texts_are_read_whole_or_that_is_told(tmp_path: Path, clients: SubprocessClients) -> None:
    place = tmp_path / "there" / "app"
    commit(clients, place, "first")
    for number in range(70):
        (place / f"{number}.txt").write_text(f"text {number}\n" * (9 if number == 7 else 1))
    user = {"GIT_CONFIG_GLOBAL": ""}
    for words in (["add", "."], ["commit", "--quiet", "-m", "more"]):
        assert clients.run("git", words, cwd=place, timeout_s=30, env=user).ok
    app = RepositorySettings(path=place)
    paths = [f"{number}.txt" for number in range(70)]
    home = tmp_path / "state" / "home"
    whole = Checkouts(tmp_path / "state", clients, home)
    head = whole.commit_of("app", app)
    texts = [*whole.texts("app", app, head, paths)]
    assert {line for it in texts for line in it.text.split("\n")} == {
        "",
        *(f"text {number}" for number in range(70)),
    }
    assert not any(it.cut for it in texts)
    terse = Terse({"PATH": os.environ["PATH"], "HOME": str(tmp_path)})
    told = [*Checkouts(tmp_path / "state", terse, home).texts("app", app, head, paths)]
    assert [it.cut for it in told if it.cut] == ["7.txt"]
    assert {f"text {number}" for number in range(70)} <= {
        line for it in told for line in it.text.split("\n")
    }
    assert [*whole.texts("app", app, head, [])] == []


class NoSpace(SubprocessClients):
    """git, on a disk that has filled up, or for a server that has. ``at``: the command that notices."""

    at, said = "clone", ""

    def run(self, *words: Any, **more: Any) -> CommandResult:
        if self.at in words[1]:
            return CommandResult(argv=("git",), exit_code=128, output=self.said, duration_ms=1)
        return super().run(*words, **more)


@pytest.mark.parametrize("at", ["clone", "checkout"])
def test_a_full_disk_is_no_fault_of_the_repository(
    tmp_path: Path, clients: SubprocessClients, at: str
) -> None:
    """Its fix waits, and is not ended: docs/fleet.md."""
    place = tmp_path / "there" / "app"
    head = commit(clients, place, "first")
    full = NoSpace({"PATH": os.environ["PATH"], "HOME": str(tmp_path)})
    full.at, full.said = at, "fatal: sha1 file '/pack' write error: No space left on device\n"
    checkouts = Checkouts(tmp_path / "state", full, tmp_path / "state" / "home")
    app = RepositorySettings(path=place)
    with pytest.raises(StateFolderError) as caught, checkouts.made("fix-1", "app", app, head):
        pass
    assert problem_of(caught.value).code in PASSING
    assert "No space left on device" in caught.value.problem
    full.said = f"remote: {full.said}fatal: the remote end hung up\n"
    with (
        pytest.raises(RepositoryError, match="No space left"),
        checkouts.made("fix-1", "app", app, head),
    ):
        pass
