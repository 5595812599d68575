"""A repository that may be named, as configurations have it: the service's, a campaign's."""

from pathlib import Path
from typing import Annotated, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from fallback_tier.configured import GateSettings

#: Name of a repository, as a configuration has it.
RepositoryName = Annotated[str, StringConstraints(pattern=r"^[a-zA-Z0-9][a-zA-Z0-9._-]{0,99}$")]

#: A branch, a tag or a commit; never an option of git's, never a range.
GitRef = Annotated[str, StringConstraints(pattern=r"^[a-zA-Z0-9][a-zA-Z0-9._/-]{0,199}$")]


class RepositorySettings(BaseModel):
    """One repository that may be named. A fix gets a checkout of its own; this one is not written."""

    model_config = ConfigDict(frozen=True, extra="forbid")

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
