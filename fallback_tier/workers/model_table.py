"""The model that fixes ask, as configuration files name it: the service's, a campaign's."""

from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from fallback_tier.limits import OUTPUT_TOKENS, SMALL_CODE_ROOM_BYTES, SMALL_OUTPUT_TOKENS
from fallback_tier.repo import Effort, Settings
from fallback_tier.wiring.configuration import answer_form_for, is_local


class ModelTable(BaseModel):
    """The model, as ``fallback-tier fix`` has it; none: recipes and examples only. Keys: environment."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: str | None = Field(default=None, description="a Messages API model, or local:FILE.gguf")
    base_url: str | None = Field(default=None, description="a server that speaks the Messages API")
    judge_model: str | None = Field(default=None, description="judges whether a plan is supported")
    judge_base_url: str | None = Field(default=None, description="the judge's server")
    script: Path | None = Field(
        default=None, description="scripted answers instead of a model (tests)"
    )
    examples: Path | None = Field(default=None, description="an example store")
    effort: Effort | None = Field(default=None, description="how much the model is to think")
    price: str | None = Field(default=None, description="IN:OUT, dollars per million tokens")

    def chosen(self) -> dict[str, Any]:
        """As the fields of a Configuration."""
        return self.model_dump(exclude={"effort"})

    def settings(self) -> dict[str, Any]:
        """As the fields of an attempt's Settings. A model on this machine has a small window."""
        small = is_local(self.model)
        space = SMALL_CODE_ROOM_BYTES if small else Settings().own_code_budget_bytes
        return {
            "max_output_tokens": SMALL_OUTPUT_TOKENS if small else OUTPUT_TOKENS,
            "effort": self.effort,
            "answer_form": answer_form_for(self.model),
            "own_code_budget_bytes": space,
        }
