"""Tests and other commands run in the environment of a Python project's dependencies, the summaries of
their logs, and the gate on tests.

Tests run by the project's own commands (ADR-0118), or by pytest or unittest, whichever finds some. A
project's own command runs as it is written. Every process of it that runs pytest, or that makes unittest
results, reports its tests from inside (``witness_probe.Suite``): the command may be a script, a task
runner, or a test runner that builds on one of the two.
"""

import json
import re
import secrets
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from pathlib import PurePosixPath

from fallback_audit.vocabulary import GateStatus
from fallback_plugins.pypi.gates.checks import PyPIGate, beside_base, modules_of, moved_packages
from fallback_plugins.pypi.installing.declared import naming
from fallback_plugins.pypi.installing.environment import Environment, choose_python
from fallback_plugins.pypi.installing.plan import is_test
from fallback_plugins.pypi.manifests.kinds import kind_of
from fallback_plugins.pypi.probes import observed, witness_probe
from fallback_plugins.pypi.probes.observed import START, hook_text, read_acts, read_suite, source_of
from fallback_plugins.pypi.probes.report_probe import ONLY
from fallback_plugins.shared.gates import gating, services
from fallback_plugins.shared.gates.base_runs import Run, Way, choose, time_of
from fallback_plugins.shared.gates.gating import in_folder
from fallback_plugins.shared.gates.reaching import Change, changed_sources, find
from fallback_plugins.shared.gates.suite_run import (
    FIGURE,
    SuiteRun,
    Summary,
    numbered,
    read_lines,
    report_in,
)
from fallback_plugins.shared.gates.suites import Part, judge_tests
from fallback_plugins.shared.gates.test_commands import (
    TestCommand,
    lines_of_ci,
    own_commands,
    suites_of,
)
from fallback_plugins.shared.installation import Level, NotInstalled
from fallback_tier.errors import RecipeError, RepositoryError
from fallback_tier.gate_ports import GateContext, GateVerdict, TargetRun
from fallback_tier.repo import RepoContext

#: To be raised when the way in which a project's own command is run and read changes.
_FORMAT = 1

#: ``-p no:sugar``: it prints another last line. ``--maxfail``: overrides a project's ``-x``, since other
#: tests may fail after the first. ``-p no:randomly``: in a random order, no two runs are alike.
_COMMON = (
    "-ra", "--tb=short", "--color=no", "-p", "no:cacheprovider", "-p", "no:sugar", "--maxfail=0",
    "--continue-on-collection-errors", "-p", "no:randomly",
)  # fmt: skip

#: ``--verbosity``: together with a project's own ``-q``, another ``-q`` would suppress the last line.
_OPTIONS = ("--verbosity=-1", *_COMMON)

#: Removes options that a project sets for all its runs: they may need plugins that could not be installed.
_WITHOUT_ITS_OWN = ("-o", "addopts=", "-o", "required_plugins=")

_COMPLAINT = re.compile(r"error: (.+)|^ERROR: (.+)|^(\w*Error: .+)", re.MULTILINE)
_UNRECOGNIZED = re.compile(r"^.*error: unrecognized arguments: (.+)$", re.MULTILINE)


#: A token that only a shell understands, or one that it expands.
_FOR_A_SHELL = re.compile(r"[();<>|&]+|.*[$`*?~{}\n].*", re.DOTALL)
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_PYTHON = re.compile(r"(?:.*/)?python(?:\d(?:\.\d+)?)?")

#: Options of pytest that make a run slow, or unlike another, or make it write files: measuring coverage,
#: stopping at a failure, other files for reports, more or less output. ``-n`` would change in each run
#: which tests share a process, and their order.
_NO_VALUE = re.compile(
    r"-x|--exitfirst|-[qv]+|--quiet|--verbose|--no-cov.*|--cov-(?:append|branch)|--lf|--last-failed|--ff"
    r"|--failed-first|--nf|--new-first|--sw|--stepwise|--sw-skip|--self-contained-html|-n\w+"
    r"|--(?:cov|cov-[a-z-]+|maxfail|junit-?xml|numprocesses|maxprocesses|dist|tx|reruns|reruns-delay"
    r"|durations|durations-min|html|color|tb|verbosity|report-log|random-order-seed)=.*"
)
_ONE_VALUE = re.compile(
    r"-n|--(?:cov-(?:report|config|context|fail-under)|maxfail|junit-?xml|numprocesses|maxprocesses|dist"
    r"|tx|reruns|reruns-delay|durations|durations-min|html|color|tb|verbosity|report-log)"
)
_CLUSTER = re.compile(r"-[xqvsl]{2,}")

