"""Scripts and tasks, read and never run: what a command that starts a task comes down to.

``npm test``, ``tox -e py``, ``nox -s tests``, ``hatch run cov``, ``poe test``, ``just test`` and their like
become the commands that they would run; wrappers such as ``uv run`` and ``coverage run`` are taken off.
A task is lines of script in a folder with variables. Lines become commands, and commands that start tasks
become those tasks' lines, until nothing starts another. ``make`` stays as it is, unless its recipe installs
something or only calls another runner.
"""

import fnmatch
import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, pairwise, takewhile
from typing import Any

from fallback_plugins.shared.gates import shell_commands as shell
from fallback_plugins.shared.gates import task_files
from fallback_plugins.shared.gates.expressions import dig, items, mapping, texts
from fallback_plugins.shared.gates.shell_commands import (
    CommandKind,
    ShellCommand,
    program,
    task_kind,
)
from fallback_plugins.shared.gates.task_files import Files, Task, Tox, in_folder, joined, quoted
from fallback_tier.repo import RepoContext

MAX_DEPTH = (
    8  # tasks that call tasks: real chains have up to five (CI, make, tox, coverage, pytest)
)
#: Scripts, commands and tasks that are looked at for a folder: those of a large monorepo's CI are about
#: 2,000. Tasks that call each other would otherwise double at each step.
MAX_LOOKED_AT = 10_000
MAX_MEMBERS = 500  # manifests whose names are read to find a member of a monorepo
MAX_TOX_ENVS_READ = 40  # environments that one command runs
MAX_OTHER_SUITES = (
    2  # scripts beside ``test``: each costs a run at the base commit if none before serves
)

TESTS, TYPES, LINT, BUILD = CommandKind


@dataclass(frozen=True)
class Piece:
    """One command that a script comes down to. ``kind`` None: not a check, but it prepares something.
    ``is_guessed``: nothing but the task's name says that it tests."""

    line: str
    folder: str
    env: Mapping[str, str]
    kind: CommandKind | None
    chain: tuple[str, ...] = ()
    runtime: str = ""
    is_guessed: bool = False


@dataclass(frozen=True)
class Place:
    """What a script runs in. ``hint``: what the task that has it is for; None: not known. ``prefix``: what
    comes before each line in its own shell: variables that aren't literal."""

    folder: str
    env: Mapping[str, str] = field(default_factory=dict)
    chain: tuple[str, ...] = ()
    hint: CommandKind | None = None
    depth: int = 0
    prefix: str = ""

    def inside(self, source: str, hint: CommandKind | None, **changes: Any) -> "Place":
        """Return the place of a task that a command here starts."""
        chain = (
            (*self.chain, source) if source and source != "".join(self.chain[-1:]) else self.chain
        )
        return replace(self, chain=chain, hint=hint, depth=self.depth + 1, **changes)


# fmt: off
#: What starts a command and isn't shown by it, and the options of all of them whose value is the next word.
_WRAPPERS = shell.words_of("""
    time nice ionice nohup exec command travis_retry retry winpty stdbuf timeout env cross-env
    cross-env-shell xvfb-run dbus-run-session nyc c8""")
_RUN_IN_ENVIRONMENT = shell.words_of("uv poetry pipenv rye pdm conda mamba micromamba")
_VALUED = shell.words_of("""
    -n -c -k -s -u -e -p -P -C -r -x -o -t -i --server-args --name --prefix --python --group --extra
    --with --with-requirements --with-editable --directory --project --env-file --only-group --no-group
    --package --index --resolution --config-file --config --from --exclude-newer --spec --constraints
    --reporter --exclude --include --extension --report-dir --reports-dir --temp-dir --cwd --src
    --branches --functions --lines --statements""")
_VALUED_COVERAGE = shell.words_of("--source --debug --omit --include --rcfile --context --data-file")
_VALUED_NPM = shell.words_of("--loglevel --workspace-concurrency -j --jobs --include --exclude --from")
_TASK_LISTS = shell.words_of("npm-run-all npm-run-all2 run-s run-p concurrently conc")
_MEMBER_RUNNERS = shell.NPM_CLIENTS | shell.words_of("npx nx turbo lerna")
#: Runners whose task is often named by a variable of CI.
_READS_NAMES = shell.NPM_CLIENTS | shell.words_of("tox nox hatch poe pdm pipenv uv uvx poetry python make")
#: Where a runner has its tasks.
_TABLES = {
    "poe": ("pyproject.toml", "tool", "poe", "tasks"), "pdm": ("pyproject.toml", "tool", "pdm", "scripts"),
    "pipenv": ("Pipfile", "scripts"),
}
_RECIPES = {
    "make": (task_files.make_targets, "GNUmakefile", "makefile", "Makefile"),
    "just": (task_files.just_recipes, "justfile", "Justfile", ".justfile"),
}
_WRITES_NOTHING = re.compile(r'"noEmit"\s*:\s*true')
_SHELL = re.compile(r"(?s)(?:\S*/)?(?:ba)?sh\0(?:-\w+\0)*?-\w*c\0([^\0]*).*")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_ASIDE = re.compile(r"(?:^|/)(?:node_modules|fixtures|__fixtures__|testdata|templates?)/")
_BUILT = re.compile(r"(?:^|/)(?:node_modules|dist\w*|build\w*|lib|out|output|es|cjs|esm|tmp|\.\w+)/")
_HOUSEKEEPING = re.compile(
    r"(?:rimraf|rm|mkdirp?|cp|mv|cpx|cpy|shx|touch|del-cli|echo|exit|kill\w*|sleep|git|make-dir|ncp|copyfiles"
    r"|wait-on)\b")
