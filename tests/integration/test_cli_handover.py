"""`fix --commit` and `--report`: where a proved patch goes, on record, for one advisory and for several."""

import json
from pathlib import Path
from typing import Any

import pytest

from fallback_audit.events import PatchDelivered
from fallback_audit.stores.sqlite import SqliteAuditStore
from fallback_audit.vocabulary import DeliveryPlace
from fallback_tier.cli import exit_codes
from fallback_tier.errors import ConfigurationError
from fallback_tier.wiring import audit_db
from tests.e2e.command import snapshot
from tests.fakes.repository import git
from tests.integration.test_cli_several import Desk, printed
from tests.unit.test_planning import advisory, both

FILES = {"patch.diff", "pull-request.md", "openvex.json", "cyclonedx.json"}


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    made = Desk(tmp_path)
    git(made.repo, "config", "user.name", "A Person")
    git(made.repo, "config", "user.email", "person@example.invalid")
    return made


def deliveries(desk: Desk) -> list[PatchDelivered]:
    store = SqliteAuditStore(audit_db(desk.state))
    found = [link.payload for link in store.events(kinds=frozenset({"PatchDelivered"}))]
    store.close()
    return found  # type: ignore[return-value]


def checkout(desk: Desk) -> tuple[object, ...]:
    """The user's branch, index and files."""
    digests = snapshot(desk.repo).digests
    own = {path: digest for path, digest in digests.items() if not path.startswith(".git/")}
    kept = {name: digests[f".git/{name}"] for name in ("HEAD", "index", "config")}
    return own, kept, git(desk.repo, "rev-parse", "HEAD")


def committed(desk: Desk, said: dict[str, Any]) -> dict[str, str]:
    """The files of the commit that differ from the base."""
    commit = said["commit"]["commit"]
    names = git(desk.repo, "diff", "--name-only", "HEAD", commit).split()
    return {name: git(desk.repo, "show", f"{commit}:{name}") for name in names}


def test_a_commit_leaves_the_checkout_as_it_is(
    desk: Desk, capsys: pytest.CaptureFixture[str]
) -> None:
    before = checkout(desk)
    assert desk.fix(advisory("A", "left"), commit="") == exit_codes.OK
    said = printed(capsys)
    assert checkout(desk) == before
    assert said["delivered"] is True
    assert said["commit"]["branch"] == "fallback-tier/A"
    assert git(desk.repo, "rev-parse", "fallback-tier/A").strip() == said["commit"]["commit"]
    assert list(committed(desk, said).values()) == ["left 2.0.0\nright 1.0.0\n"]
    message = git(desk.repo, "log", "-1", "--format=%B", "fallback-tier/A")
    assert message.startswith("Fix A\n\nA: fixed; the proof passes, tests not run.\n")
    assert f"Fallback-Tier-Fix: {said['fix_id']}" in message
    (delivery,) = deliveries(desk)
    assert delivery.place is DeliveryPlace.BRANCH
    assert delivery.reference == f"fallback-tier/A {said['commit']['commit']}"
    assert desk.kinds[-1] == "PatchDelivered"


def test_the_next_branch_has_a_name_of_its_own(
    desk: Desk, capsys: pytest.CaptureFixture[str]
) -> None:
    names = []
    for _ in range(2):
        assert desk.fix(advisory("A", "left"), commit="") == exit_codes.OK
        names.append(printed(capsys)["commit"]["branch"])
    assert names[0] == "fallback-tier/A"
    assert names[1].startswith("fallback-tier/A-fix-")


def test_several_are_one_commit_and_a_folder_each(
    desk: Desk, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    report = tmp_path / "report"
    assert desk.fix(both("A", "left", "right"), commit="mine", report=str(report)) == exit_codes.OK
    said = printed(capsys)
    assert set(committed(desk, said)) == {"npm.txt", "pypi.txt"}
    assert {place.name for place in report.iterdir()} == {"npm", "pypi"}
    for folder in report.iterdir():
        assert {place.name for place in folder.iterdir()} == FILES
        product = json.loads((folder / "openvex.json").read_text())["statements"][0]["products"][0]
        assert product["@id"] == f"pkg:generic/repo@{said['commit']['commit']}"
    assert [delivery.place for delivery in deliveries(desk)] == [DeliveryPlace.BRANCH] * 2
    assert desk.kinds.count("PatchDelivered") == 2


def test_a_dry_run_writes_its_report_and_delivers_nothing(
    desk: Desk, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    before = snapshot(desk.repo)
    report = tmp_path / "report"
    code = desk.fix(advisory("A", "left"), dry_run=True, report=str(report))
    assert (code, snapshot(desk.repo)) == (exit_codes.OK, before)
    assert printed(capsys)["delivered"] is False
    assert {place.name for place in report.iterdir()} == FILES
    assert deliveries(desk) == []


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"commit": "", "dry_run": True}, "--dry-run leaves"),
        ({"commit": "a..b"}, "no name for a branch"),
        ({"commit": "there"}, "already"),
        ({"report": "."}, "already"),
        ({"report": "no/such/place"}, "no folder"),
    ],
)
def test_what_can_not_be_done_is_said_before_the_work(
    desk: Desk, options: dict[str, Any], said: str
) -> None:
    git(desk.repo, "branch", "there")
    with pytest.raises(ConfigurationError, match=said):
        desk.fix(advisory("A", "left"), **options)
    assert desk.kinds == []
