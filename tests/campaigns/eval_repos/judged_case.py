"""A tiny case over made-up packages on loopback, and what its trees look like."""

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from tests.campaigns.eval_repos.cases import Case, End
from tests.campaigns.eval_repos.clients import Clients
from tests.campaigns.eval_repos.judge import Change, Seen, Verdict, judge
from tests.campaigns.eval_repos.looking import Looked, look
from tests.campaigns.eval_repos.making import changed_lines, make
from tests.campaigns.eval_repos.reported import Reported
from tests.campaigns.eval_repos.running import text_at, universe
from tests.campaigns.measuring.clones import copy
from tests.registry import serve

WORKS = "def pad(text):\n    return text\n"

#: 1.1.0 is fixed; 1.2.0 is too, and no longer has what the application uses.
PYPI = [
    {"name": "left", "version": "1.0.0", "files": {"left/__init__.py": WORKS}},
    {"name": "left", "version": "1.1.0", "files": {"left/__init__.py": WORKS}},
    {"name": "left", "version": "1.2.0", "files": {"left/__init__.py": "def fill(): ...\n"}},
    {"name": "right", "version": "1.0.0"},
    {"name": "right", "version": "1.1.0"},
]

NPM = [
    {"name": "left", "version": "1.0.0", "files": {"index.js": "exports.pad = (it) => it;"}},
    {"name": "left", "version": "1.1.0", "files": {"index.js": "exports.pad = (it) => it;"}},
    {"name": "left", "version": "1.2.0", "files": {"index.js": "exports.fill = () => 1;"}},
]

PYPROJECT = """\
[project]
name = "app"
version = "1.0.0"
requires-python = ">=3.11"
dependencies = [
  "left>=1.0.0,<2",
  "right>=1.0.0,<2",
]
"""

PACKAGE = {"name": "app", "version": "1.0.0", "private": True, "dependencies": {"left": "^1.0.0"}}

TEST = """\
import unittest

import left


class LeftTest(unittest.TestCase):
    def test_pad(self):
        self.assertEqual(left.pad("a"), "a")
"""

FACTS = {"id": "MADE-1", "summary": "left: pads too much", "affected": {"left": [["0", "1.1.0"]]}}
END = {
    "outcome": "fixed",
    "versions": {"left": "==1.1.0"},
    "lines": 12,
    "why": "The lowest fixed one.",
}

FIXED = Reported(code=0, outcome="fixed", attempts=1)


def uv_case(**more: object) -> Case:
    """A uv project whose lock has the flaw."""
    return Case.model_validate(
        {
            "name": "pypi-made-left",
            "half": "seen",
            "ecosystem": "PyPI",
            "kinds": ["uv"],
            "files": {"pyproject.toml": PYPROJECT, "test_app.py": TEST},
            "package": PYPI,
            "project": [
                {
                    "by": "uv",
                    "seed": {"left": "1.0.0", "right": "1.0.0"},
                    "check": "python -m unittest test_app",
                }
            ],
            "advisory": [FACTS],
            "end": [{**END, "why": "The lowest fixed version of those in range."}],
            **more,
        }
    )


def npm_case(**more: object) -> Case:
    """The same for npm, as the npm that is installed locks it."""
    script = 'if (require("left").pad("a") !== "a") process.exit(1);\n'
    package = {**PACKAGE, "scripts": {"test": "node test.js"}}
    return Case.model_validate(
        {
            "name": "npm-made-left",
            "half": "seen",
            "ecosystem": "npm",
            "kinds": ["lock v3"],
            "files": {"package.json": json.dumps(package, indent=2) + "\n", "test.js": script},
            "package": NPM,
            "project": [{"by": "npm", "seed": {"left": "1.0.0"}, "check": "node test.js"}],
            "advisory": [FACTS],
            "end": [{**END, "why": "The lowest fixed version of those in range."}],
            **more,
        }
    )


@dataclass
class JudgedCase:
    """A case's base, and a judge of what is made of copies of it."""

    case: Case
    clients: Clients
    root: Path
    made: list[Path] = field(default_factory=list)

    @cached_property
    def base(self) -> Looked:
        """What the clients make of the base, which no test changes: they are asked once."""
        return look(self.root, self.case, self.clients)

    def tree(self) -> Path:
        """A fresh copy of the base."""
        place = copy(self.root, self.root.with_name(f"tree-{len(self.made)}"))
        self.made.append(place)
        return place

    def run(self, place: Path, client: str, *words: str) -> None:
        """A client in a tree, as somebody would run it."""
        self.clients.must([*self.clients.had(client), *words], place)

    def judged(
        self, place: Path, reported: Reported = FIXED, ends: Sequence[End] | None = None
    ) -> Verdict:
        """The verdict on a tree, and on what was said of it."""
        case = self.case if ends is None else self.case.model_copy(update={"end": tuple(ends)})
        before, lines = changed_lines(place)
        after = {path: text_at(place / path) for path in before}
        return judge(
            Seen(
                case=case,
                records=[one.osv(case.ecosystem) for one in case.advisory],
                told=reported,
                base=self.base,
                after=look(place, case, self.clients),
                change=Change(before, after, lines),
            )
        )


@contextmanager
def judged_case(case: Case, place: Path) -> Iterator[JudgedCase]:
    """The case's base in a folder, with its registry on loopback."""
    with serve(universe(case)) as registry:
        clients = Clients(place / "clients", registry.environ)
        clients.folder.mkdir()
        home = {"HOME": str(place)} if "HOME" not in os.environ else {}
        clients.environ.update(home)
        yield JudgedCase(case, clients, make(case, place, clients))