_DELEGATES = re.compile(r"(?:^|\s)(?:tox|nox|hatch|poe|just|docker(?:-compose)?|npm|yarn|pnpm|invoke)\b")
_INSTALLS = re.compile(
    r"\b(?:pip3? install|(?:npm|pnpm|yarn) (?:ci|install|i)\b|(?:poetry|pdm|pipenv) (?:install|sync)"
    r"|uv (?:sync|pip|venv)|python3? -m venv|virtualenv|curl|wget|apt-get)")
#: Filters by what changed since a commit, and what takes their place: the command then runs in all members.
_SINCE = (
    (re.compile(r"(?:--filter|-F)[= ](?:\"[^\"]*\[[^\"]*\"|'[^']*\[[^']*'|\S*\[\S*)"), "-r"),
    (re.compile(r"\bnx affected\b"), "nx run-many"),
    (re.compile(r"(?<=\s)--(?:affected\b|since(?:[= ][^-\s]\S*)?)\s*|(?<=\s)--base[= ]\S+\s*"), ""),
)
_BEST_NAMES = re.compile(
    r"(?:run[-_:]?)?(?:tests?|unit|unit[-_]?tests?|tests?[-_:](?:unit|all|ci|run|node|py|python|fast)|pytest|jest"
    r"|vitest|mocha|check)")
_OTHER_NAMES = re.compile(
    r"watch|debug|update|e2e|ui$|open|dev|browser|report|lint|type|docs?|clean|cov|perf|bench|build|deps|docker"
    r"|install|live|smoke|integration|setup|publish|deploy|serve|inspect|only")
_VARIANTS = re.compile(
    r"watch|debug|update|ui$|open|dev|report|cov|perf|bench|inspect|serve|only|browser|live|docker")
# fmt: on


