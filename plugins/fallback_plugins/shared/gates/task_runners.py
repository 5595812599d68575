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
from itertools import islice, pairwise
from typing import Any

from fallback_plugins.shared.gates.expressions import items, mapping
from fallback_plugins.shared.gates.shell_commands import (
    BUILD,
    CLIENT_VERBS,
    INTERPRETERS,
    LINT,
    NPM_CLIENTS,
    TESTS,
    TYPES,
    CommandKind,
    ShellCommand,
    after_options,
    bare,
    mentions_runner,
    needs_outside,
    prepares,
    program,
    runtime_of,
    script_kind,
    script_of,
    simple,
    split_script,
    task_kind,
    use_of,
)
from fallback_plugins.shared.gates.task_files import (
    MAX_TASKS,
    PYTHON_FACTOR,
    Files,
    Task,
    Tox,
    by_preference,
    in_folder,
    ini_sections,
    joined,
    just_recipes,
    make_targets,
    nox_sessions,
    quoted,
    tox_names,
)
from fallback_tier.repo import RepoContext

#: Tasks that call tasks: a chain of projects has up to five (CI, make, tox, coverage, pytest).
MAX_DEPTH = 8

#: Scripts, commands and tasks that are looked at for a folder: those of a large monorepo's CI are about
#: 2,000. Tasks that call each other would otherwise double at each step.
MAX_LOOKED_AT = 10_000

#: Manifests whose names are read to find a member of a monorepo.
MAX_MEMBERS = 500

#: Environments of tox that one command runs.
MAX_TOX_ENVS_READ = 40


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


#: What starts a command and isn't shown by it, and the options of all of them whose value is the next word.
_WRAPPERS = frozenset(
    """
    time nice ionice nohup exec command travis_retry retry winpty stdbuf timeout env cross-env cross-env-shell
    better-npm-run xvfb-run dbus-run-session nyc c8""".split()  # noqa: SIM905 (one name per string would be ten times as long)
)
_RUN_IN_ENVIRONMENT = frozenset(
    ("uv", "poetry", "pipenv", "rye", "pdm", "conda", "mamba", "micromamba")
)
_VALUED = frozenset(
    """
    -n -c -k -s -u -e -p -P -C -r -x -o -t -i --server-args --name --prefix --python --group --extra --with
    --with-requirements --with-editable --directory --project --env-file --only-group --no-group --package
    --index-url --index --resolution --config-file --config --cache-dir --from --exclude-newer --spec --constraints
    --reporter --exclude --include --extension --report-dir --reports-dir --temp-dir --temp-directory --cwd --src
    --nycrc-path --branches --functions --lines --statements --require --watermarks""".split()  # noqa: SIM905
)
_VALUED_COVERAGE = frozenset(
    ("--source", "--debug", "--omit", "--include", "--rcfile", "--context", "--data-file", "--concurrency", "--source-pkgs")
)  # fmt: skip
_VALUED_NPM = frozenset(
    ("--loglevel", "--workspace-concurrency", "-j", "--jobs", "--include", "--exclude", "--from")
)
_IN_FOLDER = frozenset(("--prefix", "-C", "--dir", "--cwd"))
_OF_MEMBER = frozenset(("--filter", "-F", "--workspace", "--scope", "--filter-prod"))
_EVERYWHERE = frozenset(("-r", "--recursive", "--workspaces", "-ws", "--ws"))
_TASK_LISTS = frozenset(("npm-run-all", "npm-run-all2", "run-s", "run-p", "concurrently", "conc"))
_PYTHON_RUNNERS = frozenset(("tox", "nox", "hatch", "poe", "task", "pdm", "rye", "pipenv"))
#: Runners whose task is often named by a variable of CI.
_READS_NAMES = _PYTHON_RUNNERS | NPM_CLIENTS | {"uv", "uvx", "poetry", "python", "make"}
#: Where a runner has its tasks.
_TABLES = {
    "poe": ("pyproject.toml", "tool", "poe", "tasks"),
    "pdm": ("pyproject.toml", "tool", "pdm", "scripts"),
    "rye": ("pyproject.toml", "tool", "rye", "scripts"),
    "task": ("pyproject.toml", "tool", "taskipy", "tasks"),
    "pipenv": ("Pipfile", "scripts"),
}
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_ASIDE = re.compile(r"(?:^|/)(?:node_modules|fixtures|__fixtures__|testdata|templates?)/")
_BUILT = re.compile(
    r"(?:^|/)(?:node_modules|dist\w*|build\w*|lib|out|output|es|cjs|esm|tmp|\.\w+)/"
)
_HOUSEKEEPING = re.compile(
    r"(?:rimraf|rm|mkdir|mkdirp|cp|mv|cpx|cpy|shx|touch|del-cli|cross-os|echo|exit|kill\w*|sleep|git|opener?|make-dir|ncp"
    r"|copyfiles|wait-on)\b"
)  # fmt: skip
_DELEGATES = re.compile(
    r"(?:^|\s)(?:tox|nox|hatch|poe|just|docker(?:-compose)?|npm|yarn|pnpm|invoke)\b"
)
_INSTALLS = re.compile(
    r"\b(?:pip3? install|(?:npm|pnpm|yarn) (?:ci|install|i)\b|(?:poetry|pdm|pipenv) (?:install|sync)|uv (?:sync|pip|venv)"
    r"|python3? -m venv|virtualenv|curl|wget|apt-get)"
)  # fmt: skip
#: Filters by what changed since a commit, and what takes their place: the command then runs in all members.
_SINCE = (
    (re.compile(r"(?:--filter|-F)[= ](?:\"[^\"]*\[[^\"]*\"|'[^']*\[[^']*'|\S*\[\S*)"), "-r"),
    (re.compile(r"\bnx affected\b"), "nx run-many"),
    (re.compile(r"(?<=\s)--(?:affected\b|since(?:[= ][^-\s]\S*)?)\s*|(?<=\s)--base[= ]\S+\s*"), ""),
)
_BEST_NAMES = re.compile(
    r"(?:run[-_:]?)?(?:tests?|unit|unit[-_]?tests?|tests?[-_:](?:unit|all|ci|run|node|py|python|fast)|pytest|jest|vitest|mocha|check)"
)
_OTHER_NAMES = re.compile(
    r"watch|debug|update|e2e|ui$|open|dev|browser|report|lint|type|docs?|clean|cov|perf|bench|build|deps|docker|install|live"
    r"|smoke|integration|setup|publish|deploy|serve|inspect|only"
)  # fmt: skip


