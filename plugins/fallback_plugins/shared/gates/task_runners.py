"""Reader of scripts and tasks: resolves a command that starts a task to the commands that the task runs.

Nothing is run. ``npm test``, ``tox -e py``, ``nox -s tests``, ``hatch run cov``, ``poe test``, ``just
test`` and similar commands are replaced by the commands that they would run; wrappers such as ``uv
run`` and ``coverage run`` are removed. A task is lines of script in a folder with variables. Lines are
split into commands, and commands that start tasks are replaced by those tasks' lines, until none starts
another. ``make`` stays as it is, unless its recipe installs something or only calls another runner.
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
#: Scripts, commands and tasks that are read for a folder: the CI of a large monorepo has about 2,000.
#: Without a limit, tasks that call each other would double at each step.
MAX_LOOKED_AT = 10_000
MAX_MEMBERS = 500  # manifests whose names are read to find a member of a monorepo
MAX_TOX_ENVS_READ = 40  # environments that one command runs
MAX_OTHER_SUITES = (
    2  # scripts next to ``test``: each costs a run at the base commit if no earlier one serves
)

TESTS, TYPES, LINT, BUILD = CommandKind


@dataclass(frozen=True)
class Piece:
    """One command that a script runs. ``kind``: None for a command that is not a check but prepares
    something. ``is_guessed``: only the task's name says that the command tests."""

    line: str
    folder: str
    env: Mapping[str, str]
    kind: CommandKind | None
    chain: tuple[str, ...] = ()
    runtime: str = ""
    is_guessed: bool = False


@dataclass(frozen=True)
class Place:
    """The state in which a script's lines run. ``hint``: the purpose of the task that has the script;
    None if unknown. ``prefix``: shell text before each line, for variables whose values aren't
    literal."""

    folder: str
    env: Mapping[str, str] = field(default_factory=dict)
    chain: tuple[str, ...] = ()
    hint: CommandKind | None = None
    depth: int = 0
    prefix: str = ""

    def inside(self, source: str, hint: CommandKind | None, **changes: Any) -> "Place":
        """Return the place of a task that a command in this place starts."""
        chain = (
            (*self.chain, source) if source and source != "".join(self.chain[-1:]) else self.chain
        )
        return replace(self, chain=chain, hint=hint, depth=self.depth + 1, **changes)


