"""What was opened is closed, whatever fails meanwhile."""

from pathlib import Path

import pytest

from fallback_audit.errors import AuditStoreError
from fallback_tier.errors import ModelError
from fallback_tier.wiring import Configuration, open_services
from tests.fakes.talking import TalkingModel
from tests.kinds import OfKind

STUCK = ModelError("It does not end.", next_step="Wait.")


class StuckModel(TalkingModel):
    def close(self) -> None:
        raise STUCK


def test_a_model_that_does_not_close_leaves_no_store_open(tmp_path: Path) -> None:
    configuration = Configuration(state_dir=tmp_path, sandbox_waiver="no sandbox here")
    with (
        pytest.raises(ModelError) as caught,
        open_services(configuration, author=StuckModel()) as services,
    ):
        assert list(services.audit.events()) == []
    assert caught.value is STUCK
    with pytest.raises(AuditStoreError, check=OfKind("closed")):
        list(services.audit.events())
