"""Draw the cases: ``python -m tests.campaigns.tests_judged.drawing --clones DIR --planner PROGRAM``.

The seed orders each list of names.toml. A name gives way to the next one if its whole snapshot isn't in
``--clones``; no commit of its main line has this client's lock (or pins) with a version that a record of
the data sets covers, and a test; ``plan`` finds no fix of any of the first ``ADVISORIES`` records, in
the seed's order (``--planner``: the tagged build; ``plan`` runs no tests); or its client can't install
that commit here. If a list of small projects has no more than ``SMALL`` names to try, its place goes to
the next name of the client's last list of known ones. The commit is the newest before ``OLD`` that
changed the lock so, else the newest of all.

Each name that was tried is a line of draw.jsonl, with the reason why it gave way. cases.toml is made
from it.
"""

import argparse
import json
import os
import random
import re
import shutil
import sys
import tempfile
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from fallback_eval.campaign import DiskFullError, check_disk
from tests.campaigns.eval_repos.advisories import Record
from tests.campaigns.eval_repos.cases import Case as Installed
from tests.campaigns.eval_repos.cases import load_cases as earlier_cases
from tests.campaigns.eval_repos.clients import Clients
from tests.campaigns.eval_repos.drawing import FRAME, records
from tests.campaigns.eval_repos.looking import look
from tests.campaigns.measuring.clones import clone, git
from tests.campaigns.measuring.frozen import Frozen
from tests.campaigns.measuring.process import run_to_end
from tests.campaigns.measuring.words import cleaned
from tests.campaigns.recipes_bench.inventory import held
from tests.campaigns.recipes_bench.versions import affecting, canonical
from tests.campaigns.tests_judged.bare import projects
from tests.campaigns.tests_judged.cases import CASES, SEED, Case

HERE = Path(__file__).parent
DRAW = HERE / "draw.jsonl"

#: Locks of this campaign are older than this, if the project has such.
OLD = "2025-01-01"

#: Commits of a lock that are looked at, records that are planned, and names of a list of small projects.
COMMITS, ADVISORIES, SMALL = 400, 3, 12

#: One ``plan``: it resolves, and installs nothing.
PLAN_TIMEOUT_S = 240

#: Client to the pattern of its locks, for ``git log``.
LOCKS = {
    "npm": "package-lock.json",
    "yarn": "yarn.lock",
    "pnpm": "pnpm-lock.yaml",
    "pip": "*requirements*.txt",
    "Poetry": "poetry.lock",
    "uv": "uv.lock",
}

_TEST = re.compile(
    r"(?:^|/)(?:tests?|__tests__|specs?)/.*\.(?:py|[cm]?[jt]sx?)$"
    r"|(?:^|/)(?:test_[^/]*|[^/]*_test|tests)\.py$|[.-](?:test|spec)\.[cm]?[jt]sx?$|(?:^|/)test\.[cm]?[jt]s$"
)
#: What a test file has at least: an empty template of a framework is none.
_HAS_A_TEST = re.compile(
    r"\bdef test|\b(?:it|test|describe)(?:\.\w+)*\s*\(|[\"'](?:node:test|tape|tap|ava|uvu|assert)[\"']"
)
_CI = re.compile(
    r"\.github/workflows/.*\.ya?ml|\.travis\.yml|\.gitlab-ci\.yml|\.circleci/config\.yml|azure-pipelines\.yml|appveyor\.yml"
)
_REQUIREMENTS = re.compile(r"(?:[^/]*requirements[^/]*|requirements/[^/]+)\.txt")
_PNPM = re.compile(
    r"^  ['\"]?/?(?P<name>@[^/\s]+/[^@/\s]+|[^@/\s:'\"]+)[@/](?P<version>\d[^(_:\s'\"]*)[^:\n]*:$",
    re.MULTILINE,
)


class Tried(Frozen):
    """One name that the draw tried. ``why``: why it gave way; empty for a case."""

    client: str
    kind: str
    repo: str
    why: str = ""
    case: Case | None = None


