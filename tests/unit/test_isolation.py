"""What conftest promises: no network, no key, no write to the user's home, no silent skip in CI, groups."""

import os
import pwd
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from pytest_socket import SocketConnectBlockedError

import tests.conftest as conftest
from tests.waiting import PATIENCE_S

#: TEST-NET-1 (RFC 5737): no host has this address.
NOBODY = ("192.0.2.1", 443)


def test_no_connection_leaves_this_machine() -> None:
    with (
        socket.socket() as one,
        pytest.warns(UserWarning, match=r"192\.0\.2\.1"),
        pytest.raises(SocketConnectBlockedError, match=r"192\.0\.2\.1"),
    ):
        one.connect(NOBODY)


def test_loopback_and_unix_sockets_connect(tmp_path: Path) -> None:
    for family, address in (
        (socket.AF_INET, ("127.0.0.1", 0)),
        (socket.AF_UNIX, str(tmp_path / "socket")),
    ):
        with socket.socket(family) as server, socket.socket(family) as client:
            server.bind(address)
            server.listen()
            client.connect(server.getsockname())


def test_the_home_is_not_the_users() -> None:
    user = Path(pwd.getpwuid(os.getuid()).pw_dir)
    assert not Path.home().is_relative_to(user)
    for name in ("NPM_CONFIG_CACHE", "UV_CACHE_DIR"):
        assert Path(os.environ[name]).is_relative_to(Path.home())


@pytest.mark.parametrize("key", conftest.KEYS)
def test_a_key_in_the_environment_stops_the_session(key: str) -> None:
    done = _session("--collect-only", **{key: "x"})
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert key in done.stderr
    assert "make test" in done.stderr


@pytest.mark.parametrize(("ci", "outcome"), [("true", "failed"), ("", "skipped")])
def test_a_missing_sandbox_is_a_failure_in_ci_only(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest, ci: str, outcome: str
) -> None:
    monkeypatch.setattr(conftest, "_sandbox_problem", lambda: "No sandbox: none.")
    monkeypatch.setenv("CI", ci)
    request.node.add_marker("sandbox")
    kind = pytest.fail.Exception if outcome == "failed" else pytest.skip.Exception
    with pytest.raises(kind, match="No sandbox: none"):
        conftest.pytest_runtest_setup(request.node)


@pytest.mark.xdist_group("kept-together")
def test_what_shares_a_group_stays_on_one_worker(request: pytest.FixtureRequest) -> None:
    if not getattr(request.config.option, "loadgroup", False):
        pytest.skip("groups are of `pytest -n N --dist loadgroup`, as `make test` runs it")
    assert request.node.nodeid.endswith("@kept-together")


def _session(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments, __file__],
        cwd=conftest.ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )


def test_a_pytest_that_a_test_starts_makes_its_folders_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text("def test_it(tmp_path): print(f'in {tmp_path}.')\n")
    (tmp_path / "pytest.ini").touch()
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-s"],
        cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S,
    )  # fmt: skip
    (made,) = re.findall(r"in (/.*)\.", ran.stdout)
    assert tmp_path.parent in Path(made).parents
