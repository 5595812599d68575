"""A campaign that delivers branches, as a user runs it: each proved patch is committed once."""

import json
import os
import shutil
import signal
import subprocess
import sys
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from fallback_audit.stores.sqlite import open_readonly
from fallback_tier.demo.campaign import PLAN
from fallback_tier.demo.projects import copy_project
from fallback_tier.sandbox.clients import SubprocessClients
from tests.e2e.command import run_with_workers
from tests.forks import forked
from tests.waiting import PATIENCE_S, becomes

SCRIPT = Path(sys.prefix) / "bin" / "fallback-tier"

BRANCH = "fallback-tier/TEST-2026-1"

CAMPAIGN = """
name = "spring"
checkouts = ["all"]
advisories = ["advisories"]
[limits]
fixes_per_host = 1
[model]
script = "script.json"
[delivery]
deliver = "branch"
"""

#: git, which stops behind the first branch that it has made, until nobody holds it (at most a minute).
HELD_GIT = """#!/bin/sh
"{git}" "$@"
code=$?
case " $* " in
*" update-ref "*)
  touch "{held}.reached"
  for _ in $(seq 600); do [ -e "{held}" ] || break; sleep 0.1; done ;;
esac
exit $code
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """One repository with the flaw, whose owner is at work on another branch."""
    shop = tmp_path / "all" / "shop"
    copy_project("retry", shop, SubprocessClients())
    git(shop, "config", "user.name", "Ada")
    git(shop, "config", "user.email", "ada@example.org")
    git(shop, "checkout", "--quiet", "-b", "work")
    with (shop / "knobfile.py").open("a") as file:
        file.write("# not committed yet\n")
    shipped = files("fallback_tier.demo") / "advisories" / "DEMO-2026-0002.json"
    (tmp_path / "advisories").mkdir()
    named = {**json.loads(shipped.read_text()), "id": "TEST-2026-1"}
    (tmp_path / "advisories" / "1.json").write_text(json.dumps(named))
    (tmp_path / "script.json").write_text(json.dumps([PLAN]))
    (tmp_path / "CAMPAIGN.toml").write_text(CAMPAIGN)
    return tmp_path


def git(place: Path, *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=place, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def fleet(place: Path, *words: str) -> list[str]:
    return [str(SCRIPT), "fleet", *words, "--state-dir", str(place / "state")]


def asked(words: list[str], code: int = 0) -> str:
    _, *arguments = words
    done = run_with_workers(*arguments)
    assert done.code == code, done
    return done.out


def status(place: Path) -> Any:
    (fix,) = json.loads(asked([*fleet(place, "status", "spring"), "--json"]))["fixes"]
    return fix


def branches(place: Path) -> set[str]:
    listed = git(place / "all" / "shop", "for-each-ref", "--format=%(refname:lstrip=2)")
    return set(listed.split())


def recorded(place: Path, kind: str) -> int:
    reader = open_readonly(place / "state" / "audit.db")
    try:
        return len([*reader.events(kinds=frozenset({kind}))])
    finally:
        reader.close()


def test_who_dies_behind_the_commit_has_made_the_only_branch(place: Path) -> None:
    shop, before = place / "all" / "shop", branches(place)
    base, index = git(shop, "rev-parse", "work"), (shop / ".git" / "index").read_bytes()
    held = place / "held"
    held.touch()
    wrapper = place / "bin" / "git"
    wrapper.parent.mkdir()
    wrapper.write_text(HELD_GIT.format(git=shutil.which("git"), held=held))
    wrapper.chmod(0o755)
    words = fleet(place, "run", str(place / "CAMPAIGN.toml"))
    path = f"{wrapper.parent}:{os.environ['PATH']}"
    with forked(words[1:], place, {"PATH": path}) as runner:
        becomes((place / "held.reached").exists, "the branch is made")
        (lock,) = (place / "state" / "fleet" / "workers").glob("*.lock")
        worker = int(lock.read_text())
        for process in (runner.pid, worker):
            os.kill(process, signal.SIGKILL)
        runner.wait(PATIENCE_S)
    held.unlink()
    assert branches(place) == {*before, BRANCH}
    assert recorded(place, "PatchDelivered") == 0

    asked(fleet(place, "run", str(place / "CAMPAIGN.toml")), code=8)
    assert branches(place) == {*before, BRANCH}
    assert recorded(place, "PatchDelivered") == 1
    assert recorded(place, "AttemptStarted") == 1
    found = status(place)
    assert (found["state"], found["why"], found["branch"]) == ("partly", "not_shown", BRANCH)
    assert BRANCH in asked(fleet(place, "status", "spring"))
    page = place / "report.html"
    asked([*fleet(place, "report", "spring"), "--html", str(page)])
    assert BRANCH in page.read_text()

    # The owner's branch, index and files are as they were; the patch is one commit on the base.
    assert git(shop, "symbolic-ref", "--short", "HEAD") == "work"
    assert (git(shop, "rev-parse", "work"), git(shop, "rev-parse", f"{BRANCH}^")) == (base, base)
    assert (shop / ".git" / "index").read_bytes() == index
    assert git(shop, "status", "--porcelain") == "M knobfile.py"
    assert "literal_eval" in git(shop, "diff", base, BRANCH)
    assert git(shop, "log", "-1", "--format=%an", BRANCH) == "Ada"


def test_a_branch_that_can_not_be_made_is_said_and_made_later(place: Path) -> None:
    shop = place / "all" / "shop"
    lock = shop / ".git" / "refs" / "heads" / f"{BRANCH}.lock"
    lock.parent.mkdir(parents=True)
    lock.touch()  # of another git, which died
    before = branches(place)
    run = fleet(place, "run", str(place / "CAMPAIGN.toml"))
    asked(run, code=6)
    found = status(place)
    assert (found["state"], found["why"], found["branch"]) == ("partly", "not_delivered", None)
    assert "could not be committed" in found["sentence"]
    assert "not_delivered" in asked(fleet(place, "status", "spring"))
    lock.unlink()
    assert "1 fix is queued again" in asked(fleet(place, "resume", "spring"))
    asked(run, code=8)
    assert (status(place)["why"], branches(place)) == ("not_shown", {*before, BRANCH})
    assert recorded(place, "AttemptStarted") == recorded(place, "PatchDelivered") == 1
