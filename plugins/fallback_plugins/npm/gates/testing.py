"""A project's own tests: which commands run them, what those find, and how each test is reported.

The commands are the project's own (``own_commands``), tried at the base commit in their order; `npm test`
of the project's manifest comes last. Each gets what a CI machine gives it (ADR-0117): the project's client
and programs, a folder to write to, services. Test runners report to a file, whatever calls them
(``reporters/attach.cjs``); if none does, the log is read.
"""

import functools
import json
import posixpath
import re
import secrets
import shlex
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from hashlib import sha256
from importlib.resources import files
from pathlib import Path, PurePosixPath

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.alias_generators import to_camel

from fallback_plugins.npm.clients.by_lock import client_for
from fallback_plugins.npm.clients.pnpm import PNPM
from fallback_plugins.npm.clients.provision import ClientStore, PinnedClient
from fallback_plugins.npm.clients.yarn import YARN
from fallback_plugins.npm.gates.summaries import failing_names, summary
from fallback_plugins.npm.installing.installation import Installation, yarn_for
from fallback_plugins.npm.installing.modules_layer import Package
from fallback_plugins.npm.locks.pnpm_lock import parse_pnpm_lock
from fallback_plugins.npm.manifests.manifest import (
    MANIFEST,
    MEMBER_SECTIONS,
    entries,
    in_folder,
    is_manifest,
    mapping,
    parse_manifest,
    readable_manifest,
    readable_text,
)
from fallback_plugins.shared.gates import gating, services
from fallback_plugins.shared.gates.base_runs import Choice, Run, Way, choose, time_of
from fallback_plugins.shared.gates.gating import run_as_given
from fallback_plugins.shared.gates.reaching import Change, changed_sources, find
from fallback_plugins.shared.gates.suite_run import (
    Names,
    Report,
    SuiteRun,
    Summary,
    merged,
    numbered,
    read_lines,
    report_in,
    shortened,
    steady_lines,
)
from fallback_plugins.shared.gates.suites import Part
from fallback_plugins.shared.gates.test_commands import (
    CHECKS,
    TestCommand,
    is_of_script,
    lines_of_ci,
    own_commands,
    suites_of,
)
from fallback_plugins.shared.installation import NotInstalled, interpreters
from fallback_tier.errors import RecipeError, RepositoryError
from fallback_tier.execution import CommandResult
from fallback_tier.files.whole import write_whole
from fallback_tier.gate_ports import GateContext, TargetRun, Witnessed
from fallback_tier.repo import RepoContext

#: What `npm init` writes as the test script: no test, and a failure.
_PLACEHOLDER = "no test specified"

#: Where clients put the programs of what they install.
_PROGRAMS = "node_modules/.bin"

#: For the project's commands: clients look for no other release of themselves, and send no telemetry.
_ENVIRONMENT = {
    "SKIP_YARN_COREPACK_CHECK": "1",
    "YARN_NODE_LINKER": "node-modules",
    "YARN_ENABLE_TELEMETRY": "0",
    "YARN_ENABLE_COLORS": "false",
    "TURBO_TELEMETRY_DISABLED": "1",
    "NX_DAEMON": "false",
    "DO_NOT_TRACK": "1",
}

#: The same for pnpm only: npm complains about settings that it does not know.
_PNPM_ENVIRONMENT = {
    "npm_config_package_manager_strict": "false",
    "npm_config_manage_package_manager_versions": "false",
    "npm_config_verify_deps_before_run": "false",
}

#: Puts folders first on the sandbox's PATH, then becomes the command.
_WITH_PATH = 'PATH="$1:$PATH"; export PATH; shift; exec "$@"'

#: Replaces corepack, which would download a client that is available already.
_COREPACK = 'case "$1" in enable|disable|prepare|install|use|up) exit 0;; esac\nexec "$@"\n'

#: A node for commands that set NODE_OPTIONS: it adds the hook, then runs the next node on the PATH.
_NODE = """case "$NODE_OPTIONS" in
*"$FALLBACK_TIER_HOOK"*) ;;
*) export NODE_OPTIONS="$NODE_OPTIONS $FALLBACK_TIER_HOOK" ;;
esac
here=$(dirname "$0")
IFS=:
for folder in $PATH; do
  [ "$folder" != "$here" ] && [ -x "$folder/node" ] && exec "$folder/node" "$@"
done
exit 127
"""

