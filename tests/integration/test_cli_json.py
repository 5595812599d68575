"""``schema``, and outputs of ``--json`` that no other test has: helpers compare each with its schema."""

import json
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator, ValidationError

from fallback_plugins.messages_api import local
from fallback_tier.cli import exit_codes
from fallback_tier.cli.main import main
from fallback_tier.fleet.store.store import open_store
from tests.e2e.command import osv, repository, run
from tests.e2e.wheel import Installed
from tests.schemas.checking import check_output
from tests.schemas.files import SHAPES, committed, path_of
from tests.unit.fleet.made import NAME, fix, planned


def test_names_are_listed_and_a_schema_is_its_file() -> None:
    assert run("schema").out.splitlines() == sorted(SHAPES)
    for words in (["audit", "log"], ["audit-log"]):
        assert run("schema", *words).out == path_of("audit-log").read_text("utf-8")


def test_a_name_that_there_is_not_is_bad_input() -> None:
    ended = run("schema", "audit", "nothing")
    assert (ended.code, "audit-nothing" in ended.problem) == (exit_codes.BAD_INPUT, True)


def test_the_wheel_has_the_schemas(installed: Installed, tmp_path: Path) -> None:
    ended = run("schema", "error", script=installed.script, cwd=tmp_path)
    assert json.loads(ended.out) == committed("error")


def test_a_reader_takes_what_a_later_release_adds() -> None:
    later = {"error": {"code": "a", "problem": "b", "next_step": "c", "more": 1}, "more": 2}
    Draft202012Validator(committed("error")).validate(later)
    with pytest.raises(ValidationError):
        Draft202012Validator(committed("error")).validate({"error": {"code": "a"}})


def test_a_helper_refuses_what_a_schema_does_not_have() -> None:
    check_output(["keys", "people", "--json"], '{"people": []}')
    for text in ('{"people": [], "more": 1}', '{"people": [{"name": "Ada"}]}', "{}"):
        with pytest.raises(AssertionError):
            check_output(["keys", "people", "--json"], text)


def test_one_advisory_and_several_are_read_alike(tmp_path: Path) -> None:
    """By a program that does not ask how many were given."""
    repo = repository(tmp_path / "repo", {"requirements.txt": "right==1.0.0\n"})
    packages = {"TEST-2026-1": "left", "TEST-2026-2": "right"}
    for name, package in packages.items():
        fixed = None if package == "right" else "2.0.0"
        (tmp_path / f"{name}.json").write_text(osv(package, id=name, fixed=fixed))

    def ends(*names: str) -> dict[str, tuple[str, tuple[str, ...]]]:
        given = [word for name in names for word in ("--advisory", tmp_path / f"{name}.json")]
        ended = run("fix", repo, *given, "--offline", "--json", "--state-dir", tmp_path / "state")
        found = ended.json
        assert (ended.code, found["schema_version"]) == (found["exit_code"], 1)
        assert (found["delivered"], found["commit"], found["report"]) == (False, None, None)
        assert {one["outcome"] for one in found["fixes"]} <= {"refused"}
        return {
            one["id"]: (one["outcome"], tuple(why["reason"] for why in one["why"]))
            for one in found["advisories"]
        }

    first, second = ends("TEST-2026-1"), ends("TEST-2026-2")
    assert ends(*packages) == first | second
    assert first["TEST-2026-1"] != second["TEST-2026-2"]


def test_a_campaign_is_printed_by_whatever_changes_it(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        ended = {"started_at": "2026-01-01T00:00:00Z", "ended_at": "2026-01-01T00:01:00Z"}
        failed = fix(2, state="failed", why="tool", cost=5, **ended)
        store.create(planned([fix(1), failed], cap=1_000_000))
    where = ("--state-dir", tmp_path, "--json")
    assert run("fleet", "pause", NAME, *where).json["state"] == "paused"
    assert run("fleet", "resume", NAME, *where).json["counts"]["queued"] == 2
    assert run("fleet", "cancel", NAME, *where).json["state"] == "cancelled"
    (listed,) = run("fleet", "status", *where).json["campaigns"]
    assert listed["usd"]["cap"] == "1"
    report = run("fleet", "report", NAME, *where).json
    assert report["total"]["fixes"] == 2
    assert len(run("fleet", "status", NAME, *where).json["fixes"]) == 2


def test_an_index_says_what_was_cut(tmp_path: Path) -> None:
    (tmp_path / "none.jsonl").write_text("")
    store = ("--store", tmp_path / "examples.db", "--json")
    assert run("examples", "ingest", tmp_path / "none.jsonl", *store).json["added"] == 0
    assert run("examples", "index", *store).json["cut"] == 0


def test_a_fetched_model_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(local, "fetch_model", lambda folder, _shown: folder / "model.gguf")
    assert main(["local-model", "fetch", str(tmp_path), "--json"]) == exit_codes.OK
    assert json.loads(capsys.readouterr().out)["file"] == str(tmp_path / "model.gguf")
