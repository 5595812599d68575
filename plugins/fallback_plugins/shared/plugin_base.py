"""Base of a plugin whose recipe is the ladder: what npm and PyPI have in common.

A recipe resolves a selection once: the fix that follows a plan reuses the plan's result.
"""

import hashlib
import posixpath
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import PurePosixPath
from typing import ClassVar, Protocol

from fallback_plugins.shared.bumping import reason_for_a_model
from fallback_tier.advisory import Advisory
from fallback_tier.errors import RecipeError, RepositoryError, ToolError
from fallback_tier.execution import ClientRunner
from fallback_tier.gate_ports import GateContext
from fallback_tier.outcome import (
    Move,
    NotApplicable,
    OwnTests,
    RecipeResult,
    RecipeSelection,
    Selected,
)
from fallback_tier.repo import RepoContext


class Recipe(Protocol):
    """An ecosystem's module ``recipe``."""

    def select(
        self, advisory: Advisory, repo: RepoContext, clients: ClientRunner
    ) -> RecipeSelection:
        """Select what is to be done; nothing is resolved. Raises RecipeError, RepositoryError."""
        ...

    def apply(
        self, selection: Selected, advisory: Advisory, repo: RepoContext, clients: ClientRunner
    ) -> RecipeResult:
        """Resolve, in memory. Raises RecipeError, RepositoryError, ToolError."""
        ...

    def bump(self, package: str, version: str) -> Selected:
        """Return the selection that raises ``package``."""
        ...

    def override(self, package: str, version: str) -> Selected:
        """Return the selection that forces the transitive ``package``."""
        ...


#: Seconds for which a result is reused in one process. A registry changes;
#: a fix of what was planned starts at once.
MAX_AGE_S = 600.0

#: Results that are stored: a plan of many advisories is made again without those that can't be fixed.
MAX_KEPT = 8


@dataclass
class KeptResults:
    """Stored results, each returned once more for the same selection of the same commit, with what clients
    resolved of its files, which gates install."""

    clock: Callable[[], float] = time.monotonic
    _results: dict[str, tuple[float, RecipeResult, RepoContext]] = field(default_factory=dict)

    def get(
        self,
        selection: Selected,
        advisory: Advisory,
        repo: RepoContext,
        make: Callable[[], RecipeResult],
    ) -> RecipeResult:
        """Return the result that was made before, or ``make``'s. Raises as that does; if a model's version
        isn't available, the error is worded for the model."""
        documents = [selection, advisory, repo.settings]
        parts = [
            str(repo.root),
            repo.base_commit,
            *(document.model_dump_json() for document in documents),
        ]
        key = hashlib.sha256("\0".join(parts).encode()).hexdigest()
        if (stored := self._results.pop(key, None)) is not None:
            since, result, made_for = stored
            if self.clock() - since <= MAX_AGE_S and _still_fits(result, repo):
                repo.share(made_for)
                return result
        with reason_for_a_model(selection):
            result = make()
        while len(self._results) >= MAX_KEPT:
            self._results.pop(next(iter(self._results)))
        self._results[key] = self.clock(), result, repo
        return result


def _still_fits(result: RecipeResult, repo: RepoContext) -> bool:
    """Return whether every file that a result changes is unchanged."""
    try:
        return all(
            repo.read_text(change.path) == change.before
            for change in result.changes
            if change.before
        )
    except RepositoryError:
        return False


