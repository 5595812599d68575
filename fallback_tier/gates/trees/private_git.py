"""The git folder of a checkout: what a target's commands find of its history, and no more (ADR-0117).

Tests and builds ask git for the commit, the tags, the tracked files. A checkout has its own objects: the
base commit's history and the tags in it. Nothing else of the user's repository is in reach: no other
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

#: Newest commits whose files are kept. Of all others the commits alone are: `git log` and `git describe`
#: read no more, and the files of 20,000 commits are 400 MB.
WHOLE_COMMITS = 50

_SUBMODULE = "160000"


def keep_history(repo: RepoContext, tree: Path, clients: ClientRunner) -> None:
    """Give a checkout its own objects, so that it borrows none of the user's; what a shallow or partial
    clone lacks is left out. Raises OSError; ToolFailedError if the base commit's own objects can't be
    copied."""
    git_dir, commit = tree / ".git", repo.base_commit
    ask = ["rev-parse", "--path-format=absolute", "--git-path", "shallow"]
    shallow = Path(git(clients, repo.root, ask, USERS_CONFIGURATION).removesuffix("\n"))
    cut = shallow.read_text("ascii") if shallow.is_file() else ""
    with suppress(ToolFailedError):  # a partial clone may lack a tag's object
        form = "--format=%(objectname) %(refname)"
        tags = ["for-each-ref", f"--merged={commit}", form, "refs/tags"]
        listed = git(clients, repo.root, tags, USERS_CONFIGURATION)
        (git_dir / "packed-refs").write_text(listed, encoding="utf-8")
    (git_dir / "shallow").write_text(cut, encoding="ascii")
    whole = _keep_whole(tree, commit, clients)
    (git_dir / "shallow").write_text(cut, encoding="ascii")
    if whole is not None:
        try:
            _copy(tree, clients, "--filter=tree:0", "HEAD", "--tags")
        except ToolFailedError:
            (git_dir / "shallow").write_text(whole, encoding="ascii")
            (git_dir / "packed-refs").unlink(missing_ok=True)
    alternates(tree).unlink()
    if not (git_dir / "shallow").read_bytes():
        (git_dir / "shallow").unlink()


def _keep_whole(tree: Path, commit: str, clients: ClientRunner) -> str | None:
    """Copy the newest commits with their files. Return those of them whose parents are left out; None: that
    was all of the history, and its tags."""
    for count in (WHOLE_COMMITS, 1):
        ask = ["rev-list", f"--max-count={count}", "--parents", commit]
        kept = [line.split() for line in git(clients, tree, ask).splitlines()]
        known = {row[0] for row in kept}
        edge = "".join(f"{row[0]}\n" for row in kept if not known.issuperset(row[1:]))
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


def _copy(tree: Path, clients: ClientRunner, *what: str) -> None:
    bundle = tree / ".git" / "history.bundle"
    try:
        git(clients, tree, ["bundle", "create", "--quiet", str(bundle), *what])
        git(clients, tree, ["bundle", "unbundle", str(bundle)])
    finally:
        bundle.unlink(missing_ok=True)


def _environment(git_dir: Path, files: Path, index: Path, made: Path) -> dict[str, str]:
    """Of git on a folder whose objects and index are written elsewhere."""
    (made / "objects").mkdir(parents=True, exist_ok=True)
    return {
        "GIT_DIR": str(git_dir),
        "GIT_WORK_TREE": str(files),
        "GIT_INDEX_FILE": str(index),
        "GIT_OBJECT_DIRECTORY": str(made / "objects"),
        "GIT_ALTERNATE_OBJECT_DIRECTORIES": str(git_dir / "objects"),
    }


def commit_index(
    git_dir: Path, index: Path, made: Path, commit: str, clients: ClientRunner
) -> None:
    """Make HEAD the index's content, in ``made``: a git folder, or a layer over ``git_dir``. The commit is
    the base's with other files, with its parents, author, dates, message and tags, so that `git describe`
    says the same of both. Raises ToolFailedError."""
    env = _environment(git_dir, git_dir.parent, index, made)

    def ask(*words: str) -> str:
        return git(clients, git_dir.parent, words, env)

    def rewritten(kind: str, name: str, line: str) -> str:
        """An object again, with another first line."""
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
    moved = {}
    for row in ask("for-each-ref", f"--points-at={commit}", form, "refs/tags").splitlines():
        kind, name, ref = row.split(" ", 2)
        moved[ref] = rewritten("tag", name, f"object {new}\n") if kind == "tag" else new
    if moved:
        refs = (git_dir / "packed-refs").read_text(encoding="utf-8").splitlines()
        lines = (
            f"{moved.get(ref, name)} {ref}\n" for name, _, ref in (it.partition(" ") for it in refs)
        )
        (made / "packed-refs").write_text("".join(lines), encoding="utf-8")


def changed_index(
    git_dir: Path, files: Path, changes: Iterable[RawChange], index: Path, clients: ClientRunner
) -> None:
    """Write the index of ``git_dir`` with these changes to ``index``: ``files`` has what is new. Raises
    ToolFailedError."""
    index.write_bytes((git_dir / "index").read_bytes())
    env = _environment(git_dir, files, index, index.parent)
    entries = [*changes]
    gone = [it.path for it in entries if it.new_mode == ABSENT]
    there = [it.path for it in entries if it.new_mode not in {ABSENT, _SUBMODULE}]
    for option, paths in (("--force-remove", gone), ("--add", there)):
        if paths:
            git(clients, files, ["update-index", "--replace", option, "--", *paths], env)
