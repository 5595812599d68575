"""``fallback-tier config``: each value with its source, and no secret."""

import json
from pathlib import Path
from typing import Any

from fallback_tier.configured import SETTING_KEYS, schema
from tests.e2e.command import osv, run
from tests.fakes.repository import commit_all, write

COMMITTED = '[tool.fallback-tier]\nrelease_age = 7\n\ntest_command = "make test"\n'
USERS = '[tool.fallback-tier]\nmodel = "m"\nbase_url = "http://user:hunter2@127.0.0.1:1/"\n'


def repository(root: Path, text: str = COMMITTED) -> str:
    write(root, {".fallback-tier.toml": text})
    commit_all(root)
    return str(root)


def shown(*words: str, **env: str) -> dict[str, tuple[Any, str, str]]:
    ended = run("config", *words, "--json", env=env)
    assert ended.code == 0, ended.err
    document = json.loads(ended.out)
    assert [it["key"] for it in document["settings"]] == [*SETTING_KEYS]
    return {it["key"]: (it["value"], it["source"], it["where"]) for it in document["settings"]}


def test_each_value_has_its_source(tmp_path: Path) -> None:
    users = tmp_path / "users.toml"
    users.write_text(USERS)
    root = repository(tmp_path / "repo")
    env = {"FALLBACK_TIER_CONFIG": str(users), "FALLBACK_TIER_MAX_USD": "1.50"}
    found = shown(root, "--judge-model", "j", **env)
    assert found["model"] == ("m", "users_file", f"{users}:2")
    assert found["judge_model"] == ("j", "option", "--judge-model")
    assert found["max_usd"] == ("1.50", "variable", "FALLBACK_TIER_MAX_USD")
    assert found["max_tokens"] == (None, "default", "")
    assert found["release_age"][:2] == (7, "repository")
    assert found["release_age"][2].endswith(":2")
    assert found["test_command"][0] == ["make test"]
    # What is not committed, and a repository that is not named, say nothing.
    (tmp_path / "repo" / ".fallback-tier.toml").write_text("")
    assert shown(root, **env)["release_age"][1] == "repository"
    assert shown(**env)["release_age"][1] == "default"


def test_no_secret_is_shown(tmp_path: Path) -> None:
    users = tmp_path / "users.toml"
    users.write_text(USERS)
    env = {"FALLBACK_TIER_CONFIG": str(users), "FALLBACK_TIER_API_KEY": "sk-hunter3"}
    for words in ((), ("--json",)):
        ended = run("config", *words, env=env)
        assert ended.code == 0
        assert "hunter" not in ended.out + ended.err
    assert json.loads(ended.out)["keys_set"]["FALLBACK_TIER_API_KEY"] is True


def test_a_hostile_repository_is_refused_by_file_and_line(tmp_path: Path) -> None:
    """In ``config`` and in ``plan``, before anything is spent."""
    text = '[tool.fallback-tier]\nmax_usd = 1000\nbase_url = "http://127.0.0.1:1"\n'
    root = repository(tmp_path / "repo", text)
    advisory = tmp_path / "advisory.json"
    advisory.write_text(osv("left"))
    for words in (("config", root), ("plan", root, "--advisory", advisory)):
        ended = run(*words, "--json")
        error = ended.json["error"]
        assert (ended.code, error["code"]) == (2, "configuration")
        assert error["problem"].startswith(".fallback-tier.toml of commit ")
        assert ":3: " in error["problem"]


def test_the_schema_is_printed() -> None:
    ended = run("config", "--schema")
    assert (ended.code, json.loads(ended.out)) == (0, schema())