class Tasks:
    """What the tasks of a repository come down to. What can't be read has no tasks."""

    def __init__(self, repo: RepoContext) -> None:
        self.files, self._repo, self._looked_at = Files(repo), repo, 0
        self._members: dict[str, str] | None = None

    def _is_spent(self, place: Place) -> bool:
        """Count one more thing that is looked at. Is it too much, or too deep?"""
        self._looked_at += 1
        return self._looked_at > MAX_LOOKED_AT or place.depth > MAX_DEPTH

    # -- scripts and commands --------------------------------------------------------------------------

    def pieces(self, script: str, place: Place) -> list[Piece]:
        """Return what a script comes down to, in order."""
        found: list[Piece] = []
        back = [place.folder]
        for command in () if self._is_spent(place) else shell.split_script(script):
            words = command.words
            if self._is_spent(place):
                break
            if words[:1] in (("cd",), ("pushd",), ("popd",)):
                to = "-" if words[0] == "popd" else "".join(words[1:2])
                folder = back.pop() if to == "-" and back else joined(place.folder, to)
                if folder is None:
                    break
                back.append(place.folder)
                place = replace(place, folder=folder)
            elif words and (words[0] == "export" or all(map(_ASSIGNMENT.match, words))):
                place = _exported(words, place)
            else:
                pieces = self._command(command, place)
                # In the background, only tests are waited for: the rest are servers.
                found += [it for it in pieces if it.kind is TESTS or not command.is_background]
        return _settled(found)

    def _task(self, task: Task, place: Place) -> list[Piece]:
        """Return what a task's lines come down to. ``place``: inside the task."""
        folder = joined(place.folder, task.folder)
        if self._is_spent(place) or folder is None:
            return []
        inside = replace(place, folder=folder, env={**place.env, **task.env})
        return _settled([it for line in task.lines for it in self.pieces(line, inside)])

    def _command(self, command: ShellCommand, place: Place) -> list[Piece]:
        if not command.words:
            if inner := re.fullmatch(r"\((?!\()(.*)\)", command.text, re.DOTALL):
                return self.pieces(inner[1], place.inside("", place.hint))
            is_test = shell.mentions_runner(command.text) and not shell.needs_outside(command.text)
            return [_piece(command, place, TESTS)] if is_test else []
        if program(command.words[0]) in _READS_NAMES or "$" in command.words[0]:
            text = _expanded(command.text, place.env)  # tox -e $ENV, ${PREFIX}pytest
            command = shell.simple(text)
        command, place = _without_assignments(command, place)
        if not command.words or self._is_spent(place):
            return []
        if script := _SHELL.fullmatch("\0".join(command.words)):
            return self.pieces(script[1], place.inside("", place.hint))
        readers = (self._from_table, self._wrapped, self._npm, self._python_runner, self._recipe)
        found = (read(command, place) for read in (*readers, self._leaf))
        return next(pieces for pieces in found if pieces is not None)

    def _leaf(self, command: ShellCommand, place: Place) -> list[Piece]:
        """Return a command that starts no known task, if it shows or prepares anything."""
        command = _for_all(command)
        text, words = command.text, shell.bare(command.words)
        if not words or shell.needs_outside(text):
            return []
        is_task = place.hint is TESTS and place.depth > 0 and not _HOUSEKEEPING.match(text)
        use, script = shell.use_of(words), shell.script_of(words)
        use = shell.script_kind(script) if use is None and script else use
        is_file = shell.INTERPRETERS.fullmatch(program(words[0])) and "node_modules" not in script
        if script and is_file and place.hint is TESTS and use in (LINT, TYPES):
            use = None  # a script that a test task runs tests, whatever it is called
        if use in (None, TESTS) and (inner := self._shell_file(words, place)) is not None:
            return inner
        if program(words[0]) in ("tsc", "vue-tsc") and use is TYPES:
            use = self._of_compiler(words, place)
        if use is TESTS and place.hint in (LINT, TYPES) and not shell.mentions_runner(text):
            use = place.hint
        is_absent = use is TESTS and not self._is_there(script, place)
        if use == "noise" or (use == "code" and not is_task) or is_absent:
            return []
        if use is TESTS:
            command = _whole(command)
        if isinstance(use, CommandKind):
            return [_piece(command, place, use)]
        if shell.prepares(text):
            return [_piece(command, place, None)]
        if place.hint is BUILD and not _HOUSEKEEPING.match(text):
            return [_piece(command, place, BUILD)]
        # A script of the repository is a test wherever a test task runs it: the task fails for it.
        is_own = bool(script) and (path := joined(place.folder, script)) and self._repo.has(path)
        return [replace(_piece(command, place, TESTS), is_guessed=not is_own)] if is_task else []

    def _shell_file(self, words: tuple[str, ...], place: Place) -> list[Piece] | None:
        """Return what a shell script of the repository comes down to; None: there is no such."""
        is_shell = program(words[0]) in ("bash", "sh")
        words = words[shell.after_options(words, 1) :] if is_shell else words
        is_path = bool(words) and ("/" in words[0] or words[0].endswith(".sh"))
        path = joined(place.folder, words[0]) if is_path else None
        text = self.files.text(path) if path and not self._is_spent(place) else ""
        is_script = re.match(r"#!.*\b(?:ba|da|z)?sh\b", text) or (text and words[0].endswith(".sh"))
        if path is None or not is_script or len(text) > shell.MAX_SCRIPT_CHARS:
            return None
        if shell.needs_outside(text):
            return []
        body = re.sub(r"\"?\$(?:@|\*|\{@\})\"?", lambda _: quoted(words[1:]), text)
        pieces = self.pieces(body, place.inside(path, shell.script_kind(path) or place.hint))
        is_read = _tests(pieces) and not any("\n" in it.line for it in pieces if it.kind is TESTS)
        return pieces if is_read and not re.search(r"\$\{?[1-9]", text) else None

    def _is_there(self, script: str, place: Place) -> bool:
        """Is a script that a command runs tracked, or built? What another step writes is no test."""
        is_file = re.fullmatch(r"[\w./-]+\.(?:py|[cm]?[jt]s|sh)", script)
        path = joined(place.folder, script) if is_file else None
        return path is None or bool(_BUILT.search(path)) or self._repo.has(path)

    def _of_compiler(self, words: Sequence[str], place: Place) -> CommandKind:
        """A compiler that writes what tests then load is a build; one that doesn't checks types."""
        named = _value(words, ("-p", "--project"), "tsconfig.json")
        named = named if named.endswith(".json") else f"{named}/tsconfig.json"
        path = in_folder(place.folder, named)
        is_check = "--noEmit" in words or self.files.parsed(_WRITES_NOTHING.search, path)
        return TYPES if is_check else BUILD

    def _wrapped(self, command: ShellCommand, place: Place) -> list[Piece] | None:
        """Return what a wrapper runs comes down to; None: it isn't one."""
        words, name, at, by = command.words, program(command.words[0]), 0, ""
        run = shell.after_options(words, 1, _VALUED)
        if name in _RUN_IN_ENVIRONMENT and words[run : run + 1] == ("run",):
            at = shell.after_options(words, run + 1, _VALUED)
            folder = _value(words[1:at], ("--directory", "--project"), ".")
            place = replace(place, folder=joined(place.folder, folder) or place.folder)
            by = "python" if words[at:] and words[at].endswith(".py") else ""
        elif name in ("uvx", "pipx"):
            is_run = words[run : run + 1] == ("run",)
            at = shell.after_options(words, run + 1, _VALUED) if is_run else run
            at = at if "".join(words[at : at + 1]).partition("@")[0] in _READS_NAMES else 0
        elif name in _WRAPPERS and shell.use_of(words) != "noise":
            at = run + (name == "timeout")
        else:
            at, by = _measured(words)
        return self._command(command.after(at, by), place) if 0 < at < len(words) else None

    # -- npm, yarn, pnpm, bun --------------------------------------------------------------------------

    def _scripts(self, folder: str) -> Mapping[str, str]:
        scripts = mapping(self.files.json(in_folder(folder, "package.json")).get("scripts"))
        return texts(dict(islice(scripts.items(), task_files.MAX_TASKS)))

    def _npm(self, command: ShellCommand, place: Place) -> list[Piece] | None:
        words, rest = command.words, shell.bare(command.words)
        if rest != words and program(rest[0]) in _TASK_LISTS | shell.NPM_CLIENTS | _WRAPPERS:
            return self._command(command.after(len(words) - len(rest)), place)
        if program(words[0]) in _TASK_LISTS:
            return self._listed(words, place)
        command = _for_all(command)
        call = _npm_call(command) if program(words[0]) in shell.NPM_CLIENTS else None
        if call is None:
            return None
        folders: Sequence[str | None] = [joined(place.folder, call.folder or ".")]
        if call.members:
            folders = self._folders_of(call.members)
        elif call.is_everywhere:
            kind = task_kind(call.script)
            return [_piece(command, place, kind)] if kind else []
        found: list[Piece] = []
        for folder in filter(None, folders):
            there = replace(place, folder=folder)
            if len(folders) > 1 and call.script not in self._scripts(folder):
                continue  # a filter names more members than have the script
            if call.script in self._scripts(folder):
                found += self._script(call.script, call.arguments, there)
            elif call.is_binary and re.search(r"[/.]", call.script):
                found += self._leaf(command, there)
            elif call.is_binary:
                line = f"{call.script} {call.arguments}".strip()
                found += self._command(shell.simple(line), there)
        return found

    def _script(self, name: str, arguments: str, place: Place) -> list[Piece]:
        """Return what a script of package.json comes down to, with those that a client runs around it."""
        scripts, found = self._scripts(place.folder), []
        source = f"{in_folder(place.folder, 'package.json')}, script {name}"
        kind = task_kind(name)
        for part, hint in ((f"pre{name}", BUILD), (name, kind), (f"post{name}", kind)):
            if text := scripts.get(part, ""):
                line = f"{text} {arguments}".strip() if part == name else text
                found += self._task(Task(part, (line,)), place.inside(source, hint))
        return found

    def _listed(self, words: Sequence[str], place: Place) -> list[Piece]:
        """Return what npm-run-all, run-s, run-p and concurrently come down to."""
        found: list[Piece] = []
        for word in (it for it in words[1:] if it.strip() and not it.startswith("-")):
            called = re.sub(r"^(?:npm|yarn|pnpm|bun|node):", "", word)
            inside = place.inside("", place.hint)
            if called == word and program(words[0]) in ("concurrently", "conc"):
                found += self.pieces(word, inside)
                continue
            name, _, arguments = called.partition(" ")
            pattern = re.sub(r"\(!.*\)$", "", name.replace(":**", ":*"))
            for script in self._scripts(place.folder):
                if fnmatch.fnmatchcase(script, pattern) and not self._is_spent(place):
                    found += self._script(script, arguments.removeprefix("-- "), inside)
        return found

    def _folders_of(self, filters: Sequence[str]) -> list[str | None]:
        """Return the folders of members that filters name; those that aren't found are left out."""
        if self._members is None:
            paths = [it for it in self._repo.tracked_files if it.endswith("package.json")]
            paths = [it for it in paths if not _ASIDE.search(it)][:MAX_MEMBERS]
            names = [str(self.files.json(it).get("name")) for it in paths]
            self._members = dict(
                zip([posixpath.dirname(it) or "." for it in paths], names, strict=True)
            )
        found: dict[str | None, None] = {}
        for wanted in (it.strip("./^{}") for it in filters if not re.match(r"!|.*\[", it)):
            for folder, name in self._members.items():
                is_named = fnmatch.fnmatchcase(name, wanted) or name.rpartition("/")[2] == wanted
                found |= {folder: None} if is_named or folder == wanted else {}
        return list(found)

    # -- poe, pdm, Pipenv; tox, nox, hatch -------------------------------------------------------------

    def _table(self, folder: str, file: str, *keys: str) -> dict[str, Any]:
        return mapping(dig(self.files.toml(in_folder(folder, file)), *keys))

    def _from_table(self, command: ShellCommand, place: Place) -> list[Piece] | None:
        """Return what ``poe NAME``, ``pdm run NAME`` and their like come down to; None: no such task."""
        words = command.words[1:] if command.words[:2] == ("poetry", "poe") else command.words
        tool = program(words[0])
        if tool not in _TABLES:
            return None
        at = shell.after_options(words, 2 if words[1:2] == ("run",) else 1, _VALUED)
        table, name = self._table(place.folder, *_TABLES[tool]), "".join(words[at : at + 1])
        if name not in table:
            return [] if tool == "poe" else None
        run = "poe " if tool == "poe" else f"{tool} run "
        inside = place.inside(f"{_TABLES[tool][0]}, {tool} task {name}", task_kind(name))
        return self._tabled(table, words[at:], run, inside)

    def _tabled(
        self, table: Mapping[str, Any], words: Sequence[str], run: str, inside: Place
    ) -> list[Piece]:
        """Return what a task of a table comes down to. ``run``: what starts another one of the table."""
        name, arguments = words[0], quoted(words[1:])

        def lines(part: Any, is_reference: bool) -> Iterator[str]:
            if isinstance(part, str) and part.strip():
                part = re.sub(r"^[-!]\s+", "", part)
                is_task = is_reference and part.split()[0] in table.keys() - {name}
                yield _filled(f"{run}{part}" if is_task else part, arguments, inside.env)
            for it in items(part):
                yield from lines(it, True)
            for key in ("cmd", "shell", "ref", "sequence", "composite", "parallel"):
                if it := mapping(part).get(key):
                    is_text = key in ("cmd", "shell")
                    yield from lines(
                        quoted(items(it)) if is_text and items(it) else it, not is_text
                    )

        found = [*lines(table[name], run.startswith("hatch"))]
        if len(found) == 1 and arguments not in found[0]:
            found = [f"{found[0]} {arguments}"]
        task = mapping(table[name])
        folder = str(task.get("cwd") or task.get("working_dir") or ".")
        return self._task(Task(name, tuple(found), folder, texts(task.get("env"))), inside)

    def _python_runner(self, command: ShellCommand, place: Place) -> list[Piece] | None:
        module = re.match(r"python[\d.]* -m (tox|nox|hatch)(?: |$)", " ".join(command.words[:3]))
        words = command.words[2:] if module else command.words
        run = {"tox": self._tox, "nox": self._nox, "hatch": self._hatch}.get(program(words[0]))
        return run(words[1:], place) if run else None

    def _tox(self, words: tuple[str, ...], place: Place) -> list[Piece]:
        words, posargs = _split_at_dashes(words)
        words = tuple(re.sub(r"^-[qrv]+e$", "-e", word) for word in words)
        tox = self._tox_config(place.folder, *_values(words, ("-c", "--conf"))[:1])
        if tox is None or self._is_spent(place):
            return []
        wanted = _values(words, ("-e", "-m", "--env"))
        wanted = wanted or [str(place.env.get("TOXENV") or place.env.get("TOX_ENV") or "")]
        names = [name for value in wanted for name in task_files.tox_names(value)]
        names = names if names and names != ["ALL"] else task_files.by_preference(tox.names)
        factors = {part for factor in _values(words, ("-f",)) for part in re.split(r"[,-]", factor)}
        names = [name for name in names if factors.issubset(name.split("-"))] or names
        found: list[Piece] = []
        for name in names[:MAX_TOX_ENVS_READ]:
            task = tox.task(name, posargs, place.env)
            is_python = any(map(task_files.PYTHON_FACTOR.fullmatch, name.split("-")))
            hint = task_kind(name) or (TESTS if is_python else None)
            inside = place.inside(f"{in_folder(place.folder, tox.file)} {task.name}", hint)
            folder = task.folder if joined(place.folder, task.folder) else "."  # one of tox's own
            pieces = self._task(replace(task, folder=folder), inside)
            if wanted != [""] or not (_tests(pieces) and _tests(found)):  # one release suffices
                found += pieces
        return found

    def _tox_config(self, folder: str, *named: str) -> Tox | None:
        for file in named or ("tox.ini", "setup.cfg"):
            sections = self.files.parsed(task_files.ini_sections, in_folder(folder, file))
            if sections and (file != "setup.cfg" or "tox:tox" in sections):
                return Tox.of_ini(file, sections)
        for file, *keys in (("pyproject.toml", "tool", "tox"), ("tox.toml",)):
            table = self._table(folder, file, *keys)
            if isinstance(legacy := table.get("legacy_tox_ini"), str):
                return Tox.of_ini(file, task_files.ini_sections(legacy))
            if table:
                return Tox.of_toml(file, table)
        return None

    def _nox(self, words: tuple[str, ...], place: Place) -> list[Piece]:
        words, posargs = _split_at_dashes(words)
        path = in_folder(place.folder, _value(words, ("-f", "--noxfile"), "noxfile.py"))
        sessions = task_files.nox_sessions(self.files.text(path), posargs)
        self._looked_at += sum(map(len, sessions.values()))
        wanted = _values(words, ("-s", "--session", "--sessions", "-e"), is_list=True)
        found: list[Piece] = []
        for name in (re.sub(r"\(.*\)$", "", name) for name in wanted or [""]):
            for run in sessions.get(name) or sessions.get(re.sub(r"-[\w.]+$", "", name), ()):
                inside = place.inside(f"{path}, session {run.name}", task_kind(run.name))
                found += self._task(run, inside)
        return _settled(found)

    def _hatch_envs(self, folder: str) -> tuple[str, dict[str, Any]]:
        own = self._table(folder, "hatch.toml", "envs")
        file = "hatch.toml" if own else "pyproject.toml"
        return file, own or self._table(folder, file, "tool", "hatch", "envs")

    def _hatch(self, words: tuple[str, ...], place: Place) -> list[Piece] | None:
        env = _value(words, ("-e", "--env"), "default")
        at = shell.after_options(words, 0, shell.words_of("-e --env -p --project"))
        verb, rest = words[at : at + 1], words[at + 1 :]
        if words[at : at + 2] == ("env", "run"):
            verb, rest = ("run",), _split_at_dashes(rest)[1]
        if verb == ("test",):
            rest = tuple(it for it in rest if not re.fullmatch(r"-[acpri]|--|--all|--cover", it))
            return self._hatch_script("hatch-test", ("run", *rest), place)
        rest = tuple(it for it in rest if not re.match(r"[+-]\w+=", it))
        rest = rest[shell.after_options(rest, 0) :]
        if verb != ("run",) or not rest:
            return None
        named, colon, script = rest[0].partition(":")
        return self._hatch_script(named if colon else env, (script or named, *rest[1:]), place)

    def _hatch_script(self, env: str, words: Sequence[str], place: Place) -> list[Piece]:
        file, table = self._hatch_envs(place.folder)
        scripts: dict[str, Any] = {}
        variables = dict(place.env)
        for own in _lineage(table, env):
            scripts |= mapping(own.get("scripts"))
            variables |= {
                it: text for it, text in texts(own.get("env-vars")).items() if "{" not in text
            }
        if env == "hatch-test":
            usual = items(mapping(table.get(env)).get("default-args")) or ["tests"]
            scripts.setdefault("run", f"pytest {{args:{quoted(usual)}}}")
        if words[0] not in scripts:
            return self.pieces(quoted(words), place.inside("", place.hint, env=variables))
        source = f"{in_folder(place.folder, file)} [envs.{env}], script {words[0]}"
        inside = place.inside(source, task_kind(words[0]) or task_kind(env), env=variables)
        return self._tabled(scripts, words, f"hatch run {env}:", inside)

    # -- make and just ---------------------------------------------------------------------------------

    def _recipes(self, tool: str, folder: str) -> tuple[str, Mapping[str, list[str]]]:
        read, *names = _RECIPES[tool]
        paths = [in_folder(folder, str(name)) for name in names]
        path = next(filter(self._repo.has, paths), "")
        return path, self.files.parsed(read, path)

    def _recipe(self, command: ShellCommand, place: Place) -> list[Piece] | None:
        words, name = command.words, program(command.words[0])
        if name == "just":
            recipe, given = "".join(words[1:2]), quoted(words[2:])
            path, recipes = self._recipes("just", place.folder)
            put_in = re.compile(r"\{\{\s*\*?\w+\s*\}\}")
            lines = [put_in.sub(lambda _: given, it) for it in recipes.get(recipe, ())]
            inside = place.inside(f"{path}, recipe {recipe}", task_kind(recipe))
            return self._task(Task(recipe, tuple(lines)), inside)
        folder = joined(place.folder, _value(words[1:], ("-C", "--directory"), "."))
        if name not in ("make", "gmake") or folder is None:
            return None if folder else []
        path, recipes = self._recipes("make", folder)
        valued = re.compile(r"-[CfoI]|--directory|--file|--makefile|-[jl](?=\0\d+$)")
        named = [it for before, it in pairwise(words) if not valued.match(f"{before}\0{it}")]
        targets = [it for it in named if not re.match(r"-|\w+=", it)] or [*recipes][:1]
        found: list[Piece] = []
        for target in targets:
            kept = [it for it in words if it == target or it not in targets]
            one = f"{quoted(kept)} {command.rest(len(words))}" if targets[1:] else command.text
            rule = Task(f"{path}, target {target}", tuple(recipes.get(target, ())), folder)
            found += self._target(shell.simple(one.strip()), rule, task_kind(target), place)
        return found

    def _target(
        self, command: ShellCommand, rule: Task, hint: CommandKind | None, place: Place
    ) -> list[Piece]:
        """Return a call of make, or what its lines come down to if they install or only delegate."""
        inside = place.inside(rule.name, hint)
        pieces = self._task(replace(rule, folder="."), replace(inside, folder=rule.folder))
        commands = [it for line in rule.lines for it in shell.split_script(line)[:1]]
        working = [it for it in commands if shell.use_of(it.words) != "noise"]
        working = [it for it in working if not shell.needs_outside(it.text)]
        is_unknown = hint is None or any(map(shell.needs_outside, rule.lines))
        if not commands or (not pieces and is_unknown):
            return []
        delegates = all(_DELEGATES.search(it.text) for it in working)
        delegates = delegates or any(map(_INSTALLS.search, rule.lines))
        if pieces and delegates and not any("$(" in piece.line for piece in pieces):
            return pieces
        kinds = [it for it in CommandKind if any(piece.kind is it for piece in pieces)]
        is_named = not pieces or (hint is TESTS and len(working) > len(pieces))
        made = _piece(command, inside, hint if is_named else next(iter(kinds), None))
        runtimes = [it.runtime for it in pieces if it.kind is made.kind and it.runtime]
        return [replace(made, runtime=next(iter(runtimes), made.runtime))]

    # -- what a folder offers --------------------------------------------------------------------------

    def own(self, folder: str) -> Iterator[list[Piece]]:
        """Yield what each task that tests a folder comes down to: tox, nox, hatch, poe, pdm, make, just,
        package.json, manage.py."""
        place = Place(folder)
        yield self._tox((), place)
        pieces = self._nox((), place)
        named = ("-s", "test", "tests", "unit", "pytest")
        yield pieces if _tests(pieces) else self._nox(named, place)
        envs = self._hatch_envs(folder)[1]
        for env in sorted(envs, key=lambda it: (task_kind(it) is not TESTS, it != "default")):
            for name in _test_names(mapping(mapping(envs[env]).get("scripts"))):
                if task_kind(env) in (None, TESTS):
                    yield self._hatch_script(env, [name], place)
        if "hatch-test" in envs:
            yield self._hatch_script("hatch-test", ["run"], place)
        tables = [(tool, self._table(folder, *keys)) for tool, keys in _TABLES.items()]
        for tool, tasks in (*tables, *((it, self._recipes(it, folder)[1]) for it in _RECIPES)):
            for name in _test_names(tasks):
                run = f"{tool} run {name}" if tool in ("pdm", "pipenv") else f"{tool} {name}"
                yield self._command(shell.simple(run), place)
        scripts = self._scripts(folder)
        for name in (*_test_names(scripts), *_other_suites(scripts)):
            yield self._script(name, "", place)
        if self._repo.has(script := in_folder(folder, "manage.py")):
            command = shell.simple("python manage.py test")
            yield [_piece(command, place.inside(script, TESTS), TESTS)]