#: TypeScript's compiler, however it is started.
_COMPILER = re.compile(r"(?:npx\s+)?(?:\S*/)?tsc\b")

#: Paths that runners take for tests by default; test data and helpers do not match.
_TEST_FILE = re.compile(
    r"(?:^|/)(?:[^/]*[._-])?(?:test|spec)s?\.[cm]?[jt]sx?$|(?:^|/)test-[^/]*\.[cm]?[jt]sx?$"
    r"|(?:^|/)(?:__tests__|tests?|specs?)/(?!(?:.*/)?(?:fixtures?|__mocks__|helpers?|support|utils?)(?:/|\.))"
    r".*\.[cm]?[jt]sx?$"
)

#: In a compiler's settings: the folder that paths are relative to, and folders by alias.
_BASE_URL = re.compile(r'"baseUrl"\s*:\s*"([^"\\]*)"')
_ALIASED = re.compile(r'"([^"\\*]*[^"\\*/])(?:/\*)?"\s*:\s*\[\s*"([^"\\*]+?)/?(?:\*)?"')

_CLIENT = re.compile(r"\b(yarn|pnpm)\b")


@dataclass(frozen=True)
class Suite:
    """Commands that together are the tests of a folder of a project."""

    commands: tuple[TestCommand, ...]

    @property
    def title(self) -> str:
        """Return the first command, the number of others, and their source, for people."""
        first = self.commands[0]
        more = f" and {len(self.commands) - 1} more" if len(self.commands) > 1 else ""
        return f"`{first.line}`{more} ({first.source})"

    def run_in(self, project: Installation, limits: GateContext, files: Sequence[str] = ()) -> Run:
        """Return a function that runs the suite in a tree, within a context's limits. ``files``: as for
        ``run_suite``."""
        return lambda tree: run_suite(project.in_tree(tree, limits), tree, self, files)

    def part(self, project: Installation, folder: str) -> Part | str:
        """Return the tests of a project or member's ``folder`` in files that reach what the patch changes,
        or why there are none."""
        context, repo = project.context, project.context.repo
        changed, other_file = changed_sources(context.application.files, is_manifest)
        if other_file:
            return f"the patch changes {other_file}, and no import tells what reads it"
        trees = [{*installation.packages()} for installation in (project, project.at_base)]
        moved = {package.own_name for package in _moved(*trees)}
        needing = {package.name for package in _moved(*trees)}
        while (
            more := {package.name for package in set().union(*trees) if package.asks & needing}
            - needing
        ):
            needing |= more
        tests = [path for path in repo.tracked_files if is_test(path, folder)]
        selection = find(repo, Change.of(changed, moved, needing), tests, _places(repo))
        if isinstance(selection, str):
            return selection
        return Part(selection, lambda limits: self.run_in(project, limits, selection.files))


def _moved(patched: set[Package], base: set[Package]) -> Iterator[Package]:
    """Yield the installed packages of releases that only one of two trees has."""
    releases = [{(package.name, package.version) for package in tree} for tree in (patched, base)]
    apart = releases[0] ^ releases[1]
    return (package for package in patched | base if (package.name, package.version) in apart)


def is_test(path: str, folder: str) -> bool:
    """Return whether a path is in a folder and a test, by the names that runners look for."""
    is_inside = folder == "." or path.startswith(f"{folder}/")
    return is_inside and _TEST_FILE.search(path) is not None


def _places(repo: RepoContext) -> dict[str, str]:
    """Return folders by their names in imports: the repository's packages, and a compiler's paths."""
    folders: dict[str, str] = {}
    for path in repo.tracked_files:
        name, folder = PurePosixPath(path).name, str(PurePosixPath(path).parent)
        if name == MANIFEST:
            package = readable_manifest(repo, path).get("name")
            folders |= {package: folder} if isinstance(package, str) and package else {}
        elif name.startswith("tsconfig"):
            text = readable_text(repo, path)
            root = posixpath.join(folder, next(iter(_BASE_URL.findall(text)), "."))
            folders |= {a: posixpath.join(root, b) for a, b in _ALIASED.findall(text) if a}
    return folders


