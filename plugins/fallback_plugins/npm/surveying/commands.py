"""Commands of npm's clients in files that a build or a person runs: packages that they name, and whether
they read locks.
"""

import posixpath
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import groupby
from pathlib import PurePosixPath

from fallback_plugins.npm.manifests.manifest import MANIFEST, in_folder, readable_text
from fallback_plugins.npm.manifests.specs import foreign, is_package_name
from fallback_plugins.npm.surveying.client_options import takes_word
from fallback_plugins.shared.commands import SCRIPTS, SHELL_CELL, code_cells
from fallback_plugins.shared.identity import is_aside
from fallback_tier.repo import RepoContext

#: Files with commands, including package.json; scripts without a suffix, by their names.
_FILES = re.compile(
    r"(?:.*/)?(?:(?:Docker|Container|Make|Jenkins|Vagrant|Earth|Proc)file[^/]*|\.?justfile"
    r"|[^/]+\.(?:dockerfile|sh|bash|zsh|ps1|bat|cmd|mk|nix|toml|ya?ml|jsonc)"
    r"|package\.json|\.?devcontainer\.json|(?:vercel|now|deno|bower|lerna|nx|turbo|project)\.json"
    rf"|\.husky/[^/.]+|{SCRIPTS})",
    re.IGNORECASE,
)
#: Locks among these files: each has its own reader, or is made from a manifest.
_LOCKS = re.compile(
    r"(?!\.github/)(?:.*/)?(?:[^/]*\.)?(?:pnpm-|conda-)?lock(?:\.[^/]+)?\.(?:toml|ya?ml|jsonc?)",
    re.IGNORECASE,
)

#: Programs, searched for calls that run a process, and pages; both, for packages loaded by address.
_PROGRAMS = re.compile(r".*\.(?:[cm]?[jt]sx?|vue|svelte|pyw?|ipynb)", re.IGNORECASE)
_PAGES = re.compile(
    r".*\.(?:html?|ejs|hbs|pug|njk|jinja2?|twig|erb|php|astro|vue|svelte)", re.IGNORECASE
)
#: Calls in a program, the names of those that run a process, and their arguments: texts, and characters
#: that do not end a call.
_CALL = re.compile(r"\b(\w{1,80})\s{0,20}[(`]|\$\s{0,20}`")
_RUNS_PROCESS = re.compile(
    r"(?!\w*(?:error|exception|warning)$)\w*"
    r"(?:exec|spawn|fork|run|shell|sh|cmd|system|popen|check_|getoutput|getstatusoutput)|call$|$",
    re.IGNORECASE,
)
_ARGUMENTS = re.compile(r"(?:\"[^\"\n]{0,500}\"|'[^'\n]{0,500}'|`[^`]{0,2000}`|[^;){}]){0,500}")
#: A command that a program assigns to a variable, and a placeholder in a template.
_NAMED = re.compile(
    r"\w\s{1,20}=\s{1,20}(?:\"(?=[bnpy])([^\"\n]{0,500})\"|'(?=[bnpy])([^'\n]{0,500})'|`(?=[bnpy])([^`]{0,2000})`)"
)
_TEMPLATE = re.compile(r"\$\{[^{}\n]*\}")
#: A shell line in a notebook.
_SHELL_LINE = re.compile(r"^[ \t]*(?:!|%(?:sx|system)[ \t])(.*)", re.MULTILINE)

#: An address; one without a scheme only at the start of a line or after a quote.
_ADDRESS = re.compile(
    r"(?:\bhttps?:|(?:^\s*|(?<=[\"'`=(,]))(?=//[\w-]{1,63}\.[\w.-]{1,200}/))[\w:/.@%+~,?&=*!-]+"
    r"|\bnpm:[\w@/.~^-]+"
)
#: pre-commit installs the releases that a node hook lists, by name and version.
_HOOKS = ".pre-commit-config.yaml"
_RELEASE = re.compile(
    r"[-\[,]\s{0,200}[\"']?(?<![\w.-])((?:@[\w.-]{1,214}/)?[\w.-]{1,214}@\d[\w.+-]*)"
)
#: Characters of a line; longer ones are minified, not source code.
_MAX_LINE = 5_000