class GivesWayError(Exception):
    """The reason why a name gives way to the next one."""


@dataclass(frozen=True)
class _Found:
    commit: str
    day: str
    locks: tuple[str, ...]
    texts: Mapping[str, str]
    paths: tuple[str, ...]
    covering: frozenset[str]


class Covering:
    """Finds the records that cover a version."""

    def __init__(self, known: Iterable[Record]) -> None:
        self.records = {record["id"]: dict(record) for record in reversed([*known])}
        self._by_package: dict[tuple[str, str], list[Record]] = defaultdict(list)
        for record in self.records.values():
            for entry in record.get("affected") or ():
                package = entry.get("package") or {}
                ecosystem = package.get("ecosystem", "")
                key = ecosystem, canonical(ecosystem, package.get("name", ""))
                self._by_package[key].append(record)

    def __call__(self, ecosystem: str, copies: Iterable[tuple[str, str]]) -> frozenset[str]:
        found: set[str] = set()
        for name, version in copies:
            of_package = self._by_package.get((ecosystem, canonical(ecosystem, name)), [])
            found |= affecting([dict(one) for one in of_package], ecosystem, name, version)
        return frozenset(found)


def lists() -> Iterator[tuple[str, str, int, list[str]]]:
    """Yield client, kind, how many are wanted, and the names in the order in which they are tried."""
    frame = tomllib.loads(FRAME.read_text(encoding="utf-8"))["names"]
    earlier = {case.repo for case in earlier_cases()}
    for one in tomllib.loads((HERE / "names.toml").read_text(encoding="utf-8"))["list"]:
        names = (frame[one["frame"]] if "frame" in one else one["names"]).split()
        random.Random(f"{SEED} {one['client']} {one['kind']}").shuffle(names)
        names = [name for name in names if name not in earlier]
        yield one["client"], one["kind"], one["wanted"], names[: SMALL if "frame" in one else None]


def due(tried: Iterable[Tried]) -> Iterator[tuple[str, str, str]]:
    """Yield client, kind and name of what is to be tried next in each list that isn't full."""
    lines = [*tried]
    drawn = {line.repo for line in lines if line.case}
    missing: dict[str, int] = defaultdict(int)
    for client, kind, wanted, names in reversed([*lists()]):
        done = [line for line in lines if (line.client, line.kind) == (client, kind)]
        wanted += missing[client] if kind != "small" else 0
        if sum(line.case is not None for line in done) >= wanted:
            missing[client] *= kind == "small"
            continue
        left = [it for it in names if it not in {line.repo for line in done} and it not in drawn]
        if left:
            yield client, kind, left[0]
            missing[client] *= kind == "small"
        else:
            missing[client] = wanted - sum(line.case is not None for line in done)


def _found(repo: Path, client: str, covering: Covering) -> _Found:
    """Return the newest old commit that serves, else the newest."""
    pattern = LOCKS[client]
    log = ["log", "--first-parent", "--format=%H %cs", f"-{COMMITS}"]
    rows = [
        *git(repo, *log, f"--before={OLD}", "HEAD", "--", pattern, f":(glob)**/{pattern}").split(
            b"\n"
        ),
        *reversed(
            git(repo, *log, "--reverse", f"--since={OLD}", "HEAD", "--", pattern).split(b"\n")
        ),
    ]
    locked = False
    for row in filter(None, rows):
        commit, day = row.decode().split()
        paths = tuple(git(repo, "ls-tree", "-r", "--name-only", "-z", commit).decode().split("\0"))
        texts = {
            it: git(repo, "show", f"{commit}:{it}").decode("utf-8", "replace")
            for it in locks_of(client, paths)
        }
        if client == "yarn" and not any("# yarn lockfile v1" in text for text in texts.values()):
            continue
        locked = locked or bool(texts)
        ecosystem = "npm" if client in {"npm", "yarn", "pnpm"} else "PyPI"
        hit = {path: covering(ecosystem, copies(path, text)) for path, text in texts.items()}
        if any(hit.values()) and _is_tested(repo, commit, paths):
            locks = tuple(path for path, found in hit.items() if found)
            return _Found(commit, day, locks, texts, paths, frozenset().union(*hit.values()))
    raise GivesWayError(
        "no commit with a covered version and a test" if locked else "no lock of this client"
    )