def choose_suite(
    context: GateContext, project: Installation, folder: str, gate: str
) -> tuple[Suite, Choice] | None:
    """Choose the suite of a folder (``choose``). Return None if there are no tests. Raises as
    ``run_suite``."""
    suite_by_key = {
        gating.content_key(*map(vars, suite.commands)): suite
        for suite in suites(context, project, folder)
    }
    if not suite_by_key:
        return None
    ways = [
        Way(suite.title, suite.run_in(project, context), key, ci_lines=lines_of_ci(suite.commands))
        for key, suite in suite_by_key.items()
    ]
    choice = choose(context, gate, folder, project.at_base.contents, ways)
    return suite_by_key[choice.way.key], choice


def suites(context: GateContext, project: Installation, folder: str) -> Iterator[Suite]:
    """Yield the suites that test a folder of a project, best first; `npm test` is the last."""
    stated = own_commands(context.repo, folder, context.repo.settings.test_commands)
    for commands in suites_of(stated, folder, "node", project.folder):
        yield Suite(commands)
    script = _scripts(gating.patched(context), folder).get("test", "").strip()
    if script and _PLACEHOLDER not in script:
        source = f"{in_folder(folder, MANIFEST)}, script test"
        yield Suite((TestCommand("npm test", source, folder),))


def reached_members(project: Installation) -> tuple[str, ...]:
    """Return the folders of workspace members whose dependencies the patch moves, directly or through
    others, in order; all members if that can't be known."""
    inputs, base = project.inputs, project.at_base.inputs
    texts = {path: inputs.files.manifests[path] for path in inputs.own[1:]}
    if not texts:
        return ()
    try:
        client = client_for(inputs.files.lock, project.context.clients)
        before, after = (client.tree(side.own_files) for side in (base, inputs))
    except RecipeError:
        return tuple(str(PurePosixPath(path).parent) for path in texts)
    base_releases = {(node.name, node.version) for node in before.nodes.values()}
    waiting = [
        key for key, node in after.nodes.items() if (node.name, node.version) not in base_releases
    ]
    seen = set(waiting)
    while waiting:
        dependents = {node.key for node, _ in after.dependents(waiting.pop())} - seen
        seen |= dependents
        waiting += dependents
    facts = {path: parse_manifest(path, text) for path, text in texts.items()}
    reached: set[str] = set()
    names: set[str] = set()
    for _ in texts:  # each round adds the dependents of members that the round before reached
        for path, manifest in facts.items():
            folder = str(PurePosixPath(path).parent)
            keys = {path, folder, posixpath.relpath(folder, project.folder)}
            asks = {
                name for section in MEMBER_SECTIONS for name, _ in entries(manifest.get(section))
            }
            if keys & seen or asks & names or base.files.manifests.get(path) != texts[path]:
                reached.add(path)
        before_names, names = names, {str(facts[path].get("name")) for path in reached}
        if names == before_names:
            break
    return tuple(str(PurePosixPath(path).parent) for path in texts if path in reached)


def _scripts(tree: RepoContext, folder: str) -> dict[str, str]:
    return dict(entries(readable_manifest(tree, in_folder(folder, MANIFEST)).get("scripts")))


def run_suite(
    target: Installation, tree: RepoContext, suite: Suite, files: Sequence[str] = ()
) -> SuiteRun | NotInstalled:
    """Install what a suite needs, and run it in a tree; run it again without reporters, if it fails and
    reports nothing. ``files``: runners that can report run only the tests in these; empty: all. Raises
    SandboxError, and as ``Installation.install``."""
    installed = target.install()
    if installed.absent is not None:
        return installed.absent
    run = _Run(target, tree, suite, tuple(files))
    remarks = [f"installed {installed.in_words}"] if installed.declined else []
    remarks += services.missing([name for command in suite.commands for name in command.services])
    remarks += run.prepare()
    result, report = run.all(reporting=True)
    if report is None and run.asked and not (result.ok or result.timed_out or files):
        result, report = run.all(reporting=False)
    totals = summary(result.output)
    if totals is None and report is not None and report.figures is not None:
        totals = Summary(*report.figures)  # the project's own reporter, whose log can't be read
    suite_run = SuiteRun.read(result, totals, report, "; ".join(remarks))
    if totals is None and not (result.ok or result.timed_out or result.truncated):
        suite_run = replace(suite_run, failing=failing_names(result.output) or None)
    other_lines = (
        run.others if suite_run.report is not None and not suite_run.report.failed else set()
    )
    digest = sha256("\n".join(sorted(other_lines)).encode()).hexdigest()
    return replace(suite_run, others=digest, command=suite.commands[0], can_select=run.asked)


