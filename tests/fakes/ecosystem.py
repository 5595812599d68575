"""An ecosystem whose manifest is one line a dependency: ``name version``, indented if transitive."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from fallback_audit.vocabulary import LadderStep, ProofLevel, RefusalReason
from fallback_tier.advisory import (
    Advisory,
    AdvisoryBundle,
    is_affected,
    lowest_fixed_version,
    sort_key,
)
from fallback_tier.affected import OwnPackage
from fallback_tier.errors import FallbackError, RecipeError
from fallback_tier.gate_ports import Gate, GateContext, TargetRun
from fallback_tier.outcome import (
    FileChange,
    Left,
    Move,
    NotApplicable,
    Outline,
    RecipeResult,
    RecipeSelection,
    Selected,
)
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
    on: str = ""

    def manifests(self, tracked_files: Sequence[str]) -> tuple[str, ...]:
        return tuple(path for path in tracked_files if path == MANIFEST)

    def own_packages(self, repo: RepoContext, names: Collection[str]) -> tuple[OwnPackage, ...]:
        return ()

    def source_links(self, package: str) -> tuple[str, ...]:
        return ()

    def select(self, advisory: Advisory, repo: RepoContext) -> RecipeSelection:
        return self.bump("vulnerable", "1.0.1")

    def bump(self, package: str, version: str) -> Selected:
        return Selected(recipe="direct-bump", parameters={"package": package, "version": version})

    def override(self, package: str, version: str) -> Selected:
        return Selected(recipe="override", parameters={"package": package, "version": version})

    def outline(self, advisory: Advisory, repo: RepoContext) -> Outline:
        return Outline()

    def apply(self, selection: Selected, advisory: Advisory, repo: RepoContext) -> RecipeResult:
        if self.recipe_error is not None:
            raise self.recipe_error
        package, version = selection.parameters["package"], selection.parameters["version"]
        before = repo.read_text(MANIFEST)
        lines = before.splitlines(keepends=True)
        step = LadderStep.DIRECT_BUMP
        start = f"{package} "
        if selection.recipe == "override":
            step, start = LadderStep.OVERRIDE, f"  {package} "
        old = next((line for line in lines if line.startswith(start)), None)
        if old is None:
            what = "declared" if step is LadderStep.DIRECT_BUMP else "a transitive dependency"
            raise RecipeError(
                RefusalReason.RECIPE_UNSUPPORTED,
                f"{package} is not {what}.",
                next_step="Add it." if step is LadderStep.DIRECT_BUMP else "Use dependency_bump.",
            )
        after = before.replace(old, f"{start}{version}\n")
        return RecipeResult(
            changes=(FileChange(path=MANIFEST, before=before, after=after),),
            proof_level=ProofLevel.PINS,
            moves=(
                Move(
                    package=package,
                    manifest=MANIFEST,
                    step=step,
                    before=(old.split()[1],),
                    after=version,
                ),
            ),
        )

    def editable_keys(self, path: str) -> tuple[str, ...] | None:
        return () if path == MANIFEST else None

    def gates(self) -> Sequence[Gate]:
        return self.gate_list

    def run(
        self,
        context: GateContext,
        tree: RepoContext,
        argv: Sequence[str],
        timeout_s: float | None = None,
    ) -> TargetRun:
        result = context.sandbox.run(
            argv, worktree=tree.tree, timeout_s=timeout_s or context.timeout_s
        )
        output = result.output.replace(f"{tree.root}/", "").replace(str(tree.root), ".")
        return TargetRun(result.model_copy(update={"output": output}))

    def runs_on(self, context: GateContext, tree: RepoContext, argv: Sequence[str]) -> str:
        return self.on

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
        found = re.findall(r"^Ran (\d+) tests? in ", output, re.MULTILINE)
        skipped = re.findall(r"skipped=(\d+)", output)
        return int(found[-1]) - sum(map(int, skipped)) if found else None

    def instruction_template(self) -> str:
        return self.template_text

    def mentions(self, package: str, path: str, text: str) -> bool:
        return f"import {package}" in text


@dataclass
class TwoCandidates(FakeEcosystem):
    """A recipe that goes to another version, by another step, where gates refused the first."""

    def apply(self, selection: Selected, advisory: Advisory, repo: RepoContext) -> RecipeResult:
        if not selection.left_out:
            return super().apply(selection, advisory, repo)
        other = self.bump(selection.parameters["package"], "1.0.2")
        result = super().apply(other, advisory, repo)
        (move,) = result.moves
        parent = move.model_copy(update={"step": LadderStep.PARENT_BUMP})
        return result.model_copy(update={"moves": (parent,)})

    def next_candidate(
        self, refused: Selected, moves: Sequence[Move], advisory: Advisory, repo: RepoContext
    ) -> Selected | None:
        left_out = tuple(move.step for move in moves)
        return None if refused.left_out else refused.model_copy(update={"left_out": left_out})


@dataclass
class LadderEcosystem(FakeEcosystem):
    """A ladder of one step over ``<ecosystem>.txt``: every pin to the lowest fixed version.

    ``blocked`` packages can't be raised although the files don't tell; ``own`` is the repository's own
    name; ``failing`` maps a package to what resolving for it raises; ``highest`` to the highest version
    that a client can install. ``resolved`` notes each resolution's ids."""

    blocked: frozenset[str] = frozenset()
    highest: Mapping[str, str] = field(default_factory=dict)
    own: str | None = None
    failing: Mapping[str, FallbackError] = field(default_factory=dict)
    unreadable: tuple[Left, ...] = ()
    touches: tuple[str, ...] = ()
    unlocked: bool = False
    selects: int = 0
    resolved: list[tuple[str, ...]] = field(default_factory=list)
    outlined: int = 0

    @property
    def manifest(self) -> str:
        return f"{self.name.lower()}.txt"

    def manifests(self, tracked_files: Sequence[str]) -> tuple[str, ...]:
        return tuple(path for path in tracked_files if path == self.manifest)

    def own_packages(self, repo: RepoContext, names: Collection[str]) -> tuple[OwnPackage, ...]:
        return (OwnPackage(name=self.own, manifest="pypi.txt"),) if self.own in names else ()

    def select(self, advisory: Advisory, repo: RepoContext) -> RecipeSelection:
        self.selects += 1
        if not self._affected(advisory, repo) and not self.unlocked:
            return NotApplicable(reason=RefusalReason.NOT_AFFECTED, sentence="Not affected.")
        return Selected(recipe="ladder")

    def outline(self, advisory: Advisory, repo: RepoContext) -> Outline:
        self.outlined += 1
        moves, left = self._moves(advisory, repo, frozenset())
        return Outline(moves=moves, left=(*left, *self.unreadable))

    def apply(self, selection: Selected, advisory: Advisory, repo: RepoContext) -> RecipeResult:
        members = advisory.members if isinstance(advisory, AdvisoryBundle) else (advisory,)
        self.resolved.append(tuple(member.id for member in members))
        for package in self._affected(advisory, repo):
            if package in self.failing:
                raise self.failing[package]
        too_high = {it for it in self.highest if self._is_too_high(it, advisory, repo)}
        moves, left = self._moves(advisory, repo, self.blocked | too_high)
        if left and not (moves and isinstance(advisory, AdvisoryBundle)):
            raise RecipeError(left[0].reason, left[0].sentence, next_step=left[0].next_step)
        before = after = repo.read_text(self.manifest)
        for move in moves:
            old = rf"^{move.package} {re.escape(move.before[0])}(?=\r?$)"
            after = re.sub(old, f"{move.package} {move.after}", after, flags=re.MULTILINE)
        changes = [FileChange(path=self.manifest, before=before, after=after)]
        for path in self.touches:
            text = repo.read_text(path)
            changes.append(FileChange(path=path, before=text, after=f"{text}{self.name}\n"))
        return RecipeResult(
            changes=tuple(changes),
            proof_level=ProofLevel.PINS,
            moves=moves,
            left=(*left, *self.unreadable),
        )

    def editable_keys(self, path: str) -> tuple[str, ...] | None:
        return () if path == self.manifest else None

    def _affected(self, advisory: Advisory, repo: RepoContext) -> dict[str, str]:
        if not repo.has(self.manifest):
            return {}
        lines = (line.split() for line in repo.read_text(self.manifest).splitlines())
        pins = dict(tuple(line) for line in lines)
        names = advisory.packages(self.name)
        return {
            name: version
            for name, version in pins.items()
            if name in names and is_affected(advisory, self.name, name, version)
        }

    def _is_too_high(self, name: str, advisory: Advisory, repo: RepoContext) -> bool:
        version = self._affected(advisory, repo).get(name)
        fixed = version and lowest_fixed_version(advisory, self.name, name, version)
        return bool(fixed) and sort_key(self.name, fixed) > sort_key(self.name, self.highest[name])

    def _moves(
        self, advisory: Advisory, repo: RepoContext, blocked: frozenset[str]
    ) -> tuple[tuple[Move, ...], tuple[Left, ...]]:
        moves, left = [], []
        for name, version in self._affected(advisory, repo).items():
            fixed = lowest_fixed_version(advisory, self.name, name, version)
            if fixed is not None and name not in blocked:
                moves.append(
                    Move(
                        package=name,
                        manifest=self.manifest,
                        step=LadderStep.DIRECT_BUMP,
                        before=(version,),
                        after=fixed,
                    )
                )
                continue
            reason = (
                RefusalReason.NO_FIXED_VERSION
                if fixed is None
                else RefusalReason.BLOCKED_BY_CONSTRAINT
            )
            left.append(
                Left(
                    package=name,
                    manifest=self.manifest,
                    advisory_ids=advisory.ids_affecting(self.name, name, version),
                    reason=reason,
                    sentence=f"{name} {version} can't be raised: {reason}.",
                    next_step="Look at it.",
                )
            )
        return tuple(moves), tuple(left)
