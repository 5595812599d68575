"""What one case ended in, as it is kept: everything that the judge needs, and nothing judged."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from tests.campaigns.recipes_bench.cases import Case


@dataclass(frozen=True)
class Raw:
    """One case's end. ``changes``: new texts by path. ``written``: files that the recipe touched in the
    repository by itself, which it may not. ``installed_*``: (name, version) as the real client resolves
    the files of a fixture.
    """

    case: str
    outcome: Literal["fixed", "refused", "crashed"]
    reason: str = ""
    sentence: str = ""
    changes: dict[str, str | None] = field(default_factory=dict)
    proof_level: str = ""
    moves: list[dict[str, Any]] = field(default_factory=list)
    left: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    written: list[str] = field(default_factory=list)
    seconds: float = 0.0
    installed_before: list[tuple[str, str]] | None = None
    installed_after: list[tuple[str, str]] | None = None

    def after(self, case: Case) -> dict[str, str]:
        """Every text of the case as the recipe leaves it."""
        texts = {**case.before, **self.changes}
        return {path: text for path, text in texts.items() if text is not None}

    def save(self, folder: Path) -> None:
        """One file a case, whole or not at all."""
        place = folder / f"{self.case}.json"
        part = place.with_suffix(".part")
        part.write_text(json.dumps(asdict(self), indent=1, ensure_ascii=False) + "\n")
        part.rename(place)

    @classmethod
    def load(cls, file: Path) -> "Raw":
        """As ``save`` wrote it."""
        document = json.loads(file.read_text())
        for name in ("installed_before", "installed_after"):
            if document[name] is not None:
                document[name] = [(package, version) for package, version in document[name]]
        return cls(**document)