#: An expression that CI replaces.
_EXPRESSION = re.compile(r"\$\{\{[^{}\n]*\}\}")
_REMARK = re.compile(r"\s*(?://(?![\w-]{1,63}\.[\w.-]{1,200}/)|/?\*|#|<!--)")
#: Lines that a tool drops before it joins lines that end in a backslash.
_COMMENT = re.compile(r"^[ \t]*#.*\n?", re.MULTILINE)
_CONTINUED = re.compile(r"\\[ \t]*\r?\n")
#: Keys of JSON, replaced so that each value is a separate line, and prose, dropped.
_KEY = re.compile(
    r"\"(?:name|description)\"\s*:\s*\"(?:[^\"\\\n]|\\.)*\"|\"(?:[^\"\\\n]|\\.){0,214}\"\s*:\s*"
)

#: Lines that no shell runs, and the end of a command.
_PROSE = re.compile(r"\s*(?:#|//|(?:-\s*)?\"?(?:name|description)\"?\s*:)")
_ENDS = re.compile(r"&&|\|\||[;|()&<>]|\s#")
_WORD = re.compile(r"[^\s\"'`,\[\]\\]+")

#: A quoted argument with a range, and its characters that mean something else outside of quotes.
_QUOTED = re.compile(r"(['\"])((?:@?[\w./-]+@)?[<>=^~][^'\"]*)\1")
_HIDDEN = str.maketrans(" |<>", "\0\1\2\3")
_SHOWN = str.maketrans("\0\1\2\3", " |<>")

#: Clients by program; programs that run a package's own program; verbs that install or run packages.
_CLIENTS = {
    "npm": "npm",
    "npx": "npm",
    "yarn": "yarn",
    "pnpm": "pnpm",
    "pnpx": "pnpm",
    "bun": "bun",
    "bunx": "bun",
}
_RUNNERS = frozenset({"npx", "pnpx", "bunx"})
_RUNS = frozenset({"exec", "x", "dlx"})
_ADDS = frozenset({"install", "i", "in", "ins", "inst", "isntall", "add", "a"})
_CREATES = frozenset({"create", "init", "innit"})
_UPDATES = frozenset({"update", "up", "upgrade", "udpate"})
_INSTALLS = _ADDS | {"ci", "clean-install", "ic", "install-clean", "install-test", "it"}
_VERBS = _INSTALLS | _CREATES | _UPDATES | _RUNS | {"global"}
#: With verbs whose next word is a script or a setting, whatever it is called.
_FIRST_WORDS = _VERBS | {"run", "run-script", "rum", "urn", "test", "t", "tst", "start", "config"}

#: Options that name the package whose program is run.
_PACKAGE = ("--package", "-p")

#: Lines and settings by which a client ignores its lock.
_IGNORES = {
    "npm": re.compile(
        r"--no-(?:package-lock|shrinkwrap)\b|npm_config_(?:package_lock|shrinkwrap)[=:\s]+[\"']?false"
        r"|\b(?:package-lock|shrinkwrap)[=\s]+[\"']?false",
        re.IGNORECASE,
    ),
    "yarn": re.compile(r"\byarn\b.{0,500}--no-lockfile\b"),
    "pnpm": re.compile(
        r"\bpnpm\b.{0,500}(?:--no-lockfile\b|[-\s]lockfile[=\s]false)"
        r"|npm_config_lockfile[=:\s]+[\"']?false",
        re.IGNORECASE,
    ),
}
_SETTINGS = {
    (".npmrc", "npm"): re.compile(
        r"^[ \t]*(?:package-lock|shrinkwrap)\s*=\s*[\"']?false", re.MULTILINE
    ),
    (".npmrc", "pnpm"): re.compile(r"^[ \t]*lockfile\s*=\s*[\"']?false", re.MULTILINE),
    ("pnpm-workspace.yaml", "pnpm"): re.compile(r"^lockfile\s*:\s*[\"']?false", re.MULTILINE),
    (".yarnrc", "yarn"): re.compile(
        r"^[ \t]*\"?--(?:install\.)?no-lockfile\"?\s+[\"']?true", re.MULTILINE
    ),
}
_GLOBAL = re.compile(r"\s(?:-g|--global|global)\b")