def own_checks(context: GateContext, folder: str) -> tuple[TestCommand, ...]:
    """Return the lint and type checks that a folder's script *test* runs, except the compiler's."""
    checks = {
        (command.line, command.folder): command
        for command in own_commands(context.repo, folder)
        if command.kind in CHECKS
        and is_of_script(command, "test")
        and not _COMPILER.match(command.line)
    }
    return tuple(checks.values())


def run_line(target: Installation, tree: RepoContext, command: TestCommand) -> CommandResult:
    """Run a command that is not a test, with the project's client and programs. Everything it needs must be
    installed. Raises SandboxError."""
    return _Run(target, tree, Suite((command,))).shell(command, command.line)


@dataclass
class _Run:
    """One run of a suite, whose commands and steps share its time. ``asked``: a runner was made to report.
    ``others``: output lines of failing commands that are not their test runner's."""

    target: Installation
    tree: RepoContext
    suite: Suite
    files: tuple[str, ...] = ()
    asked: bool = False
    others: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._time, self._spent_s = time_of(self.target.context), 0.0
        self._programs, self._readable, self._missing = programs(self.target, self.suite)

    def prepare(self) -> list[str]:
        """Run the steps before the tests: the commands' own, or the build of the first command's folder.
        Return remarks on missing programs and failing steps: the tests run all the same."""
        steps = {
            (command.folder, line): command
            for command in self.suite.commands
            for line in command.before
        }
        first = self.suite.commands[0]
        if not steps and _scripts(self.tree, first.folder).get("build"):
            self.shell(first, "npm run build")  # tests may need its output
        failed = []
        for (_, line), command in steps.items():
            result = self.shell(command, line)
            failed += [] if result.ok else [f"`{line}`, which comes before the tests, fails"]
        return [*self._missing, *failed]

    def all(self, *, reporting: bool) -> tuple[CommandResult, Report | None]:
        """Run each command, until one times out. Return the result, whose exit code is of the first that
        fails, and the merged report; None: no runner reported."""
        results: list[CommandResult] = []
        parts: list[Report | None] = []
        self.others = set()
        for command in self.suite.commands:
            with report_in(self.tree.tree) as files:
                report_path = files.path if reporting else ""
                result = self.shell(command, command.line, report_path, command.services)
                texts = files.read_all()
            results.append(result)
            self.asked |= bool(texts)
            parts += [read_jest(text) or read_lines(text) for text in texts]
            if result.timed_out:
                break
            if not result.ok:
                self._note_others(command, result)
        first = next((result for result in results if not result.ok), results[-1])
        whole = {
            "argv": ("sh", "-c", self.suite.commands[0].line),
            "output": "".join(result.output for result in results),
            "duration_ms": round(self._spent_s * 1000),
            "truncated": any(result.truncated for result in results),
        }
        return first.model_copy(update=whole), merged(parts)

    def _note_others(self, command: TestCommand, result: CommandResult) -> None:
        """Record the output lines of a script's other commands: run its test runner again, alone."""
        script = self._script_of(command)
        if plain_runner(script) is not None:
            return
        runner = next(
            (part for part in map(str.strip, script.split("&&")) if plain_runner(part)), None
        )
        alone = "" if runner is None else self._alone(command, runner)
        self.others |= steady_lines(result.output) - steady_lines(alone)

    def _alone(self, command: TestCommand, runner: str) -> str:
        if not self.files:
            return self.shell(command, runner).output
        with report_in(self.tree.tree) as files:
            return self.shell(command, runner, files.path).output

    def _script_of(self, command: TestCommand) -> str:
        match = re.fullmatch(r"(?:npm|yarn|pnpm)(?: run)? ([\w:.-]+)", command.line.strip())
        scripts = _scripts(self.tree, command.folder) if match else {}
        return scripts.get(match[1], command.line) if match else command.line

    def shell(
        self, command: TestCommand, line: str, reports: str = "", needs: Sequence[str] = ()
    ) -> CommandResult:
        """Run a line in a command's folder and environment. ``reports``: the file for runners' reports;
        empty: none."""
        env = {**_ENVIRONMENT, **self._of_package(command.folder), **command.env}
        if self.target.inputs.client == "pnpm":
            env |= _PNPM_ENVIRONMENT
        hook = laid_out(self.target.context.cache, "attach.cjs")
        if reports:
            required = f"--require {_quoted(hook)}"
            options = f"{env.get('NODE_OPTIONS', '')} {required}".strip()
            env |= {"FALLBACK_TIER_REPORTS": reports, "FALLBACK_TIER_HOOK": required}
            env["NODE_OPTIONS"] = options
            env |= {"FALLBACK_TIER_FILES": json.dumps(self.files)} if self.files else {}
        folder = PurePosixPath(command.folder)
        bins = (str(self.tree.root / parent / _PROGRAMS) for parent in (folder, *folder.parents))
        path = ":".join([str(self._programs), *bins])
        wrapped = services.around(["sh", "-c", line], needs, env)
        left_s = max(1.0, self._time.limit_s - self._spent_s)
        result = self.target.run(
            gating.command_in(command.folder, ["sh", "-c", _WITH_PATH, "sh", path, *wrapped]),
            env,
            [*self._readable, hook.parent],
            replace(self._time, limit_s=left_s),
            needs,
        )
        self._spent_s += result.duration_ms / 1000
        return result

    def _of_package(self, folder: str) -> dict[str, str]:
        """Return the variables that a client sets for the scripts of a package."""
        facts = readable_manifest(self.tree, in_folder(folder, MANIFEST))
        values = {key: facts[key] for key in ("name", "version") if key in facts}
        values |= {f"config_{key}": value for key, value in mapping(facts.get("config")).items()}
        return {
            f"npm_package_{re.sub(r'[^0-9A-Za-z_]', '_', key)}": str(value)
            for key, value in values.items()
        }


