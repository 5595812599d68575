"""A campaign's list: which pairs are in it, in which order, and what is left out."""

import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import pytest

from fallback_audit.evidence.store import MAX_EVIDENCE_BYTES
from fallback_tier.advisory import parse_advisory
from fallback_tier.cli.fleet.showing import status_document
from fallback_tier.fleet.campaign_file import MAX_PROOF_BYTES, Campaign, parse_campaign
from fallback_tier.fleet.campaign_planner import Planner
from fallback_tier.fleet.campaign_report import report_document, report_page
from fallback_tier.fleet.errors import CampaignError
from fallback_tier.fleet.fix_order import listed_order, order_of
from fallback_tier.fleet.store.store import Planned, open_store
from fallback_tier.gates.builtin.proof_given import Proof, ProofError
from fallback_tier.installed_plugins import clients_and_plugins
from fallback_tier.wiring import RecordSettings
from fallback_tier.workers.checkouts import Checkouts
from tests.kinds import OfKind

USER = {"GIT_CONFIG_GLOBAL": ""}


def repository(place: Path, name: str, more: Mapping[str, str] = MappingProxyType({})) -> None:
    """An npm project that depends on ``name``. ``more``: further manifests, and what they depend on."""
    clients, _ = clients_and_plugins()
    for path, needed in {"package.json": name, **more}.items():
        (place / path).parent.mkdir(parents=True, exist_ok=True)
        (place / path).write_text(
            json.dumps({"name": "app", "version": "1.0.0", "dependencies": {needed: "1.0.0"}})
        )
    who = ["-c", "user.name=t", "-c", "user.email=t@example.invalid"]
    for words in (["init", "-q"], ["add", "."], [*who, "commit", "-q", "-m", "first"]):
        assert clients.run("git", words, cwd=place, timeout_s=30, env=USER).ok


def advisory(place: Path, name: str, package: str, ecosystem: str = "npm", **more: object) -> None:
    place.mkdir(exist_ok=True)
    affected = [{"package": {"ecosystem": ecosystem, "name": package}, "versions": ["1.0.0"]}]
    record = {"id": name, "modified": "2026-01-01T00:00:00Z", "affected": affected, **more}
    (place / f"{name}.json").write_text(json.dumps(record))


def campaign(tmp_path: Path, text: str) -> Campaign:
    return parse_campaign(f'name = "spring"\n{text}', tmp_path / "CAMPAIGN.toml")


def plan(tmp_path: Path, text: str) -> Planned:
    clients, plugins = clients_and_plugins()
    checkouts = Checkouts(tmp_path / "state", clients, tmp_path / "state" / "fleet")
    return Planner(checkouts, plugins).plan(campaign(tmp_path, text))


def test_only_what_may_concern_a_repository_is_in_the_list(tmp_path: Path) -> None:
    repository(tmp_path / "all" / "shop", "left")
    repository(tmp_path / "all" / "blog", "right")
    (tmp_path / "all" / "notes").mkdir()
    advisory(tmp_path / "advisories", "TEST-1", "left")
    advisory(tmp_path / "advisories", "TEST-2", "right")
    advisory(tmp_path / "advisories", "TEST-3", "elsewhere")
    found = plan(tmp_path, 'checkouts = ["all"]\nadvisories = ["advisories"]')
    fixes = [one.fix for one in found.fixes]
    assert {(it.repository, it.advisory_id) for it in fixes} == {
        ("shop", "TEST-1"),
        ("blog", "TEST-2"),
    }
    assert [it.number for it in fixes] == [0, 1]
    assert found.unnamed == 4
    assert {it.repository for it in found.repositories} == {"shop", "blog"}
    again = parse_advisory(found.fixes[0].advisory.encode(), "the list")
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
    assert [one.fix.repository for one in found.fixes] == ["shop"]


def test_what_is_urgent_comes_first(tmp_path: Path) -> None:
    repository(tmp_path / "all" / "shop", "left")
    repository(tmp_path / "all" / "blog", "right")
    advisory(tmp_path / "advisories", "TEST-1", "left")
    advisory(tmp_path / "advisories", "TEST-2", "right", aliases=["CVE-2026-7"])
    (tmp_path / "kev.json").write_text('{"vulnerabilities": [{"cveID": "CVE-2026-7"}]}')
    text = 'checkouts = ["all"]\nadvisories = ["advisories"]\n[priority]\nkev = "kev.json"'
    first, second = (one.fix for one in plan(tmp_path, text).fixes)
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
    assert [one.fix.repository for one in found.fixes] == ["shop"]
    out = {one.what: one.why for one in found.left_out}
    assert "is not a folder" in out["repository gone"]
    assert out["TEST-2"] == "No plugin serves crates.io."


