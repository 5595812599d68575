"""Bad input: one clear message (input, reason, next step), the documented exit code, nothing touched."""

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fallback_tier.cli import exit_codes
from fallback_tier.limits import MAX_FAILURE_SUMMARY_BYTES
from tests.e2e.command import Ended, half_written, osv, repository, run, snapshot
from tests.fakes.repository import git, write

FILES = {"requirements.txt": "left==1.0.0\n", "app.py": "import left\n"}


@dataclass(frozen=True)
class Scenario:
    """A repository, an advisory and a state folder; every command is checked for traces."""

    place: Path
    repo: Path

    def advisory(self, text: str | bytes) -> Path:
        path = self.place / "advisory.json"
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    def __call__(self, *arguments: str | Path, stdin: str = "", repo: Path | None = None) -> Ended:
        watched = repo or self.repo
        before = snapshot(watched) if watched.is_dir() else None
        state = self.place / "state"
        ended = run(*arguments, "--state-dir", state, stdin=stdin)
        assert before is None or snapshot(watched) == before
        assert half_written(state, watched) == []
        return ended

    def fix(
        self, advisory: str | bytes, *more: str | Path, repo: Path | None = None, as_json: bool
    ) -> Ended:
        command = ["fix", repo or self.repo, "--advisory", self.advisory(advisory), *more]
        return self(*command, *(["--json"] if as_json else []), repo=repo)


@pytest.fixture
def scenario(tmp_path: Path) -> Scenario:
    return Scenario(tmp_path, repository(tmp_path / "repo", FILES))


def as_error(ended: Ended, *, code: str, exit_code: int = exit_codes.BAD_INPUT) -> str:
    """The problem, checked: the JSON object and standard error say the same."""
    assert ended.code == exit_code, ended
    error = ended.json["error"]
    assert (error["code"], error["problem"]) == (code, ended.problem)
    assert error["next_step"] == ended.next_step != ""
    return ended.problem


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"", "is not JSON"),
        (b"{nope", "is not JSON"),
        (b"\x89PNG\r\n\x1a\n\x00", "is not JSON"),
        (b'"text"', "is no advisory and no report that we know"),
        (b'{"cve": "CVE-2026-1"}', "is no advisory and no report that we know"),
        (b'{"id": "X-1", "affected": "all"}', "is not an OSV record: affected"),
    ],
)
def test_an_advisory_that_is_none(scenario: Scenario, text: str | bytes, reason: str) -> None:
    problem = as_error(scenario.fix(text, as_json=True), code="advisory")
    assert "advisory.json" in problem
    assert reason in problem


@pytest.mark.parametrize("command", ["fix", "plan"])
def test_a_withdrawn_advisory_affects_nothing(scenario: Scenario, command: str) -> None:
    """The repository holds a version that the record calls affected; nothing changes all the same."""
    path = scenario.advisory(osv("left", withdrawn="2026-02-01T00:00:00Z"))
    ended = scenario(command, scenario.repo, "--advisory", path, "--json")
    assert ended.code == exit_codes.NOT_AFFECTED
    assert "was withdrawn on 2026-02-01" in ended.out
    assert "was withdrawn on 2026-02-01" in scenario(command, scenario.repo, "--advisory", path).out


def test_an_advisory_for_another_ecosystem(scenario: Scenario) -> None:
    problem = as_error(
        scenario.fix(osv("left", ecosystem="crates.io"), as_json=True), code="configuration"
    )
    assert problem == "Advisory TEST-2026-1 is about crates.io; this tier supports PyPI, npm."


@pytest.mark.parametrize(
    ("name", "reason"), [("absent.json", "No such file"), ("repo", "holds no .json")]
)
@pytest.mark.parametrize("command", ["fix", "plan"])
def test_an_advisory_that_cannot_be_read(
    scenario: Scenario, command: str, name: str, reason: str
) -> None:
    ended = scenario(command, scenario.repo, "--advisory", scenario.place / name, "--json")
    assert reason in as_error(ended, code="advisory")


@pytest.mark.parametrize("command", ["fix", "plan"])
def test_advisories_none_of_which_can_be_used(scenario: Scenario, command: str) -> None:
    folder = scenario.place / "advisories"
    write(folder, {"a.json": osv("left", withdrawn="2026-02-01T00:00:00Z"), "b.json": "{nope"})
    ended = scenario(command, scenario.repo, "--advisory", folder, "--json")
    problem = as_error(ended, code="advisory")
    assert problem.startswith("Nothing that --advisory names can be used: ")
    assert "a.json" in problem


def no_folder(place: Path) -> Path:
    return place / "absent"


def no_git(place: Path) -> Path:
    write(place / "plain", FILES)
    return place / "plain"


def no_commit(place: Path) -> Path:
    write(place / "new", FILES)
    git(place / "new", "init", "-q")
    return place / "new"


def bare(place: Path) -> Path:
    (place / "bare").mkdir()
    git(place / "bare", "init", "-q", "--bare")
    return place / "bare"


def dirty(place: Path) -> Path:
    root = repository(place / "dirty", FILES)
    write(root, {"app.py": "my own work\n"})
    return root


