"""Running commands in what is installed of a project, and its own tests, made to report each test.

A runner is asked to report beside what it prints, where a test script plainly calls one. Other scripts are
left as they are, and their logs tell.
"""

import functools
import json
import re
import secrets
import shlex
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from importlib.resources import files
from pathlib import Path, PurePosixPath

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.alias_generators import to_camel

from fallback_plugins.npm.gates.summaries import summary
from fallback_plugins.npm.installing.installation import Installation
from fallback_plugins.npm.manifests.layout import MANIFEST
from fallback_plugins.npm.manifests.manifest import entries, parse_manifest
from fallback_plugins.shared.gates.gating import run_as_given
from fallback_plugins.shared.gates.suite_run import (
    Names,
    Report,
    SuiteRun,
    numbered,
    read_lines,
    report_in,
    shortened,
)
from fallback_plugins.shared.installed import interpreters
from fallback_tier.errors import RecipeError, RepositoryError
from fallback_tier.execution import CommandResult
from fallback_tier.files.whole import write_whole
from fallback_tier.gate_ports import GateContext, TargetRun, Witnessed
from fallback_tier.repo import RepoContext

#: What may stand before a runner's name and hands on all that stands behind it.
_WRAPPERS = frozenset({"cross-env", "npx", "nyc", "c8", "node", "env"})
_RUNNERS = frozenset({"jest", "vitest", "mocha", "_mocha"})
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
#: Beyond one plain call: pipes, lists, substitutions, arguments that are not the runner's.
_NOT_PLAIN = re.compile(r"[|;<>`$()&\n]| -- ")

_NODE_TEST = re.compile(r"\bnode\b[^&|;]* --test(?![\w-])")
_REPORTER = "--test-reporter"

_REPORTERS = "fallback_plugins.npm.gates"
_FILES = ("attach.cjs", "mocha.cjs", "node.mjs", "witness.cjs")


@dataclass(frozen=True)
class Reporting:
    """Arguments for ``npm test``, and the reader of the file that it then writes."""

    arguments: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    #: A folder that the runner reads a reporter from.
    readable: Sequence[Path] = ()
    read: Callable[[str | None], Report | None] = read_lines


def reporting(scripts: Mapping[str, str], place: str, cache: Path) -> Reporting | None:
    """How ``scripts["test"]`` is made to report in the file ``place``; None where nobody knows how."""
    runner = plain_runner(scripts.get("test", ""))
    if runner is not None:
        return _of_runner(runner, place, cache)
    message = " && ".join(scripts.values())
    if not _NODE_TEST.search(message) or _REPORTER in message:
        return None
    source = b64encode(_source("node.mjs").encode()).decode()
    quoted = place.replace("\\", "\\\\").replace('"', '\\"')
    options = [f"{_REPORTER}=tap", f"{_REPORTER}-destination=stdout"]
    options += [f"{_REPORTER}=data:text/javascript;base64,{source}"]
    options += [f'"{_REPORTER}-destination={quoted}"']
    return Reporting(env={"NODE_OPTIONS": " ".join(options)})


def _of_runner(runner: str, place: str, cache: Path) -> Reporting:
    if runner == "jest":
        return Reporting(["--json", f"--outputFile={place}", "--bail=0"], read=read_jest)
    if runner == "vitest":
        options = ["--reporter=default", "--reporter=json", f"--outputFile.json={place}"]
        return Reporting([*options, "--bail=0"], read=read_jest)
    reporter = laid_out(cache, "mocha.cjs")
    env = {"FALLBACK_TIER_REPORT": place}
    return Reporting(["--reporter", str(reporter)], env, [reporter.parent])


def plain_runner(script: str) -> str | None:
    """The runner that the last command of a script plainly calls: what is added to the script is its."""
    last = script.rpartition("&&")[2]
    if _NOT_PLAIN.search(last):
        return None
    try:
        words = shlex.split(last)
    except ValueError:
        return None
    for word in words:
        name = PurePosixPath(word).name.removesuffix(".js").removesuffix(".mjs")
        if name in _RUNNERS:
            return name
        if not (name in _WRAPPERS or word.startswith("-") or _ASSIGNMENT.match(word)):
            return None
    return None


class _JestReport(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel)


class _Assertion(_JestReport):
    ancestor_titles: list[str]
    title: str
    status: str


class _File(_JestReport):
    name: str
    status: str
    assertion_results: list[_Assertion]


class _Jest(_JestReport):
    num_passed_tests: int
    num_failed_tests: int
    test_results: list[_File]


def read_jest(text: str | None) -> Report | None:
    """jest's JSON, which vitest's has taken over; None for anything else, or more than a real one has."""
    try:
        found = _Jest.model_validate_json(text or "")
    except ValidationError:
        return None
    reported: list[tuple[str, str]] = []
    full = Names()
    for file in found.test_results:
        path, tests = shortened(file.name), file.assertion_results
        names = numbered(full.full(path, _titles(one)) for one in tests)
        reported += [(name, _was(one.status)) for name, one in zip(names, tests, strict=True)]
        if file.status == "failed" and not any(one.status == "failed" for one in tests):
            reported.append((path, "uncollected"))
    if full.are_lost:
        return None
    failed = found.num_failed_tests
    return Report.of(reported, (found.num_passed_tests + failed, failed))


def _titles(test: _Assertion) -> str:
    return " > ".join([*test.ancestor_titles, test.title])


def _was(status: str) -> str:
    return status if status in ("passed", "failed") else "skipped"


def _source(name: str) -> str:
    return files(_REPORTERS).joinpath("reporters", name).read_text("utf-8")


@functools.cache
def _sources() -> tuple[str, dict[str, str]]:
    """The reporters' files by name, and a digest of them: read once in a process."""
    texts = {it: _source(it) for it in _FILES}
    return sha256("".join(texts.values()).encode()).hexdigest()[:16], texts


def laid_out(cache: Path, name: str) -> Path:
    """A reporter's file, with the others beside it, at a place that a sandbox can be shown: an installed
    package may lie anywhere."""
    digest, texts = _sources()
    folder = cache / "reporters" / digest
    for other, text in texts.items():
        if not (folder / other).exists():
            folder.mkdir(parents=True, exist_ok=True)
            write_whole(folder / other, text.encode())
    return folder / name


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