#: Options of ``coverage run`` that are followed by a value.
_OF_COVERAGE = frozenset(
    {"--source", "--source-pkgs", "--rcfile", "--omit", "--include", "--concurrency", "--data-file"}
    | {"--context"}
)  # fmt: skip

#: Variables that a command's source can't set, and those to which the tool's own value is appended.
_OURS = frozenset({"PATH", "HOME", "TMPDIR", "VIRTUAL_ENV"})
_BEHIND_OWN = {"PYTEST_ADDOPTS": '" $PYTEST_ADDOPTS"', "PYTHONPATH": '":$PYTHONPATH"'}

_NO_MODULE = re.compile(r"(?:ModuleNotFound|Import)Error: No module named '?([A-Za-z_][\w.]*)")


def run_tests(target: Environment, only: Sequence[str] = ()) -> SuiteRun | NotInstalled:
    """Run the suite of a tree in its environment. A run that exits with 0 but reports nothing has run no
    test.

    ``only``: names of tests, as in a report, or whole paths of files: no other test is run. If there are
    paths, other files are not even loaded. Raises what installing and running raise.
    """
    if isinstance(installed := _installed(target), NotInstalled):
        return installed
    selection = [f"{ONLY}{json.dumps([*only])}"] if only else []
    suite_run = _pytest(target, installed, selection) if target.installed("pytest") else None
    if suite_run is None or (suite_run.count == 0 and not suite_run.result.timed_out):
        by_unittest = _run(target, "unittest", [*selection, *_discovery(target)], installed)
        suite_run = by_unittest if suite_run is None or by_unittest.count else suite_run
    return suite_run


@dataclass(frozen=True)
class OwnTests:
    """A project's tests in its environment, run by its own commands one after the other, or by plain
    discovery if there are none. ``unserved``: why other commands did not serve."""

    here: Environment
    commands: tuple[TestCommand, ...] = ()
    unserved: tuple[str, ...] = ()

    @property
    def way(self) -> Way:
        """These tests as one of the ways to choose from."""
        run = self.within(self.here.context)
        if not self.commands:
            return Way("pytest or unittest, by plain discovery", run, hint=self._lacking)
        whole = _whole(self.commands)
        parts = [
            (command.line, command.folder, dict(command.env), command.before)
            for command in self.commands
        ]
        label = f"`{whole.line}` ({whole.source})"
        key = gating.content_key(_FORMAT, *parts)
        return Way(label, run, key, self._lacking, lines_of_ci(self.commands))

    def within(self, limits: GateContext) -> Run:
        """Return a function that runs them within the time limits of a context."""
        return lambda tree: self._run(self.here.in_tree(tree, limits), ())

    def alone(self, tests: Sequence[str]) -> Run:
        """Return a function that runs these tests, and no others."""
        return lambda tree: self._run(self.here.in_tree(tree), tests)

    def part(self) -> Part | str:
        """Return the tests in the files that reach what the patch changes, or why there are none."""
        environment = self.here
        repo, folder = environment.context.repo, environment.folder
        files = environment.context.application.files
        changed, other = changed_sources(files, lambda path: kind_of(path) is not None)
        if other:
            return f"the patch changes {other}, and no import tells what reads it"
        moved = moved_packages(environment)
        change = Change.of(changed, moved, modules_of(environment, moved) if moved else ())
        tests = [path for path in repo.tracked_files if is_test(path, folder)]
        reached = find(repo, change, tests)
        if isinstance(reached, str):
            return reached

        def within(limits: GateContext) -> Run:
            def run(tree: RepoContext) -> SuiteRun | NotInstalled:
                paths = [str(tree.root / path) for path in reached.files]
                return self._run(environment.in_tree(tree, limits), paths)

            return run

        return Part(reached, within)

    def _run(self, target: Environment, only: Sequence[str]) -> SuiteRun | NotInstalled:
        commands = self.commands
        run = _run_own(target, commands, only) if commands else run_tests(target, only)
        if isinstance(run, NotInstalled):
            return run
        return replace(run, command=_whole(commands) if commands else None, unserved=self.unserved)

    def _lacking(self, output: str) -> str:
        """Return a clause on what failing tests lacked, by their output: services that are not available, a
        module, and the file that would provide it."""
        needs = [name for command in self.commands for name in command.services]
        clauses = [*services.missing(needs)]
        repo, folder = self.here.repo, self.here.folder
        for name in dict.fromkeys(
            module.partition(".")[0] for module in _NO_MODULE.findall(output)
        ):
            if not repo.has(f"{name}.py") and not repo.has(f"{name}/__init__.py"):
                source = naming(repo, folder, name)
                origin = f"which {source} names" if source else "which no file of the project names"
                clauses.append(f"needs the module {name!r}, {origin}")
                break
        return "; ".join(clauses)


