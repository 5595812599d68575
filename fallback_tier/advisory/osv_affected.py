"""What an OSV record says is affected (schema 1.7): packages, ranges and their events."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator


class OsvModel(BaseModel):
    """What every part of a record has in common: it is frozen, and other fields are no fault."""

    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)


class Event(OsvModel):
    """One bound of a range. OSV sets exactly one of these per event."""

    introduced: str | None = None
    fixed: str | None = None
    last_affected: str | None = None
    limit: str | None = None


class Range(OsvModel):
    """A list of events. ``GIT`` ranges hold commits and say nothing about versions."""

    type: Literal["SEMVER", "ECOSYSTEM", "GIT"]
    events: tuple[Event, ...] = ()


class Package(OsvModel):
    """The affected package, as the ecosystem's registry names it."""

    name: str = Field(min_length=1)
    ecosystem: str = Field(min_length=1)
    purl: str | None = None


class Affected(OsvModel):
    """What is affected: ranges and an explicit list; a version in either is."""

    package: Package | None = None
    ranges: tuple[Range, ...] = ()
    versions: tuple[str, ...] = ()

    @field_validator("ranges", "versions", mode="before")
    @classmethod
    def _null_is_empty(cls, value: Any) -> Any:
        return () if value is None else value
