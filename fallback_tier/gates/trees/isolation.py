"""Read-only access to the user's repository: its facts, and checkouts of its base commit elsewhere.

A checkout is a separate repository that *borrows* the user's objects (gitrepository-layout(5),
``objects/info/alternates``) until it has copied what it needs (``private_git``). Unlike ``git worktree
add`` it leaves no entry in the user's ``.git``, and unlike ``git clone`` it starts no transport and copies
no configuration and no hooks, so that no program that the target names is executed here. Of the
repository's own configuration only an allow-list counts (ADR-0092). Filters (also LFS) don't run in a
checkout either: a file that a filter would replace stays as committed. Submodules are not checked out.
"""

import errno
import hashlib
import os
import posixpath
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath

from pydantic import Field

from fallback_audit.frozen import Frozen
from fallback_tier.errors import RepositoryError, ToolFailedError
from fallback_tier.execution import ClientRunner, CommandResult
from fallback_tier.limits import MAX_FILE_BYTES, MAX_TRACKED_FILES
from fallback_tier.patch.paths import unsafe_reason
from fallback_tier.repo import OddName, RepoContext
from fallback_tier.sandbox.git import check_git_file, check_git_folder

#: The limit of one git command. A checkout of 50,000 files takes 8 s on two cores.
GIT_TIMEOUT_S = 300.0

#: How many characters of git's output an error quotes.
_QUOTED_CHARS = 2_000

#: What git-lfs commits in place of a file, without extensions of its format.
_LFS_POINTER = re.compile(
    r"version https://\S+/spec/v1\noid sha256:(?P<oid>[0-9a-f]{64})\nsize (?P<size>[0-9]+)\n"
)

#: How many paths one command gets: the system takes 2 MiB of arguments.
_PATHS_PER_COMMAND = 2_000

#: git's mode of a submodule.
_SUBMODULE = "160000"

_DUBIOUS = "dubious ownership"
#: git's remarks precede its answer, in the same pipe.
_WARNINGS = re.compile(r"\A(?:(?:warning|hint): [^\n\0]*\n)+")

#: Ownership is judged with the user's own configuration, which contains safe.directory; an empty value
#: restores it (``SubprocessClients.run``).
USERS_CONFIGURATION = {"GIT_CONFIG_GLOBAL": "", "GIT_CONFIG_NOSYSTEM": ""}


class RepositoryFacts(Frozen):
    """A user's repository as found. ``dirty``: tracked files that differ from the base commit; ``hidden``:
    those of them that `git status` passes over; ``laid_out_with_crlf``: as ``RepoContext`` has them."""

    root: Path
    base_commit: str
    tracked_files: tuple[str, ...]
    tracked_files_cut: bool
    dirty: tuple[str, ...]
    hidden: tuple[str, ...] = ()
    odd_names: dict[str, OddName] = Field(default_factory=dict)
    laid_out_with_crlf: frozenset[str] = frozenset()


