"""Task runners' files, read and never run: what a command that starts a task comes down to.

``npm test``, ``tox -e py``, ``nox -s tests``, ``hatch run cov``, ``poe test``, ``just test`` and their like
become the commands that they would run; ``uv run``, ``poetry run`` and ``coverage run`` are taken off.
``make`` stays as it is, unless its recipe installs something or only calls another runner.
"""

import ast
import configparser
import fnmatch
import json
import posixpath
import re
import shlex
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from itertools import islice, pairwise, product
from typing import Any

from fallback_plugins.shared.gates.shell_commands import (
    INTERPRETERS,
    LISTS,
    MAX_SCRIPT_CHARS,
    CommandKind,
    ShellCommand,
    command_kind,
    mentions_runner,
    needs_nothing,
    needs_outside,
    prepares,
    program,
    runtime_of,
    says_nothing,
    simple,
    split_script,
    task_kind,
)
from fallback_tier.errors import RepositoryError
from fallback_tier.repo import RepoContext

#: Characters of one file that are read: CI files and task files of large projects have up to 200,000.
MAX_FILE_CHARS = 500_000

#: Tasks that call tasks: a chain of projects has up to five (CI, make, tox, coverage, pytest).
MAX_DEPTH = 8

#: Scripts, commands and tasks that are looked at for a folder: those of a large monorepo's CI are about
#: 2,000. Tasks that call each other would otherwise double at each step.
MAX_LOOKED_AT = 10_000

#: Characters of a line of a Makefile or justfile: longer ones are lists of files.
MAX_LINE_CHARS = 2_000

#: Targets that one rule of a Makefile makes.
MAX_TARGETS_OF_LINE = 20

#: Statements of a nox session that are followed: long ones have about 60, with their helpers.
MAX_NOX_STATEMENTS = 200

#: Tasks of one file: a large manifest has about 150 scripts.
MAX_TASKS = 500

#: Manifests whose names are read to find a member of a monorepo.
MAX_MEMBERS = 500

#: Environments that one line of tox may name by braces, such as ``py{310,311}-{a,b}``.
MAX_TOX_ENVS = 500

#: … of which so many are read.
MAX_TOX_ENVS_READ = 40

_NPM_CLIENTS = frozenset({"npm", "pnpm", "yarn", "bun", "jlpm", "yarnpkg"})


@dataclass(frozen=True)
class Piece:
    """One command that a script comes down to. ``kind`` None: not a check, but ``prepares`` something."""

    line: str
    folder: str
    env: Mapping[str, str]
    kind: CommandKind | None
    chain: tuple[str, ...] = ()
    runtime: str = ""
    #: Nothing but the task's name says that it tests.
    is_guessed: bool = False


@dataclass(frozen=True)
class Place:
    """What a script runs in. ``hint``: what the task that has it is for; None: not known."""

    folder: str
    env: Mapping[str, str] = field(default_factory=dict)
    chain: tuple[str, ...] = ()
    hint: CommandKind | None = None
    depth: int = 0
    #: Commands before the line, in its own shell: exports that aren't literal.
    prefix: str = ""

    def inside(self, source: str, hint: CommandKind | None = None, **changes: Any) -> "Place":
        """Return the place of a task that a command here starts."""
        chain = (*self.chain, source) if source else self.chain
        return replace(self, chain=chain, hint=hint, depth=self.depth + 1, **changes)