def staged(place: Path) -> Path:
    root = dirty(place)
    git(root, "add", "app.py")
    return root


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (no_folder, "is not a folder"),
        (no_git, "is not a git repository"),
        (no_commit, "has no commit yet"),
        (bare, "is a bare repository"),
        (dirty, "has uncommitted changes: app.py"),
        (staged, "has uncommitted changes: app.py"),
    ],
)
def test_a_repository_that_cannot_be_used(
    scenario: Scenario, make: Callable[[Path], Path], reason: str
) -> None:
    root = make(scenario.place)
    ended = scenario.fix(osv("left"), repo=root, as_json=True)
    problem = as_error(ended, code="repository")
    assert root.name in problem
    assert reason in problem


@pytest.mark.parametrize(
    ("files", "advisory", "reason", "exit_code"),
    [
        ({"README": "x"}, osv("left"), "manifest_missing", exit_codes.REFUSED),
        ({"README": "x"}, osv("left", ecosystem="npm"), "manifest_missing", exit_codes.REFUSED),
        (FILES, osv("left", fixed=None), "no_fixed_version", exit_codes.REFUSED),
        # No registry answers, so what the pins bring in is unknown.
        (FILES, osv("right"), "unknown", exit_codes.UNKNOWN),
        (FILES, osv("left", fixed="1.0.0"), "not_affected", exit_codes.NOT_AFFECTED),
        (
            {"requirements.txt": "left @ git+https://example.invalid/left.git@v1.0.0"},
            osv("left"),
            "recipe_unsupported",
            exit_codes.REFUSED,
        ),
    ],
)
@pytest.mark.sandbox
def test_nothing_to_fix_or_no_way_to(
    scenario: Scenario, files: dict[str, str], advisory: str, reason: str, exit_code: int
) -> None:
    root = repository(scenario.place / "other", files)
    ended = scenario.fix(advisory, repo=root, as_json=True)
    assert (ended.code, ended.json["exit_code"]) == (exit_code, exit_code)
    assert (ended.json["outcome"], ended.json["reason"]) == ("refused", reason)
    # For a person: the same sentence, which ends in what to do.
    reported = scenario.fix(advisory, repo=root, as_json=False)
    assert reported.code == exit_code
    assert " ".join(ended.json["sentence"].split()) in " ".join(reported.out.split())
    assert "Traceback" not in reported.err


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--script", "absent.json"], "--script absent.json: there is no such file."),
        (["--examples", "absent.db"], "--examples absent.db: there is no such file."),
        (["--base-url", "http://127.0.0.1:9"], "is given without a model"),
        (["--model", "m"], "Model 'm' needs a key, and ANTHROPIC_API_KEY is not set."),
        (["--output", "absent/fix.patch"], "--output absent/fix.patch: there is no folder absent."),
    ],
)
def test_options_that_cannot_be(scenario: Scenario, arguments: list[str], reason: str) -> None:
    ended = scenario.fix(osv("left"), *arguments, as_json=True)
    assert reason in as_error(ended, code="configuration")


def test_a_script_that_is_none(scenario: Scenario) -> None:
    script = scenario.place / "script.json"
    script.write_text('{"action": ')
    ended = scenario.fix(osv("left"), "--script", script, as_json=True)
    assert f"The script {script} is not JSON" in as_error(ended, code="configuration")


def test_no_command_and_no_advisory(scenario: Scenario) -> None:
    assert run().code == exit_codes.BAD_INPUT
    for command in ("fix", "plan"):
        ended = run(command, scenario.repo)
        assert ended.code == exit_codes.BAD_INPUT
        assert "--advisory" in ended.err


# --- attempt: JSON in ---------------------------------------------------------------------------


def request(repo: Path, **facts: Any) -> str:
    return json.dumps({"advisory": json.loads(osv("left")), "repository": str(repo), **facts})


def prior(attempt: int, summary: str = "test_a failed", **facts: Any) -> dict[str, Any]:
    return {
        "attempt": attempt,
        "failure_kind": "tests_failed",
        "prior_failure_summary": summary,
        **facts,
    }


