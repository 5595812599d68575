"""One owner of workers a state folder."""

from pathlib import Path

import pytest

from fallback_tier.errors import HeldError
from fallback_tier.workers.alone import alone
from tests.kinds import OfKind


def test_one_process_holds_a_lock_at_a_time(tmp_path: Path) -> None:
    busy = HeldError("Another one.", next_step="Wait.", kind="another_run")
    with (
        alone(tmp_path, "fleet/run.lock", busy),
        pytest.raises(HeldError, check=OfKind("another_run")),
        alone(tmp_path, "fleet/run.lock", busy),
    ):
        pass
    with alone(tmp_path, "fleet/run.lock", busy), alone(tmp_path, "service/run.lock", busy):
        pass