# fmt: off
#: Programs that start another command, and the options of all of them that take the next word as their
#: value.
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
#: Path and keys of the table in which a runner has its tasks.
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
#: Filters by what changed since a commit, and their replacements: the command then runs in all members.
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
    """The commands that a repository's tasks run. A file that can't be read has no tasks."""

    def __init__(self, repo: RepoContext) -> None:
        self.files, self._repo, self._looked_at = Files(repo), repo, 0
        self._members: dict[str, str] | None = None

    def _is_spent(self, place: Place) -> bool:
        """Count one more script, command or task. Return whether a limit of number or depth is exceeded."""
        self._looked_at += 1
        return self._looked_at > MAX_LOOKED_AT or place.depth > MAX_DEPTH

    # -- scripts and commands --------------------------------------------------------------------------

    def pieces(self, script: str, place: Place) -> list[Piece]:
        """Return the commands that a script runs, in order."""
        pieces: list[Piece] = []
        previous_folders = [place.folder]
        for command in () if self._is_spent(place) else shell.split_script(script):
            words = command.words
            if self._is_spent(place):
                break
            if words[:1] in (("cd",), ("pushd",), ("popd",)):
                target = "-" if words[0] == "popd" else "".join(words[1:2])
                folder = (
                    previous_folders.pop()
                    if target == "-" and previous_folders
                    else joined(place.folder, target)
                )
                if folder is None:
                    break
                previous_folders.append(place.folder)
                place = replace(place, folder=folder)
            elif words and (words[0] == "export" or all(map(_ASSIGNMENT.match, words))):
                place = _exported(words, place)
            else:
                command_pieces = self._command(command, place)
                # Keep only the tests of a background command: the others are servers.
                pieces += [
                    piece
                    for piece in command_pieces
                    if piece.kind is TESTS or not command.is_background
                ]
        return _settled(pieces)

    def _task(self, task: Task, place: Place) -> list[Piece]:
        """Return the commands that a task's lines run. ``place``: inside the task."""
        folder = joined(place.folder, task.folder)
        if self._is_spent(place) or folder is None:
            return []
        inside = replace(place, folder=folder, env={**place.env, **task.env})
        return _settled([piece for line in task.lines for piece in self.pieces(line, inside)])

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
        results = (read(command, place) for read in (*readers, self._leaf))
        return next(pieces for pieces in results if pieces is not None)

    def _leaf(self, command: ShellCommand, place: Place) -> list[Piece]:
        """Return a command that starts no known task, if it checks or prepares anything."""
        command = _for_all(command)
        text, words = command.text, shell.bare(command.words)
        if not words or shell.needs_outside(text):
            return []
        is_task = place.hint is TESTS and place.depth > 0 and not _HOUSEKEEPING.match(text)
        use, script = shell.use_of(words), shell.script_of(words)
        use = shell.script_kind(script) if use is None and script else use
        is_file = shell.INTERPRETERS.fullmatch(program(words[0])) and "node_modules" not in script
        if script and is_file and place.hint is TESTS and use in (LINT, TYPES):
            use = None  # a script that a test task runs tests, whatever its name
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
        # A script of the repository that a test task runs is a test: the task fails if the script does.
        is_own = bool(script) and (path := joined(place.folder, script)) and self._repo.has(path)
        return [replace(_piece(command, place, TESTS), is_guessed=not is_own)] if is_task else []

    def _shell_file(self, words: tuple[str, ...], place: Place) -> list[Piece] | None:
        """Return the commands of the shell script that a command runs; None if it runs none, or if the
        script can't be reduced to commands that test."""
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
        is_read = _tests(pieces) and not any(
            "\n" in piece.line for piece in pieces if piece.kind is TESTS
        )
        return pieces if is_read and not re.search(r"\$\{?[1-9]", text) else None

    def _is_there(self, script: str, place: Place) -> bool:
        """Return whether a command's script is tracked or built. A script that another step writes is
        not a test."""
        is_file = re.fullmatch(r"[\w./-]+\.(?:py|[cm]?[jt]s|sh)", script)
        path = joined(place.folder, script) if is_file else None
        return path is None or bool(_BUILT.search(path)) or self._repo.has(path)

    def _of_compiler(self, words: Sequence[str], place: Place) -> CommandKind:
        """Return BUILD for a compiler that writes what tests then load, TYPES for one that only checks
        types."""
        config = _value(words, ("-p", "--project"), "tsconfig.json")
        config = config if config.endswith(".json") else f"{config}/tsconfig.json"
        path = in_folder(place.folder, config)
        is_check = "--noEmit" in words or self.files.parsed(_WRITES_NOTHING.search, path)
        return TYPES if is_check else BUILD

    def _wrapped(self, command: ShellCommand, place: Place) -> list[Piece] | None:
        """Return the commands that a wrapper runs; None if the command isn't a wrapper."""
        words, name, at, replacement = command.words, program(command.words[0]), 0, ""
        run = shell.after_options(words, 1, _VALUED)
        if name in _RUN_IN_ENVIRONMENT and words[run : run + 1] == ("run",):
            at = shell.after_options(words, run + 1, _VALUED)
            folder = _value(words[1:at], ("--directory", "--project"), ".")
            place = replace(place, folder=joined(place.folder, folder) or place.folder)
            replacement = "python" if words[at:] and words[at].endswith(".py") else ""
        elif name in ("uvx", "pipx"):
            is_run = words[run : run + 1] == ("run",)
            at = shell.after_options(words, run + 1, _VALUED) if is_run else run
            at = at if "".join(words[at : at + 1]).partition("@")[0] in _READS_NAMES else 0
        elif name in _WRAPPERS and shell.use_of(words) != "noise":
            at = run + (name == "timeout")
        else:
            at, replacement = _measured(words)
        return self._command(command.after(at, replacement), place) if 0 < at < len(words) else None

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
        pieces: list[Piece] = []
        for folder in filter(None, folders):
            member_place = replace(place, folder=folder)
            if len(folders) > 1 and call.script not in self._scripts(folder):
                continue  # a filter names more members than have the script
            if call.script in self._scripts(folder):
                pieces += self._script(call.script, call.arguments, member_place)
            elif call.is_binary and re.search(r"[/.]", call.script):
                pieces += self._leaf(command, member_place)
            elif call.is_binary:
                line = f"{call.script} {call.arguments}".strip()
                pieces += self._command(shell.simple(line), member_place)
        return pieces

    def _script(self, name: str, arguments: str, place: Place) -> list[Piece]:
        """Return the commands of a script of package.json and of those that a client runs before and
        after it."""
        scripts, pieces = self._scripts(place.folder), []
        source = f"{in_folder(place.folder, 'package.json')}, script {name}"
        kind = task_kind(name)
        for script, hint in ((f"pre{name}", BUILD), (name, kind), (f"post{name}", kind)):
            if text := scripts.get(script, ""):
                line = f"{text} {arguments}".strip() if script == name else text
                pieces += self._task(Task(script, (line,)), place.inside(source, hint))
        return pieces

    def _listed(self, words: Sequence[str], place: Place) -> list[Piece]:
        """Return the commands that npm-run-all, run-s, run-p and concurrently run."""
        pieces: list[Piece] = []
        for word in (
            argument for argument in words[1:] if argument.strip() and not argument.startswith("-")
        ):
            call = re.sub(r"^(?:npm|yarn|pnpm|bun|node):", "", word)
            inside = place.inside("", place.hint)
            if call == word and program(words[0]) in ("concurrently", "conc"):
                pieces += self.pieces(word, inside)
                continue
            name, _, arguments = call.partition(" ")
            pattern = re.sub(r"\(!.*\)$", "", name.replace(":**", ":*"))
            for script in self._scripts(place.folder):
                if fnmatch.fnmatchcase(script, pattern) and not self._is_spent(place):
                    pieces += self._script(script, arguments.removeprefix("-- "), inside)
        return pieces

    def _folders_of(self, filters: Sequence[str]) -> list[str | None]:
        """Return the folders of the members that filters name, leaving out filters that match no member."""
        if self._members is None:
            paths = [path for path in self._repo.tracked_files if path.endswith("package.json")]
            paths = [path for path in paths if not _ASIDE.search(path)][:MAX_MEMBERS]
            names = [str(self.files.json(path).get("name")) for path in paths]
            self._members = dict(
                zip([posixpath.dirname(path) or "." for path in paths], names, strict=True)
            )
        folders: dict[str | None, None] = {}
        for wanted in (
            name_filter.strip("./^{}")
            for name_filter in filters
            if not re.match(r"!|.*\[", name_filter)
        ):
            for folder, name in self._members.items():
                is_named = fnmatch.fnmatchcase(name, wanted) or name.rpartition("/")[2] == wanted
                folders |= {folder: None} if is_named or folder == wanted else {}
        return list(folders)

    # -- poe, pdm, Pipenv; tox, nox, hatch -------------------------------------------------------------

    def _table(self, folder: str, file: str, *keys: str) -> dict[str, Any]:
        return mapping(dig(self.files.toml(in_folder(folder, file)), *keys))

    def _from_table(self, command: ShellCommand, place: Place) -> list[Piece] | None:
        """Return the commands that ``poe NAME``, ``pdm run NAME`` and similar calls run; None: no such
        task."""
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
        """Return the commands that a task of a table runs. ``run``: text that starts another task of
        the table."""
        name, arguments = words[0], quoted(words[1:])

        def lines(part: Any, is_reference: bool) -> Iterator[str]:
            if isinstance(part, str) and part.strip():
                part = re.sub(r"^[-!]\s+", "", part)
                is_task = is_reference and part.split()[0] in table.keys() - {name}
                yield _filled(f"{run}{part}" if is_task else part, arguments, inside.env)
            for value in items(part):
                yield from lines(value, True)
            for key in ("cmd", "shell", "ref", "sequence", "composite", "parallel"):
                if value := mapping(part).get(key):
                    is_text = key in ("cmd", "shell")
                    yield from lines(
                        quoted(items(value)) if is_text and items(value) else value, not is_text
                    )

        task_lines = [*lines(table[name], run.startswith("hatch"))]
        if len(task_lines) == 1 and arguments not in task_lines[0]:
            task_lines = [f"{task_lines[0]} {arguments}"]
        task = mapping(table[name])
        folder = str(task.get("cwd") or task.get("working_dir") or ".")
        return self._task(Task(name, tuple(task_lines), folder, texts(task.get("env"))), inside)

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
        pieces: list[Piece] = []
        for name in names[:MAX_TOX_ENVS_READ]:
            task = tox.task(name, posargs, place.env)
            is_python = any(map(task_files.PYTHON_FACTOR.fullmatch, name.split("-")))
            hint = task_kind(name) or (TESTS if is_python else None)
            inside = place.inside(f"{in_folder(place.folder, tox.file)} {task.name}", hint)
            # A folder outside of the repository is one that tox makes.
            folder = task.folder if joined(place.folder, task.folder) else "."
            env_pieces = self._task(replace(task, folder=folder), inside)
            # If no environment was named, one release of Python suffices.
            if wanted != [""] or not (_tests(env_pieces) and _tests(pieces)):
                pieces += env_pieces
        return pieces

    def _tox_config(self, folder: str, *files: str) -> Tox | None:
        for file in files or ("tox.ini", "setup.cfg"):
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
        pieces: list[Piece] = []
        for name in (re.sub(r"\(.*\)$", "", name) for name in wanted or [""]):
            for run in sessions.get(name) or sessions.get(re.sub(r"-[\w.]+$", "", name), ()):
                inside = place.inside(f"{path}, session {run.name}", task_kind(run.name))
                pieces += self._task(run, inside)
        return _settled(pieces)

    def _hatch_envs(self, folder: str) -> tuple[str, dict[str, Any]]:
        envs = self._table(folder, "hatch.toml", "envs")
        file = "hatch.toml" if envs else "pyproject.toml"
        return file, envs or self._table(folder, file, "tool", "hatch", "envs")

    def _hatch(self, words: tuple[str, ...], place: Place) -> list[Piece] | None:
        env = _value(words, ("-e", "--env"), "default")
        at = shell.after_options(words, 0, shell.words_of("-e --env -p --project"))
        verb, rest = words[at : at + 1], words[at + 1 :]
        if words[at : at + 2] == ("env", "run"):
            verb, rest = ("run",), _split_at_dashes(rest)[1]
        if verb == ("test",):
            rest = tuple(
                word for word in rest if not re.fullmatch(r"-[acpri]|--|--all|--cover", word)
            )
            return self._hatch_script("hatch-test", ("run", *rest), place)
        rest = tuple(word for word in rest if not re.match(r"[+-]\w+=", word))
        rest = rest[shell.after_options(rest, 0) :]
        if verb != ("run",) or not rest:
            return None
        env_or_script, colon, script = rest[0].partition(":")
        return self._hatch_script(
            env_or_script if colon else env, (script or env_or_script, *rest[1:]), place
        )

    def _hatch_script(self, env: str, words: Sequence[str], place: Place) -> list[Piece]:
        file, table = self._hatch_envs(place.folder)
        scripts: dict[str, Any] = {}
        variables = dict(place.env)
        for env_table in _lineage(table, env):
            scripts |= mapping(env_table.get("scripts"))
            variables |= {
                name: text
                for name, text in texts(env_table.get("env-vars")).items()
                if "{" not in text
            }
        if env == "hatch-test":
            default_args = items(mapping(table.get(env)).get("default-args")) or ["tests"]
            scripts.setdefault("run", f"pytest {{args:{quoted(default_args)}}}")
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
            recipe, arguments = "".join(words[1:2]), quoted(words[2:])
            path, recipes = self._recipes("just", place.folder)
            placeholder = re.compile(r"\{\{\s*\*?\w+\s*\}\}")
            lines = [placeholder.sub(lambda _: arguments, line) for line in recipes.get(recipe, ())]
            inside = place.inside(f"{path}, recipe {recipe}", task_kind(recipe))
            return self._task(Task(recipe, tuple(lines)), inside)
        folder = joined(place.folder, _value(words[1:], ("-C", "--directory"), "."))
        if name not in ("make", "gmake") or folder is None:
            return None if folder else []
        path, recipes = self._recipes("make", folder)
        takes_value = re.compile(r"-[CfoI]|--directory|--file|--makefile|-[jl](?=\0\d+$)")
        operands = [
            word for before, word in pairwise(words) if not takes_value.match(f"{before}\0{word}")
        ]
        targets = [word for word in operands if not re.match(r"-|\w+=", word)] or [*recipes][:1]
        pieces: list[Piece] = []
        for target in targets:
            call_words = [word for word in words if word == target or word not in targets]
            call = (
                f"{quoted(call_words)} {command.rest(len(words))}" if targets[1:] else command.text
            )
            rule = Task(f"{path}, target {target}", tuple(recipes.get(target, ())), folder)
            pieces += self._target(shell.simple(call.strip()), rule, task_kind(target), place)
        return pieces

    def _target(
        self, command: ShellCommand, rule: Task, hint: CommandKind | None, place: Place
    ) -> list[Piece]:
        """Return a call of make, or the commands of its lines if they install or only delegate."""
        inside = place.inside(rule.name, hint)
        pieces = self._task(replace(rule, folder="."), replace(inside, folder=rule.folder))
        commands = [command for line in rule.lines for command in shell.split_script(line)[:1]]
        working = [command for command in commands if shell.use_of(command.words) != "noise"]
        working = [command for command in working if not shell.needs_outside(command.text)]
        is_unknown = hint is None or any(map(shell.needs_outside, rule.lines))
        if not commands or (not pieces and is_unknown):
            return []
        delegates = all(_DELEGATES.search(command.text) for command in working)
        delegates = delegates or any(map(_INSTALLS.search, rule.lines))
        if pieces and delegates and not any("$(" in piece.line for piece in pieces):
            return pieces
        kinds = [kind for kind in CommandKind if any(piece.kind is kind for piece in pieces)]
        is_named = not pieces or (hint is TESTS and len(working) > len(pieces))
        call = _piece(command, inside, hint if is_named else next(iter(kinds), None))
        runtimes = [piece.runtime for piece in pieces if piece.kind is call.kind and piece.runtime]
        return [replace(call, runtime=next(iter(runtimes), call.runtime))]

    # -- what a folder offers --------------------------------------------------------------------------

    def own(self, folder: str) -> Iterator[list[Piece]]:
        """Yield the commands of each task that tests a folder: tox, nox, hatch, poe, pdm, make, just,
        package.json, manage.py."""
        place = Place(folder)
        yield self._tox((), place)
        pieces = self._nox((), place)
        test_sessions = ("-s", "test", "tests", "unit", "pytest")
        yield pieces if _tests(pieces) else self._nox(test_sessions, place)
        envs = self._hatch_envs(folder)[1]
        for env in sorted(envs, key=lambda env: (task_kind(env) is not TESTS, env != "default")):
            for name in _test_names(mapping(mapping(envs[env]).get("scripts"))):
                if task_kind(env) in (None, TESTS):
                    yield self._hatch_script(env, [name], place)
        if "hatch-test" in envs:
            yield self._hatch_script("hatch-test", ["run"], place)
        tables = [(tool, self._table(folder, *keys)) for tool, keys in _TABLES.items()]
        for tool, tasks in (
            *tables,
            *((tool, self._recipes(tool, folder)[1]) for tool in _RECIPES),
        ):
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
    """Return the tasks that test by their names, the likeliest first: one with a plain name, or all."""
    best = [name for name in tasks if _BEST_NAMES.fullmatch(name.lower())]
    best.sort(key=lambda name: (name not in ("test", "tests"), len(name)))
    if best:
        return best[:1] if best[0] in ("test", "tests") else best[:2]
    test_tasks = [name for name in tasks if task_kind(name) is TESTS]
    return sorted(test_tasks, key=lambda name: bool(_OTHER_NAMES.search(name)))[:3]