def inspect_repository(path: Path, clients: ClientRunner) -> RepositoryFacts:
    """Inspect the user's repository, read-only; a dirty tree is not an error here.

    Raises RepositoryError if the path is not a folder, not the root of a working tree, another user's,
    without a commit, or if files that git opens include a named pipe or the like.
    """
    if not path.is_dir():
        raise RepositoryError(
            f"{str(path)!r} is not a folder.",
            next_step="Name the root of a git repository.",
            kind="not_a_folder",
        )
    path = path.resolve()
    if (shown := printable(str(path))) != str(path):
        raise RepositoryError(
            f"'{shown}' is a path that is not UTF-8, so no record could name it.",
            next_step="Move the repository to a path that is, or clone it there.",
            kind="path_not_utf8",
        )
    root = Path(_ask_top_level(path, clients))
    if root != path:
        raise RepositoryError(
            f"{path} lies inside the repository {root}, it is not one itself.",
            next_step=f"Run it on {root}, or `git init` and commit here.",
            kind="inside_another",
        )
    head = _inspect(clients, root, ["rev-parse", "--quiet", "--verify", "HEAD^{commit}"])
    if head.exit_code != 0:
        raise RepositoryError(
            f"{root} has no commit yet.",
            next_step="Commit the files that are to be fixed: a fix starts from a commit.",
            kind="no_commit",
        )
    # Without -z git quotes names that are not plain ASCII: so every byte of a name is passed on, as text.
    lines = git(clients, root, ["ls-files", "-v", "--stage"], USERS_CONFIGURATION).splitlines()
    index = [line.partition("\t") for line in lines]
    quoted_names = [name for _, _, name in index]
    passed_over_names = [
        unquoted(name) for facts, _, name in index if facts[0].islower() or facts[0] == "S"
    ]
    submodules = [unquoted(name) for facts, _, name in index if facts.split()[1] == _SUBMODULE]
    check_git_reads(root, {*map(posixpath.dirname, map(unquoted, quoted_names))}, submodules)
    status = ["status", "--porcelain=v1", "--untracked-files=no", "--no-renames"]
    dirty = git(clients, root, [*status, "--ignore-submodules=dirty"], USERS_CONFIGURATION)
    entries = [(line[:2], unquoted(line[len("XY ") :])) for line in dirty.splitlines()]
    lfs_files = _as_pointers_name([path for code, path in entries if code == " M"], root, clients)
    changed = [path for _, path in entries if path not in lfs_files]
    hidden = _changed_in_secret(root, passed_over_names, clients)
    tracked = [unquoted(line) for line in quoted_names[:MAX_TRACKED_FILES]]
    return RepositoryFacts(
        root=root,
        base_commit=head.output.strip(),
        tracked_files=tuple(map(printable, tracked)),
        tracked_files_cut=len(quoted_names) > MAX_TRACKED_FILES,
        dirty=tuple(map(printable, (*changed, *hidden))),
        hidden=tuple(map(printable, hidden)),
        laid_out_with_crlf=_laid_out_with_crlf(root, tracked, clients),
        odd_names={
            printable(name): problem
            for name, line in zip(tracked, quoted_names, strict=False)
            if line.startswith('"') and (problem := odd_name(name)) is not None
        },
    )


def check_git_reads(root: Path, folders: Iterable[str], submodules: Iterable[str] = ()) -> None:
    """Check the files that git opens for the files of these folders, and in submodules. Raises
    RepositoryError if reading one may never end (a named pipe)."""
    all_folders = {parent for folder in folders for parent in (PurePosixPath(folder) / "x").parents}
    for name in (".gitattributes", ".gitignore"):
        for folder in sorted(all_folders):
            check_git_file(root / folder / name)
    check_git_file(root / ".gitmodules")
    for submodule in submodules:
        check_git_folder(root / submodule / ".git")


def _changed_in_secret(root: Path, paths: Sequence[str], clients: ClientRunner) -> list[str]:
    """Return those of the paths that differ from the index: `git status` omits what `git update-index` has
    marked as unchanged or as not in the working tree. A missing file is not a change: a sparse checkout."""
    existing = [path for path in paths if os.path.lexists(root / path)]
    regular = [
        path for path in existing if (root / path).is_file() and not (root / path).is_symlink()
    ]
    if not regular:
        return existing
    command = ["ls-files", "--stage", "-z", "--", *regular]
    staged = git(clients, root, command, USERS_CONFIGURATION).split("\0")[:-1]
    committed = {entry.partition("\t")[2]: entry.split()[1] for entry in staged}
    hashes = git(clients, root, ["hash-object", "--", *regular], USERS_CONFIGURATION).split()
    unchanged = {
        path for path, blob in zip(regular, hashes, strict=True) if committed.get(path) == blob
    }
    return [path for path in existing if path not in unchanged]


def _as_pointers_name(paths: Sequence[str], root: Path, clients: ClientRunner) -> set[str]:
    """Return the files whose content git-lfs's pointer in the index names: git's comparing filter doesn't
    run if only the repository configures it."""
    matching = set()
    for path, name in _filters(paths, root, clients).items():
        if name == "lfs" and (file := root / path).is_file():
            pointer = git(clients, root, ["cat-file", "blob", f":0:{path}"], USERS_CONFIGURATION)
            match = _LFS_POINTER.fullmatch(pointer)
            if match is not None and file.stat().st_size == int(match["size"]):
                with file.open("rb") as content:
                    if hashlib.file_digest(content, "sha256").hexdigest() == match["oid"]:
                        matching.add(path)
    return matching


