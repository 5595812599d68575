"""A patch applied to its base commit without touching the user's files: a private index and work tree, and
the repository's objects.

The repository's index and files are not touched. Only the files that the patch changes are checked out,
with the attributes (gitattributes(5)) by which git converts them: a patch has the line ends that are
committed, and anything else that an attribute expands (`ident`) as a working tree has it, so that `git
apply --cached` and `--index` don't accept it.
"""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from fallback_tier.execution import ClientRunner
from fallback_tier.gates.trees.isolation import USERS_CONFIGURATION, git
from fallback_tier.outcome import Applied
from fallback_tier.repo import RepoContext


@dataclass(frozen=True)
class PrivateIndex:
    """An index of the base commit; after ``apply``, with the patch. ``tree``: the patch's files."""

    tree: Path
    git_dir: str
    application: Applied
    clients: ClientRunner

    def git(self, *args: str) -> str:
        """Run git on this index and tree. Raises ToolFailedError."""
        variables = {
            "GIT_DIR": self.git_dir,
            "GIT_WORK_TREE": str(self.tree),
            "GIT_INDEX_FILE": str(self.tree.parent / "index"),
        }
        return git(self.clients, self.tree, args, USERS_CONFIGURATION | variables)

    def apply(self) -> None:
        """Apply all changes of the patch, declared or not. Raises ToolFailedError if they don't fit."""
        patch = self.tree.parent / "patch"
        patch.write_bytes(self.application.diff.encode())
        self.git("apply", "--whitespace=nowarn", str(patch))
        created = self.git("ls-files", "--others", "-z").split("\0")[:-1]
        self.git("update-index", "--add", "--remove", "--", *self.application.files, *created)


@contextmanager
def private_index(
    application: Applied, repo: RepoContext, clients: ClientRunner
) -> Iterator[PrivateIndex]:
    """Yield an index and tree with a patch's files as the base commit has them. Raises ToolFailedError."""
    git_dir = git(clients, repo.root, ["rev-parse", "--absolute-git-dir"], USERS_CONFIGURATION)
    with tempfile.TemporaryDirectory(prefix="fallback-tier-") as name:
        tree = Path(name).resolve() / "tree"
        tree.mkdir()
        index = PrivateIndex(tree, git_dir.removesuffix("\n"), application, clients)
        index.git("read-tree", "--no-sparse-checkout", repo.base_commit)
        folders = {folder for path in application.files for folder in PurePosixPath(path).parents}
        attributes = sorted(str(folder / ".gitattributes") for folder in folders)
        listed = index.git("ls-files", "-z", "--", *application.files, *attributes).split("\0")[:-1]
        index.git("checkout-index", "-u", "--ignore-skip-worktree-bits", "--", *listed)
        yield index
