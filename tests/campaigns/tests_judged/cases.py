"""The cases: a public repository at a commit whose lock or pins an advisory covers, drawn by drawing.py."""

import random
import tomllib
from collections.abc import Sequence
from pathlib import Path

from fallback_eval.campaign import Half, alternately
from tests.campaigns.measuring.frozen import Frozen

HERE = Path(__file__).parent
CASES = HERE / "cases.toml"

#: What draws the repositories, their advisories, and the half that is set aside.
SEED = "tests-judged-1"


class Case(Frozen):
    """One case. ``locks``: the files that hold what the advisory covers, as they are at ``commit``,
    whose day is ``day``. ``kind``: the list of names.toml. ``has``: what it is an example of (Django,
    Flask, TypeScript, monorepo, CI).
    """

    repo: str
    client: str
    kind: str
    commit: str
    day: str
    locks: tuple[str, ...]
    has: tuple[str, ...] = ()
    advisory: str

    @property
    def name(self) -> str:
        """Its client and repository: a repository may be drawn with an older client, too."""
        return f"{self.client.lower()}-{self.repo.rpartition('/')[2].lower()}"

    @property
    def ecosystem(self) -> str:
        return "npm" if self.client in {"npm", "yarn", "pnpm"} else "PyPI"


def load_cases(only: Sequence[str] = ()) -> tuple[Case, ...]:
    """Return all, or those named, in the seed's order: if a run is stopped, its rows are of all kinds.
    Raises KeyError for a name that none has."""
    document = tomllib.loads(CASES.read_text(encoding="utf-8"))
    found = {case.name: case for case in map(Case.model_validate, document["case"])}
    names = sorted(found)
    random.Random(SEED).shuffle(names)
    return tuple(found[name] for name in only or names)


def halves() -> dict[str, Half]:
    """Return the half of each case: alternately within each client, so that both halves have all of
    them.
    """
    cases, found = load_cases(), dict[str, Half]()
    for number, client in enumerate(sorted({case.client for case in cases})):
        due = alternately((case.name for case in cases if case.client == client), SEED)
        swapped = {Half.SEEN: Half.SET_ASIDE, Half.SET_ASIDE: Half.SEEN}
        # Of an odd number the greater half falls to either in turn.
        found |= {name: swapped[it] if number % 2 else it for name, it in due.items()}
    return found
