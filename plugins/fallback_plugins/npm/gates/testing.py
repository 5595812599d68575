"""An npm project's tests: its own test script, made to report where its runner can."""

from dataclasses import dataclass, replace
from hashlib import sha256

from fallback_plugins.npm.gates.reporting import Reporting, reporting, reporting_part
from fallback_plugins.npm.gates.summaries import summary
from fallback_plugins.npm.installing.installation import Installation
from fallback_plugins.npm.manifests.manifest import entries, parse_manifest
from fallback_plugins.shared.gates import gating
from fallback_plugins.shared.gates.reports import Report, ReportFile, report_in
from fallback_plugins.shared.gates.suite_run import SuiteRun, steady_lines
from fallback_tier.execution import CommandResult
from fallback_tier.gate_ports import GateContext
from fallback_tier.repo import RepoContext

_PLAINLY = Reporting(read=lambda _: None)


def run_tests(
    context: GateContext, target: Installation, tree: RepoContext, installed: str = ""
) -> SuiteRun:
    """Run ``npm test``.

    A runner that fails and reports nothing may not know what was asked of it: then it runs once more, as
    the project calls it. Where a script of several commands fails, its runner alone runs once more, to say
    which tests that was about: the end is still the script's, and what its other commands print must be as
    at the base commit. Raises SandboxError.
    """
    manifest = parse_manifest(target.manifest, tree.read_text(target.manifest))
    scripts = dict(entries(manifest.get("scripts")))
    with report_in(tree.tree) as file:
        suite = _Suite(context, target, tree, file)
        asked = reporting(scripts, file.path, context.cache)
        result, report = suite.npm_test(asked or _PLAINLY)
        others: set[str] = set()
        unreported = report is None and not (result.ok or result.timed_out)
        if unreported and asked is not None:
            result, report = suite.npm_test(_PLAINLY)
        elif unreported:
            alone, report = suite.part(scripts.get("test", ""))
            others = steady_lines(result.output) - steady_lines(alone)
    run = SuiteRun.read(result, summary(result.output), report, installed)
    return replace(run, others=sha256("\n".join(sorted(others)).encode()).hexdigest())


@dataclass(frozen=True)
class _Suite:
    context: GateContext
    target: Installation
    tree: RepoContext
    file: ReportFile

    def npm_test(self, asked: Reporting) -> tuple[CommandResult, Report | None]:
        """The script, with what makes it report."""
        more = ["--", *asked.arguments] if asked.arguments else []
        return self._run(["npm", "test", *more], asked)

    def part(self, script: str) -> tuple[str, Report | None]:
        """What the runner in a script of several commands prints and reports when it runs by itself."""
        found = reporting_part(script, self.file.path, self.context.cache)
        if found is None:
            return "", None
        command, asked = found
        words = ["npm", "exec", "--no", "--offline", "--call", command]
        result, report = self._run(words, asked)
        return result.output, report

    def _run(self, command: list[str], asked: Reporting) -> tuple[CommandResult, Report | None]:
        result = self.context.sandbox.run(
            gating.command_in(self.target.folder, command),
            worktree=self.target.tree,
            timeout_s=self.context.timeout_s,
            env=asked.env,
            readable=asked.readable,
        )
        output = gating.relative_log(result, self.tree.root)
        # Where a report lies is another place each time, and no part of what was run.
        result = result.model_copy(update={"argv": ("npm", "test"), "output": output})
        return result, asked.read(self.file.read())
