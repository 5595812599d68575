"""``doctor``: what is wrong with a machine or a repository is found, named, and given a next step."""

import email.utils
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from fallback_tier.cli import exit_codes
from fallback_tier.execution import CommandResult
from fallback_tier.observing.health import machine
from fallback_tier.observing.health.checks import first_answer
from fallback_tier.observing.health.machine import MACHINE_TIMEOUT_S, machine_checks
from fallback_tier.observing.health.running import CheckResult, Checks, CheckState
from fallback_tier.sandbox.refusing import denying, how_to_allow
from fallback_tier.wiring import Configuration, RecordSettings
from tests.e2e.command import Ended, repository, run, snapshot
from tests.fakes.serving import listening

#: Nobody listens there: no test asks a real registry.
NOWHERE = "http://127.0.0.1:9"
PROXIES = {"HTTPS_PROXY": NOWHERE, "HTTP_PROXY": NOWHERE, "ALL_PROXY": "", "NO_PROXY": ""}


class _Clients:
    """Clients that may ask these hosts; each says its version."""

    def __init__(self, *hosts: str) -> None:
        self._hosts = hosts

    def run(
        self,
        tool: str,
        args: Sequence[str],
        *,
        cwd: Path,
        timeout_s: float,
        env: Mapping[str, str] | None = None,
    ) -> CommandResult:
        said = f"{tool} version 1.2.3 (of a test)\n"
        return CommandResult(argv=(tool, *args), exit_code=0, output=said, duration_ms=0)

    def allowed_hosts(self, tools: Sequence[str]) -> tuple[str, ...]:
        return self._hosts

    def take_refused(self) -> tuple[str, ...]:
        return ()


