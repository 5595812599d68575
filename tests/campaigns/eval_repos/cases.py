"""The cases of ``make eval-repos``: how a repository is made, its advisories, and how it should end.

``cases/*.toml`` name them. A made repository is a few texts of ours; its lock is made by a real client of
a stated version when the case runs. A public one is cloned at a stated commit. What a careful engineer
would end with is an ``end`` of the case, with the words of why; ``expected.jsonl`` has the digest of every
form that the ends of a case ever had, the first committed before the case's first run.
"""

import hashlib
import json
import tomllib
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any

from pydantic import Field

from fallback_eval.campaign import Half
from tests.campaigns.measuring.frozen import Frozen

HERE = Path(__file__).parent
CASES = HERE / "cases"
SOURCES = HERE / "sources"

#: What decides which half a case is in.
SEED = "eval-repos-1"

#: Seeds of the draws of public repositories, the oldest first (drawing.py). Drawn cases have no half.
DRAWS = ("ten-public-1", "ten-public-2", "ten-public-3")

ECOSYSTEMS = ("npm", "PyPI")


class Outcome(StrEnum):
    """How a run may end. ``PARTLY``: of several advisories some are fixed, the rest named with reasons.

    ``QUESTION`` and ``ESCALATED`` are one exit code; a question needs its own reason and words.
    """

    FIXED = "fixed"
    PARTLY = "partly"
    REFUSED = "refused"
    QUESTION = "question"
    ESCALATED = "escalated"
    NOT_AFFECTED = "not affected"


class Project(Frozen):
    """What one client resolves together.

    ``by``: the client that makes the lock and installs: npm, yarn, pnpm, poetry, pipenv, pip-tools with
    ``@version``, or uv, or pip (requirements as they are). ``locks`` False: it has no lock. ``seed``:
    versions that the lock holds, as an old one does; ``at``: nothing published later (uv, pip-tools).
    ``requirements``: the files that pip installs; ``groups``: optional ones that poetry does.
    ``check``: a command that passes at the base.
    """

    place: str = "."
    by: str
    locks: bool = True
    seed: dict[str, str] = {}  # noqa: RUF012 (frozen)
    at: str = ""
    requirements: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    python: str = "3.11"
    check: str = ""

    @property
    def client(self) -> str:
        return self.by.partition("@")[0]

    @property
    def version(self) -> str:
        return self.by.partition("@")[2]


class Package(Frozen):
    """One release of a made-up package, which only this case's registry has: on loopback.

    ``needs``, ``peers``: name → range. ``files``: texts of it. ``bundled``: name → version, inside it.
    """

    name: str
    version: str
    needs: dict[str, str] = {}  # noqa: RUF012 (frozen)
    peers: dict[str, str] = {}  # noqa: RUF012 (frozen)
    files: dict[str, str] = {}  # noqa: RUF012 (frozen)
    bundled: dict[str, str] = {}  # noqa: RUF012 (frozen)


class Facts(Frozen):
    """An advisory in our words. ``affected``: package → [introduced, fixed], "" where nothing is fixed."""

    id: str
    summary: str
    affected: dict[str, tuple[tuple[str, str], ...]]

    def osv(self, ecosystem: str) -> dict[str, Any]:
        """As an OSV record."""
        kind = "SEMVER" if ecosystem == "npm" else "ECOSYSTEM"
        return {
            "id": self.id,
            "modified": "2026-01-01T00:00:00Z",
            "summary": self.summary,
            "details": self.summary,
            "affected": [
                {
                    "package": {"ecosystem": ecosystem, "name": name},
                    "ranges": [{"type": kind, "events": _events(spans)}],
                }
                for name, spans in self.affected.items()
            ],
        }