class Tasks:
    """What the tasks of a repository come down to. What can't be read has no tasks."""

    def __init__(self, repo: RepoContext) -> None:
        self.files, self._repo, self._looked_at = Files(repo), repo, 0
        self._names: dict[str, str] = {}

    def _is_spent(self, place: Place) -> bool:
        """Count one more thing that is looked at. Is it too much, or too deep?"""
        self._looked_at += 1
        return self._looked_at > MAX_LOOKED_AT or place.depth > MAX_DEPTH

    # -- scripts and commands --------------------------------------------------------------------------

    def pieces(self, script: str, place: Place) -> list[Piece]:
        """Return what a script comes down to, in order."""
        found: list[Piece] = []
        start, back = place.folder, [place.folder]
        for command in () if self._is_spent(place) else split_script(script):
            words, folder = command.words, None
            if self._is_spent(place):
                break
            if words[:1] in (("cd",), ("pushd",)):
                target = "".join(words[1:2])
                folder = back[-1] if target == "-" else joined(place.folder, target)
                if folder is None:
                    break
                back.append(place.folder)
                place = replace(place, folder=folder)
            elif words[:1] == ("popd",):
                place = replace(place, folder=back.pop() if len(back) > 1 else start)
            elif words and (words[0] == "export" or all(map(_ASSIGNMENT.match, words))):
                place = _exported(words, place)
            elif not command.is_background:
                found += self._command(command, place)
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
            is_test = mentions_runner(command.text) and not needs_outside(command.text)
            return [_piece(command, place, TESTS)] if is_test else []
        if program(command.words[0]) in _READS_NAMES or "$" in command.words[0]:
            command = simple(_expanded(command.text, place.env))  # tox -e $ENV, ${PREFIX}pytest
        command, place = _without_assignments(command, place)
        if not command.words or self._is_spent(place):
            return []
        words, name = command.words, program(command.words[0])
        if name in ("bash", "sh") and (at := _at(r"-[a-z]*c", words)) and at + 1 < len(words):
            return self.pieces(words[at + 1], place.inside("", place.hint))
        if (table := self._from_table(words, place)) is not None:
            return table
        if (unwrapped := _unwrapped(command, place)) is not None:
            return self._command(*unwrapped)
        for read in (self._npm, self._python_runner, self._make_or_just):
            if (pieces := read(command, place)) is not None:
                return pieces
        return self._leaf(command, place)

    def _leaf(self, command: ShellCommand, place: Place) -> list[Piece]:
        """Return a command that starts no known task, if it shows or prepares anything."""
        command = _for_all(command)
        text, words = command.text, bare(command.words)
        if needs_outside(text) or not words:
            return []
        is_task = place.hint is TESTS and place.depth > 0 and not _HOUSEKEEPING.match(text)
        use = use_of(words)
        script = script_of(words)
        if use is None and script:
            use = script_kind(script)
            if place.hint is TESTS and use is not TESTS:
                use = None  # a script that a test task runs tests, whatever it is called
        if use in (None, TESTS) and (inner := self._shell_file(command, place)) is not None:
            return inner
        if program(words[0]) in ("tsc", "vue-tsc") and use is TYPES:
            use = self._of_compiler(words, place)
        if use is TESTS and place.hint in (LINT, TYPES) and not mentions_runner(text):
            use = place.hint
        if use is TESTS and not self._is_there(script, place):
            return []
        if isinstance(use, CommandKind):
            return [_piece(command, place, use)]
        if use == "noise" or (use == "code" and not is_task):
            return []
        if prepares(text):
            return [_piece(command, place, None)]
        if place.hint is BUILD and not _HOUSEKEEPING.match(text):
            return [_piece(command, place, BUILD)]
        return [replace(_piece(command, place, TESTS), is_guessed=True)] if is_task else []

    def _shell_file(self, command: ShellCommand, place: Place) -> list[Piece] | None:
        """Return what a shell script of the repository comes down to; None: there is no such."""
        words = command.words[1:] if program(command.words[0]) in ("bash", "sh") else command.words
        words = words[after_options(words, 0) :]
        is_path = bool(words) and ("/" in words[0] or words[0].endswith(".sh"))
        path = joined(place.folder, words[0]) if is_path else None
        text = self.files.text(path) if path and not self._is_spent(place) else ""
        if not path or not (
            re.match(r"#!.*\b(?:ba|da|z)?sh\b", text) or (text and path.endswith(".sh"))
        ):
            return None
        if needs_outside(text):
            return []
        hint = script_kind(path) or place.hint
        body = re.sub(r"\"?\$(?:@|\*|\{@\})\"?", lambda _: quoted(words[1:]), text)
        pieces = self.pieces(body, place.inside(path, hint))
        tests = [piece for piece in pieces if piece.kind is TESTS]
        is_read = bool(tests) and not any("\n" in piece.line for piece in tests)
        return pieces if is_read and not re.search(r"\$\{?[1-9]", text) else None

    def _is_there(self, script: str, place: Place) -> bool:
        """Is a script that a command runs tracked, or built? What another step writes is no test."""
        if not re.fullmatch(r"[\w./-]+\.(?:py|[cm]?[jt]s|sh)", script):
            return True
        path = joined(place.folder, script)
        return path is None or bool(_BUILT.search(path)) or self._repo.has(path)

    def _of_compiler(self, words: Sequence[str], place: Place) -> CommandKind:
        """A compiler that writes what tests then load is a build; one that doesn't checks types."""
        at = _at(r"-p|--project", words)
        named = words[at + 1] if at and at + 1 < len(words) else "tsconfig.json"
        path = in_folder(
            place.folder, named if named.endswith(".json") else f"{named}/tsconfig.json"
        )
        writes_not = re.search(r'"noEmit"\s*:\s*true', self.files.text(path))
        return TYPES if writes_not or "--noEmit" in words else BUILD

    # -- npm, yarn, pnpm, bun --------------------------------------------------------------------------

    def scripts(self, folder: str) -> Mapping[str, str]:
        """Return the scripts of a folder's package.json."""
        scripts = mapping(self.files.json(in_folder(folder, "package.json")).get("scripts"))
        return {
            it: text for it, text in islice(scripts.items(), MAX_TASKS) if isinstance(text, str)
        }

    def _npm(self, command: ShellCommand, place: Place) -> list[Piece] | None:
        name, words = program(command.words[0]), command.words
        if (rest := bare(words)) is not words and program(
            rest[0]
        ) in _TASK_LISTS | NPM_CLIENTS | _WRAPPERS:
            return self._command(command.after(len(words) - len(rest)), place)
        if name in _TASK_LISTS:
            return self._listed(name, words[1:], place)
        if name == "node" and words[1:2] == ("--run",):
            return self._script(place.folder, "".join(words[2:3]), command.rest(3), "npm", place)
        if name not in NPM_CLIENTS:
            return None
        command = _for_all(command)
        call = _npm_call(command)
        if call is None:
            return None
        folders: Sequence[str | None] = [place.folder]
        if call.folder:
            folders = [joined(place.folder, call.folder)]
        elif call.members:
            folders = self._members(call.members, place.folder)
        elif call.is_everywhere:
            kind = task_kind(call.script)
            return [_piece(command, place, kind)] if kind else []
        found: list[Piece] = []
        for folder in filter(None, folders):
            pattern = re.fullmatch(r"/\^([\w:-]+)/", call.script)  # pnpm run /^test:/
            named = [it for it in self.scripts(folder) if pattern and it.startswith(pattern[1])]
            for script in named or [call.script]:
                if script in self.scripts(folder):
                    found += self._script(folder, script, call.arguments, name, place)
                elif call.is_binary:
                    line = (
                        command
                        if re.search(r"[/.]", script)
                        else simple(f"{script} {call.arguments}")
                    )
                    found += (
                        self._command(line, replace(place, folder=folder))
                        if line is not command
                        else (self._leaf(command, replace(place, folder=folder)))
                    )
        return found

    def _script(
        self, folder: str, name: str, arguments: str, client: str, place: Place
    ) -> list[Piece]:
        """Return what a script of package.json comes down to, with those that the client runs around it."""
        scripts, found = self.scripts(folder), []
        source = f"{in_folder(folder, 'package.json')}, script {name}"
        for part, hint in ((f"pre{name}", BUILD), (name, task_kind(name)), (f"post{name}", None)):
            if not (text := scripts.get(part)) or part in (
                "prepublish",
                "postinstall",
                "preinstall",
            ):
                continue
            inside = place.inside(source, hint, folder=folder)
            line = f"{text} {arguments}".strip() if part == name else text
            pieces = self._task(Task(part, (line,)), inside)
            if re.search(r"\$\{?npm_|\$\{?INIT_CWD|\$@|\$\*", text) and part == name and pieces:
                kinds = [piece.kind for piece in pieces]
                line = f"{client} run {name}" + f" -- {arguments}" * bool(arguments)
                pieces = [_piece(simple(line), inside, TESTS if TESTS in kinds else kinds[0])]
            found += pieces
        return found

    def _listed(self, lister: str, words: Sequence[str], place: Place) -> list[Piece]:
        """Return what npm-run-all, run-s, run-p and concurrently come down to."""
        found: list[Piece] = []
        for word in (it for it in words if it.strip() and not it.startswith("-")):
            called = re.sub(r"^(?:npm|yarn|pnpm|bun|node):", "", word)
            if called == word and lister in ("concurrently", "conc"):
                found += self.pieces(word, place.inside("", place.hint))
                continue
            name, _, arguments = called.partition(" ")
            pattern = re.sub(r"\(!.*\)$", "", name.replace(":**", ":*"))
            for script in self.scripts(place.folder):
                if fnmatch.fnmatchcase(script, pattern) and not self._is_spent(place):
                    inside = place.inside("", None)
                    found += self._script(
                        place.folder, script, arguments.removeprefix("-- "), "npm", inside
                    )
        return found

    def _members(self, filters: Sequence[str], base: str) -> list[str | None]:
        """Return the folders of members that filters name; those that aren't found are left out."""
        if not self._names:
            paths = [
                it for it in self._repo.tracked_files if posixpath.basename(it) == "package.json"
            ]
            for path in [it for it in paths if not _ASIDE.search(it)][:MAX_MEMBERS]:
                name = self.files.json(path).get("name")
                folder = posixpath.dirname(path) or "."
                self._names[name if isinstance(name, str) else f"({folder})"] = folder
        found: list[str | None] = []
        for wanted in filters:
            plain = re.sub(r"^\.\.\.\^?|\^?\.\.\.$", "", wanted).strip("{}")
            is_path = plain.startswith(".") or ("/" in plain and not plain.startswith("@"))
            folder = joined(base, plain) if is_path else None
            for name, place in {} if plain.startswith("!") or "[" in plain else self._names.items():
                is_named = fnmatch.fnmatchcase(name, plain) or name.rpartition("/")[2] == plain
                if is_named or (folder and fnmatch.fnmatchcase(place, folder)):
                    found.append(place)
        return list(dict.fromkeys(found))

    # -- poe, pdm and their like; tox, nox, hatch ------------------------------------------------------

    def _table(self, tool: str, folder: str) -> dict[str, Any]:
        file, *keys = _TABLES[tool]
        table: Any = self.files.toml(in_folder(folder, file))
        for key in keys:
            table = mapping(table).get(key)
        return mapping(table)

    def _from_table(self, words: tuple[str, ...], place: Place) -> list[Piece] | None:
        """Return what ``poe NAME``, ``pdm run NAME`` and their like come down to; None: no such task."""
        if words[:2] == ("poetry", "poe"):
            words = words[1:]
        tool = program(words[0])
        if tool not in _TABLES:
            return None
        at = after_options(words, 2 if words[1:2] == ("run",) else 1, _VALUED)
        table = self._table(tool, place.folder)
        name = words[at] if at < len(words) else ""
        if name not in table:
            return [] if tool in ("poe", "task") else None
        run = tool if tool in ("poe", "task") else f"{tool} run"
        task = table[name]
        settings = mapping(task)

        def lines(part: Any, is_reference: bool) -> Iterator[str]:
            first = part.split()[:1] if isinstance(part, str) else []
            if first:
                yield (
                    f"{run} {part}"
                    if is_reference and first[0] in table
                    else re.sub(r"^[-!]\s+", "", part)
                )
            for it in items(part):
                yield from lines(it, True)
            for key in ("cmd", "shell", "ref", "sequence", "composite", "chain", "parallel"):
                if it := mapping(part).get(key):
                    is_text = key in ("cmd", "shell")
                    yield from lines(
                        quoted(it) if is_text and isinstance(it, list) else it, not is_text
                    )

        whole = quoted(task) if tool == "rye" and isinstance(task, list) else task
        arguments = quoted(words[at + 1 :])
        texts = [_with_arguments(line, arguments) for line in lines(whole, False)]
        if len(texts) == 1 and arguments and arguments not in texts[0]:
            texts = [f"{texts[0]} {arguments}"]
        env = {
            str(it): value
            for it, value in mapping(settings.get("env")).items()
            if isinstance(value, str)
        }
        folder = str(settings.get("cwd") or settings.get("working_dir") or ".")
        source = f"{in_folder(place.folder, _TABLES[tool][0])}, {tool} task {name}"
        return self._task(
            Task(name, tuple(texts), folder, env), place.inside(source, task_kind(name))
        )

    def _python_runner(self, command: ShellCommand, place: Place) -> list[Piece] | None:
        words = command.words
        if module := re.match(r"python[\d.]* -m (tox|nox|hatch)(?: |$)", " ".join(words[:3])):
            words = (module[1], *words[3:])
        runners = {"tox": self._tox, "nox": self._nox, "hatch": self._hatch}
        run = runners.get(program(words[0]))
        return None if run is None else run(words[1:], place)

    def _tox(self, words: tuple[str, ...], place: Place) -> list[Piece]:
        words = tuple("-e" if re.fullmatch(r"-[qrv]+e", word) else word for word in words)
        if words[:1] and words[0] in ("run", "r", "p", "run-parallel", "exec", "e"):
            words = words[1:]
        words, posargs = _split_at_dashes(words)
        tox = self._tox_config(place.folder, "".join(_values(words, ("-c", "--conf"))[:1]))
        if tox is None or self._is_spent(place):
            return []
        wanted = _values(words, ("-e", "-m", "--env"))
        wanted = wanted or [str(place.env.get("TOXENV") or place.env.get("TOX_ENV") or "")]
        names = [name for value in wanted for name in tox_names(value)]
        if not names or names == ["ALL"]:
            names = by_preference(tox.names)
        factors = {part for factor in _values(words, ("-f",)) for part in re.split(r"[,-]", factor)}
        names = [name for name in names if factors.issubset(name.split("-"))] or names
        found: list[Piece] = []
        for name in names[:MAX_TOX_ENVS_READ]:
            task = tox.task(name, posargs, place.env)
            is_python = any(map(PYTHON_FACTOR.fullmatch, name.split("-")))
            hint = task_kind(name) or (TESTS if is_python else None)
            inside = place.inside(f"{in_folder(place.folder, tox.file)} {task.name}", hint)
            folder = task.folder if joined(place.folder, task.folder) else "."  # one of tox's own
            pieces = self._task(replace(task, folder=folder), inside)
            if wanted == [""] and _tests(pieces) and _tests(found):
                continue  # one environment tests: others are the same with other releases
            found += pieces
        return found

    def _tox_config(self, folder: str, named: str) -> Tox | None:
        for file in (named,) if named else ("tox.ini", "setup.cfg"):
            sections = self.files.ini(in_folder(folder, file))
            if sections and (file != "setup.cfg" or "tox:tox" in sections):
                return Tox.of_ini(file, sections)
        table = mapping(
            mapping(self.files.toml(in_folder(folder, "pyproject.toml")).get("tool")).get("tox")
        )
        if isinstance(legacy := table.get("legacy_tox_ini"), str):
            return Tox.of_ini("pyproject.toml", ini_sections(legacy))
        own = self.files.toml(in_folder(folder, "tox.toml"))
        file = "pyproject.toml" if table else "tox.toml"
        return Tox.of_toml(file, table or own) if table or own else None

    def _nox(self, words: tuple[str, ...], place: Place) -> list[Piece]:
        words, posargs = _split_at_dashes(words)
        path = in_folder(place.folder, (_values(words, ("-f", "--noxfile")) or ["noxfile.py"])[0])
        sessions = nox_sessions(self.files.text(path), posargs)
        wanted = _values(words, ("-s", "--session", "--sessions", "-e"), is_list=True)
        names = [re.sub(r"\(.*\)$", "", name) for name in wanted]
        if not names:
            names = [name for name in sessions if sessions[name].is_default]
            names.sort(key=lambda name: task_kind(name) is not TESTS)
        found: list[Piece] = []
        for name in names:
            session = sessions.get(name) or sessions.get(re.sub(r"-[\w.]+$", "", name))
            for run in session.runs if session else ():
                source = f"{path}, session {session.name}" if session else ""
                found += self._task(run, place.inside(source, task_kind(name)))
        return _settled(found)

    def _hatch_envs(self, folder: str) -> tuple[str, dict[str, Any]]:
        own = mapping(self.files.toml(in_folder(folder, "hatch.toml")).get("envs"))
        tool = mapping(self.files.toml(in_folder(folder, "pyproject.toml")).get("tool"))
        return (
            ("hatch.toml", own)
            if own
            else ("pyproject.toml", mapping(mapping(tool.get("hatch")).get("envs")))
        )

    def _hatch(self, words: tuple[str, ...], place: Place) -> list[Piece] | None:
        env = (_values(words, ("-e", "--env")) or ["default"])[0]
        at = after_options(words, 0, frozenset(("-e", "--env", "-p", "--project")))
        verb, rest = "".join(words[at : at + 1]), words[at + 1 :]
        if verb == "env" and rest[:1] == ("run",):
            verb, rest = "run", (_split_at_dashes(rest)[1] or rest[1:])
        if verb == "test":
            skipped = ("-a", "--all", "-c", "--cover", "-p", "-r", "--", "-i")
            return self._hatch_script(
                "hatch-test", ("run", *(it for it in rest if it not in skipped)), place
            )
        if verb != "run":
            return None
        rest = tuple(it for it in rest[after_options(rest, 0) :] if not re.match(r"[+-]\w+=", it))
        named, colon, script = "".join(rest[:1]).partition(":")
        if colon and not rest[0].startswith(("http", "/")):
            env, rest = named, (script, *rest[1:])
        return self._hatch_script(env, rest, place) if rest else []

    def _hatch_script(self, env: str, words: Sequence[str], place: Place) -> list[Piece]:
        file, table = self._hatch_envs(place.folder)
        scripts: dict[str, Any] = {}
        variables = dict(place.env)
        for name in _lineage(table, env):
            scripts |= mapping(mapping(table.get(name)).get("scripts"))
            own = mapping(mapping(table.get(name)).get("env-vars"))
            variables |= {
                it: text for it, text in own.items() if isinstance(text, str) and "{" not in text
            }
        if env == "hatch-test":
            usual = items(mapping(table.get(env)).get("default-args")) or ["tests"]
            scripts.setdefault("run", f"pytest {{args:{quoted(usual)}}}")
        name, arguments = words[0], quoted(words[1:])
        if name not in scripts:
            return self.pieces(quoted(words), place.inside("", place.hint, env=variables))
        source = f"{in_folder(place.folder, file)} [envs.{env}], script {name}"
        lines: list[str] = []
        for line in items(scripts[name]) or [scripts[name]]:
            text = _with_arguments(re.sub(r"^[-!]\s+", "", str(line)), arguments)
            text = re.sub(
                r"\{env:(\w+)(?::([^{}]*))?\}", lambda it: variables.get(it[1], it[2] or ""), text
            )
            text = re.sub(
                r"\{(?:matrix|verbosity|home)[^{}]*\}", "", re.sub(r"\{root[^{}]*\}", ".", text)
            )
            is_script = text.split(None, 1)[:1] != [name] and "".join(text.split()[:1]) in scripts
            lines.append(f"hatch run {env}:{text}" if is_script else text)
        inside = place.inside(source, task_kind(name) or task_kind(env))
        return self._task(Task(name, tuple(lines), env=variables), inside)

    # -- make and just ---------------------------------------------------------------------------------

    def _recipes(self, tool: str, folder: str) -> tuple[str, Mapping[str, list[str]]]:
        names = (
            ("GNUmakefile", "makefile", "Makefile")
            if tool == "make"
            else ("justfile", "Justfile", ".justfile")
        )
        path = next((it for name in names if self._repo.has(it := in_folder(folder, name))), "")
        return path, self.files.parsed(make_targets if tool == "make" else just_recipes, path)

    def _make_or_just(self, command: ShellCommand, place: Place) -> list[Piece] | None:
        words, name = command.words, program(command.words[0])
        if name == "just":
            at = after_options(words, 1, frozenset(("-f", "-d")))
            path, recipes = self._recipes("just", place.folder)
            recipe = "".join(words[at : at + 1])
            put_in = re.compile(r"\{\{\s*\*?\w+\s*\}\}")
            lines = (
                put_in.sub(lambda _: quoted(words[at + 1 :]), it) for it in recipes.get(recipe, ())
            )
            inside = place.inside(f"{path}, recipe {recipe}", task_kind(recipe))
            return self._task(Task(recipe, tuple(lines)), inside)
        if name not in ("make", "gmake"):
            return None
        folder = joined(place.folder, (_values(words[1:], ("-C", "--directory")) or ["."])[0])
        path, recipes = self._recipes("make", folder or "")
        valued = ("-C", "-f", "-o", "-I", "--directory", "--file", "--makefile")
        targets = [
            word
            for before, word in pairwise(words)
            if not (word.startswith("-") or "=" in word or before in valued)
            and not (before in ("-j", "-l") and word.isdigit())
        ]
        found: list[Piece] = []
        for target in (targets or [*recipes][:1]) if folder is not None else ():
            kept = [word for word in words if word == target or word not in targets]
            one = (
                simple(f"{quoted(kept)} {command.rest(len(words))}".strip())
                if targets[1:]
                else command
            )
            found += self._target(one, (path, target, recipes.get(target, [])), folder or "", place)
        return found

    def _target(
        self, command: ShellCommand, rule: tuple[str, str, list[str]], folder: str, place: Place
    ) -> list[Piece]:
        """Return a call of make, or what the target's lines come down to if they install or only delegate."""
        path, target, lines = rule
        hint = task_kind(target)
        inside = place.inside(f"{path}, target {target}", hint)
        pieces = self._task(Task(target, tuple(lines)), replace(inside, folder=folder))
        working = [
            it for line in lines for it in split_script(line)[:1] if use_of(it.words) != "noise"
        ]
        working = [it for it in working if not needs_outside(it.text)]
        if not lines or (not pieces and (hint is None or any(map(needs_outside, lines)))):
            return []
        is_delegated = all(_DELEGATES.search(it.text) for it in working)
        is_plain = not any("$(" in piece.line for piece in pieces)
        if pieces and is_plain and (is_delegated or any(map(_INSTALLS.search, lines))):
            return pieces
        kinds = [kind for kind in CommandKind if any(it.kind is kind for it in pieces)]
        kind = (
            hint
            if not pieces or (hint is TESTS and len(working) > len(pieces))
            else next(iter(kinds), None)
        )
        made = _piece(command, replace(inside, folder=place.folder), kind)
        runtimes = [it.runtime for it in pieces if it.kind is kind and it.runtime]
        return [replace(made, runtime=next(iter(runtimes), made.runtime))]

    # -- what a folder offers --------------------------------------------------------------------------

    def own(self, folder: str) -> Iterator[list[Piece]]:
        """Yield what each task that tests a folder comes down to: tox, nox, hatch, poe, pdm, make, just,
        package.json, manage.py."""
        place = Place(folder)
        yield self._tox((), place)
        pieces = self._nox((), place)
        yield (
            pieces
            if _tests(pieces)
            else self._nox(("-s", "test", "tests", "unit", "pytest"), place)
        )
        envs = self._hatch_envs(folder)[1]
        for env in sorted(envs, key=lambda it: (task_kind(it) is not TESTS, it != "default")):
            for name in _test_names(mapping(mapping(envs[env]).get("scripts"))):
                if task_kind(env) in (None, TESTS):
                    yield self._hatch_script(env, [name], place)
        if "hatch-test" in envs:
            yield self._hatch_script("hatch-test", ["run"], place)
        for tool in _TABLES:
            for name in _test_names(self._table(tool, folder)):
                run = (tool, name) if tool in ("poe", "task") else (tool, "run", name)
                yield self._from_table(run, place) or []
        for tool in ("make", "just"):
            for name in _test_names(self._recipes(tool, folder)[1]):
                yield self._command(simple(f"{tool} {name}"), place)
        for name in _test_names(self.scripts(folder)):
            yield self._script(folder, name, "", "npm", place)
        if self._repo.has(script := in_folder(folder, "manage.py")):
            yield [_piece(simple("python manage.py test"), place.inside(script, TESTS), TESTS)]


