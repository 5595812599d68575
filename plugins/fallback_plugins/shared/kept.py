"""What a recipe has resolved is resolved once: a plan's result serves the fix that follows it. What a
client resolved is kept for runs without a registry.
"""

import hashlib
import json
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from functools import cached_property
from pathlib import Path

from fallback_plugins.shared.bumping import reason_for_a_model
from fallback_plugins.shared.resolution import MAX_RESOLUTIONS
from fallback_tier.advisory import Advisory
from fallback_tier.errors import RepositoryError, StateFolderError
from fallback_tier.files import whole
from fallback_tier.files.folders import users_folder
from fallback_tier.outcome import RecipeResult, Selected
from fallback_tier.repo import RepoContext

#: Seconds that a result may wait for its second use. A registry changes; who fixes what was planned starts
#: at once.
MAX_AGE_S = 600.0

#: Results that wait: a plan of many advisories is made again without those that can't be fixed.
MAX_KEPT = 8


@dataclass
class KeptResults:
    """Hands each result out once more, to whoever asks for the same of the same commit."""

    clock: Callable[[], float] = time.monotonic
    _results: dict[str, tuple[float, RecipeResult]] = field(default_factory=dict)

    def get(
        self,
        selection: Selected,
        advisory: Advisory,
        repo: RepoContext,
        make: Callable[[], RecipeResult],
    ) -> RecipeResult:
        """The result that was made before, or ``make``'s. Raises as that does; what a model chose and can't
        be is told as its turn."""
        key = _key(selection, advisory, repo)
        since, result = self._results.pop(key, (0.0, None))
        if result is not None and self.clock() - since <= MAX_AGE_S and _still_fits(result, repo):
            return result
        with reason_for_a_model(selection):
            result = make()
        while len(self._results) >= MAX_KEPT:
            self._results.pop(next(iter(self._results)))
        self._results[key] = self.clock(), result
        return result


def _key(selection: Selected, advisory: Advisory, repo: RepoContext) -> str:
    reported = [selection, advisory, repo.settings]
    parts = [str(repo.root), repo.base_commit, *(one.model_dump_json() for one in reported)]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _still_fits(result: RecipeResult, repo: RepoContext) -> bool:
    """Is every file that it changes what it was?"""
    try:
        return all(repo.read_text(it.path) == it.before for it in result.changes if it.before)
    except RepositoryError:
        return False


@dataclass(frozen=True)
class KeptResolution:
    """What a client made of its inputs, in the user's cache. ``inputs``: all that decides it (for JSON)."""

    inputs: object

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of the inputs."""
        return hashlib.sha256(json.dumps(self.inputs).encode()).hexdigest()

    @property
    def text(self) -> str:
        """What was kept; empty: nothing that can be read."""
        with suppress(OSError, StateFolderError, ValueError):
            return (whole.kept(self._place) or b"").decode("utf-8")
        return ""

    @property
    def made_on(self) -> date:
        """The day on which it was kept; today, if it is not."""
        with suppress(OSError, StateFolderError):
            return datetime.fromtimestamp(self._place.stat().st_mtime, UTC).date()
        return datetime.now(UTC).date()

    def keep(self, text: str) -> None:
        """Keep it, and the MAX_RESOLUTIONS last used of all; one that can't be written is not kept."""
        with suppress(OSError, StateFolderError):
            place = self._place
            place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            whole.keep(place, text.encode(), MAX_RESOLUTIONS)

    @property
    def _place(self) -> Path:
        return users_folder("cache") / "resolutions" / f"{self.digest}.json"
