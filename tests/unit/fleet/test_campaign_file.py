"""CAMPAIGN.toml: what is read, what is refused, and in which words."""

from pathlib import Path

import pytest

from fallback_tier.fleet.campaign_file import (
    MAX_FILE_BYTES,
    Campaign,
    parse_campaign,
    read_campaign,
)
from fallback_tier.fleet.errors import CampaignError
from tests.kinds import OfKind

SMALL = """
name = "spring"
advisories = ["advisories"]
[repositories.shop]
path = "shop"
"""


def read(text: str, tmp_path: Path) -> Campaign:
    return parse_campaign(text, tmp_path / "CAMPAIGN.toml")


def test_paths_are_below_the_files_folder(tmp_path: Path) -> None:
    found = read(
        SMALL
        + 'advisories = ["audit.json", "/elsewhere.json"]\n'
        + '[priority]\nepss = "epss.csv"\n[delivery]\npatches = "out"\n[model]\nscript = "answers.json"',
        tmp_path,
    )
    shop = found.repositories["shop"]
    assert found.advisories == (tmp_path / "advisories",)
    assert shop.path == tmp_path / "shop"
    assert shop.advisories == (tmp_path / "audit.json", Path("/elsewhere.json"))
    assert found.priority.epss == tmp_path / "epss.csv"
    assert found.delivery.patches == tmp_path / "out"
    assert found.model.script == tmp_path / "answers.json"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("name = ", "is not TOML"),
        ('name = "Spring"' + SMALL.replace('name = "spring"', ""), "name: String should match"),
        (SMALL.replace("path =", "pth ="), "repositories.shop"),
        (SMALL + "[limits]\nusd = '5'", "usd needs usd_per_fix"),
        (SMALL + "[limits]\nusd = '5'\nusd_per_fix = '6'", "no fix could start"),
        (SMALL + "[engine]\naddress = 'h:7233'", "address names a cluster"),
        (
            SMALL + "[engine]\nkind = 'temporal'\naddress = 'h:7233'\ntls_key = 'k'",
            "belong together",
        ),
        (SMALL + "[repositories.x]\nurl = 'https://git.example/x.git'", "allowed_urls"),
        (
            (
                f"allowed_urls = ['https://git.example/']\n{SMALL}"
                "[repositories.x]\nurl = 'https://git.example/x.git'\n[delivery]\ndeliver = 'branch'"
            ),
            "never pushed: give its path",
        ),
        ('name = "spring"\nadvisories = ["a"]', "name repositories"),
        ('name = "spring"\n[repositories.x]\npath = "x"', "name advisories"),
        ('name = "spring"\nrepositories = 3', "repositories"),
        (SMALL + "[provider]\nrequests_per_minute = 0", "provider.requests_per_minute"),
        (SMALL + "[model]\nbase_url = 'https://me:pw@h.example'", "model.base_url"),
        (SMALL + "[model]\njudge_base_url = 'https://me@h.example'", "model.judge_base_url"),
    ],
)
def test_what_is_wrong_is_named(text: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(CampaignError) as caught:
        read(text, tmp_path)
    assert words in caught.value.problem
    assert "CAMPAIGN.toml" in caught.value.problem
    assert caught.value.next_step


def test_a_url_below_an_allowed_one_is_taken(tmp_path: Path) -> None:
    url = "https://git.example/team/"
    text = f'allowed_urls = ["{url}"]\n{SMALL}[repositories.x]\nurl = "{url}x.git"'
    assert read(text, tmp_path).repositories["x"].url == f"{url}x.git"


def test_limits_may_change_and_the_list_is_the_same(tmp_path: Path) -> None:
    known = read(SMALL, tmp_path).digest
    assert read(SMALL + "[limits]\nfixes_per_host = 3", tmp_path).digest == known
    assert read(SMALL.replace("shop", "store"), tmp_path).digest != known


def test_a_fix_has_the_campaigns_caps(tmp_path: Path) -> None:
    text = SMALL + "[limits]\nusd = '5'\nusd_per_fix = '0.50'\n[model]\nmodel = 'claude-opus-5'"
    found = read(text, tmp_path)
    assert (found.cap, found.fix_cap) == (5_000_000, 500_000)
    assert found.configuration().budget.usd_per_fix == "0.50"
    assert found.start_limits(3).at_most == 3


def test_a_file_that_can_not_be_read_is_said(tmp_path: Path) -> None:
    place = tmp_path / "CAMPAIGN.toml"
    with pytest.raises(CampaignError, check=OfKind("unreadable"), match="No such file"):
        read_campaign(place)
    place.write_bytes(b"\xff")
    with pytest.raises(CampaignError, check=OfKind("unreadable"), match="UTF-8"):
        read_campaign(place)
    place.write_bytes(b"#" * (MAX_FILE_BYTES + 1))
    with pytest.raises(CampaignError, check=OfKind("too_large")):
        read_campaign(place)


def test_the_pages_example_is_a_campaign(tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs" / "fleet.md").read_text()
    example = page.partition("```toml\n")[2].partition("```")[0]
    found = read(example, tmp_path)
    assert set(found.repositories) == {"shop", "billing"}
    assert found.cap == 500_000_000