def _test_names(tasks: Iterable[str]) -> list[str]:
    """Return the tasks that test by their names, the likeliest first: one that is named plainly, or all."""
    best = [name for name in tasks if _BEST_NAMES.fullmatch(name.lower())]
    best.sort(key=lambda name: (name not in ("test", "tests"), len(name)))
    if best:
        return best[:1] if best[0] in ("test", "tests") else best[:2]
    others = [name for name in tasks if task_kind(name) is TESTS]
    return sorted(others, key=lambda name: bool(_OTHER_NAMES.search(name)))[:3]


# -- pieces ------------------------------------------------------------------------------------------------


def _piece(command: ShellCommand, place: Place, kind: CommandKind | None) -> Piece:
    line = (place.prefix + command.text.replace("\x01", "{").replace("\x02", "}")).strip()
    runtime = runtime_of(line) or ("node" if "package.json" in "".join(place.chain[-1:]) else "")
    return Piece(line, place.folder, dict(place.env), kind, place.chain, runtime)


def _tests(pieces: Iterable[Piece]) -> bool:
    return any(piece.kind is TESTS for piece in pieces)


def _settled(pieces: list[Piece]) -> list[Piece]:
    """Return a task's pieces. One that only the task's name makes a test prepares those that are known to
    test and come later; behind them it is a test too: the task fails for it."""
    known = [at for at, it in enumerate(pieces) if it.kind is TESTS and not it.is_guessed]
    return [
        replace(piece, kind=None if at < known[0] else piece.kind, is_guessed=False)
        if piece.is_guessed and known
        else piece
        for at, piece in enumerate(pieces)
    ]