def _other_suites(scripts: Iterable[str]) -> list[str]:
    """Return the scripts of suites next to ``test``, which may contain no test itself (new Nest projects
    have only a ``test:e2e``); not its variants, which watch, debug or measure."""
    names = [
        script
        for script in scripts
        if re.match(r"tests?[:_-]", script) and task_kind(script) is TESTS
    ]
    return [script for script in names if "test" in scripts and not _VARIANTS.search(script)][
        :MAX_OTHER_SUITES
    ]


# -- pieces and words --------------------------------------------------------------------------------------


def _piece(command: ShellCommand, place: Place, kind: CommandKind | None) -> Piece:
    line = (place.prefix + command.text.replace("\x01", "{").replace("\x02", "}")).strip()
    is_node = "package.json" in "".join(place.chain[-1:])
    runtime = shell.runtime_of(line) or ("node" if is_node else "")
    return Piece(line, place.folder, dict(place.env), kind, place.chain, runtime)


def _tests(pieces: Iterable[Piece]) -> bool:
    return any(piece.kind is TESTS for piece in pieces)


def _settled(pieces: list[Piece]) -> list[Piece]:
    """Return a task's pieces, with guessed ones decided if others are known to test. A guessed piece before
    the first known test prepares it; one after it is a test too, since the task fails if the piece does."""
    test_indices = [
        at for at, piece in enumerate(pieces) if piece.kind is TESTS and not piece.is_guessed
    ]
    return [
        replace(piece, kind=None if at < test_indices[0] else TESTS, is_guessed=False)
        if piece.is_guessed and test_indices
        else piece
        for at, piece in enumerate(pieces)
    ]


