"""A project's own tests: which commands run them, what those find, and how each test is reported.

The commands are the project's own (``own_commands``), tried at the base commit in their order; `npm test`
of the project's manifest comes last. Each gets what a CI machine gives it (ADR-0117): the project's client
and programs, a place to write, services. Test runners report to a file, whatever calls them
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

#: For the project's commands: no client looks for another release of itself, none reports to anyone.
_ENVIRONMENT = {
    "SKIP_YARN_COREPACK_CHECK": "1",
    "YARN_NODE_LINKER": "node-modules",
    "YARN_ENABLE_TELEMETRY": "0",
    "YARN_ENABLE_COLORS": "false",
    "TURBO_TELEMETRY_DISABLED": "1",
    "NX_DAEMON": "false",
    "DO_NOT_TRACK": "1",
}

#: The same for pnpm; npm complains of settings that it does not know.
_PNPM_ENVIRONMENT = {
    "npm_config_package_manager_strict": "false",
    "npm_config_manage_package_manager_versions": "false",
    "npm_config_verify_deps_before_run": "false",
}

#: Puts folders first on the path that the sandbox gives, then becomes the command.
_WITH_PATH = 'PATH="$1:$PATH"; export PATH; shift; exec "$@"'

#: Instead of corepack, which would fetch a client: that is here already.
_COREPACK = 'case "$1" in enable|disable|prepare|install|use|up) exit 0;; esac\nexec "$@"\n'

#: A node for commands that set NODE_OPTIONS: the hook is added, then the next node on the path runs.
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

#: Files by which runners know tests, by default; data and helpers of tests are in none.
_TEST_FILE = re.compile(
    r"(?:^|/)(?:[^/]*[._-])?(?:test|spec)s?\.[cm]?[jt]sx?$|(?:^|/)test-[^/]*\.[cm]?[jt]sx?$"
    r"|(?:^|/)(?:__tests__|tests?|specs?)/(?!(?:.*/)?(?:fixtures?|__mocks__|helpers?|support|utils?)(?:/|\.))"
    r".*\.[cm]?[jt]sx?$"
)

#: Of a compiler's settings: the folder that paths begin in, and folders by alias.
_BASE_URL = re.compile(r'"baseUrl"\s*:\s*"([^"\\]*)"')
_ALIASED = re.compile(r'"([^"\\*]*[^"\\*/])(?:/\*)?"\s*:\s*\[\s*"([^"\\*]+?)/?(?:\*)?"')

_CLIENT = re.compile(r"\b(yarn|pnpm)\b")


@dataclass(frozen=True)
class Suite:
    """Commands that together are the tests of a folder of a project."""

    commands: tuple[TestCommand, ...]

    @property
    def title(self) -> str:
        """The first command, the number of others, and their source, for people."""
        first = self.commands[0]
        more = f" and {len(self.commands) - 1} more" if len(self.commands) > 1 else ""
        return f"`{first.line}`{more} ({first.source})"

    def run_in(self, project: Installation, limits: GateContext, files: Sequence[str] = ()) -> Run:
        """Return what runs it in any tree, within a context's limits. ``files``: as for ``run_suite``."""
        return lambda tree: run_suite(project.in_tree(tree, limits), tree, self, files)

    def part(self, project: Installation, folder: str) -> Part | str:
        """Return the tests of a project or member's ``folder`` in files that reach what the patch changes,
        or why there are none."""
        context, repo = project.context, project.context.repo
        changed, other = changed_sources(context.application.files, is_manifest)
        if other:
            return f"the patch changes {other}, and no import tells what reads it"
        trees = [{*it.packages()} for it in (project, project.at_base)]
        moved = {one.own_name for one in _moved(*trees)}
        needing = {one.name for one in _moved(*trees)}
        while more := {it.name for it in set().union(*trees) if it.asks & needing} - needing:
            needing |= more
        tests = [path for path in repo.tracked_files if is_test(path, folder)]
        found = find(repo, Change.of(changed, moved, needing), tests, _places(repo))
        if isinstance(found, str):
            return found
        return Part(found, lambda limits: self.run_in(project, limits, found.files))


def _moved(here: set[Package], there: set[Package]) -> Iterator[Package]:
    """Yield the installed packages of releases that only one of two trees has."""
    releases = [{(it.name, it.version) for it in tree} for tree in (here, there)]
    apart = releases[0] ^ releases[1]
    return (it for it in here | there if (it.name, it.version) in apart)


