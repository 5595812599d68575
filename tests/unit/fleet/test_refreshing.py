"""What may have changed of a fix that is over, and whether one may run."""

from pathlib import Path

from fallback_tier.fleet.campaign_control import is_claimed
from fallback_tier.fleet.scheduling import StartLimits
from fallback_tier.fleet.store.store import open_store
from tests.unit.fleet.made import NAME, fix, planned


def test_a_campaigns_fix_may_run_once_it_is_started(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        store.create(planned([fix(0, "a"), fix(1, "b")]))
        store.claim(NAME, "one", StartLimits(fixes_at_once=1))
        assert is_claimed(store, "fix-0")
        assert not is_claimed(store, "fix-1")
        assert is_claimed(store, "of-no-campaign")