#: 8,192 bytes is the limit; these are 4,097 characters of two bytes.
TOO_LONG = "é" * (MAX_FAILURE_SUMMARY_BYTES // 2 + 1)


@pytest.mark.parametrize(
    ("history", "reason"),
    [
        ([prior(1, TOO_LONG)], "summary of attempt 1 has 8,194 bytes; the limit is 8,192."),
        ([prior(2), prior(1)], "Prior attempt 1 follows attempt 2"),
        ([prior(1), prior(1)], "Prior attempt 1 follows attempt 1"),
    ],
)
def test_a_history_that_breaks_its_contract(
    scenario: Scenario, history: list[dict[str, Any]], reason: str
) -> None:
    ended = scenario("attempt", stdin=request(scenario.repo, prior_attempts=history))
    assert reason in as_error(ended, code="attempt_history")


def test_a_summary_at_the_limit_is_accepted(scenario: Scenario) -> None:
    history = [prior(1, "é" * (MAX_FAILURE_SUMMARY_BYTES // 2))]
    ended = scenario("attempt", stdin=request(scenario.repo, prior_attempts=history))
    assert ended.json["reason"] == "model_not_configured"
    assert ended.code == exit_codes.REFUSED


def test_a_fourth_retry_is_refused(scenario: Scenario) -> None:
    history = [prior(number) for number in range(1, 5)]
    ended = scenario("attempt", stdin=request(scenario.repo, prior_attempts=history))
    assert (ended.code, ended.json["reason"]) == (exit_codes.REFUSED, "retry_cap_reached")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"advisory": None}, "advisory: Input should be"),
        ({"prior_attempts": [prior(1, failure_kind="odd")]}, "prior_attempts.0.failure_kind"),
        ({"prior_attempts": [prior(0)]}, "prior_attempts.0.attempt"),
        ({"prior_attempts": [{"attempt": 1}]}, "prior_attempts.0.failure_kind: Field required"),
        ({"priorattempts": []}, "priorattempts: Extra inputs are not permitted"),
    ],
)
def test_a_request_that_is_none(scenario: Scenario, change: dict[str, Any], reason: str) -> None:
    ended = scenario("attempt", stdin=request(scenario.repo, **change))
    assert reason in as_error(ended, code="input")


@pytest.mark.parametrize("text", ["", "fix it please", '{"advisory":'])
def test_a_request_that_is_not_json(scenario: Scenario, text: str) -> None:
    assert "on standard input is not valid" in as_error(
        scenario("attempt", stdin=text), code="input"
    )


@pytest.mark.parametrize(
    "twice", ['"repository": "elsewhere", ', '"advisory": {}, ', '"prior_attempts": [], ']
)
def test_a_request_with_a_key_twice(scenario: Scenario, twice: str) -> None:
    text = "{" + twice + request(scenario.repo, prior_attempts=[])[1:]
    problem = as_error(scenario("attempt", stdin=text), code="input")
    key = twice.split('"')[1]
    assert f"is ambiguous: an object has the key {key!r} twice" in problem


def test_an_advisory_that_is_a_named_pipe_is_not_waited_for(scenario: Scenario) -> None:
    os.mkfifo(scenario.place / "pipe")
    command = ["fix", scenario.repo, "--advisory", scenario.place / "pipe", "--json"]
    problem = as_error(scenario(*command), code="advisory")
    assert problem.endswith("can't be read: it is a named pipe, not a regular file.")


def test_an_advisory_on_standard_input_is_read(scenario: Scenario) -> None:
    command = ["plan", scenario.repo, "--advisory", "/dev/stdin", "--no-resolve", "--json"]
    ended = scenario(*command, stdin=osv("left"))
    assert ended.code == 0, ended


def test_an_attempt_on_bad_input(scenario: Scenario) -> None:
    withdrawn = json.loads(osv("left", withdrawn="2026-02-01T00:00:00Z"))
    ended = scenario("attempt", stdin=request(scenario.repo, advisory=withdrawn))
    assert "was withdrawn" in as_error(ended, code="advisory")
    ended = scenario("attempt", stdin=request(scenario.place / "absent"))
    assert "is not a folder" in as_error(ended, code="repository")


def test_an_attempt_on_an_advisory_that_concerns_two_ecosystems(scenario: Scenario) -> None:
    """One attempt is one ecosystem's: a partial fix is no fix, so it is not even begun."""
    package = json.dumps({"name": "a", "version": "1.0.0", "dependencies": {"left": "1.0.0"}})
    root = repository(scenario.place / "two", {**FILES, "package.json": package})
    parts = [json.loads(osv("left", ecosystem=name)) for name in ("PyPI", "npm")]
    both = {**parts[0], "affected": [*parts[0]["affected"], *parts[1]["affected"]]}
    ended = scenario("attempt", stdin=request(root, advisory=both), repo=root)
    problem = as_error(ended, code="advisory")
    assert problem.startswith("TEST-2026-1 concerns PyPI and npm packages of this repository")
    # In a repository of one of them it is an attempt like any other.
    ended = scenario("attempt", stdin=request(scenario.repo, advisory=both))
    assert ended.json["outcome"] == "applied"


# --- the checks can fail ------------------------------------------------------------------------


def test_a_changed_repository_is_noticed(scenario: Scenario) -> None:
    before = snapshot(scenario.repo)
    write(scenario.repo, {"new.txt": "x"})
    assert snapshot(scenario.repo) != before
    (scenario.repo / "new.txt").unlink()
    assert snapshot(scenario.repo) == before
    write(scenario.repo, {".git/hooks/pre-commit": "x"})
    assert snapshot(scenario.repo) != before


def test_half_written_files_are_noticed(tmp_path: Path) -> None:
    write(tmp_path, {"state/evidence/ab/.tmp-1": "", ".fix.patch.1.part": "", "state/audit.db": ""})
    (tmp_path / "state" / "worktrees" / "fix-1").mkdir(parents=True)
    assert len(half_written(tmp_path)) == 3