class Tasks:
    """The task files of a repository. What can't be read has no tasks."""

    def __init__(self, repo: RepoContext) -> None:
        self._repo = repo
        self._looked_at = self._yaml_chars = 0
        self._cache: dict[tuple[str, str], Any] = {}

    def _is_spent(self, place: Place) -> bool:
        """Count one more thing that is looked at. Is it too much, or too deep?"""
        self._looked_at += 1
        return self._looked_at > MAX_LOOKED_AT or place.depth > MAX_DEPTH

    # -- scripts ---------------------------------------------------------------------------------------

    def pieces(self, script: str, place: Place) -> list[Piece]:
        """Return what a script comes down to, in order."""
        found: list[Piece] = []
        start, back = place.folder, [place.folder]
        for command in () if self._is_spent(place) else split_script(script):
            if self._is_spent(place):
                break
            words = command.words
            if words[:1] == ("cd",) or words[:1] == ("pushd",):
                target = words[1] if len(words) > 1 else ""
                folder = back[-1] if target == "-" else joined(place.folder, target, start)
                if folder is None:
                    break
                back.append(place.folder)
                place = replace(place, folder=folder)
            elif words[:1] == ("popd",):
                place = replace(place, folder=back.pop() if len(back) > 1 else start)
            elif words and (words[0] == "export" or all(map(_ASSIGNMENT.match, words))):
                place = _exported(command, place)
            elif not command.is_background:
                found += self._command(command, place)
        return _settled(found)

    def _command(self, command: ShellCommand, place: Place) -> list[Piece]:
        if not command.words:
            text = command.text
            if inner := re.fullmatch(r"\((?!\()(.*)\)", text, re.DOTALL):
                return self.pieces(inner[1], place.inside("", place.hint))
            is_test = mentions_runner(text) and not needs_outside(text)
            return [_piece(command, place, CommandKind.TESTS)] if is_test else []
        if program(command.words[0]) in _READS_NAMES:
            command = simple(_expanded(command.text, place.env))
        elif "$" in command.words[0]:  # ${PREFIX}pytest
            first = _expanded(command.words[0], place.env, are_words=False)
            command = command.replaced(1, first) if "$" not in first else command
        command, env, kept = _without_assignments(command)
        place = replace(place, env={**place.env, **env}, prefix=place.prefix + kept)
        if not command.words:
            return []
        unwrapped = self._unwrapped(command, place)
        if unwrapped is not None:
            return [] if self._is_spent(place) else self._command(*unwrapped)
        for read in (self._npm, self._python_runner, self._other_runner):
            if (pieces := read(command, place)) is not None:
                return pieces
        return self._leaf(command, place)

    def _leaf(self, command: ShellCommand, place: Place) -> list[Piece]:
        command = _for_all(command)
        if needs_outside(command.text) or not command.words:
            return []
        kind = command_kind(_bare(command.words))
        if (
            kind in (None, CommandKind.TESTS)
            and (inner := self._shell_file(command, place)) is not None
        ):
            return inner
        if kind is CommandKind.TYPES and program(_bare(command.words)[0]) in ("tsc", "vue-tsc"):
            kind = self._of_tsc(_bare(command.words), place)
        if kind is CommandKind.TESTS and place.hint in (CommandKind.LINT, CommandKind.TYPES):
            kind = kind if mentions_runner(command.text) else place.hint
        if kind is CommandKind.TESTS and not self._has_program(_bare(command.words), place):
            return []
        if kind is not None and "\0" not in command.text:
            return [_piece(command, place, kind)]
        is_task = place.hint is CommandKind.TESTS and not _HOUSEKEEPING.match(command.text)
        is_task = is_task and place.depth > 0
        # A line of code in a task that tests checks something.
        is_idle = says_nothing(command.words) and not is_task
        if needs_nothing(command) or is_idle or LISTS.intersection(command.words):
            return []
        if prepares(command):
            return [_piece(command, place, None)]
        if place.hint is CommandKind.BUILD and not _HOUSEKEEPING.match(command.text):
            return [_piece(command, place, CommandKind.BUILD)]
        if not is_task:
            return []
        return [replace(_piece(command, place, CommandKind.TESTS), is_guessed=True)]

    def _shell_file(self, command: ShellCommand, place: Place) -> list[Piece] | None:
        """Return what a shell script of the repository comes down to; None: there is no such."""
        words = command.words[1:] if program(command.words[0]) in ("bash", "sh") else command.words
        words = words[_after_options(words, 0, frozenset()) :]
        path = joined(place.folder, words[0], place.folder) if words else None
        if (
            path is None
            or not ("/" in words[0] or words[0].endswith(".sh"))
            or place.depth > MAX_DEPTH
        ):
            return None
        text = self.text(path)
        if not re.match(r"#!.*\b(?:ba|da|z)?sh\b", text) and not path.endswith(".sh"):
            return None
        if needs_outside(text):
            return []
        inside = place.inside(path, command_kind(command.words) or place.hint)
        body = re.sub(r"\$@|\"\$@\"|\$\*|\$\{@\}|\"\$\{@\}\"", lambda _: quoted(words[1:]), text)
        pieces = self.pieces(body, inside)
        tests = [piece for piece in pieces if piece.kind is CommandKind.TESTS]
        is_read = bool(tests) and not any("\n" in piece.line for piece in tests)
        takes_arguments = re.search(r"\$[1-9]|\$\{[1-9]", text)
        return pieces if is_read and not takes_arguments else None

    def _has_program(self, words: Sequence[str], place: Place) -> bool:
        """Is a script that a command runs tracked, or built? What another step writes is no test."""
        is_interpreter = INTERPRETERS.fullmatch(program(words[0]))
        arguments = (
            [word for word in words[1:] if not word.startswith("-")] if is_interpreter else words
        )
        script = arguments[0] if arguments and _SCRIPT.search(arguments[0]) else None
        path = joined(place.folder, script, place.folder) if script else None
        if path is None or _BUILT.search(path):
            return True
        names = (path, *(f"{path}.{end}" for end in ("js", "mjs", "cjs", "ts")), f"{path}/index.js")
        return any(map(self._repo.has, names))

    def _of_tsc(self, words: Sequence[str], place: Place) -> CommandKind:
        """A compiler that writes what tests then load is a build; one that doesn't checks types."""
        if "--noEmit" in words:
            return CommandKind.TYPES
        options = [at for at, word in enumerate(words) if word in ("-p", "--project")]
        named = (
            words[options[0] + 1] if options and options[0] + 1 < len(words) else "tsconfig.json"
        )
        path = in_folder(
            place.folder, named if named.endswith(".json") else f"{named}/tsconfig.json"
        )
        has_no_emit = re.search(r'"noEmit"\s*:\s*true', self.text(path))
        return CommandKind.TYPES if has_no_emit else CommandKind.BUILD

    # -- wrappers --------------------------------------------------------------------------------------

    def _unwrapped(self, command: ShellCommand, place: Place) -> tuple[ShellCommand, Place] | None:
        """Return what a wrapper runs, without the wrapper, and its place; None: it isn't one."""
        words = command.words
        name = program(words[0])
        at = None
        if name in ("uv", "poetry", "pipenv", "rye", "pdm") and "run" in words[1:6]:
            run = words.index("run")
            if _after_options(words, 1, _VALUED_UV) != run:
                return None
            at = _after_options(words, run + 1, _VALUED_UV)
            place = _in_option(words[1:at], place, ("--directory", "--project", "-C", "-p"))
            if name in ("pdm", "rye", "pipenv") and self._has_script(
                name, words[at : at + 1], place
            ):
                return None
            if at < len(words) and words[at].endswith(".py"):
                return command.replaced(at, "python"), place
        elif name in ("uvx", "pipx") and len(words) > 1:
            at = _after_options(words, 2 if words[1:2] == ("run",) else 1, _VALUED_UV)
            if at >= len(words) or words[at].partition("@")[0] not in (
                "tox",
                "nox",
                "hatch",
                "poe",
            ):
                return None
        elif name in (
            "time",
            "nice",
            "ionice",
            "nohup",
            "exec",
            "command",
            "travis_retry",
            "retry",
            "winpty",
            "stdbuf",
        ):
            at = _after_options(words, 1, frozenset({"-n", "-c"}))
        elif name == "timeout":
            at = _after_options(words, 1, frozenset({"-k", "-s"})) + 1
        elif name in ("env", "cross-env", "cross-env-shell", "better-npm-run"):
            at = _after_options(words, 1, frozenset({"-u"}))
        elif name in ("xvfb-run", "dbus-run-session"):
            at = _after_options(words, 1, frozenset({"-s", "--server-args", "-n", "-e"}))
        elif name in ("nyc", "c8"):
            at = _after_options(words, 1, _VALUED_NYC)
            if words[at : at + 1] in (
                ("report",),
                ("instrument",),
                ("check-coverage",),
                ("merge",),
            ):
                return ShellCommand("true", ("true",), (0,)), place
        elif name in ("conda", "mamba", "micromamba") and words[1:2] == ("run",):
            at = _after_options(words, 2, frozenset({"-n", "-p", "--name", "--prefix"}))
        elif (script := _shell_script(words)) is not None:
            inside = self.pieces(script, place.inside("", place.hint))
            return (ShellCommand(""), place) if not inside else _only(inside, place)
        elif (measured := _measured(words)) is not None:
            count, by = measured
            return command.replaced(count, by), place
        if at is None or at >= len(words):
            return None
        return command.without(at), place

    def _has_script(self, tool: str, name: Sequence[str], place: Place) -> bool:
        return bool(name) and name[0] in self._scripts_of(tool, place.folder)

    def _scripts_of(self, tool: str, folder: str) -> Mapping[str, Any]:
        if tool == "pipenv":
            return _mapping(self.toml(in_folder(folder, "Pipfile")).get("scripts"))
        return _mapping(_dig(self.pyproject(folder), "tool", tool, "scripts"))

    # -- npm, yarn, pnpm, bun --------------------------------------------------------------------------

    def scripts(self, folder: str) -> Mapping[str, str]:
        """Return the scripts of a folder's package.json."""
        manifest = self.json(in_folder(folder, "package.json"))
        scripts = _mapping(manifest.get("scripts"))
        texts = {name: text for name, text in scripts.items() if isinstance(text, str)}
        return dict(islice(texts.items(), MAX_TASKS))

    def _npm(self, command: ShellCommand, place: Place) -> list[Piece] | None:
        words = command.words
        name = program(words[0])
        if name in ("npx", "bunx", "pnpx"):
            at = _after_options(words, 1, frozenset({"-p", "--package", "-c"}))
            inner = command.without(at)
            is_task = (
                inner.words and program(inner.words[0]) in _TASK_LISTS | _NPM_CLIENTS | _RUN_BY_NPX
            )
            return self._command(inner, place) if is_task else None
        if name in _TASK_LISTS:
            return self._listed(name, words[1:], place)
        if name == "node" and words[1:2] == ("--run",) and len(words) > 2:
            return self._script(place.folder, words[2], _behind(command, 3), "npm", place)
        if name not in _NPM_CLIENTS:
            return None
        command = _for_all(command)
        call = _npm_call(command)
        if call is None:
            return None if name != "bun" or words[1:2] == ("test",) else []
        folders: Sequence[str | None] = [place.folder]
        if call.folder:
            folders = [joined(place.folder, call.folder, place.folder)]
        elif call.members:
            folders = self._members(call.members, place.folder)
        if call.is_everywhere and not call.members:
            kind = task_kind(call.script)
            return [_piece(command, place, kind)] if kind else []
        found: list[Piece] = []
        for folder in folders:
            if folder is None:
                continue
            there = replace(place, folder=folder)
            if prefix := re.fullmatch(r"/\^([\w:-]+)/", call.script):  # pnpm run /^test:/
                for script in self.scripts(folder):
                    if script.startswith(prefix[1]):
                        found += self._script(folder, script, call.arguments, name, place)
            elif call.script in self.scripts(folder):
                found += self._script(folder, call.script, call.arguments, name, place)
            elif call.is_binary and re.search(r"[/.]", call.script):
                found += self._leaf(command, there)
            elif call.is_binary:
                found += self._command(simple(f"{call.script} {call.arguments}".strip()), there)
        return found

    def _script(
        self, folder: str, name: str, arguments: str, client: str, place: Place
    ) -> list[Piece]:
        """Return what a script of package.json comes down to, with those that the client runs around it."""
        if self._is_spent(place):
            return []
        scripts, found = self.scripts(folder), []
        manifest = self.json(in_folder(folder, "package.json"))
        for part in (f"pre{name}", name, f"post{name}"):
            text = scripts.get(part, "")
            if text.strip() == "wireit":
                text = str(_dig(manifest, "wireit", part, "command") or "")
            if not text or (part != name and part in ("prepublish", "postinstall", "preinstall")):
                continue
            hints = {"pre": CommandKind.BUILD, "post": None}
            hint = task_kind(name) if part == name else hints[part.removesuffix(name)]
            source = f"{in_folder(folder, 'package.json')}, script {name}"
            inside = place.inside(
                source if source not in place.chain[-1:] else "", hint, folder=folder
            )
            given = f" {arguments}" if arguments and part == name else ""
            pieces = self.pieces(text + given, inside)
            if re.search(r"\$\{?npm_|\$\{?INIT_CWD|\$@|\$\*", text) and part == name and pieces:
                kinds = [piece.kind for piece in pieces]
                kind = CommandKind.TESTS if CommandKind.TESTS in kinds else kinds[0]
                line = f"{client} run {name}" + (f" -- {arguments}" if arguments else "")
                pieces = [_piece(simple(line), inside, kind)]
            found += pieces
        return found

    def _listed(self, program_name: str, words: Sequence[str], place: Place) -> list[Piece]:
        """Return what npm-run-all, run-s, run-p and concurrently come down to."""
        found: list[Piece] = []
        for word in words:
            if word.startswith("-") or not word.strip() or self._is_spent(place):
                continue
            word = re.sub(r"^(?:yarn|pnpm|bun|node):", "npm:", word)
            if program_name in ("concurrently", "conc") and not word.startswith("npm:"):
                found += self.pieces(word, place.inside("", place.hint))
                continue
            name, _, arguments = word.removeprefix("npm:").partition(" ")
            pattern = re.sub(r"\(!.*\)$", "", name.replace(":**", ":*"))
            for script in self.scripts(place.folder):
                if fnmatch.fnmatchcase(script, pattern):
                    given = arguments.removeprefix("-- ").strip()
                    found += self._script(place.folder, script, given, "npm", place.inside(""))
        return found

    def _members(self, filters: Sequence[str], base: str) -> list[str | None]:
        """Return the folders of members that filters name; those that aren't found are left out."""
        found: list[str | None] = []
        for wanted in filters:
            plain = re.sub(r"^\.\.\.\^?|\^?\.\.\.$", "", wanted).strip("{}")
            if plain.startswith("!") or "[" in plain:
                continue
            if plain.startswith(".") or ("/" in plain and not plain.startswith("@")):
                folder = joined(base, plain, base)
                found += [
                    it
                    for it in self.member_names().values()
                    if folder and fnmatch.fnmatchcase(it, folder)
                ]
            for name, folder in self.member_names().items():
                if fnmatch.fnmatchcase(name, plain) or name.rpartition("/")[2] == plain:
                    found.append(folder)
        return list(dict.fromkeys(found))

    def member_names(self) -> Mapping[str, str]:
        """Return the folder of each package of the repository by its name."""
        key = ("members", "")
        if key not in self._cache:
            paths = [
                path
                for path in self._repo.tracked_files
                if posixpath.basename(path) == "package.json" and not _ASIDE.search(path)
            ]
            names = {}
            for path in paths[:MAX_MEMBERS]:
                name = self.json(path).get("name")
                folder = posixpath.dirname(path) or "."
                names[name if isinstance(name, str) else f"({folder})"] = folder
            self._cache[key] = names
        return self._cache[key]  # type: ignore[no-any-return]

    # -- tox, nox, hatch, poe, pdm, … ------------------------------------------------------------------

    def _python_runner(self, command: ShellCommand, place: Place) -> list[Piece] | None:
        words = command.words
        if (match := _MODULE.fullmatch(" ".join(words[:3]))) is not None:
            words = (match["name"], *words[3:])
        name = program(words[0])
        if name == "poetry" and words[1:2] == ("poe",):
            name, words = "poe", words[1:]
        if name in ("pdm", "rye", "pipenv") and len(words) > 1:
            at = _after_options(words, 2, _VALUED_UV) if words[1] == "run" else 1
            rest = words[at:]
            script = self._scripts_of(name, place.folder).get(rest[0]) if rest else None
            if script is not None:
                file = "Pipfile" if name == "pipenv" else "pyproject.toml"
                source = f"{in_folder(place.folder, file)}, script {rest[0]}"
                return self._task(script, rest[1:], place.inside(source, task_kind(rest[0])), name)
            return (
                self._leaf(simple("pytest"), place) if (name, words[1]) == ("rye", "test") else None
            )
        if name == "tox":
            return self._tox(words[1:], place)
        if name == "nox":
            return self._nox(words[1:], place)
        if name == "hatch":
            return self._hatch(words[1:], place)
        if name in ("poe", "task"):
            at = _after_options(words, 1, frozenset({"-C", "--root"}))
            return self.task(name, words[at], words[at + 1 :], place) if at < len(words) else []
        return None

    def task(
        self, tool: str, name: str, arguments: Sequence[str], place: Place
    ) -> list[Piece] | None:
        """Return what a task of poe, pdm, taskipy (``task``) or go-task comes down to; None: no such."""
        section = {"poe": ("tool", "poe", "tasks"), "task": ("tool", "taskipy", "tasks")}
        path = section.get(tool, ("tool", tool, "scripts"))
        script = _mapping(_dig(self.pyproject(place.folder), *path)).get(name)
        file = "pyproject.toml"
        if script is None and tool == "poe":
            file = "poe_tasks.toml"
            script = _mapping(self.toml(in_folder(place.folder, file)).get("tasks")).get(name)
        if script is None and tool == "task":
            return self._go_task(name, place)
        if script is None:
            return None
        source = f"{in_folder(place.folder, file)}, {tool} task {name}"
        return self._task(script, arguments, place.inside(source, task_kind(name)), tool)

    def _task(self, task: Any, arguments: Sequence[str], place: Place, tool: str) -> list[Piece]:
        """Return what a task of a table in pyproject.toml comes down to."""
        if self._is_spent(place):
            return []
        if isinstance(task, list) and tool == "rye":
            task = quoted(task)
        given = f" {quoted(arguments)}" if arguments else ""
        if isinstance(task, str):
            text = re.sub(
                r"\{args(?::([^{}]*))?\}", lambda match: given.strip() or match[1] or "", task
            )
            given = "" if text != task else given
            runner = {"poe": "poe", "task": "task"}.get(tool)
            first = text.split(None, 1)[0] if text.split() else ""
            if runner and place.chain[-1:] and first != runner and self._is_ref(tool, first, place):
                text = f"{runner} {text}"
            return self.pieces(_without_dashes(text) + given, place)
        if isinstance(task, list):
            return [piece for part in task for piece in self._step(part, place, tool)]
        if not isinstance(task, dict):
            return []
        env = {
            str(key): value
            for key, value in _mapping(task.get("env")).items()
            if isinstance(value, str)
        }
        folder = joined(
            place.folder, str(task.get("cwd") or task.get("working_dir") or "."), place.folder
        )
        if folder is None:
            return []
        place = replace(place, env={**place.env, **env}, folder=folder)
        for key in ("cmd", "shell", "sequence", "composite", "chain", "ref", "parallel"):
            value = task.get(key)
            if value and key in ("cmd", "shell") and not isinstance(value, dict):
                text = quoted(map(str, value)) if isinstance(value, list) else str(value)
                return self._task(text, arguments, place, "")
            if value and key == "ref":
                return self._step(str(value), place, tool)
            if isinstance(value, list):
                return [piece for part in value for piece in self._step(part, place, tool)]
        return []

    def _is_ref(self, tool: str, name: str, place: Place) -> bool:
        section = ("tool", "poe", "tasks") if tool == "poe" else ("tool", "taskipy", "tasks")
        return tool != "task" and name in _mapping(_dig(self.pyproject(place.folder), *section))

    def _step(self, part: Any, place: Place, tool: str) -> list[Piece]:
        """Return what one part of a sequence comes down to: a task's name, or a task."""
        if not isinstance(part, str):
            return self._task(part, (), place.inside("", place.hint), tool)
        words = part.split()
        if words and tool in ("poe", "pdm", "rye"):
            found = self.task(
                tool, words[0], words[1:], replace(place, chain=place.chain, depth=place.depth + 1)
            )
            if found is not None:
                return [replace(piece, chain=place.chain) for piece in found]
        return self._task(part, (), place.inside("", place.hint), "")

    def _tox(self, words: Sequence[str], place: Place) -> list[Piece]:
        if self._is_spent(place):
            return []
        words = ["-e" if re.fullmatch(r"-[qrv]+e", word) else word for word in words]
        if words[:1] and words[0] in ("run", "r", "p", "run-parallel", "exec", "e"):
            words = words[1:]
        posargs: Sequence[str] = ()
        if "--" in words:
            at = list(words).index("--")
            words, posargs = words[:at], words[at + 1 :]
        wanted = _option_values(words, ("-e", "-m", "--env"))
        wanted = wanted or [str(place.env.get("TOXENV") or place.env.get("TOX_ENV") or "")]
        names = [name for value in wanted for name in _tox_names(value)]
        factors = _option_values(words, ("-f",))
        config = _option_values(words, ("-c", "--conf"))
        tox = self._tox_config(place.folder, config[0] if config else "")
        if tox is None:
            return []
        if not names or names == ["ALL"]:
            names = _by_preference(tox.names)
        if factors:
            wanted_factors = {part for factor in factors for part in re.split(r"[,-]", factor)}
            of_factor = [name for name in names if wanted_factors.issubset(name.split("-"))]
            names = of_factor or names
        found: list[Piece] = []
        for name in names[:MAX_TOX_ENVS_READ]:
            env = tox.environment(name, list(posargs), place.env)
            source = f"{in_folder(place.folder, tox.file)} {env.section}"
            folder = joined(place.folder, env.folder, place.folder) or place.folder  # tox's own
            is_python = any(_PYTHON_FACTOR.fullmatch(factor) for factor in name.split("-"))
            hint = task_kind(name) or (CommandKind.TESTS if is_python else None)
            if not env.commands:
                continue
            inside = place.inside(source, hint, folder=folder, env={**place.env, **env.variables})
            pieces = _settled([it for line in env.commands for it in self.pieces(line, inside)])
            is_another = any(one.kind is CommandKind.TESTS for one in pieces) and any(
                one.kind is CommandKind.TESTS for one in found
            )
            if not (is_another and len(wanted) == 1 and not wanted[0]):
                found += pieces
        return found

    def _tox_config(self, folder: str, named: str) -> "_Tox | None":
        if named:
            return _Tox.of_ini(named, self.ini(in_folder(folder, named)))
        if (ini := self.ini(in_folder(folder, "tox.ini"))).sections():
            return _Tox.of_ini("tox.ini", ini)
        if (ini := self.ini(in_folder(folder, "setup.cfg"))).has_section("tox:tox"):
            return _Tox.of_ini("setup.cfg", ini)
        table = _mapping(_dig(self.pyproject(folder), "tool", "tox"))
        if isinstance(legacy := table.get("legacy_tox_ini"), str):
            return _Tox.of_ini("pyproject.toml", _parsed_ini(legacy))
        if table:
            return _Tox.of_toml("pyproject.toml", table)
        own = self.toml(in_folder(folder, "tox.toml"))
        return _Tox.of_toml("tox.toml", own) if own else None

    def _nox(self, words: Sequence[str], place: Place) -> list[Piece]:
        if self._is_spent(place):
            return []
        posargs: Sequence[str] = ()
        if "--" in words:
            at = list(words).index("--")
            words, posargs = words[:at], words[at + 1 :]
        files = _option_values(words, ("-f", "--noxfile"))
        path = in_folder(place.folder, files[0] if files else "noxfile.py")
        key = ("nox", quoted([path, *posargs]))
        if key not in self._cache:
            self._cache[key] = _sessions(self.text(path), tuple(posargs))
        sessions: Mapping[str, _Session] = self._cache[key]
        wanted = _option_values(words, ("-s", "--session", "--sessions", "-e"), is_list=True)
        names = [re.sub(r"\(.*\)$", "", name) for name in wanted]
        if not names:
            names = [name for name in sessions if sessions[name].is_default]
            names.sort(key=lambda name: task_kind(name) is not CommandKind.TESTS)
        found: list[Piece] = []
        for name in names:
            session = sessions.get(name) or sessions.get(re.sub(r"-[\w.]+$", "", name))
            if session is None:
                continue
            inside = place.inside(f"{path}, session {session.name}", task_kind(session.name))
            for run in session.runs:
                folder = joined(place.folder, run.folder, place.folder)
                if folder is not None:
                    env = {**inside.env, **run.env}
                    found += self.pieces(run.line, replace(inside, folder=folder, env=env))
        return _settled(found)

    def _hatch(self, words: Sequence[str], place: Place) -> list[Piece]:
        if self._is_spent(place):
            return []
        env, at = "default", 0
        while at < len(words) and words[at].startswith("-"):
            if words[at] in ("-e", "--env") and at + 1 < len(words):
                env = words[at + 1]
            at += 2 if words[at] in ("-e", "--env", "-p", "--project") else 1
        verb, rest = (words[at] if at < len(words) else ""), words[at + 1 :]
        if verb == "env" and rest[:1] == ("run",):
            named = _option_values(rest, ("-e", "--env"))
            env, verb = (named[0] if named else env), "run"
            rest = rest[list(rest).index("--") + 1 :] if "--" in rest else rest[1:]
        if verb in ("test", "fmt", "check"):
            if verb != "test":
                return [_piece(simple(quoted(["hatch", *words])), place, CommandKind.LINT)]
            rest = [
                word
                for word in rest
                if word not in ("-a", "--all", "-c", "--cover", "-p", "-r", "--", "-i")
            ]
            return self._hatch_script("hatch-test", ["run", *rest], place)
        if verb != "run":
            return []
        options = _after_options(rest, 0, frozenset())
        rest = [word for word in rest[options:] if not re.match(r"[+-]\w+=", word)]
        if not rest:
            return []
        first = rest[0]
        if ":" in first and not first.startswith(("http", "/")):
            env, _, first = first.partition(":")
        return self._hatch_script(env, [first, *rest[1:]], place)

    def _hatch_script(self, env: str, words: Sequence[str], place: Place) -> list[Piece]:
        file = "hatch.toml"
        table = _mapping(self.toml(in_folder(place.folder, file)).get("envs"))
        if not table:
            file = "pyproject.toml"
            table = _mapping(_dig(self.pyproject(place.folder), "tool", "hatch", "envs"))
        scripts: dict[str, Any] = {}
        variables: dict[str, str] = {}
        for name in _lineage(table, env):
            one = _mapping(table.get(name))
            scripts |= _mapping(one.get("scripts"))
            variables |= {
                str(key): value
                for key, value in _mapping(one.get("env-vars")).items()
                if isinstance(value, str) and "{" not in value
            }
        if env == "hatch-test":
            arguments = table.get(env, {}) if isinstance(table.get(env), dict) else {}
            default = quoted(map(str, arguments.get("default-args", ["tests"]) or []))
            scripts.setdefault("run", f"pytest {{args:{default}}}")
        source = f"{in_folder(place.folder, file)} [envs.{env}], script {words[0]}"
        hint = task_kind(words[0]) or task_kind(env)
        inside = place.inside(source, hint, env={**place.env, **variables})
        if words[0] not in scripts:
            inside = place.inside("", place.hint, env={**place.env, **variables})
        return self._hatch_lines(words[0], list(words[1:]), scripts, inside)

    def _hatch_lines(
        self,
        name: str,
        arguments: list[str],
        scripts: Mapping[str, Any],
        place: Place,
        seen: tuple[str, ...] = (),
    ) -> list[Piece]:
        lines = scripts.get(name)
        if lines is None or name in seen:
            return self.pieces(quoted([name, *arguments]), place)
        found: list[Piece] = []
        for line in lines if isinstance(lines, list) else [lines]:
            if self._is_spent(place):
                break
            text = _without_dashes(str(line))
            text = _hatch_fields(text, quoted(arguments), place)
            words = text.split()
            if words and words[0] in scripts:
                try:
                    rest = shlex.split(text)[1:]
                except ValueError:
                    continue
                found += self._hatch_lines(words[0], rest, scripts, place, (*seen, name))
            else:
                found += self.pieces(text, place)
        return _settled(found)

    # -- make, just, go-task ---------------------------------------------------------------------------

    def _other_runner(self, command: ShellCommand, place: Place) -> list[Piece] | None:
        words = command.words
        name = program(words[0])
        if name in ("make", "gmake"):
            return self._make(command, place)
        if name == "just":
            at = _after_options(words, 1, frozenset({"-f", "-d"}))
            wanted = words[at] if at < len(words) else ""
            return self._recipe(self.justfile(place.folder), wanted, words[at + 1 :], place)
        return None

    def makefile(self, folder: str) -> "Recipes":
        """Return the targets of a folder's Makefile."""
        return self._recipes(folder, ("GNUmakefile", "makefile", "Makefile"), Recipes.of_make)

    def justfile(self, folder: str) -> "Recipes":
        """Return the recipes of a folder's justfile."""
        return self._recipes(folder, ("justfile", "Justfile", ".justfile"), Recipes.of_just)

    def _recipes(
        self, folder: str, names: Sequence[str], read: Callable[[str, str], "Recipes"]
    ) -> "Recipes":
        for name in names:
            if self._repo.has(path := in_folder(folder, name)):
                recipes: Recipes = self._parsed("recipes", path, partial(read, path))
                return recipes
        return Recipes(names[-1], {})

    def _make(self, command: ShellCommand, place: Place) -> list[Piece]:
        words = command.words
        folder = place.folder
        if in_dir := _option_values(words[1:], ("-C", "--directory")):
            inner = joined(folder, in_dir[0], folder)
            if inner is None:
                return []
            folder = inner
        recipes = self.makefile(folder)
        targets = [
            word
            for before, word in pairwise(words)
            if not word.startswith("-") and "=" not in word and not _is_value_of_make(before, word)
        ]
        found: list[Piece] = []
        for target in targets or recipes.first():
            line = " ".join(
                word for word in quoted(words).split(" ") if word == target or word not in targets
            )
            one = (
                simple(f"{line} {_behind(command, len(words))}".strip()) if targets[1:] else command
            )
            found += self._make_target(one, recipes, target, replace(place, folder=folder), place)
        return found

    def _make_target(
        self, command: ShellCommand, recipes: "Recipes", target: str, inner: Place, outer: Place
    ) -> list[Piece]:
        if self._is_spent(outer):
            return []
        hint = task_kind(target)
        source = f"{recipes.path}, target {target}"
        inside = inner.inside(source, hint)
        lines = recipes.lines(target)
        pieces = _settled([piece for line in lines for piece in self.pieces(line, inside)])
        kinds = {piece.kind for piece in pieces}
        if not lines:
            return []
        if not pieces:
            needs_it = any(needs_outside(line) for line in lines)
            return (
                []
                if needs_it or hint is None
                else [_piece(command, outer.inside(source, hint), hint)]
            )
        delegates = all(_DELEGATES.search(line) or needs_nothing(simple(line)) for line in lines)
        installs = any(_INSTALLS.search(line) for line in lines)
        is_plain = not any("$(" in piece.line for piece in pieces)
        if (delegates or installs) and is_plain:
            return pieces
        unread = sum(not needs_nothing(simple(line)) for line in lines) - len(pieces)
        is_named = hint is CommandKind.TESTS and unread > 0
        kind = hint if is_named else next((one for one in CommandKind if one in kinds), None)
        made = _piece(command, replace(outer, chain=(*outer.chain, source)), kind)
        runtimes = [one.runtime for one in pieces if one.kind is kind and one.runtime]
        return [replace(made, runtime=next(iter(runtimes), made.runtime))]

    def _recipe(
        self, recipes: "Recipes", name: str, arguments: Sequence[str], place: Place
    ) -> list[Piece]:
        if self._is_spent(place):
            return []
        inside = place.inside(f"{recipes.path}, recipe {name}", task_kind(name))
        lines = recipes.lines(name)
        given = quoted(arguments)
        filled = [re.sub(r"\{\{\s*\*?\w+\s*\}\}", given, line) for line in lines]
        return _settled([piece for line in filled for piece in self.pieces(line, inside)])

    def _go_task(self, name: str, place: Place) -> list[Piece] | None:
        for file in ("Taskfile.yml", "Taskfile.yaml", "taskfile.yml"):
            path = in_folder(place.folder, file)
            tasks = _mapping(_mapping(self.yaml(path)).get("tasks"))
            task = tasks.get(name)
            if task is None or self._is_spent(place):
                continue
            commands = task.get("cmds", task.get("cmd")) if isinstance(task, dict) else task
            found: list[Piece] = []
            inside = place.inside(f"{path}, task {name}", task_kind(name))
            for one in commands if isinstance(commands, list) else [commands]:
                if isinstance(one, dict) and isinstance(one.get("task"), str):
                    found += self._go_task(one["task"], inside) or []
                    continue
                text = one.get("cmd") if isinstance(one, dict) else one
                if isinstance(text, str):
                    found += self.pieces(re.sub(r"\{\{[^{}]*\}\}", "", text), inside)
            return found
        return None

    # -- what a folder offers --------------------------------------------------------------------------

    def own(self, place: Place) -> Iterator[list[Piece]]:
        """Yield what each task that tests a folder comes down to: tox, nox, hatch, poe, pdm, make, just,
        task, package.json, manage.py."""
        folder, hint = place.folder, CommandKind.TESTS
        yield self._tox((), place)
        pieces = self._nox((), place)
        if not any(piece.kind is CommandKind.TESTS for piece in pieces):
            pieces = self._nox(("-s", "test", "tests", "unit", "pytest"), place)
        yield pieces
        yield from self._own_of_hatch(place)
        for tool, path in (
            ("poe", ("tool", "poe", "tasks")),
            ("pdm", ("tool", "pdm", "scripts")),
            ("rye", ("tool", "rye", "scripts")),
            ("task", ("tool", "taskipy", "tasks")),
        ):
            for name in _test_names(_mapping(_dig(self.pyproject(folder), *path))):
                yield self.task(tool, name, (), place) or []
        for name in _test_names(self._scripts_of("pipenv", folder)):
            yield self.pieces(f"pipenv run {name}", place)
        for name in _test_names(self.makefile(folder).targets):
            yield self.pieces(f"make {name}", place)
        recipes = self.justfile(folder)
        for name in _test_names(recipes.targets):
            yield self._recipe(recipes, name, (), place)
        yield self._go_task("test", place) or []
        for name in _test_names(self.scripts(folder)):
            yield self._script(folder, name, "", "npm", place)
        if self._repo.has(script := in_folder(folder, "manage.py")):
            yield [_piece(simple("python manage.py test"), place.inside(script, hint), hint)]

    def _own_of_hatch(self, place: Place) -> Iterator[list[Piece]]:
        table = _mapping(self.toml(in_folder(place.folder, "hatch.toml")).get("envs"))
        table = table or _mapping(_dig(self.pyproject(place.folder), "tool", "hatch", "envs"))
        for env in sorted(
            table, key=lambda env: (task_kind(env) is not CommandKind.TESTS, env != "default")
        ):
            for name in _test_names(_mapping(_mapping(table[env]).get("scripts"))):
                if task_kind(env) in (None, CommandKind.TESTS):
                    yield self._hatch_script(env, [name], place)
        if "hatch-test" in table:
            yield self._hatch_script("hatch-test", ["run"], place)

    # -- files -----------------------------------------------------------------------------------------

    def text(self, path: str) -> str:
        """Return a file's text; empty if there is none, or none that is read."""
        key = ("text", path)
        if key not in self._cache:
            try:
                text = self._repo.read_text(path) if self._repo.has(path) else ""
            except RepositoryError:
                text = ""
            self._cache[key] = text.removeprefix("\ufeff") if len(text) <= MAX_FILE_CHARS else ""
        return self._cache[key]  # type: ignore[no-any-return]

    def _parsed(self, kind: str, path: str, parse: Callable[[str], Any]) -> Any:
        key = (kind, path)
        if key not in self._cache:
            self._cache[key] = parse(self.text(path))
        return self._cache[key]

    def json(self, path: str) -> Mapping[str, Any]:
        """Return a JSON object; empty if there is none."""
        return _mapping(self._parsed("json", path, _parsed_json))

    def toml(self, path: str) -> Mapping[str, Any]:
        """Return a TOML document; empty if there is none."""
        return _mapping(self._parsed("toml", path, _parsed_toml))

    def ini(self, path: str) -> configparser.RawConfigParser:
        """Return a file of sections; without any if there is none."""
        found: configparser.RawConfigParser = self._parsed("ini", path, _parsed_ini)
        return found

    def yaml(self, path: str) -> Any:
        """Return a YAML document whose scalars are texts; None if there is none, or it exceeds a limit."""
        if ("yaml", path) not in self._cache:
            self._yaml_chars += len(self.text(path))
        return (
            self._parsed("yaml", path, parsed_yaml) if self._yaml_chars <= MAX_YAML_CHARS else None
        )

    def pyproject(self, folder: str) -> Mapping[str, Any]:
        """Return a folder's pyproject.toml; empty if there is none."""
        return self.toml(in_folder(folder, "pyproject.toml"))