def _whole(commands: Sequence[TestCommand]) -> TestCommand:
    """Return several commands as one, to be shown to people."""
    sources = dict.fromkeys(command.source for command in commands)
    lines = "; ".join(command.line for command in commands)
    return replace(commands[0], line=lines, source="; ".join(sources))


def _run_own(
    target: Environment, commands: Sequence[TestCommand], only: Sequence[str] = ()
) -> SuiteRun | NotInstalled:
    """Run commands of the project's own in a tree, each after its preparatory steps.

    Raises what installing and running raise. ``only``: as for ``run_tests``; a runner that builds on
    neither pytest nor unittest runs all tests.
    """
    if isinstance(installed := _installed(target), NotInstalled):
        return installed
    lines = [Line.of(command.line) for command in commands]
    suite_run = _own(target, commands, lines, installed, only)
    if suite_run.count or suite_run.result.ok or suite_run.result.timed_out:
        return suite_run
    for other_commands, other_lines, options, remark in _with_less(commands, lines, suite_run):
        remarks = "; ".join(filter(None, (installed, remark)))
        retried = _own(target, other_commands, other_lines, remarks, only, options)
        if retried.count:
            return replace(retried, without_options=True)
    return suite_run


def _with_less(
    commands: Sequence[TestCommand], lines: Sequence["Line"], run: SuiteRun
) -> Iterator[tuple[Sequence[TestCommand], Sequence["Line"], Sequence[str], str]]:
    """Yield other ways to run commands that ran no test: without the arguments that pytest rejects, without
    the project's own pytest options, without the variables that their source sets (which may need something
    that is not built here)."""
    output = run.result.output
    unknown = " ".join(_UNRECOGNIZED.findall(output)).split()
    changed = [line.without(unknown) for line in lines]
    if "pytest" in output:
        remark = "pytest ran without some of the project's own options "
        remark += f"({gating.in_short(_complaint(run))})"
        if changed != lines:
            yield commands, changed, (), remark
        yield commands, changed, _WITHOUT_ITS_OWN, remark
    if names := sorted({name for command in commands for name in command.env} - {"CI"}):
        bare = [replace(command, env={}) for command in commands]
        yield bare, lines, (), f"run without {', '.join(names)}, which {commands[0].source} sets"


