"""What a Python project is to the recipes, whatever its files."""

from collections.abc import Mapping
from typing import Protocol

from fallback_plugins.shared.ages import Ages
from fallback_plugins.shared.ladder import NO_TEXTS, ProjectFix
from fallback_plugins.shared.resolution import Resolution
from fallback_tier.advisory import Advisory
from fallback_tier.outcome import Outline


class PythonProject(Protocol):
    """A ``ladder.Project`` that also says what its files alone tell, and which files those are."""

    @property
    def path(self) -> str:
        """The lock, or the manifest where there is none."""
        ...

    @property
    def manifests(self) -> frozenset[str]:
        """Files that this project accounts for: no other project resolves them."""
        ...

    @property
    def installs_folders(self) -> bool:
        """Does it install folders of the repository, whose own projects are then fixed before it?"""
        ...

    def resolve(
        self, advisory: Advisory, patched: Mapping[str, str] = NO_TEXTS, /
    ) -> ProjectFix | None:
        """As ``ladder.Project`` says; a choice that it was made with is the only one that serves."""
        ...

    def outline(self, advisory: Advisory) -> Outline:
        """What the files alone tell; no client runs. Raises RecipeError for one that can't be read."""
        ...

    @property
    def ages(self) -> Ages:
        """Its rules on the age of releases. Raises RepositoryError."""
        ...

    @property
    def resolution(self) -> Resolution:
        """What its install command installs: of a lock that is in step, or by a client.

        Raises RecipeError, RepositoryError for a file that can't be read.
        """
        ...

    def unsettled(
        self, advisory: Advisory, patched: Mapping[str, str] = NO_TEXTS
    ) -> tuple[str, ...]:
        """The advisory's packages that only the resolution tells of: no declaration settles them.

        ``patched``: texts of a fix, by path. Raises RecipeError, RepositoryError.
        """
        ...

    def awaits_client(self, advisory: Advisory) -> bool:
        """Return whether a client has to run, and may, to tell whether it is affected.

        Raises RecipeError, RepositoryError.
        """
        ...
