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


class Desk:
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
def desk(
    tmp_path: Path,
    registry: Mapping[str, str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Desk:
    return Desk(tmp_path, registry, capsys, monkeypatch)


def test_all_of_it_can_be_done(desk: Desk) -> None:
    desk.advisory("A", "left", fixed="1.5.0")
    desk.advisory("B", "right")
    ended = desk.plan("--json")
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


def test_a_table_for_a_person(desk: Desk) -> None:
    desk.advisory("A", "left", fixed="1.5.0")
    desk.advisory("B", "right", fixed=None)
    desk.advisory("C", "absent", fixed=None)
    ended = desk.plan()
    assert ended.code == exit_codes.REFUSED
    head, columns, row, *_ = ended.out.splitlines()
    assert head.startswith("plan for repo at ")
    assert columns.split("  ")[0] == "manifest"
    assert row.split()[:5] == ["requirements.txt", "left", "1.0.0", "→", "1.5.0"]
    assert "direct bump" in row
    assert "left  right in requirements.txt (B): no_fixed_version" in ended.out
    assert "next: Replace the dependency" in ended.out
    assert "not affected: 1 of the advisories" in ended.out


def test_from_the_files_alone(desk: Desk) -> None:
    desk.advisory("A", "left")
    desk.env = {"UV_DEFAULT_INDEX": "http://127.0.0.1:9/simple"}
    ended = desk.plan("--no-resolve", "--json")
    assert ended.code == exit_codes.OK
    assert not ended.json["resolved"]
    assert ended.json["fixes"][0]["proof_level"] is None
    assert "from the files alone, nothing was resolved" in desk.plan("--no-resolve").out


def test_offline_is_said(desk: Desk) -> None:
    desk.advisory("A", "left")
    desk.env = {"UV_DEFAULT_INDEX": "http://127.0.0.1:9/simple"}
    ended = desk.plan("--offline", "--json")
    assert (ended.code, ended.json["offline"]) == (exit_codes.OK, True)
    note, *more = ended.json["fixes"][0]["notes"]
    assert note.startswith("Offline: ")
    assert more == ["left goes from 1.0.0 to 2.0.0, a major step: look at what it changed."]
    assert "a yanked release can't be noticed" in desk.plan("--offline").out


def test_nothing_concerns_it(desk: Desk) -> None:
    desk.advisory("A", "left", introduced="1.1.0")
    ended = desk.plan("--json")
    assert ended.code == ended.json["exit_code"] == exit_codes.NOT_AFFECTED
    assert (ended.json["fixes"], ended.json["not_affected"]) == ([], ["A"])
    assert "not affected: 1 of the advisories" in desk.plan().out


def test_an_ecosystem_that_nobody_serves(desk: Desk) -> None:
    path = desk.advisory("A", "left", ecosystem="crates.io")
    ended = desk.plan("--json", advisory=path)
    assert ended.code == exit_codes.REFUSED
    assert ended.json["left"][0]["reason"] == "ecosystem_unsupported"
    assert "crates.io" in ended.json["left"][0]["sentence"]


def test_what_of_the_input_is_left_out_is_listed(desk: Desk) -> None:
    desk.advisory("A", "left")
    desk.advisory("W", "left", withdrawn="2026-02-01T00:00:00Z")
    (desk.folder / "x.json").write_text("{nope")
    ended = desk.plan("--json")
    assert [Path(item["source"]).name for item in ended.json["skipped"]] == ["W.json", "x.json"]
    assert desk.plan().out.count("skipped: ") == 2


def test_what_is_unknown_is_not_called_unaffected(desk: Desk) -> None:
    """One record that doesn't concern it, one that can't be read; what was withdrawn is no gap."""
    desk.advisory("A", "left", introduced="1.1.0")
    desk.advisory("W", "left", withdrawn="2026-02-01T00:00:00Z")
    assert desk.plan("--json").code == exit_codes.NOT_AFFECTED
    (desk.folder / "x.json").write_text("{nope")
    ended = desk.plan("--json")
    assert ended.code == exit_codes.REFUSED
    assert [item["unknown"] for item in ended.json["skipped"]] == [False, True]


def test_a_scanners_findings_in_code_are_listed(desk: Desk) -> None:
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
    path = desk.place / "report.sarif"
    path.write_text(json.dumps(log))
    ended = desk.plan("--json", advisory=path)
    assert [finding["rule_id"] for finding in ended.json["findings"]] == ["py/eval"]
    assert ended.code == exit_codes.REFUSED
    assert (
        "py/eval is in the repository's own code (app.py, line 1)" in desk.plan(advisory=path).out
    )


def test_untrusted_words_do_not_reach_the_terminal_as_commands(desk: Desk) -> None:
    """An advisory may be called anything."""
    path = desk.folder / "odd.json"
    path.write_text(osv("left", id="A\x1b[31m[bold]\u202e"))
    out = desk.plan().out
    assert "\x1b" not in out
    assert "\u202e" not in out
    assert "[bold]" in out


def test_a_plan_is_what_fix_does(desk: Desk) -> None:
    """The same moves, by the same command line."""
    desk.advisory("A", "left", fixed="1.5.0")
    desk.advisory("B", "right")
    planned = desk.plan("--json").json["fixes"][0]
    command = ["fix", desk.repo, "--advisory", desk.folder, "--dry-run", "--no-sandbox", "--json"]
    ended = run(*command, "--state-dir", desk.place / "fix", env=desk.env)
    (fix,) = ended.json["fixes"]
    ids = [move.pop("advisory_ids") for move in planned["moves"]]
    assert ids == [["A"], ["B"]]
    assert fix["application"]["remediation"]["moves"] == planned["moves"]
    assert fix["advisory_ids"] == planned["advisory_ids"]
    # And the plan as a process of its own: the object on standard output, nothing else.
    again = run("plan", desk.repo, "--advisory", desk.folder, "--json", env=desk.env)
    assert (again.code, again.json["fixes"][0]["files"]) == (0, ["requirements.txt"])
    assert again.err == ""
