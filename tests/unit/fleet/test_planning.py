"""A campaign's list: which pairs are in it, in which order, and what is left out."""

import json
from pathlib import Path

import pytest

from fallback_tier.advisory import parse_advisory
from fallback_tier.fleet.campaign import parse_campaign
from fallback_tier.fleet.planning import CampaignPlan, Planner
from fallback_tier.fleet.refusals import CampaignError
from fallback_tier.installed import clients_and_plugins
from fallback_tier.workers.checkouts import Checkouts

USER = {"GIT_CONFIG_GLOBAL": ""}


def repository(place: Path, name: str, version: str = "1.0.0") -> None:
    """An npm project that depends on ``name``."""
    clients, _ = clients_and_plugins()
    place.mkdir(parents=True)
    (place / "package.json").write_text(
        json.dumps({"name": "app", "version": "1.0.0", "dependencies": {name: version}})
    )
    who = ["-c", "user.name=t", "-c", "user.email=t@example.invalid"]
    for words in (["init", "-q"], ["add", "."], [*who, "commit", "-q", "-m", "first"]):
        assert clients.run("git", words, cwd=place, timeout_s=30, env=USER).ok


def advisory(place: Path, name: str, package: str, ecosystem: str = "npm", **more: object) -> None:
    place.mkdir(exist_ok=True)
    affected = [{"package": {"ecosystem": ecosystem, "name": package}, "versions": ["1.0.0"]}]
    record = {"id": name, "modified": "2026-01-01T00:00:00Z", "affected": affected, **more}
    (place / f"{name}.json").write_text(json.dumps(record))


def plan(tmp_path: Path, text: str) -> CampaignPlan:
    clients, plugins = clients_and_plugins()
    checkouts = Checkouts(tmp_path / "state", clients, tmp_path / "state" / "fleet")
    campaign = parse_campaign(f'name = "spring"\n{text}', tmp_path / "CAMPAIGN.toml")
    return Planner(checkouts, plugins).plan(campaign)


def test_only_what_may_concern_a_repository_is_in_the_list(tmp_path: Path) -> None:
    repository(tmp_path / "all" / "shop", "left")
    repository(tmp_path / "all" / "blog", "right")
    (tmp_path / "all" / "notes").mkdir()
    advisory(tmp_path / "advisories", "TEST-1", "left")
    advisory(tmp_path / "advisories", "TEST-2", "right")
    advisory(tmp_path / "advisories", "TEST-3", "elsewhere")
    found = plan(tmp_path, 'checkouts = ["all"]\nadvisories = ["advisories"]')
    fixes = [one.fix for one in found.planned.fixes]
    assert {(it.repository, it.advisory_id) for it in fixes} == {
        ("shop", "TEST-1"),
        ("blog", "TEST-2"),
    }
    assert [it.number for it in fixes] == [0, 1]
    assert found.unnamed == 4
    assert {it.repository for it in found.planned.repositories} == {"shop", "blog"}
    again = parse_advisory(found.planned.fixes[0].advisory.encode(), "the list")
    assert again.packages("npm")


def test_a_report_of_one_repository_is_for_it_alone(tmp_path: Path) -> None:
    for name in ("shop", "blog"):
        repository(tmp_path / name, "left")
    advisory(tmp_path, "TEST-1", "left")
    found = plan(
        tmp_path,
        '[repositories.shop]\npath = "shop"\nadvisories = ["TEST-1.json"]\n'
        '[repositories.blog]\npath = "blog"',
    )
    assert [one.fix.repository for one in found.planned.fixes] == ["shop"]


def test_what_is_urgent_comes_first(tmp_path: Path) -> None:
    repository(tmp_path / "all" / "shop", "left")
    repository(tmp_path / "all" / "blog", "right")
    advisory(tmp_path / "advisories", "TEST-1", "left")
    advisory(tmp_path / "advisories", "TEST-2", "right", aliases=["CVE-2026-7"])
    (tmp_path / "kev.json").write_text('{"vulnerabilities": [{"cveID": "CVE-2026-7"}]}')
    text = 'checkouts = ["all"]\nadvisories = ["advisories"]\n[priority]\nkev = "kev.json"'
    first, second = (one.fix for one in plan(tmp_path, text).planned.fixes)
    assert (first.advisory_id, first.risk.kev) == ("TEST-2", True)
    assert first.priority > second.priority


def test_one_repository_that_can_not_be_read_leaves_the_others(tmp_path: Path) -> None:
    repository(tmp_path / "shop", "left")
    advisory(tmp_path / "advisories", "TEST-1", "left")
    advisory(tmp_path / "advisories", "TEST-2", "crate", "crates.io")
    found = plan(
        tmp_path,
        'advisories = ["advisories"]\n[repositories.shop]\npath = "shop"\n'
        '[repositories.gone]\npath = "gone"',
    )
    assert [one.fix.repository for one in found.planned.fixes] == ["shop"]
    out = {one.what: one.why for one in found.left_out}
    assert "is not a folder" in out["repository gone"]
    assert out["TEST-2"] == "No plugin serves crates.io."


def test_a_campaign_with_nothing_to_fix_is_said(tmp_path: Path) -> None:
    repository(tmp_path / "all" / "shop", "left")
    advisory(tmp_path / "advisories", "TEST-1", "elsewhere")
    with pytest.raises(CampaignError, match="nothing to fix"):
        plan(tmp_path, 'checkouts = ["all"]\nadvisories = ["advisories"]')