def programs(target: Installation, suite: Suite) -> tuple[Path, list[Path], list[str]]:
    """Return a folder of programs that come first on a suite's PATH, the folders they read, and remarks.

    The programs are our releases of the clients that install the project or that its commands call;
    `corepack`, which does nothing; and node, for commands that set its options.
    """
    store = ClientStore(target.context.clients)
    readable, remarks = list[Path](), list[str]()
    scripts = {"corepack": _COREPACK, "node": _NODE}
    for name, client in _clients(target, suite).items():
        try:
            script = store.script(client)
        except RecipeError as error:
            remarks.append(error.problem.rstrip("."))
            continue
        readable.append(store.place / client.folder)
        alias, subcommand = {"yarn": ("yarnpkg", ""), "pnpm": ("pnpx", " dlx")}[name]
        scripts[name] = f'exec node "{script}" "$@"\n'
        scripts[alias] = f'exec node "{script}"{subcommand} "$@"\n'
    folder = target.context.cache / "programs" / gating.content_key(scripts)
    if not folder.exists():
        with gating.scratch(target.context) as scratch:
            new_folder = scratch / "programs"
            new_folder.mkdir()
            for name, text in scripts.items():
                (new_folder / name).write_text(f"#!/bin/sh\n{text}", encoding="utf-8")
                (new_folder / name).chmod(0o755)
            folder.parent.mkdir(parents=True, exist_ok=True)
            with suppress(OSError):  # another process was faster
                new_folder.rename(folder)
    return folder, [*readable, folder], remarks


def _clients(target: Installation, suite: Suite) -> dict[str, PinnedClient]:
    """Return the clients that commands or scripts may call, by name."""
    files, client = target.inputs.files, target.inputs.client
    texts = [files.manifests[path] for path in target.inputs.own]
    texts += [line for command in suite.commands for line in (command.line, *command.before)]
    names = {client, *_CLIENT.findall("\n".join(texts))}
    clients = {}
    if "yarn" in names:
        clients["yarn"] = yarn_for(files.lock_text) if client == "yarn" else YARN
    if "pnpm" in names:
        clients["pnpm"] = PNPM["9"]
        if client == "pnpm":
            with suppress(RecipeError, KeyError):
                clients["pnpm"] = PNPM[parse_pnpm_lock(files.lock_text).format[0]]
    return clients