def _own(
    target: Environment,
    commands: Sequence[TestCommand],
    lines: Sequence["Line"],
    installed: str,
    only: Sequence[str],
    options: Sequence[str] = (),
) -> SuiteRun:
    header = secrets.token_hex(16)
    with report_in(target.repo.tree) as record:
        record.begin(header)
        env = {
            "PYTEST_ADDOPTS": shlex.join([*_COMMON, *options]),
            observed.VARIABLE: record.path,
            witness_probe.VARIABLE: witness_probe.SUITE,
            **({witness_probe.ONLY: "\n".join(only)} if only else {}),
        }
        needs = [name for command in commands for name in command.services]
        # Each command gets its own variables; the servers get those of all commands.
        stated = {
            name: value for command in commands for name, value in command.env.items() if needs
        }
        stated = {name: value for name, value in stated.items() if "PATH" not in name}
        result = target.shell(
            _script(commands, lines),
            {**stated, **env},
            needs,
            time_of(target.context),
            shown="; ".join(command.line for command in commands),
        )
        report, other_lines = read_suite(record.read(), header)
        acts = read_acts(other_lines, header, target.place)
    result = result.model_copy(update={"argv": tuple(command.line for command in commands)})
    figures = report.figures if report is not None else None
    summary = command_summary(result.output, figures, () if report is None else report.failed)
    if summary is not None and summary.failed and result.ok:
        # A command can hide failing tests (``|| true``, ``;``); the reported failures count.
        result = result.model_copy(update={"exit_code": 1})
    run = SuiteRun.read(result, summary, report, installed)
    if summary is not None and not summary.ran and summary.names:
        run = replace(run, count=None, passing=None)
    run = replace(run, acts=acts, can_select=report is not None)
    is_silent = run.count is None and not run.failing and not result.timed_out
    return replace(run, count=0) if is_silent else run


def _script(commands: Sequence[TestCommand], lines: Sequence["Line"]) -> str:
    """Return a shell script that runs each command in its folder, with its variables, after its steps. It
    exits with the last exit code that is not 0."""
    parts, done_steps = [], set[tuple[str, str]]()
    for command, line in zip(commands, lines, strict=True):
        texts = [f"cd {shlex.quote(command.folder)} || exit"]
        texts += [
            f"export {name}={shlex.quote(value)}{_BEHIND_OWN.get(name, '')}"
            for name, value in {**line.env, **command.env}.items()
            if name not in _OURS
        ]
        for step in command.before:  # its output is logged only if it fails
            if (command.folder, step) not in done_steps:
                log, quoted = '"$TMPDIR/before"', shlex.quote(step)
                what = f"before the tests, {quoted} ended with exit code $?:"
                run_it = f'"$shell" -c {quoted} >{log} 2>&1'
                texts.append(f"{run_it} || {{ echo {what}; tail -n 5 {log}; }}")
        done_steps |= {(command.folder, step) for step in command.before}
        parts += ["(", *texts, f'"$shell" -c {shlex.quote(line.text)}', ") || status=$?"]
    return "\n".join(["status=0 shell=$(command -v bash || echo sh)", *parts, 'exit "$status"'])


@dataclass(frozen=True)
class Line:
    """A command line as it is run. ``words``: the arguments of a line that needs no shell, without the
    program that starts it in an environment (``poetry run``, ``coverage run``) and without pytest options
    that don't serve here; empty if the line needs a shell. ``env``: variables that the line itself sets."""

    written: str
    words: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, written: str) -> "Line":
        """Read a line."""
        words = _plain_words(written)
        env: dict[str, str] = {}
        while words and (words[0] == "env" or _ASSIGNMENT.match(words[0])):
            name, sign, value = words.pop(0).partition("=")
            env |= {name: value} if sign else {}
        words = _unwrapped(words)
        if words and _PYTHON.fullmatch(words[0]):
            words[0] = "python"
        elif words and words[0].endswith(".py"):
            words.insert(0, "python")
        at = _pytest_at(words)
        return cls(written, (*words[:at], *_kept_options(words[at:])), env if words else {})

    @property
    def text(self) -> str:
        """The line for a shell."""
        return shlex.join(self.words) if self.words else self.written

    def without(self, left_out: Sequence[str]) -> "Line":
        """Return the line without some of its words."""
        return replace(self, words=tuple(word for word in self.words if word not in left_out))


def _plain_words(written: str) -> list[str]:
    try:
        lexer = shlex.shlex(written, posix=True, punctuation_chars=True)
        lexer.whitespace_split, lexer.commenters = True, ""
        words, quoted = list(lexer), shlex.split(written)
    except ValueError:
        return []
    if words != quoted or any(_FOR_A_SHELL.fullmatch(word) for word in words):
        return []
    return words