#: Options that select one CI machine's share of the tests, and an option that selects only with
#: ``--splits``.
_SHARE = re.compile(r"(?<=\s)--(?:shard|splits|shard-id|num-shards)(?:=|\s)\S+ ?")
_GROUP = re.compile(r"(?<=\s)--group(?:=|\s)\S+ ?")


def _whole(command: ShellCommand) -> ShellCommand:
    """Return a test command without options that select one machine's share of the tests."""
    text = _SHARE.sub("", command.text)
    text = _GROUP.sub("", text) if "--splits" in command.text else text
    return shell.simple(text.strip()) if text != command.text else command


def _expanded(text: str, env: Mapping[str, str]) -> str:
    """Return a text with ``$NAME`` and ``${NAME}`` replaced if the variable's value is one plain word."""

    def value(match: re.Match[str]) -> str:
        text = env.get(match[1] or match[2], "\0")
        return text if re.fullmatch(r"[\w.,:/()+-]*", text) else match[0]

    return re.sub(r"\$(?:\{(\w+)\}|(\w+))", value, text)


def _exported(words: Sequence[str], place: Place) -> Place:
    """Return the place after an assignment: literal values are in its variables, others in its prefix."""
    env, prefix = dict(place.env), place.prefix
    for name, equals, value in (word.partition("=") for word in words):
        if equals and not re.search(r"[$`]", value):
            env[name] = value
        elif equals and not re.search(r"`|\$\((?!pwd\))", value):
            prefix += f'export {name}="{value}" && '
    return replace(place, env=env, prefix=prefix)


