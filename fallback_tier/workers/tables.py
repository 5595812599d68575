"""Tables that the service's and a campaign's configuration share: repositories and the model."""

from pathlib import Path
from typing import Annotated, Any, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from fallback_tier.configured import GateSettings
from fallback_tier.limits import OUTPUT_TOKENS, SMALL_CODE_ROOM_BYTES, SMALL_OUTPUT_TOKENS
from fallback_tier.repo import Effort, Settings
from fallback_tier.wiring.configuration import answer_form_for, is_local


class Table(BaseModel):
    """A table of a configuration file: frozen, and without unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid")


#: Name of a repository in a configuration.
RepositoryName = Annotated[str, StringConstraints(pattern=r"^[a-zA-Z0-9][a-zA-Z0-9._-]{0,99}$")]

#: A branch, a tag or a commit; never a git option or a range.
GitRef = Annotated[str, StringConstraints(pattern=r"^[a-zA-Z0-9][a-zA-Z0-9._/-]{0,199}$")]


class RepositorySettings(Table):
    """One repository that may be named. A fix gets a checkout of its own; this one is not written."""

    path: Path | None = Field(
        default=None, description="a git repository on this machine (absolute)"
    )
    url: str | None = Field(
        default=None, description="https:// or ssh:// address of a git repository"
    )
    ref: GitRef | None = Field(
        default=None, description="branch, tag or commit (default: its HEAD)"
    )
    gates: tuple[GateSettings, ...] | None = Field(
        default=None,
        description="gates of one's own, instead of those that the base commit describes",
    )

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if (self.path is None) == (self.url is None):
            raise ValueError("give path or url, one of them")
        if self.path is not None and not self.path.is_absolute():
            raise ValueError(f"path {str(self.path)!r} is not absolute")
        if self.url is not None:
            parts = urlsplit(self.url)
            if parts.scheme not in ("https", "ssh") or not parts.hostname:
                raise ValueError("url begins with https:// or ssh://, and names a host")
            if parts.password:
                raise ValueError("url has a password in it: git's credential helper is for that")
        return self


class ModelTable(Table):
    """The model, as ``fallback-tier fix`` has it; none: recipes and examples only. Keys: environment."""

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
        """Return the fields of a Configuration."""
        return self.model_dump(exclude={"effort"})

    def settings(self) -> dict[str, Any]:
        """Return the fields of an attempt's Settings. A model on this machine has a small context
        window.
        """
        is_small = is_local(self.model)
        code_budget_bytes = SMALL_CODE_ROOM_BYTES if is_small else Settings().own_code_budget_bytes
        return {
            "max_output_tokens": SMALL_OUTPUT_TOKENS if is_small else OUTPUT_TOKENS,
            "effort": self.effort,
            "answer_form": answer_form_for(self.model),
            "own_code_budget_bytes": code_budget_bytes,
        }