def _test_names(tasks: Iterable[str]) -> list[str]:
    """Return the tasks that test by their names, the likeliest first: one that is named plainly, or all."""
    best = [name for name in tasks if _BEST_NAMES.fullmatch(name.lower())]
    best.sort(key=lambda name: (name not in ("test", "tests"), len(name)))
    if best:
        return best[:1] if best[0] in ("test", "tests") else best[:2]
    others = [name for name in tasks if task_kind(name) is TESTS]
    return sorted(others, key=lambda name: bool(_OTHER_NAMES.search(name)))[:3]


def _other_suites(scripts: Iterable[str]) -> list[str]:
    """Return the scripts of suites beside ``test``, which may find no test of its own (new Nest projects
    have a ``test:e2e`` alone); not its variants, which watch, debug or measure."""
    names = [it for it in scripts if re.match(r"tests?[:_-]", it) and task_kind(it) is TESTS]
    return [it for it in names if "test" in scripts and not _VARIANTS.search(it)][:MAX_OTHER_SUITES]


# -- pieces and words --------------------------------------------------------------------------------------


def _piece(command: ShellCommand, place: Place, kind: CommandKind | None) -> Piece:
    line = (place.prefix + command.text.replace("\x01", "{").replace("\x02", "}")).strip()
    is_node = "package.json" in "".join(place.chain[-1:])
    runtime = shell.runtime_of(line) or ("node" if is_node else "")
    return Piece(line, place.folder, dict(place.env), kind, place.chain, runtime)