#: Runners whose task is often named by a variable of CI.
_READS_NAMES = frozenset(
    {"tox", "nox", "uv", "uvx", "hatch", "poetry", "pdm", "npm", "yarn", "pnpm", "python", "make"}
)


def _expanded(text: str, env: Mapping[str, str], *, are_words: bool = True) -> str:
    """Return a text with ``$NAME`` and ``${NAME}`` replaced, of variables that are one word (or a part)."""

    def value(match: re.Match[str]) -> str:
        known = env.get(match[1] or match[2], "\0")
        is_word = re.fullmatch(r"[\w.,:/()+-]+", known) or not (known or are_words)
        return known if is_word else match[0]

    return re.sub(r"\$(?:\{(\w+)\}|(\w+))", value, text)


_BEST_NAMES = re.compile(
    r"(?:run[-_:]?)?(?:tests?|unit|unit[-_]?tests?|tests?[-_:](?:unit|all|ci|run|node|py|python|fast)|pytest|jest|vitest|mocha|check)"
)
_OTHER_NAMES = re.compile(
    r"watch|debug|update|e2e|ui$|open|dev|browser|report|lint|type|docs?|clean|cov|perf|bench|build|deps|docker|install|live|smoke|integration|setup|publish|deploy|serve|inspect|only"
)


