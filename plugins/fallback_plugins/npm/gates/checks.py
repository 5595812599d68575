"""npm's gates between installing and testing: types (TypeScript) and the project's own build."""

from collections.abc import Iterator

from fallback_plugins.npm.gates.npm_gate import NpmGate, beside_base
from fallback_plugins.npm.installing.installation import Installation
from fallback_plugins.npm.manifests import tsconfig
from fallback_plugins.shared.gates import gating
from fallback_plugins.shared.gates.comparing import Check, judge_check
from fallback_plugins.shared.installed import NotInstalled
from fallback_tier.execution import CommandResult
from fallback_tier.gate_ports import GateContext, GateVerdict
from fallback_tier.repo import RepoContext


class TypecheckGate(NpmGate):
    """The project's own ``tsc``, for each of its TypeScript configurations."""

    name = "typecheck"

    def _checks(self, context: GateContext, folder: str) -> Iterator[GateVerdict]:
        repo = gating.patched(context)
        configs = tsconfig.configurations(repo, folder)
        if not configs:
            yield gating.skipped(self.name, f"{folder!r} has no {tsconfig.TSCONFIG}")
        elif not tsconfig.declares_typescript(repo, folder):
            yield gating.skipped(self.name, f"{folder!r} does not declare typescript")
        elif (
            absent := (project := Installation(context, repo, folder)).install().absent
        ) is not None:
            yield gating.skipped(self.name, absent.sentence)
        elif not project.tree.has_folder(gating.in_folder(folder, tsconfig.COMPILER)):
            yield gating.skipped(self.name, "typescript is declared, and could not be installed")
        else:
            for config in configs[: tsconfig.MAX_CONFIGURATIONS]:
                yield self._config(project, config)
            if (more := len(configs) - tsconfig.MAX_CONFIGURATIONS) > 0:
                yield gating.skipped(self.name, f"{more} more configuration(s)")

    def _config(self, project: Installation, config: str) -> GateVerdict:
        context, folder = project.context, project.folder

        def run(tree: RepoContext) -> CommandResult | NotInstalled:
            target = Installation(context, tree, folder)
            if (absent := target.install().absent) is not None:
                return absent
            result = context.sandbox.run(
                [gating.in_folder(folder, tsconfig.TSC), *tsconfig.OPTIONS, "-p", config],
                worktree=target.tree,
                timeout_s=context.timeout_s,
            )
            return result.model_copy(update={"output": gating.relative_log(result, tree.root)})

        base = Installation(context, context.repo, folder)
        reported = (tsconfig.findings, tsconfig.is_blocked)
        check = Check(f"tsc -p {config}", run, *reported, on=base.contents)
        return beside_base(project, base, lambda: judge_check(self.name, context, folder, check))


class BuildGate(NpmGate):
    """``npm run build``. What it makes stays for the tests, which may need it."""

    name = "build"

    def _project(self, context: GateContext, folder: str) -> GateVerdict:
        project = Installation(context, gating.patched(context), folder)
        if not project.has_build:
            return gating.skipped(self.name, f"{project.manifest} has no build script")
        if (absent := project.install().absent) is not None:
            return gating.skipped(self.name, absent.sentence)

        def run(tree: RepoContext) -> CommandResult | NotInstalled:
            target = Installation(context, tree, folder)
            return target.install().absent or target.build()

        base = Installation(context, context.repo, folder)
        check = Check("npm run build", run, on=base.contents)
        return beside_base(project, base, lambda: judge_check(self.name, context, folder, check))
