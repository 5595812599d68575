"""What one case ended in, as it is kept: everything that the judge needs, and nothing judged."""

from dataclasses import dataclass, field
from typing import Any, Literal

from fallback_eval.campaign import AppendedRows
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


#: Changed texts can be whole locks: a row is added, and the others are not written again.
ROWS = AppendedRows(Raw, key=lambda raw: raw.case)
