"""Draw ten public repositories, and an advisory for each, by each of the committed seeds.

frame.toml has a list of names for each path of ``WANTED``. A draw leaves out repositories that an earlier
one took. A name gives way to the next of its list if no whole snapshot of it is available; its newest
commit lacks the path, or (yarn.lock) it is no lock of yarn 1; its own client can't install it here; or no
record of the data sets or of frame.toml concerns a package that it installs. A record that covers an
installed version is preferred: of each draw at most ``UNAFFECTED`` repositories stay without one. The
project is the one that holds the path nearest to the root.

``python -m tests.campaigns.eval_repos.drawing`` prints the names of each draw in their order; with
``--only CASE`` it installs a case of cases/drawn.toml and draws its advisory.
"""

import json
import lzma
import random
import sys
import tarfile
import tomllib
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.campaigns.eval_repos.advisories import Record
from tests.campaigns.eval_repos.cases import DRAWS, HERE, Facts, load_cases
from tests.campaigns.eval_repos.clients import Clients
from tests.campaigns.eval_repos.looking import Copy, look
from tests.campaigns.eval_repos.making import make
from tests.campaigns.measuring.tool import tool_options
from tests.campaigns.own_code.cases import DATA_FILE
from tests.campaigns.recipes_bench.cases import ARCHIVE
from tests.campaigns.recipes_bench.versions import affecting, canonical

FRAME = HERE / "frame.toml"

#: How many repositories of each list are drawn.
WANTED = {
    "package-lock.json": 2,
    "yarn.lock": 1,
    "pnpm-workspace.yaml": 1,
    "lerna.json": 1,
    "requirements.txt": 1,
    "uv.lock": 1,
    "poetry.lock": 1,
    "Pipfile.lock": 1,
    "hatch.toml": 1,
}

#: How many of the ten of a draw may have a record that covers no installed version.
UNAFFECTED = 2


def names(seed: str) -> dict[str, list[str]]:
    """Return each list of frame.toml in the order in which a draw tries its names. Raises ValueError for a
    seed that isn't in ``DRAWS``."""
    earlier = DRAWS[: DRAWS.index(seed)]
    taken = {case.repo for case in load_cases() if case.draw in earlier}
    orders = {}
    for path, text in _frame()["names"].items():
        order = text.split()
        random.Random(f"{seed} {path}").shuffle(order)
        orders[path] = [name for name in order if name not in taken]
    return orders


def advisory(seed: str, repository: str, identifiers: Collection[str]) -> str:
    """Return the advisory of a repository, of those that match. Raises IndexError if none does."""
    return random.Random(f"{seed} {repository}").choice(sorted(identifiers))


def records(data: Path) -> Iterator[Record]:
    """Yield the OSV records of the data sets, then those that frame.toml has in our words."""
    with tarfile.open(data / ARCHIVE) as archive:
        for member in archive:
            if member.name.endswith(".json") and "/advisories/" in member.name:
                file = archive.extractfile(member)
                yield json.load(file) if file is not None else {}
    with lzma.open(data / DATA_FILE, "rt", encoding="utf-8") as lines:
        yield from (_osv(example) for example in map(json.loads, lines))
    for identifier, affected in _frame()["npm"].items():
        yield Facts(id=identifier, summary=identifier, affected=affected).osv("npm")


def matching(
    known: Iterable[Record], ecosystem: str, held: Iterable[Copy]
) -> tuple[set[str], set[str]]:
    """Return the identifiers of the records that cover an installed version, and of those that name an
    installed package."""
    found = [dict(record) for record in known]
    covering, naming = set(), set()
    for name, version in held:
        covering |= affecting(found, ecosystem, name, version)
        naming |= {record["id"] for record in found if name in _packages(record, ecosystem)}
    return covering, naming


def _packages(record: Record, ecosystem: str) -> set[str]:
    named = [entry.get("package") or {} for entry in record.get("affected") or ()]
    return {canonical(ecosystem, it["name"]) for it in named if it.get("ecosystem") == ecosystem}


def _osv(example: Record) -> Record:
    """Return a solved example as an OSV record; ranges that aren't OSV's are left out."""
    affected = [
        {
            "package": {"ecosystem": example["ecosystem"], "name": example["packages"][0]},
            "ranges": entry["ranges"],
        }
        for entry in example["affected"]
        if entry.get("ranges")
    ]
    return {"id": example["id"], "affected": affected}


def _frame() -> dict[str, Any]:
    return tomllib.loads(FRAME.read_text(encoding="utf-8"))


def main() -> int:
    """Return 0 if every case named with ``--only`` installs and has an advisory."""
    arguments = tool_options("python -m tests.campaigns.eval_repos.drawing", __doc__, HERE)
    arguments.add_argument(
        "--work", type=Path, default=Path("clients"), help="where fetched clients are kept"
    )
    options = arguments.parse_args()
    if not options.only:
        for seed in DRAWS:
            for path, order in names(seed).items():
                print(f"{seed}, {path} ({WANTED[path]}):", *order)
        return 0
    known, clients, missing = [*records(options.data)], Clients(options.work.resolve()), 0
    for case in load_cases(options.only):
        with TemporaryDirectory(prefix="drawing-", ignore_cleanup_errors=True) as folder:
            looked = look(
                make(case, Path(folder).resolve(), clients, options.clones), case, clients
            )
        covering, naming = matching(known, case.ecosystem, looked.held)
        drawn = advisory(case.draw, case.repo, covering or naming) if covering or naming else "none"
        missing += not looked.installs or drawn == "none"
        print(f"{case.name}: {drawn}, of {len(covering)} covering and {len(naming)} naming")
        print(f"  {len(looked.held)} copies; {looked.said or 'installs'}")
        print("  covering:", *sorted(covering))
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
