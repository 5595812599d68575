"""The git folder of a checkout: the history that a target's commands can see, and no more (ADR-0117).

Tests and builds ask git for the commit, the tags, the tracked files. A checkout has its own objects: the
base commit's history and the tags in it. Nothing else of the user's repository is accessible: no other
branch, no object that only a reflog has, no remote, no configuration, no hook.
"""

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from fallback_tier.errors import ToolFailedError
from fallback_tier.execution import ClientRunner
from fallback_tier.files.tree import ABSENT, RawChange
from fallback_tier.gates.trees.isolation import USERS_CONFIGURATION, alternates, git
from fallback_tier.repo import RepoContext

#: How many of the newest commits are kept with their files. Of all others only the commits are: `git log`
#: and `git describe` read no more, and the files of 20,000 commits are 400 MB.
WHOLE_COMMITS = 50

_SUBMODULE = "160000"


def keep_history(repo: RepoContext, tree: Path, clients: ClientRunner) -> None:
    """Give a checkout its own objects, so that it borrows none of the user's; objects that a shallow or
    partial clone lacks are left out.

    Raises OSError; ToolFailedError if the base commit's own objects can't be copied.
    """
    git_dir, commit = tree / ".git", repo.base_commit
    query = ["rev-parse", "--path-format=absolute", "--git-path", "shallow"]
    shallow = Path(git(clients, repo.root, query, USERS_CONFIGURATION).removesuffix("\n"))
    cut = shallow.read_text("ascii") if shallow.is_file() else ""
    with suppress(ToolFailedError):  # a partial clone may lack a tag's object
        form = "--format=%(objectname) %(refname)"
        tags = ["for-each-ref", f"--merged={commit}", form, "refs/tags"]
        listed = git(clients, repo.root, tags, USERS_CONFIGURATION)
        (git_dir / "packed-refs").write_text(listed, encoding="utf-8")
    (git_dir / "shallow").write_text(cut, encoding="ascii")
    whole_edge = _keep_whole(tree, commit, clients)
    (git_dir / "shallow").write_text(cut, encoding="ascii")
    if whole_edge is not None:
        try:
            _copy(tree, clients, "--filter=tree:0", "HEAD", "--tags")
        except ToolFailedError:
            (git_dir / "shallow").write_text(whole_edge, encoding="ascii")
            (git_dir / "packed-refs").unlink(missing_ok=True)
    alternates(tree).unlink()
    if not (git_dir / "shallow").read_bytes():
        (git_dir / "shallow").unlink()


def _keep_whole(tree: Path, commit: str, clients: ClientRunner) -> str | None:
    """Copy the newest commits with their files. Return those of them whose parents are left out, or None if
    all of the history and its tags was copied."""
    for count in (WHOLE_COMMITS, 1):
        query = ["rev-list", f"--max-count={count}", "--parents", commit]
        commits = [line.split() for line in git(clients, tree, query).splitlines()]
        copied_ids = {row[0] for row in commits}
        edge = "".join(f"{row[0]}\n" for row in commits if not copied_ids.issuperset(row[1:]))
        try:
            if not edge:
                _copy(tree, clients, "HEAD", "--tags")
                return None
            with (tree / ".git" / "shallow").open("a", encoding="ascii") as file:
                file.write(edge)
            _copy(tree, clients, "HEAD")
        except ToolFailedError:
            if count == 1:
                raise
        else:
            return edge
    raise AssertionError


def _copy(tree: Path, clients: ClientRunner, *revisions: str) -> None:
    bundle = tree / ".git" / "history.bundle"
    try:
        git(clients, tree, ["bundle", "create", "--quiet", str(bundle), *revisions])
        git(clients, tree, ["bundle", "unbundle", str(bundle)])
    finally:
        bundle.unlink(missing_ok=True)


def _environment(git_dir: Path, files: Path, index: Path, target: Path) -> dict[str, str]:
    """Return the variables for git on a folder whose objects and index are written elsewhere."""
    (target / "objects").mkdir(parents=True, exist_ok=True)
    return {
        "GIT_DIR": str(git_dir),
        "GIT_WORK_TREE": str(files),
        "GIT_INDEX_FILE": str(index),
        "GIT_OBJECT_DIRECTORY": str(target / "objects"),
        "GIT_ALTERNATE_OBJECT_DIRECTORIES": str(git_dir / "objects"),
    }


def commit_index(
    git_dir: Path, index: Path, made: Path, commit: str, clients: ClientRunner
) -> None:
    """Make HEAD the index's content, in ``made``: a git folder, or a layer over ``git_dir``.

    The commit is the base's with other files, with its parents, author, dates, message and tags, so that
    `git describe` prints the same for both. Raises ToolFailedError.
    """
    env = _environment(git_dir, git_dir.parent, index, made)

    def ask(*words: str) -> str:
        return git(clients, git_dir.parent, words, env)

    def rewritten(kind: str, name: str, line: str) -> str:
        """Write an object again, with another first line."""
        text = line + ask("cat-file", kind, name).partition("\n")[2]
        written = made / "object"
        written.write_text(text, encoding="utf-8")
        try:
            return ask("hash-object", "-w", "-t", kind, str(written)).strip()
        finally:
            written.unlink()

    new = rewritten("commit", commit, f"tree {ask('write-tree').strip()}\n")
    (made / "HEAD").write_text(f"{new}\n", encoding="ascii")
    form = "--format=%(objecttype) %(objectname) %(refname)"
    new_ids = {}
    for row in ask("for-each-ref", f"--points-at={commit}", form, "refs/tags").splitlines():
        kind, name, ref = row.split(" ", 2)
        new_ids[ref] = rewritten("tag", name, f"object {new}\n") if kind == "tag" else new
    if new_ids:
        refs = (git_dir / "packed-refs").read_text(encoding="utf-8").splitlines()
        lines = (
            f"{new_ids.get(ref, name)} {ref}\n"
            for name, _, ref in (line.partition(" ") for line in refs)
        )
        (made / "packed-refs").write_text("".join(lines), encoding="utf-8")


def changed_index(
    git_dir: Path, files: Path, changes: Iterable[RawChange], index: Path, clients: ClientRunner
) -> None:
    """Write the index of ``git_dir`` with these changes to ``index``: ``files`` has the new files. Raises
    ToolFailedError."""
    index.write_bytes((git_dir / "index").read_bytes())
    env = _environment(git_dir, files, index, index.parent)
    entries = [*changes]
    removed = [change.path for change in entries if change.new_mode == ABSENT]
    present = [change.path for change in entries if change.new_mode not in {ABSENT, _SUBMODULE}]
    for option, paths in (("--force-remove", removed), ("--add", present)):
        if paths:
            git(clients, files, ["update-index", "--replace", option, "--", *paths], env)