#: Most paths that a file's commands copy or remove, of each kind, as each command keeps the earlier ones.
_MAX_PATHS = 300
#: Files that build an image, what they copy into it, and what is removed from it (or from a checkout)
#: before an install.
_IMAGE = re.compile(r"(?:.*/)?(?:(?:Docker|Container)file[^/]*|[^/]+\.dockerfile)")
_STAGE = re.compile(
    r"\s*FROM\s+(?:--\S+\s+)*(?P<base>\S+)(?:\s+AS\s+(?P<name>\S+))?", re.IGNORECASE
)
_COPIES = re.compile(r"\s*(?:COPY|ADD)\s+(?P<words>.*)", re.IGNORECASE)
_MOUNTED = re.compile(r"--mount=\S{0,500}type=bind\S*")
_MOUNT_OF = re.compile(r"(?:source|src)=([^,\s]+)")
_REMOVES = re.compile(r"\b(?:rm|del|unlink|rimraf)\b(?P<words>.*)")

#: A version that is a variable, and an assignment of a version to a variable.
_VARIABLE = re.compile(r"(?<=@)\$(?:\{(\w+)\}|\((\w+)\)|(\w+))")
_GIVEN = re.compile(
    r"\b(\w{1,100})(?=(?:[ \t]{0,20}(?:[:?]?=|:)|[ \t])[ \t]{0,20}[\"']?v?(\d[\w.+-]{0,99}))"
)


@dataclass(frozen=True)
class ClientCommand:
    """One command of a client. ``text``: as in its file; ``packages``: name → spec, empty for none, of
    packages that it installs or runs; ``is_run``: it runs them, and takes a project's own first.
    ``installs``: it installs the project."""

    path: str
    client: str
    text: str
    packages: tuple[tuple[str, str], ...] = ()
    is_run: bool = False
    installs: bool = False
    updates: bool = False
    is_open: bool = False


@dataclass(frozen=True)
class _Unlocked:
    """A command that may run without a lock. ``copied``: paths that the image has by then; None: it runs in
    the checkout. ``removed``: paths that are removed before. ``updates``: it does not keep to the lock."""

    path: str
    client: str
    updates: bool
    removed: tuple[str, ...]
    copied: tuple[str, ...] | None

    def lacks(self, repo: RepoContext, lock: str) -> bool:
        """Return whether the command installs the lock's project without the lock."""
        if self.updates or any(f"/{lock}".endswith(f"/{_plain(name)}") for name in self.removed):
            return True
        if self.copied is None:
            return False
        manifests = [
            tracked for tracked in repo.tracked_files if PurePosixPath(tracked).name == MANIFEST
        ]
        for context in map(str, PurePosixPath(self.path).parents):
            copied_manifests = [
                manifest for manifest in manifests if self._has(repo, context, manifest)
            ]
            if copied_manifests:
                own_manifest = str(PurePosixPath(lock).with_name(MANIFEST))
                return own_manifest in copied_manifests and not self._has(repo, context, lock)
        return False

    def _has(self, repo: RepoContext, context: str, path: str) -> bool:
        inside = path if context == "." else path.removeprefix(f"{context}/")
        if inside == path and context != ".":
            return False
        folders = [*map(str, PurePosixPath(inside).parents)]
        is_got = any(
            fnmatchcase(candidate, _plain(source))
            for source in self.copied or ()
            for candidate in (inside, *folders)
        )
        return is_got and not self._is_left_out(repo, context, inside)

    def _is_left_out(self, repo: RepoContext, context: str, path: str) -> bool:
        """Return whether .dockerignore leaves the path out; its last matching line decides."""
        own_list = f"{self.path}.dockerignore"
        listed = own_list if repo.has(own_list) else str(PurePosixPath(context) / ".dockerignore")
        is_ignored = False
        for line in map(str.strip, readable_text(repo, listed).splitlines()):
            if not line or line.startswith("#"):
                continue
            pattern = _plain(line.removeprefix("!")).removeprefix("**/")
            names = [path, *map(str, PurePosixPath(path).parents[:-1])]
            names += [PurePosixPath(name).name for name in names] if "**/" in line else []
            if any(fnmatchcase(name, pattern) for name in names):
                is_ignored = not line.startswith("!")
        return is_ignored