def _without_assignments(command: ShellCommand, place: Place) -> tuple[ShellCommand, Place]:
    """Return a command without the assignments in front of it, and the place with them."""
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
    """Return how many words of ``coverage run …`` to replace, and by what; 0 for another command."""
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
    """Return a monorepo's command without filters by what changed, so that it runs in all members."""
    text = command.text
    is_for_members = program("".join(command.words[:1])) in _MEMBER_RUNNERS
    for pattern, replacement in _SINCE if is_for_members else ():
        text = pattern.sub("" if replacement == "-r" and "turbo" in text else replacement, text)
    return shell.simple(text.strip()) if text != command.text else command


@dataclass
class _NpmCall:
    """The script, or the installed program, that a call of an npm client runs."""

    script: str = ""
    arguments: str = ""
    folder: str = ""
    members: list[str] = field(default_factory=list)
    is_everywhere: bool = False
    is_binary: bool = False


def _npm_call(command: ShellCommand) -> _NpmCall | None:
    """Return what a client's command runs; None if that is nothing of the project's."""
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
    is_client_verb = not verb and (
        call.script in shell.CLIENT_VERBS or (client, call.script) == ("bun", "test")
    )
    rest = command.rest(at) if at < len(words) else ""  # without "|| true" after a bare call
    call.arguments = f"{quoted(extra)} {re.sub(r'^-- ', '', rest)}".strip()
    call.is_binary = verb == "exec" or client != "npm"
    return call if call.script and not is_client_verb else None