def _unwrapped(words: list[str]) -> list[str]:
    """Return the words without ``coverage run`` and its options: coverage is not needed."""
    rest = words[2:] if words[1:2] == ["-m"] and _PYTHON.fullmatch(words[0]) else words
    if rest[:2] != ["coverage", "run"]:
        return words
    rest = rest[2:]
    while rest and rest[0].startswith("-") and rest[0] != "-m":
        rest = rest[2:] if rest[0] in _OF_COVERAGE else rest[1:]
    return ["python", *rest] if rest else words


def _pytest_at(words: Sequence[str]) -> int:
    """Return the index of pytest's first argument; the number of words if they run something else."""
    by_client = "run" in words[1:2]
    for at, word in enumerate(words):
        is_pytest = PurePosixPath(word).name in {"pytest", "py.test"}
        if is_pytest and (at == 0 or by_client or words[at - 1] == "-m"):
            return at + 1
        if at and words[at - 1] == "-m":
            break
    return len(words)


def _kept_options(words: Sequence[str]) -> Iterator[str]:
    rest = list(reversed(words))
    while rest:
        word = rest.pop()
        if word == "--cov":  # its value is optional, and does not begin with "-"
            del rest[-1 if rest and not rest[-1].startswith("-") else len(rest) :]
        elif _ONE_VALUE.fullmatch(word):
            del rest[-1:]
        elif _CLUSTER.fullmatch(word):
            flags = "".join(letter for letter in word[1:] if letter in "sl")
            yield from [f"-{flags}"] if flags else []
        elif not _NO_VALUE.fullmatch(word):
            yield word


def _installed(target: Environment) -> str | NotInstalled:
    """Install a tree's environment. Return what is unusual in it, for people, or that it is not
    installed."""
    installed = target.install()
    if installed.absent is not None:
        return installed.absent
    is_usual = installed.level is Level.EVERYTHING and not installed.unusual
    return "" if is_usual else f"installed {installed.in_words}"


def _complaint(run: SuiteRun) -> str:
    match = _COMPLAINT.search(run.result.output)
    return next(filter(None, match.groups())) if match else "it did not start with them"


def _pytest(target: Environment, installed: str, selection: Sequence[str]) -> SuiteRun:
    options = [*selection, *_OPTIONS]
    suite_run = _run(target, "pytest", options, installed)
    if suite_run.result.ok or suite_run.result.timed_out or suite_run.count is not None:
        return suite_run
    retried = _run(target, "pytest", [*options, *_WITHOUT_ITS_OWN], installed)
    if retried.count is None:
        return suite_run
    why = gating.in_short(_complaint(suite_run))
    remark = f"pytest ran without the project's own options ({why})"
    installed = "; ".join(filter(None, (installed, remark)))
    return replace(retried, installed=installed, without_options=True)


def _run(target: Environment, runner: str, arguments: Sequence[str], installed: str) -> SuiteRun:
    source, header = source_of("report_probe"), secrets.token_hex(16)
    with report_in(target.repo.tree) as file, report_in(target.repo.tree) as record:
        record.begin(header)
        argv = ["-c", START, hook_text(), record.path, source, file.path, runner, *arguments]
        result = target.sandboxed(argv, time_of(target.context))
        report = read_lines(file.read())
        acts = read_acts(record.read(), header, target.place)
    result = result.model_copy(update={"argv": ("python", "-m", runner, *arguments)})
    run = SuiteRun.read(result, _SUMMARIES[runner](result.output), report, installed)
    run = replace(run, acts=acts, can_select=True)
    return replace(run, count=0) if run.count is None and result.ok else run


def _discovery(target: Environment) -> list[str]:
    for name in ("tests", "test"):
        inside = in_folder(target.folder, name)
        if any(is_test(path, inside) for path in target.repo.tracked_files):
            is_package = target.repo.has(f"{inside}/__init__.py")
            return ["discover", "-s", name, *(["-t", "."] if is_package else [])]
    return ["discover"]