def _test_names(tasks: Mapping[str, Any]) -> list[str]:
    """Return the tasks that test by their names, the likeliest first: one that is named plainly, or all."""
    names = list(tasks)
    best = [name for name in names if _BEST_NAMES.fullmatch(name.lower())]
    best.sort(key=lambda name: (name not in ("test", "tests"), len(name)))
    if best:
        return best[:2] if best[0] not in ("test", "tests") else best[:1]
    others = [name for name in names if task_kind(name) is CommandKind.TESTS]
    return sorted(others, key=lambda name: bool(_OTHER_NAMES.search(name)))[:3]


# -- YAML --------------------------------------------------------------------------------------------------

#: Nested lists and mappings of a YAML file: real CI files have up to 15.
MAX_YAML_DEPTH = 40

#: Characters of YAML that are read for a folder: the CI of large monorepos has about 1,000,000.
MAX_YAML_CHARS = 4_000_000

#: Values of a YAML file: the largest public workflows have about 10,000.
MAX_YAML_VALUES = 50_000

#: Uses of anchors in a YAML file: large CircleCI files have about 200.
MAX_YAML_ALIASES = 1_000


def parsed_yaml(text: str) -> Any:
    """Return a document whose scalars are texts, with merge keys applied; None for anything else.

    It is measured before anything is made of it: depth, values, uses of anchors. Never raises.
    """
    import yaml

    loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
    if not text.strip() or len(text) > MAX_FILE_CHARS:
        return None
    depth = values = aliases = 0
    try:
        for event in yaml.parse(text, Loader=loader):
            values += 1
            aliases += isinstance(event, yaml.AliasEvent)
            if isinstance(event, yaml.MappingStartEvent | yaml.SequenceStartEvent):
                depth += 1
            elif isinstance(event, yaml.MappingEndEvent | yaml.SequenceEndEvent):
                depth -= 1
            if depth > MAX_YAML_DEPTH or values > MAX_YAML_VALUES or aliases > MAX_YAML_ALIASES:
                return None
        return _merged(yaml.load(text, Loader=loader), [MAX_YAML_VALUES])  # noqa: S506 (makes only text, lists and dicts)
    except (yaml.YAMLError, RecursionError, ValueError, TypeError):
        return None