def is_test(path: str, folder: str) -> bool:
    """Is a file of a folder a test, by the names that runners look for?"""
    is_inside = folder == "." or path.startswith(f"{folder}/")
    return is_inside and _TEST_FILE.search(path) is not None


def _places(repo: RepoContext) -> dict[str, str]:
    """Return folders by their names in imports: the repository's packages, and a compiler's paths."""
    found: dict[str, str] = {}
    for path in repo.tracked_files:
        name, folder = PurePosixPath(path).name, str(PurePosixPath(path).parent)
        if name == MANIFEST:
            own = readable_manifest(repo, path).get("name")
            found |= {own: folder} if isinstance(own, str) and own else {}
        elif name.startswith("tsconfig"):
            text = readable_text(repo, path)
            root = posixpath.join(folder, next(iter(_BASE_URL.findall(text)), "."))
            found |= {a: posixpath.join(root, b) for a, b in _ALIASED.findall(text) if a}
    return found


def choose_suite(
    context: GateContext, project: Installation, folder: str, gate: str
) -> tuple[Suite, Choice] | None:
    """Choose the suite of a folder (``choose``). None: there are no tests. Raises as ``run_suite``."""
    found = {
        gating.content_key(*map(vars, it.commands)): it for it in suites(context, project, folder)
    }
    if not found:
        return None
    ways = [
        Way(it.title, it.run_in(project, context), key, ci_lines=lines_of_ci(it.commands))
        for key, it in found.items()
    ]
    choice = choose(context, gate, folder, project.at_base.contents, ways)
    return found[choice.way.key], choice


def suites(context: GateContext, project: Installation, folder: str) -> Iterator[Suite]:
    """Yield what tests a folder of a project, the best first; `npm test` is the last."""
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
        before, after = (client.tree(it.own_files) for it in (base, inputs))
    except RecipeError:
        return tuple(str(PurePosixPath(path).parent) for path in texts)
    held = {(node.name, node.version) for node in before.nodes.values()}
    waiting = [key for key, it in after.nodes.items() if (it.name, it.version) not in held]
    seen = set(waiting)
    while waiting:
        dependents = {node.key for node, _ in after.dependents(waiting.pop())} - seen
        seen |= dependents
        waiting += dependents
    facts = {path: parse_manifest(path, text) for path, text in texts.items()}
    reached: set[str] = set()
    names: set[str] = set()
    for _ in texts:  # each round takes those who ask for a member of the one before
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
    """Run a suite in a tree, once what it needs is installed; once more without reporters, if it fails and
    reports nothing. ``files``: runners that can report run only the tests in these. Raises SandboxError,
    and as ``Installation.install``."""
    found = target.install()
    if found.absent is not None:
        return found.absent
    run = _Run(target, tree, suite, tuple(files))
    remarks = [f"installed {found.in_words}"] if found.declined else []
    remarks += services.missing([name for one in suite.commands for name in one.services])
    remarks += run.prepare()
    result, report = run.all(reporting=True)
    if report is None and run.asked and not (result.ok or result.timed_out or files):
        result, report = run.all(reporting=False)
    told = summary(result.output)
    if told is None and report is not None and report.figures is not None:
        told = Summary(*report.figures)  # the project's own reporter, which is not known here
    made = SuiteRun.read(result, told, report, "; ".join(remarks))
    if told is None and not (result.ok or result.timed_out or result.truncated):
        made = replace(made, failing=failing_names(result.output) or None)
    others = run.others if made.report is not None and not made.report.failed else set()
    digest = sha256("\n".join(sorted(others)).encode()).hexdigest()
    return replace(made, others=digest, command=suite.commands[0], can_select=run.asked)


def own_checks(context: GateContext, folder: str) -> tuple[TestCommand, ...]:
    """Return the lint and type checks that a folder's script *test* runs, but for the compiler's."""
    found = {
        (one.line, one.folder): one
        for one in own_commands(context.repo, folder)
        if one.kind in CHECKS and is_of_script(one, "test") and not _COMPILER.match(one.line)
    }
    return tuple(found.values())


def run_line(target: Installation, tree: RepoContext, command: TestCommand) -> CommandResult:
    """Run a command that is no test, with the project's client and programs. Everything it needs is
    installed. Raises SandboxError."""
    return _Run(target, tree, Suite((command,))).shell(command, command.line)