# -- words of commands -------------------------------------------------------------------------------------


def _expanded(text: str, env: Mapping[str, str]) -> str:
    """Return a text with ``$NAME`` and ``${NAME}`` replaced, of variables that are one plain word."""

    def value(match: re.Match[str]) -> str:
        known = env.get(match[1] or match[2], "\0")
        return known if re.fullmatch(r"[\w.,:/()+-]*", known) else match[0]

    return re.sub(r"\$(?:\{(\w+)\}|(\w+))", value, text)


def _exported(words: Sequence[str], place: Place) -> Place:
    """Return the place after an assignment: literal values in its variables, others before each line."""
    env, prefix = dict(place.env), place.prefix
    for word in words:
        name, equals, value = word.partition("=")
        if equals and not re.search(r"[$`]", value):
            env[name] = value
        elif equals and not re.search(r"`|\$\((?!pwd\))", value):
            prefix += f'export {name}="{value}" && '
    return replace(place, env=env, prefix=prefix)


def _without_assignments(command: ShellCommand, place: Place) -> tuple[ShellCommand, Place]:
    """Return a command without assignments before it, and the place with them."""
    words, at, env, kept = command.words, 0, dict(place.env), place.prefix
    if program(words[0]) in ("env", "cross-env", "cross-env-shell"):
        at = after_options(words, 1, frozenset(("-u",)))
    while at < len(words) and _ASSIGNMENT.match(words[at]):
        name, _, value = words[at].partition("=")
        if re.search(r"[$`]", value):
            kept += command.text[command.ends[at - 1] if at else 0 : command.ends[at]].strip() + " "
        else:
            env[name] = value
        at += 1
    rest = command.after(at) if at < len(words) else ShellCommand("")
    return rest, replace(place, env=env, prefix=kept)