#: A root folder that has one of these is itself an installed project.
_ROOT = ("pyproject.toml", "setup.py", "setup.cfg", "requirements.txt", "Pipfile")


def runs_on(context: GateContext, tree: RepoContext, argv: Sequence[str]) -> str:
    """Implement ``EcosystemPlugin.runs_on``; empty if a manifest can't be read, so that nothing runs."""
    try:
        return _environment(context, tree, argv).contents()
    except (RecipeError, RepositoryError):
        return ""


def run(
    context: GateContext,
    tree: RepoContext,
    argv: Sequence[str],
    timeout_s: float | None = None,
) -> TargetRun:
    """Implement ``EcosystemPlugin.run``: ``python`` is the environment's, even if nothing is declared."""
    try:
        project = _environment(context, tree, argv)
        installed = project.install()
    except (RecipeError, RepositoryError) as error:
        return TargetRun(None, error.problem)
    witnessed = None
    if context.is_proof:
        header = secrets.token_hex(16)
        with report_in(tree.tree) as record:
            record.begin(header)
            env = {observed.VARIABLE: record.path, witness_probe.VARIABLE: "first"}
            result = project.run(argv, env, timeout_s=timeout_s)
            recorded = record.read()
        output = result.output
        counted = pytest_summary(output) or unittest_summary(output)
        ran = 0 if counted is None else counted.ran
        witnessed = observed.read_witness(recorded, header, ran, _failures(output))
    else:
        result = project.run(argv, timeout_s=timeout_s)
    remark = "" if installed.is_as_declared else installed.in_words
    return TargetRun(result, remark, installed.compared, witnessed)


def run_on_another(
    context: GateContext, tree: RepoContext, argv: Sequence[str], number: int
) -> bool:
    """Choose another Python. Implements ``EcosystemPlugin.run_on_another``."""
    if number == 0:
        choose_python(context, None)
        return True
    suited = _environment(context, tree, argv).suited
    if number >= len(suited):
        return False
    choose_python(context, suited[number])
    return True


def _environment(context: GateContext, tree: RepoContext, argv: Sequence[str]) -> Environment:
    """Return the environment of the root, or of the affected package's folder if the root has no project.
    It has the test runner that the command names."""
    folders = {"."}
    if tree.affected is not None and not any(tree.has(name) for name in _ROOT):
        folders = {str(PurePosixPath(package.manifest).parent) for package in tree.affected.own}
    folder = folders.pop() if len(folders) == 1 else "."
    runner = "pytest" if "pytest" in argv or "py.test" in argv else None
    return Environment(context, tree, folder, runner)


#: pytest's last line. It has a count, or says that there were no tests: unittest ends with "Ran 1 test in
#: 0.1s", and any program may print how long something took.
_PYTEST_ENDING = re.compile(
    r"^=*[^\S\n]*((?:no tests ran"
    rf"|{FIGURE} (?:passed|failed|errors?|skipped|deselected|x(?:fail|pass)ed|warnings?))\b.*?)"
    r" in [\d.]+s(?: \([\d:]+\))?[^\S\n]*=*$",
    re.MULTILINE,
)
_PYTEST_RAN = re.compile(rf"({FIGURE}) (?:passed|failed|errors?|xfailed|xpassed)")
_PYTEST_EXPECTED = re.compile(rf"({FIGURE}) xfailed")
_PYTEST_FAILED = re.compile(rf"({FIGURE}) (?:failed|errors?)")
#: A line of the short summary (``-ra``). An id has no blank except within the brackets of its parameters.
_PYTEST_NAME = re.compile(r"^(?:FAILED|ERROR) ([^\s\[]+(?:\[.*?\])?)(?= - |$)", re.MULTILINE)
_PYTEST_SUMMARY = re.compile(r"^=* ?short test summary info ?=*$", re.MULTILINE)

