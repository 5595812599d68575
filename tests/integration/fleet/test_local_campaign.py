"""Campaigns as a user runs them: the command, its workers, real fixes with real gates; a model's script."""

import json
import os
import signal
import sys
from collections import Counter
from contextlib import ExitStack, closing
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from fallback_audit.stores.sqlite import open_readonly
from fallback_tier.demo.projects import copy_project
from fallback_tier.fleet.campaign_list import FixState
from fallback_tier.fleet.store.store import open_store
from fallback_tier.sandbox.clients import SubprocessClients
from fallback_tier.wiring import RecordSettings
from fallback_tier.wiring.trail import read_trail
from tests.e2e.command import run_with_workers
from tests.forks import forked
from tests.waiting import PATIENCE_S, becomes

SCRIPT = Path(sys.prefix) / "bin" / "fallback-tier"

PLAN = {
    "action": "source_edit",
    "edits": [
        {
            "path": "knobfile.py",
            "old": "    return eval(text.strip())",
            "new": "    return ast.literal_eval(text.strip())",
        }
    ],
    "rationale": "ast.literal_eval of the standard library reads literals, and runs nothing.",
    "citations": [],
}

CAMPAIGN = """
name = "spring"
checkouts = ["all"]
advisories = ["advisories"]
[limits]
fixes_per_host = 2
usd = "5"
usd_per_fix = "1"
[model]
script = "script.json"
price = "1:1"
[delivery]
patches = "patches"
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Two repositories with the flaw, two advisories about it: four fixes."""
    for name in ("shop", "blog"):
        copy_project("retry", tmp_path / "all" / name, SubprocessClients())
    shipped = files("fallback_tier.demo") / "advisories" / "DEMO-2026-0002.json"
    record = json.loads(shipped.read_text())
    (tmp_path / "advisories").mkdir()
    for number in (1, 2):
        named = {**record, "id": f"TEST-2026-{number}"}
        (tmp_path / "advisories" / f"{number}.json").write_text(json.dumps(named))
    (tmp_path / "script.json").write_text(json.dumps([PLAN]))
    (tmp_path / "CAMPAIGN.toml").write_text(CAMPAIGN)
    return tmp_path


def command(place: Path, *words: str) -> list[str]:
    return [str(SCRIPT), "fleet", *words, "--state-dir", str(place / "state")]


def run(place: Path) -> list[str]:
    return [*command(place, "run", str(place / "CAMPAIGN.toml")), "--keys", str(place / "keys")]


def asked(words: list[str], code: int = 0) -> str:
    _, *arguments = words
    done = run_with_workers(*arguments)
    assert done.code == code, done
    return done.out


def status(place: Path) -> Any:
    return json.loads(asked([*command(place, "status", "spring"), "--json"]))


def starts(place: Path) -> Counter[str]:
    """How often each fix begins on record."""
    reader = open_readonly(place / "state" / "audit.db")
    try:
        return Counter(it.scope.fix_id for it in reader.events(kinds=frozenset({"FixStarted"})))
    finally:
        reader.close()


def at_work(locks: Path) -> list[Path]:
    """The locks of workers that have said who they are."""
    return sorted(it for it in locks.glob("*.lock") if it.stat().st_size)


def folders(place: Path) -> int:
    return sum(it.is_dir() for it in place.iterdir())


