"""A stranger's repository with files that can't be read: `plan` and `fix` as a user starts them."""

import json
import os
from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from fallback_tier.cli import exit_codes, main
from fallback_tier.cli.ending import TRACEBACK
from tests.choice import a_choice
from tests.e2e.command import Ended, osv, run, snapshot
from tests.fakes.repository import git, write
from tests.registry import Universe, serve
from tests.unit.npm.world import at, manifest, project
from tests.unit.shared.locks_support import poetry_block, poetry_lock
from tests.unit.shared.unreadable import SPOILT, spoil

NPM = project({"left": "1.0.0", "right": "1.0.0"}, {"left": at("1.0.0"), "right": at("1.0.0")})
PINS = {"requirements.txt": "left==1.0.0\nright==1.0.0\n"}

#: Of each kind one: the others are told apart nowhere on the way to a user (tests/unit/shared).
FAULTS = ("a broken link", "a link out of the repository", "not UTF-8", "nested 10,000 deep")


@pytest.fixture(scope="module")
def registry() -> Iterator[Mapping[str, str]]:
    universe = Universe()
    for name in ("left", "right"):
        for version in ("1.0.0", "2.0.0"):
            universe.npm(name, version)
            universe.pypi(name, version)
    universe.pypi("stuck", "1.0.0", ["left<2"])
    with serve(universe) as served:
        yield served.environ


class Scenario:
    """A repository with a file that can't be read, advisories, and commands that may not crash."""

    def __init__(self, place: Path, env: Mapping[str, str]) -> None:
        self.place, self.env = place, env
        self.repo = place / "repo"
        self.folder = place / "advisories"
        self.folder.mkdir()

    def make(self, files: Mapping[str, str], path: str, fault: str, text: str = "") -> None:
        self.repo.mkdir()
        write(self.repo, dict(files))
        spoil(self.repo, path, text, fault)
        git(self.repo, "init", "-q", "-b", "main")
        git(self.repo, "add", "-A")
        git(self.repo, "commit", "-q", "-m", "base")

    def advisory(self, name: str, package: str, ecosystem: str) -> None:
        path = self.folder / f"{name}.json"
        path.write_text(osv(package, id=name, ecosystem=ecosystem))

    def __call__(self, command: str, *more: str) -> Ended:
        before = snapshot(self.repo)
        words = [command, self.repo, "--advisory", self.folder, "--json", *more]
        ended = run(*words, "--state-dir", self.place / "state", env=self.env)
        assert "Traceback" not in ended.err + ended.out
        assert snapshot(self.repo) == before
        return ended


@pytest.fixture
def scenario(tmp_path: Path, registry: Mapping[str, str]) -> Scenario:
    return Scenario(tmp_path, registry)


CASES = [
    *(("npm", "package.json", fault) for fault in FAULTS),
    *(("npm", "package-lock.json", fault) for fault in FAULTS[:1]),
    *(("PyPI", "requirements.txt", fault) for fault in FAULTS[:3]),
    *(("PyPI", "pyproject.toml", fault) for fault in FAULTS[:1]),
]


@pytest.mark.parametrize(
    ("ecosystem", "name", "fault", "several"),
    a_choice([(*case, several) for several in (False, True) for case in CASES], step=4),
)
def test_a_plan_names_it_and_goes_on(
    scenario: Scenario, ecosystem: str, name: str, fault: str, several: bool
) -> None:
    """With several advisories this was a traceback, with one a refusal."""
    files = NPM if ecosystem == "npm" else PINS
    scenario.make(files, f"test/fixtures/{name}", fault, files.get(name, ""))
    for package in ("left", "right")[: 1 + several]:
        scenario.advisory(package.upper(), package, ecosystem)
    ended = scenario("plan")
    assert (ended.code, ended.json["left"]) == (exit_codes.OK, [])
    (fix,) = ended.json["fixes"]
    asked = {"left", "right"} if several else {"left"}
    assert {move["package"] for move in fix["moves"]} == asked
    assert any(f"'test/fixtures/{name}'" in note for note in fix["notes"])
    ended = scenario("plan", "--no-resolve")
    assert any(f"'test/fixtures/{name}'" in note for note in ended.json["fixes"][0]["notes"])