def _plain(path: str) -> str:
    """Return a path in a command of an image or a shell, relative to the root of its files."""
    return posixpath.normpath(path.strip("/") or ".")


@dataclass(frozen=True)
class Commands:
    """All commands of a repository. ``lines``: (path, line) of each line of its files, except prose."""

    found: tuple[ClientCommand, ...]
    lines: tuple[tuple[str, str], ...]
    unlocked: tuple[_Unlocked, ...] = ()

    @classmethod
    def of(cls, repo: RepoContext) -> "Commands":
        """Return the commands in tracked files, except samples and tests; searched once."""
        return repo.once("npm commands", lambda: cls._search(repo))

    @classmethod
    def _search(cls, repo: RepoContext) -> "Commands":
        lines = tuple(
            (path, line)
            for path in repo.tracked_files
            if not {"node_modules", "bower_components"} & {*PurePosixPath(path).parts}
            and not is_aside(path)
            for line in _lines(repo, path)
        )
        commands = (command for path, line in lines for command in _commands(path, line))
        return cls(tuple(dict.fromkeys(commands)), lines, tuple(dict.fromkeys(_unlocked(lines))))

    def installers(self, folder: str) -> frozenset[str]:
        """Return the clients that may install the project of a folder."""
        return frozenset(
            command.client
            for command in self.found
            if command.installs and _is_about(command.path, folder)
        )

    def ignore_lock(self, repo: RepoContext, lock: str, client: str) -> bool:
        """Return whether a command or setting makes the client ignore a project's lock."""
        folder = str(PurePosixPath(lock).parent)
        if any(command.client == client and command.lacks(repo, lock) for command in self.unlocked):
            return True
        for (name, reader), setting in _SETTINGS.items():
            if reader == client and setting.search(readable_text(repo, in_folder(folder, name))):
                return True
        pattern = _IGNORES.get(client)
        return pattern is not None and any(
            pattern.search(line) and not _GLOBAL.search(line) and _is_about(path, folder)
            for path, line in self.lines
        )


def _is_about(path: str, folder: str) -> bool:
    """Return whether a file's command may be about a folder's project."""
    pure = PurePosixPath(path)
    return pure.name != MANIFEST or str(pure.parent) == folder


def _lines(repo: RepoContext, path: str) -> Iterator[str]:
    """Yield a file's lines that may be commands, or load a package by its address."""
    if _FILES.fullmatch(path) and not _LOCKS.fullmatch(path):
        text = _COMMENT.sub("", readable_text(repo, path))
        text = _EXPRESSION.sub("$_", _CONTINUED.sub(" ", _with_values(text)))
        if path.endswith((".json", ".jsonc")) and not path.endswith("bower.json"):
            text = _KEY.sub("\n", text)
        lines = [line for line in text.splitlines() if not _PROSE.match(line)]
        if PurePosixPath(path).name == _HOOKS:
            yield from (f"npm install {release}" for release in _RELEASE.findall("\n".join(lines)))
        yield from (line.rstrip(" }],") for line in lines)
    elif _PROGRAMS.fullmatch(path) or _PAGES.fullmatch(path):
        text = readable_text(repo, path)
        text = _code_of_cells(text) if path.endswith(".ipynb") else text
        lines = [line for line in text.splitlines() if not _REMARK.match(line)]
        for line in lines if "npm" in text or "//" in text else ():
            if len(line) <= _MAX_LINE:
                yield from map(str.strip, _ADDRESS.findall(line))
        if _PROGRAMS.fullmatch(path) and any(program in text for program in _CLIENTS):
            yield from _started(_TEMPLATE.sub("$_", "\n".join(lines)))