def _laid_out_with_crlf(
    root: Path, tracked: Sequence[str], clients: ClientRunner
) -> frozenset[str]:
    """Return the files with LF in the commit and CRLF in the working tree (`core.autocrlf`, `core.eol`,
    attributes, an editor), or in a checkout of ours (attributes alone).

    Files that are too large are left out: git would hold them in memory.
    """
    large = [path for path in tracked if _size(root / path) > MAX_FILE_BYTES]
    env = USERS_CONFIGURATION | {"GIT_LITERAL_PATHSPECS": ""}
    search = [
        "grep",
        "--files-with-matches",
        "-I",
        "--no-color",
        "--full-name",
        "-e",
        "\r$",
        "--",
        ".",
    ]
    search += [f":(exclude,literal){path}" for path in large[:_PATHS_PER_COMMAND]]
    searched = clients.run("git", search, cwd=root, timeout_s=GIT_TIMEOUT_S, env=env)
    if searched.exit_code not in {0, 1}:
        raise git_failed(f"git grep in {root}", in_short(searched.output))
    paths = [f":(literal){unquoted(line)}" for line in searched.output.splitlines()]
    parts = [paths[at : at + _PATHS_PER_COMMAND] for at in range(0, len(paths), _PATHS_PER_COMMAND)]
    rows = [
        row
        for part in ([":(attr:eol=crlf)"], *parts)
        for row in git(clients, root, ["ls-files", "--eol", "--", *part], env).splitlines()
    ]
    facts = (row.partition("\t") for row in rows)
    return frozenset(
        printable(unquoted(name)) for ends, _, name in facts if ends.startswith("i/lf")
    )


def _size(path: Path) -> int:
    try:
        return path.lstat().st_size
    except OSError:
        return 0


def filters_of(paths: Sequence[str], root: Path, clients: ClientRunner) -> frozenset[str]:
    """Return the filters that git's attributes select for these files. Raises ToolError."""
    return frozenset(_filters(paths, root, clients).values()) - {"unspecified", "unset", "set"}


def _filters(paths: Sequence[str], root: Path, clients: ClientRunner) -> dict[str, str]:
    command = ["check-attr", "-z", "filter", "--", *paths]
    fields = git(clients, root, command, USERS_CONFIGURATION).split("\0") if paths else []
    return dict(zip(fields[::3], fields[2::3], strict=False))


def contained_tags(root: Path, commit: str, clients: ClientRunner) -> tuple[str, ...]:
    """Return the tags that a commit contains, of those in this clone. Raises RepositoryError, ToolError."""
    listed = git(clients, root, ["tag", "--merged", commit], USERS_CONFIGURATION)
    return tuple(listed.splitlines())


#: The messages of a full disk: the system's, and git's own about its index.
_DISK_FULL = (os.strerror(errno.ENOSPC), "Out of diskspace")

#: The beginning of a line that git got from a server.
_OF_A_SERVER = "remote: "


def check_out(repo: RepoContext, tree: Path, clients: ClientRunner) -> None:
    """Check out the base commit, detached, in the empty folder ``tree``.

    Raises RepositoryError if objects are missing (a partial clone), OSError on a full disk,
    ToolFailedError.
    """
    root = repo.root
    query = ["rev-parse", "--path-format=absolute", "--git-path", "objects", "--show-object-format"]
    objects, _, object_format = (
        git(clients, root, query, USERS_CONFIGURATION).strip().rpartition("\n")
    )
    if "\n" in objects:
        raise RepositoryError(
            f"The repository's path {str(root)!r} has a line break.",
            next_step="Move it to a path without one.",
        )
    git(clients, tree, ["init", "--quiet", "--template=", f"--object-format={object_format}"])
    alternates_file = alternates(tree)
    alternates_file.parent.mkdir(parents=True, exist_ok=True)
    alternates_file.write_text(f"{objects}\n", encoding="utf-8")
    checkout = ["checkout", "--quiet", "--detach", "--force", repo.base_commit]
    result = clients.run("git", checkout, cwd=tree, timeout_s=GIT_TIMEOUT_S)
    if says_disk_full(result.output):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(tree))
    if result.exit_code != 0:
        raise RepositoryError(
            f"Commit {repo.base_commit} of {root} can't be checked out: {in_short(result.output)}",
            next_step="Check it with `git fsck`; a partial clone needs its objects fetched.",
            kind="no_checkout",
        )


