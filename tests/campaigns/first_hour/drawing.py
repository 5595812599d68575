"""Draw ten public repositories: ``python -m tests.campaigns.first_hour.drawing --clones DIR``.

The names are those of ``tests_judged/names.toml`` and its frame that no earlier campaign tried, in the
order of the seed, client by client. A name gives way to the next one if no whole snapshot of it is in
``--clones`` (then it is in ``--absent``), or if none of its newest ``COMMITS`` commits that changed this
client's lock, or pins, has a version that a record of the data sets covers. Nobody looks whether our tool
can fix it. Each name that was tried is a line of draw.jsonl; cases.toml is made from it.
"""

import argparse
import json
import random
import sys
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.campaigns.eval_repos.cases import load_cases as evaluated
from tests.campaigns.eval_repos.drawing import FRAME, records
from tests.campaigns.measuring.clones import git
from tests.campaigns.measuring.frozen import Frozen
from tests.campaigns.tests_judged import drawing as judged

HERE = Path(__file__).parent
CASES, DRAW = HERE / "cases.toml", HERE / "draw.jsonl"

SEED = "first-hour-1"

#: Client to how many repositories are drawn: ten.
WANTED = {"npm": 2, "yarn": 2, "pnpm": 1, "pip": 2, "Poetry": 1, "uv": 2}

#: Commits of a lock that are looked at, newest first.
COMMITS = 100


class Case(Frozen):
    """A repository at a commit of which a lock, or a file of pins, holds a vulnerable version."""

    repo: str
    client: str
    commit: str
    day: str

    @property
    def name(self) -> str:
        """Its client and repository."""
        return f"{self.client.lower()}-{self.repo.rpartition('/')[2].lower()}"


class Tried(Frozen):
    """A name that the draw tried; ``why`` it gave way, empty for a case."""

    client: str
    repo: str
    why: str = ""
    case: Case | None = None


def load_cases(only: Sequence[str] = ()) -> tuple[Case, ...]:
    """Return all cases, or those named. Raises KeyError for a name that none has."""
    document = tomllib.loads(CASES.read_text(encoding="utf-8"))
    found = {case.name: case for case in map(Case.model_validate, document["case"])}
    return tuple(found[name] for name in only or found)


def read_draw() -> list[Tried]:
    """Return what was tried, in order."""
    lines = DRAW.read_text(encoding="utf-8").splitlines() if DRAW.exists() else []
    return [Tried.model_validate_json(line) for line in lines]


def names() -> dict[str, list[str]]:
    """Return the names of each client in the order in which they are tried."""
    frame = tomllib.loads(FRAME.read_text(encoding="utf-8"))["names"]
    listed = tomllib.loads((judged.HERE / "names.toml").read_text(encoding="utf-8"))["list"]
    earlier = {case.repo for case in evaluated()} | {line.repo for line in judged.read_draw()}
    found: dict[str, list[str]] = {client: [] for client in WANTED}
    for one in listed:
        found[one["client"]] += (frame[one["frame"]] if "frame" in one else one["names"]).split()
    for client, order in found.items():
        order[:] = sorted({*order} - earlier)
        random.Random(f"{SEED} {client}").shuffle(order)
    return found


def due() -> Iterator[tuple[str, str]]:
    """Yield client and name of what is tried next for each client that lacks cases."""
    tried = read_draw()
    for client, order in names().items():
        done = {line.repo for line in tried}
        drawn = sum(line.client == client and line.case is not None for line in tried)
        left = [name for name in order if name not in done]
        if drawn < WANTED[client] and left:
            yield client, left[0]


def _newest(repo: Path, client: str, covering: judged.Covering) -> tuple[str, str] | None:
    """Return the newest commit whose lock holds a covered version, and its day."""
    pattern = judged.LOCKS[client]
    log = ("log", "--first-parent", "--format=%H %cs", f"-{COMMITS}", "HEAD", "--")
    ecosystem = "npm" if client in {"npm", "yarn", "pnpm"} else "PyPI"
    for row in git(repo, *log, pattern, f":(glob)**/{pattern}").decode().split("\n"):
        commit, _, day = row.partition(" ")
        if not commit:
            continue
        paths = git(repo, "ls-tree", "-r", "--name-only", "-z", commit).decode().split("\0")
        for path in judged.locks_of(client, tuple(paths)):
            text = git(repo, "show", f"{commit}:{path}").decode("utf-8", "replace")
            if client == "yarn" and "# yarn lockfile v1" not in text:
                continue
            if covering(ecosystem, judged.copies(path, text)):
                return commit, day
    return None


def _try(
    client: str, repo: str, covering: judged.Covering, clones: Path, absent: set[str]
) -> Tried:
    local = clones / f"{repo.replace('/', '+')}.git"
    if not local.exists():
        if repo not in absent:
            raise SystemExit(f"{repo}: fetch its snapshot into --clones, or name it in --absent")
        return Tried(client=client, repo=repo, why="no whole snapshot is available")
    try:
        found = _newest(local, client, covering)
    except RuntimeError as error:
        return Tried(client=client, repo=repo, why=str(error)[:200])
    if found is None:
        return Tried(client=client, repo=repo, why="no lock with a covered version")
    case = Case(repo=repo, client=client, commit=found[0], day=found[1])
    return Tried(client=client, repo=repo, case=case)


def _write_cases() -> None:
    text = "# Made by drawing.py from draw.jsonl: don't edit.\n"
    cases = [line.case for line in read_draw() if line.case is not None]
    for case in sorted(cases, key=lambda it: it.name):
        fields = case.model_dump(mode="json").items()
        text += "\n[[case]]\n" + "".join(f"{key} = {json.dumps(it)}\n" for key, it in fields)
    CASES.write_text(text, encoding="utf-8")


def main() -> int:
    """Draw until ten are found; 0 then."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--clones", type=Path, required=True)
    parser.add_argument("--absent", type=Path, help="a file of names without a snapshot")
    parser.add_argument("--due", action="store_true", help="only print what is tried next")
    options = parser.parse_args()
    if options.due:
        for client, name in due():
            sys.stdout.write(f"{client} {name}\n")
        return 0
    covering = judged.Covering(records(options.data))
    absent = set(options.absent.read_text(encoding="utf-8").split()) if options.absent else set()
    while left := [*due()]:
        line = _try(*left[0], covering, options.clones, absent)
        with DRAW.open("a", encoding="utf-8") as file:
            file.write(f"{line.model_dump_json(exclude_none=True)}\n")
        _write_cases()
        sys.stdout.write(f"{line.client} {line.repo}: {line.why or line.case}\n")
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