def _is_tested(repo: Path, commit: str, paths: tuple[str, ...]) -> bool:
    tests = (path for path in paths if _TEST.search(path) and "node_modules/" not in path)
    return any(_HAS_A_TEST.search(_text_at(repo, commit, path)) for path in tests)


def _text_at(repo: Path, commit: str, path: str) -> str:
    return git(repo, "show", f"{commit}:{path}").decode("utf-8", "replace")


def locks_of(client: str, paths: tuple[str, ...]) -> list[str]:
    """Return the lock nearest to the root, or the requirements files."""
    names = {PurePosixPath(path).name for path in paths if "/" not in path}
    if client == "pip":
        others = {"poetry.lock", "uv.lock", "Pipfile.lock", "pdm.lock"}
        return [] if names & others else [path for path in paths if _REQUIREMENTS.fullmatch(path)]
    here = [path for path in paths if PurePosixPath(path).name == LOCKS[client]]
    nearest = sorted(here, key=lambda path: (path.count("/"), path))[:1]
    other = {"yarn.lock", "pnpm-lock.yaml"} if client == "npm" else set()
    return [] if nearest and other & names and "/" not in nearest[0] else nearest


def copies(path: str, text: str) -> list[tuple[str, str]]:
    """Return name and version of what a lock holds, or a requirements file pins."""
    if path.endswith("pnpm-lock.yaml"):
        return [(match["name"], match["version"]) for match in _PNPM.finditer(text)]
    try:
        return [
            (one.name, one.version)
            for one in held(PurePosixPath(path).name, text)
            if one.version and one.pinned
        ]
    except ValueError:
        return []


def _install(root: Path, client: str, found: _Found, clients: Clients) -> None:
    lock = found.locks[0]
    for project in projects(client, lock, found.texts[lock]):
        case = Installed(name="drawn", ecosystem="", kinds=(), project=(project,), end=())
        try:
            looked = look(root, case, clients)
        except RuntimeError as error:
            why = str(error)
            continue
        if looked.installs:
            return
        why = looked.said
    raise GivesWayError(f"its client can't install it here: {cleaned(why, chars=10_000)[-160:]}")


def _planned(root: Path, found: _Found, repo: str, covering: Covering, planner: Path) -> str:
    identifiers = sorted(found.covering)
    random.Random(f"{SEED} {repo}").shuffle(identifiers)
    codes = []
    for identifier in identifiers[:ADVISORIES]:
        advisory = root.parent / "advisory.json"
        advisory.write_text(json.dumps(record_of(covering.records, identifier)), encoding="utf-8")
        command: list[str | Path] = [
            planner,
            "plan",
            root,
            "--advisory",
            advisory,
            "--json",
            "--state-dir",
            root.parent / "state",
        ]
        done = run_to_end(command, cwd=root.parent, env=os.environ, timeout_s=PLAN_TIMEOUT_S)
        if done.code == 0:
            return identifier
        if done.code is None:
            raise GivesWayError(f"plan does not end within {PLAN_TIMEOUT_S} s")
        codes.append(f"{identifier} {done.code}")
    raise GivesWayError(f"plan finds no fix: {', '.join(codes)}")


def record_of(known: Mapping[str, Record], identifier: str) -> Record:
    """Return a record as ``fix`` reads it; the data sets' own may lack what OSV requires."""
    return {"modified": "2026-01-01T00:00:00Z", "summary": identifier, **known[identifier]}


