"""A state folder that was deleted: the next run says which command ends that on purpose, and it does."""

import re
import shlex
import shutil
from pathlib import Path

import pytest
from pydantic import SecretStr

from fallback_audit.checkpoints.keyring import known_files
from fallback_audit.events import RecordBegunAgain
from fallback_audit.stores.sqlite import open_readonly
from fallback_tier.cli import exit_codes
from fallback_tier.wiring.trail import RecordSettings, called
from tests.e2e.command import Ended, osv, repository, run

#: The command, as an error tells it.
COMMAND = re.compile(r"`fallback-tier (audit begin-again .* --by NAME --because TEXT)`")


class Scenario:
    """A repository, an advisory, and a state folder with a fix on record; a fix here needs no client."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.state = place / "a state"  # with a space: the command is given to a shell
        self.options = ["--state-dir", str(self.state), "--keys", str(place / "keys")]
        self.repo = repository(place / "repo", {"requirements.txt": "left==1.0.0\n"})
        self.advisory = place / "advisory.json"
        self.advisory.write_text(osv("left", fixed=None))

    def fix(self) -> Ended:
        words = ["fix", self.repo, "--advisory", self.advisory, "--dry-run", "--json"]
        return run(*words, *self.options)

    def audit(self, *words: str) -> Ended:
        return run("audit", *words, *self.options)


@pytest.fixture
def scenario(tmp_path: Path) -> Scenario:
    made = Scenario(tmp_path)
    assert made.fix().json["reason"] == "no_fixed_version"
    return made


def told(ended: Ended) -> list[str]:
    """The command's words, with a name and a reason in their places."""
    assert (ended.code, ended.json["error"]["code"]) == (exit_codes.ENVIRONMENT, "audit_history")
    found = COMMAND.search(ended.next_step)
    assert found is not None, ended
    words = {"NAME": "Ada", "TEXT": "it was scratch"}
    return [words.get(word, word) for word in shlex.split(found[1])]


@pytest.mark.sandbox
def test_the_command_that_the_error_tells_ends_it_on_record(scenario: Scenario) -> None:
    shutil.rmtree(scenario.state)
    refused = scenario.fix()
    assert refused.kind == "known_checkpoint_missing"
    ended = run(*told(refused))
    assert (ended.code, ended.err) == (exit_codes.OK, "")
    assert "`fallback-tier audit show audit --state-dir " in ended.out
    # On record before anything else, and covered.
    store = open_readonly(scenario.state / "audit.db")
    (event,) = store.events()
    store.close()
    assert isinstance(event.payload, RecordBegunAgain)
    assert (event.payload.by, event.payload.reason) == ("Ada", "it was scratch")
    assert f" {event.payload.lost_size} events" in refused.problem
    kept = scenario.audit("show", "audit").out
    assert "RECORD BEGUN AGAIN by Ada" in kept
    assert "resume" not in kept, "what keepers did is no fix"
    # Whatever is done from then on goes on as ever.
    assert scenario.fix().json["reason"] == "no_fixed_version"
    assert scenario.audit("verify").code == exit_codes.OK


@pytest.mark.sandbox
def test_the_protection_stays(scenario: Scenario) -> None:
    """Said once, it holds for that record alone."""
    for _ in range(2):
        shutil.rmtree(scenario.state)
        command = told(scenario.fix())
        assert scenario.fix().code == exit_codes.ENVIRONMENT, "nothing is ended by trying again"
        assert run(*command).code == exit_codes.OK
        assert scenario.fix().json["reason"] == "no_fixed_version"


@pytest.mark.sandbox
def test_a_store_that_is_gone_alone(scenario: Scenario) -> None:
    """Its checkpoints contradict an empty one: they have to be moved away first, by hand."""
    for place in scenario.state.glob("audit.db*"):
        place.unlink()
    refused = scenario.fix()
    command = told(refused)
    assert refused.kind == "rolled_back"
    ended = run(*command, "--json")
    assert (ended.code, ended.json["error"]["code"]) == (exit_codes.BAD_INPUT, "audit_request")
    shutil.move(scenario.state / "checkpoints", scenario.place / "kept")
    assert run(*command, "--json").json["lost_size"] > 0
    assert scenario.fix().json["reason"] == "no_fixed_version"
    assert scenario.audit("verify").code == exit_codes.OK


@pytest.mark.sandbox
def test_where_nothing_is_gone_nothing_is_made_or_ended(scenario: Scenario) -> None:
    known = known_files(scenario.place / "keys", scenario.state / "checkpoints")
    before = {path: path.read_bytes() for path in known}
    ended = scenario.audit("begin-again", "--by", "Ada", "--because", "why", "--json")
    assert (ended.code, ended.kind) == (exit_codes.BAD_INPUT, "nothing_gone")
    # A wrong path makes no new record.
    elsewhere = scenario.place / "elsewhere"
    words = ["audit", "begin-again", "--state-dir", elsewhere, "--keys", scenario.place / "keys"]
    assert run(*words, "--by", "Ada", "--because", "why").code == exit_codes.BAD_INPUT
    assert not elsewhere.exists()
    assert {path: path.read_bytes() for path in before} == before
    assert scenario.fix().json["reason"] == "no_fixed_version"


@pytest.mark.parametrize("words", [[], ["--by", "Ada"], ["--by", " ", "--because", "why"]])
def test_who_and_why_are_said(words: list[str], tmp_path: Path) -> None:
    ended = run("audit", "begin-again", "--state-dir", tmp_path / "state", *words)
    assert ended.code == exit_codes.BAD_INPUT
    assert not (tmp_path / "state").exists()


def test_a_database_is_named_without_its_password(tmp_path: Path) -> None:
    secret = SecretStr("postgresql://me:s3cr3t@host/db")
    record = RecordSettings(database=secret, checkpoints=tmp_path / "c")
    options = called(tmp_path, record)
    assert options == f" --state-dir {tmp_path} --checkpoints {tmp_path / 'c'} --audit-store URL"
