"""`fix --commit` and `--report`: where a proved patch goes, on record, for one advisory and for several."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from fallback_audit.events import PatchDelivered
from fallback_audit.stores.sqlite import SqliteAuditStore
from fallback_audit.vocabulary import DeliveryPlace
from fallback_tier.cli import exit_codes
from fallback_tier.errors import ConfigurationError, PatchError
from fallback_tier.wiring import audit_db
from tests.e2e.command import snapshot
from tests.fakes.repository import git
from tests.integration.test_cli_several import Scenario, breaking, ecosystem, printed
from tests.kinds import OfKind
from tests.unit.planning.test_planning import advisory, both

FILES = {"patch.diff", "pull-request.md", "openvex.json", "cyclonedx.json"}


@pytest.fixture
def scenario(tmp_path: Path) -> Scenario:
    made = Scenario(tmp_path)
    git(made.repo, "config", "user.name", "A Person")
    git(made.repo, "config", "user.email", "person@example.invalid")
    return made


def deliveries(scenario: Scenario) -> list[PatchDelivered]:
    store = SqliteAuditStore(audit_db(scenario.state))
    found = [link.payload for link in store.events(kinds=frozenset({"PatchDelivered"}))]
    store.close()
    return found  # type: ignore[return-value]


def checkout(scenario: Scenario) -> tuple[object, ...]:
    """The user's branch, index and files."""
    digests = snapshot(scenario.repo).digests
    own = {path: digest for path, digest in digests.items() if not path.startswith(".git/")}
    kept = {name: digests[f".git/{name}"] for name in ("HEAD", "index", "config")}
    return own, kept, git(scenario.repo, "rev-parse", "HEAD")


def committed(scenario: Scenario, reported: dict[str, Any]) -> dict[str, str]:
    """The files of the commit that differ from the base."""
    commit = reported["commit"]["commit"]
    names = git(scenario.repo, "diff", "--name-only", "HEAD", commit).split()
    return {name: git(scenario.repo, "show", f"{commit}:{name}") for name in names}


def test_a_commit_leaves_the_checkout_as_it_is(
    scenario: Scenario, capsys: pytest.CaptureFixture[str]
) -> None:
    before = checkout(scenario)
    assert scenario.fix(advisory("A", "left"), commit="") == exit_codes.OK
    reported = printed(capsys)
    assert checkout(scenario) == before
    assert reported["delivered"] is True
    assert reported["commit"]["branch"] == "fallback-tier/A"
    assert (
        git(scenario.repo, "rev-parse", "fallback-tier/A").strip() == reported["commit"]["commit"]
    )
    assert list(committed(scenario, reported).values()) == ["left 2.0.0\nright 1.0.0\n"]
    message = git(scenario.repo, "log", "-1", "--format=%B", "fallback-tier/A")
    assert message.startswith("Fix A\n\nA: fixed; the proof passes, tests not run.\n")
    assert f"Fallback-Tier-Fix: {reported['fix_id']}" in message
    (delivery,) = deliveries(scenario)
    assert delivery.place is DeliveryPlace.BRANCH
    assert delivery.reference == f"fallback-tier/A {reported['commit']['commit']}"
    assert scenario.kinds[-1] == "PatchDelivered"


