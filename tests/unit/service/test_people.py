"""People of one machine: a wrong password opens nothing, and tells nothing."""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fallback_tier.errors import ConfigurationError
from fallback_tier.service.database import Database
from fallback_tier.service.people import People, session_key
from fallback_tier.service.refusals import NotFoundError
from fallback_tier.service.roles import Role

PASSWORD = "correct horse battery"


@pytest.fixture
def people(tmp_path: Path) -> Iterator[People]:
    with Database(tmp_path / "service.db") as database:
        yield People(database)


def test_who_knows_the_password_gets_in(people: People) -> None:
    people.put("Ada", PASSWORD, [Role.DECIDE])
    caller = people.signed_in("Ada", PASSWORD)
    assert caller is not None
    assert (caller.name, caller.roles, caller.is_person) == ("person:Ada", {Role.DECIDE}, True)


@pytest.mark.parametrize(
    ("name", "password"),
    [("Ada", PASSWORD + "!"), ("Ada", ""), ("ada", PASSWORD), ("Bob", PASSWORD), ("Ada", "\ud800")],
)
def test_who_does_not_gets_nothing(people: People, name: str, password: str) -> None:
    people.put("Ada", PASSWORD, [Role.DECIDE])
    assert people.signed_in(name, password) is None


def test_a_guess_is_dear(people: People, monkeypatch: pytest.MonkeyPatch) -> None:
    """32 MiB and some hundredths of a second each (OWASP's Password Storage Cheat Sheet)."""
    asked: list[int] = []
    real = hashlib.scrypt

    def scrypt(password: bytes, **facts: Any) -> bytes:
        asked.append(128 * facts["n"] * facts["r"])
        return real(password, **facts)

    monkeypatch.setattr(hashlib, "scrypt", scrypt)
    people.put("Ada", PASSWORD, [Role.DECIDE])
    assert people.signed_in("Ada", PASSWORD) is not None
    assert people.signed_in("Bob", PASSWORD) is None  # who isn't there takes no less
    assert asked == [32 * 2**20] * 3


def test_the_password_is_not_kept(people: People, tmp_path: Path) -> None:
    people.put("Ada", PASSWORD, [Role.DECIDE])
    people.put("Bob", PASSWORD, [Role.DECIDE])
    with people._database.reading() as db:
        kept = db.execute("SELECT salt, hash FROM people").fetchall()
    assert len({bytes(row["hash"]) for row in kept}) == 2  # each has a salt of its own
    for path in tmp_path.iterdir():
        assert PASSWORD.encode() not in path.read_bytes()


def test_a_new_password_takes_the_old_ones_place(people: People) -> None:
    people.put("Ada", PASSWORD, [Role.DECIDE])
    people.put("Ada", PASSWORD[::-1], [Role.READ])
    assert people.signed_in("Ada", PASSWORD) is None
    caller = people.signed_in("Ada", PASSWORD[::-1])
    assert caller is not None
    assert caller.roles == {Role.READ}
    assert [person.name for person in people.all()] == ["Ada"]


def test_who_is_removed_is_out(people: People) -> None:
    people.put("Ada", PASSWORD, [Role.DECIDE])
    people.remove("Ada")
    assert people.signed_in("Ada", PASSWORD) is None
    assert people.caller("Ada") is None
    with pytest.raises(NotFoundError):
        people.remove("Ada")


@pytest.mark.parametrize(
    ("name", "password", "roles"),
    [
        ("", PASSWORD, [Role.READ]),
        ("a\nb", PASSWORD, [Role.READ]),
        ("Ada", "too short", [Role.READ]),
        ("Ada", "x" * 1_001, [Role.READ]),
        ("Ada", PASSWORD, []),
    ],
)
def test_what_can_not_be(people: People, name: str, password: str, roles: list[Role]) -> None:
    with pytest.raises(ConfigurationError):
        people.put(name, password, roles)


def test_a_session_that_was_ended_is_remembered_as_long_as_it_would_have_lasted(
    people: People,
) -> None:
    open_now = people.generation()
    people.end_session("a", until=100.0, now=10.0)
    people.end_session("a", until=100.0, now=11.0)
    people.end_session("b", until=50.0, now=12.0)
    assert not people.is_open(open_now, "a")
    assert not people.is_open(open_now, "b")
    assert people.is_open(open_now, "c")
    assert not people.is_open("another", "c")
    people.end_session("d", until=200.0, now=60.0)  # b's time is over: nobody needs to know of it
    assert people.is_open(open_now, "b")
    assert not people.is_open(open_now, "a")
    people.end_sessions()
    assert not people.is_open(open_now, "c")
    assert people.is_open(people.generation(), "a")


def test_what_signs_sessions_is_made_once_for_its_owner(tmp_path: Path) -> None:
    (tmp_path / "service").mkdir()
    key = session_key(tmp_path)
    assert len(key) == 64
    assert session_key(tmp_path) == key
    (path,) = (tmp_path / "service").iterdir()
    assert path.stat().st_mode & 0o777 == 0o600
