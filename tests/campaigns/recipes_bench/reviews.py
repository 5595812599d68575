"""The reviewed table: which refusals are right, and why. Written by reading each case."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fallback_audit.vocabulary import RefusalReason

REVIEWED = Path(__file__).parent / "reviewed.toml"


@dataclass(frozen=True)
class Refusal:
    """A refusal that is right: for one of these reasons, in a sentence that has each of these words."""

    accept: tuple[str, ...]
    names: tuple[str, ...]
    why: str


@dataclass(frozen=True)
class Reviews:
    """``refusals``: right ones. ``misses``: refusals that were read and are wrong. ``fixes``: fixes of
    fixtures that differ from the peer's and are as good or better. By case."""

    refusals: Mapping[str, Refusal] = field(default_factory=dict)
    misses: Mapping[str, str] = field(default_factory=dict)
    fixes: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        reasons = {reason.value for reason in RefusalReason}
        for case, refusal in self.refusals.items():
            if not (refusal.names and refusal.why and set(refusal.accept) <= reasons):
                raise ValueError(f"{case}: a review needs reasons that exist, names, and why")
            if case in self.misses:
                raise ValueError(f"{case}: a refusal can't be right and wrong")

    @classmethod
    def load(cls, file: Path = REVIEWED) -> "Reviews":
        """Read the table. Raises ValueError, TypeError or KeyError for what is not one."""
        document = tomllib.loads(file.read_text())
        refusals = {
            case: Refusal(tuple(reported["accept"]), tuple(reported["names"]), reported["why"])
            for case, reported in document.pop("refusals", {}).items()
        }
        misses = {case: reported["why"] for case, reported in document.pop("misses", {}).items()}
        fixes = {case: reported["why"] for case, reported in document.pop("fixes", {}).items()}
        if document:
            raise ValueError(f"unknown tables: {', '.join(document)}")
        return cls(refusals, misses, fixes)