@dataclass(frozen=True)
class RecipeEcosystem(ABC):
    """The part of ``ports.EcosystemPlugin`` that is about recipe and prompt. ``_package``: the plugin's."""

    clients: ClientRunner
    kept: KeptResults = field(default_factory=KeptResults, compare=False, kw_only=True)

    _package: ClassVar[str]

    @property
    @abstractmethod
    def _recipe(self) -> Recipe:
        """The ecosystem's module ``recipe``, imported when it is needed."""

    def select(self, advisory: Advisory, repo: RepoContext) -> RecipeSelection:
        """Select the ladder if an affected version is, or may be, there; or return why there is nothing to
        do. Nothing is resolved."""
        try:
            return self._recipe.select(advisory, repo, self.clients)
        except (RecipeError, RepositoryError) as error:
            return NotApplicable.of(error)

    def apply(self, selection: Selected, advisory: Advisory, repo: RepoContext) -> RecipeResult:
        """Run the ladder, in memory. Raises RecipeError, RepositoryError, ToolError."""

        def make() -> RecipeResult:
            return self._recipe.apply(selection, advisory, repo, self.clients)

        return self.kept.get(selection, advisory, repo, make)

    def next_candidate(
        self, refused: Selected, moves: Sequence[Move], advisory: Advisory, repo: RepoContext
    ) -> Selected | None:
        """Return the ladder without the steps that gates refused, if it still leads to a fix."""
        return next_candidate(
            refused, moves, lambda selection: self.apply(selection, advisory, repo)
        )

    def bump(self, package: str, version: str) -> Selected:
        """Return the selection that raises ``package`` to exactly ``version``."""
        return self._recipe.bump(package, version)

    def override(self, package: str, version: str) -> Selected:
        """Return the selection that forces the transitive ``package`` to ``version``."""
        return self._recipe.override(package, version)

    @abstractmethod
    def manifests(self, tracked_files: Sequence[str]) -> tuple[str, ...]:
        """``EcosystemPlugin.manifests``."""

    def test_commands(self, repo: RepoContext, files: Sequence[str]) -> tuple[OwnTests, ...]:
        """Return the commands of each file's nearest project."""
        from fallback_plugins.shared.gates.test_commands import CommandKind, own_commands

        projects = {posixpath.dirname(path) or "." for path in self.manifests(repo.tracked_files)}
        folders: dict[str, None] = {}
        for path in files:
            above = (str(folder) for folder in PurePosixPath(path).parents)
            folders[next((folder for folder in above if folder in projects), ".")] = None
        stated = repo.settings.test_commands
        return tuple(
            OwnTests(project=folder, command=command.line, source=command.source)
            for folder in folders
            for command in own_commands(repo, folder, stated)
            if command.kind is CommandKind.TESTS
        )

    def run_on_another(
        self,
        context: GateContext,  # noqa: ARG002
        tree: RepoContext,  # noqa: ARG002
        argv: Sequence[str],  # noqa: ARG002
        number: int,
    ) -> bool:
        """Return whether ``number`` is the only interpreter's. An ecosystem may have others."""
        return number == 0

    def instruction_template(self) -> str:
        """Return the prompt's text, a jinja2 template."""
        path = files(self._package).joinpath("skills", "leaf-llm-instruction.md")
        return path.read_text(encoding="utf-8")


def next_candidate(
    refused: Selected, moves: Sequence[Move], apply: Callable[[Selected], RecipeResult]
) -> Selected | None:
    """Return the same ladder without the steps that led to a patch which gates refused
    (``ports.OffersCandidates``). ``apply``: the plugin's.

    A step with the same result is not another candidate: it is left out too.
    """

    def changed(some: Sequence[Move]) -> set[tuple[object, ...]]:
        return {
            (move.package, move.manifest, move.before, move.after, move.raised) for move in some
        }

    candidate, led_to = refused, tuple(moves)
    changes_refused = cache(lambda: apply(refused).changes)  # a resolution, made if it is needed
    while True:
        left_out = tuple(dict.fromkeys((*candidate.left_out, *(move.step for move in led_to))))
        if left_out == candidate.left_out:
            return None
        candidate = candidate.model_copy(update={"left_out": left_out})
        try:
            result = apply(candidate)
            led_to = result.moves
            # If several packages move, moves with other names may lead to the same files.
            if changed(led_to) == changed(moves) or result.changes == changes_refused():
                continue
        except (RecipeError, RepositoryError, ToolError):
            return None
        return None if result.left else candidate