@contextmanager
def registry(status: int, ahead_s: float) -> Iterator[str]:
    """A registry by whose clock it is ``ahead_s`` later: its HOST:PORT."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()

        def date_time_string(self, timestamp: float | None = None) -> str:
            return email.utils.formatdate((timestamp or time.time()) + ahead_s, usegmt=True)

        def log_message(self, *_: object) -> None:
            pass

    with listening(Handler) as address:
        yield address.removeprefix("http://")


def found(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *hosts: str
) -> Mapping[str, CheckResult]:
    """What the checks of a machine without a plugin say whose clients may ask these hosts."""
    monkeypatch.setattr(machine, "clients_and_plugins", lambda _hosts: (_Clients(*hosts), {}))
    configuration = Configuration(
        state_dir=tmp_path / "state", record=RecordSettings(keys=tmp_path / "keys")
    )
    checks = machine_checks(configuration, None)
    return {one.check: one for one in Checks(checks, timeout_s=MACHINE_TIMEOUT_S).run().checks}


@pytest.mark.parametrize("status", [200, 401, 404, 503])
def test_a_registry_that_answers(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, status: int
) -> None:
    """Whatever it says: the client has the credentials."""
    with registry(status, 0) as host:
        reported = found(monkeypatch, tmp_path, host)
    assert {one.state for one in reported.values()} == {CheckState.OK}
    assert host in reported["registries"].reason
    assert "git 1.2.3" in reported["clients"].reason


def test_a_registry_that_does_not_answer_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with registry(200, 0) as host:
        reported = found(monkeypatch, tmp_path, host, "127.0.0.1:9")["registries"]
    assert reported.state is CheckState.DEGRADED
    assert "127.0.0.1:9" in reported.reason
    assert "HTTPS_PROXY" in reported.next_step


@pytest.mark.parametrize(
    ("ahead_s", "state"),
    [
        (0, CheckState.OK),
        (200, CheckState.OK),
        (400, CheckState.DEGRADED),
        (-400, CheckState.DEGRADED),
    ],
)
def test_a_clock_that_is_off(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, ahead_s: float, state: CheckState
) -> None:
    with registry(200, ahead_s) as host:
        assert found(monkeypatch, tmp_path, host)["clock"].state is state


def diagnosed(tmp_path: Path, *words: str | Path, path: Path | None = None) -> Ended:
    where = ("--state-dir", tmp_path / "state", "--keys", tmp_path / "keys", "--no-sandbox")
    env = PROXIES if path is None else {**PROXIES, "PATH": str(path)}
    return run("doctor", *words, *where, "--json", env=env)


def states(ended: Ended) -> Mapping[str, str]:
    return {one["check"]: one["state"] for one in ended.json["checks"]}


def test_a_repository_decides_which_clients_are_looked_at_and_stays_as_it_is(
    tmp_path: Path,
) -> None:
    root = repository(tmp_path / "repo", {"package.json": "{}"})
    before = snapshot(root)
    ended = diagnosed(tmp_path, root)
    reasons = {one["check"]: one["reason"] for one in ended.json["checks"]}
    assert ended.code == exit_codes.OK, ended
    assert states(ended)["repository"] == states(ended)["clients"] == "ok"
    assert states(ended)["registries"] == "degraded"  # nobody can be asked
    assert "npm" in reasons["clients"]
    assert "uv" not in reasons["clients"].replace(".", " ").split()
    assert snapshot(root) == before
    assert not (tmp_path / "state").exists()


def test_a_client_that_is_missing_fails_the_repository_that_needs_it(tmp_path: Path) -> None:
    """A machine without a repository is only degraded: other ecosystems can be fixed on it."""
    root = repository(tmp_path / "repo", {"package.json": "{}"})
    (programs := tmp_path / "programs").mkdir()
    for name in ("git", "sh"):
        (programs / name).symlink_to(f"/usr/bin/{name}")
    needs = diagnosed(tmp_path, root, "--offline", path=programs)
    assert (needs.code, states(needs)["clients"]) == (exit_codes.ENVIRONMENT, "failed")
    some = diagnosed(tmp_path, "--offline", path=programs)
    assert (some.code, states(some)["clients"]) == (exit_codes.OK, "degraded")


def test_a_repository_that_can_not_be_fixed_hides_nothing_else(tmp_path: Path) -> None:
    root = repository(tmp_path / "repo", {"package.json": "{}"})
    (root / "package.json").write_text("{ }")
    for place in (root, tmp_path / "none"):
        ended = diagnosed(tmp_path, place, "--offline")
        assert ended.code == exit_codes.ENVIRONMENT
        failing = {name for name, state in states(ended).items() if state == "failed"}
        assert failing == {"repository"}


def test_a_repository_of_no_known_ecosystem_is_said_to_be_one(tmp_path: Path) -> None:
    root = repository(tmp_path / "repo", {"README": "nothing"})
    ended = diagnosed(tmp_path, root, "--offline")
    assert (ended.code, states(ended)["repository"]) == (exit_codes.OK, "degraded")


@pytest.mark.parametrize(
    ("file", "text", "named"),
    [
        ("sys/user/max_user_namespaces", "0\n", "user.max_user_namespaces"),
        ("self/attr/current", "docker-default (enforce)\n", "apparmor=unconfined"),
        ("self/status", "Name:\tx\nSeccomp:\t2\n", "seccomp=unconfined"),
    ],
)
def test_what_denies_a_sandbox_is_named_with_what_allows_it(
    tmp_path: Path, file: str, text: str, named: str
) -> None:
    (tmp_path / file).parent.mkdir(parents=True)
    (tmp_path / file).write_text(text)
    assert named in how_to_allow(tmp_path)
    assert named not in how_to_allow(tmp_path / "another")


@pytest.mark.parametrize("user", [0, 1000])
def test_what_denies_it_to_users_is_not_named_to_root(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, user: int
) -> None:
    (tmp_path / "sys/kernel").mkdir(parents=True)
    for name, text in (
        ("unprivileged_userns_clone", "0"),
        ("apparmor_restrict_unprivileged_userns", "1"),
    ):
        (tmp_path / "sys/kernel" / name).write_text(text)
        monkeypatch.setattr("os.geteuid", lambda: user)
        assert (f"kernel.{name}" in how_to_allow(tmp_path)) == (user != 0)


def test_confinement_is_no_cause_beside_one(tmp_path: Path) -> None:
    """A seccomp filter or a profile shows that something is confined, not what denies the sandbox."""
    status, limit = tmp_path / "self/status", tmp_path / "sys/user/max_user_namespaces"
    for file, text in ((status, "Seccomp:\t2\n"), (limit, "0\n")):
        file.parent.mkdir(parents=True)
        file.write_text(text)
    assert [one.is_cause for one in denying(tmp_path)] == [True, False]
    assert "user.max_user_namespaces" in how_to_allow(tmp_path)
    assert "seccomp" not in how_to_allow(tmp_path)
    limit.write_text("1000\n")
    assert [one.is_cause for one in denying(tmp_path)] == [False]
    assert "seccomp" in how_to_allow(tmp_path)


@pytest.mark.parametrize(
    ("stated", "year"),
    [
        ("Fri, 31 Dec 9999 23:59:59 -2300", None),
        ("Fri, 31 Dec 9999 23:59:59 GMT", 9999),
        ("Fri, 31 Dec 9999 23:59:59 -0000", 9999),
        ("yesterday", None),
    ],
)
def test_a_servers_date_is_in_utc_or_none(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, stated: str, year: int | None
) -> None:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()

        def date_time_string(self, _timestamp: float | None = None) -> str:
            return stated

        def log_message(self, *_: object) -> None:
            pass

    with listening(Handler) as address:
        date = first_answer(address, {}, 10.0).date
        checks = found(monkeypatch, tmp_path, address.removeprefix("http://"))
    assert (None if date is None else date.year) == year
    assert checks["clock"].state is (CheckState.OK if year is None else CheckState.DEGRADED)
