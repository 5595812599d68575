"""From `fix` to the working tree and to a branch, in files of another editor: only versions change."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from fallback_tier.cli import exit_codes
from tests.choice import a_choice
from tests.e2e.command import Ended, osv, run
from tests.fakes.repository import git
from tests.registry import Universe, serve
from tests.unit.npm.world import at, project

BOM = "\ufeff"

PYPROJECT = (
    '[project]\nname = "app"\nversion = "3"\nrequires-python = ">=3.9"\n'
    'dependencies = [\n\t"left==1.0.0",  # why\n]\n'
)


def crlf(text: str) -> str:
    return text.replace("\n", "\r\n")


#: Of each ecosystem: Windows' line ends with a byte order mark, and no end of the last line.
CASES: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "requirements": ("PyPI", {"requirements.txt": BOM + crlf("left==1.0.0\nleft-pad==1.0.0\n")}),
    "pyproject": ("PyPI", {"pyproject.toml": BOM + crlf(PYPROJECT)}),
    "no last end": ("PyPI", {"requirements.txt": "left-pad==1.0.0\nleft==1.0.0"}),
    "npm": (
        "npm",
        {
            path: BOM + crlf(text).replace("  ", "\t")
            for path, text in project({"left": "1.0.0"}, {"left": at("1.0.0")}).items()
        },
    ),
}


@pytest.fixture(scope="module")
def registry() -> Iterator[Mapping[str, str]]:
    universe = Universe()
    for version in ("1.0.0", "2.0.0"):
        universe.pypi("left", version).pypi("left-pad", version).npm("left", version)
    with serve(universe) as served:
        yield served.environ


class Scenario:
    def __init__(self, place: Path, env: Mapping[str, str], case: str) -> None:
        self.place, self.env, self.repo = place, env, place / "repo"
        ecosystem, self.files = CASES[case]
        self.advisory = place / "advisory.json"
        self.advisory.write_text(osv("left", ecosystem=ecosystem))
        self.repo.mkdir()
        for path, text in self.files.items():
            (self.repo / path).write_bytes(text.encode())
        git(self.repo, "init", "-q", "-b", "main")
        git(self.repo, "config", "user.name", "A Person")
        git(self.repo, "config", "user.email", "person@example.invalid")

    def commit(self) -> None:
        git(self.repo, "add", "-A")
        git(self.repo, "commit", "-q", "-m", "base")

    def fix(self, *more: str) -> Ended:
        words = ["fix", self.repo, "--advisory", self.advisory, "--json", *more]
        ended = run(*words, "--state-dir", self.place / "state", env=self.env)
        assert (ended.code, ended.json["outcome"]) == (exit_codes.OK, "verified"), ended
        return ended


def assert_only_versions_changed(path: str, before: str, after: str) -> None:
    if path.endswith("lock.json"):  # the entry has an address and a digest now
        assert after.startswith(BOM) == before.startswith(BOM)
        assert after.count("\n") == after.count("\r\n")
        assert after.endswith("\r\n")
        assert '\t\t\t"version": "2.0.0"' in after
    else:
        assert after == before.replace("left==1.0.0", "left==2.0.0").replace(
            '"left": "1.0.0"', '"left": "2.0.0"'
        )


@pytest.mark.sandbox
@pytest.mark.parametrize("case", a_choice(CASES, step=3))
def test_on_the_working_tree_and_on_a_branch(
    registry: Mapping[str, str], tmp_path: Path, case: str
) -> None:
    scenario = Scenario(tmp_path, registry, case)
    scenario.commit()
    branch = scenario.fix("--commit").json["commit"]["branch"]
    scenario.fix()
    for path, before in scenario.files.items():
        after = (scenario.repo / path).read_bytes()
        assert_only_versions_changed(path, before, after.decode())
        # What is on the branch is the same bytes: git tells them by the same name.
        assert git(scenario.repo, "hash-object", "--no-filters", path) == git(
            scenario.repo, "rev-parse", f"{branch}:{path}"
        )


@pytest.mark.sandbox
def test_line_ends_that_gitattributes_ask_for(registry: Mapping[str, str], tmp_path: Path) -> None:
    """The working tree has Windows' line ends, what is committed has not."""
    scenario = Scenario(tmp_path, registry, "requirements")
    (scenario.repo / ".gitattributes").write_text("*.txt text eol=crlf\n")
    scenario.commit()
    branch = scenario.fix("--commit").json["commit"]["branch"]
    scenario.fix()
    before = scenario.files["requirements.txt"]
    after = (scenario.repo / "requirements.txt").read_bytes().decode()
    assert_only_versions_changed("requirements.txt", before, after)
    numbers = git(scenario.repo, "diff", "--numstat", "main", branch)
    assert numbers == "1\t1\trequirements.txt\n"
