"""Health and metrics of a record in PostgreSQL: a server, roles, rows that other sessions wrote."""

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from pydantic import SecretStr

from fallback_audit.ports import Scope
from fallback_tier.observing.health.checks import checks_of
from fallback_tier.observing.health.running import CheckResult, Checks, CheckState
from fallback_tier.observing.observer import Observer, build_observer
from fallback_tier.wiring import Configuration, RecordSettings
from fallback_tier.wiring.trail import open_trail
from tests.postgres.server import Server
from tests.unit.audit import trails

SCOPE = Scope(fix_id="fix-1", gate_transition_id="gate-1")


@pytest.fixture
def configuration(tmp_path: Path, postgres_url: str) -> Configuration:
    record = RecordSettings(
        database=SecretStr(postgres_url),
        keys=tmp_path / "keys",
        checkpoints=tmp_path / "checkpoints",
    )
    return Configuration(state_dir=tmp_path / "state", record=record, sandbox_waiver="a test")


@pytest.fixture
def observer(configuration: Configuration) -> Iterator[Observer]:
    built = build_observer(configuration, {}, min_free_bytes=1)
    yield built
    built.close()


def told(configuration: Configuration) -> dict[str, CheckResult]:
    health = Checks(checks_of(configuration, min_free_bytes=1), timeout_s=60.0).run()
    return {one.check: one for one in health.checks}


def record(configuration: Configuration) -> None:
    store = open_trail(configuration.state_dir, configuration.record)
    for event in trails.verified_on_retry():
        store.append(SCOPE, event)
    store.close()


def value(observer: Observer, line: str) -> str:
    text, _ = observer.metrics()
    (found,) = [one for one in text.decode().splitlines() if one.startswith(f"{line} ")]
    return found.rpartition(" ")[2]


def test_a_record_that_is_not_made_yet_is_told(configuration: Configuration) -> None:
    found = told(configuration)
    assert found["store"].state is CheckState.FAILED
    assert found["store"].next_step


def test_what_another_session_recorded_counts(
    configuration: Configuration, observer: Observer
) -> None:
    assert value(observer, "fallback_tier_trail_readable") == "0.0"
    record(configuration)
    assert value(observer, "fallback_tier_trail_readable") == "1.0"
    assert value(observer, "fallback_tier_attempts_total") == "2.0"
    assert value(observer, "fallback_tier_chain_lag_events") == "0.0"
    found = told(configuration)
    assert found["store"].state is CheckState.OK
    assert "PostgreSQL answers" in found["store"].reason
    assert found["checkpoints"].state is CheckState.OK


def test_a_database_that_lets_nobody_in_is_told_and_found_again(
    configuration: Configuration, postgres_server: Server, postgres_url: str
) -> None:
    _, _, schema = postgres_url.rpartition("&")
    store = SecretStr(f"{postgres_server.url('watched')}&{schema}")
    settings = configuration.record.model_copy(update={"database": store})
    watched = configuration.model_copy(update={"record": settings})
    with psycopg.connect(postgres_server.url(), autocommit=True) as admin:
        admin.execute("CREATE ROLE watched SUPERUSER LOGIN")
        record(watched)
        observer = build_observer(watched, {}, min_free_bytes=1)
        assert value(observer, "fallback_tier_attempts_total") == "2.0"
        admin.execute("ALTER ROLE watched NOLOGIN")
        assert value(observer, "fallback_tier_trail_readable") == "0.0"
        assert value(observer, "fallback_tier_attempts_total") == "2.0"  # old, and said to be
        assert told(watched)["store"].state is CheckState.FAILED
        admin.execute("ALTER ROLE watched LOGIN")
        assert value(observer, "fallback_tier_trail_readable") == "1.0"
        assert told(watched)["store"].state is CheckState.OK