_UNITTEST_RAN = re.compile(rf"^Ran ({FIGURE}) tests? in ", re.MULTILINE)
#: trial ends with ``PASSED``, and prints ``skips`` and ``unexpectedSuccesses``.
_UNITTEST_ENDING = re.compile(r"^(?:OK|FAILED|NO TESTS RAN|PASSED) \((.*)\)$", re.MULTILINE)
_UNITTEST_SKIPPED = re.compile(rf"\bskip(?:ped|s)=({FIGURE})")
_UNITTEST_FAILED = re.compile(
    rf"\b(?:(?<!expected )failures|errors|unexpected ?[sS]uccesses)=({FIGURE})"
)
_UNITTEST_BLOCK = re.compile(
    rf"^Ran ({FIGURE}) tests? in .*$(?:\s+^(?:OK|FAILED|NO TESTS RAN|PASSED)(?: \((.*)\))?$)?",
    re.MULTILINE,
)
_UNITTEST_NAME = re.compile(r"^(?:FAIL|ERROR|UNEXPECTED SUCCESS): (\S+ \(.*)$", re.MULTILINE)


def pytest_summary(log: str) -> Summary | None:
    """Read pytest's last line, and the short summary above it; None if there is no such line."""
    endings = _PYTEST_ENDING.findall(log)
    if not endings:
        return None
    short_summary = _PYTEST_SUMMARY.split(log)[-1]
    return Summary(
        ran=sum(int(number) for number in _PYTEST_RAN.findall(endings[-1])),
        failed=sum(int(number) for number in _PYTEST_FAILED.findall(endings[-1])),
        expected=sum(int(number) for number in _PYTEST_EXPECTED.findall(endings[-1])),
        names=numbered(iter(_PYTEST_NAME.findall(short_summary))),
    )


def unittest_summary(log: str) -> Summary | None:
    """Read unittest's ``Ran … tests`` and the line below it; None if there is none."""
    ran = _UNITTEST_RAN.findall(log)
    if not ran:
        return None
    endings = _UNITTEST_ENDING.findall(log)
    ending = endings[-1] if endings else ""
    return Summary(
        ran=int(ran[-1]) - sum(map(int, _UNITTEST_SKIPPED.findall(ending))),
        failed=sum(map(int, _UNITTEST_FAILED.findall(ending))),
        names=numbered(iter(_UNITTEST_NAME.findall(log))),
    )


_SUMMARIES = {"pytest": pytest_summary, "unittest": unittest_summary}


def _failures(log: str) -> int:
    """Return the highest number of failed tests in any summary of a log: if the last is forged, the
    true one is above it."""
    endings = [_PYTEST_FAILED.findall(ending) for ending in _PYTEST_ENDING.findall(log)]
    endings += [_UNITTEST_FAILED.findall(ending) for ending in _UNITTEST_ENDING.findall(log)]
    return max((sum(map(int, numbers)) for numbers in endings), default=0)


#: The last lines of other runners, with the meaning of each number: r tests ran, p passed, f and F failed.
_OTHERS = tuple(
    (re.compile(ending, re.MULTILINE), fields)
    for ending, fields in (
        # zope.testrunner, for one layer.
        (rf"^\s*Ran ({FIGURE}) tests with ({FIGURE}) failures, ({FIGURE}) errors", "rff"),
        # behave and lettuce.
        (rf"^({FIGURE}) scenarios? passed, ({FIGURE}) failed", "pF"),
        (rf"^({FIGURE}) scenarios? \(({FIGURE}) passed\)", "rp"),
        # Robot Framework; the last of several such lines is the total.
        (rf"^({FIGURE}) tests?, ({FIGURE}) passed, ({FIGURE}) failed", "rpf"),
        # stestr and testr.
        (rf"^Ran: ({FIGURE}) tests in .*\n(?:^ - .*\n)*?^ - Failed: ({FIGURE})", "rf"),
    )
)


