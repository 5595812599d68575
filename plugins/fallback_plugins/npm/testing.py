"""An npm project's tests: its own test script, made to report where its runner can."""

from fallback_plugins import gating
from fallback_plugins.npm.installation import Installation
from fallback_plugins.npm.manifest import parse_manifest
from fallback_plugins.npm.reporting import Reporting, reporting
from fallback_plugins.npm.summaries import summary
from fallback_plugins.reports import ReportFile, report_in
from fallback_plugins.suite_run import SuiteRun
from fallback_tier.gate_ports import GateContext
from fallback_tier.repo import RepoContext

_PLAINLY = Reporting(read=lambda _: None)


def run_tests(
    context: GateContext, target: Installation, tree: RepoContext, installed: str = ""
) -> SuiteRun:
    """Run ``npm test``. A runner that fails and reports nothing may not know what was asked of it: then it
    runs once more, as the project calls it. Raises SandboxError."""
    with report_in(tree.tree) as file:
        asked = reporting(_scripts(tree, target.manifest), file.path, context.cache)
        run, reported = _run(context, target, tree, asked or _PLAINLY, file, installed)
        if asked is None or reported or run.result.ok or run.result.timed_out:
            return run
        return _run(context, target, tree, _PLAINLY, file, installed)[0]


def _run(
    context: GateContext,
    target: Installation,
    tree: RepoContext,
    asked: Reporting,
    file: ReportFile,
    installed: str,
) -> tuple[SuiteRun, bool]:
    command = ["npm", "test", *(["--", *asked.arguments] if asked.arguments else [])]
    result = context.sandbox.run(
        gating.command_in(target.folder, command),
        worktree=target.tree,
        timeout_s=context.timeout_s,
        env=asked.env,
        readable=asked.readable,
    )
    output = gating.relative_log(result, tree.root)
    # Where a report lies is another place each time, and no part of what was run.
    result = result.model_copy(update={"argv": ("npm", "test"), "output": output})
    report = asked.read(file.read())
    return SuiteRun.told(result, summary(output), report, installed), report is not None


def _scripts(tree: RepoContext, manifest: str) -> dict[str, str]:
    scripts = parse_manifest(manifest, tree.read_text(manifest)).get("scripts")
    named = scripts.items() if isinstance(scripts, dict) else ()
    return {name: script for name, script in named if isinstance(script, str)}