def _code_of_cells(text: str) -> str:
    """Return a notebook's code, lines of shell cells after ``!``; its whole text if it can't be read."""
    with suppress(ValueError, LookupError, TypeError, RecursionError):
        return "\n".join(
            cell.replace("\n", "\n!") if SHELL_CELL.match(cell) else cell
            for cell in code_cells(text)
        )
    return text


def _started(text: str) -> Iterator[str]:
    """Yield the commands of a program: arguments of calls that run a process, shell lines of a notebook,
    and, if there is any such call, texts in variables that begin like a command."""
    end = 0
    for call in _CALL.finditer(text):
        if call.start() < end or not _RUNS_PROCESS.match(call[1] or ""):
            continue
        if arguments := _ARGUMENTS.match(text, call.end() - call[0].endswith("`")):
            end = arguments.end()
            yield " ".join(arguments[0].split())
    yield from _SHELL_LINE.findall(text)
    for match in _NAMED.finditer(text) if end else ():
        words = (match[1] or match[2] or match[3] or "").split()
        if len(words) > 1 and words[0] in _CLIENTS:
            yield " ".join(words)


def _with_values(text: str) -> str:
    """Return the text with variables of one version replaced by it."""
    if not _VARIABLE.search(text):
        return text
    versions_by_variable: dict[str, set[str]] = {}
    for name, version in _GIVEN.findall(text):
        versions_by_variable.setdefault(name, set()).add(version)

    def value(match: re.Match[str]) -> str:
        versions = versions_by_variable.get(match[1] or match[2] or match[3], set())
        return next(iter(versions)) if len(versions) == 1 else match[0]

    return _VARIABLE.sub(value, text)


def _unlocked(lines: Iterable[tuple[str, str]]) -> Iterator[_Unlocked]:
    """Yield the commands that may run without a lock. Those in a manifest have the lock that is committed
    with it."""
    for path, group in groupby(lines, key=lambda pair: pair[0]):
        if PurePosixPath(path).name == MANIFEST:
            continue
        removed: dict[str, None] = {}
        stages: dict[str, list[str]] = {}
        copied: list[str] = []
        for _, line in group:
            if stage := _STAGE.match(line):
                copied = [*stages.get(stage["base"].lower(), ())]
                stages[(stage["name"] or "").lower()] = copied
            copied += [
                source for source in _got(line) if source not in copied and len(copied) < _MAX_PATHS
            ]
            for segment in _ENDS.split(line):
                for match in _REMOVES.finditer(segment):
                    removed |= dict.fromkeys(
                        _WORD.findall(match["words"])[: _MAX_PATHS - len(removed)]
                    )
                for command in _commands(path, segment):
                    if command.updates or (
                        command.installs and command.text.split()[1:2] != ["ci"]
                    ):
                        image_paths = tuple(copied) if _IMAGE.fullmatch(path) else None
                        yield _Unlocked(
                            path, command.client, command.updates, tuple(removed), image_paths
                        )


def _got(line: str) -> Iterator[str]:
    """Yield the paths that an image's instruction copies; "." for those of another stage."""
    if copies := _COPIES.match(line):
        words = _WORD.findall(copies["words"])
        plain = [word for word in words if not word.startswith("--")]
        yield from ["."] if any(word.startswith("--from=") for word in words) else plain[:-1]
    for mount in _MOUNTED.findall(line):
        yield from _MOUNT_OF.findall(mount) or ["."]