def command_summary(
    log: str, figures: tuple[int, int] | None, failing: Sequence[str] = ()
) -> Summary | None:
    """Return the summary of the log of a command that may run several test runners, of any kind.

    ``figures``, ``failing``: tests that ran and that failed, and the names of the failed ones, as reported
    by the command's processes; None if none reported, or not to the end. As many of the log's last
    summaries count as agree with that: a failing test's own output can contain others before them. If the
    log has no summary, the report is the only source.
    """
    names = numbered(iter([*_PYTEST_NAME.findall(log), *_UNITTEST_NAME.findall(log)]))
    summaries = [(position, figure, expected) for position, figure, expected in _endings(log)]
    if not summaries and figures is not None and figures[0]:
        return Summary(ran=figures[0], failed=figures[1], names=tuple(failing))
    if not summaries:
        summaries = [*_other_endings(log)]
    if not summaries:
        return Summary(ran=0, failed=len(names), names=names) if names else None
    last_first = (figures for _, figures, _ in reversed(summaries))
    totals = [
        *accumulate(last_first, lambda total, figure: (total[0] + figure[0], total[1] + figure[1]))
    ]
    ran, failed = figures if figures is not None and figures in totals else totals[-1]
    return Summary(ran, failed, names, expected=sum(ending[2] for ending in summaries))


def _endings(log: str) -> list[tuple[int, tuple[int, int], int]]:
    """Return the position, the tests that ran and failed, and the expected failures of each summary of
    pytest and unittest, in the log's order."""

    def total(pattern: re.Pattern[str], text: str | None) -> int:
        return sum(map(int, pattern.findall(text or "")))

    endings = []
    for ending in _PYTEST_ENDING.finditer(log):
        figures = total(_PYTEST_RAN, ending[1]), total(_PYTEST_FAILED, ending[1])
        endings.append((ending.start(), figures, total(_PYTEST_EXPECTED, ending[1])))
    for ending in _UNITTEST_BLOCK.finditer(log):
        ran = int(ending[1]) - total(_UNITTEST_SKIPPED, ending[2])
        endings.append((ending.start(), (ran, total(_UNITTEST_FAILED, ending[2])), 0))
    return sorted(endings)


def _other_endings(log: str) -> list[tuple[int, tuple[int, int], int]]:
    for pattern, fields in _OTHERS:
        endings = []
        for ending in pattern.finditer(log):
            figures = dict.fromkeys("rpfF", 0)
            for name, figure in zip(fields, ending.groups(), strict=True):
                figures[name] += int(figure)
            failed = figures["f"] + figures["F"]
            ran = figures["r"] or figures["p"] + failed
            if not figures["f"] and not figures["F"] and "p" in fields and "r" in fields:
                failed = ran - figures["p"]
            endings.append((ending.start(), (ran, failed), 0))
        if endings:
            return endings[-1:] if fields == "rpf" else endings
    return []


_NO_PYTEST = "No module named 'pytest'"


class TestsGate(PyPIGate):
    """Gate that runs the project's own test command, the first that runs tests at the base commit;
    otherwise pytest or unittest, whichever finds tests."""

    name = "tests"

    def _project(self, context: GateContext, folder: str) -> GateVerdict:
        stated = own_commands(context.repo, folder, context.repo.settings.test_commands)
        commands = suites_of(stated, folder, "python")
        if not commands and not any(is_test(path, folder) for path in context.repo.tracked_files):
            return gating.untested(self.name, "the project has no tests")

        patched = Environment(context, gating.patched(context), folder)
        base = patched.base
        if (otherwise := patched.in_another_setting()) and base.install().absent is None:
            why = (
                f"the tests would run in two settings, so that nothing can be compared: {otherwise}"
            )
            return gating.undecided(self.name, why, kinds=["another_setting"])

        ways = [*(OwnTests(patched, group) for group in commands), OwnTests(patched)]
        choice = choose(context, self.name, folder, base.contents, [way.way for way in ways])
        tests = next(way for way in ways if way.way.key == choice.way.key)
        tests = replace(tests, unserved=choice.unserved)

        def judge() -> GateVerdict:
            return judge_tests(
                *(self.name, context, folder, tests.within(context), choice.on),
                alike=lambda: patched.contents() == base.contents(),
                within=tests.within,
                alone=tests.alone,
                base=choice.base,
                part=tests.part,
            )

        verdict = choice.explain(beside_base(patched, judge))
        if verdict.status is GateStatus.SKIPPED and _NO_PYTEST in verdict.log:
            why = "the tests need pytest, which the project does not declare"
            return gating.skipped(self.name, why, verdict.log)
        return verdict