#: Programs that run the command after their name.
_WRAPPERS = frozenset({"cross-env", "npx", "nyc", "c8", "node", "env"})
_RUNNERS = frozenset({"jest", "vitest", "mocha", "_mocha"})
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
#: Signs of more than one plain call: pipes, lists, substitutions, arguments that are not the runner's.
_NOT_PLAIN = re.compile(r"[|;<>`$()&\n]| -- ")

_NODE_TEST = re.compile(r"\bnode\b[^&|;]* --test(?![\w-])")
_REPORTER = "--test-reporter"

_FILES = ("attach.cjs", "mocha.cjs", "node.mjs", "witness.cjs")


@dataclass(frozen=True)
class Reporting:
    """Arguments for ``npm test``, and the reader of the file that it then writes."""

    arguments: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    #: A folder that the runner reads a reporter from.
    readable: Sequence[Path] = ()
    read: Callable[[str | None], Report | None] = read_lines


def reporting(scripts: Mapping[str, str], report_path: str, cache: Path) -> Reporting | None:
    """Return how ``scripts["test"]`` is made to report to a file; None if no way is known."""
    runner = plain_runner(scripts.get("test", ""))
    if runner is not None:
        return _of_runner(runner, report_path, cache)
    text = " && ".join(scripts.values())
    if not _NODE_TEST.search(text) or _REPORTER in text:
        return None
    source = b64encode(_sources()[1]["node.mjs"].encode()).decode()
    options = [f"{_REPORTER}=tap", f"{_REPORTER}-destination=stdout"]
    options += [f"{_REPORTER}=data:text/javascript;base64,{source}"]
    options += [_quoted(f"{_REPORTER}-destination={report_path}")]
    return Reporting(env={"NODE_OPTIONS": " ".join(options)})


def _quoted(value: object) -> str:
    """Return a value that may have spaces, quoted for NODE_OPTIONS."""
    escaped = str(value).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _of_runner(runner: str, report_path: str, cache: Path) -> Reporting:
    if runner == "jest":
        return Reporting(["--json", f"--outputFile={report_path}", "--bail=0"], read=read_jest)
    if runner == "vitest":
        options = ["--reporter=default", "--reporter=json", f"--outputFile.json={report_path}"]
        return Reporting([*options, "--bail=0"], read=read_jest)
    reporter = laid_out(cache, "mocha.cjs")
    env = {"FALLBACK_TIER_REPORT": report_path}
    return Reporting(["--reporter", str(reporter)], env, [reporter.parent])


def plain_runner(script: str) -> str | None:
    """Return the runner that the last command of a script plainly calls, so that it takes arguments."""
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
    """Return the report in jest's or vitest's JSON; None for anything else, or too many names."""
    try:
        document = _Jest.model_validate_json(text or "")
    except ValidationError:
        return None
    statuses: list[tuple[str, str]] = []
    full = Names()
    for file in document.test_results:
        path, tests = shortened(file.name), file.assertion_results
        titles = (" > ".join([*assertion.ancestor_titles, assertion.title]) for assertion in tests)
        names = numbered(full.full(path, title) for title in titles)
        for name, status in zip(names, (assertion.status for assertion in tests), strict=True):
            statuses.append((name, status if status in ("passed", "failed") else "skipped"))
        if file.status == "failed" and not any(assertion.status == "failed" for assertion in tests):
            statuses.append((path, "uncollected"))
    if full.are_lost:
        return None
    failed = document.num_failed_tests
    return Report.of(statuses, (document.num_passed_tests + failed, failed))


@functools.cache
def _sources() -> tuple[str, dict[str, str]]:
    """Return a digest of the reporters, and their files by name."""
    folder = files("fallback_plugins.npm.gates").joinpath("reporters")
    texts = {file_name: folder.joinpath(file_name).read_text("utf-8") for file_name in _FILES}
    return sha256("".join(texts.values()).encode()).hexdigest()[:16], texts