def _split_at_dashes(words: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    at = words.index("--") if "--" in words else len(words)
    return words[:at], words[at + 1 :]


def _value(words: Sequence[str], names: Sequence[str], default: str) -> str:
    return next(iter(_values(words, names)), default)


def _values(words: Sequence[str], names: Sequence[str], *, is_list: bool = False) -> list[str]:
    """Return an option's values: ``-e a``, ``-ea``, ``--env a``, ``--env=a``. If it is a list, all that
    follow."""
    values: list[str] = []
    is_open = False
    for word in words:
        if is_open and not word.startswith("-"):
            values.append(word)
            is_open = is_list
            continue
        is_open = word in names
        for name in names if not is_open else ():
            is_long = name.startswith("--")
            if word.startswith(name + "=" * is_long) and word.startswith("--") is is_long:
                values.append(word.removeprefix(name).removeprefix("="))
    return values


def _filled(text: str, arguments: str, env: Mapping[str, str]) -> str:
    """Return a line of hatch or pdm with ``{args:usual}``, ``{env:NAME:usual}`` and the like replaced."""
    text = re.sub(r"\{args(?::([^{}]*))?\}", lambda match: arguments or match[1] or "", text)
    variable = re.compile(r"\{env:(\w+)(?::([^{}]*))?\}")
    text = variable.sub(lambda match: env.get(match[1], match[2] or ""), text)
    return re.sub(r"\{(?:matrix|verbosity|home)[^{}]*\}", "", re.sub(r"\{root[^{}]*\}", ".", text))


def _lineage(table: Mapping[str, Any], env: str) -> list[dict[str, Any]]:
    """Return a hatch environment and its templates, the outermost first."""
    chain = [env]
    while len(chain) < 10 and not dig(table, chain[0], "detached"):
        chain.insert(0, str(dig(table, chain[0], "template") or "default"))
    return [mapping(table.get(name)) for name in chain]
