"""PYSEC-2023-165: a name with .. in it has a file outside of .git read as a reference."""

import tempfile
from pathlib import Path

import git
from app import commit

with tempfile.TemporaryDirectory() as root:
    folder = Path(root, "repo")
    made = git.Repo.init(folder).index.commit("first")
    Path(root, "outside").write_text(f"{made.hexsha}\n")
    try:
        found = commit(folder, "../../outside")
    except Exception as error:
        print("refused:", repr(error)[:80])
    else:
        raise SystemExit(f"a file outside of the repository was read: {found}")