def _at(pattern: str, words: Sequence[str]) -> int:
    """Return the index of the first word behind the command's name that matches; 0: none does."""
    return next((at for at, it in enumerate(words) if at and re.fullmatch(pattern, it)), 0)


def _unwrapped(command: ShellCommand, place: Place) -> tuple[ShellCommand, Place] | None:
    """Return what a wrapper runs, without the wrapper, and its place; None: it isn't one."""
    words, name, at = command.words, program(command.words[0]), 0
    if name in _RUN_IN_ENVIRONMENT and words[(run := after_options(words, 1, _VALUED)) :][:1] == (
        "run",
    ):
        at = after_options(words, run + 1, _VALUED)
        folders = _values(words[1:at], ("--directory", "--project"))
        place = replace(place, folder=joined(place.folder, (folders or ["."])[0]) or place.folder)
        if words[at:] and words[at].endswith(".py"):
            return command.after(at, "python"), place
    elif name in ("uvx", "pipx"):
        at = after_options(words, 2 if words[1:2] == ("run",) else 1, _VALUED)
        if "".join(words[at : at + 1]).partition("@")[0] not in _PYTHON_RUNNERS:
            return None
    elif name in _WRAPPERS and use_of(words) != "noise":
        at = after_options(words, 1, _VALUED) + (name == "timeout")
    elif measured := _measured(words):
        return command.after(*measured), place
    return (command.after(at), place) if 0 < at < len(words) else None


