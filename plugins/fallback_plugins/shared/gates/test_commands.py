"""Finder of the commands by which a project tests itself: those of its CI, its task runners and its
scripts.

They are read and never run here. A gate runs them in the sandbox, in the order in which they are found, and
takes the first that runs tests at the base commit (ADR-0116).
"""

import itertools
import posixpath
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import ClassVar

from fallback_plugins.shared.gates.ci_jobs import Job, ci_jobs
from fallback_plugins.shared.gates.shell_commands import CommandKind, runtime_of
from fallback_plugins.shared.gates.task_files import joined
from fallback_plugins.shared.gates.task_runners import Piece, Place, Tasks
from fallback_tier.repo import RepoContext

__all__ = ["CommandKind", "TestCommand", "lines_of_ci", "own_commands", "suites_of"]

MAX_COMMANDS = 60  # of one job or script: a matrix of twelve suites has about 50
MAX_LISTED = 240  # that are returned: a gate tries a few jobs, and a person reads the list
MAX_BEFORE = 12  # commands before one: more than that is not a preparation of tests


@dataclass(frozen=True)
class TestCommand:
    """One command by which a project tests itself.

    ``line``: for a shell, in ``folder`` of the repository ("." is the root). ``source``: where it was
    found, for people: ``.github/workflows/ci.yml, job test, step "Run tests"``. ``env``: variables with
    literal values that the source sets. ``before``: what the source runs before it in the same folder
    and tests need (a build, generated code); no check-outs, installs or set-ups of tools. ``services``:
    what it starts next to the tests, by its usual name (``postgres``, ``redis``). ``group``: the job or
    script that runs it; commands of one group are parts of one suite. ``runtime``: ``python`` or
    ``node``, or "" if unknown. ``is_of_ci``: whether the project's CI runs it.
    """

    __test__: ClassVar[bool] = False  # pytest would take it for tests

    line: str
    source: str
    folder: str = "."
    kind: CommandKind = CommandKind.TESTS
    env: Mapping[str, str] = field(default_factory=dict)
    before: tuple[str, ...] = ()
    services: tuple[str, ...] = ()
    group: str = ""
    runtime: str = ""
    is_of_ci: bool = False


def own_commands(
    repo: RepoContext, folder: str, stated: Sequence[str] = ()
) -> tuple[TestCommand, ...]:
    """Return the commands that concern a project folder, the best source first; empty if there are none.

    ``stated``: what the user states (``--test-command``, configuration), which comes first. Then CI, task
    runners, package.json and manage.py. If none of the folder's own commands tests, those of a folder above
    count, and for a root those of its members. What can't be read is left out.
    """
    source = "--test-command"
    stated_commands = [
        TestCommand(line, source, folder, group=source, runtime=runtime_of(line)) for line in stated
    ]
    project_commands: tuple[TestCommand, ...] = repo.once(
        ("own_commands", folder), lambda: _Finder(repo, folder).commands()
    )
    return (*stated_commands, *project_commands)


def suites_of(
    commands: Iterable[TestCommand], folder: str, runtime: str, root: str = "."
) -> list[tuple[TestCommand, ...]]:
    """Return the commands that test a folder's project with a runtime, or an unknown one, grouped by
    the job or script that runs them: each group is one suite. A command of a folder above tests another
    project, unless it names this folder. ``root``: a folder for which all commands count."""
    names_folder = re.compile(rf"(?:^|[\s='\"(]|\./){re.escape(folder)}(?:[/\s'\")]|$)")
    groups: dict[object, list[TestCommand]] = {}
    for number, command in enumerate(commands):
        is_here = folder == root or PurePosixPath(command.folder).is_relative_to(folder)
        is_test = command.kind is CommandKind.TESTS and command.runtime in ("", runtime)
        if is_test and (is_here or names_folder.search(command.line)):
            groups.setdefault(command.group or number, []).append(command)
    return [tuple(group) for group in groups.values()]


#: Kinds that a test script may contain without being tests.
CHECKS = (CommandKind.LINT, CommandKind.TYPES)


def is_of_script(command: TestCommand, script: str) -> bool:
    """Return whether a command is a part of a package.json's script, whatever starts the script."""
    return any(
        source.endswith(f"package.json, script {script}") for source in command.source.split(" → ")
    )


def lines_of_ci(commands: Iterable[TestCommand]) -> tuple[str, ...]:
    """Return the lines of commands that CI runs."""
    return tuple(command.line for command in commands if command.is_of_ci)