def _commands(path: str, line: str) -> Iterator[ClientCommand]:
    line = _QUOTED.sub(lambda match: match[2].translate(_HIDDEN), line)
    for segment in _ENDS.split(line):
        words = _WORD.findall(segment)
        for at, word in enumerate(words):
            program = word.rpartition("/")[2]
            if program in _CLIENTS:
                yield _command(path, program, words[at:])
                break


def _command(path: str, program: str, words: list[str]) -> ClientCommand:
    plain: list[str] = []
    option_packages: list[str] = []
    client = _CLIENTS[program]
    options_of = program if program == "npx" else client
    may_run = program in _RUNNERS or _verb(options_of, words[1:]) in _RUNS
    rest = iter(words[1:])
    before = ""
    is_after_option = False  # the first plain word
    for word in rest:
        option, separator, value = word.partition("=")
        if option in _PACKAGE and (value or may_run or _RUNS & {*plain}):
            option_packages.append(value or next(rest, ""))
        elif takes_word(options_of, option) and not separator:
            word = next(rest, "")
        elif not word.startswith("-"):
            # A flag may be followed by its value.
            if not (before.startswith("--") and word in {"true", "false"}):
                is_after_option = is_after_option or (not plain and before.startswith("-"))
                plain.append(word)
        elif word == "--" and option_packages:
            break
        before = word
    if client == "yarn" and plain[:1] == ["workspace"]:
        plain = plain[2:]
    if is_after_option and plain[0] not in _FIRST_WORDS and plain[1:2] and plain[1] in _VERBS:
        plain = plain[1:]  # the value of an option that is in no table
    verbs = [word for word in plain[:2] if word != "global"] or [""]
    is_run = program in _RUNNERS or verbs[0] in (_RUNS - ({"exec"} if client != "npm" else set()))
    arguments: list[str] = []
    if is_run:
        arguments = option_packages or plain[0 if program in _RUNNERS else 1 :][:1]
    elif verbs[0] in _ADDS:
        arguments = plain[plain.index(verbs[0]) + 1 :]
    elif verbs[0] in _CREATES:
        is_run = True
        arguments = [_created(argument) for argument in plain[plain.index(verbs[0]) + 1 :][:1]]
    is_open = any("@$" in argument[1:] for argument in arguments)
    arguments = [
        argument.partition("@$")[0] if "@$" in argument[1:] else argument for argument in arguments
    ]
    packages = tuple(sorted({_split(argument) for argument in arguments if _is_package(argument)}))
    text = " ".join(words)
    is_local = _GLOBAL.search(text) is None
    is_plain = verbs[0] in _INSTALLS or (client == "yarn" and not plain)
    installs, updates = is_local and not arguments and is_plain, is_local and verbs[0] in _UPDATES
    text = text.translate(_SHOWN)
    return ClientCommand(path, client, text, packages, is_run, installs, updates, is_open)


def _verb(options_of: str, words: Sequence[str]) -> str:
    """Return the first word that is a verb, and no option's value; empty if there is none."""
    rest = iter(words)
    for word in rest:
        if takes_word(options_of, word):
            next(rest, "")
        elif word in _FIRST_WORDS:
            return word
    return ""


def _created(argument: str) -> str:
    """Return the package that ``npm init`` and ``create`` run for a name."""
    name, version = _split(argument)
    scope, _, rest = name.partition("/") if name.startswith("@") else ("", "", name)
    package = "/".join(filter(None, (scope, f"create-{rest}" if rest else "create")))
    return f"{package}@{version}" if version else package


def _split(argument: str) -> tuple[str, str]:
    name, _, spec = argument[1:].partition("@")
    return argument[0] + name, spec.translate(_SHOWN)


def _is_package(argument: str) -> bool:
    name, spec = _split(argument)
    is_other = argument.startswith(".") or any(char in argument for char in "${}*") or foreign(spec)
    return not is_other and is_package_name(name) and not name.endswith((".tgz", ".tar.gz"))