@pytest.mark.sandbox
@pytest.mark.parametrize(
    ("ecosystem", "name", "fault"),
    a_choice(
        [
            ("npm", "package.json", "a broken link"),
            ("npm", "package.json", "nested 10,000 deep"),
            ("PyPI", "requirements.txt", "not UTF-8"),
            ("PyPI", "uv.lock", "a link out of the repository"),
        ],
        step=2,
    ),
)
def test_a_fix_is_proved_beside_it(
    scenario: Scenario, ecosystem: str, name: str, fault: str
) -> None:
    """The gates read the same files, in the patched tree."""
    files = NPM if ecosystem == "npm" else PINS
    more = {"tsconfig.json": "{}"} if ecosystem == "npm" else {}
    scenario.make({**files, **more}, f"test/fixtures/{name}", fault, files.get(name, ""))
    scenario.advisory("A", "left", ecosystem)
    ended = scenario("fix", "--dry-run")
    assert (ended.code, ended.json["outcome"]) == (exit_codes.OK, "verified")
    assert f"test/fixtures/{name}" not in ended.json["application"]["files"]
    notes = ended.json["application"]["remediation"]["notes"]
    assert any(f"'test/fixtures/{name}'" in note for note in notes)
    (verdict,) = (it for it in ended.json["verdicts"] if it["gate"] == "not_vulnerable")
    assert f"can't be read here, as at the base commit: test/fixtures/{name}" in verdict["detail"]


@pytest.mark.sandbox
def test_a_fixture_that_can_not_be_fixed_stops_no_fix_of_another(scenario: Scenario) -> None:
    """``stuck`` requires the affected release."""
    fixture = "tests/fixtures/a/requirements.txt"
    test = "import unittest\nclass T(unittest.TestCase):\n    def test_it(self): pass\n"
    files = {**PINS, fixture: "left==1.0.0\nstuck\n", "test_it.py": test}
    scenario.make(files, "other.link", "a broken link")
    scenario.advisory("A", "left", "PyPI")
    plan = scenario("plan")
    assert (plan.code, plan.json["left"]) == (exit_codes.OK, [])
    assert [it["path"] for it in plan.json["unread"]] == [fixture]
    ended = scenario("fix", "--dry-run")
    # The fixture is pinned to the affected release: a person decides.
    assert (ended.code, ended.json["outcome"]) == (exit_codes.ESCALATED, "escalated")
    (verdict,) = (it for it in ended.json["verdicts"] if it["gate"] == "not_vulnerable")
    assert verdict["status"] == "undecided"
    assert f"left stays affected in {fixture}" in verdict["detail"]


@pytest.mark.sandbox
def test_a_lock_of_a_fixture_degrades_the_proof(scenario: Scenario) -> None:
    """Its format is unknown, and it holds the affected release."""
    known = Universe().pypi("left", "1.0.0")
    lock = poetry_lock(poetry_block(known, "left", "1.0.0")).replace('"2.0"', '"9.0"')
    manifest = '[tool.poetry]\nname = "a"\n[tool.poetry.dependencies]\nleft = ">=1.0"\n'
    fixture = "tests/fixtures/a"
    test = "import unittest\nclass T(unittest.TestCase):\n    def test_it(self): pass\n"
    files = {f"{fixture}/poetry.lock": lock, f"{fixture}/pyproject.toml": manifest}
    scenario.make({**PINS, **files, "test_it.py": test}, "other.link", "a broken link")
    scenario.advisory("A", "left", "PyPI")
    ended = scenario("fix", "--dry-run")
    assert (ended.code, ended.json["outcome"]) == (exit_codes.PATCHED, "patched")
    assert ended.json["application"]["files"] == ["requirements.txt"]
    assert [it["path"] for it in ended.json["unread"]] == [f"{fixture}/poetry.lock"]


def test_a_fixture_alone_is_refused_by_its_own_reason(scenario: Scenario) -> None:
    files = {"tests/a/requirements.txt": "left==1.0.0\nstuck\n"}
    scenario.make(files, "other.link", "a broken link")
    scenario.advisory("A", "left", "PyPI")
    assert scenario("plan").code == exit_codes.REFUSED


@pytest.mark.sandbox
@pytest.mark.parametrize("name", NPM)
def test_a_fix_of_the_project_that_it_is_of_is_refused_by_name(
    scenario: Scenario, name: str
) -> None:
    scenario.make({**NPM, name: ""}, f"{name}.link", "a broken link")
    git(scenario.repo, "mv", "-f", f"{name}.link", name)
    git(scenario.repo, "commit", "-q", "-m", "a link in its place")
    scenario.advisory("A", "left", "npm")
    ended = scenario("fix", "--dry-run")
    assert (ended.code, ended.json["reason"]) == (exit_codes.UNKNOWN, "unknown")
    assert ended.json["sentence"].startswith(f"'{name}' is, or lies behind, a symbolic link. ")
    assert "Links are never followed; name the file itself." in ended.json["sentence"]


@pytest.mark.sandbox
@pytest.mark.parametrize(
    ("fault", "path"),
    a_choice(
        product(("nested 10,000 deep", "empty"), ("package.json", "pk/a/package.json")), step=3
    ),
)
def test_the_reason_is_the_file_and_not_what_follows_from_it(
    scenario: Scenario, path: str, fault: str
) -> None:
    """The lock can be read and holds the package; what asks for it can't, or not all of it."""
    root = {**json.loads(NPM["package.json"]), "workspaces": ["pk/*"]}
    scenario.make({**NPM, "package.json": json.dumps(root)}, path, fault, "{}")
    scenario.advisory("A", "left", "npm")
    ended = scenario("fix", "--dry-run")
    assert (ended.code, ended.json["reason"]) == (exit_codes.UNKNOWN, "unknown")
    assert ended.json["sentence"].startswith(f"'{path}' is not JSON")
    for how in ((), ("--no-resolve",)):
        (left,) = scenario("plan", *how).json["left"]
        assert left["sentence"].startswith(f"'{path}' is not JSON")