def laid_out(cache: Path, name: str) -> Path:
    """Return a reporter's file, with the others next to it, in a folder that a sandbox can mount."""
    digest, texts = _sources()
    folder = cache / "reporters" / digest
    for file_name, text in texts.items():
        if not (folder / file_name).exists():
            folder.mkdir(parents=True, exist_ok=True)
            write_whole(folder / file_name, text.encode())
    return folder / name


#: Variable that gives each node process of a proof the path of its record.
_RECORD = "FALLBACK_TIER_WITNESS"

#: Clients that run a project's own scripts.
_CLIENTS = frozenset({"npm", "yarn", "pnpm"})


def runs_on(context: GateContext, tree: RepoContext) -> str:
    """``EcosystemPlugin.runs_on``; empty if a manifest can't be read, so that nothing runs."""
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
    lacking = compared = ""
    if tree.has(MANIFEST):
        try:
            project = Installation(context, tree, ".")
            installed = project.install()
        except (RecipeError, RepositoryError) as error:
            return TargetRun(None, error.problem)
        lacking, compared = installed.in_words if installed.declined else "", installed.compared
        tree = tree.laid_out(project.tree)
    command = _Command(context, tree, argv, timeout_s)
    if context.is_proof:
        result, witnessed = command.run_witnessed()
    else:
        result, witnessed = command.run(Reporting()), None
    return TargetRun(result, lacking, compared, witnessed)


@dataclass(frozen=True)
class _Command:
    context: GateContext
    tree: RepoContext
    argv: Sequence[str]
    timeout_s: float | None

    def run(self, reporting: Reporting) -> CommandResult:
        """Run the command, with the arguments and settings that make it report."""
        result = run_as_given(
            self.context,
            self.tree,
            [*self.argv, *reporting.arguments],
            programs=self.tree.root / _PROGRAMS,
            timeout_s=self.timeout_s,
            env=reporting.env,
            readable=reporting.readable,
        )
        return result.model_copy(update={"argv": tuple(self.argv)})

    def run_witnessed(self) -> tuple[CommandResult, Witnessed]:
        """Run a proof; run it again without a reporter, if a runner fails and reports nothing."""
        with report_in(self.tree.tree) as file:
            reporting = self._reporting(file.path)
            if reporting is not None:
                result, witnessed = self._run_watched(reporting)
                report = reporting.read(file.read())
                if report is not None or result.ok or result.timed_out:
                    # Reported tests count only if the output agrees with them.
                    read = SuiteRun.read(result, summary(result.output), report).report
                    if read is not None:
                        tests = {"passed": tuple(sorted(read.passed)), "failed": read.failed}
                        witnessed = witnessed.model_copy(update=tests)
                    return result, witnessed
        return self._run_watched(Reporting())

    def _reporting(self, report_path: str) -> Reporting | None:
        scripts = {"test": shlex.join(self.argv)}
        if self.argv[0] in _CLIENTS and self.tree.has(MANIFEST):
            manifest = parse_manifest(MANIFEST, self.tree.read_text(MANIFEST))
            scripts = {**dict(entries(manifest.get("scripts"))), "test": ""}
        return reporting(scripts, report_path, self.context.cache)

    def _run_watched(self, reporting: Reporting) -> tuple[CommandResult, Witnessed]:
        watching, header = laid_out(self.context.cache, "witness.cjs"), secrets.token_hex(16)
        options = f"--require {_quoted(watching)} {reporting.env.get('NODE_OPTIONS', '')}"
        with report_in(self.tree.tree) as record:
            record.begin(header)
            env = {**reporting.env, "NODE_OPTIONS": options, _RECORD: record.path}
            readable: list[Path] = [*reporting.readable, watching.parent]
            result = self.run(replace(reporting, env=env, readable=readable))
            return result, _read_witness(record.read(), header, result.output)


def _read_witness(text: str | None, header: str, output: str) -> Witnessed:
    first, _, rest = (text or "").partition("\n")
    lines = [_decoded(line) for line in rest.split("\n")[:-1]]
    log_summary = summary(output)
    doubts = []
    if first != header or ("damage", "") in lines:
        doubts.append("the record of what its processes did was damaged")
    elif log_summary is not None and not lines:
        doubts.append("no node process that loads what NODE_OPTIONS names ran its tests")
    return Witnessed(
        failures=0 if log_summary is None else log_summary.failed,
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
