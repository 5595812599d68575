"""The PyPI ecosystem as the tier sees it (ports.EcosystemPlugin)."""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files

from fallback_audit.vocabulary import RefusalReason
from fallback_plugins.pypi import recipe, usage
from fallback_plugins.pypi.manifests import Kind, kind_of
from fallback_plugins.pypi.survey import ECOSYSTEM
from fallback_tier.advisory import Advisory
from fallback_tier.errors import RecipeError, RepositoryError
from fallback_tier.outcome import NotApplicable, RecipeResult, RecipeSelection, Selected
from fallback_tier.ports import ClientRunner, Gate
from fallback_tier.repo import RepoContext

#: The arrays of pyproject.toml that the recipe edits.
_PYPROJECT_KEYS = ("project.dependencies", "project.optional-dependencies", "dependency-groups")


@dataclass(frozen=True)
class PyPIEcosystem:
    """Requirements files, pyproject.toml (PEP 621) and uv.lock, resolved by the real uv."""

    clients: ClientRunner

    @property
    def name(self) -> str:
        """OSV's name of the ecosystem."""
        return ECOSYSTEM

    def manifests(self, tracked_files: Sequence[str]) -> tuple[str, ...]:
        """Manifests and locks, those that are only read too."""
        return tuple(path for path in tracked_files if kind_of(path) is not None)

    def select(self, advisory: Advisory, repo: RepoContext) -> RecipeSelection:
        """The direct bump to the lowest fixed version, or why there is none."""
        try:
            return recipe.select_bump(advisory, repo)
        except RecipeError as error:
            return NotApplicable(reason=error.reason, sentence=str(error))
        except RepositoryError as error:
            return NotApplicable(reason=RefusalReason.RECIPE_UNSUPPORTED, sentence=str(error))

    def apply(self, selection: Selected, advisory: Advisory, repo: RepoContext) -> RecipeResult:
        """Make the change, in memory. Raises RecipeError, RepositoryError, ToolError."""
        return recipe.apply_bump(selection, advisory, repo, self.clients)

    def bump(self, package: str, version: str) -> Selected:
        """The selection that raises ``package`` to ``version``."""
        return recipe.bump(package, version)

    def editable_keys(self, path: str) -> tuple[str, ...] | None:
        """The dependency arrays of pyproject.toml; requirements files have lines, not keys."""
        kind = kind_of(path)
        if kind is None:
            return None
        return _PYPROJECT_KEYS if kind is Kind.PYPROJECT else ()

    def gates(self) -> Sequence[Gate]:
        """PyPI's gates, cheapest first."""
        from fallback_plugins.pypi.gates import build_gates

        return build_gates()

    def instruction_template(self) -> str:
        """The prompt's text, a jinja2 template."""
        place = files("fallback_plugins.pypi").joinpath("skills", "leaf-llm-instruction.md")
        return place.read_text(encoding="utf-8")

    def mentions(self, package: str, path: str, text: str) -> bool:
        """Does this source file import the package?"""
        return usage.mentions(package, path, text)