def test_what_concerns_nobody_else_is_left_and_the_rest_is_fixed(scenario: Scenario) -> None:
    """B is in no file that can be read: whether it is in the one that can't be, nobody knows."""
    scenario.make(NPM, "test/fixtures/package.json", "a broken link")
    scenario.advisory("A", "left", "npm")
    scenario.advisory("B", "nobody", "npm")
    ended = scenario("plan")
    assert ended.code == exit_codes.UNKNOWN
    assert [fix["advisory_ids"] for fix in ended.json["fixes"]] == [["A"]]
    (left,) = ended.json["left"]
    assert (left["advisory_ids"], left["reason"]) == (["B"], "unknown")
    assert [item["path"] for item in left["unread"]] == ["test/fixtures/package.json"]
    assert left["unread"][0] in ended.json["unread"]
    assert "'test/fixtures/package.json'" in left["sentence"]
    assert "unknown" in left["sentence"]


@pytest.mark.sandbox
@pytest.mark.parametrize("fault", a_choice(("a broken link", "not UTF-8"), step=2))
def test_a_root_pyproject_that_is_nobodys_business(scenario: Scenario, fault: str) -> None:
    """Gates of one's own may stand in it: that can be told although it can't be read."""
    scenario.make(NPM, "pyproject.toml", fault, "[tool.other]\n")
    scenario.advisory("A", "left", "npm")
    assert scenario("fix", "--dry-run").code == exit_codes.OK


@pytest.mark.sandbox
def test_gates_that_can_not_be_read_are_not_dropped(scenario: Scenario) -> None:
    message = '[[tool.fallback-tier.gates]]\nname = "a"\ncommand = ["true"]\n'
    scenario.make(NPM, "pyproject.toml", "not UTF-8", message)
    scenario.advisory("A", "left", "npm")
    ended = scenario("fix", "--dry-run")
    assert (ended.code, ended.json["error"]["code"]) == (exit_codes.BAD_INPUT, "repository")
    assert "'pyproject.toml' of commit" in ended.problem
    # A link to where they stand is no way around them.
    git(scenario.repo, "mv", "pyproject.toml", "settings.toml")
    (scenario.repo / "settings.toml").write_text(message)
    (scenario.repo / "pyproject.toml").symlink_to("settings.toml")
    git(scenario.repo, "add", "-A")
    git(scenario.repo, "commit", "-q", "-m", "a link")
    assert "'pyproject.toml' of commit" in scenario("fix", "--dry-run").problem


def test_a_file_without_permission(scenario: Scenario) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may read anything")
    scenario.make(NPM, "test/fixtures/package.json", "not UTF-8", manifest())
    scenario.advisory("A", "left", "npm")
    place = scenario.repo / "test" / "fixtures" / "package.json"
    place.chmod(0)
    git(scenario.repo, "update-index", "--assume-unchanged", "test/fixtures/package.json")
    words = ["plan", scenario.repo, "--advisory", scenario.folder, "--json"]
    ended = run(*words, env=scenario.env)
    place.chmod(0o644)
    assert ended.code == exit_codes.OK
    assert "Permission denied" in json.dumps(ended.json["fixes"][0]["notes"])


def test_every_way_to_spoil_a_file_is_one(tmp_path: Path) -> None:
    for fault, make in SPOILT.items():
        assert make(b'{"left": "1.0.0"}') != b'{"left": "1.0.0"}', fault


# --- the last resort --------------------------------------------------------------------------------


def fail(_arguments: Any) -> int:
    raise RecursionError("maximum recursion depth exceeded\nsecond line")


@pytest.mark.parametrize("as_json", [False, True])
def test_a_defect_is_said_and_is_no_traceback(
    as_json: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(main, "_load", lambda _name: fail)
    words = ["cache", "list", *(["--json"] if as_json else [])]
    assert main.main(words) == exit_codes.ENVIRONMENT
    reported = capsys.readouterr()
    assert "Traceback" not in reported.err
    first, second = reported.err.splitlines()
    assert first.startswith(
        "fallback-tier: A defect of fallback-tier itself: RecursionError in tests."
    )
    assert first.endswith(": maximum recursion depth exceeded.")
    assert f"{TRACEBACK}=1" in second
    if as_json:
        assert json.loads(reported.out)["error"]["problem"] in first


def test_who_looks_for_a_defect_sees_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(main, "_load", lambda _name: fail)
    monkeypatch.setenv(TRACEBACK, "1")
    with pytest.raises(RecursionError):
        main.main(["cache", "list"])