class _Finder:
    """Finder of one folder's commands. ``_aside``: jobs that are not for the project's own tests;
    ``_lines``: commands that each job runs, collected so far."""

    def __init__(self, repo: RepoContext, folder: str) -> None:
        self._repo, self._folder, self._tasks = repo, folder, Tasks(repo)
        self._aside: set[str] = set()
        self._lines: dict[str, set[tuple[CommandKind, str, str]]] = {}
        manifests = ("package.json", "pyproject.toml", "setup.py", "Pipfile")
        paths = [path for path in repo.tracked_files if posixpath.basename(path) in manifests]
        self._projects = {posixpath.dirname(path) or "." for path in paths}

    def commands(self) -> tuple[TestCommand, ...]:
        """Return the commands of the nearest folder that has any that test."""
        by_distance: dict[int, list[TestCommand]] = {}
        for command in self._all():
            by_distance.setdefault(self._distance(command.folder), []).append(command)
        nearest_commands: list[TestCommand] = []
        for distance in sorted(by_distance.keys() - {_ELSEWHERE}):
            nearest_commands += by_distance[distance]
            if any(
                command.kind is CommandKind.TESTS and command.group not in self._aside
                for command in nearest_commands
            ):
                break
        nearest_commands.sort(key=lambda command: command.group in self._aside)
        unique: dict[object, TestCommand] = {}
        for test_command in nearest_commands:
            variables = tuple(sorted(item for item in test_command.env.items() if item[0] != "CI"))
            is_part = test_command.kind in CHECKS and is_of_script(test_command, "test")
            unique.setdefault(
                (test_command.line, test_command.folder, test_command.kind, is_part, variables),
                test_command,
            )
        counts: dict[str, int] = {}
        listed: list[TestCommand] = []
        for test_command in unique.values():
            counts[test_command.group] = counts.get(test_command.group, 0) + 1
            listed += [test_command] if counts[test_command.group] <= MAX_COMMANDS else []
        return tuple(listed[:MAX_LISTED])

    def _distance(self, folder: str) -> int:
        """Return how far a command's folder is from the project: 0 its own, 1 above it, 2 a member's."""
        inside = PurePosixPath(folder)
        if PurePosixPath(self._folder).is_relative_to(inside):
            return int(folder != self._folder)
        if not inside.is_relative_to(self._folder):
            return _ELSEWHERE
        between = itertools.takewhile(
            lambda ancestor: str(ancestor) != self._folder, (inside, *inside.parents)
        )
        return 2 if any(str(ancestor) in self._projects for ancestor in between) else 0

    def _all(self) -> Iterator[TestCommand]:
        paths, read = self._repo.tracked_files, self._tasks.files.yaml
        jobs: list[Job] = self._repo.once(("ci_jobs",), lambda: ci_jobs(paths, read))
        self._aside.update(job.group for job in jobs if job.is_aside)
        for job in (job for job in jobs if not job.is_aside):
            yield from self._of_job(job)
        for folder in dict.fromkeys((self._folder, ".")):
            for pieces in self._tasks.own(folder):
                yield from _commands(pieces, pieces[0].chain[0] if pieces else "", [])
        for job in (job for job in jobs if job.is_aside):
            yield from self._of_job(job)

    def _of_job(self, job: Job) -> Iterator[TestCommand]:
        """Yield the commands of a job. Of a further part of a job, only commands that differ are
        yielded, as its matrix may only vary settings."""
        seen = self._lines.setdefault(job.group, set())
        for command in self._of_steps(job):
            key = (command.kind, command.folder, command.line)
            if not job.is_part or key not in seen:
                yield command
            seen.add(key)

    def _of_steps(self, job: Job) -> Iterator[TestCommand]:
        before: list[Piece] = []
        exported = {"CI": "true"}
        for step in job.steps:
            folder = joined(".", step.folder)
            if folder is not None:
                pieces = self._tasks.pieces(step.text, Place(folder, {**exported, **step.env}))
                for command in _commands(pieces, job.group, before, step.source):
                    is_test = command.kind is CommandKind.TESTS
                    yield replace(command, services=job.services if is_test else (), is_of_ci=True)
                exported |= dict(_LATER.findall(step.text))


_ELSEWHERE = 3

#: A variable that a step sets for those after it.
_LATER = re.compile(
    r"echo\s+[\"']?([A-Za-z_]\w*)=([\w./:@,+-]*)[\"']?\s*>>\s*[\"']?\$\{?GITHUB_ENV"
)


def _commands(
    pieces: Iterable[Piece], group: str, before: list[Piece], source: str = ""
) -> Iterator[TestCommand]:
    """Yield commands, each with what was built before it. ``before``: grows by what these build."""
    for piece in pieces:
        if piece.kind is not None:
            lines = [
                _line_of(earlier, piece) for earlier in before if piece.kind is not CommandKind.LINT
            ]
            yield TestCommand(
                *(piece.line, " → ".join(filter(None, (source, *piece.chain))), piece.folder),
                *(piece.kind, piece.env, tuple(dict.fromkeys(lines))[-MAX_BEFORE:]),
                group=group,
                runtime=piece.runtime,
            )
        if piece.kind in (None, CommandKind.BUILD):
            before.append(piece)
            del before[: -10 * MAX_BEFORE]  # many are the same line


def _line_of(piece: Piece, target: Piece) -> str:
    """Return a command's line for another's folder, with the variables that the other lacks."""
    variables = {name: value for name, value in piece.env.items() if target.env.get(name) != value}
    line = " ".join(
        (*(f"{name}={shlex.quote(value)}" for name, value in variables.items()), piece.line)
    )
    if piece.folder == target.folder:
        return line
    return f"(cd {shlex.quote(posixpath.relpath(piece.folder, target.folder))} && {line})"
