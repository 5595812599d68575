"""Runs a command of somebody's in the root of a tree, with what is installed there."""

import json
import secrets
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fallback_plugins.npm.gates.reporting import Reporting, laid_out, reporting
from fallback_plugins.npm.gates.summaries import summary
from fallback_plugins.npm.installing.installation import Installation
from fallback_plugins.npm.manifests.layout import MANIFEST
from fallback_plugins.npm.manifests.manifest import entries, parse_manifest
from fallback_plugins.shared.gates.gating import run_as_given
from fallback_plugins.shared.gates.reports import Report, report_in
from fallback_plugins.shared.gates.suite_run import SuiteRun
from fallback_plugins.shared.versions import interpreters
from fallback_tier.errors import RecipeError, RepositoryError
from fallback_tier.execution import CommandResult
from fallback_tier.gate_ports import GateContext, TargetRun, Witnessed
from fallback_tier.repo import RepoContext

#: Where clients put the programs of what they install.
_PROGRAMS = "node_modules/.bin"

#: Names the record to each node of a proof.
_RECORD = "FALLBACK_TIER_WITNESS"

#: Clients that run a project's own scripts.
_CLIENTS = frozenset({"npm", "yarn", "pnpm"})


def runs_on(context: GateContext, tree: RepoContext) -> str:
    """``EcosystemPlugin.runs_on``; empty where a manifest can't be read, so that nothing runs."""
    if not tree.has(MANIFEST):
        return interpreters(context.clients)
    try:
        return Installation(context, tree, ".").contents()
    except (RecipeError, RepositoryError):
        return ""


def run(
    context: GateContext,
    tree: RepoContext,
    argv: Sequence[str],
    timeout_s: float | None = None,
) -> TargetRun:
    """``EcosystemPlugin.run``: workspaces are installed with their root."""
    message = compared = ""
    if tree.has(MANIFEST):
        try:
            project = Installation(context, tree, ".")
            found = project.install()
        except (RecipeError, RepositoryError) as error:
            return TargetRun(None, error.problem)
        message, compared = found.in_words if found.declined else "", found.compared
        tree = tree.laid_out(project.tree)
    command = _Command(context, tree, argv, timeout_s)
    if context.is_proof:
        result, witnessed = command.run_witnessed()
    else:
        result, witnessed = command.run(Reporting()), None
    return TargetRun(result, message, compared, witnessed)


@dataclass(frozen=True)
class _Command:
    context: GateContext
    tree: RepoContext
    argv: Sequence[str]
    timeout_s: float | None

    def run(self, asked: Reporting) -> CommandResult:
        """Run it, with what makes it report."""
        result = run_as_given(
            self.context,
            self.tree,
            [*self.argv, *asked.arguments],
            programs=self.tree.root / _PROGRAMS,
            timeout_s=self.timeout_s,
            env=asked.env,
            readable=asked.readable,
        )
        return result.model_copy(update={"argv": tuple(self.argv)})

    def run_witnessed(self) -> tuple[CommandResult, Witnessed]:
        """Run a proof. A runner that fails and reports nothing may not know what was asked of it: then it
        runs once more, as it was given."""
        with report_in(self.tree.tree) as file:
            asked = self._reporting(file.path)
            if asked is not None:
                result, witnessed = self._run_watched(asked)
                report = asked.read(file.read())
                if report is not None or result.ok or result.timed_out:
                    return result, _with_tests(witnessed, result, report)
        return self._run_watched(Reporting())

    def _reporting(self, place: str) -> Reporting | None:
        scripts = {"test": shlex.join(self.argv)}
        if self.argv[0] in _CLIENTS and self.tree.has(MANIFEST):
            manifest = parse_manifest(MANIFEST, self.tree.read_text(MANIFEST))
            scripts = {**dict(entries(manifest.get("scripts"))), "test": ""}
        return reporting(scripts, place, self.context.cache)

    def _run_watched(self, asked: Reporting) -> tuple[CommandResult, Witnessed]:
        watching, header = laid_out(self.context.cache, "witness.cjs"), secrets.token_hex(16)
        quoted = str(watching).replace("\\", "\\\\").replace('"', '\\"')
        options = f'--require "{quoted}" {asked.env.get("NODE_OPTIONS", "")}'
        with report_in(self.tree.tree) as record:
            record.begin(header)
            env = {**asked.env, "NODE_OPTIONS": options, _RECORD: record.path}
            readable: list[Path] = [*asked.readable, watching.parent]
            result = self.run(replace(asked, env=env, readable=readable))
            return result, _read_witness(record.read(), header, result.output)


def _read_witness(text: str | None, header: str, output: str) -> Witnessed:
    first, _, rest = (text or "").partition("\n")
    lines = [_decoded(line) for line in rest.split("\n")[:-1]]
    told = summary(output)
    doubts = []
    if first != header or ("damage", "") in lines:
        doubts.append("the record of what its processes did was damaged")
    elif told is not None and not lines:
        doubts.append("no node process that loads what NODE_OPTIONS names ran its tests")
    return Witnessed(
        failures=0 if told is None else told.failed,
        changed=tuple(sorted({what for kind, what in lines if kind == "changed"})),
        ended_by=tuple(sorted({what for kind, what in lines if kind == "ended"})),
        doubts=tuple(doubts),
    )


def _decoded(line: str) -> tuple[str, str]:
    try:
        kind, what = json.loads(line)
    except (ValueError, TypeError, RecursionError):
        return "damage", ""
    return (kind, what) if isinstance(kind, str) and isinstance(what, str) else ("damage", "")


def _with_tests(witnessed: Witnessed, result: CommandResult, report: Report | None) -> Witnessed:
    """With the tests of a report, if the output bears it out."""
    report = SuiteRun.read(result, summary(result.output), report).report
    if report is None:
        return witnessed
    passed = tuple(sorted(report.passed))
    return witnessed.model_copy(update={"passed": passed, "failed": report.failed})
