"""What a host or the command line decides, and where things are."""

from pathlib import Path

from pydantic import Field, SecretStr

from fallback_audit.frozen import Frozen
from fallback_tier.budget.meter import BudgetLimits
from fallback_tier.repo import Settings


class Configuration(Frozen):
    """What a host or the command line decides. Secrets are SecretStr: they don't print.

    ``api_key`` goes to the model's server, ``judge_api_key`` to the judge's; ``secrets`` are further
    values that no prompt may carry. Without a judge the grounding of a plan is not evaluated. ``price``:
    ``IN:OUT``, what a million tokens cost of a model that the price table doesn't have.
    """

    state_dir: Path
    model: str | None = None
    base_url: str | None = None
    api_key: SecretStr | None = None
    secrets: tuple[SecretStr, ...] = ()
    script: Path | None = None
    judge_model: str | None = None
    judge_base_url: str | None = None
    judge_api_key: SecretStr | None = None
    judge_script: Path | None = None
    examples: Path | None = None
    routing_floor: float | None = None
    sandbox_waiver: str | None = None
    budget: BudgetLimits = Field(default_factory=BudgetLimits)
    price: str | None = None
    settings: Settings = Field(default_factory=Settings)


def audit_db(state_dir: Path) -> Path:
    """Where the audit trail is."""
    return state_dir / "audit.db"


def evidence_dir(state_dir: Path) -> Path:
    """Where the evidence store is."""
    return state_dir / "evidence"
