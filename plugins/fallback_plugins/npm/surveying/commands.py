"""Commands of npm's clients in files that a build or a person runs: packages that they name, and whether
they read locks.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

from fallback_plugins.npm.manifests.layout import MANIFEST, readable_text
from fallback_plugins.npm.manifests.specs import foreign, is_package_name
from fallback_plugins.shared.identity import is_aside
from fallback_tier.repo import RepoContext

#: Files with commands, package.json's scripts among them.
_FILES = re.compile(
    r"(?:.*/)?(?:(?:Dockerfile|Containerfile|Makefile)[^/]*|package\.json|[^/]+\.(?:dockerfile|sh|bash|mk)"
    r"|(?:docker-)?compose[^/]*\.ya?ml|\.gitlab-ci\.yml)|\.github/.*\.ya?ml"
)

#: Lines that no shell runs, and where one command of a line ends.
_PROSE = re.compile(r"\s*(?:#|//|-?\s*(?:name|description)\s*:)")
_ENDS = re.compile(r"&&|\|\||[;|()&<>]|\s#")
_WORD = re.compile(r"[^\s\"'`,\[\]\\]+")

#: A quoted argument with a range, and letters of it that mean something else outside of quotes.
_QUOTED = re.compile(r"(['\"])((?:@?[\w./-]+@)?[<>=^~][^'\"]*)\1")
_HIDDEN = str.maketrans(" |<>", "\0\1\2\3")
_SHOWN = str.maketrans("\0\1\2\3", " |<>")

#: Clients by program, programs that run a package's own, and verbs that install or run packages.
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
_INSTALLS = _ADDS | {"ci", "clean-install", "ic", "install-clean", "install-test", "it"}

#: Options whose value is the next word.
_VALUED = frozenset(
    {
        *("--prefix", "-C", "--dir", "--cwd", "--filter", "-F", "-w", "--workspace", "--registry"),
        *("--tag", "--userconfig", "--cache", "--loglevel", "--modules-folder", "--store-dir"),
        *("--mutex", "--network-timeout", "--omit", "--include", "-c", "--call"),
    }
)
_PACKAGE = ("--package", "-p")

#: Lines and settings by which a client ignores its lock.
_IGNORES = {
    "npm": re.compile(
        r"--no-(?:package-lock|shrinkwrap)\b|npm_config_(?:package_lock|shrinkwrap)[=:\s]+[\"']?false"
        r"|\b(?:package-lock|shrinkwrap)[=\s]+[\"']?false",
        re.IGNORECASE,
    ),
    "yarn": re.compile(r"\byarn\b.*--no-lockfile\b"),
    "pnpm": re.compile(
        r"\bpnpm\b.*(?:--no-lockfile\b|[-\s]lockfile[=\s]false)"
        r"|npm_config_lockfile[=:\s]+[\"']?false",
        re.IGNORECASE,
    ),
}
_SETTINGS = {
    (".npmrc", "npm"): re.compile(
        r"^\s*(?:package-lock|shrinkwrap)\s*=\s*[\"']?false", re.MULTILINE
    ),
    (".npmrc", "pnpm"): re.compile(r"^\s*lockfile\s*=\s*[\"']?false", re.MULTILINE),
    ("pnpm-workspace.yaml", "pnpm"): re.compile(r"^lockfile\s*:\s*[\"']?false", re.MULTILINE),
    (".yarnrc", "yarn"): re.compile(
        r"^\s*\"?--(?:install\.)?no-lockfile\"?\s+[\"']?true", re.MULTILINE
    ),
}
_GLOBAL = re.compile(r"\s(?:-g|--global|global)\b")


@dataclass(frozen=True)
class ClientCommand:
    """One command of a client. ``text``: as its file has it; ``packages``: name → spec, empty for none, of
    packages that it installs or runs; ``is_run``: it runs them, and takes a project's own first.
    ``installs``: it installs the project."""

    path: str
    client: str
    text: str
    packages: tuple[tuple[str, str], ...] = ()
    is_run: bool = False
    installs: bool = False


@dataclass(frozen=True)
class Commands:
    """All of a repository. ``lines``: (path, line) of every line that names a client."""

    found: tuple[ClientCommand, ...]
    lines: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, repo: RepoContext) -> "Commands":
        """Those of tracked files, but for samples and tests; searched once."""
        return repo.once("npm commands", lambda: cls._search(repo))

    @classmethod
    def _search(cls, repo: RepoContext) -> "Commands":
        lines = tuple(
            (path, line)
            for path in repo.tracked_files
            if _FILES.fullmatch(path)
            and not {"node_modules", "bower_components"} & {*PurePosixPath(path).parts}
            and not is_aside(path)
            for line in readable_text(repo, path).replace("\\\n", " ").splitlines()
            if not _PROSE.match(line)
        )
        found = (one for path, line in lines for one in _commands(path, line))
        return cls(tuple(dict.fromkeys(found)), lines)

    def installers(self, folder: str) -> frozenset[str]:
        """Clients that may install the project of a folder."""
        return frozenset(
            it.client for it in self.found if it.installs and _is_about(it.path, folder)
        )

    def ignore_lock(self, repo: RepoContext, folder: str, client: str) -> bool:
        """Does a command or a setting have the client install a folder's project without its lock?"""
        for (name, whose), setting in _SETTINGS.items():
            path = name if folder == "." else f"{folder}/{name}"
            if whose == client and setting.search(readable_text(repo, path)):
                return True
        pattern = _IGNORES.get(client)
        return pattern is not None and any(
            pattern.search(line) and not _GLOBAL.search(line) and _is_about(path, folder)
            for path, line in self.lines
        )


def _is_about(path: str, folder: str) -> bool:
    """May a file's command be about a folder's project? A manifest's is about its own."""
    pure = PurePosixPath(path)
    return pure.name != MANIFEST or str(pure.parent) == folder


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
    named: list[str] = []
    rest = iter(words[1:])
    for word in rest:
        option, _, value = word.partition("=")
        if option in _PACKAGE and (value or program in _RUNNERS or _RUNS & {*plain}):
            named.append(value or next(rest, ""))
        elif option in _VALUED and not value:
            next(rest, "")
        elif not word.startswith("-"):
            plain.append(word)
        elif word == "--" and named:
            break
    client = _CLIENTS[program]
    verbs = [it for it in plain[:2] if it != "global"] or [""]
    is_run = program in _RUNNERS or verbs[0] in (_RUNS - ({"exec"} if client != "npm" else set()))
    arguments: list[str] = []
    if is_run:
        arguments = named or plain[0 if program in _RUNNERS else 1 :][:1]
    elif verbs[0] in _ADDS:
        arguments = plain[plain.index(verbs[0]) + 1 :]
    packages = tuple(sorted({_split(it) for it in arguments if _is_package(it)}))
    is_global = _GLOBAL.search(" ".join(words)) is not None
    installs = not arguments and (verbs[0] in _INSTALLS or (client == "yarn" and not plain))
    text = " ".join(words).translate(_SHOWN)
    return ClientCommand(path, client, text, packages, is_run, installs and not is_global)


def _split(argument: str) -> tuple[str, str]:
    name, _, spec = argument[1:].partition("@")
    return argument[0] + name, spec.translate(_SHOWN)


def _is_package(argument: str) -> bool:
    name, spec = _split(argument)
    is_other = argument.startswith(".") or any(it in argument for it in "${}*") or foreign(spec)
    return not is_other and is_package_name(name) and not name.endswith((".tgz", ".tar.gz"))
