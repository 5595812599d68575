"""What a recipe has resolved is resolved once: a plan's result serves the fix that follows it."""

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from fallback_plugins.shared.bumping import reason_for_a_model
from fallback_tier.advisory import Advisory
from fallback_tier.errors import RepositoryError
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
