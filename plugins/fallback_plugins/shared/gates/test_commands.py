"""How a project says that it is tested: the commands of its CI, its task runners and its scripts.

They are read and never run here. A gate runs them in the sandbox, in the order in which they are found, and
takes the first that runs tests at the base commit (ADR-0116).
"""

import posixpath
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from fallback_plugins.shared.gates.ci_jobs import Job, ci_jobs
from fallback_plugins.shared.gates.shell_commands import CommandKind, runtime_of
from fallback_plugins.shared.gates.task_files import joined
from fallback_plugins.shared.gates.task_runners import Piece, Place, Tasks
from fallback_tier.repo import RepoContext

__all__ = ["CommandKind", "TestCommand", "own_commands"]

#: Commands that are returned: a gate tries a few, and a person reads the list.
MAX_COMMANDS = 60

#: Commands before one: builds and generated code. More than that is no preparation of tests.
MAX_BEFORE = 12


@dataclass(frozen=True)
class TestCommand:
    """One command by which a project tests itself.

    ``line``: for a shell, in ``folder`` of the repository ("." is the root). ``source``: the place of it,
    for people: ``.github/workflows/ci.yml, job test, step "Run tests"``. ``env``: variables with literal
    values that the source sets. ``before``: what the source runs before it in the same place and tests need
    (a build, generated code); no check-outs, installs or set-ups of tools. ``services``: what it starts
    beside the tests, by its usual name (``postgres``, ``redis``). ``group``: the job or script that runs
    it; commands of one group are parts of one suite. ``runtime``: ``python`` or ``node``, or "" if unknown.
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


def own_commands(
    repo: RepoContext, folder: str, stated: Sequence[str] = ()
) -> tuple[TestCommand, ...]:
    """Return the commands that concern a project folder, the best source first; empty: none is stated.

    ``stated``: what the user says (``--test-command``, configuration), which comes first. Then CI, task
    runners, package.json and manage.py. If none of the folder's own commands tests, those of a folder above
    count, and for a root those of its members. What can't be read is left out.
    """
    given = tuple(
        TestCommand(
            line, "--test-command", folder, group="--test-command", runtime=runtime_of(line)
        )
        for line in stated
    )
    found: tuple[TestCommand, ...] = repo.once(
        ("own_commands", folder), lambda: _Finder(repo, folder).commands()
    )
    return (*given, *found)


class _Finder:
    def __init__(self, repo: RepoContext, folder: str) -> None:
        self._repo, self._folder, self._tasks = repo, folder, Tasks(repo)
        #: Jobs that are not for the project's own tests, by their names.
        self._aside: set[str] = set()
        self._manifests = {
            posixpath.dirname(path) or "."
            for path in repo.tracked_files
            if posixpath.basename(path) in ("package.json", "pyproject.toml", "setup.py", "Pipfile")
        }

    def commands(self) -> tuple[TestCommand, ...]:
        """Return the commands of the nearest folder that has any that test."""
        by_distance: dict[int, list[TestCommand]] = {}
        for command in self._all():
            if (distance := self._distance(command.folder)) is not None:
                by_distance.setdefault(distance, []).append(command)
        found: list[TestCommand] = []
        for distance in sorted(by_distance):
            found += by_distance[distance]
            if any(one.kind is CommandKind.TESTS and one.group not in self._aside for one in found):
                break
        found.sort(key=lambda command: command.group in self._aside)
        unique: dict[tuple[object, ...], TestCommand] = {}
        for one in found:
            others = tuple(sorted(item for item in one.env.items() if item[0] != "CI"))
            unique.setdefault((one.line, one.folder, one.kind, others), one)
        return tuple(unique.values())[:MAX_COMMANDS]

    def _distance(self, folder: str) -> int | None:
        """Return how far a command's folder is from the project: 0 its own, 1 above it, 2 a member's."""
        if folder == self._folder:
            return 0
        if self._folder != "." and (folder == "." or self._folder.startswith(f"{folder}/")):
            return 1
        if self._folder != "." and not folder.startswith(f"{self._folder}/"):
            return None
        inside = folder
        while inside not in (".", self._folder):
            if inside in self._manifests:
                return 2
            inside = posixpath.dirname(inside) or "."
        return 0

    def _all(self) -> Iterator[TestCommand]:
        jobs = ci_jobs(self._repo.tracked_files, self._tasks.files.yaml)
        self._aside.update(job.source for job in jobs if job.is_aside)
        for job in jobs:
            if not job.is_aside:
                yield from self._of_job(job)
        for folder in dict.fromkeys((self._folder, ".")):
            for pieces in self._tasks.own(folder):
                source = " → ".join(pieces[0].chain[:1]) if pieces else ""
                yield from _in_order(pieces, "", source, ())
        for job in jobs:
            if job.is_aside:
                yield from self._of_job(job)

    def _of_job(self, job: Job) -> Iterator[TestCommand]:
        before: list[Piece] = []
        exported = {"CI": "true"}
        for step in job.steps:
            folder = posixpath.normpath(re.sub(r"^(?:\$PWD|\./)/?", "", step.folder) or ".")
            if folder.startswith(("..", "/")) or "$" in folder:
                continue
            pieces = self._tasks.pieces(step.text, Place(folder, {**exported, **step.env}))
            yield from _in_order(pieces, step.source, job.source, job.services, before)
            exported |= dict(_LATER.findall(step.text))


#: A variable that a step sets for those after it.
_LATER = re.compile(
    r"echo\s+[\"']?([A-Za-z_]\w*)=([\w./:@,+-]*)[\"']?\s*>>\s*[\"']?\$\{?GITHUB_ENV"
)


def _in_order(
    pieces: Iterable[Piece],
    source: str,
    group: str,
    services: tuple[str, ...],
    before: list[Piece] | None = None,
) -> Iterator[TestCommand]:
    """Yield commands, each with what was built before it."""
    earlier = [] if before is None else before
    for piece in pieces:
        if piece.kind is not None:
            chain = " → ".join(filter(None, (source, *piece.chain)))
            lines = (
                [_line_of(one, piece) for one in earlier]
                if piece.kind is not CommandKind.LINT
                else []
            )
            yield TestCommand(
                piece.line,
                chain,
                piece.folder,
                piece.kind,
                piece.env,
                tuple(dict.fromkeys(lines))[-MAX_BEFORE:],
                services if piece.kind is CommandKind.TESTS else (),
                group,
                piece.runtime,
            )
        if piece.kind in (None, CommandKind.BUILD):
            earlier.append(piece)


def _line_of(piece: Piece, beside: Piece) -> str:
    """Return a command as it is run in another's folder, with the variables that the other has not."""
    own = {name: value for name, value in piece.env.items() if beside.env.get(name) != value}
    line = piece.line
    if own:
        line = f"{' '.join(f'{name}={shlex.quote(value)}' for name, value in own.items())} {line}"
    if piece.folder != beside.folder:
        line = f"(cd {shlex.quote(posixpath.relpath(piece.folder, beside.folder))} && {line})"
    return line