@dataclass
class _Run:
    """One run of a suite, whose commands and steps share its time. ``asked``: a runner was made to report.
    ``others``: what commands print that fail and are no test runner's alone."""

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
        """Run what comes before the tests: the commands' own steps, or the build of the first one's folder.
        Return remarks on steps that fail: the tests run all the same."""
        steps = {(one.folder, line): one for one in self.suite.commands for line in one.before}
        first = self.suite.commands[0]
        if not steps and _scripts(self.tree, first.folder).get("build"):
            self.shell(first, "npm run build")  # tests may be of what it makes
        failed = []
        for (_, line), command in steps.items():
            result = self.shell(command, line)
            failed += [] if result.ok else [f"`{line}`, which comes before the tests, fails"]
        return [*self._missing, *failed]

    def all(self, *, reporting: bool) -> tuple[CommandResult, Report | None]:
        """Run each command; the first that fails says how the suite ended."""
        results: list[CommandResult] = []
        parts: list[Report | None] = []
        self.others = set()
        for command in self.suite.commands:
            with report_in(self.tree.tree) as files:
                place = files.path if reporting else ""
                result = self.shell(command, command.line, place, command.services)
                texts = files.read_all()
            results.append(result)
            self.asked |= bool(texts)
            parts += [read_jest(text) or read_lines(text) for text in texts]
            if result.timed_out:
                break
            if not result.ok:
                self._note_others(command, result)
        first = next((one for one in results if not one.ok), results[-1])
        whole = {
            "argv": ("sh", "-c", self.suite.commands[0].line),
            "output": "".join(one.output for one in results),
            "duration_ms": round(self._spent_s * 1000),
            "truncated": any(one.truncated for one in results),
        }
        return first.model_copy(update=whole), merged(parts)

    def _note_others(self, command: TestCommand, result: CommandResult) -> None:
        """Note what a script of several commands prints besides its runner, which runs once more alone."""
        script = self._script_of(command)
        if plain_runner(script) is not None:
            return
        runner = next((it for it in map(str.strip, script.split("&&")) if plain_runner(it)), None)
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
        """Run a line as a command's. ``reports``: the file for runners' reports; empty: none."""
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
        bins = (str(self.tree.root / it / _PROGRAMS) for it in (folder, *folder.parents))
        path = ":".join([str(self._programs), *bins])
        words = services.around(["sh", "-c", line], needs, env)
        left_s = max(1.0, self._time.limit_s - self._spent_s)
        result = self.target.run(
            gating.command_in(command.folder, ["sh", "-c", _WITH_PATH, "sh", path, *words]),
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
        values |= {f"config_{key}": it for key, it in mapping(facts.get("config")).items()}
        return {
            f"npm_package_{re.sub(r'[^0-9A-Za-z_]', '_', key)}": str(it)
            for key, it in values.items()
        }


def programs(target: Installation, suite: Suite) -> tuple[Path, list[Path], list[str]]:
    """Return a folder of programs that come first on a suite's path, what they read, and remarks.

    These are our releases of the clients that install the project or that its commands call; `corepack`,
    which does nothing; and node, for commands that set its options.
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
        other, words = {"yarn": ("yarnpkg", ""), "pnpm": ("pnpx", " dlx")}[name]
        scripts[name] = f'exec node "{script}" "$@"\n'
        scripts[other] = f'exec node "{script}"{words} "$@"\n'
    folder = target.context.cache / "programs" / gating.content_key(scripts)
    if not folder.exists():
        with gating.scratch(target.context) as scratch:
            made = scratch / "programs"
            made.mkdir()
            for name, text in scripts.items():
                (made / name).write_text(f"#!/bin/sh\n{text}", encoding="utf-8")
                (made / name).chmod(0o755)
            folder.parent.mkdir(parents=True, exist_ok=True)
            with suppress(OSError):  # another process was quicker
                made.rename(folder)
    return folder, [*readable, folder], remarks


def _clients(target: Installation, suite: Suite) -> dict[str, PinnedClient]:
    """Return the clients that commands or scripts may call, by name."""
    files, client = target.inputs.files, target.inputs.client
    texts = [files.manifests[path] for path in target.inputs.own]
    texts += [line for one in suite.commands for line in (one.line, *one.before)]
    names = {client, *_CLIENT.findall("\n".join(texts))}
    found = {}
    if "yarn" in names:
        found["yarn"] = yarn_for(files.lock_text) if client == "yarn" else YARN
    if "pnpm" in names:
        found["pnpm"] = PNPM["9"]
        if client == "pnpm":
            with suppress(RecipeError, KeyError):
                found["pnpm"] = PNPM[parse_pnpm_lock(files.lock_text).format[0]]
    return found


#: Programs that run the command after their name.
_WRAPPERS = frozenset({"cross-env", "npx", "nyc", "c8", "node", "env"})
_RUNNERS = frozenset({"jest", "vitest", "mocha", "_mocha"})
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
#: Beyond one plain call: pipes, lists, substitutions, arguments that are not the runner's.
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


def reporting(scripts: Mapping[str, str], place: str, cache: Path) -> Reporting | None:
    """Return how ``scripts["test"]`` is made to report in the file ``place``; None if no way is known."""
    runner = plain_runner(scripts.get("test", ""))
    if runner is not None:
        return _of_runner(runner, place, cache)
    message = " && ".join(scripts.values())
    if not _NODE_TEST.search(message) or _REPORTER in message:
        return None
    source = b64encode(_sources()[1]["node.mjs"].encode()).decode()
    options = [f"{_REPORTER}=tap", f"{_REPORTER}-destination=stdout"]
    options += [f"{_REPORTER}=data:text/javascript;base64,{source}"]
    options += [_quoted(f"{_REPORTER}-destination={place}")]
    return Reporting(env={"NODE_OPTIONS": " ".join(options)})


def _quoted(word: object) -> str:
    """Return a word of NODE_OPTIONS, which may have spaces."""
    escaped = str(word).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


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
        found = _Jest.model_validate_json(text or "")
    except ValidationError:
        return None
    reported: list[tuple[str, str]] = []
    full = Names()
    for file in found.test_results:
        path, tests = shortened(file.name), file.assertion_results
        titles = (" > ".join([*one.ancestor_titles, one.title]) for one in tests)
        names = numbered(full.full(path, title) for title in titles)
        for name, status in zip(names, (one.status for one in tests), strict=True):
            reported.append((name, status if status in ("passed", "failed") else "skipped"))
        if file.status == "failed" and not any(one.status == "failed" for one in tests):
            reported.append((path, "uncollected"))
    if full.are_lost:
        return None
    failed = found.num_failed_tests
    return Report.of(reported, (found.num_passed_tests + failed, failed))


@functools.cache
def _sources() -> tuple[str, dict[str, str]]:
    """Return a digest of the reporters, and their files by name."""
    folder = files("fallback_plugins.npm.gates").joinpath("reporters")
    texts = {it: folder.joinpath(it).read_text("utf-8") for it in _FILES}
    return sha256("".join(texts.values()).encode()).hexdigest()[:16], texts


def laid_out(cache: Path, name: str) -> Path:
    """Return a reporter's file, with the others next to it, in a folder that a sandbox can be shown."""
    digest, texts = _sources()
    folder = cache / "reporters" / digest
    for other, text in texts.items():
        if not (folder / other).exists():
            folder.mkdir(parents=True, exist_ok=True)
            write_whole(folder / other, text.encode())
    return folder / name


#: Names the record to each node of a proof.
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
        """Run a proof; once more without a reporter, if a runner fails and reports nothing."""
        with report_in(self.tree.tree) as file:
            asked = self._reporting(file.path)
            if asked is not None:
                result, witnessed = self._run_watched(asked)
                report = asked.read(file.read())
                if report is not None or result.ok or result.timed_out:
                    # Its tests count if the output bears them out.
                    read = SuiteRun.read(result, summary(result.output), report).report
                    if read is not None:
                        tests = {"passed": tuple(sorted(read.passed)), "failed": read.failed}
                        witnessed = witnessed.model_copy(update=tests)
                    return result, witnessed
        return self._run_watched(Reporting())

    def _reporting(self, place: str) -> Reporting | None:
        scripts = {"test": shlex.join(self.argv)}
        if self.argv[0] in _CLIENTS and self.tree.has(MANIFEST):
            manifest = parse_manifest(MANIFEST, self.tree.read_text(MANIFEST))
            scripts = {**dict(entries(manifest.get("scripts"))), "test": ""}
        return reporting(scripts, place, self.context.cache)

    def _run_watched(self, asked: Reporting) -> tuple[CommandResult, Witnessed]:
        watching, header = laid_out(self.context.cache, "witness.cjs"), secrets.token_hex(16)
        options = f"--require {_quoted(watching)} {asked.env.get('NODE_OPTIONS', '')}"
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