def test_the_same_patch_on_the_same_commit_makes_no_second_branch(
    scenario: Scenario, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever the branch is called: what holds the patch already is found and said."""
    assert scenario.fix(advisory("A", "left"), commit="mine") == exit_codes.OK
    first = printed(capsys)["commit"]
    assert first["existed"] is False
    before = git(scenario.repo, "for-each-ref")
    for name in ("", "mine", "other"):
        assert scenario.fix(advisory("A", "left"), commit=name) == exit_codes.OK
        assert printed(capsys)["commit"] == {**first, "existed": True}
    assert git(scenario.repo, "for-each-ref") == before
    assert {it.reference for it in deliveries(scenario)} == {f"mine {first['commit']}"}
    assert scenario.fix(advisory("A", "left"), commit="", json=False) == exit_codes.OK
    out = " ".join(capsys.readouterr().out.split())
    assert "no branch was made, this patch is already on the same base commit" in out
    assert f"branch mine: {first['commit'][:12]}" in out


def test_another_patch_for_the_same_advisory_has_a_branch_of_its_own(
    scenario: Scenario, capsys: pytest.CaptureFixture[str]
) -> None:
    assert scenario.fix(advisory("A", "left"), commit="") == exit_codes.OK
    first = printed(capsys)["commit"]
    # On the same base commit, but another patch: and the same patch on another base commit.
    assert scenario.fix(advisory("A", "right"), commit="") == exit_codes.OK
    other = printed(capsys)["commit"]
    git(scenario.repo, "commit", "-q", "--allow-empty", "-m", "the next base commit")
    assert scenario.fix(advisory("A", "left"), commit="") == exit_codes.OK
    moved = printed(capsys)["commit"]
    assert first["branch"] == "fallback-tier/A"
    for made in (other, moved):
        assert made["branch"].startswith("fallback-tier/A-fix-")
        assert made["existed"] is False


def test_a_named_branch_with_another_patch_is_not_overwritten(scenario: Scenario) -> None:
    assert scenario.fix(advisory("A", "left"), commit="mine") == exit_codes.OK
    before = git(scenario.repo, "rev-parse", "mine")
    with pytest.raises(PatchError, check=OfKind("branch_taken"), match="'mine'"):
        scenario.fix(advisory("A", "right"), commit="mine")
    assert git(scenario.repo, "rev-parse", "mine") == before


def test_a_branch_is_named_after_what_was_fixed(
    scenario: Scenario, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first that was asked for has no fix, and another is proved in vain: neither names the branch."""
    scenario.plugins["npm"] = ecosystem("npm", accepts=False)
    left, failed = advisory("LEFT", "right@never"), advisory("N", "left", ecosystem="npm")
    assert scenario.fix(left, advisory("A", "left"), failed, commit="") != exit_codes.OK
    reported = printed(capsys)
    assert reported["commit"]["branch"] == "fallback-tier/A"
    assert "LEFT" not in git(scenario.repo, "log", "-1", "--format=%B", "fallback-tier/A")


def test_a_branch_for_many_is_short_and_the_same_in_any_order(
    scenario: Scenario, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [advisory(f"GHSA-{name * 4}-{name * 4}-{name * 4}", "left") for name in "qrvwx"]
    assert scenario.fix(*given, commit="") == exit_codes.OK
    first = printed(capsys)["commit"]
    named = re.fullmatch(
        r"fallback-tier/GHSA-qqqq-qqqq-qqqq-and-4-more-[0-9a-f]{8}", first["branch"]
    )
    assert named
    assert scenario.fix(*reversed(given), commit="") == exit_codes.OK
    again = printed(capsys)["commit"]
    assert (again["branch"], again["commit"], again["existed"]) == (
        first["branch"],
        first["commit"],
        True,
    )
    git(scenario.repo, "branch", "-D", first["branch"])
    assert scenario.fix(*given[:4], commit="") == exit_codes.OK
    assert printed(capsys)["commit"]["branch"] not in (first["branch"], first["branch"][:-9])


def test_a_branch_for_few_names_them_all(
    scenario: Scenario, capsys: pytest.CaptureFixture[str]
) -> None:
    assert scenario.fix(*(advisory(name, "left") for name in "BAC"), commit="") == exit_codes.OK
    assert printed(capsys)["commit"]["branch"] == "fallback-tier/A-B-C"


def test_a_branch_for_a_long_identifier_is_cut(
    scenario: Scenario, capsys: pytest.CaptureFixture[str]
) -> None:
    assert scenario.fix(advisory("A" * 200, "left"), commit="") == exit_codes.OK
    branch = printed(capsys)["commit"]["branch"]
    assert re.fullmatch(r"fallback-tier/A{40}-[0-9a-f]{8}", branch)


def test_several_are_one_commit_and_a_folder_each(
    scenario: Scenario, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    report = tmp_path / "report"
    assert (
        scenario.fix(both("A", "left", "right"), commit="mine", report=str(report)) == exit_codes.OK
    )
    reported = printed(capsys)
    assert set(committed(scenario, reported)) == {"npm.txt", "pypi.txt"}
    assert {place.name for place in report.iterdir()} == {"npm", "pypi"}
    for folder in report.iterdir():
        assert {place.name for place in folder.iterdir()} == FILES
        product = json.loads((folder / "openvex.json").read_text())["statements"][0]["products"][0]
        assert product["@id"] == f"pkg:generic/repo@{reported['commit']['commit']}"
    assert [delivery.place for delivery in deliveries(scenario)] == [DeliveryPlace.BRANCH] * 2
    assert scenario.kinds.count("PatchDelivered") == 2


def test_a_body_names_the_advisories_of_the_run_that_it_is_not_about(
    scenario: Scenario, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Of another part, without a fix, refused by gates, and not affected."""
    report = tmp_path / "report"
    scenario.plugins["PyPI"] = breaking("right")
    given = (
        advisory("A", "left"),
        advisory("B", "right"),
        advisory("C", "right@never"),
        advisory("N", "left", ecosystem="npm"),
        advisory("X", "absent"),
    )
    assert scenario.fix(*given, commit="mine", report=str(report)) == exit_codes.ESCALATED
    reported = printed(capsys)
    assert [fix["delivered"] for fix in reported["fixes"]].count(True) == 2
    body = (report / "pypi" / "pull-request.md").read_text()
    start = body.index("## Not in this change\n")
    assert body.index("## How to verify\n") < start
    section = body[start:]
    lines = [line for line in section.splitlines() if line.startswith("- ")]
    assert [line.split(":")[0] for line in lines] == ["- `B`", "- `C`", "- `X`"]
    assert "**not fixed**" in lines[0]
    assert "failed at gate proof" in lines[0]
    assert "**not fixed**" in lines[1]
    assert "not affected" in lines[2]
    its = (report / "npm" / "pull-request.md").read_text()
    for text, name, own in ((body, "N", "A"), (its, "A", "N")):
        (together,) = (line for line in text.splitlines() if line.startswith("Delivered together"))
        assert f"`{name}`" in together
        assert f"`{own}`" not in together
    assert "- `A`" not in its[its.index("## Not in this change\n") :]


def test_a_body_of_all_advisories_says_nothing_of_others(
    scenario: Scenario, tmp_path: Path
) -> None:
    report = tmp_path / "report"
    given = (advisory("A", "left"), advisory("B", "right"))
    assert scenario.fix(*given, report=str(report)) == exit_codes.OK
    assert "## Not in this change" not in (report / "pull-request.md").read_text()


def test_a_dry_run_writes_its_report_and_delivers_nothing(
    scenario: Scenario, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    before = snapshot(scenario.repo)
    report = tmp_path / "report"
    code = scenario.fix(advisory("A", "left"), dry_run=True, report=str(report))
    assert (code, snapshot(scenario.repo)) == (exit_codes.OK, before)
    assert printed(capsys)["delivered"] is False
    assert {place.name for place in report.iterdir()} == FILES
    assert deliveries(scenario) == []


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({"commit": "", "dry_run": True}, "two_deliveries"),
        ({"commit": "a..b"}, "bad_branch_name"),
        ({"commit": "there"}, "branch_taken"),
        ({"report": "."}, "exists"),
        ({"report": "no/such/place"}, "no_parent"),
    ],
)
def test_what_can_not_be_done_is_said_before_the_work(
    scenario: Scenario, options: dict[str, Any], kind: str
) -> None:
    git(scenario.repo, "branch", "there")
    with pytest.raises(ConfigurationError, check=OfKind(kind)):
        scenario.fix(advisory("A", "left"), **options)
    assert scenario.kinds == []
