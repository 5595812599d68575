"""npm's gates between installing and testing: types (TypeScript) and the project's own build."""

from collections.abc import Iterator
from dataclasses import dataclass

from fallback_plugins import gating
from fallback_plugins.comparing import Check, judge_check, together
from fallback_plugins.installed import Level, NotInstalled
from fallback_plugins.npm import tsconfig
from fallback_plugins.npm.installation import Installation
from fallback_plugins.npm.touched import touched_folders
from fallback_tier.execution import CommandResult
from fallback_tier.gate_ports import GateContext, GateVerdict
from fallback_tier.repo import RepoContext


@dataclass(frozen=True)
class TypecheckGate:
    """The project's own ``tsc``, for each of its TypeScript configurations."""

    name: str = "typecheck"

    def judge(self, context: GateContext) -> GateVerdict:
        """Compare the compiler's complaints with the base commit's. Raises SandboxError, ToolError."""
        folders = touched_folders(context)
        return together(
            self.name, [told for folder in folders for told in self._project(context, folder)]
        )

    def _project(self, context: GateContext, folder: str) -> Iterator[GateVerdict]:
        repo = gating.patched(context)
        configs = tsconfig.configurations(repo, folder)
        if not configs:
            yield gating.skipped(self.name, f"{folder!r} has no {tsconfig.TSCONFIG}")
        elif not tsconfig.declares_typescript(repo, folder):
            yield gating.skipped(self.name, f"{folder!r} does not declare typescript")
        elif (why := not_installed(Installation(context, repo, folder))) is not None:
            yield gating.skipped(self.name, why)
        elif not Installation(context, repo, folder).tree.has_folder(
            gating.in_folder(folder, tsconfig.COMPILER)
        ):
            yield gating.skipped(self.name, "typescript is declared, and could not be installed")
        else:
            for config in configs[: tsconfig.MAX_CONFIGURATIONS]:
                yield self._config(context, folder, config)
            if (more := len(configs) - tsconfig.MAX_CONFIGURATIONS) > 0:
                yield gating.skipped(self.name, f"{more} more configuration(s)")

    def _config(self, context: GateContext, folder: str, config: str) -> GateVerdict:
        def run(tree: RepoContext) -> CommandResult | NotInstalled:
            target = Installation(context, tree, folder)
            if (why := not_installed(target)) is not None:
                return NotInstalled(why)
            result = context.sandbox.run(
                [gating.in_folder(folder, tsconfig.TSC), *tsconfig.OPTIONS, "-p", config],
                worktree=target.tree,
                timeout_s=context.timeout_s,
            )
            return result.model_copy(update={"output": gating.relative_log(result, tree.root)})

        base = Installation(context, context.repo, folder)
        told = (tsconfig.findings, tsconfig.is_blocked)
        check = Check(f"tsc -p {config}", run, *told, on=base.contents)
        return judge_check(self.name, context, folder, check)


@dataclass(frozen=True)
class BuildGate:
    """``npm run build``. What it makes stays for the tests, which may need it."""

    name: str = "build"

    def judge(self, context: GateContext) -> GateVerdict:
        """Build each touched project that has such a script. Raises SandboxError, ToolError."""
        folders = touched_folders(context)
        return together(self.name, [self._project(context, folder) for folder in folders])

    def _project(self, context: GateContext, folder: str) -> GateVerdict:
        project = Installation(context, gating.patched(context), folder)
        if not project.has_build:
            return gating.skipped(self.name, f"{project.manifest} has no build script")
        if (why := not_installed(project)) is not None:
            return gating.skipped(self.name, why)

        def run(tree: RepoContext) -> CommandResult | NotInstalled:
            target = Installation(context, tree, folder)
            why = not_installed(target)
            return target.build() if why is None else NotInstalled(why)

        base = Installation(context, context.repo, folder)
        check = Check("npm run build", run, on=base.contents)
        return judge_check(self.name, context, folder, check)


def not_installed(project: Installation) -> str | None:
    """Why a project's programs can't be run, in a sentence; None where they can."""
    found = project.install()
    if found.level is not Level.METADATA:
        return None
    return f"the project's dependencies could not be installed: {found.in_words}"
