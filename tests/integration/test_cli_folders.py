"""A home that can't be written: one error that names every folder and what moves it, before anything is
done; and what needs no folder works."""

import os
import pwd
from collections.abc import Iterable
from pathlib import Path

import pytest

from fallback_tier.cli import exit_codes
from fallback_tier.cli.main import main
from fallback_tier.errors import StateFolderError
from fallback_tier.files.folders import users_folder
from fallback_tier.sandbox.clients import SubprocessClients
from fallback_tier.wiring.places import Place, check, check_caches
from tests.e2e.command import Ended, osv, repository, run, snapshot
from tests.kinds import OfKind

#: What moves each folder, as the error says it.
STATE = "the state folder: --state-dir DIR, or XDG_STATE_HOME"
KEYS = "the keys: --keys DIR, FALLBACK_TIER_KEYS or XDG_CONFIG_HOME"
UV = "uv's cache: UV_CACHE_DIR, or XDG_CACHE_HOME"
NPM = "npm's cache: npm_config_cache"


class Scenario:
    """A repository, an advisory, and a home that nobody, not even root, can write to: it is a file."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.home = place / "home"
        self.home.write_text("no folder\n")
        self.repo = repository(place / "repo", {"requirements.txt": "left==1.0.0\n"})
        self.advisory = place / "advisory.json"
        self.advisory.write_text(osv("left"))

    def __call__(self, *words: str | Path, **env: str) -> Ended:
        caches = ("UV_CACHE_DIR", "npm_config_cache", "NPM_CONFIG_CACHE")
        before = snapshot(self.repo)
        ended = run(*words, env={"HOME": str(self.home), **dict.fromkeys(caches, ""), **env})
        assert snapshot(self.repo) == before
        assert "Traceback" not in ended.err
        return ended

    def fix(self, *words: str | Path, **env: str) -> Ended:
        return self("fix", self.repo, "--advisory", self.advisory, "--dry-run", *words, **env)

    def plan(self, *words: str | Path) -> Ended:
        return self("plan", self.repo, "--advisory", self.advisory, *words)


@pytest.fixture
def scenario(tmp_path: Path) -> Scenario:
    return Scenario(tmp_path)


def moves(ended: Ended) -> list[str]:
    """What the error says moves a folder; checked: it is the one error, and names the folders too."""
    assert (ended.code, ended.json["error"]["code"]) == (exit_codes.ENVIRONMENT, "state_folder")
    message = ended.next_step.partition("(")[2].partition(")")[0]
    assert ended.problem.count(": Not a directory") == len(message.split("; "))
    return message.split("; ")


def test_all_that_can_not_be_written_is_named_at_once(scenario: Scenario) -> None:
    ended = scenario.fix("--json")
    assert moves(ended) == [STATE, KEYS, UV]
    for folder in (
        ".local/state/fallback-tier (the state folder)",
        ".config/fallback-tier/keys (the keys)",
        ".cache/uv (uv's cache)",
    ):
        assert f"{scenario.home}/{folder}: Not a directory" in ended.problem
    assert "HOME=DIR" in ended.next_step


def test_what_is_moved_is_not_named(scenario: Scenario) -> None:
    state, keys, cache = (scenario.place / name for name in ("state", "keys", "cache"))
    assert moves(scenario.fix("--json", "--state-dir", state)) == [KEYS, UV]
    assert moves(scenario.fix("--json", FALLBACK_TIER_KEYS=str(keys))) == [STATE, UV]
    assert moves(scenario.fix("--json", "--keys", keys, "--state-dir", state)) == [UV]
    blocked = scenario.home / "checkpoints"
    more = ["--state-dir", state, "--keys", keys, "--checkpoints", blocked]
    messages = moves(scenario.fix("--json", *more))
    assert messages == ["the checkpoints: --checkpoints DIR, or FALLBACK_TIER_CHECKPOINTS", UV]
    messages = moves(scenario.fix("--json", XDG_STATE_HOME=str(state), XDG_CACHE_HOME=str(cache)))
    assert messages == [KEYS]


@pytest.mark.sandbox
def test_with_all_of_them_moved_it_works(scenario: Scenario) -> None:
    state, keys, cache = (scenario.place / name for name in ("state", "keys", "cache"))
    ended = scenario.fix(
        *("--json", "--offline", "--state-dir", state, "--keys", keys), UV_CACHE_DIR=str(cache)
    )
    # No registry is to be had here, so uv installs nothing: that is found by a gate, not before.
    assert "outcome" in ended.json
    # The trail is there to be read, and the home is not needed for that.
    for words in (["log"], ["verify", "--keys", keys]):
        assert scenario("audit", *words, "--state-dir", state).code == exit_codes.OK


def test_what_needs_no_folder_works(scenario: Scenario) -> None:
    assert scenario("--version").code == exit_codes.OK
    for words in (["--no-resolve"], ["--offline"]):
        assert scenario.plan(*words).code == exit_codes.OK
    assert scenario("cache", "list").code == exit_codes.OK


def test_a_plan_that_resolves_needs_its_clients_cache_alone(scenario: Scenario) -> None:
    assert moves(scenario.plan("--json")) == [UV]
    # An advisory of another ecosystem asks for nothing where there is none of its manifests.
    scenario.advisory.write_text(osv("left", ecosystem="npm"))
    assert scenario.plan().code == exit_codes.REFUSED
    scenario.repo = repository(scenario.place / "npm", {"package.json": "{}"})
    assert moves(scenario.plan("--json")) == [NPM]


@pytest.mark.parametrize("words", [["keygen"], ["keygen", "--name", "a"]])
def test_a_key_is_put_somewhere(scenario: Scenario, words: Iterable[str]) -> None:
    assert moves(scenario("audit", *words, "--json")) == [KEYS]


def test_an_attempt_says_it_too(scenario: Scenario) -> None:
    request = f'{{"advisory": {osv("left")}, "repository": "{scenario.repo}"}}'
    env = {"HOME": str(scenario.home), "UV_CACHE_DIR": ""}
    assert moves(run("attempt", stdin=request, env=env)) == [STATE, KEYS, UV]


def test_no_home_at_all(
    scenario: Scenario, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As in a container whose user has a number and nothing else."""

    def nobody(_uid: int) -> pwd.struct_passwd:
        raise KeyError("no such user")

    monkeypatch.setattr(pwd, "getpwuid", nobody)
    monkeypatch.delenv("HOME")
    with pytest.raises(StateFolderError, check=OfKind("no_home")):
        users_folder("config")
    code = main(["fix", str(scenario.repo), "--advisory", str(scenario.advisory)])
    message = capsys.readouterr().err
    assert code == exit_codes.ENVIRONMENT
    assert message.startswith("fallback-tier: There is no home folder: HOME is not set")
    assert (
        "Set HOME, or XDG_STATE_HOME, to one; --state-dir and --keys name folders too." in message
    )
    with pytest.raises(StateFolderError, check=OfKind("not_writable")):
        check([Place(folder=Path("~/folder"), what="it", moved_by="--it")])


# --- how a folder is looked at ----------------------------------------------------------------------


def test_looking_leaves_nothing(tmp_path: Path) -> None:
    check([Place(folder=tmp_path / "a" / "b", what="it", moved_by="--it")])
    assert list(tmp_path.iterdir()) == []


def test_a_folder_without_permission(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may write anywhere")
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(StateFolderError, match=r"\(it\): Permission denied"):
            check([Place(folder=tmp_path / "a", what="it", moved_by="--it")])
    finally:
        tmp_path.chmod(0o700)


def test_a_client_that_keeps_its_cache_elsewhere_is_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own configuration may name a folder: uv is asked, only where its default can't be written."""
    home = tmp_path / "home"
    home.write_text("no folder\n")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("UV_CACHE_DIR", raising=False)
    with pytest.raises(StateFolderError, check=OfKind("not_writable"), match="uv"):
        check_caches(SubprocessClients(), ["PyPI"], offline=False)
    settings = tmp_path / "uv.toml"
    settings.write_text(f'cache-dir = "{tmp_path / "cache"}"\n')
    monkeypatch.setenv("UV_CONFIG_FILE", str(settings))
    check_caches(SubprocessClients(), ["PyPI"], offline=False)
    assert not (tmp_path / "cache").exists()
