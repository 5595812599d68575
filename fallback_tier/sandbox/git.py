"""git on a repository that is only data: of its own configuration only an allow-list counts (ADR-0092).

git reads a repository's configuration from the folder that its worktrees share, which GIT_COMMON_DIR names.
Here that is a folder of ours: a `config` with the settings that the allow-list accepts, and links to what
git needs of the real folder. git never opens the repository's own `config`, `config.worktree` or the files
that they include, so a file that is changed meanwhile does no harm. Index, HEAD and a sparse checkout's
patterns are read from the real GIT_DIR, objects from the real folder; references never depend on
GIT_COMMON_DIR.
"""

import os
import re
import stat
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import product
from math import inf
from pathlib import Path
from typing import NamedTuple

from fallback_tier.errors import RepositoryError
from fallback_tier.execution import CommandResult
from fallback_tier.files.inputs import check_ends

#: These settings outrank the user's and the system's configuration, which an empty ``env`` value restores
#: (``SubprocessClients.run``). Filters and credential helpers that the user configures for all repositories
#: are the user's own choice; hooks, monitors and programs that verify signatures are never needed.
_SETTINGS = {
    "core.hooksPath": "/dev/null",
    "core.fsmonitor": "false",
    "gc.auto": "0",
    "maintenance.auto": "false",
    "protocol.allow": "never",
    "log.showSignature": "false",
    "log.mailmap": "false",
    "core.quotePath": "true",
    "submodule.recurse": "false",  # git in a submodule reads that repository's configuration
    "safe.bareRepository": "all",  # a bare repository's configuration doesn't count either
}
#: The user's and the system's configuration: it counts if a caller requests it.
_USERS = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null"}
#: Replacements, grafts and lazy fetches change what a commit means.
_ENVIRONMENT = {
    **_USERS,
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_LITERAL_PATHSPECS": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_GRAFT_FILE": "/dev/null/none",  # git prints advice if this file exists
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_LFS_SKIP_SMUDGE": "1",
    "LC_ALL": "C",
}

#: The settings of a repository's own configuration that count: its format, how its working tree's files
#: compare with the committed ones, and who commits. None of their values is a program, a host or a path of
#: another file.
_ALLOWED = re.compile(
    r"""core\.(repositoryformatversion|filemode|symlinks|ignorecase|precomposeunicode|trustctime|checkstat
        |eol|autocrlf|sharedrepository|logallrefupdates|sparsecheckout|sparsecheckoutcone)
    |index\.sparse
    |extensions\.(objectformat|compatobjectformat|refstorage|relativeworktrees|submodulepathconfig
        |preciousobjects|noop|noop-v1)
    |(?P<identity>(user|author|committer)\.(name|email)|user\.useconfigonly)""",
    re.VERBOSE,
)
#: Extensions that only say where to fetch objects from (nothing is fetched), and that `config.worktree`
#: counts (git lists it with the others).
_DROPPED = frozenset({"extensions.partialclone", "extensions.worktreeconfig"})

#: What git needs of the folder that worktrees share; not `config`, `hooks`, `remotes`, `branches`.
_SHARED = ("objects", "refs", "info", "shallow", "worktrees", "modules")

#: Commands that create a repository, or need none.
_WITHOUT_REPOSITORY = frozenset({"init", "clone", "--version"})

#: Both commands read files and run no program.
_FIND = ("rev-parse", "--path-format=absolute", "--git-dir", "--is-bare-repository", "--git-common-dir",
         "--is-inside-work-tree", "--show-cdup")  # fmt: skip
_LIST = ("config", "--list", "--show-scope", "--show-origin", "-z")

#: The output of the first command, after git's own remarks. The booleans in between separate paths that
#: contain line breaks.
_FOUND = re.compile(
    r"^(?P<git_dir>/.+)\n(?:true|false)\n(?P<common>/.+)\n(?P<inside>true|false)\n(?P<top>.*?)\n?\Z",
    re.DOTALL | re.MULTILINE,
)
_ESCAPED = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})

#: How many repositories are remembered; a process works on a few.
_MAX_KNOWN = 64

#: The largest file of settings, patterns or references that git may read: git's own limit for attributes.
MAX_GIT_FILE_BYTES = 100 * 1024 * 1024

#: The files of a git folder that git opens, and the folders whose files it opens. The index and objects may
#: be large: git reads only what it needs of them.
_OPENED = ("HEAD", "config", "config.worktree", "packed-refs", "shallow", "index",
           "objects/info/alternates")  # fmt: skip
_OPENED_FOLDERS = ("info", "refs", "reftable", "objects")
_INCLUDES = ("--no-includes", "-z", "--get-regexp", r"^include(if\..*)?\.path$")

#: Run git with these arguments in this folder, with these variables added.
RunGit = Callable[[Sequence[str], Path, Mapping[str, str]], CommandResult]


