"""Files whose names are no UTF-8: `plan` and `fix` work beside them, and say what they can't touch."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from fallback_tier.cli import exit_codes
from tests.e2e.command import Ended, osv, run
from tests.fakes.repository import git
from tests.registry import Universe, serve

ODD = b"caf\xe9"


@pytest.fixture(scope="module")
def registry() -> Iterator[Mapping[str, str]]:
    with serve(Universe().pypi("left", "1.0.0").pypi("left", "2.0.0")) as served:
        yield served.environ


class Scenario:
    def __init__(self, place: Path, env: Mapping[str, str]) -> None:
        self.place, self.env, self.repo = place, env, place / "repo"
        self.advisory = place / "advisory.json"
        self.advisory.write_text(osv("left"))

    def make(self, *names: bytes, other: bytes | None = None) -> None:
        """Commit files that pin the affected version, and ``other``, which pins another package."""
        for name in (*names, *([other] if other else [])):
            place = self.repo / os.fsdecode(name)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(b"right==1.0.0\n" if name == other else b"left==1.0.0\n")
        git(self.repo, "init", "-q", "-b", "main")
        git(self.repo, "config", "user.name", "A Person")
        git(self.repo, "config", "user.email", "person@example.invalid")
        git(self.repo, "add", "-A")
        git(self.repo, "commit", "-q", "-m", "base")

    def __call__(self, command: str, *more: str | Path) -> Ended:
        words = [command, self.repo, "--advisory", self.advisory, "--json", *more]
        if command == "fix":
            words += ["--state-dir", self.place / "state"]
        ended = run(*words, env=self.env)
        assert "Traceback" not in ended.err
        return ended

    @property
    def pins(self) -> str:
        return (self.repo / "requirements.txt").read_text()


@pytest.fixture
def scenario(tmp_path: Path, registry: Mapping[str, str]) -> Scenario:
    return Scenario(tmp_path, registry)


@pytest.mark.sandbox
def test_a_fix_is_made_and_delivered_beside_them(scenario: Scenario) -> None:
    scenario.make(b"requirements.txt", b"tests/" + ODD + b"/requirements.txt", other=ODD + b".txt")
    git(scenario.repo, "branch", os.fsdecode(b"fallback-tier/" + ODD))
    (fix,) = scenario("plan").json["fixes"]
    assert any(
        "'tests/caf\\xe9/requirements.txt' has a name that is not UTF-8." in it
        for it in fix["notes"]
    )
    ended = scenario("fix", "--commit")
    assert (ended.code, ended.json["outcome"]) == (exit_codes.OK, "verified")
    branch = ended.json["commit"]["branch"]
    assert git(scenario.repo, "diff", "--name-only", "main", branch) == "requirements.txt\n"
    assert scenario("fix").code == exit_codes.OK
    assert scenario.pins == "left==2.0.0\n"
    odd = scenario.repo / os.fsdecode(b"tests/" + ODD + b"/requirements.txt")
    assert odd.read_bytes() == b"left==1.0.0\n"


@pytest.mark.sandbox
def test_fix_beside_an_odd_file_that_pins_the_affected_version_is_not_called_fixed(
    scenario: Scenario,
) -> None:
    scenario.make(b"requirements.txt", ODD + b".txt")
    ended = scenario("fix")
    assert (ended.code, ended.json["outcome"]) == (exit_codes.ESCALATED, "escalated")
    verdict = next(it for it in ended.json["verdicts"] if it["gate"] == "not_vulnerable")
    assert (verdict["status"], verdict["proof_level"]) == ("skipped", None)
    assert "caf" in verdict["detail"]


@pytest.mark.sandbox
@pytest.mark.parametrize(
    ("name", "shown"),
    [(ODD, "'caf\\xe9/requirements.txt' has a name that is not UTF-8."), (b"a\tb", "'a\\tb/")],
)
def test_the_affected_projects_own_is_refused_by_name(
    scenario: Scenario, name: bytes, shown: str
) -> None:
    """What a plan calls fixable, a fix does: neither makes a patch of it."""
    scenario.make(b"requirements.txt", name + b"/requirements.txt")
    ended = scenario("plan")
    assert ended.code == exit_codes.UNKNOWN
    (left,) = ended.json["left"]
    assert left["sentence"].startswith(shown)
    assert "Rename it (`git mv`), and commit that." in left["sentence"]
    ended = scenario("fix")
    assert (ended.code, ended.json["reason"]) == (exit_codes.UNKNOWN, "unknown")
    assert ended.json["sentence"].startswith(shown)
    assert scenario.pins == "left==1.0.0\n"


def test_ones_own_work_on_one_is_named(scenario: Scenario) -> None:
    scenario.make(b"requirements.txt", ODD + b".txt")
    (scenario.repo / os.fsdecode(ODD + b".txt")).write_text("mine\n")
    assert scenario("plan").json["uncommitted"] == ["caf\\xe9.txt"]
    assert scenario("fix").code == exit_codes.BAD_INPUT


def test_a_repository_whose_own_path_is_one(scenario: Scenario) -> None:
    scenario.repo = scenario.place / os.fsdecode(b"r\xe9po")
    scenario.make(b"requirements.txt")
    ended = run(
        "plan", str(scenario.repo), "--advisory", scenario.advisory, "--json", env=scenario.env
    )
    assert (ended.code, ended.kind) == (exit_codes.BAD_INPUT, "path_not_utf8")
    assert "r\\xe9po'" in ended.problem