class End(Frozen):
    """One end that a careful engineer would call right, and why.

    ``versions``: of every copy that is installed of a package, ``>=1.2,<2`` or ``gone``, alternatives
    with ``or``. ``along``: names (or patterns) of others that may change with it. ``lines``: changed
    lines at most, where an honest diff has so few. ``reasons``, ``words``: the tool's reason is one of
    these, and its sentence has all of these words.
    """

    outcome: Outcome
    versions: dict[str, str] = {}  # noqa: RUF012 (frozen)
    along: tuple[str, ...] = ()
    lines: int | None = None
    reasons: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    why: str = Field(min_length=20)


class Case(Frozen):
    """One case. ``kinds``: what it is an example of. ``source``: a folder of ``sources`` that it begins
    with. ``files``: texts over that. ``crlf``: those that have Windows' line ends; ``links``: place →
    where it points. ``patch``: [file, old, new], after the locks are made. ``package``: made-up ones, then
    no other registry is asked. ``installs_never``: no client can install it, before as after.
    ``changed``: why the expected ends were changed after the first run, a reason each time. ``half``: None
    if drawing.py drew the repository; then ``draw`` is the seed.
    """

    name: str
    half: Half | None = None
    draw: str = ""
    ecosystem: str
    kinds: tuple[str, ...]
    source: str = ""
    repo: str = ""
    commit: str = ""
    files: dict[str, str] = {}  # noqa: RUF012 (frozen)
    crlf: tuple[str, ...] = ()
    links: dict[str, str] = {}  # noqa: RUF012 (frozen)
    patch: tuple[tuple[str, str, str], ...] = ()
    package: tuple[Package, ...] = ()
    project: tuple[Project, ...]
    advisories: tuple[str, ...] = ()
    advisory: tuple[Facts, ...] = ()
    end: tuple[End, ...]
    installs_never: bool = False
    changed: tuple[str, ...] = ()

    @property
    def part(self) -> str:
        """The half or the draw that it is in."""
        return self.half or self.draw

    @property
    def expected_sha256(self) -> str:
        """Of what is expected, and of nothing else."""
        ends = [end.model_dump(mode="json") for end in self.end]
        return _sha256([self.name, ends, self.advisories, _dumped(self.advisory)])

    @property
    def sha256(self) -> str:
        """Of the whole case, the reasons of changes aside: a row tells which form of it it is of."""
        reported = self.model_dump(mode="json", exclude={"changed", "half", "draw"})
        return _sha256([reported, self.source_texts()])

    def source_texts(self) -> dict[str, str]:
        """Path → text of the folder that it begins with."""
        folder = SOURCES / self.source
        if not self.source:
            return {}
        return {
            place.relative_to(folder).as_posix(): place.read_text(encoding="utf-8")
            for place in sorted(folder.rglob("*"))
            if place.is_file() and "__pycache__" not in place.parts
        }


def load_cases(only: Sequence[str] = (), half: Half | None = None) -> tuple[Case, ...]:
    """All by name, those named, or those of a half. Raises KeyError for a name that none has, and
    ValueError for a file that is no such file, or a name that two have."""
    found: dict[str, Case] = {}
    for place in sorted(CASES.glob("*.toml")):
        for reported in tomllib.loads(place.read_text(encoding="utf-8")).get("case", []):
            case = Case.model_validate(reported)
            if case.name in found:
                raise ValueError(f"{place.name}: a second case is called {case.name}")
            found[case.name] = case
    if only:
        return tuple(found[name] for name in only)
    return tuple(case for _, case in sorted(found.items()) if half in (None, case.half))


def _events(spans: Sequence[tuple[str, str]]) -> list[dict[str, str]]:
    events = []
    for introduced, fixed in spans:
        events += [{"introduced": introduced}, *([{"fixed": fixed}] if fixed else [])]
    return events


def _dumped(models: Sequence[Frozen]) -> list[dict[str, Any]]:
    return [one.model_dump(mode="json") for one in models]


def _sha256(reported: object) -> str:
    return hashlib.sha256(json.dumps(reported, sort_keys=True).encode()).hexdigest()
