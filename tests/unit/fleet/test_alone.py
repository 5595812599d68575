"""One runner a state folder."""

from pathlib import Path

import pytest

from fallback_tier.fleet.campaign_runner import alone
from fallback_tier.fleet.errors import CampaignError
from tests.kinds import OfKind


def test_there_is_one_runner_a_state_folder(tmp_path: Path) -> None:
    with (
        alone(tmp_path),
        pytest.raises(CampaignError, check=OfKind("another_run")),
        alone(tmp_path),
    ):
        pass
    with alone(tmp_path):
        pass
