"""`plan`: a table and a JSON document; nothing is written, whatever it says."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from fallback_tier.cli import exit_codes
from fallback_tier.cli.main import main
from tests.e2e.command import Ended, half_written, osv, repository, run, snapshot
from tests.registry import Universe, serve

PINS = {
    "requirements.txt": "left==1.0.0  # why\nright==1.0.0\n",
    "app.py": "import left\n",
}


@pytest.fixture(scope="module")
def registry() -> Iterator[Mapping[str, str]]:
    universe = Universe()
    for name in ("left", "right", "middle"):
        for version in ("1.0.0", "1.5.0", "2.0.0"):
            universe.pypi(name, version)
    with serve(universe) as served:
        yield served.environ


class Scenario:
    """A repository, a folder of advisories, and `plan`, after which nothing may have changed."""

    def __init__(
        self,
        place: Path,
        env: Mapping[str, str],
        capsys: pytest.CaptureFixture[str],
        patch: pytest.MonkeyPatch,
    ) -> None:
        self.place, self.env, self.capsys, self.patch = place, env, capsys, patch
        self.folder = place / "advisories"
        self.folder.mkdir()
        self.repo = repository(place / "repo", PINS)

    def advisory(self, name: str, package: str, **facts: Any) -> Path:
        path = self.folder / f"{name}.json"
        path.write_text(osv(package, id=name, **facts))
        return path

    def plan(self, *more: str | Path, advisory: Path | None = None) -> Ended:
        before, state = snapshot(self.repo), self.place / "state"
        command = ["plan", self.repo, "--advisory", advisory or self.folder, "--state-dir", state]
        with self.patch.context() as patch:
            for name, value in {**self.env, "COLUMNS": "200"}.items():
                patch.setenv(name, value)
            code = main([str(word) for word in (*command, *more)])
        ended = Ended(code, *self.capsys.readouterr())
        assert "Traceback" not in ended.err
        assert snapshot(self.repo) == before
        assert half_written(self.repo) == []
        assert not state.exists()
        return ended


@pytest.fixture
def scenario(
    tmp_path: Path,
    registry: Mapping[str, str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Scenario:
    return Scenario(tmp_path, registry, capsys, monkeypatch)


def test_all_of_it_can_be_done(scenario: Scenario) -> None:
    scenario.advisory("A", "left", fixed="1.5.0")
    scenario.advisory("B", "right")
    ended = scenario.plan("--json")
    document = ended.json
    assert ended.code == document["exit_code"] == exit_codes.OK
    (fix,) = document["fixes"]
    assert (fix["ecosystem"], fix["advisory_ids"]) == ("PyPI", ["A", "B"])
    assert fix["files"] == ["requirements.txt"]
    assert [
        (move["package"], move["before"], move["after"], move["step"], move["advisory_ids"])
        for move in fix["moves"]
    ] == [
        ("left", ["1.0.0"], "1.5.0", "direct_bump", ["A"]),
        ("right", ["1.0.0"], "2.0.0", "direct_bump", ["B"]),
    ]
    assert fix["proof_level"] in {"pins", "resolved_tree"}
    assert (document["left"], document["resolved"]) == ([], True)


def test_how_it_would_be_tested(scenario: Scenario) -> None:
    """By what the user says first; without a word of anyone runners look for themselves."""
    scenario.advisory("A", "left", fixed="1.5.0")
    stated = ["--test-command", "make unit", "--test-command", "make more"]
    (fix,) = scenario.plan("--json", *stated).json["fixes"]
    assert [(one["project"], one["command"]) for one in fix["tests"]][:2] == [
        (".", "make unit"),
        (".", "make more"),
    ]
    assert fix["tests"][0]["source"] == "--test-command"
    shown = scenario.plan(*stated).out
    assert "  tests: make unit (--test-command; 1 more if it runs no test)" in shown
    assert (
        "  tests: no command names them; runners look for tests by themselves"
        in scenario.plan().out
    )


def test_a_table_for_a_person(scenario: Scenario) -> None:
    scenario.advisory("A", "left", fixed="1.5.0")
    scenario.advisory("B", "right", fixed=None)
    scenario.advisory("C", "absent", fixed=None)
    ended = scenario.plan()
    assert ended.code == exit_codes.REFUSED
    head, columns, row, *_ = ended.out.splitlines()
    assert head.startswith("plan for repo at ")
    assert columns.split("  ")[0] == "manifest"
    assert row.split()[:5] == ["requirements.txt", "left", "1.0.0", "→", "1.5.0"]
    assert "direct bump" in row
    assert "left  right in requirements.txt (B): no_fixed_version" in ended.out
    assert "next: Replace the dependency" in ended.out
    assert "not affected: 1 of the advisories" in ended.out


def test_from_the_files_alone(scenario: Scenario) -> None:
    scenario.advisory("A", "left")
    scenario.env = {"UV_DEFAULT_INDEX": "http://127.0.0.1:9/simple"}
    ended = scenario.plan("--no-resolve", "--json")
    assert ended.code == exit_codes.OK
    assert not ended.json["resolved"]
    assert ended.json["fixes"][0]["proof_level"] is None
    assert "from the files alone, nothing was resolved" in scenario.plan("--no-resolve").out


def test_offline_is_said(scenario: Scenario) -> None:
    scenario.advisory("A", "left")
    scenario.env = {"UV_DEFAULT_INDEX": "http://127.0.0.1:9/simple"}
    ended = scenario.plan("--offline", "--json")
    assert (ended.code, ended.json["offline"]) == (exit_codes.OK, True)
    note, *more = ended.json["fixes"][0]["notes"]
    assert note.startswith("Offline: ")
    major, unknown = more
    assert major == "left goes from 1.0.0 to 2.0.0, a major step: look at what it changed."
    assert unknown.startswith("What requirements.txt brings in is unknown.")
    assert "a yanked release can't be noticed" in scenario.plan("--offline").out


def test_nothing_concerns_it(scenario: Scenario) -> None:
    scenario.advisory("A", "left", introduced="1.1.0")
    ended = scenario.plan("--json")
    assert ended.code == ended.json["exit_code"] == exit_codes.NOT_AFFECTED
    assert (ended.json["fixes"], ended.json["not_affected"]) == ([], ["A"])
    assert "not affected: 1 of the advisories" in scenario.plan().out


def test_an_ecosystem_that_nobody_serves(scenario: Scenario) -> None:
    path = scenario.advisory("A", "left", ecosystem="crates.io")
    ended = scenario.plan("--json", advisory=path)
    assert ended.code == exit_codes.REFUSED
    assert ended.json["left"][0]["reason"] == "ecosystem_unsupported"
    assert "crates.io" in ended.json["left"][0]["sentence"]


def test_what_of_the_input_is_left_out_is_listed(scenario: Scenario) -> None:
    scenario.advisory("A", "left")
    scenario.advisory("W", "left", withdrawn="2026-02-01T00:00:00Z")
    (scenario.folder / "x.json").write_text("{nope")
    ended = scenario.plan("--json")
    assert [Path(item["source"]).name for item in ended.json["skipped"]] == ["W.json", "x.json"]
    assert scenario.plan().out.count("skipped: ") == 2


def test_what_is_unknown_is_not_called_unaffected(scenario: Scenario) -> None:
    """One record that doesn't concern it, one that can't be read; what was withdrawn is no gap."""
    scenario.advisory("A", "left", introduced="1.1.0")
    scenario.advisory("W", "left", withdrawn="2026-02-01T00:00:00Z")
    assert scenario.plan("--json").code == exit_codes.NOT_AFFECTED
    (scenario.folder / "x.json").write_text("{nope")
    ended = scenario.plan("--json")
    assert ended.code == exit_codes.UNKNOWN
    assert [item["unknown"] for item in ended.json["skipped"]] == [False, True]


def test_a_scanners_findings_in_code_are_listed(scenario: Scenario) -> None:
    location = {
        "physicalLocation": {
            "artifactLocation": {"uri": "app.py"},
            "region": {"startLine": 1, "endLine": 1},
        }
    }
    result = {"ruleId": "py/eval", "message": {"text": "eval"}, "locations": [location]}
    log = {
        "version": "2.1.0",
        "runs": [{"tool": {"driver": {"name": "scanner"}}, "results": [result]}],
    }
    path = scenario.place / "report.sarif"
    path.write_text(json.dumps(log))
    ended = scenario.plan("--json", advisory=path)
    assert [finding["rule_id"] for finding in ended.json["findings"]] == ["py/eval"]
    assert ended.code == exit_codes.REFUSED
    assert (
        "py/eval is in the repository's own code (app.py, line 1)"
        in scenario.plan(advisory=path).out
    )


def test_untrusted_words_do_not_reach_the_terminal_as_commands(scenario: Scenario) -> None:
    """An advisory may be called anything."""
    path = scenario.folder / "odd.json"
    path.write_text(osv("left", id="A\x1b[31m[bold]\u202e"))
    out = scenario.plan().out
    assert "\x1b" not in out
    assert "\u202e" not in out
    assert "[bold]" in out


def test_a_plan_is_what_fix_does(scenario: Scenario) -> None:
    """The same moves, by the same command line."""
    scenario.advisory("A", "left", fixed="1.5.0")
    scenario.advisory("B", "right")
    planned = scenario.plan("--json").json["fixes"][0]
    command = [
        "fix",
        scenario.repo,
        "--advisory",
        scenario.folder,
        "--dry-run",
        "--no-sandbox",
        "--json",
    ]
    ended = run(*command, "--state-dir", scenario.place / "fix", env=scenario.env)
    (fix,) = ended.json["fixes"]
    ids = [move.pop("advisory_ids") for move in planned["moves"]]
    assert ids == [["A"], ["B"]]
    assert fix["application"]["remediation"]["moves"] == planned["moves"]
    assert fix["advisory_ids"] == planned["advisory_ids"]
    # And the plan as a process of its own: the object on standard output, nothing else.
    again = run("plan", scenario.repo, "--advisory", scenario.folder, "--json", env=scenario.env)
    assert (again.code, again.json["fixes"][0]["files"]) == (0, ["requirements.txt"])
    assert again.err == ""
