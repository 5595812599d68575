"""An order: what a worker somewhere makes its configuration of."""

from pathlib import Path

from pydantic import SecretStr

from fallback_tier.budget.meter import BudgetLimits
from fallback_tier.fleet.fix_order import FixOrder
from fallback_tier.wiring import Configuration, RecordSettings
from fallback_tier.workers.tables import RepositorySettings


def test_a_configuration_comes_back_with_the_workers_own_places(tmp_path: Path) -> None:
    began = Configuration(
        state_dir=Path("/elsewhere"),
        model="claude-opus-5",
        api_key=SecretStr("of the one who planned"),
        budget=BudgetLimits(usd_per_fix="2.50"),
    )
    order = FixOrder(
        fix_id="fix-0",
        campaign="c",
        repository="app",
        source=RepositorySettings(path=tmp_path),
        base_commit="f" * 40,
        advisory_id="GHSA-1",
        advisory={"id": "GHSA-1"},
        ecosystem="npm",
        configuration=began.recorded(),
    )
    sent = order.model_dump_json()
    assert "of the one who planned" not in sent
    configured = FixOrder.model_validate_json(sent).configured(
        tmp_path, RecordSettings(keep_prompts=True), api_key=SecretStr("the worker's")
    )
    assert (configured.state_dir, configured.model) == (tmp_path, "claude-opus-5")
    assert configured.budget == began.budget
    assert configured.record.keep_prompts
    assert configured.api_key == SecretStr("the worker's")