def _tests(pieces: Iterable[Piece]) -> bool:
    return any(piece.kind is TESTS for piece in pieces)


def _settled(pieces: list[Piece]) -> list[Piece]:
    """Return a task's pieces. One that only the task's name makes a test prepares those that are known to
    test and come later; behind them it is a test too: the task fails for it."""
    known = [at for at, it in enumerate(pieces) if it.kind is TESTS and not it.is_guessed]
    return [
        replace(piece, kind=None if at < known[0] else TESTS, is_guessed=False)
        if piece.is_guessed and known
        else piece
        for at, piece in enumerate(pieces)
    ]


#: Options by which a machine of CI takes its share of the tests, and the one that only such a share has.
_SHARE = re.compile(r"(?<=\s)--(?:shard|splits|shard-id|num-shards)(?:=|\s)\S+ ?")
_GROUP = re.compile(r"(?<=\s)--group(?:=|\s)\S+ ?")


def _whole(command: ShellCommand) -> ShellCommand:
    """Return a test command for all tests, not for one machine's share of them."""
    text = _SHARE.sub("", command.text)
    text = _GROUP.sub("", text) if "--splits" in command.text else text
    return shell.simple(text.strip()) if text != command.text else command


def _expanded(text: str, env: Mapping[str, str]) -> str:
    """Return a text with ``$NAME`` and ``${NAME}`` replaced, of variables that are one plain word."""

    def value(match: re.Match[str]) -> str:
        known = env.get(match[1] or match[2], "\0")
        return known if re.fullmatch(r"[\w.,:/()+-]*", known) else match[0]

    return re.sub(r"\$(?:\{(\w+)\}|(\w+))", value, text)