def _measured(words: tuple[str, ...]) -> tuple[int, str] | None:
    """Return how many words of ``coverage run …`` are replaced, and by what; None: it isn't that."""
    at, python = 0, "python"
    if re.fullmatch(r"python[\d.]*", program(words[0])) and "-m" in words:
        at, python = words.index("-m") + 1, quoted(words[: words.index("-m")])
    if program("".join(words[at : at + 1])) not in ("coverage", "coverage3") or words[
        at + 1 : at + 2
    ] != ("run",):
        return None
    at += 2
    while (
        at < len(words) and words[at].startswith(("-", "$")) and words[at] not in ("-m", "--module")
    ):
        at += 2 if words[at] in _VALUED_COVERAGE else 1
    return (at, python) if at < len(words) else None


def _for_all(command: ShellCommand) -> ShellCommand:
    """Return a monorepo's command without filters by what changed: it then runs in all members."""
    if program("".join(command.words[:1])) not in NPM_CLIENTS | {"npx", "nx", "turbo", "lerna"}:
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
    folder = verb = script = ""
    members: list[str] = []
    extra: list[str] = []
    everywhere, at = False, 1
    while at < len(words):
        word, at = words[at], at + 1
        name, equals, value = word.partition("=")
        is_member = name in _OF_MEMBER or (name == "-w" and client == "npm")
        if (is_member or name in _IN_FOLDER) and not equals:
            value, at = "".join(words[at : at + 1]), at + 1
        if name in _IN_FOLDER:
            folder = value
        elif is_member:
            members.append(value)
        elif word in _EVERYWHERE or (
            word == "workspaces" and client in ("yarn", "jlpm") and not verb
        ):
            everywhere = True
        elif word == "--" and script:
            break
        elif word.startswith("-"):
            at += word in _VALUED_NPM
        elif script:
            extra.append(word)
        elif word in ("run", "run-script", "rum", "urn", "exec", "x", "dlx") and not verb:
            verb = "exec" if word in ("exec", "x", "dlx") else "run"
        elif word == "workspace" and client in ("yarn", "jlpm") and not verb:
            members.append("".join(words[at : at + 1]))
            at += 1
        elif not (word == "foreach" and everywhere):
            script = word
            if client != "npm" or verb == "exec":
                break
    if client == "npm" and not verb:
        script = "test" if script in ("test", "t", "tst") else ""
    if not script or (
        not verb and (script in CLIENT_VERBS or (client == "bun" and script == "test"))
    ):
        return None
    arguments = f"{quoted(extra)} {re.sub(r'^-- ', '', command.rest(at))}".strip()
    is_binary = verb == "exec" or client != "npm"
    return _NpmCall(script, arguments, folder, tuple(filter(None, members)), everywhere, is_binary)


