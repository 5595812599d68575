"""The affected part of an OSV record (schema 1.7): packages, ranges and their events."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from fallback_tier.ecosystem_rules import ecosystems


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

    @field_validator("name", mode="before")
    @classmethod
    def _without_space(cls, value: Any) -> Any:
        return value.strip() if isinstance(value, str) else value

    @field_validator("ecosystem", mode="before")
    @classmethod
    def _as_osv_spells_it(cls, value: Any) -> Any:
        """Return the ecosystem in OSV's spelling: in another case it would be another ecosystem, and its
        ranges would be missing in a merge."""
        if not isinstance(value, str):
            return value
        base, colon, suffix = value.strip().partition(":")
        spellings = {name.casefold(): name for name in ecosystems()}
        return f"{spellings.get(base.casefold(), base)}{colon}{suffix}"


class Affected(OsvModel):
    """What is affected: ranges and an explicit list; a version in either is."""

    package: Package | None = None
    ranges: tuple[Range, ...] = ()
    versions: tuple[str, ...] = ()

    @field_validator("ranges", "versions", mode="before")
    @classmethod
    def _null_is_empty(cls, value: Any) -> Any:
        return () if value is None else value