def says_disk_full(output: str) -> bool:
    """Return whether git reports that space is lacking here; what it quotes of a server doesn't count."""
    local_lines = [line for line in output.splitlines() if not line.startswith(_OF_A_SERVER)]
    return any(message in line for line in local_lines for message in _DISK_FULL)


def alternates(tree: Path) -> Path:
    """Return the file of a checkout that names the folder of the user's objects."""
    return tree / ".git" / "objects" / "info" / "alternates"


def _ask_top_level(path: Path, clients: ClientRunner) -> str:
    answer = _inspect(clients, path, ["rev-parse", "--show-toplevel"])
    if answer.exit_code == 0:
        return answer.output.removesuffix("\n")
    if _DUBIOUS in answer.output:
        raise RepositoryError(
            f"{path} belongs to another user, so git does not trust it.",
            next_step="Run as its owner, or `git config --global --add safe.directory PATH`.",
            kind="another_user",
        )
    if "work tree" in answer.output:
        raise RepositoryError(
            f"{path} is a bare repository.",
            next_step="Name a checkout of it (`git clone`).",
            kind="bare",
        )
    raise RepositoryError(
        f"{path} is not a git repository: {in_short(answer.output)}",
        next_step="`git init` and commit, or name another folder.",
        kind="not_a_repository",
    )


def _inspect(clients: ClientRunner, root: Path, args: Sequence[str]) -> CommandResult:
    env = USERS_CONFIGURATION
    result = clients.run("git", args, cwd=root, timeout_s=GIT_TIMEOUT_S, env=env)
    if result.exit_code is None:
        raise git_failed(
            f"git {args[0]} in {root}", f"it had not ended after {GIT_TIMEOUT_S:.0f} s"
        )
    return result


def git(
    clients: ClientRunner, cwd: Path, args: Sequence[str], env: Mapping[str, str] | None = None
) -> str:
    """Return git's output. Raises ToolFailedError if git fails, takes too long or prints too much."""
    result = clients.run("git", args, cwd=cwd, timeout_s=GIT_TIMEOUT_S, env=env)
    if not result.ok or result.truncated:
        why = "was too long" if result.truncated else in_short(result.output) or "took too long"
        raise git_failed(f"git {args[0]} in {cwd}", why)
    return _WARNINGS.sub("", result.output)


def git_failed(what: str, why: str, *, kind: str = "") -> ToolFailedError:
    """Return the error for an operation that git should have been able to do."""
    return ToolFailedError(
        f"{what} failed: {why}",
        next_step="Run that command by hand in the repository to see what is wrong.",
        output=why,
        kind=kind,
    )


def in_short(output: str) -> str:
    """Return the end of git's output, on one line."""
    return " ".join(output[-_QUOTED_CHARS:].split())


# Names of files as git quotes them, and why some files are left out: not UTF-8, or not possible in a patch.

#: git-config(1), core.quotePath: as C writes strings, a byte as three octal digits.
_ESCAPE = re.compile(rb"\\(?:([0-7]{3})|(.))")
_LETTERS = {b"a": 7, b"b": 8, b"t": 9, b"n": 10, b"v": 11, b"f": 12, b"r": 13}


def unquoted(name: str) -> str:
    """Return a path printed by git as a name on the disk; surrogates represent bytes that aren't UTF-8."""
    if not name.startswith('"'):
        return name
    return _ESCAPE.sub(_byte, name[1:-1].encode()).decode("utf-8", "surrogateescape")


def printable(name: str) -> str:
    """Return a name as it can be shown and recorded: bytes that are not UTF-8 as ``\\xe9``."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def odd_name(name: str) -> OddName | None:
    """Return why a file of this name is left out, or None if its name is not odd."""
    shown = printable(name)
    if shown != name:
        return OddName(real=name, problem=f"'{shown}' has a name that is not UTF-8.")
    if (why := unsafe_reason(name)) is not None:
        return OddName(real=name, problem=f"{name!r} has a name that no patch can have: {why}.")
    return None


def _byte(escape: re.Match[bytes]) -> bytes:
    octal, letter = escape.groups()
    return bytes([int(octal, 8) if octal else _LETTERS.get(letter, letter[0])])