def _exported(words: Sequence[str], place: Place) -> Place:
    """Return the place after an assignment: literal values in its variables, others before each line."""
    env, prefix = dict(place.env), place.prefix
    for name, equals, value in (word.partition("=") for word in words):
        if equals and not re.search(r"[$`]", value):
            env[name] = value
        elif equals and not re.search(r"`|\$\((?!pwd\))", value):
            prefix += f'export {name}="{value}" && '
    return replace(place, env=env, prefix=prefix)


def _without_assignments(command: ShellCommand, place: Place) -> tuple[ShellCommand, Place]:
    """Return a command without assignments before it, and the place with them."""
    words, at, env, prefix = command.words, 0, dict(place.env), place.prefix
    if program(words[0]) in ("env", "cross-env", "cross-env-shell"):
        at = shell.after_options(words, 1, frozenset(("-u",)))
    for name, _, value in (
        word.partition("=") for word in takewhile(_ASSIGNMENT.match, words[at:])
    ):
        if re.search(r"[$`]", value):
            text = command.text[: command.ends[at]]
            prefix += text[command.ends[at - 1] if at else 0 :].strip() + " "
        else:
            env[name] = value
        at += 1
    rest = command.after(at) if at < len(words) else ShellCommand("")
    return rest, replace(place, env=env, prefix=prefix)