def _split_at_dashes(words: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the words before ``--`` and those after it."""
    at = words.index("--") if "--" in words else len(words)
    return words[:at], words[at + 1 :]


def _values(words: Sequence[str], names: Sequence[str], *, is_list: bool = False) -> list[str]:
    """Return the values of an option: ``-e a``, ``-ea``, ``--env a``, ``--env=a``; with a list all that follow."""
    found: list[str] = []
    left = list(reversed(words))
    while left:
        word = left.pop()
        if word in names:
            while left and not left[-1].startswith("-"):
                found.append(left.pop())
                if not is_list:
                    break
        for name in names if word not in names else ():
            is_long = name.startswith("--")
            if (
                word.startswith(f"{name}=" if is_long else name)
                and word.startswith("--") is is_long
            ):
                found.append(word.removeprefix(name).removeprefix("="))
    return found


def _with_arguments(text: str, arguments: str) -> str:
    """Return a line of hatch or pdm with ``{args}`` and ``{args:usual ones}`` replaced."""
    return re.sub(r"\{args(?::([^{}]*))?\}", lambda match: arguments or match[1] or "", text)


def _lineage(table: Mapping[str, Any], env: str) -> list[str]:
    """Return a hatch environment and its templates, the outermost first."""
    chain = [env]
    while len(chain) < 10:
        own = mapping(table.get(chain[0]))
        template = own.get("template", "default")
        if (
            own.get("detached") in (True, "true")
            or template in chain
            or not isinstance(template, str)
        ):
            break
        chain.insert(0, template)
    return chain