def _merged(value: Any, left: list[int], depth: int = 0) -> Any:
    """Return a copy with ``<<`` applied, of so many values at most: aliases may multiply."""
    left[0] -= 1
    if left[0] < 0 or depth > 2 * MAX_YAML_DEPTH:
        raise ValueError
    if isinstance(value, list):
        return [_merged(one, left, depth + 1) for one in value]
    if not isinstance(value, dict):
        return value
    found: dict[Any, Any] = {}
    merges = value.get("<<")
    for base in merges if isinstance(merges, list) else [merges]:
        if isinstance(base, dict):
            found = {**_merged(base, left, depth + 1), **found}
    return found | {key: _merged(one, left, depth + 1) for key, one in value.items() if key != "<<"}


# -- tox ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _ToxEnv:
    section: str
    commands: tuple[str, ...]
    variables: Mapping[str, str]
    folder: str


_FACTORS = re.compile(r"^(?P<factors>[\w.{}!,-]+)\s*:(?:\s+|$)(?P<rest>.*)$")
_PYTHON_FACTOR = re.compile(r"(?:py|pypy|cpython)?-?(\d)\.?(\d*)t?$|^(?:py|pypy|python)\d?$")
_SERVICE_FACTOR = re.compile(
    r"postgres\w*|pg\d*|mysql|mariadb|mssql|oracle|redis|rabbit\w*|elasticsearch\d*|opensearch\d*|mongo\w*|integration|"
    r"functional|e2e|smoke|dev|main|master|min\w*|lowest|pypy\d*\.?\d*|docs?|bench\w*|perf|nightly|.*main|\d+\.\d+t|py\d+t"
)


@dataclass(frozen=True)
class _Tox:
    """A tox configuration: sections of an ini file, or tables of TOML as such sections."""

    file: str
    names: tuple[str, ...]
    sections: Mapping[str, Mapping[str, Any]]

    @classmethod
    def of_ini(cls, file: str, ini: configparser.RawConfigParser) -> "_Tox":
        sections = {name: dict(ini[name]) for name in ini.sections()}
        core = sections.get("tox:tox" if file == "setup.cfg" else "tox", {}) or sections.get(
            "tox", {}
        )
        listed = core.get("envlist") or core.get("env_list") or ""
        names: Sequence[str] = _tox_names(listed)
        if not names:
            names = ["py", *(one[8:] for one in sections if one.startswith("testenv:"))]
        return cls(file, tuple(names), sections)

    @classmethod
    def of_toml(cls, file: str, table: Mapping[str, Any]) -> "_Tox":
        base = _mapping(table.get("env_run_base"))
        envs = _mapping(table.get("env"))
        sections = {
            "testenv": base,
            **{f"testenv:{name}": _mapping(one) for name, one in envs.items()},
        }
        listed = table.get("env_list")
        names = (
            [str(one) for one in listed if isinstance(one, str)] if isinstance(listed, list) else []
        )
        return cls(file, tuple(names or ["py", *envs]), sections)

    def environment(self, name: str, posargs: Sequence[str], given: Mapping[str, str]) -> _ToxEnv:
        """Return what an environment runs, with its factors applied."""
        own = self.sections.get(f"testenv:{name}")
        if own is None:
            for section in islice(self.sections, MAX_TOX_ENVS):  # [testenv:py{310,311}-lint]
                if section.startswith("testenv:") and name in _tox_names(section[8:]):
                    own = self.sections[section]
        base = self.sections.get("testenv", {})
        merged = {**base, **(own or {})}
        is_python = all(_PYTHON_FACTOR.fullmatch(factor) for factor in name.split("-"))
        label = f"[testenv:{name}]" if own is not None or not is_python else "[testenv]"
        variables = dict(self._pairs(_either(merged, "setenv", "set_env"), name))
        folder = _either(merged, "changedir", "change_dir") or "."
        context = _ToxContext(self, name, posargs, {**given, **variables})
        folder_text = context.filled(str(folder), ".")
        variables = {key: context.filled(value, folder_text) for key, value in variables.items()}
        lines = [
            line
            for key in ("commands_pre", "commands")
            for line in self._commands(merged.get(key), name, context, folder_text)
        ]
        literal = {key: value for key, value in variables.items() if not re.search(r"[{$`]", value)}
        return _ToxEnv(label, tuple(lines), literal, folder_text)

    def _commands(
        self, value: Any, name: str, context: "_ToxContext", folder: str
    ) -> Iterator[str]:
        if isinstance(value, list):
            for command in value:
                if isinstance(command, list):
                    yield quoted(_tox_words(command, context.posargs))
                elif isinstance(command, dict) and isinstance(command.get("of"), list):
                    continue
            return
        if not isinstance(value, str):
            return
        text = re.sub(r"[ \t]*\\[ \t]*\n\s*", " ", self._referenced(value))
        for line in text.splitlines():
            line = line.strip()
            if not line or line.startswith(("#", ";")):
                continue
            if (match := _FACTORS.match(line)) and not line.startswith("{posargs"):
                if not _applies(match["factors"], name):
                    continue
                line = match["rest"]
            filled = context.filled(_without_dashes(line), folder)
            if filled.strip():
                yield filled

    def _referenced(self, text: str, depth: int = 0) -> str:
        """Return a text with ``{[section]key}`` replaced."""

        def other(match: re.Match[str]) -> str:
            value = self.sections.get(match[1], {}).get(match[2], "")
            return self._referenced(str(value), depth + 1) if depth < 3 else ""

        text = text[:MAX_SCRIPT_CHARS]
        return re.sub(r"\{\[([^\]\n{}]+)\](\w+)\}", other, text, count=20)[:MAX_SCRIPT_CHARS]

    def _pairs(self, value: Any, name: str) -> Iterator[tuple[str, str]]:
        if isinstance(value, dict):
            yield from ((str(key), one) for key, one in value.items() if isinstance(one, str))
            return
        for line in self._referenced(str(value or "")).splitlines():
            line = line.strip()
            if (match := _FACTORS.match(line)) and "=" not in match["factors"]:
                if not _applies(match["factors"], name):
                    continue
                line = match["rest"]
            key, equals, text = line.partition("=")
            if equals and re.fullmatch(r"[A-Za-z_]\w*", key.strip()):
                yield key.strip(), text.strip()[:1_000]


@dataclass(frozen=True)
class _ToxContext:
    tox: _Tox
    name: str
    posargs: Sequence[str]
    variables: Mapping[str, str]

    def filled(self, text: str, folder: str) -> str:
        """Return a text with tox's substitutions, such as {posargs}, {envpython}, {env:NAME:default}."""
        text = self.tox._referenced(text)
        root = (
            posixpath.relpath(".", folder)
            if folder not in ("", ".") and not folder.startswith("/")
            else "."
        )
        for _ in range(4):
            replaced = re.sub(r"\{([^{}\n]*)\}", lambda match: self._value(match[1], root), text)
            if replaced == text:
                break
            text = replaced[:MAX_SCRIPT_CHARS]
        return text

    def _value(self, key: str, root: str) -> str:
        name, _, rest = key.partition(":")
        if name.strip() == "posargs":
            return quoted(self.posargs) if self.posargs else rest.strip()
        if name == "env":
            variable, _, default = rest.partition(":")
            return str(self.variables.get(variable, default))
        if name in ("toxinidir", "tox_root", "config_dir"):
            return root
        if name in ("envpython", "env_python", "basepython"):
            return "python"
        if name in ("envname", "env_name"):
            return self.name
        if name in ("envbindir", "env_bin_dir"):
            return "."
        if name in ("envsitepackagesdir", "env_site_packages_dir"):
            return "$(python -c 'import sysconfig; print(sysconfig.get_path(\"purelib\"))')"
        if "dir" in name or name in ("work_dir", "temp_dir"):
            return "${TMPDIR:-/tmp}/tox".replace("{", "\x01").replace("}", "\x02")
        return {"/": "/", "": ":"}.get(name, "")