def test_a_campaign_that_is_killed_goes_on_and_shares_its_work(place: Path) -> None:
    state = place / "state"
    locks = state / "fleet" / "workers"
    with forked(run(place)[1:], place) as first:
        becomes(lambda: len(at_work(locks)) == 2, "two workers have said who they are")
        os.kill(first.pid, signal.SIGKILL)
        first.wait(PATIENCE_S)
    worker = at_work(locks)[0]
    os.kill(int(worker.read_text()), signal.SIGKILL)

    said = asked(run(place), code=8)
    assert "going on (4 fixes, running)" in said
    found = status(place)
    assert found["state"] == "finished"
    listed = asked(command(place, "status", "spring"))
    assert all(fix["fix_id"] in listed for fix in found["fixes"])
    assert [fix["state"] for fix in found["fixes"]] == ["partly"] * 4
    assert [fix["why"] for fix in found["fixes"]] == ["not_shown"] * 4
    assert starts(place) == {fix["fix_id"]: 1 for fix in found["fixes"]}
    takes = {fix["fix_id"]: fix["takes"] for fix in found["fixes"]}
    assert takes[worker.stem] == 2
    assert sorted(takes.values()) == [1, 1, 1, 2]
    assert len([*(place / "patches").glob("*/*.patch")]) == 4

    # Made once for all advisories of a repository: its base tree. The two have the same content, so
    # what is installed, and what its tests do before any patch, is made once for both.
    assert folders(state / "bases") == 2
    assert folders(state / "cache" / "installed") == 1
    assert len([*(state / "cache" / "base").glob("*.json")]) == 1

    # Called once more, it finds nothing to do, and nothing is done twice.
    asked(run(place), code=8)
    assert starts(place) == {fix["fix_id"]: 1 for fix in found["fixes"]}

    page = place / "report.html"
    asked([*command(place, "report", "spring"), "--html", str(page)])
    assert "not_shown" in page.read_text()
    assert not list((state / "fleet" / "checkouts").iterdir())
    assert {it.suffix for it in (state / "fleet" / "workers").iterdir()} <= {".log"}


def test_a_dry_run_keeps_nothing(place: Path) -> None:
    found = json.loads(asked([*run(place), "--dry-run", "--json"]))
    assert len(found["fixes"]) == 4
    assert not (place / "state" / "fleet" / "fleet.db").exists()


def test_money_that_is_not_there_starts_nothing(place: Path) -> None:
    """Of $1 one may run at a time, and what it has left pays for the next."""
    text = CAMPAIGN.replace('usd = "5"', 'usd = "1"').replace("checkouts", "#checkouts")
    text += f'[repositories.shop]\npath = "{place}/all/shop"\n'
    (place / "CAMPAIGN.toml").write_text(text)
    paid = {"answer": PLAN, "usage": {"input_tokens": 400_000, "output_tokens": 100}}
    (place / "script.json").write_text(json.dumps([paid]))
    said = asked(run(place), code=4)
    assert "fixes that stay queued: 1." in said
    with open_store(place / "state") as store:
        line = store.campaign("spring")
    assert (line.spent, line.reserved) == (400_100, 0)


def test_a_cancelled_campaign_ends_its_workers(place: Path) -> None:
    locks = place / "state" / "fleet" / "workers"
    with forked(run(place)[1:], place) as running:
        becomes(lambda: len([*locks.glob("*.lock")]) == 2, "two workers are at work")
        asked(command(place, "cancel", "spring"))
        assert running.wait(PATIENCE_S) == 4
    found = status(place)
    assert (found["state"], {fix["state"] for fix in found["fixes"]}) == (
        "cancelled",
        {"cancelled"},
    )
    said = asked(command(place, "resume", "spring"))
    assert "4 fixes are queued again" in said
    assert status(place)["counts"]["queued"] == 4


def test_two_machines_share_a_list_and_run_nothing_twice(place: Path, postgres_url: str) -> None:
    """Each with a state folder of its own, list and record in PostgreSQL."""
    stores = ["--fleet-store", f"{postgres_url}_list", "--audit-store", postgres_url]
    text = CAMPAIGN.replace("fixes_per_host = 2", "fixes_per_host = 1")
    (place / "CAMPAIGN.toml").write_text(text)
    base = ["fleet", "run", str(place / "CAMPAIGN.toml"), *stores, "--keys", str(place / "keys")]
    with ExitStack() as opened:
        machines = [
            opened.enter_context(forked([*base, "--state-dir", str(place / name)], place))
            for name in ("one", "other")
        ]
        assert [machine.wait(PATIENCE_S) for machine in machines] == [8, 8]
    record = RecordSettings(database=SecretStr(postgres_url), keys=place / "keys")
    with (
        open_store(place, f"{postgres_url}_list") as store,
        closing(read_trail(place, record)) as trail,
    ):
        fixes = store.fixes("spring")
        begun = Counter(it.scope.fix_id for it in trail.events(kinds=frozenset({"FixStarted"})))
    assert [one.state for one in fixes] == [FixState.PARTLY] * 4
    assert begun == {one.fix_id: 1 for one in fixes}
    assert [one.takes for one in fixes] == [1] * 4
