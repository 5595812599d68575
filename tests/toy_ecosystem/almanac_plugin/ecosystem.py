"""Step 3 of docs/ecosystem.md: what a fix does here (ports.EcosystemPlugin)."""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from almanac_plugin import installing, recipe
from almanac_plugin.files import LOCK, MANIFEST

from fallback_audit.vocabulary import RefusalReason
from fallback_tier.advisory import Advisory
from fallback_tier.affected import OwnPackage
from fallback_tier.errors import RecipeError
from fallback_tier.execution import ClientRunner
from fallback_tier.gate_ports import Gate, GateContext, TargetRun
from fallback_tier.outcome import Outline, RecipeResult, RecipeSelection, Selected
from fallback_tier.repo import RepoContext


@dataclass(frozen=True)
class AlmanacEcosystem:
    clients: ClientRunner

    @property
    def name(self) -> str:
        return recipe.ECOSYSTEM

    def manifests(self, tracked_files: Sequence[str]) -> tuple[str, ...]:
        return tuple(path for path in tracked_files if path in {MANIFEST, LOCK})

    def own_packages(self, repo: RepoContext, names: Collection[str]) -> tuple[OwnPackage, ...]:
        return ()  # an Almanac's manifest does not say what the repository itself is called

    def source_links(self, package: str) -> tuple[str, ...]:
        return ()

    def select(self, advisory: Advisory, repo: RepoContext) -> RecipeSelection:
        return recipe.select(advisory, repo)

    def outline(self, advisory: Advisory, repo: RepoContext) -> Outline:
        return recipe.outline(advisory, repo)

    def apply(self, selection: Selected, advisory: Advisory, repo: RepoContext) -> RecipeResult:
        return recipe.apply(selection, advisory, repo, self.clients)

    def bump(self, package: str, version: str) -> Selected:
        return Selected(recipe="raise", parameters={"package": package, "version": version})

    def override(self, package: str, version: str) -> Selected:
        raise RecipeError(
            RefusalReason.RECIPE_UNSUPPORTED,
            "Almanac packages need no others, so there is nothing to override.",
            next_step="Use dependency_bump.",
        )

    def editable_keys(self, path: str) -> tuple[str, ...] | None:
        return {MANIFEST: ("needs",), LOCK: ()}.get(PurePosixPath(path).name)

    def gates(self) -> Sequence[Gate]:
        from almanac_plugin.gates import build_gates

        return build_gates()

    def run(
        self,
        context: GateContext,
        tree: RepoContext,
        argv: Sequence[str],
        timeout_s: float | None = None,
    ) -> TargetRun:
        try:
            return TargetRun(installing.run(context, tree, argv, timeout_s))
        except ValueError as error:
            return TargetRun(None, str(error))

    def runs_on(self, context: GateContext, tree: RepoContext, argv: Sequence[str]) -> str:
        return tree.read_text(LOCK)

    def run_on_another(
        self,
        context: GateContext,
        tree: RepoContext,
        argv: Sequence[str],
        number: int,
    ) -> bool:
        """There is one interpreter."""
        return number == 0

    def tests_ran(self, output: str) -> int | None:
        reported = re.search(r"^(\d+) sayings hold$", output, re.MULTILINE)
        return int(reported[1]) if reported else None

    def instruction_template(self) -> str:
        return "{% block system %}Answer with one JSON object.{% endblock %}"

    def mentions(self, package: str, path: str, text: str) -> bool:
        return f"{package}.sh" in text
