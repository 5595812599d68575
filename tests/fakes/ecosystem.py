"""An ecosystem whose manifest is one line a dependency: ``name version``."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from fallback_audit.vocabulary import ProofLevel, RefusalReason
from fallback_tier.advisory import Advisory
from fallback_tier.errors import RecipeError
from fallback_tier.outcome import FileChange, RecipeResult, RecipeSelection, Selected
from fallback_tier.ports import Gate
from fallback_tier.repo import RepoContext

MANIFEST = "deps.txt"

TEMPLATE_SYSTEM = "You fix vulnerabilities. Answer with one JSON object."


def template() -> str:
    """The PyPI template is as good as any: prompts are the same for a fake ecosystem."""
    from importlib.resources import files

    return (files("fallback_plugins.pypi") / "skills" / "leaf-llm-instruction.md").read_text()


@dataclass
class FakeEcosystem:
    """Implements EcosystemPlugin for OSV ecosystem ``PyPI``."""

    name: str = "PyPI"
    gate_list: tuple[Gate, ...] = ()
    recipe_error: RecipeError | None = None
    template_text: str = field(default_factory=template)

    def manifests(self, tracked_files: Sequence[str]) -> tuple[str, ...]:
        return tuple(path for path in tracked_files if path == MANIFEST)

    def select(self, advisory: Advisory, repo: RepoContext) -> RecipeSelection:
        return self.bump("vulnerable", "1.0.1")

    def bump(self, package: str, version: str) -> Selected:
        return Selected(recipe="direct-bump", parameters={"package": package, "version": version})

    def apply(self, selection: Selected, advisory: Advisory, repo: RepoContext) -> RecipeResult:
        if self.recipe_error is not None:
            raise self.recipe_error
        package, version = selection.parameters["package"], selection.parameters["version"]
        before = repo.read_text(MANIFEST)
        lines = before.splitlines(keepends=True)
        old = next((line for line in lines if line.startswith(f"{package} ")), None)
        if old is None:
            raise RecipeError(
                RefusalReason.RECIPE_UNSUPPORTED, f"{package} is not declared.", next_step="Add it."
            )
        after = before.replace(old, f"{package} {version}\n")
        return RecipeResult(
            changes=(FileChange(path=MANIFEST, before=before, after=after),),
            proof_level=ProofLevel.PINS,
            package=package,
            before_versions=(old.split()[1],),
            after_version=version,
        )

    def editable_keys(self, path: str) -> tuple[str, ...] | None:
        return () if path == MANIFEST else None

    def gates(self) -> Sequence[Gate]:
        return self.gate_list

    def instruction_template(self) -> str:
        return self.template_text

    def mentions(self, package: str, path: str, text: str) -> bool:
        return f"import {package}" in text