def _features(client: str, kind: str, found: _Found) -> tuple[str, ...]:
    names = {PurePosixPath(path).name for path in found.paths}
    held_here = {
        name.lower() for path, text in found.texts.items() for name, _ in copies(path, text)
    }
    has = {
        "Django": kind == "Django" or (client in {"pip", "Poetry", "uv"} and "django" in held_here),
        "Flask": kind == "Flask" or (client in {"pip", "Poetry", "uv"} and "flask" in held_here),
        "TypeScript": "tsconfig.json" in names,
        "monorepo": client in {"npm", "yarn", "pnpm"}
        and sum(
            PurePosixPath(path).name == "package.json"
            for path in found.paths
            if not _TEST.search(path)
        )
        > 3,
        "CI": any(map(_CI.fullmatch, found.paths)),
    }
    return tuple(name for name, holds in has.items() if holds)


def try_one(
    client: str, kind: str, repo: str, covering: Covering, options: argparse.Namespace
) -> Tried:
    """Try one name."""
    folder = Path(tempfile.mkdtemp(prefix="tests-judged-")).resolve()
    try:
        local = options.clones / f"{repo.replace('/', '+')}.git"
        if not local.exists():
            absent = options.absent.read_text(encoding="utf-8").split() if options.absent else []
            if repo not in absent:
                raise SystemExit(
                    f"{repo}: fetch its snapshot into --clones, or name it in --absent"
                )
            raise GivesWayError("no whole snapshot is available")
        found = _found(local, client, covering)
        root, _ = clone(repo, found.commit, folder, options.clones)
        advisory = _planned(root, found, repo, covering, options.planner)
        _install(root, client, found, Clients(options.work.resolve()))
    except (GivesWayError, RuntimeError) as reason:
        return Tried(
            client=client, kind=kind, repo=repo, why=cleaned(str(reason), [(str(folder), "FOLDER")])
        )
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    case = Case(
        repo=repo,
        client=client,
        kind=kind,
        commit=found.commit,
        day=found.day,
        locks=found.locks,
        has=_features(client, kind, found),
        advisory=advisory,
    )
    return Tried(client=client, kind=kind, repo=repo, case=case)


def read_draw() -> list[Tried]:
    """Return what was tried, in order."""
    lines = DRAW.read_text(encoding="utf-8").splitlines() if DRAW.exists() else []
    return [Tried.model_validate_json(line) for line in lines]


def _write_cases(tried: Iterable[Tried]) -> None:
    text = "# Made by drawing.py from draw.jsonl: don't edit.\n"
    for line in sorted(
        (it for it in tried if it.case), key=lambda it: it.case.name if it.case else ""
    ):
        assert line.case is not None
        fields = line.case.model_dump(mode="json")
        text += "\n[[case]]\n" + "".join(
            f"{key} = {json.dumps(value)}\n" for key, value in fields.items()
        )
    CASES.write_text(text, encoding="utf-8")


def main() -> int:
    """Return 0 if every list is full; 1: names are left that can't be tried."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--clones", type=Path)
    parser.add_argument("--absent", type=Path, help="a file of names without an available snapshot")
    parser.add_argument(
        "--work", type=Path, default=Path("clients"), help="where fetched clients are kept"
    )
    parser.add_argument("--planner", type=Path, help="the tagged build's fallback-tier program")
    parser.add_argument("--client", action="append", help="only lists of this client")
    options = parser.parse_args()
    if options.planner is None:
        for client, kind, name in due(read_draw()):
            print(f"{client} {kind}: {name}")
        return 0
    covering = Covering(records(options.data))
    while left := [it for it in due(read_draw()) if not options.client or it[0] in options.client]:
        try:
            check_disk()
        except DiskFullError as error:
            sys.exit(str(error))
        line = try_one(*left[0], covering, options)
        with DRAW.open("a", encoding="utf-8") as file:
            file.write(f"{line.model_dump_json(exclude_none=True)}\n")
        _write_cases(read_draw())
        print(f"{line.client} {line.kind} {line.repo}: {line.why or line.case}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
