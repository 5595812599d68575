"""``keys`` and the beginning of ``serve`` as an operator meets them."""

import re
import sys
from pathlib import Path

import pytest

from fallback_tier.cli import exit_codes
from fallback_tier.cli.serve import check_extra
from fallback_tier.errors import ConfigurationError, ToolMissingError
from fallback_tier.service.database import Database, service_db
from fallback_tier.service.keys import KeyStore
from fallback_tier.service.people import People
from fallback_tier.service.serving import check_listening
from fallback_tier.service.settings import Listening
from tests.e2e.command import run
from tests.kinds import OfKind


def test_a_key_is_printed_once_and_alone(tmp_path: Path) -> None:
    made = run("keys", "new", "ci", "--role", "submit", "--days", "90", "--state-dir", tmp_path)
    assert made.code == exit_codes.OK
    assert re.fullmatch(r"ftk_[\w-]{43}\n", made.out)
    assert "shown this once" in made.err
    listed = run("keys", "list", "--state-dir", tmp_path)
    assert "ci  submit  valid until" in listed.out
    assert "ftk_" not in listed.out
    with Database(service_db(tmp_path)) as database:
        caller = KeyStore(database).caller(made.out.strip())
    assert caller is not None
    assert caller.name == "key:ci"


def test_a_key_is_rotated_and_revoked(tmp_path: Path) -> None:
    old = run("keys", "new", "ci", "--role", "read", "--state-dir", tmp_path, "--json").json
    new = run("keys", "rotate", old["key_id"], "--hours", "0", "--state-dir", tmp_path, "--json")
    assert (new.json["name"], new.json["roles"]) == ("ci", ["read"])
    assert new.json["secret"] != old["secret"]
    gone = run("keys", "revoke", new.json["key_id"], "--state-dir", tmp_path, "--json")
    assert (gone.json["key_id"], gone.json["revoked_at"] is None) == (new.json["key_id"], False)
    listed = run("keys", "list", "--state-dir", tmp_path, "--json").json["keys"]
    assert [key["revoked_at"] is None for key in listed] == [True, False]
    again = run("keys", "revoke", new.json["key_id"], "--state-dir", tmp_path, "--json")
    assert (again.code, again.kind) == (exit_codes.BAD_INPUT, "no_such_key")


@pytest.mark.parametrize("days", ["-1", "nan", "inf"])
def test_a_length_of_time_that_is_none(days: str, tmp_path: Path) -> None:
    words = ["keys", "new", "ci", "--role", "read", f"--days={days}", "--json"]
    refused = run(*words, "--state-dir", tmp_path)
    assert (refused.code, refused.kind) == (exit_codes.BAD_INPUT, "bad_duration")


def test_a_person_gives_a_password_on_standard_input(tmp_path: Path) -> None:
    words = ("keys", "person", "Ada", "--role", "decide", "--state-dir", tmp_path)
    assert "12 to 1,000 characters" in run(*words, stdin="short\n").problem
    put = run(*words, "--json", stdin="correct horse battery\n")
    assert put.json == {"name": "Ada", "roles": ["decide"]}
    assert run("keys", "people", "--state-dir", tmp_path).out == "Ada  decide\n"
    with Database(service_db(tmp_path)) as database:
        assert People(database).signed_in("Ada", "correct horse battery") is not None
    gone = run("keys", "remove-person", "Ada", "--state-dir", tmp_path, "--json")
    assert gone.json == {"removed": "Ada"}
    assert run("keys", "people", "--state-dir", tmp_path, "--json").json == {"people": []}


def test_all_sessions_end(tmp_path: Path) -> None:
    with Database(service_db(tmp_path)) as database:
        before = People(database).generation()
        ended = run("keys", "end-sessions", "--state-dir", tmp_path, "--json")
        assert (ended.code, ended.json) == (exit_codes.OK, {"sessions": "ended"})
        assert People(database).generation() != before


def test_serving_elsewhere_in_the_clear_is_refused(tmp_path: Path) -> None:
    refused = run("serve", "--host", "0.0.0.0", "--state-dir", tmp_path)
    assert refused.code == exit_codes.BAD_INPUT
    assert "0.0.0.0" in refused.problem
    assert not (tmp_path / "service").exists()
    with pytest.raises(ConfigurationError, check=OfKind("no_tls")):
        check_listening(Listening(host="0.0.0.0"))


def test_a_missing_extra_names_the_line_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(ToolMissingError, check=OfKind("extra_missing")) as missing:
        check_extra()
    assert "'fallback-tier[serve]'" in missing.value.next_step