def git_environment() -> dict[str, str]:
    """Return the variables of every git command."""
    numbered = {"GIT_CONFIG_COUNT": str(len(_SETTINGS))}
    for number, (key, value) in enumerate(_SETTINGS.items()):
        numbered |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return _ENVIRONMENT | numbered


class _Repository(NamedTuple):
    """A repository as git found it, with the files that it depends on and their states at that time."""

    variables: dict[str, str]
    common: Path
    config: str
    files: tuple[Path, ...]
    states: tuple[tuple[int, ...], ...]


class GitRepositories:
    """The repositories of git commands, each found once, and again when it has changed."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], _Repository] = {}

    def run(
        self, run_git: RunGit, args: Sequence[str], cwd: Path, env: Mapping[str, str]
    ) -> CommandResult:
        """Run a git command on the repository of ``cwd``, or of GIT_DIR in ``env``.

        If there is none, or it is another user's, return git's own result. Raises RepositoryError if
        reading a file that git would open may never end.
        """
        cwd = cwd.absolute()  # because variables name the folders that git finds
        if _subcommand(args) in _WITHOUT_REPOSITORY:
            return run_git(args, cwd, env)
        repository = self._find(run_git, cwd, env)
        if isinstance(repository, CommandResult):
            return repository
        # With GIT_COMMON_DIR git takes no `core.bare` from the configuration.
        bare = (
            () if repository.variables["GIT_WORK_TREE"] or "GIT_WORK_TREE" in env else ("--bare",)
        )
        with _shared_folder(repository) as shared_folder:
            variables = {**repository.variables, "GIT_COMMON_DIR": shared_folder, **env}
            return run_git((*bare, *args), cwd, variables)

    def _find(
        self, run_git: RunGit, cwd: Path, env: Mapping[str, str]
    ) -> _Repository | CommandResult:
        """Return the repository, or git's refusal.

        Ownership is judged here, by the user's ``safe.directory``: git does not judge a folder that GIT_DIR
        names. Raises RepositoryError.
        """
        git_dir = env.get("GIT_DIR", "")
        key = (git_dir, "" if git_dir and "GIT_WORK_TREE" in env else str(cwd))
        cached = self._known.get(key)
        if cached is not None and cached.states == _states(cached.files):
            return cached
        variables = {**dict.fromkeys(_USERS, ""), "GIT_DIR": git_dir}
        for folder in check_git_folder(Path(git_dir) if git_dir else _git_folder_of(cwd)):
            for name in ("config", "config.worktree"):
                _check_included(run_git, folder / name)
        located = run_git(_FIND, cwd, variables)
        listed = run_git(_LIST, cwd, variables) if located.ok else located
        if not listed.ok:
            return listed
        match = _FOUND.search(located.output)
        if match is None:
            return _refused(located, f"git's answer can't be read: {located.output!r}")
        repository = _read(cwd, match, listed)
        if isinstance(repository, _Repository):
            if len(self._known) >= _MAX_KNOWN:
                self._known.clear()
            self._known[key] = repository
        return repository


def _read(cwd: Path, location: re.Match[str], listed: CommandResult) -> _Repository | CommandResult:
    """Return a repository as git describes it, or a refusal if its format is not known here."""
    git_dir, common = Path(location["git_dir"]), Path(location["common"])
    files = [cwd / ".git", git_dir, common / "config", git_dir / "config.worktree"]
    settings, allowed = {}, {}
    fields = listed.output.split("\0")
    for scope, origin, setting in zip(fields[::3], fields[1::3], fields[2::3], strict=False):
        name = setting.partition("\n")[0]
        match = _ALLOWED.fullmatch(name)
        # git's remarks precede the first scope. Who commits counts from every scope: the user's
        # configuration may set it on a condition on remotes, which are dropped.
        if scope.endswith(("local", "worktree")) or (match and match["identity"]):
            settings[name] = setting
            files.append(cwd / origin.removeprefix("file:"))
            if match:
                allowed[name] = setting
    if allowed.get("core.repositoryformatversion", "").partition("\n")[2] not in {"", "0"}:
        extensions = {name for name in settings if name.startswith("extensions.")}
        if unknown := min(extensions - allowed.keys() - _DROPPED, default=None):
            return _refused(listed, f"{common / 'config'} sets {unknown}, which is not known here")
    # If git is neither inside a working tree nor knows of one: bare, or the git folder itself.
    top = str(cwd / location["top"]) if location["inside"] == "true" else location["top"]
    files = [*dict.fromkeys(files)]
    return _Repository(
        variables={
            "GIT_DIR": str(git_dir),
            "GIT_WORK_TREE": top,
            "GIT_OBJECT_DIRECTORY": str(common / "objects"),
        },
        common=common,
        config="".join(map(_line, allowed.values())),
        files=tuple(files),
        states=_states(files),
    )


def check_git_file(path: Path, max_bytes: float = MAX_GIT_FILE_BYTES) -> None:
    """Raise RepositoryError if git might read this file without an end: it is, or leads to, a named pipe, a
    socket or a device, or it is larger than ``max_bytes``."""
    try:
        status = path.stat()
    except OSError:
        return  # git reports what it can't open
    if stat.S_ISDIR(status.st_mode):
        return
    try:
        check_ends(path, status)
    except OSError as error:
        problem = f"{path} is not given to git: {error.strerror}."
    else:
        if status.st_size <= max_bytes:
            return
        problem = f"{path} is not given to git: it is larger than {max_bytes:,} bytes."
    raise RepositoryError(
        problem,
        next_step="Remove it, or replace it with the regular file that git expects there.",
        kind="endless_file",
    )


def check_git_folder(git_path: Path) -> tuple[Path, ...]:
    """Return the git folders that a ``.git`` leads to: its own, and the one that worktrees share. Raises
    RepositoryError as ``check_git_file``."""
    seen: dict[Path, None] = {}
    waiting = [git_path]
    while waiting:
        folder = waiting.pop()
        for file in (folder, folder / "commondir"):
            check_git_file(file)
        if folder not in seen:
            seen[folder] = None
            waiting += [folder.parent / link for link in _text(folder).split("gitdir:")[1:2]]
            waiting += [folder / shared for shared in _text(folder / "commondir").splitlines()[:1]]
    for name, folder in product(_OPENED, seen):
        check_git_file(folder / name, inf if name == "index" else MAX_GIT_FILE_BYTES)
    for name, folder in product(_OPENED_FOLDERS, seen):
        limit = inf if name == "objects" else MAX_GIT_FILE_BYTES
        for parent, _, files in os.walk(folder / name):
            for file_name in files:
                check_git_file(Path(parent, file_name), limit)
    return tuple(seen)


def _text(path: Path) -> str:
    """Return a small file's text without its last line end, or nothing if it can't be read."""
    try:
        return path.read_text("utf-8", "surrogateescape").replace("\0", "").strip()
    except OSError:
        return ""


def _git_folder_of(cwd: Path) -> Path:
    """Return the path at which git finds the repository of a folder, if it is in one."""
    for folder in (cwd, *cwd.parents):
        if os.path.lexists(folder / ".git"):
            return folder / ".git"
        if os.access(folder / "objects/.", os.F_OK) and os.access(folder / "refs/.", os.F_OK):
            break
    return folder


def _check_included(run_git: RunGit, config: Path) -> None:
    """Check the files that a configuration and its included files include. Raises RepositoryError."""
    waiting, checked = [config], set[Path]()
    while waiting:
        file = waiting.pop()
        check_git_file(file)
        if file in checked or "include" not in _text(file).lower():
            continue
        checked.add(file)
        # Run outside the repository: inside it, git would first read all that its configuration includes.
        listed = run_git(("config", "--file", str(file), *_INCLUDES), Path(file.anchor), {})
        paths = [setting.partition("\n")[2] for setting in listed.output.split("\0")]
        home = os.environ.get("HOME", "")
        waiting += [file.parent / re.sub(r"^~(?=/)", home, path) for path in paths if path]


@contextmanager
def _shared_folder(repository: _Repository) -> Iterator[str]:
    """Yield, for one command, the folder that git uses as the one that worktrees share."""
    with tempfile.TemporaryDirectory(prefix="fallback-tier-git-") as name:
        folder = Path(name)
        (folder / "config").write_text(repository.config, encoding="utf-8")
        for entry in _SHARED:
            (folder / entry).symlink_to(repository.common / entry)
        yield name


def _line(setting: str) -> str:
    """Return a setting of `git config --list -z` in the form of a file."""
    name, is_set, value = setting.partition("\n")
    section, _, key = name.partition(".")
    return f"[{section}]\n\t{key}" + (f' = "{value.translate(_ESCAPED)}"\n' if is_set else "\n")


def _states(files: Sequence[Path]) -> tuple[tuple[int, ...], ...]:
    """Return values which show that a file was replaced or written to, or that a folder was replaced."""
    return tuple(map(_state, files))


def _state(path: Path) -> tuple[int, ...]:
    try:
        status = path.stat()
    except OSError:
        return ()
    identity = (status.st_dev, status.st_ino)
    is_folder = stat.S_ISDIR(status.st_mode)
    return (
        identity
        if is_folder
        else (*identity, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
    )


def _subcommand(args: Sequence[str]) -> str:
    words = iter(args)
    for word in words:
        if word != "-c":
            return word
        next(words, None)
    return ""


def _refused(result: CommandResult, why: str) -> CommandResult:
    return result.model_copy(update={"exit_code": 128, "output": f"fatal: {why}\n"})
