"""Which servers a machine lacks, and what is started for those that it has."""

from pathlib import Path

import pytest

from fallback_plugins.shared.gates import services


def test_a_machine_without_a_server_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(services, "_FOLDERS", ())
    monkeypatch.setattr(services, "_POSTGRESQL", Path("/nowhere"))
    names = ["redis", "redis", "bitnami/postgresql", "rabbitmq"]
    assert [it.split(",")[0] for it in services.missing(names)] == [
        "needs redis",
        "needs bitnami/postgresql",
        "needs rabbitmq",
    ]
    assert services.around(["pytest"], names, {}) == ["pytest"]


def test_a_machine_with_one_starts_it_around_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("redis-server", "redis-cli"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setattr(services, "_FOLDERS", (str(tmp_path),))
    assert services.missing(["redis"]) == ()
    words = services.around(["pytest", "-q"], ["redis"], {"REDIS_URL": "redis://redis:6380/1"})
    assert words[-2:] == ["pytest", "-q"]
    assert "port=6380" in words[2]
