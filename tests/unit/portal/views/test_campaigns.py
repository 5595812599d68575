import pytest

from fallback_tier.fleet.campaign_list import FixState
from fallback_tier.portal.pages.campaigns import TONES, WIDTH, money, progress
from fallback_tier.service.operations.campaigns import Spend


def spend(spent: str, reserved: str = "0", cap: str | None = "10") -> Spend:
    return Spend(cap=cap, spent=spent, reserved=reserved, unpriced=0, is_used_up=False)


def test_every_state_has_its_piece_and_its_own_tone() -> None:
    pieces = progress(dict.fromkeys(FixState, 3))
    assert len({one.tone for one in pieces}) == len(FixState) == len(TONES)
    assert [one.width for one in pieces] == [pytest.approx(WIDTH / len(FixState))] * len(FixState)
    assert pieces[-1].x + pieces[-1].width == pytest.approx(WIDTH)
    only = dict.fromkeys(FixState, 0) | {FixState.FAILED: 1_200}
    assert [(one.width, one.says) for one in progress(only)] == [(WIDTH, "1,200 failed")]
    assert progress(dict.fromkeys(FixState, 0)) == ()


def test_money_is_spent_reserved_or_left() -> None:
    found = money(spend("5", "2.5"))
    assert [(one.says, one.width / WIDTH) for one in found] == [
        ("spent", 0.5),
        ("reserved by running fixes", 0.25),
        ("left", 0.25),
    ]
    assert money(spend("5", cap=None)) == ()
    assert money(spend("0", cap="0")) == ()
    assert [one.tone for one in money(spend("12"))] == ["s-bad"]