def _measured(words: tuple[str, ...]) -> tuple[int, str]:
    """Return how many words of ``coverage run …`` are replaced, and by what; 0: it isn't that."""
    at, python = 0, "python"
    if re.fullmatch(r"python[\d.]*", program(words[0])) and "-m" in words:
        at, python = words.index("-m") + 1, quoted(words[: words.index("-m")])
    if program("".join(words[at : at + 1])) != "coverage" or words[at + 1 : at + 2] != ("run",):
        return 0, ""
    at += 2
    while at < len(words) and words[at].startswith(("-", "$")) and words[at] != "-m":
        at += 2 if words[at] in _VALUED_COVERAGE else 1
    return at, python


def _for_all(command: ShellCommand) -> ShellCommand:
    """Return a monorepo's command without filters by what changed: it then runs in all members."""
    text = command.text
    is_for_members = program("".join(command.words[:1])) in _MEMBER_RUNNERS
    for pattern, by in _SINCE if is_for_members else ():
        text = pattern.sub("" if by == "-r" and "turbo" in text else by, text)
    return shell.simple(text.strip()) if text != command.text else command


@dataclass
class _NpmCall:
    """What a client of npm runs: a script, or a program that is installed."""

    script: str = ""
    arguments: str = ""
    folder: str = ""
    members: list[str] = field(default_factory=list)
    is_everywhere: bool = False
    is_binary: bool = False