def test_manifests_that_were_not_read_are_told(tmp_path: Path) -> None:
    """Those next to the root are read first."""
    repository(tmp_path / "shop", "left", {"a/b/package.json": "right", "c/package.json": "left"})
    advisory(tmp_path / "advisories", "TEST-1", "left")
    advisory(tmp_path / "advisories", "TEST-2", "right")
    text = 'advisories = ["advisories"]\n[repositories.shop]\npath = "shop"\n[limits]\n'
    text += "manifests_per_repository = "
    assert len(plan(tmp_path, text + "3").fixes) == 2
    found = plan(tmp_path, text + "2")
    assert [one.fix.advisory_id for one in found.fixes] == ["TEST-1"]
    (left,) = found.left_out
    assert left.what == "repository shop"
    assert "1 of its 3 manifests of npm were not read" in left.why
    with open_store(tmp_path) as store:
        store.create(found)
        assert store.left_out("spring") == (left,)
        assert status_document(store, "spring")["left_out"] == [left.model_dump()]
        report = report_document(store.campaign("spring"), (), store.left_out("spring"))
        assert "manifests of npm were not read" in report_page(report)


def test_a_campaign_with_nothing_to_fix_is_said(tmp_path: Path) -> None:
    repository(tmp_path / "all" / "shop", "left")
    advisory(tmp_path / "advisories", "TEST-1", "elsewhere")
    with pytest.raises(CampaignError, check=OfKind("nothing_to_fix")):
        plan(tmp_path, 'checkouts = ["all"]\nadvisories = ["advisories"]')


PROOF = """
[[proofs]]
repository = "shop"
advisory = "CVE-2026-7"
command = ["python", "-m", "unittest", "flaw_test"]
files = { "flaw_test.py" = "proofs/shop.py" }
"""

CONCERNED = 'checkouts = ["all"]\nadvisories = ["advisories"]\n'


@pytest.fixture
def two(tmp_path: Path) -> Path:
    """Two repositories, an advisory about both, and a proof's file."""
    for name in ("shop", "blog"):
        repository(tmp_path / "all" / name, "left")
    advisory(tmp_path / "advisories", "TEST-1", "left", aliases=["CVE-2026-7"])
    (tmp_path / "proofs").mkdir()
    (tmp_path / "proofs" / "shop.py").write_bytes(b"a test\n")
    return tmp_path


def test_a_proof_is_of_one_advisory_in_one_repository(two: Path) -> None:
    found = plan(two, CONCERNED + PROOF)
    (two / "proofs" / "shop.py").write_bytes(b"changed later\n")
    assert not found.left_out
    with open_store(two) as store:
        store.create(found)
        orders = {
            fix.repository: order_of(store.ordered(fix.fix_id), campaign(two, CONCERNED + PROOF))
            for fix in store.every("spring")
        }
        listed = {fix.repository: listed_order(store, fix.fix_id) for fix in store.every("spring")}
    assert listed == orders
    given = {name: order.configured(two, RecordSettings()).proof for name, order in orders.items()}
    assert given == {
        "shop": Proof(("python", "-m", "unittest", "flaw_test"), {"flaw_test.py": b"a test\n"}),
        "blog": None,
    }


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"shop"', '"shopp"'),
        ('"CVE-2026-7"', '"CVE-2026-8"'),
        ("command", 'ecosystem = "PyPI"\ncommand'),
    ],
)
def test_a_proof_of_nothing_is_said(two: Path, old: str, new: str) -> None:
    found = plan(two, CONCERNED + PROOF.replace(old, new, 1))
    (left,) = found.left_out
    assert left.what.startswith("proof of")
    assert {one.proof for one in found.fixes} == {None}


def test_a_proof_that_can_not_be_read_is_said_before_the_work(two: Path) -> None:
    (two / "proofs" / "shop.py").unlink()
    with pytest.raises(
        CampaignError, check=OfKind("unreadable"), match=r"\bCVE-2026-7\b.*\bshop\b.*shop\.py"
    ):
        plan(two, CONCERNED + PROOF)
    with pytest.raises(ProofError, check=OfKind("outside")):
        plan(
            two,
            CONCERNED
            + PROOF.replace('"flaw_test.py" =', '"../flaw_test.py" =').replace(
                "shop.py", "../advisories/TEST-1.json"
            ),
        )


def test_a_proof_whose_orders_no_record_would_take_is_refused_when_it_is_planned(two: Path) -> None:
    """At its limit it fits: the campaign is not stopped by its first fix."""
    large = PROOF.replace(" }", ', "large.bin" = "proofs/large.bin" }')
    (two / "proofs" / "large.bin").write_bytes(b"x" * (MAX_PROOF_BYTES - len(b"a test\n")))
    found = plan(two, CONCERNED + large)
    with open_store(two) as store:
        store.create(found)
        (shop,) = (one for one in store.every("spring") if one.repository == "shop")
        order = order_of(store.ordered(shop.fix_id), campaign(two, CONCERNED + large))
    assert MAX_PROOF_BYTES < len(order.model_dump_json()) < MAX_EVIDENCE_BYTES
    with (two / "proofs" / "shop.py").open("ab") as file:
        file.write(b"#")
    with pytest.raises(CampaignError, check=OfKind("too_large"), match=r"\bshop\b.*\b8,388,608\b"):
        plan(two, CONCERNED + large)


def test_another_proof_is_another_list(two: Path) -> None:
    assert campaign(two, CONCERNED).digest != campaign(two, CONCERNED + PROOF).digest
    with pytest.raises(CampaignError, check=OfKind("not_valid")):
        campaign(two, CONCERNED + PROOF + PROOF)
