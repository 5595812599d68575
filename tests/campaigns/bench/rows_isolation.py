"""Goals 4 and 5: what isolating a patch costs, and that it does not grow with the repository.

The base commit's checkout is warm (made before): a fix pays it once a commit, and a fleet shares it. What
it costs cold stands with the facts.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.campaigns.bench.measure import Command, Processes, Worker
from tests.campaigns.bench.row import Bench, Pair, Row

_WORKER = Path(__file__).with_name("worker.py")

#: As the goals have them.
SMALL, LARGE = 5_000, 50_000

_FILES_A_FOLDER = 100
_TEXT = "one\ntwo\nthree\nfour\nfive\nsix\n" * 20
_DIFF = """\
diff --git a/part_0/module_0.py b/part_0/module_0.py
--- a/part_0/module_0.py
+++ b/part_0/module_0.py
@@ -1,4 +1,4 @@
-one
+eins
 two
 three
 four
"""


@contextmanager
def retry(bench: Bench) -> Iterator[Pair]:
    """A further attempt's reset, apply and judging of the result, against one bare `git apply`."""
    root = _repository(bench, SMALL)
    diff = root.with_suffix(".diff")
    bare = Processes(
        "git apply",
        [Command(["git", "apply", diff], root)],
        before=[Command(["git", "checkout", "--quiet", "--force", "HEAD", "--", "."], root)],
    )
    with _worker(bench, "reset, apply, judge", SMALL, "retry") as ours:
        yield Pair(ours, bare, facts=lambda: ours.facts)


@contextmanager
def size(bench: Bench) -> Iterator[Pair]:
    """The same isolation, the repository ten times as large."""
    for files in (SMALL, LARGE):
        _repository(bench, files)
    with (
        _worker(bench, f"isolated, {LARGE:,} files", LARGE, "isolate") as large,
        _worker(bench, f"isolated, {SMALL:,} files", SMALL, "isolate") as small,
    ):
        yield Pair(large, small, facts=lambda: {"large": large.facts, "small": small.facts})


@contextmanager
def worktree_add(bench: Bench) -> Iterator[Pair]:
    """Isolation, patch and one sandboxed command, against git's own worktree by itself."""
    root = _repository(bench, LARGE)
    place = bench.place / "added"
    add = Processes(
        "git worktree add",
        [Command(["git", "worktree", "add", "--quiet", "--detach", place, "HEAD"], root)],
        before=[
            Command(["rm", "-rf", place], root),
            Command(["git", "worktree", "prune"], root),
        ],
    )
    with _worker(bench, f"isolated, {LARGE:,} files", LARGE, "isolate") as ours:
        yield Pair(ours, add, facts=lambda: ours.facts)


def _worker(bench: Bench, label: str, files: int, side: str) -> Worker:
    arguments: list[str | Path] = ["work_isolation", bench.place, f"repository-{files}", side]
    return Worker(label, [bench.python, _WORKER, *arguments], bench.place)


def _repository(bench: Bench, files: int) -> Path:
    """A committed repository of so many files in folders, and a patch for one of them beside it."""
    root = bench.place / f"repository-{files}"
    for number in range(files):
        folder = root / f"part_{number // _FILES_A_FOLDER}"
        if number % _FILES_A_FOLDER == 0:
            folder.mkdir(parents=True)
        (folder / f"module_{number}.py").write_text(_TEXT)
    root.with_suffix(".diff").write_text(_DIFF)
    git = ["git", "-c", "user.name=bench", "-c", "user.email=bench@localhost", "-c", "gc.auto=0"]
    for command in ("init -q", "add .", "commit -q -m base"):
        Command([*git, *command.split()], root).run()
    return root


ROWS = (
    Row("isolation-retry", "A further attempt against `git apply`", "4", 12.0, 15, retry),
    Row("isolation-size", "Isolation at 50,000 files against 5,000", "5", 1.2, 15, size),
    Row("isolation-worktree", "Isolation against `git worktree add`", "5", 0.02, 5, worktree_add),
)