def _npm_call(command: ShellCommand) -> _NpmCall | None:
    """Return what a client's command runs; None: nothing of the project's."""
    words, client, call = command.words, program(command.words[0]), _NpmCall()
    verb, at, extra = "", 1, list[str]()
    while at < len(words):
        word, at = words[at], at + 1
        name, equals, value = word.partition("=")
        is_of_yarn = client == "yarn" and not verb
        is_folder = name in ("--prefix", "-C", "--dir", "--cwd")
        is_member = name in ("--filter", "-F", "--workspace", "--scope")
        is_member |= (name == "-w" and client == "npm") or (word == "workspace" and is_of_yarn)
        if (is_member or is_folder) and not equals:
            value, at = "".join(words[at : at + 1]), at + 1
        if is_folder:
            call.folder = value
        elif is_member:
            call.members.append(value)
        elif word in (
            "-r",
            "--recursive",
            "--workspaces",
            "-ws",
            "workspaces" if is_of_yarn else "-r",
        ):
            call.is_everywhere = True
        elif word == "--" and call.script:
            break
        elif word.startswith("-"):
            at += word in _VALUED_NPM
        elif call.script:
            extra.append(word)
        elif word in ("run", "run-script", "exec", "x", "dlx") and not verb:
            verb = "run" if word.startswith("run") else "exec"
        elif not (word == "foreach" and call.is_everywhere):
            call.script = word
            if client != "npm" or verb == "exec":
                break
    if client == "npm" and not verb:
        call.script = "test" if call.script in ("test", "t", "tst") else ""
    is_own = not verb and (
        call.script in shell.CLIENT_VERBS or (client, call.script) == ("bun", "test")
    )
    rest = command.rest(at) if at < len(words) else ""  # without "|| true" behind a bare call
    call.arguments = f"{quoted(extra)} {re.sub(r'^-- ', '', rest)}".strip()
    call.is_binary = verb == "exec" or client != "npm"
    return call if call.script and not is_own else None


def _split_at_dashes(words: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    at = words.index("--") if "--" in words else len(words)
    return words[:at], words[at + 1 :]


def _value(words: Sequence[str], names: Sequence[str], usual: str) -> str:
    return next(iter(_values(words, names)), usual)


def _values(words: Sequence[str], names: Sequence[str], *, is_list: bool = False) -> list[str]:
    """Return an option's values: ``-e a``, ``-ea``, ``--env a``, ``--env=a``; of a list all that follow."""
    found: list[str] = []
    is_open = False
    for word in words:
        if is_open and not word.startswith("-"):
            found.append(word)
            is_open = is_list
            continue
        is_open = word in names
        for name in names if not is_open else ():
            is_long = name.startswith("--")
            if word.startswith(name + "=" * is_long) and word.startswith("--") is is_long:
                found.append(word.removeprefix(name).removeprefix("="))
    return found


def _filled(text: str, arguments: str, env: Mapping[str, str]) -> str:
    """Return a line of hatch or pdm with ``{args:usual}``, ``{env:NAME:usual}`` and the like replaced."""
    text = re.sub(r"\{args(?::([^{}]*))?\}", lambda match: arguments or match[1] or "", text)
    known = re.compile(r"\{env:(\w+)(?::([^{}]*))?\}")
    text = known.sub(lambda match: env.get(match[1], match[2] or ""), text)
    return re.sub(r"\{(?:matrix|verbosity|home)[^{}]*\}", "", re.sub(r"\{root[^{}]*\}", ".", text))


def _lineage(table: Mapping[str, Any], env: str) -> list[dict[str, Any]]:
    """Return a hatch environment and its templates, the outermost first."""
    chain = [env]
    while len(chain) < 10 and not dig(table, chain[0], "detached"):
        chain.insert(0, str(dig(table, chain[0], "template") or "default"))
    return [mapping(table.get(it)) for it in chain]