def _tox_words(command: Sequence[Any], posargs: Sequence[str]) -> list[str]:
    words: list[str] = []
    for word in command:
        if isinstance(word, dict):
            default = word.get("default")
            given = list(posargs) or (
                default if isinstance(default, list) else [default] if default else []
            )
            words += [str(one) for one in given] if word.get("replace") == "posargs" else []
        elif isinstance(word, str):
            word = re.sub(
                r"\{(?:env_?tmp_?dir|tox_?work_?dir|work_dir|env_?dir|temp_dir)\}",
                "${TMPDIR:-/tmp}/tox",
                word,
            )
            words.append(
                re.sub(r"\{(?:tox_root|toxinidir)\}", ".", word).replace("{env_python}", "python")
            )
    return [word for word in words if "{" not in word or "}" not in word]


@lru_cache(maxsize=1_000)
def _tox_names(text: str, most: int = MAX_TOX_ENVS) -> tuple[str, ...]:
    """Return the environments of a list, with braces expanded."""
    found: list[str] = []
    for line in re.split(r"[\n,](?![^{]*\})", text):
        line = re.sub(r"\s*#.*", "", line).strip()
        parts = [part.split(",") for part in re.findall(r"\{([^{}]*)\}|", line) if part]
        if re.search(r"[{}]", re.sub(r"\{[^{}]*\}", "", line)) or not line or len(parts) > 12:
            continue
        pattern = re.sub(r"\{[^{}]*\}", "\0", line)
        for values in product(*parts):
            name = pattern
            for value in values:
                name = name.replace("\0", value.strip(), 1)
            found.append(name.strip("-").replace(" ", ""))
            if len(found) >= most:
                return tuple(found)
    return tuple(dict.fromkeys(found))


def _applies(condition: str, name: str) -> bool:
    """Does a factor condition (``py310,py311-!django``) hold for an environment's name?"""
    factors = set(name.split("-"))
    for one in _tox_names(condition, 64):
        wanted = [part for part in re.split(r"-(?!$)", one) if part]
        if all(
            (part[1:] not in factors) if part.startswith("!") else part in factors
            for part in wanted
        ):
            return True
    return False


def _by_preference(names: Sequence[str]) -> list[str]:
    """Return environments in the order in which they are taken: none with services, the newest Python."""

    def key(name: str) -> tuple[int, tuple[int, ...]]:
        factors = name.split("-")
        services = sum(bool(_SERVICE_FACTOR.fullmatch(factor)) for factor in factors)
        version = next(
            (m for factor in factors if (m := re.fullmatch(r"(?:py)?(\d)\.?(\d+)", factor))), None
        )
        return services, (-int(version[1]), -int(version[2])) if version else (0, 0)

    return sorted(names, key=key)


# -- nox ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Run:
    line: str
    env: Mapping[str, str]
    folder: str


@dataclass(frozen=True)
class _Session:
    name: str
    runs: tuple[_Run, ...]
    is_default: bool


class _Opaque:
    """A value that can't be read from the text."""


def _sessions(text: str, posargs: tuple[str, ...]) -> dict[str, _Session]:
    """Return the sessions of a noxfile, read as a syntax tree."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return {}
    try:
        return _sessions_of(tree, posargs)
    except RecursionError:
        return {}


def _sessions_of(tree: ast.Module, posargs: tuple[str, ...]) -> dict[str, _Session]:
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    values: dict[str, Any] = {}
    defaults: list[str] | None = None
    found: dict[str, _Session] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            target = ast.unparse(node.targets[0])
            value = _value(node.value, values, posargs)
            if target.endswith("options.sessions") and isinstance(value, list | tuple):
                defaults = [one for one in value if isinstance(one, str)]
            elif isinstance(node.targets[0], ast.Name):
                values[target] = value
    for function in islice(functions.values(), MAX_TASKS):
        decorated = [one for one in map(_session_name, function.decorator_list) if one is not None]
        if decorated:
            name = decorated[0] or function.name
            reader = _NoxReader(functions, posargs)
            reader.read(function, dict(values))
            is_default = defaults is None or name in defaults
            found[name] = _Session(name, tuple(reader.runs), is_default)
            found.setdefault(function.name, found[name])
    return found


def _session_name(decorator: ast.expr) -> str | None:
    """Return the name that a decorator gives a session, "" if it gives none; None: it makes no session."""
    call = decorator if isinstance(decorator, ast.Call) else None
    target = call.func if call else decorator
    name = target.attr if isinstance(target, ast.Attribute) else getattr(target, "id", "")
    if name != "session":
        return None
    for keyword in call.keywords if call else ():
        if keyword.arg == "name" and isinstance(keyword.value, ast.Constant):
            return str(keyword.value.value)
    return ""


class _NoxReader:
    """Follows a session's statements in order, with those of functions that get the session."""

    def __init__(self, functions: Mapping[str, ast.FunctionDef], posargs: tuple[str, ...]) -> None:
        self.runs: list[_Run] = []
        self._functions, self._posargs = functions, posargs
        self._env: dict[str, str] = {}
        self._folder = "."
        self._left = MAX_NOX_STATEMENTS

    def read(self, function: ast.FunctionDef, values: dict[str, Any], depth: int = 0) -> None:
        """Collect the runs of a function."""
        arguments = function.args.args
        session = arguments[0].arg if arguments else "session"
        defaults = zip(reversed(arguments), reversed(function.args.defaults), strict=False)
        named = zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True)
        for argument, default in (*defaults, *named):
            values.setdefault(argument.arg, _value(default, values, self._posargs))
        self._block(function.body, session, values, depth)

    def _block(
        self, body: Sequence[ast.stmt], session: str, values: dict[str, Any], depth: int
    ) -> None:
        for node in body:
            self._left -= 1
            if self._left < 0:
                return
            if isinstance(node, ast.If):
                test = _value(node.test, values, self._posargs)
                if isinstance(test, _Opaque):
                    known = dict(values)
                    self._block(node.orelse, session, values, depth)
                    self._block(node.body, session, known, depth)
                    for name in known.keys() | values.keys():
                        if known.get(name) is not values.get(name):
                            values[name] = _Opaque()
                else:
                    self._block(node.body if test else node.orelse, session, values, depth)
            elif isinstance(node, ast.With):
                folder = self._folder
                self._calls(node.items, session, values, depth)
                self._block(node.body, session, values, depth)
                self._folder = folder
            elif isinstance(node, ast.For | ast.While | ast.Try):
                self._block(node.body, session, values, depth)
            elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                values[node.targets[0].id] = _value(node.value, values, self._posargs)
                self._calls([node.value], session, values, depth)
            elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]).startswith(
                f"{session}.env["
            ):
                target, value = node.targets[0], _value(node.value, values, self._posargs)
                key = (
                    _value(target.slice, values, self._posargs)
                    if isinstance(target, ast.Subscript)
                    else None
                )
                if isinstance(key, str) and isinstance(value, str):
                    self._env[key] = value
            elif not isinstance(node, ast.FunctionDef | ast.ClassDef):
                self._calls([node], session, values, depth)

    def _calls(
        self, nodes: Sequence[ast.AST], session: str, values: dict[str, Any], depth: int
    ) -> None:
        for node in (one for outer in nodes for one in ast.walk(outer)):
            if not isinstance(node, ast.Call):
                continue
            name = ast.unparse(node.func) if len(node.args) < 500 else ""
            if name in (f"{session}.run", f"{session}.run_always"):
                self._run(node, values)
            elif name in (f"{session}.chdir", f"{session}.cd") and node.args:
                folder = _value(node.args[0], values, self._posargs)
                self._folder = folder if isinstance(folder, str) else "\0"
            elif name == f"{session}.notify" and node.args:
                other = _value(node.args[0], values, self._posargs)
                if isinstance(other, str) and other in self._functions and depth < 3:
                    self.read(self._functions[other], dict(values), depth + 1)
            elif (
                name in self._functions
                and depth < 3
                and any(ast.unparse(one) == session for one in node.args)
            ):
                inner = dict(values)
                parameters = [one.arg for one in self._functions[name].args.args]
                for parameter, argument in zip(parameters, node.args, strict=False):
                    inner[parameter] = _value(argument, values, self._posargs)
                for keyword in node.keywords:
                    if keyword.arg:
                        inner[keyword.arg] = _value(keyword.value, values, self._posargs)
                for parameter in parameters[len(node.args) :]:
                    if parameter not in {keyword.arg for keyword in node.keywords}:
                        inner.pop(parameter, None)
                self.read(self._functions[name], inner, depth + 1)

    def _run(self, node: ast.Call, values: dict[str, Any]) -> None:
        words: list[str] = []
        for argument in node.args:
            if isinstance(argument, ast.Starred):
                value = _value(argument.value, values, self._posargs)
                if isinstance(value, list | tuple):
                    words += [one for one in value if isinstance(one, str)]
            else:
                value = _value(argument, values, self._posargs)
                if not isinstance(value, str):
                    if not words:
                        return
                    continue
                words.append(value)
        env = dict(self._env)
        for keyword in node.keywords:
            value = _value(keyword.value, values, self._posargs) if keyword.arg == "env" else None
            if isinstance(value, dict):
                env |= {
                    key: one
                    for key, one in value.items()
                    if isinstance(key, str) and isinstance(one, str)
                }
        if words and "\0" not in self._folder:
            self.runs.append(_Run(quoted(words), env, self._folder))


def _value(
    node: ast.expr | None, values: Mapping[str, Any], posargs: tuple[str, ...], depth: int = 0
) -> Any:
    """Return the value of an expression of constants, names and what nox gives; else ``_Opaque``."""

    def of(inner: ast.expr | None) -> Any:
        return _value(inner, values, posargs, depth + 1)

    opaque = _Opaque()
    if node is None or depth > 20:
        return opaque
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        return values.get(node.id, opaque)
    if isinstance(node, ast.Attribute) and node.attr == "posargs":
        return list(posargs)
    if isinstance(node, ast.List | ast.Tuple):
        items: list[Any] = []
        for one in node.elts:
            value = of(one.value if isinstance(one, ast.Starred) else one)
            items += (
                (value if isinstance(value, list | tuple) else [])
                if isinstance(one, ast.Starred)
                else [value]
            )
        return items[:MAX_TASKS]
    if isinstance(node, ast.Dict):
        return {
            of(key): of(value)
            for key, value in zip(node.keys, node.values, strict=True)
            if isinstance(key, ast.Constant)
        }
    if isinstance(node, ast.BoolOp):
        for one in node.values:
            value = of(one)
            if isinstance(value, _Opaque):
                continue
            if bool(value) is isinstance(node.op, ast.Or):
                return value
        return of(node.values[-1])
    if isinstance(node, ast.IfExp):
        test = of(node.test)
        return of(node.orelse) if isinstance(test, _Opaque) or not test else of(node.body)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        value = of(node.operand)
        return value if isinstance(value, _Opaque) else not value
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = of(node.left), of(node.right)
        if isinstance(left, str) and isinstance(right, str):
            return (left + right)[:MAX_SCRIPT_CHARS]
        if isinstance(left, list) and isinstance(right, list):
            return [*left, *right][:MAX_TASKS]
    if isinstance(node, ast.JoinedStr):
        parts = [
            of(one.value) if isinstance(one, ast.FormattedValue) else of(one) for one in node.values
        ]
        is_text = all(isinstance(one, str) for one in parts)
        return "".join(parts)[:MAX_SCRIPT_CHARS] if is_text else opaque
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in ("str", "list", "tuple", "Path")
    ):
        return of(node.args[0]) if len(node.args) == 1 else opaque
    return opaque


