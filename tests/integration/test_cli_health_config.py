"""``health --config``: what a service with this file would find."""

from pathlib import Path

from fallback_tier.cli import exit_codes
from tests.e2e.command import run


def test_a_services_file_says_what_is_looked_at(tmp_path: Path) -> None:
    """Its state folder, its limit on the disk, its model's server, which nobody answers for here."""
    (config := tmp_path / "serve.toml").write_text(
        f'state_dir = "{tmp_path / "state"}"\n[limits]\nmin_free_bytes = {10**18}\n'
        '[model]\nmodel = "some-model"\nbase_url = "http://127.0.0.1:9"\n'
    )
    reported = run("health", "--config", config, "--json")
    found = {one["check"]: one for one in reported.json["checks"]}
    assert reported.code == exit_codes.ENVIRONMENT
    assert found["model"]["state"] == "degraded"
    assert "127.0.0.1:9" in found["model"]["reason"]
    assert found["disk"]["state"] == "failed"
    other = run("health", "--state-dir", tmp_path / "other", "--json")
    assert {one["check"]: one["state"] for one in other.json["checks"]}["disk"] == "ok"


def test_the_file_and_an_option_that_it_has_are_not_both_given(tmp_path: Path) -> None:
    (config := tmp_path / "serve.toml").write_text("")
    refused = run("health", "--config", config, "--base-url", "http://127.0.0.1:9")
    assert refused.code == exit_codes.BAD_INPUT
    assert "--base-url and --config are both given" in refused.problem
    missing = run("health", "--config", tmp_path / "none.toml")
    assert missing.code == exit_codes.BAD_INPUT
