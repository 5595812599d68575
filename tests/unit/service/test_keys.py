"""API keys: shown once, kept as a hash, ended in time."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from fallback_tier.errors import ConfigurationError
from fallback_tier.service.database import Database
from fallback_tier.service.keys import OVERLAP, PREFIX, KeyStore
from fallback_tier.service.refusals import NotFoundError
from fallback_tier.service.roles import Role
from tests.kinds import OfKind


class Clock:
    now = datetime(2026, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with Database(tmp_path / "service" / "service.db") as opened:
        yield opened


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def keys(database: Database, clock: Clock) -> KeyStore:
    return KeyStore(database, clock)


def test_a_key_lets_its_holder_in_with_its_roles(keys: KeyStore) -> None:
    made = keys.new("ci", [Role.SUBMIT, Role.READ])
    assert made.secret.startswith(PREFIX)
    assert len(made.secret) == len(PREFIX) + 43  # 256 bits
    caller = keys.caller(made.secret)
    assert caller is not None
    assert (caller.name, caller.roles) == ("key:ci", {Role.SUBMIT, Role.READ})
    assert caller.may(Role.READ)
    assert not caller.may(Role.DECIDE)


def test_an_admin_may_all(keys: KeyStore) -> None:
    caller = keys.caller(keys.new("root", [Role.ADMIN]).secret)
    assert caller is not None
    assert all(caller.may(role) for role in Role)


def test_the_secret_is_nowhere_on_the_disk(keys: KeyStore, database: Database) -> None:
    secret = keys.new("ci", [Role.READ]).secret
    database.close()
    for path in database.path.parent.iterdir():
        assert secret.encode() not in path.read_bytes()
        assert path.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("guess", ["", PREFIX, "ftk_" + "A" * 43, "\ud800", "' OR 1=1 --"])
def test_what_is_no_key_lets_nobody_in(keys: KeyStore, guess: str) -> None:
    keys.new("ci", [Role.READ])
    assert keys.caller(guess) is None


def test_a_key_expires(keys: KeyStore, clock: Clock) -> None:
    secret = keys.new("ci", [Role.READ], timedelta(days=1)).secret
    clock.now += timedelta(hours=23)
    assert keys.caller(secret) is not None
    clock.now += timedelta(hours=1)
    assert keys.caller(secret) is None


def test_a_revoked_key_lets_nobody_in(keys: KeyStore) -> None:
    made = keys.new("ci", [Role.READ])
    keys.revoke(made.record.key_id)
    assert keys.caller(made.secret) is None
    with pytest.raises(NotFoundError, check=OfKind("no_such_key")):
        keys.revoke(made.record.key_id)


def test_a_rotated_key_keeps_its_name_and_the_old_one_ends(keys: KeyStore, clock: Clock) -> None:
    old = keys.new("ci", [Role.READ], timedelta(days=90))
    clock.now += timedelta(days=80)
    new = keys.rotate(old.record.key_id)
    assert (new.record.name, new.record.roles) == ("ci", (Role.READ,))
    assert new.record.expires_at == clock.now + timedelta(days=90)
    both = [keys.caller(old.secret), keys.caller(new.secret)]
    assert [caller and caller.name for caller in both] == ["key:ci", "key:ci"]
    clock.now += OVERLAP
    assert keys.caller(old.secret) is None
    assert keys.caller(new.secret) is not None


def test_rotation_makes_no_old_key_last_longer(keys: KeyStore, clock: Clock) -> None:
    old = keys.new("ci", [Role.READ], timedelta(hours=2))
    keys.rotate(old.record.key_id)
    clock.now += timedelta(hours=2)
    assert keys.caller(old.secret) is None


def test_a_name_is_given_once(keys: KeyStore) -> None:
    """``key:ci`` on record is the same holder's for ever."""
    made = keys.new("ci", [Role.READ])
    with pytest.raises(ConfigurationError, check=OfKind("name_taken"), match="'ci'"):
        keys.new("ci", [Role.READ])
    keys.revoke(made.record.key_id)
    with pytest.raises(ConfigurationError, check=OfKind("name_taken"), match="'ci'"):
        keys.new("ci", [Role.READ])
    with pytest.raises(NotFoundError, check=OfKind("no_such_key")):
        keys.rotate(made.record.key_id)


def test_an_expired_key_can_be_rotated(keys: KeyStore, clock: Clock) -> None:
    old = keys.new("ci", [Role.READ], timedelta(days=1))
    clock.now += timedelta(days=2)
    new = keys.rotate(old.record.key_id)
    assert keys.caller(new.secret) is not None
    assert keys.caller(old.secret) is None


@pytest.mark.parametrize("name", ["", "  ", "a\nb", "x" * 101])
def test_a_name_is_readable(keys: KeyStore, name: str) -> None:
    with pytest.raises(ConfigurationError, check=OfKind("bad_name")):
        keys.new(name, [Role.READ])


def test_a_key_without_a_role_is_refused(keys: KeyStore) -> None:
    with pytest.raises(ConfigurationError, check=OfKind("no_role")):
        keys.new("ci", [])