# -- make and just -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Recipes:
    """Targets of a file: each with what it depends on, and its lines."""

    path: str
    targets: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]]

    def first(self) -> list[str]:
        """Return the target that is made if none is named."""
        return list(self.targets)[:1]

    def lines(self, target: str) -> list[str]:
        """Return the lines that are run for a target, those of what it depends on first."""
        found: list[str] = []
        seen: set[str] = set()

        def add(name: str) -> None:
            if name in seen or len(seen) > 50 or name not in self.targets:
                return
            seen.add(name)
            for other in self.targets[name][0]:
                add(other)
            found.extend(self.targets[name][1])

        add(target)
        return found

    @classmethod
    def of_make(cls, path: str, text: str) -> "Recipes":
        """Return the targets of a Makefile, with variables of a plain value put in."""
        variables: dict[str, str] = {"MAKE": "make"}
        needs: dict[str, list[str]] = {}
        lines: dict[str, list[str]] = {}
        current: list[str] = []
        for line in re.sub(r"\\\n[ \t]*", " ", text).splitlines():
            if len(line) > MAX_LINE_CHARS:
                continue
            if line.startswith("\t"):
                command = re.sub(r"^[@+-]+\s*", "", line.strip())
                for name in current if command and not command.startswith("#") else ():
                    lines[name].append(_made(command, variables).replace("$@", name))
                continue
            if line.strip() and not line.startswith((" ", "#")):
                current = []
            if match := re.match(r"(?:export\s+)?([\w.-]+)\s*(::?|\?|\+)?=\s*(.*)$", line):
                value = _made(match[3].partition(" #")[0].strip(), variables)
                if match[2] == "+":
                    value = f"{variables.get(match[1], '')} {value}"[-MAX_LINE_CHARS:]
                variables[match[1]] = value
            elif match := re.match(r"\$[({](\w+)[)}]\s*:(?!=)", line):
                current = variables.get(match[1], "").split()
                for name in current:
                    needs.setdefault(name, [])
                    lines.setdefault(name, [])
            elif match := re.match(
                r"([\w./%-][\w./ %-]*):(?!=):?([^=#;]*)(?:;\s*([^#]*))?(?:#|$)", line
            ):
                current = match[1].split()[:MAX_TARGETS_OF_LINE]
                for name in current:
                    needs.setdefault(name, []).extend(_made(match[2], variables).split())
                    lines.setdefault(name, []).extend(
                        [_made(match[3], variables)] if match[3] else []
                    )
        targets = {
            name: (tuple(needs[name]), tuple(lines[name])) for name in needs if name != ".PHONY"
        }
        return cls(path, dict(islice(targets.items(), MAX_TASKS)))

    @classmethod
    def of_just(cls, path: str, text: str) -> "Recipes":
        """Return the recipes of a justfile."""
        needs: dict[str, tuple[str, ...]] = {}
        lines: dict[str, list[str]] = {}
        current = ""
        for line in text.splitlines():
            if len(line) > MAX_LINE_CHARS:
                continue
            if line[:1] in (" ", "\t") and current:
                command = re.sub(r"^[@-]+", "", line.strip())
                if command and not command.startswith("#"):
                    lines[current].append(command)
            elif match := re.match(r"@?([\w-]+)(?:\s[^:]*)?:(?!=)(.*)$", line):
                current = match[1]
                needs[current] = tuple(re.findall(r"[\w-]+", match[2].partition("#")[0]))
                lines[current] = []
            elif line.strip() and not line.startswith("#"):
                current = ""
        targets = {name: (needs[name], tuple(lines[name])) for name in needs}
        return cls(path, dict(islice(targets.items(), MAX_TASKS)))


def _made(text: str, variables: Mapping[str, str]) -> str:
    """Return a make text with plain variables replaced."""
    text = text.replace("$$", "\1")
    return re.sub(r"\$[({]([\w.-]+)[)}]", lambda match: variables.get(match[1], ""), text)[
        :MAX_FILE_CHARS
    ].replace("\1", "$")


# -- words -------------------------------------------------------------------------------------------------

_ASIDE = re.compile(r"(?:^|/)(?:node_modules|fixtures|__fixtures__|testdata|templates?)/")
_SCRIPT = re.compile(r"^[\w./-]+\.(?:py|[cm]?[jt]s|sh)$")
_BUILT = re.compile(
    r"(?:^|/)(?:node_modules|dist\w*|build\w*|lib|out|output|es|cjs|esm|tmp|\.\w+)/"
)
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_HOUSEKEEPING = re.compile(
    r"(?:rimraf|rm|mkdir|mkdirp|cp|mv|cpx|cpy|shx|touch|del-cli|cross-os|echo|exit|kill\w*|sleep|git|opener?|make-dir|ncp|copyfiles|wait-on)\b"
)
_MODULE = re.compile(r"python[\d.]* -m (?P<name>tox|nox|poethepoet|hatch)")
_RUN_MEMBERS = frozenset({"npx", "pnpm", "yarn", "npm", "bun", "nx", "turbo", "lerna"})
_RUN_BY_NPX = frozenset({"nyc", "c8", "cross-env", "cross-env-shell"})
_TASK_LISTS = frozenset({"npm-run-all", "npm-run-all2", "run-s", "run-p", "concurrently", "conc"})
_DELEGATES = re.compile(
    r"(?:^|\s)(?:tox|nox|hatch|poe|just|docker(?:-compose)?|npm|yarn|pnpm|invoke)\b"
)
_INSTALLS = re.compile(
    r"\b(?:pip3? install|(?:npm|pnpm|yarn) (?:ci|install|i)\b|(?:poetry|pdm|pipenv) (?:install|sync)"
    r"|uv (?:sync|pip|venv)|python3? -m venv|virtualenv|curl|wget|apt-get)"
)
_VALUED_UV = frozenset(
    {
        *(
            "--python",
            "-p",
            "--group",
            "--extra",
            "--with",
            "--with-requirements",
            "--with-editable",
            "--directory",
        ),
        *(
            "--project",
            "--env-file",
            "--only-group",
            "--no-group",
            "--package",
            "--index-url",
            "--resolution",
            "-C",
        ),
        *(
            "--index",
            "--config-file",
            "--cache-dir",
            "--from",
            "--exclude-newer",
            "-P",
            "--spec",
            "--constraints",
        ),
    }
)
_VALUED_NYC = frozenset(
    {
        *(
            "-r",
            "--reporter",
            "-x",
            "--exclude",
            "-n",
            "--include",
            "-e",
            "--extension",
            "--report-dir",
            "-o",
        ),
        *(
            "--temp-dir",
            "-t",
            "--cwd",
            "--src",
            "--nycrc-path",
            "--branches",
            "--functions",
            "--lines",
            "--statements",
        ),
        *("--reports-dir", "--temp-directory", "-i", "--require", "--watermarks", "-c", "--config"),
    }
)


def _piece(command: ShellCommand, place: Place, kind: CommandKind | None) -> Piece:
    line = place.prefix + command.text.replace("\x01", "{").replace("\x02", "}")
    line = line.strip()
    runtime = runtime_of(line) or ("node" if "package.json" in "".join(place.chain[-1:]) else "")
    return Piece(line, place.folder, dict(place.env), kind, place.chain, runtime)


def _settled(pieces: list[Piece]) -> list[Piece]:
    """Return a task's pieces. One that only the task's name makes a test prepares those that are known to
    test and come later; behind them it is a test too: the task fails for it."""
    known = [
        place
        for place, piece in enumerate(pieces)
        if piece.kind is CommandKind.TESTS and not piece.is_guessed
    ]
    if not known:
        return pieces
    return [
        replace(piece, kind=None if place < known[0] else piece.kind, is_guessed=False)
        if piece.is_guessed
        else piece
        for place, piece in enumerate(pieces)
    ]


def _exported(command: ShellCommand, place: Place) -> Place:
    """Return the place after an assignment: literal values in its variables, others before each line."""
    env, prefix = dict(place.env), place.prefix
    for word in command.words:
        name, equals, value = word.partition("=")
        if not equals or not re.fullmatch(r"[A-Za-z_]\w*", name):
            continue
        if not re.search(r"[$`]", value):
            env[name] = value
        elif not re.search(r"`|\$\((?!pwd\))", value):
            prefix += f'export {name}="{value}" && '
    return replace(place, env=env, prefix=prefix)


def _without_assignments(command: ShellCommand) -> tuple[ShellCommand, dict[str, str], str]:
    """Return a command without assignments before it, the literal ones, and the text of others."""
    env, kept, at = {}, "", 0
    words = command.words
    if words and program(words[0]) in ("env", "cross-env", "cross-env-shell"):
        at = _after_options(words, 1, frozenset({"-u"}))
    while at < len(words) and _ASSIGNMENT.match(words[at]):
        name, _, value = words[at].partition("=")
        if re.search(r"[$`]", value):
            end = command.starts[at + 1] if at + 1 < len(words) else len(command.text)
            kept += command.text[command.starts[at] : end].strip() + " "
        else:
            env[name] = value
        at += 1
    return (command.without(at) if at else command), env, kept


def _after_options(words: Sequence[str], at: int, valued: frozenset[str]) -> int:
    """Return the index of the first word that is neither an option nor an option's value."""
    while at < len(words) and words[at].startswith("-"):
        if words[at] == "--":
            return at + 1
        at += 2 if words[at] in valued else 1
    return at


def _option_values(
    words: Sequence[str], names: Sequence[str], *, is_list: bool = False
) -> list[str]:
    """Return the values of an option, in each way in which it can be written."""
    found, at = [], 0
    while at < len(words):
        word = words[at]
        at += 1
        if word in names:
            while at < len(words) and not words[at].startswith("-"):
                found.append(words[at])
                at += 1
                if not is_list:
                    break
        else:
            for name in names:
                if name.startswith("--") and word.startswith(f"{name}="):
                    found.append(word[len(name) + 1 :])
                elif (
                    not name.startswith("--")
                    and word.startswith(name)
                    and len(word) > len(name)
                    and not word.startswith("--")
                ):
                    found.append(word[len(name) :].removeprefix("="))
    return found


def _in_option(words: Sequence[str], place: Place, names: Sequence[str]) -> Place:
    values = _option_values(words, [name for name in names if name.startswith("--")])
    folder = joined(place.folder, values[0], place.folder) if values else place.folder
    return place if folder is None else replace(place, folder=folder)


def _shell_script(words: Sequence[str]) -> str | None:
    """Return what ``bash -c`` runs."""
    if program(words[0]) in ("bash", "sh") and len(words) > 2:
        for at, word in enumerate(words[1:-1], 1):
            if re.fullmatch(r"-[a-z]*c", word):
                return words[at + 1]
    return None


def _only(pieces: Sequence[Piece], place: Place) -> tuple[ShellCommand, Place] | None:
    """Return the one test, or the first piece, of a shell's script as a command."""
    chosen = next((one for one in pieces if one.kind is CommandKind.TESTS), pieces[0])
    return simple(chosen.line), replace(
        place, folder=chosen.folder, env=chosen.env, depth=place.depth + 1
    )


def _measured(words: Sequence[str]) -> tuple[int, str] | None:
    """Return how many words of ``coverage run …`` are replaced, and by what; None: it isn't that."""
    at, python = 0, "python"
    if re.fullmatch(r"python[\d.]*", program(words[0])):
        at = 1
        while at < len(words) and words[at].startswith("-") and words[at] != "-m":
            at += 2 if words[at] in ("-W", "-X") else 1
        if words[at : at + 1] != ("-m",):
            return None
        python = quoted(words[:at])
        at += 1
    if program(words[at] if at < len(words) else "") not in ("coverage", "coverage3"):
        return None
    if words[at + 1 : at + 2] != ("run",):
        return None
    at += 2
    valued = frozenset(
        {
            "--source",
            "--debug",
            "--omit",
            "--include",
            "--rcfile",
            "--context",
            "--data-file",
            "--concurrency",
            "--source-pkgs",
        }
    )
    while at < len(words) and words[at].startswith(("-", "$")):
        if words[at] in ("-m", "--module"):
            return at, python
        at += 2 if words[at] in valued else 1
    return (at, python) if at < len(words) else None


def _bare(words: tuple[str, ...]) -> tuple[str, ...]:
    """Return words without what starts a program that is installed locally."""
    if words and program(words[0]) in ("npx", "bunx", "pnpx"):
        at = _after_options(words, 1, frozenset({"-p", "--package", "-c"}))
        rest = words[at:]
        return (re.sub(r"(?<=.)@[\w.^~-]+$", "", rest[0]), *rest[1:]) if rest else words
    return words


#: Filters by what changed since a commit, and what takes their place.
_SINCE = (
    (re.compile(r"(?:--filter|-F)[= ](?:\"[^\"]*\[[^\"]*\"|'[^']*\[[^']*'|\S*\[\S*)"), "-r"),
    (re.compile(r"\bnx affected\b"), "nx run-many"),
    (re.compile(r"(?<=\s)--(?:affected\b|since(?:[= ][^-\s]\S*)?)\s*|(?<=\s)--base[= ]\S+\s*"), ""),
)


def _for_all(command: ShellCommand) -> ShellCommand:
    """Return a monorepo's command without filters by what changed: it then runs in all members."""
    if program(command.words[0] if command.words else "") not in _RUN_MEMBERS:
        return command
    text = command.text
    for pattern, by in _SINCE:
        text = pattern.sub("" if by == "-r" and "turbo" in text else by, text)
    return simple(text.strip()) if text != command.text else command


@dataclass(frozen=True)
class _NpmCall:
    script: str
    arguments: str
    folder: str
    members: tuple[str, ...]
    is_everywhere: bool
    is_binary: bool


def _npm_call(command: ShellCommand) -> _NpmCall | None:
    """Return what a client's command runs; None: nothing of the project's."""
    words, client = command.words, program(command.words[0])
    folder, members, everywhere, verb, at = "", [], False, "", 1
    while at < len(words):
        word = words[at]
        name, equals, value = word.partition("=")
        if word in _IN_FOLDER or (equals and name in _IN_FOLDER):
            at += 0 if equals else 1
            folder = value if equals else "".join(words[at : at + 1])
        elif name in ("--filter", "-F", "--workspace", "--scope", "--filter-prod") or (
            name == "-w" and client == "npm"
        ):
            at += 0 if equals else 1
            members.append(value if equals else "".join(words[at : at + 1]))
        elif word in ("-r", "--recursive", "--workspaces", "-ws", "--ws"):
            everywhere = True
        elif word.startswith("-"):
            at += word in _VALUED_NPM
        elif not verb and word in ("run", "run-script", "rum", "urn"):
            verb = "run"
        elif word == "workspace" and client in ("yarn", "jlpm") and not verb:
            at += 1
            members.append("".join(words[at : at + 1]))
        elif word == "workspaces" and client in ("yarn", "jlpm") and not verb:
            everywhere = True
        elif word == "foreach" and everywhere:
            pass
        elif word in ("exec", "x", "dlx") and not verb:
            verb = "exec"
        else:
            break
        at += 1
    if at >= len(words) or (client == "bun" and not verb and words[at] == "test"):
        return None
    script = words[at]
    if client == "npm" and not verb:
        if script not in ("test", "t", "tst"):
            return None
        script = "test"
    if not verb and script in _CLIENT_VERBS:
        return None
    later = words[at + 1 :]
    if client == "npm" and verb != "exec":
        for one, other in zip(later, (*later[1:], ""), strict=False):
            name, equals, value = one.partition("=")
            if one == "--":
                break
            if name in ("-w", "--workspace"):
                members.append(value if equals else other)
            elif name == "--prefix":
                folder = value if equals else other
            everywhere |= one in ("--workspaces", "-ws")
    arguments = _behind(command, at + 1)
    if "--" in later:
        arguments = _behind(command, at + 2 + later.index("--"))
    elif client == "npm" and verb != "exec":
        arguments = re.sub(
            r"(?:^|\s)(?:-w|--workspace|--prefix)(?:[= ]\S+)|(?:^|\s)-\S+", "", arguments
        ).strip()
    is_binary = verb == "exec" or client != "npm"
    return _NpmCall(script, arguments, folder, tuple(filter(None, members)), everywhere, is_binary)


_IN_FOLDER = frozenset({"--prefix", "-C", "--dir", "--cwd"})
_VALUED_NPM = frozenset(
    {"--loglevel", "--workspace-concurrency", "-j", "--jobs", "--include", "--exclude", "--from"}
)
_CLIENT_VERBS = frozenset(
    """
    add audit cache changeset ci config constraints create dedupe deploy fetch global help i import info
    init install link list login ls node outdated pack patch plugin policies prune publish rebuild
    remove set store up update upgrade version whoami why
    """.split()  # noqa: SIM905 (one name per string would be ten times as long)
)


def _behind(command: ShellCommand, count: int) -> str:
    """Return the text after so many words."""
    return command.text[command.starts[count] :] if count < len(command.starts) else ""


def _without_dashes(line: str) -> str:
    """Return a line without the marks by which tox and hatch let a failure pass."""
    return re.sub(r"^\s*[-!]\s+", "", line)


def _lineage(table: Mapping[str, Any], env: str) -> list[str]:
    """Return a hatch environment and its templates, the outermost first."""
    chain = [env]
    while len(chain) < 10:
        one = _mapping(table.get(chain[0]))
        template = one.get("template", "default")
        if (
            one.get("detached") in (True, "true")
            or template in chain
            or not isinstance(template, str)
        ):
            break
        chain.insert(0, template)
    return chain


def _hatch_fields(text: str, arguments: str, place: Place) -> str:
    for _ in range(3):
        text = re.sub(r"\{args(?::([^{}]*))?\}", lambda match: arguments or match[1] or "", text)
        text = re.sub(
            r"\{env:(\w+)(?::([^{}]*))?\}",
            lambda match: str(place.env.get(match[1], match[2] or "")),
            text,
        )
        text = re.sub(r"\{root(?::[^{}]*)?\}", ".", text)
    return re.sub(r"\{(?:matrix|verbosity|home)[^{}]*\}", "", text)


def quoted(words: Iterable[Any]) -> str:
    """Return words as a shell reads them. Expansions that are one word stay expansions."""
    return " ".join(
        word if "$" in word and not re.search(r"[\s'\"`;&|<>()]", word) else shlex.quote(word)
        for word in map(str, words)
    )


def joined(base: str, path: str, root: str) -> str | None:
    """Return a folder of the repository by a path from another; None: outside of it, or not literal."""
    path = re.sub(
        r"^(?:\$\{?(?:GITHUB_WORKSPACE|CI_PROJECT_DIR|TRAVIS_BUILD_DIR|PWD)\}?|\$\(pwd\)|~/project|~/repo)",
        ".",
        path,
    )
    if not path or re.search(r"[$`*?\0~]", path) or path.startswith("/") or len(path) > 1000:
        return None
    found = posixpath.normpath(posixpath.join(base or root, path))
    return None if found.startswith("..") else found


def in_folder(folder: str, name: str) -> str:
    """Return a path of the repository."""
    return posixpath.normpath(posixpath.join(folder, name))


def _is_value_of_make(option: str, word: str) -> bool:
    """Is a word of ``make`` the value of the option before it?"""
    valued = option in ("-C", "-f", "-o", "-I", "--directory", "--file", "--makefile")
    return valued or (option in ("-j", "-l") and word.isdigit())


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _dig(value: Any, *keys: str) -> Any:
    for key in keys:
        value = _mapping(value).get(key)
    return value


def _either(table: Mapping[str, Any], *names: str) -> Any:
    return next((table[name] for name in names if table.get(name) is not None), None)


def _parsed_json(text: str) -> Any:
    try:
        return json.loads(text) if text else {}
    except (ValueError, RecursionError):
        return {}


def _parsed_toml(text: str) -> Any:
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError):
        return {}


def _parsed_ini(text: str) -> configparser.RawConfigParser:
    parser = configparser.RawConfigParser(strict=False, allow_no_value=True)
    try:
        parser.read_string(text)
    except (
        configparser.Error,
        ValueError,
        AttributeError,
    ):  # a line that continues a key without a value
        return configparser.RawConfigParser()
    return parser
